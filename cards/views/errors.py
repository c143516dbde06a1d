"""Cards that say no, and what to do next."""

from __future__ import annotations

from cards import formats
from cards.model import Card, Text, Tone

_TITLE = 80


def error_card(title: str, hint: str, *, tone: Tone = Tone.BAD) -> Card:
    """`title` is plain text, `hint` Markdown."""
    return Card(
        title=f"⚠️ {formats.line(title, _TITLE)}",
        tone=tone,
        blocks=(Text(markdown=hint),),
        summary=formats.line(title, _TITLE),
    )


def notice_card(title: str, text: str, *, tone: Tone = Tone.INFO) -> Card:
    """Something short, said once. `text` is Markdown."""
    blocks = (Text(markdown=text),) if text else ()
    return Card(title=title, tone=tone, blocks=blocks, summary=formats.line(title or text, _TITLE))
