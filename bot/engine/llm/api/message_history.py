"""Converts session messages to and from JSON values that all model APIs can read."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

log = logging.getLogger(__name__)


def load_history(history: Sequence[Any]) -> list[ModelMessage]:
    """Parse messages; an unreadable history is logged and dropped, because an answer without it is
    better than none."""
    try:
        return ModelMessagesTypeAdapter.validate_json(json.dumps(list(history)))
    except (ValidationError, TypeError, ValueError):
        log.warning("a session's history of %d messages cannot be read; skipped", len(history))
        return []


def dump_history(messages: Sequence[ModelMessage]) -> tuple[Any, ...]:
    """Convert messages to JSON values without instructions, which every run sets itself."""
    values = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return tuple(
        {**value, "instructions": None} if "instructions" in value else value for value in values
    )
