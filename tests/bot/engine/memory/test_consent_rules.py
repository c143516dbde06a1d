"""Tests which sentences forbid remembering, and which only look like it, by a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.memory.consent_rules import find_consent_request
from storage.records.memory_consent import ConsentRequest

_MAY_BE_ASKED = 0.04
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


def test_a_wish_may_be_for_the_message_that_is_still_to_come() -> None:
    table = sentences()["next"]

    assert {each: got for each in table if (got := verdict(each)) != "next"} == {}


def test_a_wish_may_be_for_a_topic_whenever_it_comes_up() -> None:
    table = sentences()["topic"]

    assert {each: got for each in table if (got := verdict(each)) != "topic"} == {}
    assert verdict("Don't keep notes on my love life, but I'm seeing Paul") == "this"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("maybe let it slip your mind", ConsentRequest.BEFORE),
        ("that stays in the vault", ConsentRequest.BEFORE),
        ("I'd rather this left no trace: I snore", ConsentRequest.THIS),
        ("这话到此为止", ConsentRequest.BEFORE),
        ("我打呼噜，这点就不必进我的资料了", ConsentRequest.THIS),
    ],
)
def test_a_possible_wish_alone_may_mean_what_was_said_before(
    text: str, wanted: ConsentRequest
) -> None:
    wish = find_consent_request(text)

    assert wish is not None
    assert (wish.is_sure, wish.wanted) == (False, wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I faint at needles. Forget I told you that.", ConsentRequest.THIS),
        ("我怕打针，当我没说过", ConsentRequest.THIS),
        ("What time is it? Also forget what I just told you.", ConsentRequest.BEFORE),
    ],
)
def test_words_that_mean_their_own_message_forget_no_other(
    text: str, wanted: ConsentRequest
) -> None:
    wish = find_consent_request(text)

    assert wish is not None
    assert wish.wanted is wanted or not wish.is_sure


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
