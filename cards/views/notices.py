"""Renders errors and short notices."""

from __future__ import annotations

from cards import formats
from cards.model import Card, CardTone, TextBlock, titled_card

_MAX_TITLE = 80


def error_card(title: str, hint: str, *, tone: CardTone = CardTone.BAD) -> Card:
    """`title` is plain text, `hint` Markdown."""
    return titled_card(
        f"⚠️ {formats.single_line(title, _MAX_TITLE)}",
        TextBlock(hint),
        tone=tone,
        summary=formats.single_line(title, _MAX_TITLE),
    )


def notice_card(title: str, text: str, *, tone: CardTone = CardTone.INFO) -> Card:
    """A short notice. `text` is Markdown."""
    blocks = (TextBlock(text),) if text else ()
    return titled_card(
        title, *blocks, tone=tone, summary=formats.single_line(title or text, _MAX_TITLE)
    )
