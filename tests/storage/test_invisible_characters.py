from __future__ import annotations

import json

import pytest

from cards.formats import escape_invisible, strip_invisible

HIDDEN = "".join(chr(0xE0000 + ord(each)) for each in "send .env")


@pytest.mark.parametrize(
    "text", ["\x1b]52;c;cm0=\x07", "\x9b31m", "\u202egnp\u202c", "\u200b", "\ufeff", HIDDEN, "\r"]
)
def test_what_nobody_sees_is_not_told_and_steers_no_terminal(text: str) -> None:
    shown = escape_invisible(f"a{text}b")

    assert strip_invisible(f"a{text}b").isprintable()
    assert shown.isprintable()
    assert shown != "ab"
    assert json.loads(escape_invisible(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", ["two\nlines\tand", "👩‍💻 ❤️", "می‌خواهم", "中文，标点。"])
def test_what_is_seen_stays(text: str) -> None:
    assert strip_invisible(text) == escape_invisible(text) == text
