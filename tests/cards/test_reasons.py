"""Why a tool may be used, kept as a key and told in the reader's language."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cards.reasons import because, reason_told
from cards.words import words_for
from storage.records.people import Language

EN, ZH = words_for(Language.ENGLISH), words_for(Language.CHINESE)
POLICY = Path(__file__).parents[2] / "bot" / "engine" / "agent" / "policy"


def test_a_reason_kept_is_told_to_each_reader_in_their_language() -> None:
    kept = because("no_rule", what="make").packed()

    assert reason_told(kept, EN) == "No rule allows make."
    assert reason_told(kept, ZH) == "没有规则允许“make”。"


def test_that_nobody_is_asked_is_said_after_the_reason() -> None:
    kept = replace(because("outside"), unasked=True).packed()

    assert reason_told(kept, EN) == "It lies outside the workspace. Nobody is asked: asking is off."
    assert reason_told(kept, ZH) == "它在工作目录之外。按设置不向任何人询问。"


@pytest.mark.parametrize(
    "kept",
    ["No rule allows make.", "", '{"reason"', '{"reason": "outside"}', '{"reason": 1, "facts": 2}'],
)
def test_what_was_kept_as_plain_text_is_told_as_it_is(kept: str) -> None:
    assert reason_told(kept, ZH) == kept


def test_a_reason_of_another_version_is_told_somehow() -> None:
    kept = '{"reason": "no_such_key", "facts": {"what": "make"}, "unasked": false}'

    assert reason_told(kept, ZH) == "no such key make"


def test_a_reason_that_wants_another_fact_is_told_somehow() -> None:
    assert reason_told(because("no_rule", other="make").packed(), EN) == "no rule make"


def test_every_reason_the_policy_gives_has_its_words() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in POLICY.glob("*.py"))
    keys = set(re.findall(r'because\(\s*"([^"]+)"', source))
    keys |= {f"unclear.{key}" for key in re.findall(r'UnclearWord\("([^"]+)"', source)}

    assert len(keys) > 50
    assert {key for key in keys if not EN.has(f"reason.{key}")} == set()
