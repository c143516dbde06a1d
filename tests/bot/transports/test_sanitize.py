from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.transports.sanitize import MAX_CHARACTERS, sanitize_incoming, sanitize_name, sanitize_text
from storage.messages.inbox import dump_incoming, load_incoming
from storage.records.messages import AttachmentKind, IncomingMessage, IncomingPress, RemoteFile
from tests.storage.message_store import group, message, place, sender


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\x00b\x1b[31mc", "ab[31mc"),
        ("line\r\nline\rline\n\ttab", "line\nline\nline\n\ttab"),
        ("half \ud83d alone", "half \ufffd alone"),
        ("two halves \ud83d\ude00", "two halves 😀"),
        ("שלום \u202eabc", "שלום \u202eabc"),
        ("好\x85好", "好好"),
    ],
)
def test_text_is_made_fit_without_losing_what_was_said(dirty: str, clean: str) -> None:
    assert sanitize_text(dirty) == clean


def test_a_name_is_one_line_that_reads_as_it_is_written() -> None:
    assert sanitize_name("Bo\nb\u202e gnp.exe\u2066 \x00") == "Bo b gnp.exe"
    assert len(sanitize_name("x" * 10_000)) == 200


def test_a_hundred_kilobytes_are_taken_whole() -> None:
    text = "字" * 40_000

    incoming = sanitize_incoming(message(text))

    assert isinstance(incoming, IncomingMessage)
    assert incoming.text == text


@pytest.mark.parametrize(("start", "told"), [("字", "截断"), ("two words ", "cut off here")])
def test_what_is_longer_than_we_can_keep_says_that_it_was_cut(start: str, told: str) -> None:
    text = start * (MAX_CHARACTERS + 1)

    incoming = sanitize_incoming(message(text))

    assert isinstance(incoming, IncomingMessage)
    assert incoming.text.startswith(text[:MAX_CHARACTERS])
    assert len(incoming.text) < MAX_CHARACTERS + 200
    assert told in incoming.text[MAX_CHARACTERS:]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\secret\\a.txt", "a.txt"),
        ("..", ""),
        ("annual\u202etxt.exe", "annualtxt.exe"),
        ("报告.pdf", "报告.pdf"),
    ],
)
def test_a_files_name_is_only_a_name(name: str, kept: str) -> None:
    file = RemoteFile(kind=AttachmentKind.FILE, reference={}, name=name)

    incoming = sanitize_incoming(message("", attachments=(file,)))

    assert isinstance(incoming, IncomingMessage)
    assert incoming.attachments[0].name == kept


def test_a_forged_press_is_cut_to_size() -> None:
    press = IncomingPress(
        place=place(),
        sender=sender(),
        token="x" * 9999,
        message_id="m",
        value="\ud800" * 99_999,
        form={f"f{n}": "y" * 99_999 for n in range(999)},
    )

    clean = sanitize_incoming(press)

    assert isinstance(clean, IncomingPress)
    assert (len(clean.token), len(clean.value), len(clean.form)) == (128, 20_000, 50)
    assert {len(value) for value in clean.form.values()} == {20_000}


_DIRT = st.text(st.characters(exclude_categories=()), max_size=40)


@given(_DIRT, _DIRT, _DIRT)
def test_whatever_comes_in_can_be_stored_and_read_again(text: str, name: str, title: str) -> None:
    dirty = message(text, sender=sender(name, name=name), place=group(title=title))

    clean = sanitize_incoming(dirty)

    stored = json.dumps(dump_incoming(clean), ensure_ascii=False).encode()
    assert load_incoming(json.loads(stored)) == clean
    assert sanitize_incoming(clean) == clean
