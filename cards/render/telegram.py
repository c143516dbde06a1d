"""Card to Telegram: text with entities, an inline keyboard, and the files that go with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never
from unicodedata import category

from cards.actions import Action, NewTask
from cards.markdown_text import to_rich
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Check,
    Checklist,
    Code,
    Collapsible,
    Divider,
    Fields,
    File,
    Form,
    FormField,
    Image,
    Note,
    Progress,
    Select,
    Table,
    Text,
    Tone,
)
from cards.plain_tables import aligned, display_width, fits
from cards.rich_text import Mark, Rich, is_blank, joined, one_line, plain, split, styled, wrapped
from cards.words import Words

# Telegram counts 4096 after its own parsing; the rest is reserve for what the sender adds.
MAX_TEXT = 4000
MAX_CAPTION = 1024
MAX_MARKS = 100
MAX_BUTTONS = 100
MAX_DATA = 64

CONFIRM_FIRST = "?"
"""Ends the data of a button that asks once more before it acts."""

_ROW_BUTTONS = 3
_ROW_WIDTH = 36
_LABEL = 60
_BAR_CELLS = 10
_RULE = "———"
_NOTHING = "▾"
_TONES = {Tone.NEUTRAL: "", Tone.INFO: "🔵", Tone.GOOD: "🟢", Tone.WARN: "🟠", Tone.BAD: "🔴"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A button of the inline keyboard; `data` has 1 to 64 bytes."""

    label: str
    data: str


