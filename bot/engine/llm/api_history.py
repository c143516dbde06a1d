"""A session's turns as JSON values, readable by every model API."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

log = logging.getLogger(__name__)


def load(history: Sequence[Any]) -> list[ModelMessage]:
    """The messages. A history that cannot be read is left out, and the log says so: an answer
    without memory is better than none."""
    try:
        return ModelMessagesTypeAdapter.validate_json(json.dumps(list(history)))
    except (ValidationError, TypeError, ValueError):
        log.warning("a session's history of %d messages cannot be read; left out", len(history))
        return []


def dump(messages: Sequence[ModelMessage]) -> tuple[Any, ...]:
    """The messages as JSON values, without the system text: every run brings its own."""
    values = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return tuple(
        {**value, "instructions": None} if "instructions" in value else value for value in values
    )
