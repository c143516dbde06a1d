"""Recall of what was said, and the time of a search, against SQLite's own full-text index."""

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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zlib import crc32

from benchmarks.figures import Bar, Figure, LeftOut, Measurement, Scale, at_least, at_most
from benchmarks.memory_rows import Language, made_up, questions
from bot.engine.memory.retriever import MemoryRetriever, make_term_extractor, weighted_score_fusion
from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.bulk_import import ConversationImporter
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import MemoryKind, MemoryScope, MemoryScopeKind, NewMemoryEntry
from storage.search.inverted_index import InvertedIndex
from tests.migrated_database import open_database
from tests.recall.conversations import load_conversations

_RECALL_BAR = at_least(0.91)
POOL = 50
NOW = datetime(2023, 5, 10, 12, tzinfo=UTC)
_DIMENSIONS = 512
_AT_ONCE = 500
MEMORY_BANK_MISSING = LeftOut("MemoryBank cn", "memory_bank_cn.json is not there (--data DIR)")


@dataclass(frozen=True, slots=True)
class Person:
    """One person's conversation: the day, sender and text of each turn, and the questions asked
    about it with their time and the numbers of the turns that answer them."""

    name: str
    days: Sequence[str]
    texts: Sequence[str]
    asked: Sequence[tuple[str, datetime, frozenset[int]]]
    senders: Sequence[str]


async def measure(scale: Scale) -> list[Measurement]:
    """Recall: the questions of MemoryBank's Chinese part, which is not shipped (`--data DIR`), and
    of invented talks in both languages. Each figure is the share of answering turns among the first
    five found, or the mean reciprocal rank. The peers are SQLite's FTS5 with three tokenizers, and
    the older fusion of 0.7 hashed vectors and 0.3 FTS5. Speed: made-up turns by the thousand; each
    side searches in a process of its own that does nothing else."""
    measured: list[Measurement] = []
    if scale is Scale.FULL:
        people = memorybank()
        name = MEMORY_BANK_MISSING.name
        measured += await _recall(name, people, is_judged=True) if people else [MEMORY_BANK_MISSING]
    talks = scale.pick(invented(), a_few_questions())
    measured += await _recall("invented talks", talks, is_judged=False)
    for entries in scale.pick((1_000, 10_000), (50,)):
        for language in scale.pick(tuple(Language), (Language.ENGLISH,)):
            measured += await _speed(entries, language, scale)
    return measured


async def measure_100k(scale: Scale) -> list[Measurement]:
    """The same speed with 100,000 turns."""
    entries = scale.pick(100_000, 50)
    languages = scale.pick(tuple(Language), (Language.CHINESE,))
    return [each for name in languages for each in await _speed(entries, name, scale)]


async def _recall(of: str, people: Sequence[Person], *, is_judged: bool) -> list[Figure]:
    trigram = _by_fts5(people, "trigram")
    ranked = {
        "ours": await _ours(people),
        "FTS5, unicode61": _by_fts5(people, "unicode61"),
        "FTS5, porter": _by_fts5(people, "porter unicode61"),
        "FTS5, trigram": trigram,
        "0.7 vectors + 0.3 FTS5 trigram": _fused(people, trigram),
    }
    scores = {name: figures(people, each) for name, each in ranked.items()}
    ours = scores["ours"]
    best_peer = max(each[2] for name, each in scores.items() if name != "ours")
    recall_bar = _RECALL_BAR if is_judged else None
    return [
        Figure(f"{of}: questions", sum(len(each.asked) for each in people)),
        Figure(f"{of}: ours, R@1", ours[0]),
        Figure(f"{of}: ours, R@5", ours[2], "", recall_bar),
        Figure(f"{of}: ours, R@5 above the best peer", ours[2] - best_peer, "", at_least(0)),
        Figure(f"{of}: ours, MRR", ours[3]),
        *(Figure(f"{of}: {n}, R@5", each[2]) for n, each in scores.items() if n != "ours"),
        *(Figure(f"{of}: {n}, MRR", each[3]) for n, each in scores.items() if n != "ours"),
    ]


