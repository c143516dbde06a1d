"""Flags in front of a command's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.flags import Flagged, flags_of, quoted


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
    assert flags_of(text, valued=("p", "title"), bare=("self",)) == Flagged(
        options=options, text=rest
    )


def test_two_dashes_end_the_flags() -> None:
    found = flags_of("-p urgent -- -p normal -- @opus", valued=("p",))

    assert found == Flagged(options={"p": "urgent"}, text="-p normal -- @opus", ended=True)


@given(value=st.text(), text=st.text())
def test_whatever_is_quoted_and_whatever_follows_two_dashes_arrives(value: str, text: str) -> None:
    found = flags_of(f"--title {quoted(value)} -- {text}", valued=("title",))

    assert found == Flagged(options={"title": value}, text=text.strip(), ended=True)
