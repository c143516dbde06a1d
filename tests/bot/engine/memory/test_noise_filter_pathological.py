"""Texts that are made to take for ever cost no more than their length."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bot.engine.memory import explicit_statements, noise_filter
from storage.memory.markdown import page_format
from storage.memory.markdown.page_format import MarkdownLayout

_WIDE = re.compile(r"\^\\s\*|\\n\]?\\s\*")
"""Read on over the ends of lines from every line anew, a message of empty lines takes its length
squared; nothing is timed here, since that says more of the machine."""


def patterns(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns(each)


def all_of(*modules: object) -> list[re.Pattern[str]]:
    return [
        each for module in modules for value in vars(module).values() for each in patterns(value)
    ]


def test_no_rule_begins_at_each_of_many_empty_lines_anew() -> None:
    found = [
        each for each in all_of(noise_filter, explicit_statements) if each.flags & re.MULTILINE
    ]

    assert found
    assert not [each.pattern for each in found if _WIDE.search(each.pattern)]


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_a_megabyte_of_blanks_is_read_at_once(blank: str) -> None:
    text = f"remember{blank * 1_000_000}this"

    assert noise_filter.strip_workflow_scaffold(text)
    assert noise_filter.classify_noise(text) is None
    assert not explicit_statements.find_explicit_statements(text)
    assert list(page_format.parse_page(text, MarkdownLayout.BOOK).lines)
