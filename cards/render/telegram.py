"""Renders a card for Telegram: text with entities, an inline keyboard, and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never
from unicodedata import category

from cards import formats, model
from cards.actions import Action, AnswerQuestion, SubmitTaskForm
from cards.catalog import TextCatalog
from cards.telegram_text import (
    RichText,
    TextMark,
    add_mark,
    align_table,
    display_width,
    join_rich,
    markdown_to_rich,
    plain_text,
    split_rich,
    styled_text,
    table_fits,
    to_one_line,
)

# Telegram counts 4096 after its own parsing; the rest is reserved for the sender's additions.
MAX_TEXT = 4000
MAX_CAPTION = 1024
MAX_MARKS = 100
MAX_BUTTONS = 100
MAX_DATA = 64

CONFIRM_SUFFIX = "?"
"""Marks button data whose press must be confirmed first."""

_ROW_BUTTONS = 3
_ROW_WIDTH = 36
_LABEL = 60
_DIVIDER_LINE = "———"
_EMPTY_TEXT = "▾"
_TONES = {
    model.CardTone.NEUTRAL: "",
    model.CardTone.INFO: "🔵",
    model.CardTone.GOOD: "🟢",
    model.CardTone.WARN: "🟠",
    model.CardTone.BAD: "🔴",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineKey:
    """An inline keyboard button; `data` must have 1 to 64 bytes."""

    label: str
    data: str


InlineKeyboard: TypeAlias = tuple[tuple[InlineKey, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One message. Offsets of `marks` are in UTF-16 units."""

    text: str
    marks: tuple[TextMark, ...] = ()
    keyboard: InlineKeyboard = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoPart:
    """`path` is relative to the data directory."""

    path: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    path: str
    name: str
    size: int = 0


MessagePart: TypeAlias = TextPart | PhotoPart | FilePart


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramCard:
    """Messages in order: text first, the keyboard under the last text, then files."""

    parts: tuple[MessagePart, ...]
    degraded: tuple[str, ...] = ()


def render(card: model.Card, words: TextCatalog) -> TelegramCard:
    """Render a card whose tokens are set. Never fails, whatever the card contains."""
    page = _MessageBuilder(words)
    title = _title_text(card)
    body = [rich for block in card.blocks if (rich := page.add_block(block)).text]
    whole = join_rich([title, *body], "\n\n")
    keyboard = page.keyboard()
    texts = split_rich(whole, MAX_TEXT, MAX_MARKS)
    if not texts and (keyboard or not page.files):
        texts = split_rich(plain_text(to_one_line(card.summary)), MAX_TEXT, 0)[:1] or (
            plain_text(_EMPTY_TEXT),
        )
    last = len(texts) - 1
    parts = [
        TextPart(text=text.text, marks=text.marks, keyboard=keyboard if i == last else ())
        for i, text in enumerate(texts)
    ]
    return TelegramCard(parts=(*parts, *page.files), degraded=tuple(dict.fromkeys(page.degraded)))


def render_stream(markdown: str) -> TextPart:
    """The newest part of a partial answer that fits one message; may be empty."""
    # Only the end is shown, so converting more of a long text is wasted.
    pieces = split_rich(markdown_to_rich(markdown[-MAX_TEXT * 3 :]), MAX_TEXT, MAX_MARKS)
    newest = pieces[-1] if pieces else RichText()
    return TextPart(text=newest.text, marks=newest.marks)


def _title_text(card: model.Card) -> RichText:
    """The title after a colored dot for the tone, unless it has its own symbol."""
    title = to_one_line(card.title)
    if not title:
        return RichText()
    sign = "" if category(title[0]) == "So" else _TONES[card.tone]
    return styled_text(f"{sign} {title}".strip(), "bold")


