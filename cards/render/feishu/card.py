"""Card to card JSON 2.0: as many cards as its content needs, each within the limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cards.model import Block, Buttons, Card, Collapsible, Form, Select, Text, Tone
from cards.render.feishu.canvas import Canvas, Element, plain
from cards.render.feishu.controls import buttons, form, select
from cards.render.feishu.leaves import collapsible, leaf
from cards.render.feishu.markdown import CHUNK, normalise
from cards.render.feishu.size import PART_BYTES, PART_COMPONENTS, count, cut, scrub, weight
from cards.words import Words

MAX_PARTS = 10
ANSWER = "answer"
_TITLE = 150
_SUMMARY = 120
_STREAMED = 8000
_NOT_IN_ID = re.compile(r"\W", re.ASCII)
_TEMPLATES = {
    Tone.NEUTRAL: "default",
    Tone.INFO: "blue",
    Tone.GOOD: "green",
    Tone.WARN: "orange",
    Tone.BAD: "red",
}
_TAGS = {Tone.GOOD: ("good", "green"), Tone.WARN: ("warn", "orange"), Tone.BAD: ("bad", "red")}
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuCard:
    """`parts` are whole cards, to be sent in order. `answer` is the id of the element in the
    first part that a streamed answer grows in. `degraded` says what could not be shown."""

    parts: tuple[dict[str, Any], ...]
    answer: str
    degraded: tuple[str, ...] = ()


def render(
    card: Card,
    words: Words,
    *,
    images: Mapping[str, str] = _NOTHING,
    mark: Mapping[str, str] = _NOTHING,
    streaming: bool = False,
) -> FeishuCard:
    """`images` maps block paths to uploaded keys; `mark` is put into every callback value beside
    the token `t`. `streaming` makes room for an answer in the making."""
    canvas = Canvas(words=words, images=images, mark=mark)
    answer = _answer_at(card, streaming=streaming)
    units: list[Element] = []
    for number, block in enumerate(card.blocks):
        made = _block(block, canvas)
        if number == answer and not made:
            made = [{"tag": "markdown", "content": "…"}]
        if made:
            name = ANSWER if number == answer else _name(number, block)
            made[0] = {**made[0], "element_id": name}
        units.extend(made)
    if streaming and answer < 0:
        units.append({"tag": "markdown", "content": "…", "element_id": ANSWER})
    parts = _pack(units or [_filler(card)], canvas)
    return FeishuCard(
        parts=tuple(
            _whole(card, part, words, first=number == 0, streaming=streaming and number == 0)
            for number, part in enumerate(parts)
        ),
        answer=ANSWER,
        degraded=tuple(canvas.degraded),
    )


def streamed(markdown: str) -> str:
    """An answer so far, as content of the answer element: fit, and not too long to change."""
    text = normalise(scrub(markdown), tables=0).text
    return text if len(text) <= _STREAMED else f"{text[:_STREAMED]} …"


def minimal(text: str, words: Words, summary: str = "") -> dict[str, Any]:
    """The plainest card there is, for where a richer one was refused."""
    body = scrub(text)[:CHUNK] or "…"
    head = Card(summary=summary)
    return _whole(head, [{"tag": "div", "text": plain(body)}], words, first=True, streaming=False)


def _block(block: Block, canvas: Canvas) -> list[Element]:
    match block:
        case Buttons():
            return buttons(block, canvas)
        case Select():
            return select(block, canvas)
        case Form():
            return form(block, canvas)
        case Collapsible():
            return collapsible(block, canvas)
        case _:
            return leaf(block, canvas)


def _answer_at(card: Card, *, streaming: bool) -> int:
    """Which block is the answer: the first text with an id, else the first text."""
    texts = [(n, block) for n, block in enumerate(card.blocks) if isinstance(block, Text)]
    named = [number for number, block in texts if block.id]
    if named:
        return named[0]
    return texts[0][0] if texts and streaming else -1


def _name(number: int, block: Block) -> str:
    """An element id that the same block keeps over updates."""
    if isinstance(block, Text) and block.id:
        return f"x{number}_{_NOT_IN_ID.sub('_', block.id)}"[:20]
    return f"b{number}"


def _filler(card: Card) -> Element:
    text = "" if card.title else scrub(card.summary or card.fallback)[:CHUNK]
    return {"tag": "div", "text": plain(text or "…")}


def _pack(units: list[Element], canvas: Canvas) -> list[list[Element]]:
    parts: list[list[Element]] = [[]]
    size = components = 0
    for unit in units:
        heavy, many = weight(unit) + 1, count(unit)
        if heavy > PART_BYTES or many > PART_COMPONENTS:
            canvas.degrade("block: too large for a card, left out")
            unit = {"tag": "markdown", "content": canvas.words("render.feishu.too_large")}  # noqa: PLW2901 - stands in for it
            heavy, many = weight(unit) + 1, 1
        if parts[-1] and (size + heavy > PART_BYTES or components + many > PART_COMPONENTS):
            parts.append([])
            size = components = 0
        parts[-1].append(unit)
        size += heavy
        components += many
    if len(parts) <= MAX_PARTS:
        return parts
    canvas.degrade("card: cut in the middle, it is too long")
    gap = {"tag": "markdown", "content": canvas.words("render.feishu.cut")}
    return [*parts[: MAX_PARTS - 2], [gap], parts[-1]]


def _whole(
    card: Card, elements: list[Element], words: Words, *, first: bool, streaming: bool
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "update_multi": True,
        "streaming_mode": streaming,
        "summary": {"content": summary(card, words, streaming=streaming)},
    }
    made: dict[str, Any] = {"schema": "2.0", "config": config}
    if card.title.strip() and first:
        made["header"] = _header(card, words)
    made["body"] = {"elements": elements}
    return made


def summary(card: Card, words: Words, *, streaming: bool = False) -> str:
    """One line for the chat list."""
    if streaming:
        return words("render.feishu.writing")
    return cut(card.summary or card.title or card.fallback or _first_words(card), _SUMMARY) or "…"


def _first_words(card: Card) -> str:
    return next((block.markdown for block in card.blocks if isinstance(block, Text)), "")


def _header(card: Card, words: Words) -> dict[str, Any]:
    made: dict[str, Any] = {
        "title": plain(cut(card.title, _TITLE)),
        "template": _TEMPLATES[card.tone],
    }
    if card.tone in _TAGS:
        # Some clients do not repaint the template after an update: the tag says it too.
        key, colour = _TAGS[card.tone]
        text = plain(words(f"render.feishu.{key}"))
        made["text_tag_list"] = [{"tag": "text_tag", "text": text, "color": colour}]
    return made
