"""Blocks that can be pressed, as card elements. Without a token nothing is pressable."""

from __future__ import annotations

from typing import Any

from cards.model import Button, Buttons, ButtonStyle, FieldKind, Form, FormField, Option, Select
from cards.render.feishu.canvas import Canvas, Element, plain, written
from cards.render.feishu.markdown import escape
from cards.render.feishu.size import cut, scrub

SUBMIT = "submit_"
_ROW = 6
_LABEL = 60
_MAX_OPTIONS = 60
_MAX_FIELDS = 20
_MAX_INPUT = 1000
# Longer values come back as `#index`, which the stored card resolves.
_MAX_VALUE = 200
_FORM_COMPONENTS = 150
_STYLES = {
    ButtonStyle.PLAIN: "default",
    ButtonStyle.PRIMARY: "primary_filled",
    ButtonStyle.DANGER: "danger",
}


def buttons(block: Buttons, canvas: Canvas) -> list[Element]:
    """Rows of buttons; what has no token becomes a line that says what to type."""
    ready = [item for item in block.items if item.token]
    rows = [ready[start : start + _ROW] for start in range(0, len(ready), _ROW)]
    elements = [_row([_button(item, canvas) for item in row]) for row in rows]
    for item in block.items:
        if not item.token:
            elements.extend(_typed(item.label, item.action.command, canvas))
    return elements


def select(block: Select, canvas: Canvas) -> list[Element]:
    if not block.token or not block.options:
        return _typed(block.placeholder, block.action.command, canvas)
    return [
        {
            "tag": "select_static",
            "placeholder": plain(cut(block.placeholder, 100)),
            "options": _options(block.options, _MAX_OPTIONS, canvas),
            "behaviors": canvas.callback(block.token),
        }
    ]


def form(block: Form, canvas: Canvas) -> list[Element]:
    """The platform's own form; the press carries each field under its name."""
    if not block.token or not block.fields:
        return _typed(block.submit, block.action.command, canvas)
    canvas.forms += 1
    if len(block.fields) > _MAX_FIELDS:
        canvas.degrade("form: only the first fields are shown")
    shown = block.fields[:_MAX_FIELDS]
    room = max(2, _FORM_COMPONENTS // len(shown) - 4)
    members = [element for item in shown for element in _field(item, room, canvas)]
    submit = {
        "tag": "button",
        "type": _STYLES[ButtonStyle.PRIMARY],
        "text": plain(cut(block.submit, _LABEL) or "OK"),
        # Said twice: a form's press is known to carry the name, the value only as a rule.
        "name": canvas.name(f"{SUBMIT}{block.token}"),
        "form_action_type": "submit",
        "behaviors": canvas.callback(block.token),
    }
    return [{"tag": "form", "name": f"form_{canvas.forms}", "elements": [*members, submit]}]


def _row(items: list[Element]) -> Element:
    columns = [{"tag": "column", "width": "auto", "elements": [item]} for item in items]
    return {
        "tag": "column_set",
        "flex_mode": "flow",
        "horizontal_spacing": "8px",
        "columns": columns,
    }


def _button(item: Button, canvas: Canvas) -> Element:
    made: Element = {
        "tag": "button",
        "type": _STYLES[item.style],
        "text": plain(cut(item.label, _LABEL) or "…"),
        "behaviors": canvas.callback(item.token),
    }
    if item.confirm is not None:
        title, text = cut(item.confirm.title, 100), cut(item.confirm.text, 300)
        made["confirm"] = {"title": plain(title or "?"), "text": plain(text)}
    return made


def _typed(label: str, command: str, canvas: Canvas) -> list[Element]:
    canvas.degrade("button: no token, shown as text")
    line = escape(scrub(label))
    return written(f"{line}: `{command}`" if command else line, text_size="notation")


def _options(options: tuple[Option, ...], limit: int, canvas: Canvas) -> list[Element]:
    if len(options) > limit:
        canvas.degrade("options: only the first are shown")
    return [
        {"text": plain(cut(option.label, 100) or "…"), "value": _value(number, option)}
        for number, option in enumerate(options[:limit])
    ]


def _value(number: int, option: Option) -> str:
    value = scrub(option.value)
    return value if value and len(value) <= _MAX_VALUE else f"#{number}"


def _field(item: FormField, room: int, canvas: Canvas) -> list[Element]:
    common: dict[str, Any] = {
        "name": canvas.name(item.name),
        "required": item.required,
        "width": "fill",
    }
    if item.placeholder:
        common["placeholder"] = plain(cut(item.placeholder, 100))
    label = cut(item.label, 100)
    if item.field is FieldKind.CHOICE and item.options:
        options = _options(item.options, room, canvas)
        return [
            *written(f"**{escape(label)}**" if label else ""),
            {"tag": "select_static", "options": options, **common},
        ]
    lines = {"input_type": "multiline_text", "rows": 3}
    return [
        {
            "tag": "input",
            "label": plain(label or item.name),
            "max_length": _MAX_INPUT,
            **({"default_value": value} if (value := _before(item)) else {}),
            **(lines if item.field is FieldKind.PARAGRAPH else {}),
            **common,
        }
    ]


def _before(item: FormField) -> str:
    """All of it or nothing: what is cut would be sent back cut."""
    value = scrub(item.value)
    return value if len(value) <= _MAX_INPUT else ""