@dataclass(slots=True)
class _MessageBuilder:
    """Collects keys, files and losses while the text is rendered."""

    words: TextCatalog
    degraded: list[str] = field(default_factory=list)
    files: list[PhotoPart | FilePart] = field(default_factory=list)
    _rows: list[tuple[InlineKey, ...]] = field(default_factory=list)

    def add_block(  # noqa: C901, PLR0911 - one case for each block of the closed union
        self, block: model.Block
    ) -> RichText:
        match block:
            case model.TextBlock(markdown):
                return markdown_to_rich(markdown)
            case model.NoteBlock(markdown):
                return add_mark(markdown_to_rich(markdown), "italic")
            case model.FieldsBlock(pairs=pairs):
                return join_rich((_field_text(label, value) for label, value in pairs), "\n")
            case model.ChecklistBlock(items=items):
                return join_rich(map(_checklist_text, items), "\n")
            case model.ProgressBlock(percent=percent, label=label):
                return plain_text(f"{to_one_line(label)} {formats.progress_bar(percent)}".strip())
            case model.CodeBlock(text=text, language=language):
                return _code_text(text, language)
            case model.TableBlock():
                return self._table_text(block)
            case model.DividerBlock():
                return plain_text(_DIVIDER_LINE)
            case model.ImageBlock() | model.FileBlock():
                return self._add_file(block)
            case model.CollapsibleBlock(title=title, blocks=blocks):
                return self._collapsible_text(title, blocks)
            case model.ButtonsBlock() | model.SelectBlock() | model.FormBlock():
                return self._add_controls(block)
            case _:
                assert_never(block)

    def keyboard(self) -> InlineKeyboard:
        """The button rows that fit into one keyboard."""
        rows: list[tuple[InlineKey, ...]] = []
        count = 0
        for row in self._rows:
            count += len(row)
            if count > MAX_BUTTONS:
                self.degraded.append("buttons: too many for one message")
                break
            rows.append(row)
        return tuple(rows)

    def _add_controls(
        self, block: model.ButtonsBlock | model.SelectBlock | model.FormBlock
    ) -> RichText:
        match block:
            case model.ButtonsBlock(items=items):
                return self._add_buttons(items)
            case model.SelectBlock():
                return self._add_select(block)
            case model.FormBlock(fields=fields, action=action):
                self.degraded.append("form: fields listed")
                lines = [
                    styled_text(self._form_hint(action), "italic"),
                    *map(self._form_field_text, fields),
                ]
                return join_rich(lines, "\n")
            case _:
                assert_never(block)

    def _add_buttons(self, items: Iterable[model.CardButton]) -> RichText:
        keys: list[InlineKey] = []
        lines: list[RichText] = []
        for button in items:
            mark = CONFIRM_SUFFIX if button.confirm else ""
            if button.confirm:
                self.degraded.append("confirm: asked by a second press")
            if key := _inline_key(button.label, button.token, mark):
                keys.append(key)
            else:
                lines += self._command_hint(button.label, button.action)
        self._rows += _pack_rows(keys)
        return join_rich(lines, "\n")

    def _add_select(self, select: model.SelectBlock) -> RichText:
        self.degraded.append("select: shown as buttons")
        keys = [
            key
            for i, option in enumerate(select.options)
            if (key := _inline_key(option.label, select.token, f":{i}"))
        ]
        self._rows += _pack_rows(keys)
        lines = [plain_text(to_one_line(select.placeholder))]
        if not keys:
            lines += self._command_hint(select.placeholder, select.action)
            lines += [plain_text(f"• {to_one_line(option.label)}") for option in select.options]
        return join_rich(lines, "\n")

    def _command_hint(self, label: str, action: Action) -> list[RichText]:
        """The command to type if a button cannot be pressed."""
        self.degraded.append(f"button without a token: {action.kind}")
        return [plain_text(f"{to_one_line(label)}: {action.command}")] if action.command else []

    def _form_hint(self, action: Action) -> str:
        if action.command:
            return self.words("render.telegram.form_command", command=action.command)
        if isinstance(action, AnswerQuestion):
            return self.words("render.telegram.form_answer")
        kind = "form_task" if isinstance(action, SubmitTaskForm) else "form"
        return self.words(f"render.telegram.{kind}")

    def _form_field_text(self, item: model.FormField) -> RichText:
        optional = "" if item.required else f" ({self.words('render.telegram.optional')})"
        hint = f": {to_one_line(item.placeholder)}" if item.placeholder else ""
        lines = [f"• {to_one_line(item.label)}{optional}{hint}"]
        lines += [f"   – {to_one_line(option.label)}" for option in item.options]
        return plain_text("\n".join(lines))

    def _add_file(self, block: model.ImageBlock | model.FileBlock) -> RichText:
        match block:
            case model.ImageBlock(path=path, alt=alt):
                self.files.append(PhotoPart(path=path, caption=_short_label(alt, MAX_CAPTION)))
            case model.FileBlock(path=path, name=name, size=size):
                self.files.append(FilePart(path=path, name=_short_label(name, _LABEL), size=size))
            case _:
                assert_never(block)
        return RichText()

    def _table_text(self, table: model.TableBlock) -> RichText:
        columns = [to_one_line(cell) for cell in table.columns]
        rows = [[to_one_line(cell) for cell in row] for row in table.rows]
        if not columns:
            return RichText()
        if table_fits(columns, rows):
            self.degraded.append("table: aligned text")
            return styled_text(align_table(columns, rows), "pre")
        self.degraded.append("table: rows as lists")
        return join_rich((_table_row(columns, row) for row in rows), "\n\n")

    def _collapsible_text(self, title: str, blocks: Iterable[model.Block]) -> RichText:
        self.degraded.append("collapsible: expandable quote")
        inner = join_rich((self.add_block(leaf) for leaf in blocks), "\n")
        return join_rich(
            [styled_text(to_one_line(title), "bold"), add_mark(inner, "expandable_blockquote")],
            "\n",
        )


