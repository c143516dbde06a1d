"""Plain text is what is left when nothing else can be shown: it must say everything."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cards.actions import Answer, JustTalk, NewTask, PauseTask, PickModel, ShowTask
from cards.memory_actions import EditMemory
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
    Confirm,
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
from cards.render.text import one_line, plain, render

PAUSE = Button(label="Pause", action=PauseTask(task_id="k3m9qa"))
TALK = Button(label="Just talk", action=JustTalk(text="x"))
OPTIONS = (Option(label="Opus", value="a"), Option(label="Auto", value="auto"))

SHOWN: dict[type, tuple[Block, str]] = {
    Text: (Text(markdown="# Plan\n\n**bold** and `code`"), "Plan\n\nbold and code"),
    Note: (Note(markdown="_small_ print"), "small print"),
    Fields: (Fields(pairs=(("Task", "k3m9qa"), ("状态", "进行中"))), "Task: k3m9qa\n状态: 进行中"),
    Checklist: (
        Checklist(
            items=(
                Check(label="Plan", state=CheckState.DONE),
                Check(label="Do", state=CheckState.FAILED, detail="no key"),
            )
        ),
        "✅ Plan\n❌ Do\n   no key",
    ),
    Progress: (Progress(percent=45, label="Steps"), "Steps ▓▓▓▓░░░░░░ 45 %"),
    Code: (Code(text="a = 1\n  b\n"), "a = 1\n  b"),
    Table: (Table(columns=("a", "状态"), rows=(("1", "好"),)), "a  状态\n─  ────\n1  好"),
    Divider: (Divider(), "———"),
    Image: (Image(path="files/x.png", alt="A chart"), "🖼 A chart (files/x.png)"),
    File: (File(path="files/h.md", name="h.md", size=2048), "📎 h.md (2.0 KB, files/h.md)"),
    Collapsible: (Collapsible(title="More", blocks=(Text(markdown="in"),)), "More\n  in"),
    Buttons: (Buttons(items=(PAUSE,)), "Pause: /pause k3m9qa"),
    Select: (
        Select(placeholder="Model", action=PickModel(), options=OPTIONS),
        "Model\n• Opus\n• Auto",
    ),
    Form: (
        Form(
            fields=(
                FormField(name="text", label="What?"),
                FormField(name="m", label="Model", field=FieldKind.CHOICE, options=OPTIONS),
            ),
            submit="Go",
            action=NewTask(),
        ),
        "• What?\n• Model\n  • Opus\n  • Auto",
    ),
}


def all_blocks() -> set[type]:
    return set(get_args(Block))


def test_there_is_an_example_of_every_block() -> None:
    assert set(SHOWN) == all_blocks()


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
def test_every_block_becomes_readable_text(kind: type) -> None:
    block, text = SHOWN[kind]
    assert render(Card(blocks=(block,))).text == text


def test_title_and_blocks_stand_apart() -> None:
    card = Card(title="Haiku", blocks=(Progress(percent=0), Text(markdown=""), Divider()))
    assert render(card).text == "Haiku\n\n░░░░░░░░░░ 0 %\n\n———"


def test_a_card_without_content_falls_back_to_its_summary() -> None:
    assert render(Card(summary="Done")).text == "Done"


def test_percentages_out_of_range_are_bounded() -> None:
    shown = [render(Card(blocks=(Progress(percent=p),))).text for p in (-5, 250)]
    assert shown == ["░░░░░░░░░░ 0 %", "▓▓▓▓▓▓▓▓▓▓ 100 %"]


def test_a_button_without_a_command_is_left_out_and_named() -> None:
    shown = render(Card(blocks=(Buttons(items=(PAUSE, TALK)),)))
    assert shown.text == "Pause: /pause k3m9qa"
    assert shown.degraded == ("button without a command left out: just_talk",)


def test_an_answer_is_listed_with_what_to_type_for_it() -> None:
    answer = Button(label="Blue", action=Answer(question_id="q", value="blue"))
    assert render(Card(blocks=(Buttons(items=(answer,)),))).text == "Blue: /approve q blue"


def test_a_sealed_card_never_shows_its_tokens() -> None:
    secret = "abcdefghijkl"
    pressable = Button(
        label="Show",
        action=ShowTask(task_id="t1"),
        token=secret,
        confirm=Confirm(title="?", text="?"),
    )
    card = Card(
        blocks=(
            Buttons(items=(pressable,)),
            Select(placeholder="M", action=PickModel(), options=OPTIONS, token=secret),
            Form(fields=(), submit="Go", action=NewTask(), token=secret),
        )
    )
    assert secret not in render(card).text


def test_a_wide_table_becomes_one_line_a_cell() -> None:
    table = Table(columns=("Name", "Text"), rows=(("a", "x" * 80), ("b", "y")))
    assert render(Card(blocks=(table,))).text == f"Name: a\nText: {'x' * 80}\n\nName: b\nText: y"


def test_chinese_columns_line_up_on_a_terminal() -> None:
    table = Table(columns=("任务", "s"), rows=(("写周报", "a"), ("b", "c")))
    assert render(Card(blocks=(table,))).text.split("\n")[2:] == ["写周报  a", "b       c"]


def test_markdown_keeps_its_meaning_without_its_marks() -> None:
    markdown = (
        "1. one\n2. two\n   - deep\n\n> said\n\n[docs](https://a.b) <https://c.d>\n\n"
        "![pic](https://e.f)\n\n```py\nx = 1\n```\n\n---\n\n|a|b|\n|-|-|\n|1|**2**|"
    )
    assert plain(markdown) == (
        "1. one\n2. two\n   • deep\n\n> said\n\ndocs (https://a.b) https://c.d\n\npic\n\nx = 1\n\n"
        "———\n\na  b\n─  ─\n1  2"
    )


def test_a_summary_is_one_short_line() -> None:
    assert one_line("# Title\n\nand **more**") == "Title and more"
    assert one_line("word " * 100, limit=20) == "word word word word…"
    assert len(one_line("长" * 100_000)) == 120


def test_escape_sequences_cannot_reach_a_terminal() -> None:
    hostile = "\x1b[2J\x00\x9b31mred\r\nnext \ud800"
    card = Card(title=hostile, blocks=(Text(markdown=hostile), Code(text=hostile)))
    shown = render(card).text
    assert not {"\x1b", "\x00", "\x9b", "\r"} & set(shown)
    assert shown.encode()


def test_a_name_cannot_be_disguised_by_direction_marks() -> None:
    block = File(path="files/x", name="gnp.\u202eexe", size=1)
    assert "\u202e" not in render(Card(blocks=(block,))).text


def test_very_long_text_is_kept_whole() -> None:
    text = "**word** " * 12_000
    assert render(Card(blocks=(Text(markdown=text),))).text.count("word") == 12_000


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_anywhere_renders_and_can_be_encoded(text: str) -> None:
    card = Card(
        title=text,
        blocks=(
            Text(markdown=text),
            Fields(pairs=((text, text),)),
            Table(columns=(text, text), rows=((text, text),)),
            Collapsible(title=text, blocks=(Code(text=text, language=text),)),
            Checklist(items=(Check(label=text, detail=text),)),
            Buttons(items=(Button(label=text, action=PauseTask(task_id="a")),)),
        ),
    )
    shown = render(card).text
    assert shown.encode()
    assert "/pause a" in shown


def test_a_form_says_what_to_type_instead_and_is_left_out_where_nothing_can_be_pressed() -> None:
    field = FormField(name="text", label="What it should say")
    action = EditMemory(entry_id="aa22", revision=1)
    card = Card(blocks=(Text(markdown="tea"), Form(fields=(field,), submit="Save", action=action)))

    assert "Save: /memory edit aa22 …" in render(card).text
    assert render(card, pressable=False).text == "tea"
