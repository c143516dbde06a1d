"""Cards for Feishu: every block is one the platform accepts, whatever it holds."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cards.actions import ChooseModel, ListTasks, PauseTask, SubmitTaskForm
from cards.catalog import catalog_for
from cards.model import (
    Block,
    ButtonsBlock,
    ButtonStyle,
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
    FormFieldKind,
    ImageBlock,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
    SelectOption,
    TableBlock,
    TextBlock,
)
from cards.render.feishu.card import FeishuCard, minimal_card, render, render_stream
from cards.render.feishu.markdown import escape_text, normalize_markdown, split_markdown
from storage.records.people import Language
from tests.emulators.feishu.card_validator import KnownReferences, check_card
from tests.emulators.feishu.tenant import components
from tests.thoroughness import sampled

WORDS = catalog_for(Language.ENGLISH)
KNOWN = KnownReferences({"img_1"}, set())
IMAGES = {"files/a.png": "img_1"}

YES = CardButton(label="Go", action=ListTasks(), style=ButtonStyle.PRIMARY, token="aaaabbbbcccc")
STOP = CardButton(
    label="Stop",
    action=PauseTask(task_id="t1"),
    style=ButtonStyle.DANGER,
    confirm=ConfirmDialog(title="Stop it?", text="What is done stays done."),
    token="ddddeeeeffff",
)
OPTIONS = (SelectOption(label="Fast", value="fast"), SelectOption(label="Careful", value="careful"))
BLOCKS: tuple[Block, ...] = (
    TextBlock(markdown="# Plan\n\n1. read\n2. **write** `code`\n\n> said <b>so</b>", id="plan"),
    NoteBlock(markdown="small *print*"),
    FieldsBlock(pairs=(("Status", "running"), ("Id", "k3m_9*qa"))),
    ChecklistBlock(
        items=tuple(ChecklistItem(label=f"step {s}", state=s, detail="why") for s in ChecklistState)
    ),
    ProgressBlock(percent=45, label="2 of 5"),
    CodeBlock(text="print('<at id=all></at>')\n```\n", language="python"),
    TableBlock(columns=("Name", "Count"), rows=(("a|b", "1"), ("c", "22"))),
    DividerBlock(),
    ImageBlock(path="files/a.png", alt="A figure"),
    FileBlock(path="files/a.txt", name="a.txt", size=12_345),
    CollapsibleBlock(
        title="More",
        blocks=(TextBlock(markdown="inside"), TableBlock(columns=("x",), rows=(("1",),))),
    ),
    ButtonsBlock(items=(YES, STOP)),
    SelectBlock(placeholder="Model", action=ChooseModel(), options=OPTIONS, token="gggghhhhiiii"),
    FormBlock(
        fields=(
            FormField(
                name="text", label="What?", field=FormFieldKind.PARAGRAPH, placeholder="a task"
            ),
            FormField(name="title", label="Title", required=False),
            FormField(name="speed", label="How?", field=FormFieldKind.CHOICE, options=OPTIONS),
        ),
        submit="Send",
        action=SubmitTaskForm(),
        token="jjjjkkkkllll",
    ),
)


def rendered(*blocks: Block, **more: Any) -> FeishuCard:
    made = render(Card(title="Title", blocks=blocks, **more), WORDS, images=IMAGES)
    for part in made.parts:
        check_card(part, KNOWN)
    return made


def elements(made: FeishuCard, part: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.parts[part]["body"]["elements"]
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.kind)
def test_every_block_is_accepted(block: Block) -> None:
    made = rendered(block)

    assert elements(made)


def test_no_block_is_forgotten_here() -> None:
    assert {type(block) for block in BLOCKS} == set(get_args(Block))


def test_all_blocks_fit_on_one_card_together() -> None:
    made = rendered(*BLOCKS, summary="All of it", tone=CardTone.WARN)

    assert len(made.parts) == 1
    card = made.parts[0]
    assert card["header"]["template"] == "orange"
    assert card["header"]["text_tag_list"][0]["text"]["content"] == "Attention"
    assert card["config"]["summary"] == {"content": "All of it"}
    assert made.degraded == ("table: shown as code",)


def test_a_press_comes_back_with_its_token_and_mark() -> None:
    card = Card(blocks=(ButtonsBlock(items=(YES, STOP)),))
    made = render(card, WORDS, callback_values={"k": "group"})

    first, second = components(made.parts[0], "button")

    assert first["behaviors"] == [
        {"type": "callback", "value": {"k": "group", "t": "aaaabbbbcccc"}}
    ]
    assert second["confirm"]["title"]["content"] == "Stop it?"
    assert "header" not in made.parts[0]


def test_a_button_without_a_token_is_a_line_to_type() -> None:
    made = rendered(
        ButtonsBlock(items=(CardButton(label="Pause", action=PauseTask(task_id="t1")),))
    )

    assert not list(components(made.parts[0], "button"))
    assert elements(made)[0]["content"] == "Pause: `/pause t1`"


def test_two_forms_on_one_card_have_different_member_names() -> None:
    made = rendered(BLOCKS[-1], BLOCKS[-1])

    names = [member["name"] for member in components(made.parts[0], "input")]
    assert names == ["text", "title", "text~2", "title~2"]


def test_blocks_keep_their_element_ids_over_updates() -> None:
    before = rendered(TextBlock(markdown="a", id="plan"), ProgressBlock(percent=1))
    after = rendered(TextBlock(markdown="b" * 20_000, id="plan"), ProgressBlock(percent=2))

    ids = [
        [e["element_id"] for e in elements(made) if "element_id" in e] for made in (before, after)
    ]
    assert ids[0] == ids[1] == ["answer", "b1"]


def test_a_sixth_table_becomes_code() -> None:
    made = rendered(*[BLOCKS[6]] * 6)

    assert len(list(components(made.parts[0], "table"))) == 5
    assert made.degraded == ("table: shown as code",)


def test_number_columns_are_numbers_only_where_nothing_is_lost() -> None:
    block = TableBlock(columns=("a", "b", "c"), rows=(("1", "01", "1.0"), ("20", "2", "x")))

    table = next(components(rendered(block).parts[0], "table"))

    assert [column["data_type"] for column in table["columns"]] == ["number", "text", "text"]
    assert table["rows"][0] == {"c0": 1, "c1": "01", "c2": "1.0"}


def test_a_long_answer_is_split_and_nothing_of_it_is_lost() -> None:
    lines = [f"line {number} " + "字" * 40 for number in range(1000)]

    made = rendered(TextBlock(markdown="\n".join(lines)), ButtonsBlock(items=(YES,)))

    shown = "\n".join(one["content"] for one in components(list(made.parts), "markdown"))
    assert len(made.parts) > 1
    assert all(line in shown for line in lines)
    assert "header" not in made.parts[1]
    assert list(components(made.parts[-1], "button"))


def test_more_than_ten_cards_are_cut_in_the_middle() -> None:
    made = rendered(TextBlock(markdown="字\n" * 500_000), ButtonsBlock(items=(YES,)))

    assert len(made.parts) == 10
    assert "card: cut in the middle, it is too long" in made.degraded
    assert list(components(made.parts[-1], "button"))


def test_a_picture_that_was_not_uploaded_is_named() -> None:
    made = render(Card(blocks=(ImageBlock(path="x.png", alt="A cat"),)), WORDS)

    assert made.parts[0]["body"]["elements"][0]["content"] == "🖼️ A cat"
    assert made.degraded == ("image: named, not shown",)


def test_a_streaming_card_has_one_element_the_answer_grows_in() -> None:
    made = render(Card(blocks=(TextBlock(markdown=""),)), WORDS, streaming=True)
    bare = render(Card(), WORDS, streaming=True)

    for one in (made, bare):
        check_card(one.parts[0], KNOWN)
        assert one.parts[0]["config"]["streaming_mode"] is True
        assert one.parts[0]["config"]["summary"] == {"content": "Writing…"}
        assert [e["element_id"] for e in elements(one)] == [one.answer]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("# One\n## Two", "#### One\n##### Two"),
        ("One\n===\nTwo\n---", "#### One\n##### Two"),
        ("![cat](https://x.org/c.png)", "[cat](https://x.org/c.png)"),
        ("[notes](notes.md) [js](javascript:x)", "notes (notes.md) js (javascript:x)"),
        ("[a [b]](javascript:x)", "[a [b]]&#40;javascript:x)"),
        ("[two\nlines](javascript:x)", "[two\nlines]&#40;javascript:x)"),
        ("[x](\njavascript:x)", "[x]&#40;\njavascript:x)"),
        ("[x][1]\n\n> [1]: javascript:x", "[x][1]\n\n> [1]&#58; javascript:x"),
        ("[x][1]\n\n- [1]: javascript:x", "[x][1]\n\n- [1]&#58; javascript:x"),
        ("[x][1]\n\n1. > [1]: javascript:x", "[x][1]\n\n1. > [1]&#58; javascript:x"),
        ("[x][a\\]b]\n\n[a\\]b]: javascript:x", "[x][a\\]b]\n\n[a\\]b]&#58; javascript:x"),
        ("[x][a b]\n\n[a\nb]: javascript:x", "[x][a b]\n\n[a\nb]&#58; javascript:x"),
        ("`[1]: x` and [a](https://x.org): b", "`[1]: x` and [a](https://x.org): b"),
        ("[a [b]](https://x.org)", "[a [b]](https://x.org)"),
        ("<https://x.org>", "[https://x.org](https://x.org)"),
        ("<at id=all></at> a < b", "&#60;at id=all>&#60;/at> a &#60; b"),
        ("<font color='#f00'>red</font>", "red"),
        ("a<br/>b", "a<br>b"),
        ("`a < b` < c", "`a < b` &#60; c"),
        ("```py\nx < 1\n# no heading", "```py\nx < 1\n# no heading\n```"),
        ("~~~\n```\n~~~", "```\n``\u200b`\n```"),
        ("```inline```", "`inline`"),
        ("- a\n    ```\n    x\n    ```", "- a\n```\n    x\n```"),
    ],
)
def test_markdown_is_made_fit(written: str, expected: str) -> None:
    assert normalize_markdown(written, tables=0).text == expected


def test_tables_beyond_the_limit_become_code() -> None:
    table = "|a|b|\n|-|-|\n|1|2|"

    made = normalize_markdown(f"{table}\n\n{table}", tables=1)

    assert made.tables == 1
    assert made.text.count("```") == 2
    assert made.notes == ("table: shown as code, the card has too many",)


def test_code_cut_in_two_stays_code_in_both_pieces() -> None:
    text = normalize_markdown("```py\n" + "x = 1\n" * 200 + "```\nafter", tables=0).text

    pieces = split_markdown(text, 1000)

    assert len(pieces) == 2
    assert all(piece.count("```") == 2 for piece in pieces)
    assert pieces[1].startswith("```py\n")
    assert pieces[-1].endswith("after")


def test_plain_text_is_not_read_as_markdown() -> None:
    assert escape_text("a_b *c* <at> [x] & `d`\n# e") == (
        "a&#95;b &#42;c&#42; &#60;at> &#91;x&#93; &amp; &#96;d&#96; &#35; e"
    )


def test_dirty_and_empty_text_is_survived() -> None:
    dirty = "a\ud800b\x00c\u202e"

    made = rendered(TextBlock(markdown=dirty), CodeBlock(text=dirty), summary=dirty)

    json.dumps(made.parts[0], ensure_ascii=False).encode()
    check_card(render(Card(), WORDS).parts[0], KNOWN)
    check_card(minimal_card(dirty * 9999, WORDS), KNOWN)
    assert render_stream("# " + "x" * 20_000).endswith(" …")


words = st.text(max_size=40) | st.sampled_from(
    ["<at id=all></at>", "![x](https://e.org/x.png)", "|a|b|\n|-|-|\n|1|2|", "```\nx", "# h", ""]
)
prose = st.lists(words, max_size=6).map("\n".join)
token = st.sampled_from(["", "aaaabbbbcccc"])
option = st.builds(SelectOption, label=words, value=words)
leaves = st.one_of(
    st.builds(TextBlock, markdown=prose, id=st.sampled_from(["", "a", "ä b-c"])),
    st.builds(NoteBlock, markdown=prose),
    st.builds(FieldsBlock, pairs=st.lists(st.tuples(words, words), max_size=4).map(tuple)),
    st.builds(
        ChecklistBlock,
        items=st.lists(
            st.builds(
                ChecklistItem, label=words, state=st.sampled_from(ChecklistState), detail=words
            ),
            max_size=5,
        ).map(tuple),
    ),
    st.builds(ProgressBlock, percent=st.integers(-5, 200), label=words),
    st.builds(CodeBlock, text=prose, language=words),
    st.integers(1, 4).flatmap(
        lambda width: st.builds(
            TableBlock,
            columns=st.tuples(*[words] * width),
            rows=st.lists(
                st.tuples(*[words | st.integers(0, 99).map(str)] * width), max_size=3
            ).map(tuple),
        )
    ),
    st.builds(DividerBlock),
    st.builds(ImageBlock, path=st.sampled_from(["files/a.png", "b.png"]), alt=words),
    st.builds(FileBlock, path=words, name=words, size=st.integers(-1, 2**40)),
)
button = st.builds(
    CardButton,
    label=words,
    action=st.just(PauseTask(task_id="t1")),
    style=st.sampled_from(ButtonStyle),
    confirm=st.none() | st.builds(ConfirmDialog, title=words, text=words),
    token=token,
)
field = st.builds(
    FormField,
    name=st.sampled_from(["a", "b", "c"]),
    label=words,
    field=st.sampled_from(FormFieldKind),
    required=st.booleans(),
    placeholder=words,
    options=st.lists(option, max_size=3).map(tuple),
)
blocks = st.one_of(
    leaves,
    st.builds(CollapsibleBlock, title=words, blocks=st.lists(leaves, max_size=4).map(tuple)),
    st.builds(ButtonsBlock, items=st.lists(button, max_size=9).map(tuple)),
    st.builds(
        SelectBlock,
        placeholder=words,
        action=st.just(ChooseModel()),
        options=st.lists(option, max_size=4).map(tuple),
        token=token,
    ),
    st.builds(
        FormBlock,
        fields=st.lists(field, max_size=25).map(tuple),
        submit=words,
        action=st.just(SubmitTaskForm()),
        token=token,
    ),
)
cards = st.builds(
    Card,
    title=words,
    tone=st.sampled_from(CardTone),
    blocks=st.lists(blocks, max_size=8).map(tuple),
    summary=words,
)


@settings(max_examples=sampled(150, 70), deadline=None, suppress_health_check=list(HealthCheck))
@given(card=cards, streaming=st.booleans())
def test_no_card_is_refused(card: Card, *, streaming: bool) -> None:
    made = render(card, WORDS, images=IMAGES, streaming=streaming)

    for part in made.parts:
        check_card(part, KNOWN)


@pytest.mark.parametrize(("length", "kept"), [(1000, True), (1001, False)])
def test_a_form_begins_with_what_stands_in_it_or_empty_but_never_with_a_part(
    length: int, kept: bool
) -> None:
    said = "x" * length
    field = FormField(name="text", label="What?", field=FormFieldKind.PARAGRAPH, value=said)
    made = rendered(
        FormBlock(fields=(field,), submit="Save", action=SubmitTaskForm(), token="jjjjkkkkllll")
    )

    assert (f'"default_value": "{said}"' in json.dumps(made.parts)) is kept
