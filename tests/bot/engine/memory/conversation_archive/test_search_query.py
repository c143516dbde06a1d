"""Patterns that take for ever without any repeat that has no end."""

from __future__ import annotations

import pytest

from bot.engine.memory.conversation_archive.search_text import InvalidSearchPattern, SafePattern


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 40 + "b",
        "a{0,9}" * 20 + "b",
        "(a{0,9}){0,9}b",
        "((a?){5}){5}b",
        "(a|a)" * 30 + "b",
        "(?:a|a){10}b",
        "(a|a|a){9}(a|a|a){9}b",
    ],
)
def test_what_can_be_read_in_too_many_ways_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSearchPattern, match="too many ways"):
        SafePattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\d{4}-\d{2}-\d{2}", "on 2026-11-22"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}", "id 0a1b2c3d-0123-4567"),
        (r"\d{1,3}(?:\.\d{1,3}){3}", "at 192.168.0.1"),
        (r"(?:error|warn(?:ing)?|fail(?:ed|ure)?)s?", "two warnings"),
        (r"colou?rs?", "color"),
    ],
)
def test_what_people_look_for_is_not(pattern: str, text: str) -> None:
    assert SafePattern(pattern).find(text) is not None
