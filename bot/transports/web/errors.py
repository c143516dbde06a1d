"""Why the web chat cannot start: each is one line for whoever started the program."""

from __future__ import annotations

from typing import ClassVar


class WebStartError(Exception):
    """`words(error.key, **error.facts)` is the line to show."""

    key: ClassVar[str]

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(f"{self.key}: {facts}")


class PortInUse(WebStartError):
    key = "web.port_in_use"


class CannotListen(WebStartError):
    """The address is not ours, or the port needs rights we do not have."""

    key = "web.cannot_listen"


class OpenWithoutToken(WebStartError):
    """Others could reach the address, and no token was chosen on purpose."""

    key = "web.open_without_token"
