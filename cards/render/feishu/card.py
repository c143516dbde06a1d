"""Renders a card as card JSON 2.0, split into as many cards as the limits require."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cards import model
from cards.catalog import TextCatalog
from cards.render.feishu.elements import (
    PART_BYTES,
    PART_COMPONENTS,
    CardElement,
    FeishuRenderContext,
    button_elements,
    collapsible_elements,
    content_elements,
    count_components,
    form_elements,
    json_size,
    plain_text,
    select_elements,
    strip_unfit,
    truncate_line,
)
from cards.render.feishu.markdown import MAX_MARKDOWN_ELEMENT, normalize_markdown

MAX_PARTS = 10
ANSWER_ELEMENT_ID = "answer"
_MAX_TITLE = 150
_MAX_SUMMARY = 120
_MAX_STREAMED = 8000
_NOT_IN_ID = re.compile(r"\W", re.ASCII)
_TEMPLATES = {
    model.CardTone.NEUTRAL: "default",
    model.CardTone.INFO: "blue",
    model.CardTone.GOOD: "green",
    model.CardTone.WARN: "orange",
    model.CardTone.BAD: "red",
}
_TONE_TAGS = {
    model.CardTone.GOOD: ("good", "green"),
    model.CardTone.WARN: ("warn", "orange"),
    model.CardTone.BAD: ("bad", "red"),
}
_EMPTY_MAPPING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuCard:
    """`parts` are complete cards to send in order. `answer` is the id of the element in the first
    part that a streamed answer updates. `degraded` lists what could not be shown."""

    parts: tuple[dict[str, Any], ...]
    answer: str
    degraded: tuple[str, ...] = ()


def render(
    card: model.Card,
    words: TextCatalog,
    *,
    images: Mapping[str, str] = _EMPTY_MAPPING,
    documents: Mapping[str, str] = _EMPTY_MAPPING,
    callback_values: Mapping[str, str] = _EMPTY_MAPPING,
    streaming: bool = False,
) -> FeishuCard:
    """Render a card. `images` maps block paths to uploaded keys, `documents` those of files to the
    links of their documents or why there is none; `callback_values` are added to every callback
    beside the token `t`; `streaming` reserves an element for a partial answer."""
    context = FeishuRenderContext(
        words=words, images=images, documents=documents, callback_values=callback_values
    )
    answer = _answer_index(card, streaming=streaming)
    units: list[CardElement] = []
    for number, block in enumerate(card.blocks):
        elements = _block_elements(block, context)
        if number == answer and not elements:
            elements = [{"tag": "markdown", "content": "…"}]
        if elements:
            name = ANSWER_ELEMENT_ID if number == answer else _element_id(number, block)
            elements[0] = {**elements[0], "element_id": name}
        units.extend(elements)
    if streaming and answer < 0:
        units.append({"tag": "markdown", "content": "…", "element_id": ANSWER_ELEMENT_ID})
    parts = _split_parts(units or [_placeholder_element(card)], context)
    return FeishuCard(
        parts=tuple(
            _build_card(card, part, words, first=number == 0, streaming=streaming and number == 0)
            for number, part in enumerate(parts)
        ),
        answer=ANSWER_ELEMENT_ID,
        degraded=tuple(context.degraded),
    )


def render_stream(markdown: str) -> str:
    """A partial answer as valid content of the answer element, within its length limit."""
    text = normalize_markdown(strip_unfit(markdown), tables=0).text
    return text if len(text) <= _MAX_STREAMED else f"{text[:_MAX_STREAMED]} …"


def minimal_card(text: str, words: TextCatalog, summary: str = "") -> dict[str, Any]:
    """The plainest possible card, for when a richer one was rejected."""
    body = strip_unfit(text)[:MAX_MARKDOWN_ELEMENT] or "…"
    head = model.Card(summary=summary)
    return _build_card(
        head, [{"tag": "div", "text": plain_text(body)}], words, first=True, streaming=False
    )


def _block_elements(block: model.Block, context: FeishuRenderContext) -> list[CardElement]:
    match block:
        case model.ButtonsBlock():
            return button_elements(block, context)
        case model.SelectBlock():
            return select_elements(block, context)
        case model.FormBlock():
            return form_elements(block, context)
        case model.CollapsibleBlock():
            return collapsible_elements(block, context)
        case _:
            return content_elements(block, context)


def _answer_index(card: model.Card, *, streaming: bool) -> int:
    """The index of the answer block: the first text with an id, else the first text."""
    texts = [
        (n, block) for n, block in enumerate(card.blocks) if isinstance(block, model.TextBlock)
    ]
    numbers = [number for number, block in texts if block.id]
    if numbers:
        return numbers[0]
    return texts[0][0] if texts and streaming else -1


def _element_id(number: int, block: model.Block) -> str:
    """An element id that stays the same over updates."""
    if isinstance(block, model.TextBlock) and block.id:
        return f"x{number}_{_NOT_IN_ID.sub('_', block.id)}"[:20]
    return f"b{number}"


def _placeholder_element(card: model.Card) -> CardElement:
    text = "" if card.title else strip_unfit(card.summary or card.fallback)[:MAX_MARKDOWN_ELEMENT]
    return {"tag": "div", "text": plain_text(text or "…")}


def _split_parts(units: list[CardElement], context: FeishuRenderContext) -> list[list[CardElement]]:
    parts: list[list[CardElement]] = [[]]
    size = components = 0
    for unit in units:
        heavy, many = json_size(unit) + 1, count_components(unit)
        if heavy > PART_BYTES or many > PART_COMPONENTS:
            context.degrade("block: too large for a card, left out")
            unit = {"tag": "markdown", "content": context.words("render.feishu.too_large")}  # noqa: PLW2901 - stands in for it
            heavy, many = json_size(unit) + 1, 1
        if parts[-1] and (size + heavy > PART_BYTES or components + many > PART_COMPONENTS):
            parts.append([])
            size = components = 0
        parts[-1].append(unit)
        size += heavy
        components += many
    if len(parts) <= MAX_PARTS:
        return parts
    context.degrade("card: cut in the middle, it is too long")
    gap = {"tag": "markdown", "content": context.words("render.feishu.cut")}
    return [*parts[: MAX_PARTS - 2], [gap], parts[-1]]


def _build_card(
    card: model.Card,
    elements: list[CardElement],
    words: TextCatalog,
    *,
    first: bool,
    streaming: bool,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "update_multi": True,
        "streaming_mode": streaming,
        "summary": {"content": card_summary(card, words, streaming=streaming)},
    }
    payload: dict[str, Any] = {"schema": "2.0", "config": config}
    if card.title.strip() and first:
        payload["header"] = _header(card, words)
    payload["body"] = {"elements": elements}
    return payload


def card_summary(card: model.Card, words: TextCatalog, *, streaming: bool = False) -> str:
    """One line for the chat list."""
    if streaming:
        return words("render.feishu.writing")
    texts = (each.markdown for each in card.blocks if isinstance(each, model.TextBlock))
    first_text = next(texts, "")
    return (
        truncate_line(card.summary or card.title or card.fallback or first_text, _MAX_SUMMARY)
        or "…"
    )


def _header(card: model.Card, words: TextCatalog) -> dict[str, Any]:
    header: dict[str, Any] = {
        "title": plain_text(truncate_line(card.title, _MAX_TITLE)),
        "template": _TEMPLATES[card.tone],
    }
    if card.tone in _TONE_TAGS:
        # Some clients do not redraw the header color after an update, so a tag shows the tone too.
        key, colour = _TONE_TAGS[card.tone]
        text = plain_text(words(f"render.feishu.{key}"))
        header["text_tag_list"] = [{"tag": "text_tag", "text": text, "color": colour}]
    return header
