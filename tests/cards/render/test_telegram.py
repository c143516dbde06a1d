"""Every card becomes Telegram messages that Telegram itself would take."""

from __future__ import annotations

from typing import Any

import pytest

from cards.actions import ListTasks, PauseTask, StopTask
from cards.catalog import catalog_for
from cards.model import (
    Block,
    ButtonsBlock,
    Card,
    CardButton,
    CardTone,
    CollapsibleBlock,
    ConfirmDialog,
    FileBlock,
    FormBlock,
    ImageBlock,
    SelectBlock,
    TableBlock,
    TextBlock,
)
from cards.render.telegram import FilePart, PhotoPart, TextPart, render, render_stream
from storage.records.people import Language
from tests.cards.render.telegram_assertions import (
    PAUSE,
    SAMPLES,
    TOKEN,
    assert_telegram_takes,
    data,
    labels,
    marked,
    members,
    show,
    texts,
)
from tests.emulators.telegram.texts import utf16_length

# ------------------------------------------------------------------ every block of the union


def test_there_is_a_sample_of_every_block() -> None:
    assert set(SAMPLES) == members(Block)


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("language", Language)
def test_every_block_is_shown(kind: type[Any], language: Language) -> None:
    block, expected = SAMPLES[kind]

    card = render(Card(title="T", blocks=(block,)), catalog_for(language))

    assert_telegram_takes(card)
    if language is Language.ENGLISH:
        assert expected in texts(card)[0].text


def test_the_title_is_bold_and_carries_the_tone() -> None:
    [part] = texts(show(TextBlock(markdown="body"), title="Done", tone=CardTone.GOOD))

    assert part.text == "🟢 Done\n\nbody"
    assert marked(part, "bold") == ["🟢 Done"]


def test_a_title_with_a_sign_of_its_own_needs_no_second_one() -> None:
    [part] = texts(show(title="✅ Done", tone=CardTone.GOOD))

    assert part.text == "✅ Done"


def test_a_plain_answer_has_no_header() -> None:
    [part] = texts(show(TextBlock(markdown="just this")))

    assert part.text == "just this"


def test_buttons_carry_their_tokens_under_the_last_text() -> None:
    other = CardButton(label="Stop", action=StopTask(task_id="k3m9qa"), token="other0token0")

    card = show(TextBlock(markdown="x\n" * 3000), ButtonsBlock(items=(PAUSE, other)))

    first, *_, last = texts(card)
    assert first.keyboard == ()
    assert labels(last) == [["Pause", "Stop"]]
    assert data(last) == [TOKEN, "other0token0"]


def test_long_labels_get_a_row_of_their_own() -> None:
    items = [
        CardButton(label=label, action=ListTasks(), token=TOKEN)
        for label in ("a", "b", "c", "d", "a label that is rather long", "e")
    ]

    [part] = texts(show(ButtonsBlock(items=tuple(items))))

    assert labels(part) == [["a", "b", "c"], ["d"], ["a label that is rather long"], ["e"]]


def test_a_button_to_confirm_asks_by_a_second_press() -> None:
    stop = CardButton(
        label="Stop",
        action=StopTask(task_id="k3m9qa"),
        confirm=ConfirmDialog(title="Stop?", text="Really?"),
        token=TOKEN,
    )

    card = show(ButtonsBlock(items=(stop,)))

    assert data(texts(card)[0]) == [f"{TOKEN}?"]
    assert "confirm: asked by a second press" in card.degraded


def test_a_button_without_a_token_is_no_button_but_a_command_to_type() -> None:
    card = show(
        ButtonsBlock(items=(CardButton(label="Pause", action=PauseTask(task_id="k3m9qa")),))
    )

    [part] = texts(card)
    assert part.keyboard == ()
    assert part.text == "Pause: /pause k3m9qa"


def test_options_of_a_select_are_buttons_that_carry_their_index() -> None:
    block, _ = SAMPLES[SelectBlock]

    [part] = texts(show(block))

    assert labels(part) == [["One", "Two"]]
    assert data(part) == [f"{TOKEN}:0", f"{TOKEN}:1"]


def test_a_form_says_what_to_send_instead() -> None:
    block, _ = SAMPLES[FormBlock]

    card = show(block)

    assert "Send /run" in texts(card)[0].text
    assert card.degraded == ("form: fields listed",)


def test_images_and_files_follow_the_text() -> None:
    card = show(SAMPLES[ImageBlock][0], TextBlock(markdown="see"), SAMPLES[FileBlock][0])

    assert card.parts == (
        TextPart(text="see"),
        PhotoPart(path="a/b.png", caption="a chart"),
        FilePart(path="a/c.md", name="c.md", size=7),
    )


def test_a_picture_alone_needs_no_text_but_buttons_do() -> None:
    image = SAMPLES[ImageBlock][0]

    alone = show(image)
    pressable = show(image, ButtonsBlock(items=(PAUSE,)), summary="A chart")

    assert alone.parts == (PhotoPart(path="a/b.png", caption="a chart"),)
    assert texts(pressable)[0].text == "A chart"


def test_an_empty_card_still_is_a_message() -> None:
    assert texts(show())[0].text == "▾"


def test_wide_tables_become_lists() -> None:
    table = TableBlock(columns=("Step", "What happened"), rows=(("1", "x" * 60),))

    card = show(table)

    assert texts(card)[0].text == f"1\nWhat happened: {'x' * 60}"
    assert "table: rows as lists" in card.degraded