def _field_text(label: str, value: str) -> RichText:
    return join_rich([styled_text(f"{to_one_line(label)}:", "bold"), plain_text(value)], " ")


def _checklist_text(item: model.ChecklistItem) -> RichText:
    # Em spaces survive in all clients; few, because screens are narrow.
    margin = "\u2003" * item.depth
    lines = [f"{margin}{item.state.symbol} {to_one_line(item.label)}"]
    lines += [f"{margin}    {line}" for line in item.detail.strip().splitlines() if line.strip()]
    return plain_text("\n".join(lines))


def _code_text(text: str, language: str) -> RichText:
    name = language if language.isascii() and language.isprintable() else ""
    return styled_text(text.strip("\n"), "pre", language=name.strip()[:32])


def _table_row(columns: list[str], row: list[str]) -> RichText:
    cells = [_field_text(column, cell) for column, cell in zip(columns[1:], row[1:], strict=False)]
    return join_rich([styled_text(row[0] if row else "", "bold"), *cells], "\n")


def _inline_key(label: str, token: str, suffix: str) -> InlineKey | None:
    data = f"{token}{suffix}"
    if not token or len(data.encode("utf-8", "replace")) > MAX_DATA:
        return None
    caption = _short_label(label, _LABEL)
    return InlineKey(label=caption or "•", data=data)


def _pack_rows(keys: Iterable[InlineKey]) -> Iterator[tuple[InlineKey, ...]]:
    """Rows of short labels: clients give all buttons of a row equal width."""
    row: list[InlineKey] = []
    for key in keys:
        widest = max(display_width(other.label) for other in (*row, key))
        if row and (len(row) == _ROW_BUTTONS or widest * (len(row) + 1) > _ROW_WIDTH):
            yield tuple(row)
            row = []
        row.append(key)
    if row:
        yield tuple(row)


def _short_label(text: str, limit: int) -> str:
    """One line of at most `limit` UTF-16 units, empty if nothing of it is visible."""
    line = "" if formats.is_blank(text) else to_one_line(text)
    if len(line) * 2 <= limit:
        return line
    pieces = split_rich(plain_text(line), limit, 1)
    return pieces[0].text if pieces else ""
