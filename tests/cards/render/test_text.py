"""Plain text is what is left when nothing else can be shown: it must say everything."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cards.actions import (
    AnswerQuestion,
    AnswerWithoutTask,
    ChooseModel,
    PauseTask,
    ShowTask,
    SubmitTaskForm,
)
from cards.memory_actions import (
    SubmitMemoryEdit,
)
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
    ConfirmDialog,
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
from cards.render.text import markdown_to_text, render
from tests.thoroughness import sampled

PAUSE = CardButton(label="Pause", action=PauseTask(task_id="k3m9qa"))
TALK = CardButton(label="Just chat", action=AnswerWithoutTask(text="x"))
OPTIONS = (SelectOption(label="Opus", value="a"), SelectOption(label="Auto", value="auto"))

SHOWN: dict[type, tuple[Block, str]] = {
    TextBlock: (TextBlock(markdown="# Plan\n\n**bold** and `code`"), "Plan\n\nbold and code"),
    NoteBlock: (NoteBlock(markdown="_small_ print"), "small print"),
    FieldsBlock: (
        FieldsBlock(pairs=(("Task", "k3m9qa"), ("状态", "进行中"))),
        "Task: k3m9qa\n状态: 进行中",
    ),
    ChecklistBlock: (
        ChecklistBlock(
            items=(
                ChecklistItem(label="Plan", state=ChecklistState.DONE),
                ChecklistItem(label="Do", state=ChecklistState.FAILED, detail="no key"),
            )
        ),
        "✅ Plan\n❌ Do\n   no key",
    ),
    ProgressBlock: (ProgressBlock(percent=45, label="Steps"), "Steps ▓▓▓▓░░░░░░ 45 %"),
    CodeBlock: (CodeBlock(text="a = 1\n  b\n"), "a = 1\n  b"),
    TableBlock: (TableBlock(columns=("a", "状态"), rows=(("1", "好"),)), "a  状态\n─  ────\n1  好"),
    DividerBlock: (DividerBlock(), "———"),
    ImageBlock: (ImageBlock(path="files/x.png", alt="A chart"), "🖼 A chart (files/x.png)"),
    FileBlock: (
        FileBlock(path="files/h.md", name="h.md", size=2048),
        "📎 h.md (2.0 KB, files/h.md)",
    ),
    CollapsibleBlock: (
        CollapsibleBlock(title="More", blocks=(TextBlock(markdown="in"),)),
        "More\n  in",
    ),
    ButtonsBlock: (ButtonsBlock(items=(PAUSE,)), "Pause: /pause k3m9qa"),
    SelectBlock: (
        SelectBlock(placeholder="Model", action=ChooseModel(), options=OPTIONS),
        "Model\n• Opus\n• Auto",
    ),
    FormBlock: (
        FormBlock(
            fields=(
                FormField(name="text", label="What?"),
                FormField(name="m", label="Model", field=FormFieldKind.CHOICE, options=OPTIONS),
            ),
            submit="Go",
            action=SubmitTaskForm(),
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
    card = Card(
        title="Haiku", blocks=(ProgressBlock(percent=0), TextBlock(markdown=""), DividerBlock())
    )
    assert render(card).text == "Haiku\n\n░░░░░░░░░░ 0 %\n\n———"


def test_a_card_without_content_falls_back_to_its_summary() -> None:
    assert render(Card(summary="Done")).text == "Done"


def test_percentages_out_of_range_are_bounded() -> None:
    shown = [render(Card(blocks=(ProgressBlock(percent=p),))).text for p in (-5, 250)]
    assert shown == ["░░░░░░░░░░ 0 %", "▓▓▓▓▓▓▓▓▓▓ 100 %"]


def test_a_button_without_a_command_is_left_out_and_named() -> None:
    shown = render(Card(blocks=(ButtonsBlock(items=(PAUSE, TALK)),)))
    assert shown.text == "Pause: /pause k3m9qa"
    assert shown.degraded == ("button without a command left out: just_talk",)


def test_an_answer_is_listed_with_what_to_type_for_it() -> None:
    answer = CardButton(label="Blue", action=AnswerQuestion(question_id="q", value="blue"))
    assert render(Card(blocks=(ButtonsBlock(items=(answer,)),))).text == "Blue: /approve q blue"


def test_a_sealed_card_never_shows_its_tokens() -> None:
    secret = "abcdefghijkl"
    pressable = CardButton(
        label="Show",
        action=ShowTask(task_id="t1"),
        token=secret,
        confirm=ConfirmDialog(title="?", text="?"),
    )
    card = Card(
        blocks=(
            ButtonsBlock(items=(pressable,)),
            SelectBlock(placeholder="M", action=ChooseModel(), options=OPTIONS, token=secret),
            FormBlock(fields=(), submit="Go", action=SubmitTaskForm(), token=secret),
        )
    )
    assert secret not in render(card).text


def test_a_wide_table_becomes_one_line_a_cell() -> None:
    table = TableBlock(columns=("Name", "Text"), rows=(("a", "x" * 80), ("b", "y")))
    assert render(Card(blocks=(table,))).text == f"Name: a\nText: {'x' * 80}\n\nName: b\nText: y"


def test_chinese_columns_line_up_on_a_terminal() -> None:
    table = TableBlock(columns=("任务", "s"), rows=(("写周报", "a"), ("b", "c")))
    assert render(Card(blocks=(table,))).text.split("\n")[2:] == ["写周报  a", "b       c"]


def test_markdown_keeps_its_meaning_without_its_marks() -> None:
    markdown = (
        "1. one\n2. two\n   - deep\n\n> said\n\n[docs](https://a.b) <https://c.d>\n\n"
        "![pic](https://e.f)\n\n```py\nx = 1\n```\n\n---\n\n|a|b|\n|-|-|\n|1|**2**|"
    )
    assert markdown_to_text(markdown) == (
        "1. one\n2. two\n   • deep\n\n> said\n\ndocs (https://a.b) https://c.d\n\npic\n\nx = 1\n\n"
        "———\n\na  b\n─  ─\n1  2"
    )


def test_escape_sequences_cannot_reach_a_terminal() -> None:
    hostile = "\x1b[2J\x00\x9b31mred\r\nnext \ud800"
    card = Card(title=hostile, blocks=(TextBlock(markdown=hostile), CodeBlock(text=hostile)))
    shown = render(card).text
    assert not {"\x1b", "\x00", "\x9b", "\r"} & set(shown)
    assert shown.encode()


def test_a_name_cannot_be_disguised_by_direction_marks() -> None:
    block = FileBlock(path="files/x", name="gnp.\u202eexe", size=1)
    assert "\u202e" not in render(Card(blocks=(block,))).text


def test_very_long_text_is_kept_whole() -> None:
    text = "**word** " * 12_000
    assert render(Card(blocks=(TextBlock(markdown=text),))).text.count("word") == 12_000


@settings(max_examples=sampled(150, 70), deadline=None)
@given(st.text(max_size=200))
def test_any_text_anywhere_renders_and_can_be_encoded(text: str) -> None:
    card = Card(
        title=text,
        blocks=(
            TextBlock(markdown=text),
            FieldsBlock(pairs=((text, text),)),
            TableBlock(columns=(text, text), rows=((text, text),)),
            CollapsibleBlock(title=text, blocks=(CodeBlock(text=text, language=text),)),
            ChecklistBlock(items=(ChecklistItem(label=text, detail=text),)),
            ButtonsBlock(items=(CardButton(label=text, action=PauseTask(task_id="a")),)),
        ),
    )
    shown = render(card).text
    assert shown.encode()
    assert "/pause a" in shown


def test_a_form_says_what_to_type_instead_and_is_left_out_where_nothing_can_be_pressed() -> None:
    field = FormField(name="text", label="New text")
    action = SubmitMemoryEdit(entry_id="aa22", revision=1)
    card = Card(
        blocks=(TextBlock(markdown="tea"), FormBlock(fields=(field,), submit="Save", action=action))
    )

    assert "Save: /memory edit aa22 …" in render(card).text
    assert render(card, include_controls=False).text == "tea"
