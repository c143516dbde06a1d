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


class ToolForm(StrEnum):
    """How models are to call tools: natively, as text that follows a JSON schema, or natively until
    one shows that it writes its calls. Written calls are read in any case."""

    AUTO = "auto"
    CALLED = "called"
    WRITTEN = "written"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Connection settings of an API.

    An empty `base_url` means the provider's own. If the model sends nothing for `silence_notice`
    seconds, people get a notice; after `max_silence` seconds the call fails."""

    provider: ApiProvider
    key: str
    base_url: str = ""
    max_silence: float = 300.0
    silence_notice: float = 30.0
    tool_form: ToolForm = ToolForm.CALLED

    @property
    def is_configured(self) -> bool:
        """A compatible service may need no key."""
        return bool(self.key or (self.provider is ApiProvider.OPENAI and self.base_url))

    @property
    def learns_tool_form(self) -> bool:
        """The models of the providers themselves call tools natively."""
        is_compatible = self.provider is ApiProvider.OPENAI and bool(self.base_url)
        return self.tool_form is ToolForm.AUTO and is_compatible

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.base_url or 'default'})"
