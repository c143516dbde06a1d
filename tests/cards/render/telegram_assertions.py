"""Looking at rendered Telegram cards, with the emulator's own checks."""

from __future__ import annotations

import json
from typing import Any, get_args

from cards.actions import ListTasks, PauseTask, SubmitTaskForm
from cards.catalog import catalog_for
from cards.model import (
    Block,
    ButtonsBlock,
    Card,
    CardButton,
    ChecklistBlock,
    ChecklistItem,
    ChecklistState,
    CodeBlock,
    CollapsibleBlock,
    DividerBlock,
    FieldsBlock,
    FileBlock,
    FormBlock,
    FormField,
    FormFieldKind,
    ImageBlock,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
    SelectOption,
    TableBlock,
    TextBlock,
)
from cards.render.telegram import FilePart, PhotoPart, TelegramCard, TextPart, render
from cards.telegram_text import TextMark
from storage.records.people import Language
from tests.emulators.telegram.request_forms import RequestForm as ApiForm
from tests.emulators.telegram.request_forms import read_keyboard
from tests.emulators.telegram.texts import (
    MAX_CAPTION,
    check_text,
    is_empty,
    utf16_length,
    utf16_slice,
)

TOKEN = "k3m9qa7x2b4c"
PAUSE = CardButton(label="Pause", action=PauseTask(task_id="k3m9qa"), token=TOKEN)

SAMPLES: dict[type[Any], tuple[Block, str]] = {
    TextBlock: (TextBlock(markdown="some **bold** words"), "some bold words"),
    NoteBlock: (NoteBlock(markdown="small `print`"), "small print"),
    FieldsBlock: (FieldsBlock(pairs=(("Status", "running"), ("Id", "k3m9qa"))), "Status: running"),
    ChecklistBlock: (
        ChecklistBlock(
            items=(ChecklistItem(label="Plan", state=ChecklistState.DONE, detail="3 steps"),)
        ),
        "✅ Plan\n    3 steps",
    ),
    ProgressBlock: (ProgressBlock(percent=40, label="Working"), "Working ▓▓▓▓░░░░░░ 40 %"),
    CodeBlock: (CodeBlock(text="print('<hi>')\n", language="python"), "print('<hi>')"),
    TableBlock: (
        TableBlock(columns=("名字", "n"), rows=(("你好", "1"), ("ab", ""))),
        "你好 │ 1\nab   │ —",
    ),
    DividerBlock: (DividerBlock(), "———"),
    ImageBlock: (ImageBlock(path="a/b.png", alt="a chart"), ""),
    FileBlock: (FileBlock(path="a/c.md", name="c.md", size=7), ""),
    CollapsibleBlock: (
        CollapsibleBlock(
            title="Log", blocks=(TextBlock(markdown="line *one*"), CodeBlock(text="x"))
        ),
        "Log\nline one\nx",
    ),
    ButtonsBlock: (ButtonsBlock(items=(PAUSE,)), ""),
    SelectBlock: (
        SelectBlock(
            placeholder="Which page?",
            action=ListTasks(),
            options=(SelectOption(label="One", value="1"), SelectOption(label="Two", value="2")),
            token=TOKEN,
        ),
        "Which page?",
    ),
    FormBlock: (
        FormBlock(
            fields=(
                FormField(name="text", label="What to do", placeholder="a haiku"),
                FormField(
                    name="priority",
                    label="How urgent",
                    field=FormFieldKind.CHOICE,
                    required=False,
                    options=(SelectOption(label="Now", value="urgent"),),
                ),
            ),
            submit="Go",
            action=SubmitTaskForm(),
            token=TOKEN,
        ),
        "• What to do: a haiku\n• How urgent (optional)\n   – Now",
    ),
}


def members(union: Any) -> set[type[Any]]:
    return {k for part in get_args(union) for k in (members(part) or {part})}


def show(*blocks: Block, **rest: Any) -> TelegramCard:
    return render(Card(blocks=blocks, **rest), catalog_for(Language.ENGLISH))


def texts(card: TelegramCard) -> list[TextPart]:
    return [part for part in card.parts if isinstance(part, TextPart)]


def marked(part: TextPart, kind: str) -> list[str]:
    return [utf16_slice(part.text, m.offset, m.end) for m in part.marks if m.kind == kind]


def labels(part: TextPart) -> list[list[str]]:
    return [[key.label for key in row] for row in part.keyboard]


def data(part: TextPart) -> list[str]:
    return [key.data for row in part.keyboard for key in row]


def as_entity(mark: TextMark) -> dict[str, Any]:
    entity: dict[str, Any] = {"type": mark.kind, "offset": mark.offset, "length": mark.length}
    return entity | ({"url": mark.url} if mark.url else {})


def assert_telegram_takes(card: TelegramCard) -> None:
    """The emulator's own checks, as on a call; and nothing is trimmed, so no offset moves."""
    for part in card.parts:
        match part:
            case TextPart(text=text, marks=marks, keyboard=keyboard):
                assert utf16_length(text) <= 4000
                assert not is_empty(text)
                kept = check_text(text, [as_entity(mark) for mark in marks], 4096)
                assert kept == (text, [as_entity(mark) for mark in marks])
                rows = [[{"text": k.label, "callback_data": k.data} for k in r] for r in keyboard]
                markup = json.dumps({"inline_keyboard": rows})
                assert read_keyboard(ApiForm(values={"reply_markup": markup})) == rows
            case PhotoPart(caption=caption):
                assert check_text(caption, [], MAX_CAPTION) == (caption, [])
            case FilePart(name=name):
                assert "\n" not in name
