"""Recall of what was said, and how long looking it up takes, against SQLite's own index in the same
run: questions of MemoryBank (Chinese), and entries made up by the thousand."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zlib import crc32

from benchmarks.memory_rows import Language, made_up, questions
from bot.engine.memory.ranking import weighted
from bot.engine.memory.recall import Recall, dated_words
from storage.db import Database
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.imports import Imports
from storage.memory.index import Index
from storage.records.memory.entries import MemoryKind, NewEntry, Scope, ScopeKind
from tests.fresh_store import open_store
from tests.recall.talks import talks

_BAR = 0.91
_P95_BAR = 50.0
_ROWS_BAR = 10_000
POOL = 50
NOW = datetime(2023, 5, 10, 12, tzinfo=UTC)
_DIMENSIONS = 512
_AT_ONCE = 500
LEFT_OUT = "MemoryBank: left out, memory_bank_cn.json is not there (--data DIR)"


@dataclass(frozen=True, slots=True)
class Person:
    """What was said, when and by whom; and what is asked, when, and which of it answers that."""

    name: str
    days: Sequence[str]
    texts: Sequence[str]
    asked: Sequence[tuple[str, datetime, frozenset[int]]]
    senders: Sequence[str]


async def measure() -> list[str]:
    """`--data DIR`, or MEMORY_DATA, is where MemoryBank's Chinese part lies."""
    people = memorybank()
    lines = await _recall("MemoryBank cn", people, _BAR) if people else [LEFT_OUT]
    lines += await _recall("invented talks, zh and en", invented(), 0.0)
    for entries in (1_000, 10_000):
        lines += await _speed(entries, Language.ENGLISH)
        lines += await _speed(entries, Language.CHINESE)
    return lines


async def measure_100k() -> list[str]:
    languages = os.environ.get("MEMORY_LANGUAGES", "english,chinese").split(",")
    return [line for each in languages for line in await _speed(100_000, Language(each))]


async def _recall(of: str, people: Sequence[Person], bar: float) -> list[str]:
    trigram = _by_fts5(people, "trigram")
    ranked = {
        "ours": await _ours(people),
        "FTS5, unicode61": _by_fts5(people, "unicode61"),
        "FTS5, porter": _by_fts5(people, "porter unicode61"),
        "FTS5, trigram": trigram,
        "0.7 vectors + 0.3 FTS5 trigram": _fused(people, trigram),
    }
    measured = {name: figures(people, each) for name, each in ranked.items()}
    lines = [f"{of}, {sum(len(each.asked) for each in people)} questions"]
    lines += [
        f"  {name}: R@1 {f[0]:.3f} · R@3 {f[1]:.3f} · R@5 {f[2]:.3f} · MRR {f[3]:.3f}"
        for name, f in measured.items()
    ]
    ours = measured.pop("ours")
    is_best = all(ours[at] > f[at] for f in measured.values() for at in (2, 3))
    verdict = "kept" if ours[2] >= bar and is_best else "MISSED"
    lines.append(f"  R@5 {ours[2]:.3f} (bar {bar}, and R@5 and MRR above the others: {verdict})")
    return lines


def invented() -> list[Person]:
    people = []
    for talk in talks():
        places = {turn.mark: number for number, turn in enumerate(talk.turns)}
        people.append(
            Person(
                talk.name,
                [turn.at.isoformat() for turn in talk.turns],
                [turn.text for turn in talk.turns],
                [
                    (each.text, each.now, frozenset(places[mark] for mark in each.answers))
                    for each in talk.questions
                ],
                [turn.sender for turn in talk.turns],
            )
        )
    return people


