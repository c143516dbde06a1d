"""Stores the reason for a permission decision as a key and words it for each reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language

_MAX_FACT_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionReason:
    """The catalogue text `reason.<key>` with its facts. `unasked`: the call needed an approval, but
    prompts are off here. `limits` are keys of `reason.limit`: what an approval does not cover."""

    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    unasked: bool = False
    limits: tuple[str, ...] = ()

    def describe(self, words: TextCatalog) -> str:
        text = words(f"reason.{self.key}", **self.facts)
        return text + words("reason.unasked") if self.unasked else text

    def describe_in_english(self) -> str:
        """The English text for models and logs."""
        return self.describe(catalog_for(Language.ENGLISH))

    def to_json(self) -> str:
        """The form stored in the database."""
        fields: dict[str, Any] = {
            "reason": self.key,
            "facts": dict(self.facts),
            "unasked": self.unasked,
        }
        if self.limits:
            fields["limits"] = self.limits
        return json.dumps(fields, ensure_ascii=False)


APP_RIGHTS_REASON = "app_rights"
"""A call with the rights of the app, for somebody who may have fewer."""


def build_reason(key: str, **facts: object) -> PermissionReason:
    return PermissionReason(
        key=key, facts={name: str(fact)[:_MAX_FACT_LENGTH] for name, fact in facts.items()}
    )


def describe_reason(stored: str, words: TextCatalog) -> str:
    """Word a stored reason. Plain text and unknown keys are returned as they are."""
    reason = _parse_reason(stored)
    if reason is None:
        return stored
    try:
        return reason.describe(words)
    except KeyError:
        return " ".join((reason.key.replace("_", " "), *reason.facts.values()))


def is_about_app_rights(stored: str) -> bool:
    reason = _parse_reason(stored)
    return reason is not None and reason.key == APP_RIGHTS_REASON


def describe_limits(stored: str, words: TextCatalog) -> Sequence[str]:
    """Return what an approval would not cover, one sentence each."""
    reason = _parse_reason(stored)
    return [words(f"reason.limit.{each}") for each in reason.limits] if reason else []


def _parse_reason(text: str) -> PermissionReason | None:
    if not text.startswith('{"reason"'):
        return None
    try:
        read = json.loads(text)
        facts = {str(name): str(fact) for name, fact in read["facts"].items()}
        return PermissionReason(
            key=str(read["reason"]),
            facts=facts,
            unasked=bool(read["unasked"]),
            limits=tuple(map(str, read.get("limits", ()))),
        )
    except (ValueError, LookupError, AttributeError, TypeError):
        return None
