"""Values that a CLI was given for its MCP servers, taken out of all that it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HIDDEN = "••••"


class Hiding:
    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = tuple(sorted(secrets, key=len, reverse=True))

    def text(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def told(self, told: Any) -> Any:
        """A JSON value without them, its keys too; itself where there are none to hide."""
        if not self.secrets:
            return told
        match told:
            case str():
                return self.text(told)
            case list():
                return [self.told(each) for each in told]
            case dict():
                return {self.text(str(key)): self.told(value) for key, value in told.items()}
            case _:
                return told
