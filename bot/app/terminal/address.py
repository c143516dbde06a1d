"""Where a running program answers, for commands typed beside it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.app.failures import StartFailure
from bot.config.settings import Settings
from bot.transports.web.token import read_token

_FILE = "web-address"


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    token: str


def note_address(settings: Settings, url: str) -> None:
    """Called by the program once its web chat listens."""
    (settings.home / _FILE).write_text(url, encoding="utf-8")


def has_run(settings: Settings) -> bool:
    """Whether a program has ever run on this home: it may do so now."""
    return (settings.home / _FILE).exists()


def find_running(settings: Settings) -> Running:
    """Raises StartFailure where no program has ever run on this home."""
    token = settings.web_token.get_secret_value() or read_token(settings.home)
    try:
        url = (settings.home / _FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        url = ""
    if not url or not token:
        raise StartFailure(f"nothing has run in {settings.home} yet: start `shiftboss run` first")
    return Running(url, token)
