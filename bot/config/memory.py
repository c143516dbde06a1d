"""What may be chosen about memory and long conversations: `memory` in YAML."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field


class MemorySettings(BaseModel):
    """0 means never where a session is said to end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    told_tokens: int = Field(default=4_000, ge=0, le=100_000)
    recall_seconds: float = Field(default=5, gt=0, le=60)
    fusion: Literal["ranks", "weights"] = "ranks"
    vector_weight: float = Field(default=0.4, ge=0, le=5)
    query_prefix: str | None = None
    passage_prefix: str | None = None
    recall_cut: float = Field(default=0, ge=0, le=1)
    rerank_url: str = ""
    rerank_model: str = ""
    forget: bool = True
    context_tokens: int = Field(default=100_000, ge=2_000)
    windows: dict[str, Annotated[int, Field(ge=2_000)]] = Field(default_factory=dict)
    context_share: float = Field(default=0.75, gt=0, le=0.95)
    tail_messages: int = Field(default=64, ge=2, le=1_000)
    summary_model: str = ""
    session_idle_minutes: float = Field(default=60, ge=0)
    session_turns: int = Field(default=0, ge=0)
    session_tokens: int = Field(default=0, ge=0)
    extract: bool = True
    extract_after_seconds: float = Field(default=90, ge=0)
    extract_per_hour: int = Field(default=30, ge=1, le=600)
    extract_model: str = ""
    episodes_by_model: bool = False
    admission: Literal["off", "balanced", "conservative", "high-recall"] = "off"


def written(value: Any) -> Any:
    """From the environment it comes as one line: `{context_tokens: 50000}`, in YAML or JSON."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value) or {}
    except yaml.YAMLError as error:
        raise ValueError("must be of the form {name: value, name: value}") from error
