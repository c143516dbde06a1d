"""Renders a card as a safe HTML fragment for the local web chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup

from cards import formats, model
from cards.actions import OpenPage
from cards.catalog import TextCatalog
from cards.formats import clean_line, drop_surrogates, strip_controls

_FILES_PREFIX = "files/"
_MAX_DEPTH = 5
_MAX_PILLS = 4
_MAX_MATH_LINES = 60
_MAX_DRAWN_CHARS = 20_000
"""LaTeX of one text, which takes some tenths of a second to draw at most."""
_MATH_BLOCKS = {"$$": "$$", "\\[": "\\]"}
_MATH_INLINE = re.compile(
    # One letter, or something that no amount of money has.
    r"\$\$([^$\n]{1,500})\$\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]"
    r"|\$([A-Za-z]|(?=[^\s$])(?=[^$\n]{0,300}[\\^_={}])[^$\n]{0,300}[^\s$\\])\$(?!\w)"
)
_SAFE_SCHEMES = frozenset({"http", "https", "mailto"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFragment:
    """`html` is safe to insert into the page. `degraded` is for the log."""

    html: str
    degraded: tuple[str, ...] = ()


def render(card: model.Card, words: TextCatalog) -> WebFragment:
    """Render a card. Controls without a token are omitted, because a press could not be handled."""
    degraded: list[str] = []
    body = Markup("").join(_render_block(block, words, degraded) for block in card.blocks)
    html = _render_macro("card", clean_line(card.title), card.tone, body)
    return WebFragment(html=drop_surrogates(html), degraded=tuple(degraded))


def render_markdown(markdown: str) -> str:
    """Markdown as safe HTML: no raw HTML, no pictures, only http, https and mailto links."""
    return str(_parser().render(strip_controls(markdown)))


def file_href(path: str) -> str:
    """The web chat's URL of a file in the data directory; empty outside its `files` folder."""
    inside = path.removeprefix(_FILES_PREFIX)
    if inside == path or not inside or ".." in inside.split("/"):
        return ""
    return f"/{_FILES_PREFIX}{quote(drop_surrogates(inside))}"


def _render_block(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: model.Block, words: TextCatalog, degraded: list[str]
) -> Markup:
    match block:
        case model.ButtonsBlock() | model.SelectBlock() | model.FormBlock():
            return _render_controls(block, words, degraded)
        case model.TextBlock(markdown) | model.NoteBlock(markdown):
            html = Markup(render_markdown(markdown))  # noqa: S704 - the parser escapes all text
            return _render_macro("prose", html, isinstance(block, model.NoteBlock))
        case model.FieldsBlock(pairs=pairs):
            return _render_macro(
                "fields", [(clean_line(label), strip_controls(value)) for label, value in pairs]
            )
        case model.ChecklistBlock(items=items):
            return _render_macro("checklist", [_check(item) for item in items], words)
        case model.ProgressBlock(percent=percent, label=label):
            return _render_macro("progress", min(100, max(0, percent)), clean_line(label))
        case model.CodeBlock(text=text, language=language):
            return _render_macro("code", strip_controls(text), clean_line(language))
        case model.TableBlock(columns=columns, rows=rows):
            return _render_macro("table", _cells(columns), [_cells(row) for row in rows], words)
        case model.DividerBlock():
            return _render_macro("divider")
        case model.ImageBlock() | model.FileBlock():
            return _render_attachment(block, degraded)
        case model.CollapsibleBlock(title=title, blocks=blocks):
            inner = Markup("").join(_render_block(leaf, words, degraded) for leaf in blocks)
            return _render_macro("collapsible", clean_line(title), inner)
        case _:
            assert_never(block)


def _render_controls(
    block: model.ButtonsBlock | model.SelectBlock | model.FormBlock,
    words: TextCatalog,
    degraded: list[str],
) -> Markup:
    if not isinstance(block, model.ButtonsBlock) and not block.token:
        degraded.append(f"{block.kind} without a token left out")
        return Markup("")
    match block:
        case model.ButtonsBlock(items=items):
            buttons = [
                (_button(item), _page_of(item)) for item in items if item.token or _page_of(item)
            ]
            if len(buttons) < len(items):
                degraded.append("button without a token left out")
            return _render_macro("buttons", buttons) if buttons else Markup("")
        case model.SelectBlock(token=token, placeholder=placeholder, options=options):
            choices = _options(options)
            if len(choices) <= _MAX_PILLS:
                return _render_macro("pills", token, clean_line(placeholder), choices)
            return _render_macro("select", token, clean_line(placeholder), choices, words)
        case model.FormBlock(token=token, fields=fields, submit=submit):
            return _render_macro(
                "form", token, [_field(field) for field in fields], clean_line(submit), words
            )
        case _:
            assert_never(block)


def _render_attachment(block: model.ImageBlock | model.FileBlock, degraded: list[str]) -> Markup:
    vector = block.vector if isinstance(block, model.ImageBlock) else ""
    href = file_href(vector or block.path)
    if not href:
        degraded.append(f"{block.kind} outside the files folder: named, not linked")
    match block:
        case model.ImageBlock(alt=alt):
            return (
                _render_macro("image", href, clean_line(alt))
                if href
                else _render_macro("file", "", clean_line(alt), "")
            )
        case model.FileBlock(name=name, path=path) if href and path.endswith(".svg"):
            # The page shows it as a picture, where scripts inside cannot run.
            return _render_macro("image", href, clean_line(name))
        case model.FileBlock(name=name, size=size):
            return _render_macro("file", href, clean_line(name), formats.file_size(size))
        case _:
            assert_never(block)


