"""The invariants of workers at the end of every story: of their calls, the approval requests and
their helpers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

Rows: TypeAlias = Callable[[str], list[tuple[Any, ...]]]

_ENDED = {"done", "failed", "denied", "answered", "cut"}
_HARMLESS = "('read', 'search', 'fetch', 'think', 'ask')"


def _calls(rows: Rows) -> Iterator[str]:
    """Each wish has come to an end, and nothing waits for it any more. Where its task was stopped
    meanwhile it stays open, for the task may be tried again, but nobody is asked."""
    for number, tool, state, suspended, ended in rows(
        "SELECT c.id, c.tool, c.state, c.suspended, c.ended_at FROM tool_calls c"
        " LEFT JOIN tasks t ON t.id = c.task_id WHERE c.state <> 'open' OR NOT c.suspended"
        " OR t.status IS NULL OR t.status <> 'cancelled'"
    ):
        if state not in _ENDED or suspended or ended is None:
            yield f"call {number} of {tool} is {state}, suspended {suspended}, ended {ended}"


def _leave(rows: Rows) -> Iterator[str]:
    """Calls that need approval are made with one, and once for each approval."""
    given: dict[str, str] = dict(rows("SELECT id, state FROM approvals"))
    begun = rows(
        "SELECT id, title, approval_id FROM tool_calls"
        " WHERE started_at IS NOT NULL AND (verdict = 'ask' OR approval_id IS NOT NULL)"
    )
    for number, title, approval in begun:
        if given.get(approval) != "approved":
            yield f"call {number} {title!r} was made without leave: {given.get(approval)}"
    for approval, times in Counter(approval for _, _, approval in begun).items():
        if times > 1:
            yield f"{times} calls were made with the leave {approval} for one"


def _unasked(rows: Rows) -> Iterator[str]:
    """Calls with side effects that need no approval are made once in each attempt at their step; in
    a step that must not repeat, once for each time that the Boss let it continue; in a helper or a
    chat answer, once."""
    made = rows(
        "SELECT COALESCE(task_id, ''), path, COALESCE(chat_id, ''), title, count(*)"
        " FROM tool_calls WHERE started_at IS NOT NULL AND approval_id IS NULL"
        f" AND kind NOT IN {_HARMLESS} AND tool <> 'sessions_spawn'"
        " GROUP BY 1, 2, 3, 4, session_id, command_hash"
    )
    attempts = {
        (task, path): times
        for task, path, times in rows(
            "SELECT task_id, path, count(*) FROM node_attempts GROUP BY 1, 2"
        )
    }
    blocked: dict[str, int] = dict(
        rows("SELECT task_id, count(*) FROM events WHERE kind = 'blocked' GROUP BY task_id")
    )
    unsafe = set(_unsafe(rows))
    for task, path, chat, title, times in made:
        most = attempts.get((task, path), 1)
        if (task, path) in unsafe:
            most = 1 + blocked.get(task, 0)
        if times > most:
            yield f"{title!r} of {task or chat} {path} was made {times} times, at most {most}"


def _unsafe(rows: Rows) -> Iterator[tuple[str, str]]:
    for task, body in rows("SELECT task_id, body FROM task_graphs"):
        for node in json.loads(body)["nodes"]:
            if not node["repeatable"]:
                yield task, node["id"]


def _asked_once(rows: Rows) -> Iterator[str]:
    """No request waits beside another one about exactly the same."""
    asked: dict[Any, list[tuple[Any, Any, str]]] = {}
    for number, created, decided, *about in rows(
        "SELECT id, created_at, decided_at, task_id, path, chat_id, command_hash FROM approvals"
        " WHERE kind IN ('tool', 'question') ORDER BY created_at"
    ):
        asked.setdefault(tuple(about), []).append((created, decided, number))
    for requests in asked.values():
        for (_, until, first), (since, _, second) in pairwise(requests):
            if until is None or since < until:
                yield f"{first} and {second} asked about the same at the same time"


def _requests(rows: Rows) -> Iterator[str]:
    """Each request has a card in the chat where it was asked, which offers nothing any more."""
    cards: dict[str, list[tuple[str, str]]] = {}
    for key, chat, card in rows(
        'SELECT "key", chat_id, card FROM outbox WHERE "key" LIKE \'approval:%\''
    ):
        cards.setdefault(key.split(":")[1], []).append((chat, card))
    for number, chat, state, decided in rows(
        "SELECT id, chat_id, state, decided_by FROM approvals WHERE kind IN ('tool', 'question')"
    ):
        if decided is not None and chat not in {each for each, _ in cards.get(number, [])}:
            yield f"request {number} was decided, and is on no card in {chat}"
        for _, card in cards.get(number, []):
            if '"decide"' in card:
                yield f"the card of {number}, which is {state}, still offers to decide: {card}"


def _helpers(rows: Rows) -> Iterator[str]:
    """Each has ended and its parent knows; the parent was told in its transcript once, unless it
    is stopped. One that failed may be sent off again, by a step that is made anew."""
    said = [
        (session, json.dumps(content if not isinstance(content, str) else json.loads(content)))
        for session, content in rows("SELECT session_id, content FROM messages")
    ]
    final: dict[str, str] = dict(rows("SELECT id, status FROM tasks"))
    for helper, status, delivered, parent, task in rows(
        "SELECT id, status, delivered_at, parent_session, task_id FROM helpers"
    ):
        if status not in {"done", "failed"} or delivered is None:
            yield f"helper {helper} is {status}, told at {delivered}"
        told = _tellings(helper, said, "" if task else parent)
        if told != 1 and not (told == 0 and final.get(task) == "cancelled"):
            yield f"the parent of helper {helper} was told {told} times"
    twice = rows(
        "SELECT COALESCE(task_id, parent_session), label, count(*) FROM helpers"
        " WHERE task_id IS NULL OR status <> 'failed' GROUP BY 1, label HAVING count(*) > 1"
    )
    for parent, label, times in twice:
        yield f"{times} helpers {label!r} of {parent}"


def _tellings(helper: str, said: Sequence[tuple[str, str]], parent: str) -> int:
    """In all transcripts where the parent may have changed its session."""
    words = json.dumps(f"Helper {helper} “")[1:-1]
    return sum(text.count(words) for session, text in said if session == parent or not parent)


def _talks(rows: Rows) -> Iterator[str]:
    """Talk that was let go on has answered once."""
    letters = Counter(
        key for (key,) in rows('SELECT "key" FROM outbox WHERE "key" LIKE \'talk:%\'')
    )
    decided = rows(
        "SELECT id, title FROM tool_calls WHERE task_id IS NULL AND path = ''"
        " AND approval_id IS NOT NULL AND (started_at IS NOT NULL OR state = 'denied')"
    )
    for number, title in decided:
        if letters[f"talk:{number}"] != 1:
            yield f"{letters[f'talk:{number}']} answers after {title!r} was decided"


def _finished_once(rows: Rows) -> Iterator[str]:
    """A call that has a result is never made again under its id."""
    for session, call, title, times in rows(
        "SELECT session_id, CASE instr(call_id, '#again-') WHEN 0 THEN call_id"
        " ELSE substr(call_id, 1, instr(call_id, '#again-') - 1) END AS own, max(title), count(*)"
        " FROM tool_calls WHERE started_at IS NOT NULL AND state IN ('done', 'failed')"
        " AND backend <> 'offline'"  # its calls have no ids of their own
        " GROUP BY session_id, own HAVING count(*) > 1"
    ):
        yield f"call {call} {title!r} of session {session} was finished {times} times"


WORKER_INVARIANTS = (
    _calls,
    _leave,
    _unasked,
    _finished_once,
    _asked_once,
    _requests,
    _helpers,
    _talks,
)