def memorybank() -> list[Person]:
    """Nobody where it does not lie."""
    data = Path(os.environ.get("MEMORY_DATA", "../shared/data/memorybank-cn"))
    if not (data / "memory_bank_cn.json").is_file():
        return []
    bank = json.loads((data / "memory_bank_cn.json").read_text("utf-8"))
    labels = json.loads((data / "labels.json").read_text("utf-8"))
    asked: dict[str, list[str]] = {}
    for line in (data / "probing_questions_cn.jsonl").read_text("utf-8").splitlines():
        asked.update(json.loads(line))
    people = []
    for number, (name, told) in enumerate(bank.items()):
        pairs = [(day, pair) for day, some in told["history"].items() for pair in some]
        answers = [frozenset(n for n in each if n != "day") for each in labels[str(number)]]
        people.append(
            Person(
                name,
                [day for day, _ in pairs],
                [f"{pair['query']}\n{pair['response']}" for _, pair in pairs],
                [(q, NOW, each) for q, each in zip(asked[name], answers, strict=False)],
                [""] * len(pairs),
            )
        )
    return people


Ranked = Mapping[tuple[str, str], Sequence[tuple[int, float]]]
"""Of a person and a question: which pairs were found, and the score of each."""


async def _ours(people: Sequence[Person]) -> Ranked:
    ranked = {}
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder)) as db:
            index = Index(db)
            entries = EntryRepo(db, Ids(), index)
            for person in people:
                scope = Scope(ScopeKind.CUSTOM, person.name)
                await keep(db, index, scope, person)
                for question, now, _ in person.asked:
                    recall = Recall(
                        entries=entries,
                        index=index,
                        words=dated_words(UTC),
                        now=partial(same, now),
                    )
                    found = await recall.within([scope], question, POOL)
                    ranked[person.name, question] = [
                        (int(str(each.entry.extra["at"])), each.score) for each in found
                    ]
    return ranked


def same(now: datetime) -> datetime:
    return now


async def keep(db: Database, index: Index, scope: Scope, person: Person) -> None:
    rows = [
        NewEntry(
            kind=MemoryKind.CELL,
            scope=scope,
            text=text,
            sender=sender,
            thread=day,
            said_at=datetime.fromisoformat(day).replace(tzinfo=UTC),
            source=f"{scope}:{number}",
            extra={"at": number},
        )
        for number, (day, text, sender) in enumerate(
            zip(person.days, person.texts, person.senders, strict=True)
        )
    ]
    async with db.write() as tx:
        await Imports(db, Ids(), index, scope).add(tx, rows, now=NOW)


def _by_fts5(people: Sequence[Person], tokenizer: str) -> Ranked:
    ranked = {}
    for person in people:
        store = sqlite3.connect(":memory:")
        store.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{tokenizer}')")
        told = zip(person.days, person.senders, person.texts, strict=True)
        texts = [f"{day[:10]} {sender} {text}" for day, sender, text in told]
        store.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", enumerate(texts))
        for question, _, _ in person.asked:
            terms = _terms(question, tokenizer)
            found = []
            if terms:
                match = " OR ".join(f'"{term}"' for term in terms)
                found = store.execute(
                    "SELECT rowid, -bm25(t) FROM t WHERE t MATCH ? ORDER BY 2 DESC LIMIT ?",
                    (match, POOL),
                ).fetchall()
            ranked[person.name, question] = found
        store.close()
    return ranked


def _terms(question: str, tokenizer: str) -> Sequence[str]:
    runs = "".join(each if each.isalnum() else " " for each in question).split()
    if tokenizer != "trigram":
        return runs
    return list(dict.fromkeys(run[n : n + 3] for run in runs for n in range(len(run) - 2)))


def _fused(people: Sequence[Person], lexical: Ranked) -> Ranked:
    """The seed's formula. Its vectors here are hashed characters and pairs of them: no model."""
    ranked = {}
    for person in people:
        vectors = [_vector(text) for text in person.texts]
        for question, _, _ in person.asked:
            asked = _vector(question)
            near = {n: sum(map(float.__mul__, asked, each)) for n, each in enumerate(vectors)}
            best = dict(sorted(near.items(), key=lambda pair: -pair[1])[:20])
            scores = weighted(best, dict(lexical[person.name, question][:20]))
            ranked[person.name, question] = sorted(
                ((n, score) for n, score in scores.items()), key=lambda pair: -pair[1]
            )
    return ranked


