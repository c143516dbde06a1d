"""Cards for Feishu: every block is one the platform accepts, whatever it holds."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cards.actions import ListTasks, NewTask, PauseTask, PickModel
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
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
    Tone,
)
from cards.render.feishu.card import FeishuCard, minimal, render, streamed
from cards.render.feishu.markdown import chunks, escape, normalise
from cards.words import words_for
from storage.records.people import Language
from tests.emulators.feishu.cards.check import Known, check_card
from tests.emulators.feishu.world import components

WORDS = words_for(Language.ENGLISH)
KNOWN = Known({"img_1"}, set())
IMAGES = {"files/a.png": "img_1"}

YES = Button(label="Go", action=ListTasks(), style=ButtonStyle.PRIMARY, token="aaaabbbbcccc")
STOP = Button(
    label="Stop",
    action=PauseTask(task_id="t1"),
    style=ButtonStyle.DANGER,
    confirm=Confirm(title="Stop it?", text="What is done stays done."),
    token="ddddeeeeffff",
)
OPTIONS = (Option(label="Fast", value="fast"), Option(label="Careful", value="careful"))
BLOCKS: tuple[Block, ...] = (
    Text(markdown="# Plan\n\n1. read\n2. **write** `code`\n\n> said <b>so</b>", id="plan"),
    Note(markdown="small *print*"),
    Fields(pairs=(("Status", "running"), ("Id", "k3m_9*qa"))),
    Checklist(items=tuple(Check(label=f"step {s}", state=s, detail="why") for s in CheckState)),
    Progress(percent=45, label="2 of 5"),
    Code(text="print('<at id=all></at>')\n```\n", language="python"),
    Table(columns=("Name", "Count"), rows=(("a|b", "1"), ("c", "22"))),
    Divider(),
    Image(path="files/a.png", alt="A figure"),
    File(path="files/a.txt", name="a.txt", size=12_345),
    Collapsible(
        title="More", blocks=(Text(markdown="inside"), Table(columns=("x",), rows=(("1",),)))
    ),
    Buttons(items=(YES, STOP)),
    Select(placeholder="Model", action=PickModel(), options=OPTIONS, token="gggghhhhiiii"),
    Form(
        fields=(
            FormField(name="text", label="What?", field=FieldKind.PARAGRAPH, placeholder="a task"),
            FormField(name="title", label="Title", required=False),
            FormField(name="speed", label="How?", field=FieldKind.CHOICE, options=OPTIONS),
        ),
        submit="Send",
        action=NewTask(),
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
    made = rendered(*BLOCKS, summary="All of it", tone=Tone.WARN)

    assert len(made.parts) == 1
    card = made.parts[0]
    assert card["header"]["template"] == "orange"
    assert card["header"]["text_tag_list"][0]["text"]["content"] == "Attention"
    assert card["config"]["summary"] == {"content": "All of it"}
    assert made.degraded == ("table: shown as code",)


def test_a_press_comes_back_with_its_token_and_mark() -> None:
    card = Card(blocks=(Buttons(items=(YES, STOP)),))
    made = render(card, WORDS, mark={"k": "group"})

    first, second = components(made.parts[0], "button")

    assert first["behaviors"] == [
        {"type": "callback", "value": {"k": "group", "t": "aaaabbbbcccc"}}
    ]
    assert second["confirm"]["title"]["content"] == "Stop it?"
    assert "header" not in made.parts[0]


def test_a_button_without_a_token_is_a_line_to_type() -> None:
    made = rendered(Buttons(items=(Button(label="Pause", action=PauseTask(task_id="t1")),)))

    assert not list(components(made.parts[0], "button"))
    assert elements(made)[0]["content"] == "Pause: `/pause t1`"


def test_two_forms_on_one_card_have_different_member_names() -> None:
    made = rendered(BLOCKS[-1], BLOCKS[-1])

    names = [member["name"] for member in components(made.parts[0], "input")]
    assert names == ["text", "title", "text~2", "title~2"]


def test_blocks_keep_their_element_ids_over_updates() -> None:
    before = rendered(Text(markdown="a", id="plan"), Progress(percent=1))
    after = rendered(Text(markdown="b" * 20_000, id="plan"), Progress(percent=2))

    ids = [
        [e["element_id"] for e in elements(made) if "element_id" in e] for made in (before, after)
    ]
    assert ids[0] == ids[1] == ["answer", "b1"]


def test_a_sixth_table_becomes_code() -> None:
    made = rendered(*[BLOCKS[6]] * 6)

    assert len(list(components(made.parts[0], "table"))) == 5
    assert made.degraded == ("table: shown as code",)


def test_number_columns_are_numbers_only_where_nothing_is_lost() -> None:
    block = Table(columns=("a", "b", "c"), rows=(("1", "01", "1.0"), ("20", "2", "x")))

    table = next(components(rendered(block).parts[0], "table"))

    assert [column["data_type"] for column in table["columns"]] == ["number", "text", "text"]
    assert table["rows"][0] == {"c0": 1, "c1": "01", "c2": "1.0"}


def test_a_long_answer_is_split_and_nothing_of_it_is_lost() -> None:
    lines = [f"line {number} " + "字" * 40 for number in range(1000)]

    made = rendered(Text(markdown="\n".join(lines)), Buttons(items=(YES,)))

    shown = "\n".join(one["content"] for one in components(list(made.parts), "markdown"))
    assert len(made.parts) > 1
    assert all(line in shown for line in lines)
    assert "header" not in made.parts[1]
    assert list(components(made.parts[-1], "button"))


def test_more_than_ten_cards_are_cut_in_the_middle() -> None:
    made = rendered(Text(markdown="字\n" * 500_000), Buttons(items=(YES,)))

    assert len(made.parts) == 10
    assert "card: cut in the middle, it is too long" in made.degraded
    assert list(components(made.parts[-1], "button"))


def test_a_picture_that_was_not_uploaded_is_named() -> None:
    made = render(Card(blocks=(Image(path="x.png", alt="A cat"),)), WORDS)

    assert made.parts[0]["body"]["elements"][0]["content"] == "🖼️ A cat"
    assert made.degraded == ("image: named, not shown",)


def test_a_streaming_card_has_one_element_the_answer_grows_in() -> None:
    made = render(Card(blocks=(Text(markdown=""),)), WORDS, streaming=True)
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
    assert normalise(written, tables=0).text == expected


def test_tables_beyond_the_limit_become_code() -> None:
    table = "|a|b|\n|-|-|\n|1|2|"

    made = normalise(f"{table}\n\n{table}", tables=1)

    assert made.tables == 1
    assert made.text.count("```") == 2
    assert made.notes == ("table: shown as code, the card has too many",)


def test_code_cut_in_two_stays_code_in_both_pieces() -> None:
    text = normalise("```py\n" + "x = 1\n" * 200 + "```\nafter", tables=0).text

    pieces = chunks(text, 1000)

    assert len(pieces) == 2
    assert all(piece.count("```") == 2 for piece in pieces)
    assert pieces[1].startswith("```py\n")
    assert pieces[-1].endswith("after")


def test_plain_text_is_not_read_as_markdown() -> None:
    assert escape("a_b *c* <at> [x] & `d`\n# e") == (
        "a&#95;b &#42;c&#42; &#60;at> &#91;x&#93; &amp; &#96;d&#96; &#35; e"
    )


def test_dirty_and_empty_text_is_survived() -> None:
    dirty = "a\ud800b\x00c\u202e"

    made = rendered(Text(markdown=dirty), Code(text=dirty), summary=dirty)

    json.dumps(made.parts[0], ensure_ascii=False).encode()
    check_card(render(Card(), WORDS).parts[0], KNOWN)
    check_card(minimal(dirty * 9999, WORDS), KNOWN)
    assert streamed("# " + "x" * 20_000).endswith(" …")


words = st.text(max_size=40) | st.sampled_from(
    ["<at id=all></at>", "![x](https://e.org/x.png)", "|a|b|\n|-|-|\n|1|2|", "```\nx", "# h", ""]
)
prose = st.lists(words, max_size=6).map("\n".join)
token = st.sampled_from(["", "aaaabbbbcccc"])
option = st.builds(Option, label=words, value=words)
leaves = st.one_of(
    st.builds(Text, markdown=prose, id=st.sampled_from(["", "a", "ä b-c"])),
    st.builds(Note, markdown=prose),
    st.builds(Fields, pairs=st.lists(st.tuples(words, words), max_size=4).map(tuple)),
    st.builds(
        Checklist,
        items=st.lists(
            st.builds(Check, label=words, state=st.sampled_from(CheckState), detail=words),
            max_size=5,
        ).map(tuple),
    ),
    st.builds(Progress, percent=st.integers(-5, 200), label=words),
    st.builds(Code, text=prose, language=words),
    st.integers(1, 4).flatmap(
        lambda width: st.builds(
            Table,
            columns=st.tuples(*[words] * width),
            rows=st.lists(
                st.tuples(*[words | st.integers(0, 99).map(str)] * width), max_size=3
            ).map(tuple),
        )
    ),
    st.builds(Divider),
    st.builds(Image, path=st.sampled_from(["files/a.png", "b.png"]), alt=words),
    st.builds(File, path=words, name=words, size=st.integers(-1, 2**40)),
)
button = st.builds(
    Button,
    label=words,
    action=st.just(PauseTask(task_id="t1")),
    style=st.sampled_from(ButtonStyle),
    confirm=st.none() | st.builds(Confirm, title=words, text=words),
    token=token,
)
field = st.builds(
    FormField,
    name=st.sampled_from(["a", "b", "c"]),
    label=words,
    field=st.sampled_from(FieldKind),
    required=st.booleans(),
    placeholder=words,
    options=st.lists(option, max_size=3).map(tuple),
)
blocks = st.one_of(
    leaves,
    st.builds(Collapsible, title=words, blocks=st.lists(leaves, max_size=4).map(tuple)),
    st.builds(Buttons, items=st.lists(button, max_size=9).map(tuple)),
    st.builds(
        Select,
        placeholder=words,
        action=st.just(PickModel()),
        options=st.lists(option, max_size=4).map(tuple),
        token=token,
    ),
    st.builds(
        Form,
        fields=st.lists(field, max_size=25).map(tuple),
        submit=words,
        action=st.just(NewTask()),
        token=token,
    ),
)
cards = st.builds(
    Card,
    title=words,
    tone=st.sampled_from(Tone),
    blocks=st.lists(blocks, max_size=8).map(tuple),
    summary=words,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
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
    field = FormField(name="text", label="What?", field=FieldKind.PARAGRAPH, value=said)
    made = rendered(Form(fields=(field,), submit="Save", action=NewTask(), token="jjjjkkkkllll"))

    assert (f'"default_value": "{said}"' in json.dumps(made.parts)) is kept
