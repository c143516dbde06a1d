"""How a model API is reached."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Api(StrEnum):
    """Whose wire format is spoken; also the backend's name."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"

    @property
    def missing(self) -> str:
        """Catalogue key of what to do if it is not configured."""
        return f"backend.no_{self}_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API. An empty `base_url` is the provider's own; `silence` is how many
    seconds it may say nothing in the middle of an answer. `written_calls`: its models cannot call
    tools, but keep to a JSON schema."""

    api: Api
    key: str
    base_url: str = ""
    silence: float = 300.0
    written_calls: bool = False

    @property
    def is_configured(self) -> bool:
        """A compatible service of one's own may want no key."""
        return bool(self.key or (self.api is Api.OPENAI and self.base_url))

    def __repr__(self) -> str:
        return f"Access({self.api}, {self.base_url or 'default'})"
