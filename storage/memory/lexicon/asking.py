"""What is asked: at the end of a turn, and of whom."""

from __future__ import annotations

import re

ASSISTANT, ONESELF = "=you", "=me"
"""Marks among the words of a question. No entry has them."""

_ASKS = re.compile(r"[?？][^\w?？]{0,8}$")
_END = re.compile(r"[.!?…]+[\"'”’)]*\s+|[。！？\n]+")


def parted(text: str) -> tuple[str, str]:
    """What is said, and the questions that it ends with: somebody else answers those."""
    if not _ASKS.search(text):
        return text, ""
    at = len(text)
    for start in reversed([0, *(end.end() for end in _END.finditer(text))]):
        sentence = text[start:at]
        if any(map(str.isalnum, sentence)) and not _ASKS.search(sentence):
            break
        at = start
    return text[:at], text[at:]


_REMINDS = re.compile(
    r"\b(?:do|can|could|would) you (?:still )?(?:remember|recall|know|tell|remind|find|see)\b"
    r"|[你您](?:还|是否)?(?:记得|知道)",
    re.IGNORECASE,
)
_YOU = re.compile(
    r"\b(?:did|do|have|had|were|are|would|could|should) you\b|\byours?\b|^[^我]*[你您]",
    re.IGNORECASE,
)
_ME = re.compile(r"\b(?:i|me|my|mine)\b|我", re.IGNORECASE)
_ASSISTANTS = frozenset(["assistant", "ai", "bot", "chatbot", "agent", "助手", "助理"])


def whose(query: str) -> str | None:
    """Whose words a question is after if it is put to an assistant: `ASSISTANT` for what did you
    say, `ONESELF` for what did I say."""
    query = _REMINDS.sub(" ", query)
    if _YOU.search(query):
        return ASSISTANT
    return ONESELF if _ME.search(query) else None


def is_assistant(sender: str) -> bool:
    return sender.casefold() in _ASSISTANTS
