"""Whatever a card holds, Telegram takes what is rendered."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cards.actions import ListTasks, SubmitTaskForm
from cards.catalog import catalog_for
from cards.model import (
    ButtonsBlock,
    Card,
    CardButton,
    CardTone,
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
    ImageBlock,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
    SelectOption,
    TableBlock,
    TextBlock,
)
from cards.render.telegram import render
from storage.records.people import Language
from tests.cards.render.telegram_assertions import TOKEN, assert_telegram_takes, show
from tests.thoroughness import sampled

WILD = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="ab *_`~|<>[]()#\n!-1.$\\&;😀字\u200b\u202e\ud83d", max_size=120),
)
LEAVES = st.one_of(
    st.builds(TextBlock, markdown=WILD),
    st.builds(NoteBlock, markdown=WILD),
    st.builds(FieldsBlock, pairs=st.lists(st.tuples(WILD, WILD), max_size=4).map(tuple)),
    st.builds(
        ChecklistBlock,
        items=st.lists(
            st.builds(
                ChecklistItem, label=WILD, state=st.sampled_from(ChecklistState), detail=WILD
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(ProgressBlock, percent=st.integers(-5, 200), label=WILD),
    st.builds(CodeBlock, text=WILD, language=WILD),
    st.builds(
        TableBlock,
        columns=st.lists(WILD, max_size=3).map(tuple),
        rows=st.lists(st.lists(WILD, max_size=4).map(tuple), max_size=3).map(tuple),
    ),
    st.just(DividerBlock()),
    st.builds(ImageBlock, path=st.just("a.png"), alt=WILD),
    st.builds(FileBlock, path=st.just("a"), name=WILD, size=st.just(1)),
)
OPTIONS = st.lists(st.builds(SelectOption, label=WILD, value=WILD), max_size=3).map(tuple)
BUTTON = st.builds(
    CardButton,
    label=WILD,
    action=st.just(ListTasks()),
    token=st.sampled_from(["", TOKEN, "x" * 64, "字" * 30]),
    confirm=st.sampled_from([None, ConfirmDialog(title="?", text="?")]),
)
BLOCKS = st.one_of(
    LEAVES,
    st.builds(CollapsibleBlock, title=WILD, blocks=st.lists(LEAVES, max_size=3).map(tuple)),
    st.builds(ButtonsBlock, items=st.lists(BUTTON, max_size=8).map(tuple)),
    st.builds(
        SelectBlock,
        placeholder=WILD,
        action=st.just(ListTasks()),
        options=OPTIONS,
        token=st.sampled_from(["", TOKEN]),
    ),
    st.builds(
        FormBlock,
        fields=st.lists(
            st.builds(FormField, name=st.just("a"), label=WILD, placeholder=WILD, options=OPTIONS),
            max_size=2,
        ).map(tuple),
        submit=WILD,
        action=st.just(SubmitTaskForm()),
    ),
)
CARDS = st.builds(
    Card,
    title=WILD,
    tone=st.sampled_from(CardTone),
    blocks=st.lists(BLOCKS, max_size=5).map(tuple),
    summary=WILD,
)


@settings(
    max_examples=sampled(150, 70), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(card=CARDS)
@example(card=Card(blocks=(TextBlock(markdown="\u200b"),)))
@example(card=Card(blocks=(TextBlock(markdown="**a ||b** c||"),)))
def test_whatever_a_card_holds_telegram_takes_it(card: Card) -> None:
    assert_telegram_takes(render(card, catalog_for(Language.CHINESE)))


@settings(max_examples=sampled(300, 120), deadline=None)
@given(markdown=WILD)
def test_whatever_a_model_writes_telegram_takes_it(markdown: str) -> None:
    assert_telegram_takes(show(TextBlock(markdown=markdown)))


@pytest.mark.parametrize(
    "unit", ["x", "$1 ", "~a~ ", "<a> ", "<div>\n", "||", "`a` ", "[a](b) ", "- a\n", "😀 **b** "]
)
def test_a_hundred_kilobytes_of_anything_are_shown(unit: str) -> None:
    card = show(TextBlock(markdown=unit * (100_000 // len(unit.encode()))))

    assert len(card.parts) > 1
    assert_telegram_takes(card)
