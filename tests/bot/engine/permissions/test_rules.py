"""Rules are read as they are written, and match strictly to allow and loosely to forbid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.permissions.rules import (
    UNKNOWN_TEXT,
    PermissionRule,
    PermissionRuleError,
    normalize_text,
    parse_rules,
)

_TEXTS = st.text(alphabet="ab/ *?.-", max_size=12)


def test_rules_are_separated_outside_brackets_only() -> None:
    rules = parse_rules("read, exec(git log a, b); web_fetch(*.example.com)\nexec(f (x))")

    assert [str(rule) for rule in rules] == [
        "read",
        "exec(git log a, b)",
        "web_fetch(*.example.com)",
        "exec(f (x))",
    ]


@pytest.mark.parametrize(
    "text", ["exec(", "exec()", "(x)", "exec(a) b", "ex ec(a)", "x(" + "a" * 600]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(PermissionRuleError):
        parse_rules(text)


def test_forbidding_sees_through_case_width_and_invisible_characters() -> None:
    rule = PermissionRule(tool="Exec", pattern="git push*")

    assert rule.applies_to("ｅxec")
    assert rule.matches("GIT\u200b  PuSh origin")
    assert not rule.covers("GIT push origin")


def test_only_a_star_covers_what_is_not_known_yet() -> None:
    assert PermissionRule(tool="exec", pattern="cat *").covers(f"cat {UNKNOWN_TEXT}")
    assert not PermissionRule(tool="exec", pattern="cat ?").covers(f"cat {UNKNOWN_TEXT}")
    assert PermissionRule(tool="exec", pattern="rm -rf /*").may_match(f"rm {UNKNOWN_TEXT}")
    assert not PermissionRule(tool="exec", pattern="rm -rf /*").may_match(f"cat {UNKNOWN_TEXT}")


@given(_TEXTS, _TEXTS, _TEXTS)
def test_what_any_filling_would_hit_may_be_hit(pattern: str, left: str, filling: str) -> None:
    rule = PermissionRule(tool="exec", pattern=pattern)
    text = f"{left}{filling}"

    if normalize_text(text) == text and rule.matches(text):
        assert rule.may_match(f"{left}{UNKNOWN_TEXT}")


@given(_TEXTS, _TEXTS, _TEXTS)
def test_what_is_covered_with_a_hole_is_covered_with_any_filling(
    pattern: str, left: str, filling: str
) -> None:
    rule = PermissionRule(tool="exec", pattern=pattern)

    if rule.covers(f"{left}{UNKNOWN_TEXT}"):
        assert rule.covers(f"{left}{filling}")
