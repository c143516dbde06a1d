"""The table of foreign errors is complete."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from telegram import error as foreign

from bot.transports.base import (
    Ambiguous,
    DeliveryError,
    RateLimited,
    Refused,
    TooLarge,
    Unavailable,
    Unreachable,
)
from bot.transports.telegram.errors import Trouble, translate, trouble

Make = Callable[[], foreign.TelegramError]
SAMPLES: dict[type[foreign.TelegramError], tuple[Make, type[DeliveryError]]] = {
    foreign.TelegramError: (lambda: foreign.TelegramError("x"), Unavailable),
    foreign.Forbidden: (lambda: foreign.Forbidden("bot was blocked by the user"), Unreachable),
    foreign.InvalidToken: (lambda: foreign.InvalidToken("x"), Unavailable),
    foreign.EndPointNotFound: (lambda: foreign.EndPointNotFound("x"), Unavailable),
    foreign.NetworkError: (lambda: foreign.NetworkError("Bad Gateway"), Unavailable),
    foreign.BadRequest: (lambda: foreign.BadRequest("anything"), Refused),
    foreign.TimedOut: (foreign.TimedOut, Ambiguous),
    foreign.ChatMigrated: (lambda: foreign.ChatMigrated(5), Unreachable),
    foreign.RetryAfter: (lambda: foreign.RetryAfter(5), RateLimited),
    foreign.Conflict: (lambda: foreign.Conflict("x"), Unavailable),
    foreign.PassportDecryptionError: (lambda: foreign.PassportDecryptionError("x"), Unavailable),
}
CAUSES: list[tuple[Exception, type[DeliveryError]]] = [
    (httpx.ConnectError("x"), Unavailable),
    (httpx.ConnectTimeout("x"), Unavailable),
    (httpx.PoolTimeout("x"), Unavailable),
    (httpx.UnsupportedProtocol("x"), Unavailable),
    (httpx.ReadTimeout("x"), Ambiguous),
    (httpx.WriteTimeout("x"), Ambiguous),
    (httpx.ReadError("x"), Ambiguous),
    (httpx.WriteError("x"), Ambiguous),
    (httpx.RemoteProtocolError("x"), Ambiguous),
]


@pytest.fixture(autouse=True)
def new_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")


def family(kind: type[foreign.TelegramError]) -> set[type[foreign.TelegramError]]:
    return {kind}.union(*(family(child) for child in kind.__subclasses__()))


def test_every_error_of_the_library_has_a_sample() -> None:
    known = {kind for kind in family(foreign.TelegramError) if kind.__module__ == foreign.__name__}

    assert set(SAMPLES) == known


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_library_becomes_one_of_ours(
    kind: type[foreign.TelegramError],
) -> None:
    make, expected = SAMPLES[kind]
    error = make()
    if kind is foreign.TimedOut:
        error.__cause__ = httpx.ReadTimeout("x")

    assert type(translate(error)) is expected


@pytest.mark.parametrize(("cause", "expected"), CAUSES, ids=lambda case: type(case).__name__)
def test_only_what_may_have_been_sent_is_ambiguous(
    cause: Exception, expected: type[DeliveryError]
) -> None:
    error = foreign.NetworkError("x")
    error.__cause__ = cause

    assert type(translate(error)) is expected
    assert type(translate(error, repeatable=True)) is Unavailable


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Bad Request: message is not modified: specified new…", Trouble.NOT_MODIFIED),
        ("Message to edit not found", Trouble.EDIT_GONE),
        ("Message can't be edited", Trouble.EDIT_GONE),
        ("Message to be replied not found", Trouble.REPLY_GONE),
        ("Message thread not found", Trouble.THREAD_GONE),
        ("Chat not found", Trouble.CHAT_GONE),
        ("Not enough rights to send text messages to the chat", Trouble.CHAT_GONE),
        ("Can't parse entities: unsupported start tag", Trouble.MARKS),
        ("Entity beginning at UTF-16 offset 0 ends after the end", Trouble.MARKS),
        ("Button_data_invalid", Trouble.KEYBOARD),
        ("Can't parse inline keyboard button: text buttons are unallowed", Trouble.KEYBOARD),
        ("Query is too old and response timeout expired", Trouble.QUERY_OLD),
        ("Image_process_failed", Trouble.PICTURE),
        ("File is too big", Trouble.TOO_BIG),
        ("Textdraft_peer_invalid", Trouble.DRAFT),
        ("Something entirely new", Trouble.OTHER),
    ],
)
def test_refusals_are_known_by_their_words(words: str, kind: Trouble) -> None:
    assert trouble(foreign.BadRequest(words)) is kind


def test_a_refused_size_is_not_tried_again() -> None:
    assert type(translate(foreign.NetworkError("Request Entity Too Large"))) is Refused
    assert type(translate(foreign.BadRequest("File is too big"))) is TooLarge
