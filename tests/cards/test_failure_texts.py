"""Our own sentences on failures are told from what people and workers say."""

from __future__ import annotations

import pytest

from cards.catalog import catalog_for
from cards.failure_texts import is_failure_text, without_failure_texts
from storage.records.people import Language

_HINTS = (
    "backend.failed",
    "backend.unavailable",
    "backend.denied",
    "backend.bad_key",
    "backend.no_credit",
    "backend.budget",
    "backend.limit",
    "backend.cli_died",
    "offline.cannot_answer",
    "workflow.step_late",
)


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("key", _HINTS)
def test_what_went_wrong_with_us_is_recognised_whole_cut_and_as_a_reason(
    language: Language, key: str
) -> None:
    words = catalog_for(language)
    text = words(key)

    assert is_failure_text(text)
    assert is_failure_text(f"❌ {text[:40]}…")
    assert is_failure_text(words("work.too_many_tries", n=3, error=text))
    assert is_failure_text(words("work.too_many_errors", n=5, error=text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The model railway needs 12 volts",
        "3 attempts in a row failed, even after replanning: npm needs Node 20",
        "There is no bridge over the river",
        "The service rejected the parcel",
        "模型火车需要十二伏电压",
        "没有登录：请看说明书第三页",
    ],
)
def test_what_people_and_workers_say_stays(text: str) -> None:
    assert without_failure_texts(text) == text


def test_the_lines_around_a_failure_stay() -> None:
    denied = catalog_for(Language.ENGLISH)("backend.denied")

    assert without_failure_texts(f"Paint the boat\n\n{denied}\nIt is green") == (
        "Paint the boat\n\nIt is green"
    )


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("error", ["InvalidURL", "InvalidURI", "UnsupportedProtocol"])
def test_a_wrong_address_is_not_called_another_program(language: Language, error: str) -> None:
    words = catalog_for(language)

    assert words(f"failure.{error}") not in words("failure.JSONDecodeError")
    assert words(f"failure.{error}") in words("self.found.telegram_unreachable", reason=error)


def test_a_huge_text_is_read_at_once() -> None:
    text = "\n".join(["The model"] * 200_000)

    assert without_failure_texts(text) == text
