"""The web fragment: everything a card holds, and nothing a person or model wrote as markup."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cards.actions import ChooseModel, PauseTask, SubmitTaskForm
from cards.catalog import catalog_for
from cards.formulas import draw_formula
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
from cards.render.web import file_href, render, render_markdown
from storage.records.people import Language
from tests.thoroughness import sampled

ENGLISH = catalog_for(Language.ENGLISH)
TOKEN = "abcdefghijkl"

LATEX_PIECE = re.compile(
    r"\\(?:frac|sqrt|left|right|text|color|href|style|hspace|overset|sum|limits|mathbb|[\\{])"
    r"|\\(?:begin|end)\{(?:align\*|array)\}|[&^_{}\['($#%~x1]|\{lr\}|<b> ?|\"on=x"
    r"|&lt;i|&#60;|1em|中"
)
_MATHML_TAG = re.compile(
    r'<(?:math display="block"|annotation encoding="application/x-tex")>|</?(?:annotation|none)>'
    r"|</?(?:math|semantics|m[a-z]+)(?: (?:class|[a-z]+)=\"[\w.%#+ -]*\")*>",
    re.ASCII,
)

TAGS = re.compile(
    "article|h2|h3|h4|h5|h6|div|p|br|em|strong|s|code|pre|blockquote|ul|ol|li|a|hr|table|thead|"
    "tbody|tr|th|td|dl|dt|dd|span|small|figure|figcaption|progress|img|bdi|details|summary|button|"
    "select|option|form|label|input|textarea"
)
ATTRIBUTES = re.compile(
    "class|dir|aria-label|aria-hidden|role|tabindex|href|target|rel|title|start|src|alt|loading|"
    "download|scope|data-tone|data-state|data-token|data-style|data-confirm-title|"
    "data-confirm-text|data-value|data-pick|data-picks|max|value|name|disabled|selected|required|"
    "placeholder|rows|autocomplete|type"
)


class Page(HTMLParser):
    """A fragment as a browser parses it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"br", "hr", "img", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    def check_safe(self) -> None:
        assert not self.open
        for tag, attributes in self.found:
            assert TAGS.fullmatch(tag), tag
            assert all(map(ATTRIBUTES.fullmatch, attributes)), attributes
            for address in (attributes.get("href"), attributes.get("src")):
                if address:
                    scheme = address.split(":")[0].lower()
                    assert address.startswith("/files/") or scheme in {"http", "https", "mailto"}


def page(*blocks: Block, title: str = "", tone: CardTone = CardTone.NEUTRAL) -> Page:
    shown = Page(render(Card(title=title, tone=tone, blocks=blocks), ENGLISH).html)
    shown.check_safe()
    return shown


def examples(text: str, token: str = TOKEN, address: str = "files/x") -> tuple[Block, ...]:
    """Every block, with `text` wherever a person or a model may write."""
    options = (SelectOption(label=text, value=text),)
    return (
        TextBlock(markdown=text),
        NoteBlock(markdown=text),
        FieldsBlock(pairs=((text, text),)),
        ChecklistBlock(
            items=tuple(ChecklistItem(label=text, state=s, detail=text) for s in ChecklistState)
        ),
        ProgressBlock(percent=40, label=text),
        CodeBlock(text=text, language=text),
        TableBlock(columns=(text,), rows=((text,),)),
        DividerBlock(),
        ImageBlock(path=address, alt=text),
        FileBlock(path=address, name=text, size=5),
        CollapsibleBlock(title=text, blocks=(TextBlock(markdown=text), CodeBlock(text=text))),
        ButtonsBlock(
            items=(
                CardButton(
                    label=text,
                    action=PauseTask(task_id="t"),
                    style=ButtonStyle.DANGER,
                    confirm=ConfirmDialog(title=text, text=text),
                    token=token,
                ),
            )
        ),
        SelectBlock(placeholder=text, action=ChooseModel(), options=options, token=token),
        SelectBlock(placeholder=text, action=ChooseModel(), options=options * 9, token=token),
        FormBlock(
            fields=tuple(
                FormField(
                    name=text, label=text, field=kind, placeholder=text, options=options, value=text
                )
                for kind in FormFieldKind
            ),
            submit=text,
            action=SubmitTaskForm(),
            token=token,
        ),
    )


