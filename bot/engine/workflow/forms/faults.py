"""What is wrong with a workflow, in the reader's words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bot.engine.workflow.model.faults import Fault
from cards.words import Words
from storage.records.people import Language

_MOST_LINES = 40
_MOST_FACT = 120


def told(faults: Iterable[Fault], words: Words, *, most: int = _MOST_LINES) -> str:
    """A line for each, with its node and field in front; of very many only the first `most`."""
    all_of_them = iter(faults)
    lines = [line_of(fault, words) for fault in islice(all_of_them, most)]
    left = sum(1 for _ in all_of_them)
    return "\n".join([*lines, *([words("workflow.fault_more", n=left)] if left else [])])


def line_of(fault: Fault, words: Words) -> str:
    facts = {name: _brief(value) for name, value in fault.facts.items()}
    text = words(f"workflow.fault.{fault.key}", **facts)
    if words.language is Language.ENGLISH and facts.get("why"):
        # The parsers give their reasons in English only.
        text = f"{text} ({facts['why']})"
    place = ".".join(str(_brief(part)) for part in (fault.where, fault.field) if part)
    return words("workflow.fault_at", place=place, text=text) if place else text


def _brief(value: object) -> object:
    return value if isinstance(value, int) else " ".join(str(value)[:500].split())[:_MOST_FACT]