def _vector(text: str) -> array[float]:
    letters = [each for each in unicodedata.normalize("NFKC", text).lower() if each.isalnum()]
    counts = array("d", bytes(8 * _DIMENSIONS))
    for one, other in zip(letters, [*letters[1:], ""], strict=True):
        for gram in (one, one + other):
            counts[crc32(gram.encode()) % _DIMENSIONS] += 1.0
    norm = sum(each * each for each in counts) ** 0.5 or 1.0
    return array("d", [each / norm for each in counts])


def figures(people: Sequence[Person], ranked: Ranked) -> tuple[float, float, float, float]:
    """R@1, R@3, R@5 and the mean reciprocal rank."""
    sums, asked = [0.0] * 4, 0
    for person in people:
        for question, _, answers in person.asked:
            found = [number for number, _ in ranked[person.name, question]]
            asked += 1
            for at, k in enumerate((1, 3, 5)):
                sums[at] += len(answers.intersection(found[:k])) / len(answers)
            sums[3] += next((1 / n for n, each in enumerate(found, 1) if each in answers), 0.0)
    return sums[0] / asked, sums[1] / asked, sums[2] / asked, sums[3] / asked


async def _speed(entries: int, language: Language) -> list[str]:
    """Each side searches in a process of its own that does nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        began, cpu = time.monotonic(), time.process_time()
        async with open_store(home) as db:
            await _fill(db, entries, language)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        _fill_fts5(home / "fts.db", entries, language)
        (home / "queries.json").write_text(json.dumps(questions(language)), "utf-8")
        size = sum(each.stat().st_size for each in home.glob("shiftboss.db*")) / 1e6
        ours = await _searched(home, "ours", language)
        theirs = await _searched(home, "fts5", language)
    rate = 60 * entries / took
    verdict = "kept" if rate >= _ROWS_BAR else "MISSED"
    name = f"{entries:,} {language}"
    cost = f"{cpu * 1000 / entries:.2f} CPU ms a row, {size:.0f} MB"
    p95 = f" (bar {_P95_BAR:g}: {'kept' if ours['p95'] <= _P95_BAR else 'MISSED'})"
    return [
        f"{name}: {rate:,.0f} rows/min (bar {_ROWS_BAR:,}: {verdict}), {cost}",
        f"{name}: {_told('ours', ours)}{p95}",
        f"{name}: {_told('FTS5 alone', theirs)}",
    ]


def _told(name: str, f: Mapping[str, float]) -> str:
    return (
        f"{name} p50 {f['p50']:.1f} ms, p95 {f['p95']:.1f} ms, CPU {f['cpu']:.1f} ms,"
        f" RSS {f['rss']:.0f} MiB (+{f['grown']:.0f} by searching)"
    )


async def _fill(db: Database, entries: int, language: Language) -> None:
    scope = Scope(ScopeKind.CUSTOM, "bench")
    imports = Imports(db, Ids(), Index(db), scope)
    some: list[NewEntry] = []
    for row in made_up(entries, language):
        some.append(NewEntry(kind=MemoryKind.CELL, scope=scope, **row))
        if len(some) == _AT_ONCE:
            async with db.write() as tx:
                await imports.add(tx, some, now=NOW)
            some = []


def _fill_fts5(path: Path, entries: int, language: Language) -> None:
    tokenizer = "unicode61" if language is Language.ENGLISH else "trigram"
    store = sqlite3.connect(path)
    store.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize='{tokenizer}')")
    texts = ((row["text"],) for row in made_up(entries, language))
    store.executemany("INSERT INTO t(text) VALUES (?)", texts)
    store.commit()
    store.close()


async def _searched(home: Path, side: str, language: Language) -> Mapping[str, float]:
    command = (sys.executable, "-m", "benchmarks.memory_search", side, str(home), language)
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    told, _ = await running.communicate()
    return dict(json.loads(told))
