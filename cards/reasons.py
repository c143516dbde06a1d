"""Why the use of a tool is allowed, asked about or denied: kept as a key, worded for who reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cards.words import Words, words_for
from storage.records.people import Language

_LONGEST_FACT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The catalogue text `reason.<key>` with its facts. `unasked`: it would have been asked about,
    but nobody is asked here."""

    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    unasked: bool = False

    def in_words(self, words: Words) -> str:
        text = words(f"reason.{self.key}", **self.facts)
        return text + words("reason.unasked") if self.unasked else text

    def in_english(self) -> str:
        """For the model and the log."""
        return self.in_words(words_for(Language.ENGLISH))

    def packed(self) -> str:
        """As the store keeps it."""
        kept = {"reason": self.key, "facts": dict(self.facts), "unasked": self.unasked}
        return json.dumps(kept, ensure_ascii=False)


def because(key: str, **facts: object) -> Reason:
    return Reason(key=key, facts={name: str(fact)[:_LONGEST_FACT] for name, fact in facts.items()})


def reason_told(kept: str, words: Words) -> str:
    """What the store keeps, for a reader. What is no packed reason was kept as plain text; a key
    of another version is told as it is."""
    reason = _unpacked(kept)
    if reason is None:
        return kept
    try:
        return reason.in_words(words)
    except KeyError:
        return " ".join((reason.key.replace("_", " "), *reason.facts.values()))


def _unpacked(kept: str) -> Reason | None:
    if not kept.startswith('{"reason"'):
        return None
    try:
        read = json.loads(kept)
        facts = {str(name): str(fact) for name, fact in read["facts"].items()}
        return Reason(key=str(read["reason"]), facts=facts, unasked=bool(read["unasked"]))
    except (ValueError, LookupError, AttributeError, TypeError):
        return None
