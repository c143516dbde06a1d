"""A change is said as a unified diff that fits on a card."""

from __future__ import annotations

from bot.engine.tools.file_editing import MAX_DIFF_CHARS, unified_diff


def test_nothing_changed_is_nothing() -> None:
    assert unified_diff("a", "x\n", "x\n") == ""


def test_a_long_change_is_cut_with_a_note() -> None:
    diff = unified_diff("a", "", "".join(f"line {at}\n" for at in range(2_000)))

    assert len(diff) <= MAX_DIFF_CHARS + 50
    assert diff.endswith("more lines are not shown]")
    assert "+line 0" in diff


def test_a_huge_line_is_cut() -> None:
    assert len(unified_diff("a", "", "x" * 1_000_000)) <= MAX_DIFF_CHARS + 100


def test_a_huge_file_is_compared_at_once() -> None:
    old = [f"line {at % 7}" for at in range(50_000)]
    new = [*old[:30_000], "changed", *old[30_001:]]

    diff = unified_diff("a", "\n".join(old), "\n".join(new))

    assert diff == "--- a\n+++ a\n@@ -30001,1 +30001,1 @@\n-line 5\n+changed"
