"""The invariants of memory at the end of every story: in the store, in the archive of
conversations, and in the files that show it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from storage.memory.markdown.page_format import MarkdownLayout, parse_page
from storage.records.memory import text_hash
from storage.search.inverted_index import block_position, unpack_postings
from tests.chaos.inspection import rows
from tests.postgresql_server import USES_POSTGRESQL

Rows: TypeAlias = Callable[[str], list[tuple[Any, ...]]]

_OFFSET_BITS = 5
_REFUSED = (
    "No memory ",
    "has changed in the meantime",
    "is not waiting for review",
    "You can't change this memory",
    "Unknown scope",
    "I can't read this file",
    "Nothing to remember",
)


def _sound(rows: Rows) -> Iterator[str]:
    """The store itself: no row points to one that has gone. PostgreSQL checks that always."""
    if USES_POSTGRESQL:
        return
    for table, row, parent, _ in rows("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} points to nothing in {parent}"


def _doubles(rows: Rows) -> Iterator[str]:
    """Nothing that counts is there twice, and of each topic there is one."""
    same = "SELECT scope, kind, max(text), count(*) FROM memories WHERE state = 'active'"
    for scope, kind, text, n in rows(f"{same} AND kind <> 'cell' GROUP BY 1, 2, hash"):
        if n > 1:
            yield f"{n} times in {scope} as {kind}: {text!r}"
    topics = (
        "SELECT scope, \"key\", count(*) FROM memories WHERE state = 'active' AND \"key\" <> ''"
    )
    for scope, key, n in rows(f"{topics} GROUP BY 1, 2"):
        if n > 1:
            yield f"{n} entries in {scope} about {key}"


def _buried(rows: Rows) -> Iterator[str]:
    """Forgotten entries have not come back. A dropped candidate stays, so that it is not proposed
    again."""
    join = "JOIN memory_tombstones t ON t.scope = m.scope AND t.hash = m.hash"
    for number, text in rows(
        f"SELECT m.id, m.text FROM memories m {join} WHERE m.state <> 'rejected'"
    ):
        yield f"{number} was forgotten and is back: {text!r}"


def _succession(rows: Rows) -> Iterator[str]:
    """Superseded entries name their successor and their last day of validity."""
    sql = "SELECT id, superseded_by, invalidated_at FROM memories WHERE state = 'superseded'"
    for number, by, until in rows(sql):
        # One that came out of a backup knows neither.
        if (by is None) != (until is None):
            yield f"{number} was superseded by {by}, and was so until {until}"


def _jobs(rows: Rows) -> Iterator[str]:
    """No piece of a conversation is drawn from twice."""
    drawn: Counter[str] = Counter()
    for (payload,) in rows("SELECT payload FROM memory_jobs WHERE kind = 'extract'"):
        drawn.update(json.loads(payload)["cells"])
    for cell, n in drawn.items():
        if n > 1:
            yield f"cell {cell} is part of {n} jobs"


def _index(rows: Rows) -> Iterator[str]:
    """Search finds all entries and nothing else; each is in its scope's block once."""
    scopes: dict[int, str] = dict(rows("SELECT id, name FROM memory_scopes"))
    indexed: dict[tuple[str, int], Counter[int]] = {}
    for scope, block, lengths in rows("SELECT scope_id, block, lengths FROM memory_blocks"):
        here = indexed.setdefault((scopes[scope], block), Counter())
        here.update(at for at, length in enumerate(lengths) if length)
    there = Counter(
        (scope, *block_position(n)) for scope, n in rows("SELECT scope, number FROM memories")
    )
    found = Counter((scope, block, at) for (scope, block), all_ in indexed.items() for at in all_)
    if there != found:
        yield f"not indexed: {sorted(there - found)}, indexed and gone: {sorted(found - there)}"
    for scope, block, term, data in rows("SELECT scope_id, block, term, data FROM memory_postings"):
        have = {each >> _OFFSET_BITS for each in unpack_postings(data)}
        if strange := have - indexed.get((scopes[scope], block), Counter()).keys():
            yield f"{term!r} is found in what has gone from {scopes[scope]}: {sorted(strange)}"
    counted: dict[str, int] = dict(rows("SELECT name, entries FROM memory_scopes"))
    for scope, n in Counter(scope for scope, *_ in there.elements()).items():
        if counted.get(scope) != n:
            yield f"{scope} has {n} entries and counts {counted.get(scope)}"


def _episodes(rows: Rows) -> Iterator[str]:
    """A turn is told of in one episode at most, and every episode is of turns that are there."""
    cells = {cell for (cell,) in rows("SELECT id FROM memories WHERE kind = 'cell'")}
    told: Counter[str] = Counter()
    for number, evidence in rows("SELECT id, evidence FROM memories WHERE kind = 'episode'"):
        told.update(json.loads(evidence))
        if lost := set(json.loads(evidence)) - cells:
            yield f"episode {number} tells of turns that have gone: {sorted(lost)}"
    for cell, n in told.items():
        if n > 1:
            yield f"{n} episodes tell of {cell}"


