"""Sealed card to a safe HTML fragment for the local web chat."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, assert_never
from urllib.parse import quote, urlsplit

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from cards import formats
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Check,
    Checklist,
    Code,
    Collapsible,
    Confirm,
    Divider,
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
from cards.safe_text import clean, in_line, whole
from cards.words import Words

_FILES = "files/"
_DEEPEST = 5
_PILLS = 4
_SAFE_SCHEMES = frozenset({"http", "https", "mailto"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFragment:
    """`html` is safe to put into the page as it is. `degraded` is for the log."""

    html: str
    degraded: tuple[str, ...] = ()


def render(card: Card, words: Words) -> WebFragment:
    """Buttons, selects and forms without a token are left out: nothing could answer a press."""
    degraded: list[str] = []
    body = Markup("").join(_block(block, words, degraded) for block in card.blocks)
    html = _html("card", in_line(card.title), card.tone, body)
    return WebFragment(html=whole(html), degraded=tuple(degraded))


def render_markdown(markdown: str) -> str:
    """Markdown as safe HTML: no raw HTML, no pictures, links to http, https and mailto only."""
    return str(_parser().render(clean(markdown)))


def file_href(path: str) -> str:
    """Where the web chat serves a file of the data directory; empty outside its `files` folder."""
    inside = path.removeprefix(_FILES)
    if inside == path or not inside or ".." in inside.split("/"):
        return ""
    return f"/{_FILES}{quote(whole(inside))}"


def _block(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: Block, words: Words, degraded: list[str]
) -> Markup:
    match block:
        case Buttons() | Select() | Form():
            return _inputs(block, words, degraded)
        case Text(markdown=markdown) | Note(markdown=markdown):
            html = Markup(render_markdown(markdown))  # noqa: S704 - the parser escapes all text
            return _html("prose", html, isinstance(block, Note))
        case Fields(pairs=pairs):
            return _html("fields", [(in_line(label), clean(value)) for label, value in pairs])
        case Checklist(items=items):
            return _html("checklist", [_check(item) for item in items], words)
        case Progress(percent=percent, label=label):
            return _html("progress", min(100, max(0, percent)), in_line(label))
        case Code(text=text, language=language):
            return _html("code", clean(text), in_line(language))
        case Table(columns=columns, rows=rows):
            return _html("table", _cells(columns), [_cells(row) for row in rows], words)
        case Divider():
            return _html("divider")
        case Image() | File():
            return _attachment(block, degraded)
        case Collapsible(title=title, blocks=blocks):
            inner = Markup("").join(_block(leaf, words, degraded) for leaf in blocks)
            return _html("collapsible", in_line(title), inner)
        case _:
            assert_never(block)


def _inputs(block: Buttons | Select | Form, words: Words, degraded: list[str]) -> Markup:
    if not isinstance(block, Buttons) and not block.token:
        degraded.append(f"{block.kind} without a token left out")
        return Markup("")
    match block:
        case Buttons(items=items):
            sealed = [_button(item) for item in items if item.token]
            if len(sealed) < len(items):
                degraded.append("button without a token left out")
            return _html("buttons", sealed) if sealed else Markup("")
        case Select(token=token, placeholder=placeholder, options=options):
            cleaned = _options(options)
            if len(cleaned) <= _PILLS:
                return _html("pills", token, in_line(placeholder), cleaned)
            return _html("select", token, in_line(placeholder), cleaned, words)
        case Form(token=token, fields=fields, submit=submit):
            return _html("form", token, [_field(field) for field in fields], in_line(submit), words)
        case _:
            assert_never(block)


def _attachment(block: Image | File, degraded: list[str]) -> Markup:
    href = file_href(block.path)
    if not href:
        degraded.append(f"{block.kind} outside the files folder: named, not linked")
    match block:
        case Image(alt=alt):
            return (
                _html("image", href, in_line(alt)) if href else _html("file", "", in_line(alt), "")
            )
        case File(name=name, path=path) if href and path.endswith(".svg"):
            # A page shows it as a picture, in which nothing of it can run.
            return _html("image", href, in_line(name))
        case File(name=name, size=size):
            return _html("file", href, in_line(name), formats.size(size))
        case _:
            assert_never(block)


def _button(button: Button) -> Button:
    ask = button.confirm
    if ask is not None:
        ask = Confirm(title=in_line(ask.title), text=clean(ask.text))
    return replace(button, label=in_line(button.label), confirm=ask)


def _field(field: FormField) -> FormField:
    return replace(
        field,
        label=in_line(field.label),
        placeholder=in_line(field.placeholder),
        value=clean(field.value),
        options=_options(field.options),
    )


def _options(options: Iterable[Option]) -> tuple[Option, ...]:
    return tuple(replace(option, label=in_line(option.label)) for option in options)


def _check(item: Check) -> tuple[str, str, str, int]:
    return in_line(item.label), item.state, clean(item.detail).strip(), min(item.depth, _DEEPEST)


def _cells(row: Iterable[str]) -> list[str]:
    return [clean(cell) for cell in row]


def _html(macro: str, *values: object) -> Markup:
    """What the macro of blocks.html makes of the values."""
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
    parser.validateLink = _is_safe  # type: ignore[method-assign]  # the documented way to set it
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("image", _image_as_link)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    parser.add_render_rule("th_open", _cell_open)
    parser.add_render_rule("td_open", _cell_open)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    return parser


def _is_safe(url: str) -> bool:
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


def _image_as_link(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: Any,
    _env: MutableMapping[str, Any],
) -> str:
    """A picture from elsewhere would tell its server who reads: offered as a link instead."""
    source = str(tokens[index].attrs.get("src", ""))
    link = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>')
    return str(link.format(source, tokens[index].content or source))


def _heading(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _env: Any
) -> str:
    """Headings of a message stand below the card's own."""
    level = int(tokens[index].tag.removeprefix("h"))
    lowered = tokens[index].copy(tag=f"h{min(6, level + 2)}")
    return renderer.renderToken([lowered], 0, options, {})


def _cell_open(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _env: Any
) -> str:
    """Alignment as a class: the page's policy allows no style attributes."""
    side = str(tokens[index].attrs.pop("style", "")).removeprefix("text-align:")
    if side:
        tokens[index].attrSet("class", f"to-{side}")
    return str(renderer.renderToken(tokens, index, options, {}))


def _table_open(*_: Any) -> str:
    return '<div class="table" tabindex="0"><table>'


def _table_close(*_: Any) -> str:
    return "</table></div>"