def test_a_collapsible_is_an_expandable_quote() -> None:
    [part] = texts(show(SAMPLES[CollapsibleBlock][0]))

    assert marked(part, "expandable_blockquote") == ["line one\nx"]
    assert marked(part, "pre") == ["x"]


# ------------------------------------------------------------------ markdown as models write it


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("Use List<int> and <T> here", "Use List<int> and <T> here"),
        ("<div>\nkept\n</div>", "<div>\nkept\n</div>"),
        ("if a || b || c", "if a || b || c"),
        ("# Head\ntext", "Head\ntext"),
        ("- one\n- two", "• one\n• two"),
        ("[the file](src/a.py)", "the file (src/a.py)"),
        ("[local](http://localhost:8000/x)", "local (http://localhost:8000/x)"),
        ("costs $5 or $6", "costs $5 or $6"),
        ("2 * 3 * 4 snake_case_name", "2 * 3 * 4 snake_case_name"),
        ("a\x00b\ud800c\u202ed", "abcd"),
        ("````", "````"),
    ],
)
def test_what_was_written_is_what_is_read(markdown: str, expected: str) -> None:
    [part] = texts(show(TextBlock(markdown=markdown)))

    assert part.text == expected


def test_code_keeps_every_character_and_its_language() -> None:
    code = "if a < b || c > d:\n    x = '<T>'  # **no**"

    [part] = texts(show(TextBlock(markdown=f"```python title=x\n{code}\n```")))

    assert marked(part, "pre") == [code]
    assert part.marks[0].language == "python"


def test_tables_in_text_are_aligned_for_chinese_too() -> None:
    [part] = texts(
        show(TextBlock(markdown="| 名字 | n |\n|---|---|\n| 你好 | **1** |\n| ab | |\n"))
    )

    assert marked(part, "pre") == ["名字 │ n\n────────\n你好 │ 1\nab   │ —"]


def test_real_links_are_links() -> None:
    [part] = texts(show(TextBlock(markdown="[site](https://a.test/x?y=1)")))

    assert [(mark.kind, mark.url) for mark in part.marks] == [("text_link", "https://a.test/x?y=1")]


def test_a_link_that_would_mention_a_person_is_shown_as_text() -> None:
    """Telegram makes a mention of it, which calls them."""
    [part] = texts(show(TextBlock(markdown="[Boss](tg://user?id=42)")))

    assert part.text == "Boss (tg://user?id=42)"
    assert part.marks == ()


# ------------------------------------------------------------------ limits


def test_long_text_splits_at_a_line_and_loses_nothing() -> None:
    lines = [f"line {i} " + "x" * 60 for i in range(300)]

    parts = texts(show(TextBlock(markdown="\n".join(lines))))

    assert len(parts) > 4
    assert "\n".join(part.text for part in parts).split("\n") == lines


def test_text_without_lines_is_cut_hard_between_characters() -> None:
    parts = texts(show(TextBlock(markdown="😀" * 5000)))

    assert [utf16_length(part.text) for part in parts] == [4000, 4000, 2000]


def test_a_line_break_early_in_the_message_is_no_place_to_split() -> None:
    parts = texts(show(TextBlock(markdown="short\n" + "x" * 6000)))

    assert utf16_length(parts[0].text) == 4000


def test_code_that_is_split_stays_code_in_both_messages() -> None:
    code = "\n".join(f"line {i}" for i in range(900))

    parts = texts(show(TextBlock(markdown=f"```python\n{code}\n```")))

    assert len(parts) > 1
    assert all(part.marks[0].kind == "pre" for part in parts)
    assert all(part.marks[0].language == "python" for part in parts)
    assert "\n".join(part.text for part in parts) == code


@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_code_that_is_split_keeps_its_indentation_and_empty_lines(gap: str) -> None:
    code = "def f():\n" + gap.join(f"        line({i})" for i in range(400)) + "\n    return 1"

    parts = texts(show(TextBlock(markdown=f"intro\n\n```python\n{code}\n```\n\nafter")))

    assert len(parts) > 1
    shown = "\n".join(part.text for part in parts)
    assert shown == f"intro\n\n{code}\n\nafter"
    assert all(part.text.startswith((" ", "intro", "\n")) for part in parts)


def test_no_message_has_more_than_a_hundred_marks() -> None:
    parts = texts(show(TextBlock(markdown="`a` b " * 350)))

    assert [len(part.marks) for part in parts] == [100, 100, 100, 50]


def test_no_message_has_more_than_a_hundred_buttons() -> None:
    items = tuple(CardButton(label=str(i), action=ListTasks(), token=f"t{i}") for i in range(150))

    card = show(ButtonsBlock(items=items))

    assert len(data(texts(card)[0])) <= 100
    assert "buttons: too many for one message" in card.degraded


def test_an_answer_in_the_making_shows_its_newest_part() -> None:
    part = render_stream("old\n" * 2000 + "the **newest")

    assert part.text.endswith("the **newest")
    assert utf16_length(part.text) <= 4000
    assert render_stream(" ").text == ""


def test_between_a_list_and_what_follows_is_one_empty_line() -> None:
    card = Card(blocks=(TextBlock(markdown="1. one\n2. **two**"), TextBlock(markdown="after")))
    [part] = texts(render(card, catalog_for(Language.ENGLISH)))

    assert part.text == "1. one\n2. two\n\nafter"
