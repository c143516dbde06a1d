"""What is wrong with a workflow, a line for each fault."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.words import Words
from storage.records.workers.workflows import WorkflowFault

MOST = 20
_LINE = 300


def fault_lines(faults: Sequence[WorkflowFault], words: Words, *, most: int = MOST) -> list[str]:
    """Each with its place; how many more there are is the last."""
    lines = [fault_line(fault, words) for fault in faults[:most]]
    if len(faults) > most:
        lines.append(words("workflows.more_faults", n=len(faults) - most))
    return lines


def fault_line(fault: WorkflowFault, words: Words) -> str:
    place = ".".join(filter(None, (fault.where, fault.field)))
    text = formats.line(_text(fault, words), _LINE)
    return f"`{formats.line(place, 120)}`: {text}" if place else text


def _text(fault: WorkflowFault, words: Words) -> str:
    for key in (f"workflows.fault.{fault.key}", f"workflow.fault.{fault.key}"):
        if words.has(key):
            return words(key, **fault.facts)
    return " ".join((fault.key, *map(str, fault.facts.values())))