def _uses(rows: Rows) -> Iterator[str]:
    """A use is counted once: with the answer, and once more where a task of it has ended."""
    sql = """
        SELECT m.id, m.used, (SELECT count(*) FROM memory_uses u WHERE u.entry = m.id
            AND u.confirmed_at IS NOT NULL), (SELECT count(DISTINCT e.id) FROM memory_uses u
            JOIN events e ON e.task_id = u.task_id AND e.kind IN ('completed', 'failed')
            WHERE u.entry = m.id AND u.confirmed_at IS NOT NULL) FROM memories m
    """
    for number, used, confirmed, ended in rows(sql):
        if used != confirmed + ended:
            yield f"{number} counts {used} uses: {confirmed} answers, {ended} ends of tasks"


def _archive(rows: Rows) -> Iterator[str]:
    """A conversation is told whole: summaries without a gap, then all messages behind them."""
    parts: dict[str, list[tuple[Any, Any]]] = {}
    for summary, message, part in rows(
        "SELECT summary_id, message, part FROM summary_sources ORDER BY summary_id, ordinal"
    ):
        parts.setdefault(summary, []).append((message, part))

    def messages(summary: str) -> list[int]:
        return [
            each
            for message, part in parts.get(summary, ())
            for each in (messages(part) if part is not None else [message])
        ]

    told: dict[str, list[tuple[str, int]]] = {}
    for session, summary, through in rows(
        "SELECT session_id, summary_id, through FROM context_items ORDER BY session_id, ordinal"
    ):
        told.setdefault(session, []).append((summary, through))
    said: dict[str, list[int]] = {}
    for session, seq in rows("SELECT session_id, seq FROM messages ORDER BY session_id, seq"):
        said.setdefault(session, []).append(seq)
    for session, items in told.items():
        covered = [each for summary, _ in items for each in messages(summary)]
        if covered != [each for each in said.get(session, ()) if each <= items[-1][1]]:
            yield f"the summaries of {session} stand for {covered} of {said.get(session)}"
    for session, numbers in said.items():
        if any(new != old + 1 for old, new in pairwise(numbers)):
            yield f"the messages of {session} are {numbers}"
    used = {summary for items in told.values() for summary, _ in items}
    used |= {part for sources in parts.values() for _, part in sources if part is not None}
    for (summary,) in rows("SELECT id FROM summaries"):
        if summary not in used:
            yield f"summary {summary} stands for nothing"


MEMORY_INVARIANTS = (
    _sound,
    _doubles,
    _buried,
    _succession,
    _jobs,
    _index,
    _episodes,
    _uses,
    _archive,
)


def unsettled_memory(home: Path, *, stopped: bool = False) -> list[str]:
    """The open work of memory: jobs, words of the archive, files. When the program is `stopped`, a
    job to which the last message gave rise may wait for the next start."""
    waiting = " AND (tries > 0 OR created_at < (SELECT max(handled_at) FROM inbox))"
    left = [
        f"job {row}"
        for row in rows(
            home,
            "SELECT id, kind, state, why FROM memory_jobs"
            f" WHERE state NOT IN ('done', 'failed', 'gathering'){waiting if stopped else ''}",
        )
    ]
    unread = (
        "SELECT session_id, seq FROM messages WHERE NOT EXISTS (SELECT 1 FROM message_texts t"
        " WHERE t.session_id = messages.session_id AND t.message = messages.seq)"
    )
    left += [f"unread {row}" for row in rows(home, unread)]
    return [*left, *files(home)]


def files(home: Path) -> Iterator[str]:
    """The files show the entries of the store, each once, and nothing else."""
    paths = [each for each in (home / "BOSS.md", home / "MEMORY.md") if each.exists()]
    paths += sorted((home / "memory").rglob("*.md"))
    shown: Counter[tuple[str, str]] = Counter()
    for path in paths:
        name, body = path.relative_to(home), path.read_text()
        book = path.name == "BOSS.md" or path.parent.name == "episodes"
        page = parse_page(body, MarkdownLayout.BOOK if book else MarkdownLayout.LIST)
        shown.update(
            (each.id, text_hash(each.text)) for part in page.sections for each in part.lines
        )
        known = rows(
            home, "SELECT hash FROM memory_files WHERE path LIKE ? ORDER BY path DESC", f"{name}#%"
        )
        if not known or known[0][0] != hashlib.sha256(body.encode()).hexdigest():
            yield f"{name} is not as it was written last"
    active = "SELECT id, hash FROM memories WHERE state = 'active' AND scope NOT LIKE 'custom:%'"
    stored = Counter((number, hashed) for number, hashed in rows(home, active))
    if shown != stored:
        yield f"not in a file: {sorted(stored - shown)}, not in the store: {sorted(shown - stored)}"
    left = [*home.glob(".*.md.*"), *(home / "memory").rglob(".*"), *home.glob("exports/*.part")]
    if left:
        yield f"left beside: {sorted(each.name for each in left)}"


def refused(home: Path) -> Iterator[str]:
    """No order of the Boss was told off for what a life before had done of it."""
    for text, card in rows(
        home,
        "SELECT json_extract(i.incoming, '$.text'), o.card FROM inbox i"
        " JOIN outbox o ON o.\"key\" = 'reply:' || i.id"
        " WHERE json_extract(i.incoming, '$.text') LIKE '/%'",
    ):
        if any(each in card for each in _REFUSED):
            yield f"{text!r} was answered by {card[:200]}"
