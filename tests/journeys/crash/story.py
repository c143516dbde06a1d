"""One story, told to a program that dies on the way: what the Boss must find at the end."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.people import User
from tests.journeys.program import Program

_LAUNCHER = (sys.executable, str(Path(__file__).parent / "deadly.py"))
_PATIENCE = 60.0
_LOOK_EVERY = 0.05
_KILLED = -9
REPEATED = "Sent again"
STEPS = 'write "one" to a.txt, then write "two" to b.txt, then summarise notes.txt'
NOTES = b"The queue was long. The queue was kind. Nobody in the queue was in a hurry at all."
TALK = "Write a haiku about queues and save it to haiku.md"


@dataclass(kw_only=True)
class Told:
    """How one telling went. `wrong` lists every promise that was broken; `points` is what the
    lives passed through; `repeats` counts messages sent twice and marked so."""

    point: str
    wrong: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    deaths: int = 0
    repeats: int = 0
    label: str = ""
    output: str = ""


async def fresh_home(folder: Path) -> Path:
    """A home that the program has started on once: where most deaths happen."""
    async with _world() as (telegram, _boss, _chat):
        program = _program(folder, telegram, folder.with_suffix(".witness"))
        try:
            await program.start()
            await program.stop()
        finally:
            await program.end()
    return folder


async def tell(home: Path, points: Sequence[str], *, template: Path | None = None) -> Told:
    """Tell the story, dying once at each point in turn, and look at what is left of it."""
    if template is not None:
        shutil.copytree(template, home)
    told = Told(point=" ".join(points))
    witness = home.with_suffix(".witness")
    async with _world() as (telegram, boss, chat):
        program = _program(home, telegram, witness)
        keeper = asyncio.create_task(_keep_alive(program, points, told))
        try:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await _live_through(telegram, boss, chat, home)
            except TimeoutError:
                told.wrong.append(f"stuck: {_state(home)}; {[m.text[:60] for m in chat.from_bot]}")
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
            await _end_politely(program, told)
        finally:
            keeper.cancel()
            await program.end()
        told.points = witness.read_text().splitlines() if witness.exists() else []
        told.output = program.text
        _look(told, home, chat, telegram)
    return told


async def _live_through(telegram: TelegramEmulator, boss: User, chat: Chat, home: Path) -> None:
    """A task with a file by command, another one by plain words and a press."""
    await boss.sends_document(chat, "notes.txt", NOTES, f"/run {STEPS}")
    await boss.says(chat, TALK)
    proposal = await chat.wait_for(lambda m: "Start" in " ".join(m.buttons), timeout=_PATIENCE)
    boss.press(proposal, next(label for label in proposal.buttons if "Start" in label))
    for name in ("b.txt", "haiku.md"):
        await chat.wait_for(partial(_brings, name), timeout=_PATIENCE)
    while _unsettled(home) or telegram.unconfirmed:
        await asyncio.sleep(_LOOK_EVERY)


def _brings(name: str, message: Message) -> bool:
    return message.from_bot and message.upload is not None and message.upload.name == name


async def _keep_alive(program: Program, points: Sequence[str], told: Told) -> None:
    """A service manager: start again at once whatever has died."""
    foreseen = iter(points)
    base = dict(program.settings)
    while True:
        program.settings = {**base, "DEADLY_POINT": next(foreseen, "")}
        # A death before it says where its web chat is ends the wait for that.
        with suppress(AssertionError):
            await program.start()
        status = await program.dies()
        if status != _KILLED:
            told.wrong.append(f"it ended by itself with status {status}")
            await asyncio.sleep(1)
        told.deaths += 1


async def _end_politely(program: Program, told: Told) -> None:
    status = await program.stop()
    if status == _KILLED:
        # The point was the story's very end: one more life must find nothing to do.
        told.deaths += 1
        program.settings = {**program.settings, "DEADLY_POINT": ""}
        await program.start()
        status = await program.stop()
    if status != 0:
        told.wrong.append(f"it ended with status {status}")


def _look(told: Told, home: Path, chat: Chat, telegram: TelegramEmulator) -> None:
    told.wrong += _left_undone(home)
    told.wrong += _tasks(home, told.points)
    told.wrong += _messages(told, chat, told.points)
    if telegram.unconfirmed:
        told.wrong.append(f"{len(telegram.unconfirmed)} updates unconfirmed")
    if "Traceback" in told.output:
        told.wrong.append("a traceback in the log")
    died = [i for i, line in enumerate(told.points) if line.startswith("died")]
    if died:
        told.label = _last_point(told.points[: died[0]])


def _left_undone(home: Path) -> list[str]:
    return [f"left: {each}" for each in _unsettled(home)]


def _unsettled(home: Path) -> list[str]:
    """Everything in the store that is not at its end."""
    questions = {
        "inbox": "SELECT id, state FROM inbox WHERE state <> 'handled'",
        "outbox": "SELECT key, state FROM outbox WHERE state <> 'shown' OR tried_revision <> 0"
        " OR (revision > 0 AND shown_revision <> revision)",
        "task": "SELECT id, status FROM tasks WHERE status <> 'completed'",
        "event": "SELECT id, kind FROM events WHERE told_at IS NULL",
    }
    try:
        return [
            f"{noun} {tuple(row)}" for noun, sql in questions.items() for row in _rows(home, sql)
        ]
    except sqlite3.Error as error:
        return [str(error)]


def _tasks(home: Path, points: Sequence[str]) -> list[str]:
    wrong = []
    tasks = _rows(home, "SELECT id, ended_at, owner, lease_until FROM tasks")
    if len(tasks) != 2:
        wrong.append(f"{len(tasks)} tasks")
    for task_id, ended_at, owner, lease in tasks:
        if ended_at is None or owner or lease is not None:
            wrong.append(f"task {task_id} is not put down properly")
        for kind in ("created", "completed", "planned"):
            (n,) = _rows(
                home, "SELECT count(*) FROM events WHERE task_id=? AND kind=?", task_id, kind
            )[0]
            if n != 1:
                wrong.append(f"task {task_id}: {n} events {kind}")
        wrong += _steps(home, task_id, points)
    expected = {"a.txt": "one", "b.txt": "two", "notes.txt": "", "haiku.md": ""}
    made = {path.name: path.read_text() for path in home.glob("work/*/*")}
    if made.keys() != expected.keys():
        wrong.append(f"files {sorted(made)}")
    wrong += [
        f"{name} says {made.get(name)!r}"
        for name, text in expected.items()
        if text and made.get(name, "").strip() != text
    ]
    return wrong


def _steps(home: Path, task_id: str, points: Sequence[str]) -> list[str]:
    """A step that was finished is never begun again, and no call was made unannounced."""
    wrong = []
    runs = _rows(home, "SELECT path, status, attempt FROM node_runs WHERE task_id=?", task_id)
    wrong += [f"{task_id} {path} is {status}" for path, status, _ in runs if status != "done"]
    (done,) = _rows(
        home, "SELECT count(*) FROM events WHERE task_id=? AND kind='step_done'", task_id
    )[0]
    if done != len(runs) - 1:
        wrong.append(f"{task_id}: {done} events step_done for {len(runs) - 1} steps")
    announced = 0
    for path, _status, last in runs:
        attempts = _rows(
            home,
            "SELECT attempt, ended_at, error FROM node_attempts WHERE task_id=? AND path=?"
            " ORDER BY attempt",
            task_id,
            path,
        )
        announced += len(attempts)
        good = [number for number, ended, error in attempts if ended is not None and not error]
        if good != [last] or attempts[-1][0] != last or any(e is None for _, e, _ in attempts):
            wrong.append(f"{task_id} {path}: attempts {attempts}")
    asked = sum(line.startswith("asked") and f" {task_id} " in line for line in points)
    if asked > announced:
        wrong.append(f"{task_id}: {asked} calls, {announced} announced")
    return wrong


def _messages(told: Told, chat: Chat, points: Sequence[str]) -> list[str]:
    """Each thing said once; said twice only if it says so and the death excuses it."""
    ours = [m for m in chat.from_bot if not m.deleted]
    kinds: Counter[str] = Counter()
    for message in ours:
        if message.upload is None:
            kinds[_kind(message)] += 1
    told.repeats = sum(REPEATED in m.history[0].text for m in ours)
    expected = Counter({"end 3": 1, "end 2": 1, "live 3": 1, "live 2": 1, "proposal": 1})
    files = Counter(m.upload.name for m in ours if m.upload is not None)
    # Files belong to the letter that brings them: its first message says that it is a repeat.
    wrong = [
        f"{files[name]} times {name}, in {kinds[letter]} letters"
        for name, letter in (("a.txt", "end 3"), ("b.txt", "end 3"), ("haiku.md", "end 2"))
        if not 1 <= files.pop(name, 0) <= kinds[letter]
    ]
    wrong += [f"unexpected {name}" for name in files]
    surplus = (kinds - expected).total()
    missing = expected - kinds
    if missing:
        wrong.append(f"missing {dict(missing)} of {dict(kinds)}")
    if surplus > told.repeats:
        wrong.append(f"{surplus} too many, {told.repeats} marked: {dict(kinds)} {dict(files)}")
    if told.repeats and not _excused(points):
        wrong.append(f"{told.repeats} repeats without an excuse")
    return wrong


def _excused(points: Sequence[str]) -> bool:
    """True if some life ended between the note that a letter is tried and the note of its end."""
    open_letters = 0
    excused = False
    for line in points:
        if line.startswith("commit") and "postman.carry" in line:
            open_letters += 1
        elif line.startswith("commit") and "outbox.shown" in line:
            open_letters = max(0, open_letters - 1)
        elif line.startswith("died"):
            excused = excused or open_letters > 0 or _is_last(line, points, "outbox.shown")
            open_letters = 0
    return excused


def _is_last(death: str, points: Sequence[str], label: str) -> bool:
    """The note of the end was about to be committed."""
    before = points[: points.index(death)]
    return ":before:" in death and bool(before) and label in before[-1]


def _last_point(points: Sequence[str]) -> str:
    counted = [line for line in points if line.split(" ")[0] in {"commit", "call", "statement"}]
    return counted[-1].split(" ", 2)[2] if counted else ""


def _kind(message: Message) -> str:
    text = message.text
    if "Task finished" in text:
        return "end 3" if "notes" in text or "a.txt" in text else "end 2"
    if "▓" in text:
        return "live 3" if "/3" in text else "live 2"
    if any("Start" in label for version in message.history for label in _labels(version)):
        return "proposal"
    return f"? {text[:60]}"


def _labels(version: Any) -> list[str]:
    return [button["text"] for row in version.keyboard for button in row]


def _state(home: Path) -> str:
    return "; ".join(_unsettled(home))[:400]


def _rows(home: Path, sql: str, *values: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{home / 'shiftboss.db'}?mode=ro", uri=True)) as store:
        return [tuple(row) for row in store.execute(sql, values)]


@asynccontextmanager
async def _world() -> AsyncGenerator[tuple[TelegramEmulator, User, Chat], None]:
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        yield telegram, boss, telegram.private_chat(boss)


def _program(home: Path, telegram: TelegramEmulator, witness: Path) -> Program:
    settings = {
        "TELEGRAM_BOT_TOKEN": telegram.token,
        "TELEGRAM_BASE_URL": telegram.base_url,
        "SHIFTBOSS_OWNERS": "telegram:7",
        "DEADLY_WITNESS": str(witness),
    }
    return Program(home=home, settings=settings, command=_LAUNCHER)
