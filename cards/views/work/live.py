"""What the running step does now: its own checklist, one line, and the details folded."""

from __future__ import annotations

from cards import formats
from cards.model import (
    Block,
    Check,
    Checklist,
    CheckState,
    Code,
    Collapsible,
    Leaf,
    Note,
    Text,
)
from cards.words import Words
from storage.records.live import Live, LiveCall

_LINE = 100
_ENTRIES = 12
_DIFF = 1_200
_OUTPUT = 300

_STATES = {
    "pending": CheckState.PENDING,
    "in_progress": CheckState.RUNNING,
    "completed": CheckState.DONE,
}


def live_blocks(live: Live | None, words: Words) -> list[Block]:
    """For the card of a running task."""
    if live is None:
        return []
    blocks: list[Block] = []
    if live.plan:
        blocks.append(Text(markdown=words("live.plan")))
        blocks.append(Checklist(items=_plan(live)))
    if live.now is not None:
        what = formats.verbatim(formats.line(live.now.title, _LINE), _LINE)
        blocks.append(Text(markdown=words("live.now", what=what)))
    if live.calls:
        title = words("live.calls", n=live.used)
        blocks.append(Collapsible(title=title, blocks=tuple(_calls(live))))
    blocks += [Note(markdown=_told(key, facts, words)) for key, facts in live.notes]
    return blocks


def _plan(live: Live) -> tuple[Check, ...]:
    """A long one from where it is."""
    at = next((n for n, (_, state) in enumerate(live.plan) if state != "completed"), 0)
    first = max(0, min(at - 2, len(live.plan) - _ENTRIES))
    shown = live.plan[first : first + _ENTRIES]
    return tuple(
        Check(label=formats.line(text, _LINE), state=_STATES[state]) for text, state in shown
    )


def _calls(live: Live) -> list[Leaf]:
    checks = [
        Check(label=formats.line(each.title, _LINE), state=_state(each)) for each in live.calls
    ]
    told: list[Leaf] = [Checklist(items=tuple(checks))]
    last = next((each for each in reversed(live.calls) if each.diff or each.output), None)
    if last is not None and last.diff:
        told.append(Code(text=formats.cut(last.diff, _DIFF), language="diff"))
    elif last is not None:
        told.append(Code(text=formats.cut(last.output, _OUTPUT)))
    return told


def _call(call: LiveCall) -> Check:
    return Check(label=formats.line(call.title, _LINE), state=_state(call))


def _state(call: LiveCall) -> CheckState:
    if call.good is None:
        return CheckState.RUNNING
    return CheckState.DONE if call.good else CheckState.FAILED


def _told(key: str, facts: object, words: Words) -> str:
    """A fact may be a text of the catalogue itself."""
    named = facts if isinstance(facts, dict) else {}
    return words(key, **{name: words.or_own(str(fact)) for name, fact in named.items()})
