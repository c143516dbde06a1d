"""Parses the events of a Feishu Bitable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.sync.ports import (
    BaseId,
    FieldsChanged,
    RecordAction,
    RecordId,
    RecordsChanged,
    TableChange,
    TableId,
    TableRef,
)

_ACTION_PREFIX = "record_"


def parse_table_change(event: Mapping[str, Any]) -> TableChange | None:
    """The change of a table; None for an event without a base and a table. Values are not read from
    the event: they are strings in another form, and later events may have arrived earlier.
    """
    base, table = event.get("file_token"), event.get("table_id")
    if not isinstance(base, str) or not isinstance(table, str) or not base or not table:
        return None
    ref = TableRef(base=BaseId(base), table=TableId(table))
    actions = event.get("action_list")
    found: dict[RecordId, RecordAction] = {}
    for each in actions if isinstance(actions, list) else []:
        record = each.get("record_id") if isinstance(each, dict) else None
        if isinstance(record, str) and record:
            found[RecordId(record)] = _parse_action(each.get("action"))
    if not found:
        return FieldsChanged(ref=ref)
    return RecordsChanged(
        ref=ref,
        records=found,
        operator=_parse_operator(event.get("operator_id")),
        at=_parse_seconds(event.get("update_time")),
    )


def _parse_action(raw: Any) -> RecordAction:
    """The action; an unknown one counts as an edit, because the row is read in any case."""
    try:
        return RecordAction(str(raw).removeprefix(_ACTION_PREFIX))
    except ValueError:
        return RecordAction.EDITED


def _parse_operator(raw: Any) -> str | None:
    open_id = raw.get("open_id") if isinstance(raw, dict) else None
    return open_id if isinstance(open_id, str) and open_id else None


def _parse_seconds(raw: Any) -> int:
    """Seconds from milliseconds; 0 if unknown."""
    return raw * 1000 if isinstance(raw, int) and not isinstance(raw, bool) else 0
