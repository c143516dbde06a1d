"""What models write is found in their words, and mended where it is nearly JSON."""

from __future__ import annotations

from typing import Any

import pytest

from bot.engine.workflow.forms.mending import found_in
from bot.engine.workflow.model.faults import BadGraph

FOUND: dict[str, tuple[str, Any]] = {
    "bare": ('{"a": 1}', {"a": 1}),
    "fenced": ('Here:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
    "fenced without a word": ('```\n{"a": 1}\n```', {"a": 1}),
    "the last fence": ('```json\n{"a": 1}\n```\nBetter:\n```json\n{"a": 2}\n```', {"a": 2}),
    "a fence of code behind it": ('```json\n{"a": 1}\n```\n```python\n{"b"}\n```', {"a": 1}),
    "among words": ('I take {"a": {"b": 2}} for that.', {"a": {"b": 2}}),
    "braces within texts": ('So: {"a": "}{", "b": 1}.', {"a": "}{", "b": 1}),
    "the longest among words": ('{"a": 1} and {"b": [1, 2, 3]} too', {"b": [1, 2, 3]}),
    "a comma too many": ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
    "comments": ('{"a": 1, // one\n /* two */ "b": 2 # three\n}', {"a": 1, "b": 2}),
    "no comment in a text": ('{"a": "http://x", "b": 1,}', {"a": "http://x", "b": 1}),
    "single quotes": ("{'a': 'it is', 'b': True}", {"a": "it is", "b": True}),
    "an escaped single quote": (r"{'a': 'it\'s'}", {"a": "it's"}),
    "curly quotes": ("{“a”: “b”}", {"a": "b"}),
    "quotes within": ('{"a": "say "hi" to her", "b": 1}', {"a": 'say "hi" to her', "b": 1}),
    "a new line within": ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
    "other control characters": ('{"a": "one\ttwo\x07",}', {"a": "one\ttwo\x07"}),
    "names without quotes": ("{a: 1, b: yes}", {"a": 1, "b": "yes"}),
    "words of Python": ("{'a': None, 'b': False}", {"a": None, "b": False}),
    "a backslash for itself": (r'{"a": "C:\work\d"}', {"a": r"C:\work\d"}),
}


@pytest.mark.parametrize("name", FOUND)
def test_json_is_found_and_mended(name: str) -> None:
    text, expected = FOUND[name]

    assert found_in(text) == expected


@pytest.mark.parametrize("text", ["", "It is 42.", "Use {name} here.", "if (a) { b }", "[1, 2]"])
def test_words_without_json_hold_none(text: str) -> None:
    assert found_in(text) is None


@pytest.mark.parametrize(
    "text", ['```json\n{"a": /* 1}\n```', '```json\n{"a": \n```', '{"a": 1 "b": [}', '{"a": }']
)
def test_json_that_is_beyond_mending_is_refused(text: str) -> None:
    with pytest.raises(BadGraph, match="bad_json"):
        found_in(text)


@pytest.mark.parametrize(
    "text", ["{" * 100_000, '{"' * 50_000, "{'a': " * 20_000, "{/* " * 20_000, '"\\' * 50_000]
)
def test_hostile_answers_take_no_time_to_speak_of(text: str) -> None:
    assert found_in(text) is None
