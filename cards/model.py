"""Defines cards independently of platforms: blocks, tone and summary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Literal, TypeAlias

from cards import formats
from cards.actions import Action


class CardTone(StrEnum):
    NEUTRAL = "neutral"
    INFO = "info"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class ChecklistState(StrEnum):
    """The state of a checklist item; `symbol` shows it in plain text."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def symbol(self) -> str:
        return _STATE_SYMBOLS[self]


class ButtonStyle(StrEnum):
    PLAIN = "plain"
    PRIMARY = "primary"
    DANGER = "danger"


class FormFieldKind(StrEnum):
    LINE = "line"
    PARAGRAPH = "paragraph"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """CommonMark text with tables. `id` is set if the block must be recognized across updates."""

    markdown: str
    id: str = ""
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class NoteBlock:
    """Small print below the rest."""

    markdown: str
    kind: Literal["note"] = "note"


@dataclass(frozen=True, slots=True)
class FieldsBlock:
    """Pairs of label and value, both plain text."""

    pairs: tuple[tuple[str, str], ...]
    kind: Literal["fields"] = "fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """`depth` is its nesting level."""

    label: str
    state: ChecklistState = ChecklistState.PENDING
    detail: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class ChecklistBlock:
    items: tuple[ChecklistItem, ...]
    kind: Literal["checklist"] = "checklist"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressBlock:
    """`percent` is from 0 to 100."""

    percent: int
    label: str = ""
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class CodeBlock:
    text: str
    language: str = ""
    kind: Literal["code"] = "code"


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Plain text cells; every row must be as long as `columns`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class DividerBlock:
    kind: Literal["divider"] = "divider"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlock:
    """`path` is relative to the data directory, and so is `vector`: the same as SVG, for where it
    can be shown; empty if there is none."""

    path: str
    alt: str
    kind: Literal["image"] = "image"
    vector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """`path` is relative to the data directory; `size` is in bytes. With `document_title`, a
    Markdown file is shown as a document of that title, which must be unique, where the platform has
    documents; the account `document_owner` may manage it."""

    path: str
    name: str
    size: int
    document_title: str = ""
    document_owner: str = ""
    kind: Literal["file"] = "file"


@dataclass(frozen=True, slots=True)
class ConfirmDialog:
    """Asks for confirmation before a button acts."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class CardButton:
    """`token` is filled in on sending: the opaque id that a press returns."""

    label: str
    action: Action
    style: ButtonStyle = ButtonStyle.PLAIN
    confirm: ConfirmDialog | None = None
    token: str = ""


@dataclass(frozen=True, slots=True)
class ButtonsBlock:
    items: tuple[CardButton, ...]
    kind: Literal["buttons"] = "buttons"


@dataclass(frozen=True, slots=True)
class SelectOption:
    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectBlock:
    """A single choice. A press carries the chosen option's `value`."""

    placeholder: str
    action: Action
    options: tuple[SelectOption, ...]
    token: str = ""
    kind: Literal["select"] = "select"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """`value` is the initial content; a choice has none."""

    name: str
    label: str
    field: FormFieldKind = FormFieldKind.LINE
    required: bool = True
    placeholder: str = ""
    options: tuple[SelectOption, ...] = ()
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormBlock:
    """Several inputs at once. A press carries a value for each field name."""

    fields: tuple[FormField, ...]
    submit: str
    action: Action
    token: str = ""
    kind: Literal["form"] = "form"


ContentBlock: TypeAlias = (
    TextBlock
    | NoteBlock
    | FieldsBlock
    | ChecklistBlock
    | ProgressBlock
    | CodeBlock
    | TableBlock
    | DividerBlock
    | ImageBlock
    | FileBlock
)


@dataclass(frozen=True, slots=True)
class CollapsibleBlock:
    """Details that start folded."""

    title: str
    blocks: tuple[ContentBlock, ...]
    kind: Literal["collapsible"] = "collapsible"


Block: TypeAlias = ContentBlock | CollapsibleBlock | ButtonsBlock | SelectBlock | FormBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A message to a person.

    `title` may be empty for a plain answer. `summary` is one line for chat lists and notifications;
    `fallback` is the whole message in plain text, for platforms that reject the card: if empty,
    `cards.render.text` supplies it.
    """

    title: str = ""
    tone: CardTone = CardTone.NEUTRAL
    blocks: tuple[Block, ...] = ()
    summary: str = ""
    fallback: str = ""


_MAX_SUMMARY = 80


def titled_card(
    title: str, *blocks: Block, tone: CardTone = CardTone.INFO, summary: str = ""
) -> Card:
    """A card whose summary is its title unless given."""
    return Card(title=title, tone=tone, blocks=blocks, summary=summary or title)


def error_card(title: str, hint: str, *, tone: CardTone = CardTone.BAD) -> Card:
    """`title` is plain text, `hint` Markdown."""
    return titled_card(
        f"⚠️ {formats.single_line(title, _MAX_SUMMARY)}",
        TextBlock(hint),
        tone=tone,
        summary=formats.single_line(title, _MAX_SUMMARY),
    )


def notice_card(title: str, text: str, *, tone: CardTone = CardTone.INFO) -> Card:
    """A short notice. `text` is Markdown."""
    blocks = (TextBlock(text),) if text else ()
    return titled_card(
        title, *blocks, tone=tone, summary=formats.single_line(title or text, _MAX_SUMMARY)
    )


_STATE_SYMBOLS = {
    ChecklistState.PENDING: "○",
    ChecklistState.RUNNING: "📍",
    ChecklistState.WAITING: "⏳",
    ChecklistState.PAUSED: "⏸️",
    ChecklistState.DONE: "✅",
    ChecklistState.FAILED: "❌",
    ChecklistState.SKIPPED: "⏭️",
    ChecklistState.CANCELLED: "🚫",
}

_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


def file_block(path: str, size: int) -> ImageBlock | FileBlock:
    """A block for a file of the data directory: shown if it is a picture, else attached."""
    name = PurePath(path).name
    if PurePath(path).suffix.lower() in _IMAGE_SUFFIXES:
        return ImageBlock(path=path, alt=name)
    return FileBlock(path=path, name=name, size=size)
