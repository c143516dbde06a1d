"""Which of our languages a browser reads."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from storage.records.people import Language

COOKIE = "shiftboss_lang"


def language_of(asked: HTTPConnection, usual: Language | None) -> Language:
    """What the person switched to, else what the settings say, else the browser's first choice
    among ours, else English."""
    switched = _named(asked.cookies.get(COOKIE, ""))
    return switched or usual or _accepted(asked.headers.get("accept-language", ""))


def _accepted(header: str) -> Language:
    wishes = sorted(map(_wish, header.split(",")[:20]), key=lambda wish: -wish[0])
    found = (_named(tag) for _weight, tag in wishes)
    return next((language for language in found if language), Language.ENGLISH)


def _wish(part: str) -> tuple[float, str]:
    tag, _, weight = part.partition(";")
    try:
        return float(weight.strip().removeprefix("q=") or 1), tag
    except ValueError:
        return 0.0, tag


def _named(tag: str) -> Language | None:
    primary = tag.strip().lower().partition("-")[0]
    return next((language for language in Language if language == primary), None)
