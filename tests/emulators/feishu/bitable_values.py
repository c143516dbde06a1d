"""Cells of the emulated Bitable: what a write must look like, and what a read looks like."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.feishu.refusals import FeishuApiError

TEXT, NUMBER, SELECT, MULTI, DATE, CHECKBOX = 1, 2, 3, 4, 5, 7
PERSON, PHONE, URL, ATTACHMENT, FORMULA = 11, 13, 15, 17, 20
CREATED, MODIFIED, CREATED_BY, MODIFIED_BY = 1001, 1002, 1003, 1004
WRITABLE = {TEXT, NUMBER, SELECT, MULTI, DATE, CHECKBOX, PERSON, PHONE, URL, ATTACHMENT}
AUTOMATIC = {FORMULA, CREATED, MODIFIED, CREATED_BY, MODIFIED_BY}
UI_TYPES = {
    TEXT: "Text",
    NUMBER: "Number",
    SELECT: "SingleSelect",
    MULTI: "MultiSelect",
    DATE: "DateTime",
    CHECKBOX: "Checkbox",
    PERSON: "User",
    PHONE: "Phone",
    URL: "Url",
    ATTACHMENT: "Attachment",
    FORMULA: "Formula",
    CREATED: "CreatedTime",
    MODIFIED: "ModifiedTime",
    CREATED_BY: "CreatedUser",
    MODIFIED_BY: "ModifiedUser",
}
MAX_TEXT = 100_000


def refuse(code: int, msg: str, *, status: int = 200) -> FeishuApiError:
    """Most errors of tables come with HTTP 200."""
    return FeishuApiError(code, msg, status=status)


@dataclass(slots=True, kw_only=True)
class TableColumn:
    """A column. Options are names by ID; `compute` is a formula over the texts of a row."""

    field_id: str
    name: str
    kind: int
    options: dict[str, str] = field(default_factory=dict)
    primary: bool = False
    compute: Callable[[Mapping[str, str]], str] | None = None

    def describe(self) -> dict[str, Any]:
        prop: dict[str, Any] | None = None
        if self.kind in (SELECT, MULTI):
            prop = {
                "options": [
                    {"id": each, "name": name, "color": number % 54}
                    for number, (each, name) in enumerate(self.options.items())
                ]
            }
        elif self.kind in (DATE, CREATED, MODIFIED):
            prop = {"date_formatter": "yyyy/MM/dd HH:mm", "auto_fill": False}
        return {
            "field_id": self.field_id,
            "field_name": self.name,
            "type": self.kind,
            "property": prop,
            "description": None,
            "is_primary": self.primary,
            "ui_type": UI_TYPES[self.kind],
            "is_hidden": False,
        }


def store(column: TableColumn, value: Any, new_id: Callable[[str], str], people: Any) -> Any:
    """The stored form of a written value; refuses what the platform refuses."""
    if value is None:
        return None
    if column.kind not in WRITABLE:
        raise refuse(1254015, "Field types do not match.", status=400)
    return _STORE[column.kind](column, value, new_id, people)


def _store_text(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if isinstance(value, list):
        if not all(isinstance(each, dict) and isinstance(each.get("text"), str) for each in value):
            raise refuse(1254060, "TextFieldConvFail")
        return value
    if not isinstance(value, str):
        raise refuse(1254060, "TextFieldConvFail")
    if len(value) > MAX_TEXT:
        raise refuse(1254130, "TooLargeCell")
    return [{"text": value, "type": "text"}] if value else None


def _store_number(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(1254061, "NumberFieldConvFail")
    return value


def _option(column: TableColumn, name: str, new_id: Callable[[str], str]) -> str:
    """The option of this name, made if there is none."""
    for each, known in column.options.items():
        if known == name:
            return each
    made = new_id("opt")
    column.options[made] = name
    return made


def _store_select(column: TableColumn, value: Any, new_id: Any, _people: Any) -> Any:
    if not isinstance(value, str):
        raise refuse(1254062, "SingleSelectFieldConvFail")
    return _option(column, value, new_id) if value else None


def _store_multi(column: TableColumn, value: Any, new_id: Any, _people: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise refuse(1254063, "MultiSelectFieldConvFail")
    return [_option(column, each, new_id) for each in value]


def _store_date(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(1254064, "DatetimeFieldConvFail")
    return value


def _store_checkbox(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if not isinstance(value, bool):
        raise refuse(1254065, "CheckboxFieldConvFail")
    return value


def _store_people(_column: TableColumn, value: Any, _new: Any, people: Any) -> Any:
    known = isinstance(value, list) and all(
        isinstance(each, dict) and each.get("id") in people for each in value
    )
    if not known:
        raise refuse(1254066, "UserFieldConvFail")
    return [each["id"] for each in value]


def _store_phone(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if not isinstance(value, str) or not value.strip("+0123456789 -()") == "":
        raise refuse(1254072, "InvalidPhoneNumber")
    return value


def _store_url(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("link"), str):
        raise refuse(1254068, "URLFieldConvFail")
    return {"link": value["link"], "text": value.get("text") or value["link"]}


def _store_files(_column: TableColumn, value: Any, _new: Any, _people: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise refuse(1254069, "AttachFieldConvFail")
    return [each["file_token"] for each in value]


_STORE: dict[int, Callable[..., Any]] = {
    TEXT: _store_text,
    NUMBER: _store_number,
    SELECT: _store_select,
    MULTI: _store_multi,
    DATE: _store_date,
    CHECKBOX: _store_checkbox,
    PERSON: _store_people,
    PHONE: _store_phone,
    URL: _store_url,
    ATTACHMENT: _store_files,
}


def show(column: TableColumn, stored: Any, people: Mapping[str, str], *, as_text: bool) -> Any:
    """The form in which a stored value is read; `as_text` writes numbers as text."""
    match column.kind:
        case 2 if as_text:
            return f"{stored:g}"
        case 3:
            return column.options.get(stored)
        case 4:
            return [column.options[each] for each in stored if each in column.options]
        case 11:
            return [person(each, people) for each in stored]
        case 17:
            return [
                {"file_token": each, "name": "file", "size": 1, "type": "text/plain", "url": ""}
                for each in stored
            ]
        case _:
            return stored


def plain(column: TableColumn, stored: Any, people: Mapping[str, str]) -> Any:
    """What a person sees in a cell."""
    if stored is None:
        return None
    shown = show(column, stored, people, as_text=False)
    if column.kind == TEXT:
        return "".join(each["text"] for each in shown)
    if column.kind == PERSON:
        return [each["name"] for each in shown]
    return shown["text"] if column.kind == URL else shown


def person(open_id: str, people: Mapping[str, str]) -> dict[str, Any]:
    name = people.get(open_id, "")
    return {"id": open_id, "name": name, "en_name": name, "email": "", "avatar_url": ""}


def event_value(column: TableColumn, stored: Any, people: Mapping[str, str]) -> dict[str, Any]:
    """One cell of a change event: its value is JSON inside JSON."""
    shown = "" if stored is None else show(column, stored, people, as_text=False)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return {"field_id": column.field_id, "field_value": text}