def _page_of(button: model.CardButton) -> str:
    """The address that the button links to; empty for a button that acts when pressed."""
    return button.action.path if isinstance(button.action, OpenPage) else ""


def _button(button: model.CardButton) -> model.CardButton:
    ask = button.confirm
    if ask is not None:
        ask = model.ConfirmDialog(clean_line(ask.title), strip_controls(ask.text))
    return replace(button, label=clean_line(button.label), confirm=ask)


def _field(field: model.FormField) -> model.FormField:
    return replace(
        field,
        label=clean_line(field.label),
        placeholder=clean_line(field.placeholder),
        value=strip_controls(field.value),
        options=_options(field.options),
    )


def _options(options: Iterable[model.SelectOption]) -> tuple[model.SelectOption, ...]:
    return tuple(replace(option, label=clean_line(option.label)) for option in options)


def _check(item: model.ChecklistItem) -> tuple[str, str, str, int]:
    return (
        clean_line(item.label),
        item.state,
        strip_controls(item.detail).strip(),
        min(item.depth, _MAX_DEPTH),
    )


def _cells(row: Iterable[str]) -> list[str]:
    return [strip_controls(cell) for cell in row]


def _render_macro(macro: str, *values: object) -> Markup:
    """Call a macro of blocks.html."""
    return Markup(getattr(_macros(), macro)(*values))  # noqa: S704 - autoescaped by the template


@cache
def _macros() -> Any:
    source = files("cards").joinpath("render", "templates", "web", "blocks.html")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source.read_text(encoding="utf-8")).module


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = _is_safe_link  # type: ignore[method-assign]  # the documented way to set it
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("image", _image_as_link)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    parser.add_render_rule("th_open", _cell_open)
    parser.add_render_rule("td_open", _cell_open)
    parser.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    parser.add_render_rule("math_block", _draw_math)
    parser.add_render_rule("math_inline", _draw_math)
    parser.block.ruler.before("fence", "math", _math_block, {"alt": ["paragraph", "list"]})
    parser.inline.ruler.before("escape", "math", _math_inline)
    return parser


def _is_safe_link(url: str) -> bool:
    try:
        return urlsplit(url).scheme.lower() in _SAFE_SCHEMES
    except ValueError:
        return False


def _link_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _env: Any
) -> str:
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return renderer.renderToken(tokens, index, options, {})


def _math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Formulas keep their LaTeX, which Markdown would read as emphasis and escapes."""
    if state.is_code_block(first):
        return False
    start = state.bMarks[first] + state.tShift[first]
    opening = state.src[start : start + 2]
    if opening not in _MATH_BLOCKS:
        return False
    for line in range(first, min(last, first + _MAX_MATH_LINES)):
        end = state.src[state.bMarks[line] : state.eMarks[line]].rstrip()
        if line == first:
            end = end.lstrip()[2:]
        if not end.endswith(_MATH_BLOCKS[opening]):
            continue
        if not silent:
            text = state.getLines(first, line + 1, state.blkIndent, keepLastLF=True).strip()
            token = state.push("math_block", "math", 0)
            token.content = text[2:-2].strip()
            token.map = [first, line + 1]
            state.line = line + 1
        return True
    return False


def _math_inline(state: StateInline, silent: bool) -> bool:
    found = _MATH_INLINE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = next(filter(None, found.groups())).strip()
    state.pos = found.end()
    return True


def _draw_math(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, env: Any
) -> str:
    """Draw a formula. One that cannot be drawn is shown as code to copy, and so are those beyond
    the limit for long texts."""
    # Imported on first use: most answers have no formula.
    from cards.formulas import draw_formula

    token = tokens[index]
    is_block = token.type == "math_block"
    env["math"] = env.get("math", 0) + len(token.content)
    drawn = ""
    if env["math"] <= _MAX_DRAWN_CHARS:
        drawn = draw_formula(token.content, is_block=is_block)
    if is_block:
        code = Markup('<pre><code class="language-latex">{}\n</code></pre>').format(token.content)
        return f'<div class="formula" tabindex="0">{drawn}</div>\n' if drawn else f"{code}\n"
    return drawn or str(Markup("<code>{}</code>").format(token.content))


def _image_as_link(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: Any,
    _env: MutableMapping[str, Any],
) -> str:
    """Link to remote pictures instead of loading them, which would reveal the reader to the
    server."""
    source = str(tokens[index].attrs.get("src", ""))
    link = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>')
    return str(link.format(source, tokens[index].content or source))


def _heading(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _env: Any
) -> str:
    """Demote headings below the card's own."""
    level = int(tokens[index].tag.removeprefix("h"))
    lowered = tokens[index].copy(tag=f"h{min(6, level + 2)}")
    return renderer.renderToken([lowered], 0, options, {})


def _cell_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _env: Any
) -> str:
    """Set alignment by class: the page's policy forbids style attributes."""
    side = str(tokens[index].attrs.pop("style", "")).removeprefix("text-align:")
    if side:
        tokens[index].attrSet("class", f"to-{side}")
    return str(renderer.renderToken(tokens, index, options, {}))
