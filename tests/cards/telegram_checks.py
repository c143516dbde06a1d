"""Looking at rendered Telegram cards, with the emulator's own checks."""

from __future__ import annotations

import json
from typing import Any, get_args

from cards.actions import ListTasks, NewTask, PauseTask
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Check,
    Checklist,
    CheckState,
    Code,
    Collapsible,
    Divider,
    FieldKind,
    Fields,
    File,
    Form,
    FormField,
    Image,
    Note,
    Option,
    Progress,
    Select,
    Table,
    Text,
)
from cards.render.telegram import (
    FilePart,
    PhotoPart,
    TelegramCard,
    TextPart,
    render,
)
from cards.rich_text import Mark
from cards.words import words_for
from storage.records.people import Language
from tests.emulators.telegram.forms import Form as ApiForm
from tests.emulators.telegram.markup import read_keyboard
from tests.emulators.telegram.texts import MAX_CAPTION, check_text, cut, is_empty, utf16

TOKEN = "k3m9qa7x2b4c"
PAUSE = Button(label="Pause", action=PauseTask(task_id="k3m9qa"), token=TOKEN)

SAMPLES: dict[type[Any], tuple[Block, str]] = {
    Text: (Text(markdown="some **bold** words"), "some bold words"),
    Note: (Note(markdown="small `print`"), "small print"),
    Fields: (Fields(pairs=(("Status", "running"), ("Id", "k3m9qa"))), "Status: running"),
    Checklist: (
        Checklist(items=(Check(label="Plan", state=CheckState.DONE, detail="3 steps"),)),
        "✅ Plan\n    3 steps",
    ),
    Progress: (Progress(percent=40, label="Working"), "Working ▓▓▓▓░░░░░░ 40 %"),
    Code: (Code(text="print('<hi>')\n", language="python"), "print('<hi>')"),
    Table: (Table(columns=("名字", "n"), rows=(("你好", "1"), ("ab", ""))), "你好 │ 1\nab   │ —"),
    Divider: (Divider(), "———"),
    Image: (Image(path="a/b.png", alt="a chart"), ""),
    File: (File(path="a/c.md", name="c.md", size=7), ""),
    Collapsible: (
        Collapsible(title="Log", blocks=(Text(markdown="line *one*"), Code(text="x"))),
        "Log\nline one\nx",
    ),
    Buttons: (Buttons(items=(PAUSE,)), ""),
    Select: (
        Select(
            placeholder="Which page?",
            action=ListTasks(),
            options=(Option(label="One", value="1"), Option(label="Two", value="2")),
            token=TOKEN,
        ),
        "Which page?",
    ),
    Form: (
        Form(
            fields=(
                FormField(name="text", label="What to do", placeholder="a haiku"),
                FormField(
                    name="priority",
                    label="How urgent",
                    field=FieldKind.CHOICE,
                    required=False,
                    options=(Option(label="Now", value="urgent"),),
                ),
            ),
            submit="Go",
            action=NewTask(),
            token=TOKEN,
        ),
        "• What to do: a haiku\n• How urgent (optional)\n   – Now",
    ),
}


def members(union: Any) -> set[type[Any]]:
    return {k for part in get_args(union) for k in (members(part) or {part})}


def show(*blocks: Block, **rest: Any) -> TelegramCard:
    return render(Card(blocks=blocks, **rest), words_for(Language.ENGLISH))


def texts(card: TelegramCard) -> list[TextPart]:
    return [part for part in card.parts if isinstance(part, TextPart)]


def marked(part: TextPart, kind: str) -> list[str]:
    return [cut(part.text, m.offset, m.end) for m in part.marks if m.kind == kind]


def labels(part: TextPart) -> list[list[str]]:
    return [[key.label for key in row] for row in part.keyboard]


def data(part: TextPart) -> list[str]:
    return [key.data for row in part.keyboard for key in row]


def as_entity(mark: Mark) -> dict[str, Any]:
    entity: dict[str, Any] = {"type": mark.kind, "offset": mark.offset, "length": mark.length}
    return entity | ({"url": mark.url} if mark.url else {})


def assert_telegram_takes(card: TelegramCard) -> None:
    """The emulator's own checks, as on a call; and nothing is trimmed, so no offset moves."""
    for part in card.parts:
        match part:
            case TextPart(text=text, marks=marks, keyboard=keyboard):
                assert utf16(text) <= 4000
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
