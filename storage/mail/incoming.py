"""What arrived, as JSON in a row and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from storage.records.messages import Incoming


def dump_incoming(incoming: Incoming) -> dict[str, Any]:
    dumped: dict[str, Any] = _adapter().dump_python(incoming, mode="json")
    return dumped


def load_incoming(data: Mapping[str, Any]) -> Incoming:
    return _adapter().validate_python(data)


@cache
def _adapter() -> TypeAdapter[Incoming]:
    return TypeAdapter(Incoming)