Keyboard: TypeAlias = tuple[tuple[Key, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One message. Offsets of `marks` are UTF-16 units."""

    text: str
    marks: tuple[Mark, ...] = ()
    keyboard: Keyboard = ()


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


Part: TypeAlias = TextPart | PhotoPart | FilePart


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramCard:
    """Messages in order: text first, the keyboard under the last text, then the files."""

    parts: tuple[Part, ...]
    degraded: tuple[str, ...] = ()


def render(card: Card, words: Words) -> TelegramCard:
    """A sealed card as Telegram messages. Never fails, whatever the card holds."""
    page = _Page(words)
    title = _title(card)
    body = [rich for block in card.blocks if (rich := page.block(block)).text]
    whole = joined([title, *body], "\n\n")
    keyboard = page.keyboard()
    texts = split(whole, MAX_TEXT, MAX_MARKS)
    if not texts and (keyboard or not page.files):
        texts = split(plain(one_line(card.summary)), MAX_TEXT, 0)[:1] or (plain(_NOTHING),)
    last = len(texts) - 1
    parts = [
        TextPart(text=text.text, marks=text.marks, keyboard=keyboard if i == last else ())
        for i, text in enumerate(texts)
    ]
    return TelegramCard(parts=(*parts, *page.files), degraded=tuple(dict.fromkeys(page.degraded)))


def render_markdown(markdown: str) -> TextPart:
    """An answer in the making: its newest part that fits one message; may be empty."""
    # Only the end is shown: no more of a long text than could be seen is worth converting.
    pieces = split(to_rich(markdown[-MAX_TEXT * 3 :]), MAX_TEXT, MAX_MARKS)
    newest = pieces[-1] if pieces else Rich()
    return TextPart(text=newest.text, marks=newest.marks)


def _title(card: Card) -> Rich:
    """The tone as a coloured dot, unless the title brings a sign of its own."""
    title = one_line(card.title)
    if not title:
        return Rich()
    sign = "" if category(title[0]) == "So" else _TONES[card.tone]
    return styled(f"{sign} {title}".strip(), "bold")


@dataclass(slots=True)
class _Page:
    """Collects what does not stand in the text: keys, files, losses."""

    words: Words
    degraded: list[str] = field(default_factory=list)
    files: list[PhotoPart | FilePart] = field(default_factory=list)
    _rows: list[tuple[Key, ...]] = field(default_factory=list)

    def block(  # noqa: C901, PLR0911 - one case for each block of the closed union
        self, block: Block
    ) -> Rich:
        match block:
            case Text(markdown=markdown):
                return to_rich(markdown)
            case Note(markdown=markdown):
                return wrapped(to_rich(markdown), "italic")
            case Fields(pairs=pairs):
                return joined((_field(label, value) for label, value in pairs), "\n")
            case Checklist(items=items):
                return joined(map(_check, items), "\n")
            case Progress(percent=percent, label=label):
                return plain(f"{one_line(label)} {_bar(percent)}".strip())
            case Code(text=text, language=language):
                return _code(text, language)
            case Table():
                return self._table(block)
            case Divider():
                return plain(_RULE)
            case Image() | File():
                return self._file(block)
            case Collapsible(title=title, blocks=blocks):
                return self._collapsible(title, blocks)
            case Buttons() | Select() | Form():
                return self._inputs(block)
            case _:
                assert_never(block)

    def keyboard(self) -> Keyboard:
        """The rows that fit."""
        rows: list[tuple[Key, ...]] = []
        count = 0
        for row in self._rows:
            count += len(row)
            if count > MAX_BUTTONS:
                self.degraded.append("buttons: too many for one message")
                break
            rows.append(row)
        return tuple(rows)

    def _inputs(self, block: Buttons | Select | Form) -> Rich:
        match block:
            case Buttons(items=items):
                return self._buttons(items)
            case Select():
                return self._select(block)
            case Form(fields=fields, action=action):
                self.degraded.append("form: fields listed")
                lines = [styled(self._form_hint(action), "italic"), *map(self._form_field, fields)]
                return joined(lines, "\n")
            case _:
                assert_never(block)

    def _buttons(self, items: Iterable[Button]) -> Rich:
        keys: list[Key] = []
        lines: list[Rich] = []
        for button in items:
            mark = CONFIRM_FIRST if button.confirm else ""
            if button.confirm:
                self.degraded.append("confirm: asked by a second press")
            if key := _key(button.label, button.token, mark):
                keys.append(key)
            else:
                lines += self._typed(button.label, button.action)
        self._rows += _packed(keys)
        return joined(lines, "\n")

    def _select(self, select: Select) -> Rich:
        self.degraded.append("select: shown as buttons")
        keys = [
            key
            for i, option in enumerate(select.options)
            if (key := _key(option.label, select.token, f":{i}"))
        ]
        self._rows += _packed(keys)
        lines = [plain(one_line(select.placeholder))]
        if not keys:
            lines += self._typed(select.placeholder, select.action)
            lines += [plain(f"• {one_line(option.label)}") for option in select.options]
        return joined(lines, "\n")

    def _typed(self, label: str, action: Action) -> list[Rich]:
        """What to type where a button cannot be pressed."""
        self.degraded.append(f"button without a token: {action.kind}")
        return [plain(f"{one_line(label)}: {action.command}")] if action.command else []

    def _form_hint(self, action: Action) -> str:
        if action.command:
            return self.words("render.telegram.form_command", command=action.command)
        kind = "form_task" if isinstance(action, NewTask) else "form"
        return self.words(f"render.telegram.{kind}")

    def _form_field(self, item: FormField) -> Rich:
        optional = "" if item.required else f" ({self.words('render.telegram.optional')})"
        hint = f": {one_line(item.placeholder)}" if item.placeholder else ""
        lines = [f"• {one_line(item.label)}{optional}{hint}"]
        lines += [f"   – {one_line(option.label)}" for option in item.options]
        return plain("\n".join(lines))

    def _file(self, block: Image | File) -> Rich:
        match block:
            case Image(path=path, alt=alt):
                self.files.append(PhotoPart(path=path, caption=_short(alt, MAX_CAPTION)))
            case File(path=path, name=name, size=size):
                self.files.append(FilePart(path=path, name=_short(name, _LABEL), size=size))
            case _:
                assert_never(block)
        return Rich()

    def _table(self, table: Table) -> Rich:
        columns = [one_line(cell) for cell in table.columns]
        rows = [[one_line(cell) for cell in row] for row in table.rows]
        if not columns:
            return Rich()
        if fits(columns, rows):
            self.degraded.append("table: aligned text")
            return styled(aligned(columns, rows), "pre")
        self.degraded.append("table: rows as lists")
        return joined((_table_row(columns, row) for row in rows), "\n\n")

    def _collapsible(self, title: str, blocks: Iterable[Block]) -> Rich:
        self.degraded.append("collapsible: expandable quote")
        inner = joined((self.block(leaf) for leaf in blocks), "\n")
        return joined(
            [styled(one_line(title), "bold"), wrapped(inner, "expandable_blockquote")], "\n"
        )


def _field(label: str, value: str) -> Rich:
    return joined([styled(f"{one_line(label)}:", "bold"), plain(value)], " ")


def _check(item: Check) -> Rich:
    # Narrow screens: wide spaces that no client takes away, and few of them.
    margin = "\u2003" * item.depth
    lines = [f"{margin}{item.state.mark} {one_line(item.label)}"]
    lines += [f"{margin}    {line}" for line in item.detail.strip().splitlines() if line.strip()]
    return plain("\n".join(lines))


def _bar(percent: int) -> str:
    percent = min(100, max(0, percent))
    full = percent * _BAR_CELLS // 100
    return f"{'▓' * full}{'░' * (_BAR_CELLS - full)} {percent} %"


def _code(text: str, language: str) -> Rich:
    known = language if language.isascii() and language.isprintable() else ""
    return styled(text.strip("\n"), "pre", language=known.strip()[:32])


def _table_row(columns: list[str], row: list[str]) -> Rich:
    cells = [_field(column, cell) for column, cell in zip(columns[1:], row[1:], strict=False)]
    return joined([styled(row[0] if row else "", "bold"), *cells], "\n")


def _key(label: str, token: str, suffix: str) -> Key | None:
    data = f"{token}{suffix}"
    if not token or len(data.encode("utf-8", "replace")) > MAX_DATA:
        return None
    shown = _short(label, _LABEL)
    return Key(label=shown or "•", data=data)


def _packed(keys: Iterable[Key]) -> Iterator[tuple[Key, ...]]:
    """Short labels side by side: clients give all buttons of a row the same width."""
    row: list[Key] = []
    for key in keys:
        widest = max(display_width(other.label) for other in (*row, key))
        if row and (len(row) == _ROW_BUTTONS or widest * (len(row) + 1) > _ROW_WIDTH):
            yield tuple(row)
            row = []
        row.append(key)
    if row:
        yield tuple(row)


def _short(text: str, limit: int) -> str:
    """One line of at most `limit` UTF-16 units, empty where nothing of it can be seen."""
    line = "" if is_blank(text) else one_line(text)
    if len(line) * 2 <= limit:
        return line
    pieces = split(plain(line), limit, 1)
    return pieces[0].text if pieces else ""
