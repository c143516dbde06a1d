"""The invariants at the end of every story, and their violations."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cards.card_json import load_card
from cards.model import Card, ChecklistBlock, TextBlock
from cards.render.text import render
from cards.views.task_parts import STATUS_ICONS
from storage.records.tasks import EventKind, TaskStatus
from tests.chaos.channels import ChannelClient
from tests.chaos.inspection import read_points, rows
from tests.chaos.memory.invariants import MEMORY_INVARIANTS
from tests.chaos.skipped_messages import rightly_skipped, wrongly_skipped
from tests.chaos.transitions import ALL_TRANSITIONS
from tests.chaos.workers.invariants import WORKER_INVARIANTS

REPEATED = "Sent again"
_WORD = re.compile(r"\w{2,}")
_ENDINGS = tuple(kind.value for kind in EventKind if kind.is_ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A telling that is over: its `home`, what stands on the `front`, and the `points` that its
    lives passed through. `troubled` means that the platform itself lost answers; of the `files`
    those that are `unsure` may be missing."""

    home: Path
    front: ChannelClient
    points: Sequence[str]
    ends: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    troubled: bool = False
    unsure: frozenset[str] = frozenset()

    def rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        return rows(self.home, sql, *values)


def unsettled(home: Path, ends: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Everything in the store that is not at its end."""
    questions = {
        "inbox": "SELECT id, state FROM inbox WHERE state = 'new'",
        "outbox": "SELECT key, state FROM outbox WHERE state <> 'shown' OR tried_revision <> 0"
        " OR (revision > 0 AND shown_revision <> revision)",
        "event": "SELECT id, kind FROM events WHERE told_at IS NULL",
    }
    left = [f"{noun} {row}" for noun, sql in questions.items() for row in rows(home, sql)]
    left += wrongly_skipped(home, read_points(home))
    tasks = rows(home, "SELECT instruction, status FROM tasks")
    for words, statuses in ends.items():
        found = [status for instruction, status in tasks if words in instruction]
        if len(found) != 1 or found[0] not in statuses:
            left.append(f"task {words}: {found}")
    if len(tasks) != len(ends):
        left.append(f"{len(tasks)} tasks")
    return left


def chats_caught_up(told: FinishedRun) -> bool:
    """True if the chats have caught up with the store."""
    return not [*_letters(told), *_cards(told)]


def violations(told: FinishedRun) -> list[str]:
    checks = (_tasks, _steps, _files, _moves, _history, _answers, _letters, _cards, _decisions)
    wrong = list(unanswered_messages(told.rows))
    wrong += [f"left: {each}" for each in unsettled(told.home, told.ends)]
    wrong += [each for check in checks for each in check(told)]
    return wrong + [
        each for check in (*WORKER_INVARIANTS, *MEMORY_INVARIANTS) for each in check(told.rows)
    ]


def _tasks(told: FinishedRun) -> Iterator[str]:
    columns = "id, status, ended_at, owner, lease_until, control"
    for task_id, status, ended_at, owner, lease, control in told.rows(
        f"SELECT {columns} FROM tasks"
    ):
        final = status in {"completed", "failed", "cancelled"}
        if (ended_at is not None) != final or owner or lease is not None or control != "run":
            yield f"task {task_id} is not put down properly: {status} {ended_at} {owner} {control}"
        if status == "running":
            yield f"task {task_id} runs, and nobody runs it"


def _steps(told: FinishedRun) -> Iterator[str]:
    """A step that was finished is never begun again, and no call was made unannounced."""
    attempts: dict[tuple[str, str], list[tuple[int, Any, str]]] = {}
    for task_id, path, *attempt in told.rows(
        "SELECT task_id, path, attempt, ended_at, error FROM node_attempts ORDER BY 1, 2, 3"
    ):
        attempts.setdefault((task_id, path), []).append((*attempt,))
    for task_id, path, status, last in told.rows(
        "SELECT task_id, path, status, attempt FROM node_runs"
    ):
        tried = attempts.get((task_id, path), [])
        good = [number for number, ended, error in tried if ended is not None and not error]
        # What costs nothing but a line in the store is never tried.
        if status == "done" and tried and good != [last]:
            yield f"{task_id} {path} is {status}: attempts {tried}"
        open_tries = path != "@plan" and any(ended is None for _, ended, _ in tried)
        if status == "running" or open_tries:
            yield f"{task_id} {path} is {status} and still runs: {tried}"
    announced = Counter(task_id for task_id, _ in attempts for _ in attempts[task_id, _])
    asked = Counter(
        line.split(" ")[2]
        for line in told.points
        if line.startswith("asked") and not line.startswith("asked helper")
    )
    for task_id, number in announced.items():
        if asked[task_id] > number:
            yield f"{task_id}: {asked[task_id]} calls, {number} announced"


def _files(told: FinishedRun) -> Iterator[str]:
    made = {path.name: path.read_text() for path in told.home.glob("work/*/*") if path.is_file()}
    if made.keys() - told.files.keys() or told.files.keys() - made.keys() - told.unsure:
        yield f"files {sorted(made)}"
    for name, text in told.files.items():
        if text and name in made and made[name].strip() != text:
            yield f"{name} says {made[name]!r}"


def _moves(told: FinishedRun) -> Iterator[str]:
    """Only transitions that are on the list, and no finished step ever moves again."""
    finished: set[str] = set()
    aside = {
        f"moved inbox.new>failed {number}" for number in rightly_skipped(told.home, told.points)
    }
    for line in told.points:
        if not line.startswith("moved ") or line in aside:
            continue
        _, move, name = line.split(" ", 2)
        if move not in ALL_TRANSITIONS:
            yield f"unheard-of transition {move} of {name}"
        if name in finished and not name.endswith("/@plan"):
            yield f"{name} was finished, and then {move}"
        if move == "node.running>done":
            finished.add(name)


def _history(told: FinishedRun) -> Iterator[str]:
    """Each thing happened once: made, planned, and each end told with a message of its own."""
    for task_id, version in told.rows("SELECT id, graph_version FROM tasks"):
        kinds = Counter(
            kind for (kind,) in told.rows("SELECT kind FROM events WHERE task_id=?", task_id)
        )
        if kinds["created"] != 1 or kinds["completed"] > 1:
            yield f"task {task_id}: events {dict(kinds)}"
        if kinds["planned"] + kinds["injected"] != version:
            yield f"task {task_id}: plan {version}, events {dict(kinds)}"
    yield from _endings(told)


def _endings(told: FinishedRun) -> Iterator[str]:
    """The end in which a task stays is told once. One that it has left again may be told, too, but
    none twice, and none that was not."""
    marks = ",".join("?" for _ in _ENDINGS)
    ended = "SELECT e.task_id, e.id, e.kind, t.status FROM events e JOIN tasks t ON t.id=e.task_id"
    ends = told.rows(f"{ended} WHERE e.kind IN ({marks}) ORDER BY e.id", *_ENDINGS)
    keys = [f"task:{task_id}:end:{number}" for task_id, number, _, _ in ends]
    last = {task_id: f"task:{task_id}:end:{number}" for task_id, number, _, _ in ends}
    stays = {task_id for task_id, _, kind, status in ends if kind == status}
    owed = {key for task_id, key in last.items() if task_id in stays}
    sent = Counter(
        key for (key,) in told.rows("SELECT key FROM outbox WHERE key LIKE 'task:%:end:%'")
    )
    if owed - sent.keys() or sent - Counter(keys):
        yield f"ends owed {owed - sent.keys()}, not owed {sent - Counter(keys)}"


def _answers(told: FinishedRun) -> Iterator[str]:
    """Every message is there once and has one answer: its own, that of the message it was joined
    to, or the card of its task."""
    # A file's row, without a text of its own, has none.
    has_text = "outcome LIKE 'joined %' AND trim(json_extract(incoming, '$.text')) <> ''"
    answered = f"CASE WHEN {has_text} THEN CAST(substr(outcome, 8) AS INTEGER) ELSE id END"
    heard = [
        (number, json.loads(incoming) if isinstance(incoming, str) else incoming, chat)
        for number, incoming, chat in told.rows(f"SELECT {answered}, incoming, chat_id FROM inbox")
    ]
    messages = [each for each in heard if each[1]["kind"] == "message"]
    people = [each for each in messages if not each[1].get("told")]
    if len(people) != told.front.said:
        yield f"{told.front.said} messages said, {len(people)} heard"
    replies = {key for (key,) in told.rows("SELECT key FROM outbox")}
    aside = rightly_skipped(told.home, told.points)
    made = {source for (source,) in told.rows("SELECT source FROM tasks")}
    for number, message, chat in messages:
        if number in aside:
            # It has its apology, and what it had led to before goes on.
            continue
        answers = (f"reply:{number}" in replies) + (
            f"message:{chat}:{message['message_id']}" in made
        )
        if answers != (1 if message["text"].strip() or message.get("told") else 0):
            yield f"{answers} answers to {message['text'][:40]!r}"


def unanswered_messages(rows: Callable[[str], list[tuple[Any, ...]]]) -> Iterator[str]:
    """Every settled event says how it ended, and that is so: a card that is there, or another event
    that it was answered with."""
    cards = {key for (key,) in rows("SELECT key FROM outbox WHERE revision > 0")}
    settled = rows("SELECT id, outcome FROM inbox WHERE state IN ('handled', 'failed')")
    known = {str(number): outcome for number, outcome in settled}
    for number, outcome in known.items():
        how, _, what = outcome.partition(" ")
        there = {
            "card": what in cards,
            "joined": what in known and not known[what].startswith(("joined", "silent")),
            "silent": what in {"bot", "stranger"},
            "toast": True,
            "shell": True,
            "dropped": True,
        }
        if not there.get(how, False):
            yield f"inbox {number} ended as {outcome!r}"


def _letters(told: FinishedRun) -> Iterator[str]:
    """The chats contain what the store has put there; more only where a death or a lost answer
    excuses it, and marked."""
    there = {shown.id: shown for shown in told.front.list_messages()}
    placed = {message for each in _placed(told) for message in each[2]}
    if lost := placed - there.keys():
        yield f"not in the chat: {sorted(lost)}"
    surplus = [there[message] for message in there.keys() - placed]
    marked = sum(REPEATED in each.first for each in there.values())
    files = sum(bool(each.file) for each in surplus)
    if len(surplus) - files > marked or (files and not marked):
        yield f"{len(surplus)} too many, {marked} marked: {[s.text[:60] for s in surplus]}"
    if (marked or surplus) and not (told.troubled or has_excuse(told.points)):
        yield f"{marked} repeats without an excuse"


def count_repeats(front: ChannelClient) -> int:
    return sum(REPEATED in each.first for each in front.list_messages())


def has_excuse(points: Sequence[str]) -> bool:
    """True if some life ended between the note that a letter is tried and the note of its end, or
    the platform's answer came too late: where the machine is busy, a call may run out of time."""
    under_way: set[str] = set()
    for line in points:
        if line.endswith(" outbox.retry_later") and under_way:
            return True
        if line.startswith("moved outbox."):
            _, move, key = line.split(" ", 2)
            (under_way.add if move.endswith(">tried") else under_way.discard)(key)
        elif line.startswith("died") and under_way:
            return True
    return False


def _cards(told: FinishedRun) -> Iterator[str]:
    """Every card shows what the store says it shows."""
    there = {shown.id: shown for shown in told.front.list_messages()}
    for key, card, messages in _placed(told):
        seen = " ".join(there[each].text for each in messages if each in there)
        if missing := _words_of(card) - set(_WORD.findall(seen)):
            yield f"the card {key} lacks {sorted(missing)[:8]}: {seen[:120]!r}"
    titles = {key: card.title for key, card, _ in _placed(told)}
    for task_id, status in told.rows("SELECT id, status FROM tasks"):
        title = titles.get(f"task:{task_id}", "")
        if not title.startswith(STATUS_ICONS[TaskStatus(status)]):
            yield f"the card of {task_id}, which is {status}, says {title!r}"


def _words_of(card: Card) -> set[str]:
    kept = tuple(block for block in card.blocks if isinstance(block, TextBlock | ChecklistBlock))
    return set(_WORD.findall(render(replace(card, blocks=kept)).text))


def _placed(told: FinishedRun) -> Iterator[tuple[str, Card, Sequence[str]]]:
    for key, card, placed in told.rows(
        "SELECT key, card, placed FROM outbox WHERE placed IS NOT NULL AND revision > 0"
    ):
        where = json.loads(placed)
        if where is not None:
            yield key, load_card(json.loads(card)), where["message_ids"]


def _decisions(told: FinishedRun) -> Iterator[str]:
    """Every request is decided once, by a person; none is left open."""
    for number, state, decided in told.rows("SELECT id, state, decided_at FROM approvals"):
        if state == "waiting" or (state in {"approved", "rejected"} and decided is None):
            yield f"approval {number} is {state}, decided {decided}"
