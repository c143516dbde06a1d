"""Defines how a model API is accessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ApiProvider(StrEnum):
    """The wire format; also the backend's name."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"

    @property
    def missing_key_hint(self) -> str:
        """Text key of the hint for a missing API key."""
        return f"backend.no_{self}_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Connection settings of an API.

    An empty `base_url` means the provider's own; `read_timeout` is the longest silence in seconds.
    `text_tool_calls` is for models that can't call tools but follow a JSON schema."""

    provider: ApiProvider
    key: str
    base_url: str = ""
    read_timeout: float = 300.0
    text_tool_calls: bool = False

    @property
    def is_configured(self) -> bool:
        """A compatible service may need no key."""
        return bool(self.key or (self.provider is ApiProvider.OPENAI and self.base_url))

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.base_url or 'default'})"
