"""A session's history as a model is told it: old tool results shortened, the oldest turns left out.

What is stored is never changed. Decisions depend on the stored history alone and move in steps of
several turns, so that from call to call the beginning stays the same and stays in the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from bot.engine.llm.loop import turns
from bot.engine.llm.loop.turns import Part, Row

log = logging.getLogger(__name__)

CONTEXT_TOKENS = 200_000
SHARE = 0.5
BYTES_PER_TOKEN = 4

LONGEST_RESULT = 4_000
KEPT_HEAD = KEPT_TAIL = 1_500
KEPT_TURNS = 3
"""The last answers of the model, with their calls and results, stay whole."""

STEP = 8
"""Turns that are shortened, or left out, at a time."""

NO_RESULT = "[no result: the work was interrupted before this call ended]"
_NOTE = "[{n} earlier messages of this conversation are left out]"
NOTE_WEIGHT = 80
_SHORTENED = "\n[… {n} characters left out …]\n"


def pruned(
    history: Sequence[Any],
    *,
    open_calls: bool = False,
    context: int = CONTEXT_TOKENS,
    strict: bool = False,
) -> tuple[Any, ...]:
    """What to tell a model of `context` tokens. `open_calls` says that the calls at the end are
    being answered now. No call is told without its result, and none of the last turns is changed,
    unless it is `strict` and they alone are too long.
    Rows that are no messages are left out; a history in which no row is one, is another backend's
    and stays as it is."""
    rows = [row for row in history if turns.is_message(row)]
    if not rows:
        return tuple(history)
    if len(rows) < len(history):
        log.warning("%d rows of a session's history are no messages", len(history) - len(rows))
    whole = _split(_paired(rows, open_calls=open_calls))
    return tuple(_fitted(whole, int(context * SHARE * BYTES_PER_TOKEN), strict=strict))


Turn = list[Row]
"""One answer of the model, with what led to it and the results of its calls."""


def _fitted(whole: list[Turn], budget: int, *, strict: bool) -> list[Row]:
    steps = max(0, len(whole) - KEPT_TURNS) // STEP * STEP
    told = [_short(turn) for turn in whole[:steps]] + whole[steps:]
    for gone in range(0, steps + 1, STEP):
        if _fits(told, gone, budget):
            return _without(told, gone)
    # The turns since the last step are too long by themselves: then as few of them as must be.
    last = max(0, len(whole) - KEPT_TURNS)
    told = [_short(turn) for turn in whole[:last]] + whole[last:]
    gone = next((n for n in range(last + 1) if _fits(told, n, budget)), last)
    if strict and not _fits(told, gone, budget):
        told, end = [_short(turn) for turn in whole], len(whole) - 1
        gone = next((n for n in range(last, end + 1) if _fits(told, n, budget)), end)
    return _without(told, gone)


def _fits(told: list[Turn], gone: int, budget: int) -> bool:
    note = NOTE_WEIGHT if gone else 0
    return note + sum(turns.weight(row) for turn in told[gone:] for row in turn) <= budget


def _without(told: list[Turn], gone: int) -> list[Row]:
    """Without the first `gone` turns, and with a word in their place."""
    kept = [row for turn in told[gone:] for row in turn]
    if not gone:
        return kept
    left_out = sum(map(len, told[:gone]))
    note = turns.prompt(_NOTE.format(n=left_out), kept[0])
    return [turns.request_of([note]), *kept]


def _split(rows: list[Row]) -> list[Turn]:
    """Turns never end between a call and its result: a request with results belongs to the answer
    before it, one without begins the next."""
    made: list[Turn] = [[]]
    answered = False
    for row in rows:
        if turns.is_response(row):
            if answered:
                made.append([])
            answered = True
        elif answered and not turns.has_results(row):
            made.append([])
            answered = False
        made[-1].append(row)
    if len(made) > 1 and not answered:
        # A question without an answer yet is no turn of its own.
        made[-2:] = [[*made[-2], *made[-1]]]
    return made


def _short(turn: Turn) -> Turn:
    return [turns.with_parts(row, [_shortened(part) for part in row["parts"]]) for row in turn]


def _shortened(part: Part) -> Part:
    text = turns.result_text(part)
    if text is None or len(text) <= LONGEST_RESULT:
        return part
    note = _SHORTENED.format(n=len(text) - KEPT_HEAD - KEPT_TAIL)
    return turns.with_text(part, text[:KEPT_HEAD] + note + text[-KEPT_TAIL:])


def _paired(rows: list[Row], *, open_calls: bool) -> list[Row]:
    """Every call with one result before the model's next answer, and no result without its call."""
    made: list[Row] = []
    first = 0
    while first < len(rows):
        end = first + 1
        while end < len(rows) and not turns.is_response(rows[end]):
            end += 1
        stay_open = open_calls and end == len(rows)
        made += _mended(rows[first:end], stay_open=stay_open)
        first = end
    return made


def _mended(group: list[Row], *, stay_open: bool) -> list[Row]:
    """An answer of the model, and the requests up to the next."""
    head = group[0] if turns.is_response(group[0]) else None
    requests = group if head is None else group[1:]
    left = turns.calls(head) if head is not None else []
    kept = []
    for row in requests:
        parts = [part for part in row["parts"] if _belongs(part, left)]
        if parts:
            kept.append(row if len(parts) == len(row["parts"]) else turns.with_parts(row, parts))
    if left and head is not None and not stay_open:
        missing = [turns.no_result(call, tool, NO_RESULT, head) for call, tool in left]
        if kept:
            kept[0] = turns.with_parts(kept[0], [*missing, *kept[0]["parts"]])
        else:
            kept = [turns.request_of(missing)]
    return kept if head is None else [head, *kept]


def _belongs(part: Part, left: list[tuple[str, str]]) -> bool:
    """True for what is no result, and for the result of a call that is still `left` without one."""
    call = turns.answered(part)
    found = next((each for each in left if each[0] == call), None)
    if call and found is not None:
        left.remove(found)
    return not call or found is not None