def a_few_questions() -> list[Person]:
    """One invented talk with three questions."""
    talk = invented()[0]
    return [replace(talk, asked=talk.asked[:3])]


def invented() -> list[Person]:
    people = []
    for talk in load_conversations():
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
    """MemoryBank's Chinese part; empty where its files are missing."""
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
"""By person and question: the turns found, each with its score."""


async def _ours(people: Sequence[Person]) -> Ranked:
    ranked = {}
    with tempfile.TemporaryDirectory() as folder:
        async with open_database(Path(folder)) as db:
            index = InvertedIndex(db)
            entries = MemoryEntryRepo(db, IdGenerator(), index)
            for person in people:
                scope = MemoryScope(MemoryScopeKind.CUSTOM, person.name)
                await keep(db, index, scope, person)
                for question, now, _ in person.asked:
                    recall = MemoryRetriever(
                        entries=entries,
                        index=index,
                        extract_terms=make_term_extractor(UTC),
                        now=partial(same, now),
                    )
                    found = await recall.search_scopes([scope], question, POOL)
                    ranked[person.name, question] = [
                        (int(str(each.entry.extra["at"])), each.score) for each in found
                    ]
    return ranked


def same(now: datetime) -> datetime:
    return now


async def keep(db: Database, index: InvertedIndex, scope: MemoryScope, person: Person) -> None:
    rows = [
        NewMemoryEntry(
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
        await ConversationImporter(db, IdGenerator(), index, scope).add(tx, rows, now=NOW)


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
    """The seed's formula, with hashed characters and pairs of characters as vectors: no model."""
    ranked = {}
    for person in people:
        vectors = [_vector(text) for text in person.texts]
        for question, _, _ in person.asked:
            asked = _vector(question)
            near = {n: sum(map(float.__mul__, asked, each)) for n, each in enumerate(vectors)}
            best = dict(sorted(near.items(), key=lambda pair: -pair[1])[:20])
            scores = weighted_score_fusion(best, dict(lexical[person.name, question][:20]))
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


async def _speed(entries: int, language: Language, scale: Scale) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        began, cpu = time.monotonic(), time.process_time()
        async with open_database(home) as db:
            await _fill(db, entries, language)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        _fill_fts5(home / "fts.db", entries, language)
        queries = questions(language)[: scale.pick(None, 10)]
        (home / "queries.json").write_text(json.dumps(queries), "utf-8")
        size = sum(each.stat().st_size for each in home.glob("shiftboss.db*")) / 1e6
        ours = await _searched(home, "ours", language)
        theirs = await _searched(home, "fts5", language)
    name = f"{entries:,} {language}"
    return [
        Figure(f"{name}: rows imported", 60 * entries / took, "/min", at_least(10_000)),
        Figure(f"{name}: CPU a row", 1000 * cpu / entries, "ms"),
        Figure(f"{name}: size of the database", size, "MB"),
        *_search_figures(f"{name}: ours", ours, at_most(50)),
        *_search_figures(f"{name}: FTS5 alone", theirs),
    ]


def _search_figures(name: str, of: Mapping[str, float], p95_bar: Bar | None = None) -> list[Figure]:
    return [
        Figure(f"{name}, p50", of["p50"], "ms"),
        Figure(f"{name}, p95", of["p95"], "ms", p95_bar),
        Figure(f"{name}, CPU", of["cpu"], "ms"),
        Figure(f"{name}, resident memory", of["rss"], "MiB"),
        Figure(f"{name}, growth by searching", of["grown"], "MiB"),
    ]


async def _fill(db: Database, entries: int, language: Language) -> None:
    scope = MemoryScope(MemoryScopeKind.CUSTOM, "bench")
    imports = ConversationImporter(db, IdGenerator(), InvertedIndex(db), scope)
    some: list[NewMemoryEntry] = []
    for row in made_up(entries, language):
        some.append(NewMemoryEntry(kind=MemoryKind.CELL, scope=scope, **row))
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
