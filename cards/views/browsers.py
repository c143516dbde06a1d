"""Names of browsers and their systems, read from what browsers call themselves."""

from __future__ import annotations

import re

from cards import formats
from cards.catalog import TextCatalog

_MAX_UNKNOWN = 60

# In this order: many browsers also claim to be those below.
_BROWSERS = (
    ("Edge", re.compile(r"\bEdg(?:e|A|iOS)?/")),
    ("Opera", re.compile(r"\bOPR/")),
    ("Samsung Internet", re.compile(r"\bSamsungBrowser/")),
    ("Feishu", re.compile(r"\b(?:Lark|Feishu)/")),
    ("WeChat", re.compile(r"\bMicroMessenger/")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/")),
    ("Chrome", re.compile(r"\b(?:Headless)?(?:Chrome|CriOS|Chromium)/")),
    ("Safari", re.compile(r"\bVersion/\S+ (?:Mobile/\S+ )?Safari/")),
)
_SYSTEMS = (
    ("Windows", re.compile(r"\bWindows NT\b")),
    ("iPhone", re.compile(r"\biPhone\b")),
    ("iPad", re.compile(r"\biPad\b")),
    ("Android", re.compile(r"\bAndroid\b")),
    ("ChromeOS", re.compile(r"\bCrOS\b")),
    ("macOS", re.compile(r"\bMac(?:intosh| OS X)\b")),
    ("Linux", re.compile(r"\bLinux\b")),
)


def browser_name(user_agent: str, words: TextCatalog) -> str:
    """Such as "Chrome on Windows", in one line and not escaped; what is unknown stays as it is, cut
    to a length. Anybody can call themselves anything."""
    browser, system = (
        next((name for name, pattern in names if pattern.search(user_agent)), "")
        for names in (_BROWSERS, _SYSTEMS)
    )
    if not browser:
        return formats.single_line(user_agent, _MAX_UNKNOWN) or "?"
    key = f"sessions.browser_{browser}"
    name = words(key) if words.has(key) else browser
    return words("sessions.browser_on", browser=name, system=system) if system else name