HOSTILE = {
    "an image with a handler": "<img src=x onerror=alert(1)>",
    "a script": "</code></pre></article><script>alert(1)</script>",
    "a quote out of an attribute": "\"'> <b onmouseover=alert(1)>",
    "a javascript link": "[x](javascript:alert(1)) [y](JaVaScRiPt:x) [z](&#106;avascript:x)",
    "a data link": "[x](data:text/html;base64,PHNjcmlwdD4=) ![x](data:image/svg+xml,<svg>)",
    "a file link": "[x](file:///etc/passwd) [y](//evil.example) [z](/api/say)",
    "a reference to javascript": "[a]\n\n[a]: javascript:alert(1)",
    "an autolink": "<javascript:alert(1)> <https://a.b/\"onclick='x'>",
    "a comment": "<!-- x --> <![CDATA[x]]> <?php ?>",
    "template marks": "{{ 7*7 }} {% raw %} ${7}",
    "reversed text": "\u202egnp.exe\u202c \u2066x",
    "controls": "a\x00b\x1b[2Jc\x9bd",
    "half a character": "a\ud800b",
    "an entity": "&lt;script&gt; &amp;lt; &#60;b&#62;",
    "a fence with attributes": '```"><img src=x onerror=alert(1)>\ncode\n```',
}


def test_there_is_an_example_of_every_block() -> None:
    assert {type(block) for block in examples("x")} == set(get_args(Block))


@pytest.mark.parametrize("block", examples("visible"), ids=lambda block: type(block).__name__)
def test_every_block_is_shown(block: Block) -> None:
    assert "visible" in page(block).text or isinstance(block, DividerBlock | ImageBlock)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_text_in_every_block(name: str) -> None:
    shown = page(*examples(HOSTILE[name]), title=HOSTILE[name])
    assert shown.all("script") == []
    assert "49" not in shown.text
    assert not {"\x00", "\x1b", "\x9b"} & set(shown.text)


@settings(max_examples=sampled(150, 70), deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from(list("<>\"'&;`[]()!*_|~#-=/\\:{}% \n\tab1\u202e\ud800")),
        max_size=60,
    )
)
def test_no_text_becomes_markup(text: str) -> None:
    shown = page(*examples(text), title=text)
    assert all("onerror" not in attributes for _tag, attributes in shown.found)


@settings(max_examples=sampled(80, 50), deadline=None)
@given(st.text(max_size=120))
def test_any_text_can_be_sent(text: str) -> None:
    assert render(Card(title=text, blocks=examples(text)), ENGLISH).html.encode()


def test_a_hundred_kilobytes_are_shown_whole() -> None:
    assert page(TextBlock(markdown="<b>word</b> " * 9_000)).text.count("word") == 9_000


def test_links_open_elsewhere_and_tell_nothing() -> None:
    link = page(TextBlock(markdown="[a](https://a.b) <mailto:x@y.z>")).all("a")
    assert [item["href"] for item in link] == ["https://a.b", "mailto:x@y.z"]
    assert all("noopener" in str(item["rel"]) for item in link)


def test_a_picture_from_elsewhere_is_offered_not_loaded() -> None:
    shown = page(TextBlock(markdown="![chart](https://a.b/c.png)"))
    assert shown.all("img") == []
    assert shown.all("a")[0]["href"] == "https://a.b/c.png"


def test_headings_of_a_message_stand_below_the_cards_own() -> None:
    shown = page(TextBlock(markdown="# a\n\n##### b"), title="t")
    assert [tag for tag, _ in shown.found if tag.startswith("h")] == ["h2", "h3", "h6"]


def test_a_button_carries_its_token_style_and_question() -> None:
    shown = page(*examples("Stop"))
    button = shown.all("button")[0]
    assert button["data-token"] == TOKEN
    assert button["data-style"] == "danger"
    assert button["data-confirm-title"] == "Stop"


def test_what_has_no_token_cannot_be_pressed() -> None:
    rendered = render(Card(blocks=examples("x", token="")), ENGLISH)
    shown = Page(rendered.html)
    assert [shown.all(tag) for tag in ("button", "select", "form")] == [[], [], []]
    assert len(rendered.degraded) == 4


def test_few_options_are_buttons_and_many_a_list() -> None:
    few = tuple(SelectOption(label=f"l{n}", value=f"v{n}") for n in range(4))
    shown = page(SelectBlock(placeholder="P", action=ChooseModel(), options=few, token=TOKEN))
    assert [button["data-value"] for button in shown.all("button")] == ["v0", "v1", "v2", "v3"]
    many = page(SelectBlock(placeholder="P", action=ChooseModel(), options=few * 2, token=TOKEN))
    assert [option.get("value") for option in many.all("option")][1:3] == ["v0", "v1"]


def test_columns_of_a_table_keep_their_side() -> None:
    cells = page(TextBlock(markdown="|a|b|\n|-|-:|\n|1|2|")).all("td")
    assert cells == [{}, {"class": "to-right"}]


def test_a_form_asks_for_each_field_by_name() -> None:
    fields = (
        FormField(name="text", label="What", field=FormFieldKind.PARAGRAPH),
        FormField(name="where", label="Where", required=False),
    )
    shown = page(FormBlock(fields=fields, submit="Go", action=SubmitTaskForm(), token=TOKEN))
    assert shown.all("textarea")[0]["name"] == "text"
    assert "required" in shown.all("textarea")[0]
    assert "required" not in shown.all("input")[0]
    assert "optional" in shown.text


