"""What a card is, on any platform: a closed union of blocks, a tone and a summary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from cards.actions import Action


class Tone(StrEnum):
    NEUTRAL = "neutral"
    INFO = "info"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class CheckState(StrEnum):
    """How far one step of a checklist is; `mark` is its sign in plain text."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def mark(self) -> str:
        return _MARKS[self]


class ButtonStyle(StrEnum):
    PLAIN = "plain"
    PRIMARY = "primary"
    DANGER = "danger"


class FieldKind(StrEnum):
    LINE = "line"
    PARAGRAPH = "paragraph"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """CommonMark text with tables. `id` is set where the block keeps its identity over updates."""

    markdown: str
    id: str = ""
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Small print under the rest."""

    markdown: str
    kind: Literal["note"] = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Label and value pairs, plain text both."""

    pairs: tuple[tuple[str, str], ...]
    kind: Literal["fields"] = "fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`depth` is how deep it stands under those before it."""

    label: str
    state: CheckState = CheckState.PENDING
    detail: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    items: tuple[Check, ...]
    kind: Literal["checklist"] = "checklist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`percent` is 0 to 100."""

    percent: int
    label: str = ""
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    text: str
    language: str = ""
    kind: Literal["code"] = "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Plain text cells; every row is as long as `columns`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divider:
    kind: Literal["divider"] = "divider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`path` is relative to the data directory."""

    path: str
    alt: str
    kind: Literal["image"] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """`path` is relative to the data directory; `size` in bytes."""

    path: str
    name: str
    size: int
    kind: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """A second question before a button acts."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """`token` is filled in when the card is posted: the opaque id a press comes back with."""

    label: str
    action: Action
    style: ButtonStyle = ButtonStyle.PLAIN
    confirm: Confirm | None = None
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buttons:
    items: tuple[Button, ...]
    kind: Literal["buttons"] = "buttons"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Pick one. A press carries the picked option's `value`."""

    placeholder: str
    action: Action
    options: tuple[Option, ...]
    token: str = ""
    kind: Literal["select"] = "select"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """`value` is what stands in it before anybody writes; a choice has none."""

    name: str
    label: str
    field: FieldKind = FieldKind.LINE
    required: bool = True
    placeholder: str = ""
    options: tuple[Option, ...] = ()
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Several answers at once. A press carries a value for each field name."""

    fields: tuple[FormField, ...]
    submit: str
    action: Action
    token: str = ""
    kind: Literal["form"] = "form"


Leaf: TypeAlias = (
    Text | Note | Fields | Checklist | Progress | Code | Table | Divider | Image | File
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapsible:
    """Detail that starts folded."""

    title: str
    blocks: tuple[Leaf, ...]
    kind: Literal["collapsible"] = "collapsible"


Block: TypeAlias = Leaf | Collapsible | Buttons | Select | Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A message to a person.

    `title` may be empty for a plain answer. `summary` is one line for chat lists and
    notifications; `fallback` is the whole message in plain text, for where a card is refused:
    views get it from `cards.render.text` when they leave it empty.
    """

    title: str = ""
    tone: Tone = Tone.NEUTRAL
    blocks: tuple[Block, ...] = ()
    summary: str = ""
    fallback: str = ""


_MARKS = {
    CheckState.PENDING: "○",
    CheckState.RUNNING: "📍",
    CheckState.WAITING: "⏳",
    CheckState.PAUSED: "⏸️",
    CheckState.DONE: "✅",
    CheckState.FAILED: "❌",
    CheckState.SKIPPED: "⏭️",
}
