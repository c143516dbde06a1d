"""Cells of a Feishu Bitable, which the platform accepts in one form and returns in another."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from bot.sync.ports import CellRefused, CellValue, FieldType

_TEXT_KEYS = ("text", "full_address", "name", "link", "id")


def write_cell(kind: FieldType, value: CellValue) -> Any:
    """The value in the form that the platform accepts. Raises CellRefused for a value that it
    cannot take.
    """
    if value is None or value in ("", ()):
        return None
    writer = _WRITERS.get(kind)
    written = writer(value) if writer else None
    if written is None:
        raise CellRefused(f"a field of type {kind.name} does not take {type(value).__name__}")
    return written


def read_cell(kind: FieldType, raw: Any) -> CellValue:
    """The normalised value; None for an empty cell and for a shape that the type cannot have."""
    if isinstance(raw, dict) and "value" in raw and "type" in raw:
        # Computed fields wrap their value together with the type that they compute.
        raw = raw["value"]
    if raw is None or raw in ("", []):
        return None
    value = _READERS.get(kind, _text)(raw)
    return None if value in ("", ()) else value


def read_person(raw: Any) -> str | None:
    """The ID of a person, or of an app."""
    return next(iter(_ids(raw, "id")), None)


def _write_number(value: CellValue) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _write_time(value: CellValue) -> int | None:
    number = _write_number(value)
    return None if number is None else int(number)


def _write_text(value: CellValue) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _write_link(value: CellValue) -> dict[str, str] | None:
    text = _write_text(value)
    return None if text is None else {"link": text, "text": text}


def _texts(value: CellValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode()


def _listed(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else [raw]


def _first(raw: Any) -> Any:
    return next(iter(_listed(raw)), None)


def _number(raw: Any) -> float | None:
    """A number, which the platform returns as a number or as text."""
    if isinstance(raw, dict):
        raw = raw.get("text")
    try:
        number = float(raw)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _ids(raw: Any, key: str) -> tuple[str, ...]:
    entries = (each.get(key) for each in _listed(raw) if isinstance(each, Mapping))
    return tuple(each for each in entries if isinstance(each, str) and each)


def _text(raw: Any) -> str:
    """A text or its joined segments; any other value as readably as possible."""
    match raw:
        case str():
            return raw
        case None:
            return ""
        case list():
            joint = "" if all(isinstance(each, dict) for each in raw) else ", "
            return joint.join(map(_text, raw))
        case dict():
            found = (raw[key] for key in _TEXT_KEYS if isinstance(raw.get(key), str))
            return next(found, None) or json.dumps(raw, ensure_ascii=False)
        case float() if raw.is_integer():
            return str(int(raw))
        case _:
            return str(raw)


def _read_time(raw: Any) -> int | None:
    number = _number(_first(raw))
    return None if number is None else int(number)


def _read_link(raw: Any) -> str:
    link = _first(raw)
    return str(link.get("link") or "") if isinstance(link, dict) else _text(link)


_WRITERS: Mapping[FieldType, Callable[[CellValue], Any]] = {
    FieldType.TEXT: _write_text,
    FieldType.PHONE: _write_text,
    FieldType.SINGLE_SELECT: _write_text,
    FieldType.MULTI_SELECT: lambda value: [_clean(each) for each in _texts(value)],
    FieldType.NUMBER: _write_number,
    FieldType.DATE: _write_time,
    FieldType.CHECKBOX: lambda value: value if isinstance(value, bool) else None,
    FieldType.PERSON: lambda value: [{"id": _clean(each)} for each in _texts(value)],
    FieldType.ATTACHMENT: lambda value: [{"file_token": _clean(each)} for each in _texts(value)],
    FieldType.URL: _write_link,
}

_READERS: Mapping[FieldType, Callable[[Any], CellValue]] = {
    FieldType.NUMBER: lambda raw: _number(_first(raw)),
    FieldType.DATE: _read_time,
    FieldType.CREATED_TIME: _read_time,
    FieldType.MODIFIED_TIME: _read_time,
    FieldType.CHECKBOX: lambda raw: _first(raw) is True,
    FieldType.SINGLE_SELECT: lambda raw: _text(_first(raw)),
    FieldType.MULTI_SELECT: lambda raw: tuple(map(_text, _listed(raw))),
    FieldType.PERSON: lambda raw: _ids(raw, "id"),
    FieldType.CREATED_BY: lambda raw: _ids(raw, "id"),
    FieldType.MODIFIED_BY: lambda raw: _ids(raw, "id"),
    FieldType.ATTACHMENT: lambda raw: _ids(raw, "file_token"),
    FieldType.URL: _read_link,
}