def test_a_form_begins_with_what_stands_in_it() -> None:
    said = '\nfirst </textarea><b>"line"\n  second'
    fields = (
        FormField(name="text", label="What", field=FormFieldKind.PARAGRAPH, value=said),
        FormField(name="title", label="Title", value='"Max" <b>'),
    )
    shown = render(
        Card(blocks=(FormBlock(fields=fields, submit="Go", action=SubmitTaskForm(), token=TOKEN),)),
        ENGLISH,
    )
    area = shown.html.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]

    assert unescape(area) == f"\n{said}", "a page drops the first end of line"
    assert 'value="&#34;Max&#34; &lt;b&gt;"' in shown.html


def test_files_are_linked_only_inside_their_folder() -> None:
    assert file_href("files/a/报告 1.md") == "/files/a/%E6%8A%A5%E5%91%8A%201.md"
    outside = ["db.sqlite", "files/../db.sqlite", "../files/x", "/files/x", "files/", ""]
    assert [file_href(path) for path in outside] == [""] * 6
    rendered = render(Card(blocks=(FileBlock(path="web-token", name="n", size=1),)), ENGLISH)
    assert Page(rendered.html).all("a") == []
    assert rendered.degraded == ("file outside the files folder: named, not linked",)


def test_a_file_name_is_not_disguised() -> None:
    link = page(FileBlock(path="files/x", name="gnp.\u202eexe", size=1)).all("a")[0]
    assert link["download"] == "gnp.exe"


def test_the_state_of_a_step_can_be_heard_as_well_as_seen() -> None:
    steps = ChecklistBlock(items=(ChecklistItem(label="Plan", state=ChecklistState.DONE),))
    assert page(steps).text == "done: Plan"
    chinese = render(Card(blocks=(steps,)), catalog_for(Language.CHINESE))
    assert "完成: " in chinese.html


def test_progress_is_bounded() -> None:
    assert page(ProgressBlock(percent=250)).all("progress")[0]["value"] == "100"


def test_an_answer_in_the_making_is_as_safe() -> None:
    shown = Page(render_markdown("**a <img onerror=x> [x](javascript:y)"))
    shown.check_safe()
    assert shown.all("img") == []


def test_tone_and_title_are_on_the_card() -> None:
    card = page(DividerBlock(), title="Failed", tone=CardTone.BAD).all("article")[0]
    assert card["data-tone"] == "bad"
    assert card["aria-label"] == "Failed"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        (
            "$$\n\\nofrac{a_1}{b_1} * c_2 * d\n$$",
            '<code class="language-latex">\\nofrac{a_1}{b_1} * c_2 * d',
        ),
        ("so\n\\[ x_1 \\\\ x_2 \\]\nend", '<code class="language-latex">x_1 \\\\ x_2'),
        ("- $$a^2$$", "<msup><mi>a</mi><mn>2</mn></msup>"),
        ("with \\(a_b\\), $n$", "<msub><mi>a</mi><mi>b</mi></msub>"),
        ("$$\\begin{aligned}a&=b\\\\c&=d\\end{aligned}$$", '<mtd class="to-right"><mi>a</mi>'),
        ("$\\newcommand{\\a}{b}\\a$", "<code>\\newcommand{\\a}{b}\\a</code>"),
        ("it costs $5 and *then* $6", "it costs $5 and <em>then</em> $6"),
        ("from $HOME to $PATH", "from $HOME to $PATH"),
        ("$$ not closed *here*", "$$ not closed <em>here</em>"),
        ("`$a_1$` stays", "<code>$a_1$</code> stays"),
        ("$\\text{<b>&lt;i>}_1$", "<mtext>&lt;b&gt;&lt;i&gt;</mtext>"),
        ("```mermaid\ngraph TD; A-->B\n```", '<code class="language-mermaid">graph TD; A--&gt;B'),
    ],
)
def test_formulas_are_drawn_or_kept_as_they_were_written(markdown: str, shown: str) -> None:
    assert shown in render_markdown(markdown)


@given(latex=st.lists(st.from_regex(LATEX_PIECE, fullmatch=True), max_size=40).map("".join))
@settings(max_examples=sampled(3_000, 40))
def test_a_drawn_formula_has_no_tag_or_attribute_but_those_of_mathml(latex: str) -> None:
    drawn = draw_formula(latex, is_block=True)

    for tag in re.findall(r"<[^>]*>", drawn):
        assert _MATHML_TAG.fullmatch(tag), tag


def test_long_text_that_looks_like_formulas_takes_no_time() -> None:
    for text in ("$" * 5_000, "$_" * 5_000, "\\(" * 5_000, "\\[\n" * 5_000, "$a_" * 5_000):
        render_markdown(text)
