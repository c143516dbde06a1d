"""Browsers are called by names that people know."""

from __future__ import annotations

import pytest

from cards.catalog import catalog_for
from cards.views.browsers import browser_name
from storage.records.people import Language

WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64"


@pytest.mark.parametrize(
    ("user_agent", "english", "chinese"),
    [
        (
            f"{WINDOWS}) {WEBKIT} Chrome/141.0.0.0 Safari/537.36",
            "Chrome on Windows",
            "Chrome（Windows）",
        ),
        (
            f"{WINDOWS}) {WEBKIT} Chrome/141.0.0.0 Safari/537.36 Edg/141.0",
            "Edge on Windows",
            "Edge（Windows）",
        ),
        (f"{WINDOWS}; rv:144.0) Gecko/20100101 Firefox/144.0", "Firefox on Windows", None),
        (f"{MAC} AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15", "Safari on macOS", None),
        (
            f"{IPHONE} AppleWebKit/605.1 Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
            None,
        ),
        (f"{IPHONE} AppleWebKit/605.1 CriOS/141.0 Mobile/15E148", "Chrome on iPhone", None),
        (
            f"Mozilla/5.0 (Linux; Android 15; K) {WEBKIT} SamsungBrowser/28.0 Chrome/130.0",
            "Samsung Internet on Android",
            None,
        ),
        (
            f"{MAC} {WEBKIT} Chrome/110.0 Safari/537.36 Lark/7.30.1",
            "Feishu on macOS",
            "飞书（macOS）",
        ),
        (f"Mozilla/5.0 (X11; Linux x86_64) {WEBKIT} HeadlessChrome/150.0", "Chrome on Linux", None),
        ("Firefox/1", "Firefox", "Firefox"),
        ("curl/8.5.0", "curl/8.5.0", "curl/8.5.0"),
        ("", "?", "?"),
    ],
)
def test_a_browser_has_the_name_that_people_know(
    user_agent: str, english: str, chinese: str | None
) -> None:
    assert browser_name(user_agent, catalog_for(Language.ENGLISH)) == english
    if chinese is not None:
        assert browser_name(user_agent, catalog_for(Language.CHINESE)) == chinese


def test_what_is_no_browser_is_cut_to_one_short_line() -> None:
    told = browser_name(f"<b>\n\u202e{'x' * 5_000}", catalog_for(Language.ENGLISH))

    assert len(told) <= 60
    assert "\n" not in told
    assert "\u202e" not in told
