"""What running steps do now: their own checklist, one line, and the details folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
_STEP = 60
_BESIDE = 2
_LINE_BESIDE = 60
_ENTRIES = 12
_DIFF = 1_200
_OUTPUT = 300

_STATES = {
    "pending": CheckState.PENDING,
    "in_progress": CheckState.RUNNING,
    "completed": CheckState.DONE,
}


def live_blocks(
    live: Sequence[Live], words: Words, titles: Mapping[str, str] | None = None
) -> list[Block]:
    """For the card of a running task; `titles` are those of its steps, by path, for where several
    run at once."""
    if len(live) == 1:
        return _alone(live[0], words)
    busy = [each for each in live if each.calls]
    if not busy:
        return []
    names = titles or {}
    now = [_beside(each, words, names) for each in busy if each.now is not None]
    checks = [_call(call, _LINE_BESIDE) for each in busy for call in each.calls[-_BESIDE:]]
    used = words("live.calls", n=sum(each.used for each in busy))
    folded = Collapsible(title=used, blocks=(Checklist(items=tuple(checks)),))
    return [*([Text(markdown="\n\n".join(now))] if now else []), folded]


def _alone(live: Live, words: Words) -> list[Block]:
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


def _beside(live: Live, words: Words, titles: Mapping[str, str]) -> str:
    """One line: there is less room for each."""
    assert live.now is not None
    step = formats.verbatim(titles.get(live.path, live.path), _STEP)
    what = formats.verbatim(live.now.title, _LINE_BESIDE)
    return words("graph.doing", step=step, what=what)


def _plan(live: Live) -> tuple[Check, ...]:
    """A long one from where it is."""
    at = next((n for n, (_, state) in enumerate(live.plan) if state != "completed"), 0)
    first = max(0, min(at - 2, len(live.plan) - _ENTRIES))
    shown = live.plan[first : first + _ENTRIES]
    return tuple(
        Check(label=formats.line(text, _LINE), state=_STATES[state]) for text, state in shown
    )


def _calls(live: Live) -> list[Leaf]:
    told: list[Leaf] = [Checklist(items=tuple(map(_call, live.calls)))]
    last = next((each for each in reversed(live.calls) if each.diff or each.output), None)
    if last is not None and last.diff:
        told.append(Code(text=formats.cut(last.diff, _DIFF), language="diff"))
    elif last is not None:
        told.append(Code(text=formats.cut(last.output, _OUTPUT)))
    return told


def _call(call: LiveCall, room: int = _LINE) -> Check:
    return Check(label=formats.line(call.title, room), state=_state(call))


def _state(call: LiveCall) -> CheckState:
    if call.good is None:
        return CheckState.RUNNING
    return CheckState.DONE if call.good else CheckState.FAILED


def _told(key: str, facts: object, words: Words) -> str:
    """A fact may be a text of the catalogue itself."""
    named = facts if isinstance(facts, dict) else {}
    return words(key, **{name: words.or_own(str(fact)) for name, fact in named.items()})
