"""Flags in front of a command's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.flags import ParsedFlags, parse_flags, quote_value


@pytest.mark.parametrize(
    ("text", "options", "rest"),
    [
        ("plain words", {}, "plain words"),
        ("-p urgent fix it", {"p": "urgent"}, "fix it"),
        ("—p=urgent fix it", {"p": "urgent"}, "fix it"),
        ('--title "two words" --self do', {"title": "two words", "self": ""}, "do"),
        ("-P 1 -p 2 x", {"p": "2"}, "x"),
        ("--unknown thing", {}, "--unknown thing"),
        ("- a list\n- of points", {}, "- a list\n- of points"),
        ("do -p urgent", {}, "do -p urgent"),
        ("-p", {"p": ""}, ""),
    ],
)
def test_flags_are_taken_off_until_the_text_begins(
    text: str, options: dict[str, str], rest: str
) -> None:
    assert parse_flags(text, valued=("p", "title"), bare=("self",)) == ParsedFlags(
        options=options, text=rest
    )


def test_two_dashes_end_the_flags() -> None:
    found = parse_flags("-p urgent -- -p normal -- @opus", valued=("p",))

    assert found == ParsedFlags(options={"p": "urgent"}, text="-p normal -- @opus", terminated=True)


@given(value=st.text(), text=st.text())
def test_whatever_is_quoted_and_whatever_follows_two_dashes_arrives(value: str, text: str) -> None:
    found = parse_flags(f"--title {quote_value(value)} -- {text}", valued=("title",))

    assert found == ParsedFlags(options={"title": value}, text=text.strip(), terminated=True)
