"""Latin words that have no business in what a Chinese reader is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cards.card_json import dump_card
from cards.model import Card

NAMES = frozenset({
    "Shiftboss", "Telegram", "Anthropic", "OpenAI", "Lark", "BotFather", "Landlock", "bubblewrap",
    "Node", "Agent", "Client", "Protocol", "AI", "API", "CLI", "MCP", "ID", "URL", "JSON", "YAML",
    "UTF-", "SKILL", "APPROVED", "REJECTED", "KB", "MB", "GB", "token", "tokens", "Token", "git",
    "npm", "auto", "true", "false", "skill_load", "model", "backend", "offline", "anthropic",
    "openai", "acp", "webhook", "Webhook", "HTTP", "GET", "HEAD", "POST", "Python", "SQLite",
    "English", "haiku", "PATH", "cron",
    "Markdown", "Brave", "Tavily", "SearXNG", "OpenTelemetry", "MiB",
    "App", "Secret", "feishu", "larksuite", "cn", "com", "NTP", "DNS", "http", "https", "telegram",
    "ou_x", "Asia", "Shanghai",
})  # fmt: skip
"""Names of products and formats, and words that are typed or written just so."""

_NOT_PROSE = re.compile(
    r"`[^`]*`|https?://\S+|\{[^}]*\}|\b[A-Z]+(?:_[A-Z0-9]+)+\b"
    r"|(?<![\w/])/[a-z]+(?: [a-z]+)*|[\w.*/-]+\.(?:md|yaml|yml|jsonl?|py|txt|env|js)\b"
    r"|@[\w/.-]+",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z][A-Za-z_'-]+")
_NOT_READ = {
    "action", "kind", "token", "value", "path", "fallback", "language", "style", "tone", "name",
    "state", "field",
}  # fmt: skip


def foreign_words(text: str, allowed: frozenset[str] = frozenset()) -> set[str]:
    """Without code, settings, commands, addresses, file names, and names that stay as they are."""
    prose = _NOT_PROSE.sub(" ", text)
    return {word for word in _WORD.findall(prose) if word not in NAMES | allowed}


def foreign_words_on(card: Card, allowed: frozenset[str] = frozenset()) -> set[str]:
    """In all that is read on it; boxes with somebody's text or code are left out."""
    return {word for text in _texts(dump_card(card)) for word in foreign_words(text, allowed)}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | tuple():
            for each in value:
                yield from _texts(each)
        case dict() if value.get("kind") != "code":
            for key, each in value.items():
                if key not in _NOT_READ:
                    yield from _texts(each)
