"""A change is said as a unified diff that fits on a card."""

from __future__ import annotations

from bot.engine.agent.diffs import LONGEST, unified


def test_nothing_changed_is_nothing() -> None:
    assert unified("a", "x\n", "x\n") == ""


def test_a_long_change_is_cut_with_a_note() -> None:
    diff = unified("a", "", "".join(f"line {at}\n" for at in range(2_000)))

    assert len(diff) <= LONGEST + 50
    assert diff.endswith("more lines are not shown]")
    assert "+line 0" in diff


def test_a_huge_line_is_cut() -> None:
    assert len(unified("a", "", "x" * 1_000_000)) <= LONGEST + 100


def test_a_huge_file_is_compared_at_once() -> None:
    old = [f"line {at % 7}" for at in range(50_000)]
    new = [*old[:30_000], "changed", *old[30_001:]]

    diff = unified("a", "\n".join(old), "\n".join(new))

    assert diff == "--- a\n+++ a\n@@ -30001,1 +30001,1 @@\n-line 5\n+changed"
