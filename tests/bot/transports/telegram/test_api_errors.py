"""The table of foreign errors is complete."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from telegram import error as foreign

from bot.transports.ports import (
    ChatUnreachable,
    ContentRefused,
    DeliveryError,
    DeliveryRateLimited,
    DeliveryUncertain,
    FileTooLarge,
    PlatformUnavailable,
)
from bot.transports.telegram.api import TelegramErrorKind, classify_bad_request, translate_error

Make = Callable[[], foreign.TelegramError]
SAMPLES: dict[type[foreign.TelegramError], tuple[Make, type[DeliveryError]]] = {
    foreign.TelegramError: (lambda: foreign.TelegramError("x"), PlatformUnavailable),
    foreign.Forbidden: (lambda: foreign.Forbidden("bot was blocked by the user"), ChatUnreachable),
    foreign.InvalidToken: (lambda: foreign.InvalidToken("x"), PlatformUnavailable),
    foreign.EndPointNotFound: (lambda: foreign.EndPointNotFound("x"), PlatformUnavailable),
    foreign.NetworkError: (lambda: foreign.NetworkError("Bad Gateway"), PlatformUnavailable),
    foreign.BadRequest: (lambda: foreign.BadRequest("anything"), ContentRefused),
    foreign.TimedOut: (foreign.TimedOut, DeliveryUncertain),
    foreign.ChatMigrated: (lambda: foreign.ChatMigrated(5), ChatUnreachable),
    foreign.RetryAfter: (lambda: foreign.RetryAfter(5), DeliveryRateLimited),
    foreign.Conflict: (lambda: foreign.Conflict("x"), PlatformUnavailable),
    foreign.PassportDecryptionError: (
        lambda: foreign.PassportDecryptionError("x"),
        PlatformUnavailable,
    ),
}
CAUSES: list[tuple[Exception, type[DeliveryError]]] = [
    (httpx.ConnectError("x"), PlatformUnavailable),
    (httpx.ConnectTimeout("x"), PlatformUnavailable),
    (httpx.PoolTimeout("x"), PlatformUnavailable),
    (httpx.UnsupportedProtocol("x"), PlatformUnavailable),
    (httpx.ReadTimeout("x"), DeliveryUncertain),
    (httpx.WriteTimeout("x"), DeliveryUncertain),
    (httpx.ReadError("x"), DeliveryUncertain),
    (httpx.WriteError("x"), DeliveryUncertain),
    (httpx.RemoteProtocolError("x"), DeliveryUncertain),
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

    assert type(translate_error(error)) is expected


@pytest.mark.parametrize(("cause", "expected"), CAUSES, ids=lambda case: type(case).__name__)
def test_only_what_may_have_been_sent_is_ambiguous(
    cause: Exception, expected: type[DeliveryError]
) -> None:
    error = foreign.NetworkError("x")
    error.__cause__ = cause

    assert type(translate_error(error)) is expected
    assert type(translate_error(error, repeatable=True)) is PlatformUnavailable


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Bad Request: message is not modified: specified new…", TelegramErrorKind.NOT_MODIFIED),
        ("Message to edit not found", TelegramErrorKind.EDIT_GONE),
        ("Message can't be edited", TelegramErrorKind.EDIT_GONE),
        ("Message to be replied not found", TelegramErrorKind.REPLY_GONE),
        ("Message thread not found", TelegramErrorKind.THREAD_GONE),
        ("Chat not found", TelegramErrorKind.CHAT_GONE),
        ("Not enough rights to send text messages to the chat", TelegramErrorKind.CHAT_GONE),
        ("Can't parse entities: unsupported start tag", TelegramErrorKind.MARKS),
        ("Entity beginning at UTF-16 offset 0 ends after the end", TelegramErrorKind.MARKS),
        ("Button_data_invalid", TelegramErrorKind.KEYBOARD),
        (
            "Can't parse inline keyboard button: text buttons are unallowed",
            TelegramErrorKind.KEYBOARD,
        ),
        ("Query is too old and response timeout expired", TelegramErrorKind.QUERY_OLD),
        ("Image_process_failed", TelegramErrorKind.PICTURE),
        ("File is too big", TelegramErrorKind.TOO_BIG),
        ("Textdraft_peer_invalid", TelegramErrorKind.DRAFT),
        ("Something entirely new", TelegramErrorKind.OTHER),
    ],
)
def test_refusals_are_known_by_their_words(words: str, kind: TelegramErrorKind) -> None:
    assert classify_bad_request(foreign.BadRequest(words)) is kind


def test_a_refused_size_is_not_tried_again() -> None:
    assert type(translate_error(foreign.NetworkError("Request Entity Too Large"))) is ContentRefused
    assert type(translate_error(foreign.BadRequest("File is too big"))) is FileTooLarge
