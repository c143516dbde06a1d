"""Stores and finds the address of a running Shiftboss, for shell commands."""

from __future__ import annotations

from dataclasses import dataclass

from bot.app.lifecycle import StartFailure
from bot.config.settings import Settings
from bot.transports.web.access_token import read_token

_ADDRESS_FILE = "web-address"


@dataclass(frozen=True, slots=True)
class RunningProgram:
    url: str
    token: str


def save_address(settings: Settings, url: str) -> None:
    """Called once the web chat listens."""
    (settings.home / _ADDRESS_FILE).write_text(url, encoding="utf-8")


def forget_address(settings: Settings) -> None:
    """For a new holder of the data directory: the one before has gone, and another program that
    listens there by now must not get the token. Fronts hold no directory, so theirs stays."""
    file = settings.home / _ADDRESS_FILE
    if file.exists() and not settings.shares_store:
        # The file stays: it says that Shiftboss has run.
        file.write_text("", encoding="utf-8")


def has_run_before(settings: Settings) -> bool:
    """Whether Shiftboss has ever run on this data directory; it may be running now."""
    return (settings.home / _ADDRESS_FILE).exists()


def find_running_program(settings: Settings) -> RunningProgram:
    """Raises StartFailure if Shiftboss has never run on this data directory, or takes no commands
    yet."""
    token = settings.web_token.get_secret_value() or read_token(settings.home)
    try:
        url = (settings.home / _ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        url = ""
    if not url and has_run_before(settings):
        raise StartFailure(
            f"Shiftboss takes no commands in {settings.home} now: wait until it is ready, or start"
            " it with `shiftboss start`"
        )
    if not url or not token:
        raise StartFailure(f"nothing has run in {settings.home} yet: start `shiftboss run` first")
    return RunningProgram(url, token)
