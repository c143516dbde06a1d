"""Tests which sentences forbid remembering, and which only look like it, by a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.memory.consent_rules import find_consent_request

_MAY_BE_ASKED = 0.03
_TABLE = Path(__file__).with_name("consent_sentences.txt")


def sentences() -> dict[str, list[str]]:
    """The sentences of the table by what they forbid."""
    found: dict[str, list[str]] = {}
    kind: list[str] = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            kind = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("# "):
            kind.append(line.replace("\\n", "\n"))
    return found


def verdict(text: str) -> str:
    wish = find_consent_request(text)
    if wish is None:
        return "none"
    return wish.wanted.value if wish.is_sure else "asked"


def test_where_a_wish_cannot_be_told_from_talk_the_person_is_asked() -> None:
    table = sentences()["doubt"]

    assert {each: got for each in table if (got := verdict(each)) != "asked"} == {}


@pytest.mark.parametrize("forbidden", ["this", "before", "chat", "none"])
def test_it_is_understood_what_must_not_be_remembered(forbidden: str) -> None:
    table = sentences()[forbidden]

    understood = {each: verdict(each) for each in table}

    assert {each: got for each, got in understood.items() if got not in {forbidden, "asked"}} == {}
    asked = [each for each, got in understood.items() if got == "asked"]
    assert forbidden == "none" or asked == []
    assert len(asked) <= len(table) * _MAY_BE_ASKED, "a question may be asked too often, not always"
    assert len(table) > 70, "the table must not lose its sentences"


@pytest.mark.parametrize(
    "text",
    [
        "不要把这个" * 20_000,
        "don't keep " * 10_000,
        "don't " * 17_000 + "remember this",
        "forget what i just " * 5_000,
        "我说的" * 30_000,
        "off the record my " * 5_000,
        "what i said the last " * 5_000,
        "x" * 100_000,
    ],
)
def test_a_message_of_100_kilobytes_is_read_without_backtracking(text: str) -> None:
    find_consent_request(text)
