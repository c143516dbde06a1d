"""The language that a shell asks for, as other programs read it from the locale."""

from __future__ import annotations

from collections.abc import Mapping

from storage.records.people import Language


def find_terminal_language(environment: Mapping[str, str]) -> Language | None:
    """None if the locale asks for none of ours, or for none at all, as under cron."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next(filter(None, map(environment.get, names)), "C")
    wishes = [locale]
    if locale.partition(".")[0] not in {"C", "POSIX"}:
        wishes = [*filter(None, environment.get("LANGUAGE", "").split(":")), locale]
    found = (Language.from_tag(each.partition(".")[0]) for each in wishes)
    return next(filter(None, found), None)
