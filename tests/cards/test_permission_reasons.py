"""Why a tool may be used, kept as a key and told in the reader's language."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cards.catalog import catalog_for
from cards.permission_reasons import build_reason, describe_reason
from storage.records.people import Language

EN, ZH = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)
POLICY = Path(__file__).parents[2] / "bot" / "engine" / "permissions"


def test_a_reason_kept_is_told_to_each_reader_in_their_language() -> None:
    kept = build_reason("no_rule", what="make").to_json()

    assert describe_reason(kept, EN) == "No rule allows make."
    assert describe_reason(kept, ZH) == "没有规则允许“make”。"


def test_that_nobody_is_asked_is_said_after_the_reason() -> None:
    kept = replace(build_reason("outside"), unasked=True).to_json()

    assert (
        describe_reason(kept, EN)
        == "It's outside the workspace. Approval prompts are off, so it was denied."
    )
    assert describe_reason(kept, ZH) == "在工作目录之外。已关闭审批询问，因此拒绝。"


@pytest.mark.parametrize(
    "kept",
    ["No rule allows make.", "", '{"reason"', '{"reason": "outside"}', '{"reason": 1, "facts": 2}'],
)
def test_what_was_kept_as_plain_text_is_told_as_it_is(kept: str) -> None:
    assert describe_reason(kept, ZH) == kept


def test_a_reason_of_another_version_is_told_somehow() -> None:
    kept = '{"reason": "no_such_key", "facts": {"what": "make"}, "unasked": false}'

    assert describe_reason(kept, ZH) == "no such key make"


def test_a_reason_that_wants_another_fact_is_told_somehow() -> None:
    assert describe_reason(build_reason("no_rule", other="make").to_json(), EN) == "no rule make"


def test_every_reason_the_policy_gives_has_its_words() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in POLICY.glob("*.py"))
    keys = set(re.findall(r'\b(?:build_reason|allow|no_rule|ask|deny)\(\s*"([^"]+)"', source))
    unclear = re.findall(r'\b(?:UnclearShellWord|_mark_unclear)\(\s*"([^"]+)"', source)
    keys |= {f"unclear.{key}" for key in unclear}

    assert len(keys) > 50
    assert {key for key in keys if not EN.has(f"reason.{key}")} == set()
