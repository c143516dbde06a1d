"""Memory over time: what fades, what ends, what is made shorter, and what is found by meaning."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.boss import Boss, Story
from tests.chaos.memory.mind import Drawn, Mind
from tests.chaos.memory.promises import refused
from tests.chaos.memory.talking import AT_ONCE, differs
from tests.chaos.store import rows
from tests.emulators.embeddings import KEY, embedding_service
from tests.emulators.models.script import Asked, Reply

_ID = "SELECT id FROM memories WHERE text = ? AND state = 'active'"
_CELL = "SELECT 1 FROM memories WHERE kind = 'cell' AND instr(text, ?)"
_FERRY = "The ferry leaves from pier nine"
_STORM = "The storm has a name"
_BRIDGE = "The bridge is closed for good"
_CARRIED = "The last lines of the conversation before this one"
_A_MONTH = 24 * 26

_OF_TIME = Mind(
    drawn=[
        Drawn(cue="ferry", text=_FERRY, category="lessons"),
        Drawn(cue="storm", text=_STORM, category="lessons"),
        Drawn(cue="bridge", text=_BRIDGE, category="pitfalls"),
    ],
    fails_on=["storm"],
)


async def _time(boss: Boss) -> None:
    """A service that is tired is asked again later; talk ends by silence; facts are archived,
    fall, and go."""

    async def says(text: str) -> None:
        await boss.front.says(text)
        await boss.until(_CELL, text)

    await says("We talk about the lanterns of the harbour")
    await says("And about the ropes beside the lanterns")
    boss.waits(0.5)
    await says("From now on: the storm is called by its name")
    await boss.until("SELECT 1 FROM memories WHERE kind = 'episode'")
    await boss.until("SELECT 1 FROM memory_jobs WHERE tries > 0 AND why <> 'begun'")
    boss.waits(2)
    await says("The weather of the week was good")
    await boss.until(_ID, _STORM)
    await says("Somebody crossed the bridge in the rain")
    boss.waits(12)
    await says("From now on: the ferry is caught at nine")
    await boss.until(_ID, _FERRY)
    await boss.until(_ID, _BRIDGE)
    await boss.orders(f"/memory pin {await boss.until(_ID, _BRIDGE)}")
    boss.waits(_A_MONTH)
    await boss.until("SELECT 1 WHERE (SELECT count(*) FROM memories WHERE state = 'archived') = 2")
    boss.waits(3 * _A_MONTH)
    await boss.until("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM memories WHERE text = ?)", _FERRY)
    await boss.until("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM memories WHERE text = ?)", _STORM)


def _faded(home: Path) -> Iterable[str]:
    yield from refused(home)
    yield from differs(home, {(_BRIDGE, "fact", "active"): 1}, gone=[_FERRY, _STORM])
    episodes = rows(home, "SELECT evidence FROM memories WHERE kind = 'episode' ORDER BY number")
    if [len(json.loads(each)) for (each,) in episodes][:1] != [2]:
        yield f"the episodes are {episodes}"


_LINE = "and so on and on with the garden and what grows in it, " * 55
_KEY = "The garden key hangs behind the shed of Fritz"
_LONG = "They talked of a garden. " * 90


def _of_past(asked: Asked) -> Reply:
    if "Summarise this part" in asked.last or "Join these summaries" in asked.last:
        return Reply(text=_LONG)
    if "afterwards" in asked.last:
        whole = json.dumps(asked.body, ensure_ascii=False)
        return Reply(text="It is carried over." if _CARRIED in whole else "Nothing was said.")
    return Reply(text=f"heard {asked.last.strip()[:9]}")


async def _past(boss: Boss) -> None:
    """A chat that outgrows what a model is told, over and over; found again, and begun anew."""
    await boss.orders(f"line 000: {_KEY}")
    turn = 0
    while not await boss.has("SELECT 1 FROM summaries WHERE depth = 1") and turn < _MOST:
        turn += 1
        await boss.orders(f"line {turn:03}: {_LINE}")
    await boss.orders("/history search garden key Fritz")
    await boss.orders("/compact")
    await boss.until("SELECT 1 FROM memory_jobs WHERE kind = 'compact' AND state = 'done'")
    await boss.orders("/new")
    await boss.orders("afterwards: what was it that we said before?")


_MOST = 40


def _told(home: Path) -> Iterable[str]:
    yield from refused(home)
    replies = (
        "SELECT o.card FROM inbox i JOIN outbox o ON o.\"key\" = 'reply:' || i.id"
        " WHERE json_extract(i.incoming, '$.text') LIKE ?"
    )
    for said, wanted in (("/history%", _KEY), ("afterwards%", "It is carried over.")):
        found = rows(home, replies, said)
        if len(found) != 1 or wanted not in found[0][0]:
            yield f"{said} was answered by {str(found)[:300]}"
    if not rows(home, "SELECT 1 FROM summaries WHERE depth = 1"):
        yield "no summaries were joined"
    said_lines = rows(
        home,
        "SELECT substr(text, 1, 8), count(*) FROM message_texts WHERE role = 'user' GROUP BY 1",
    )
    for line, n in said_lines:
        if line.startswith("line ") and n != 1:
            yield f"{line} stands {n} times in the conversation"
    lines = rows(
        home, "SELECT count(*) FROM inbox WHERE json_extract(incoming, '$.text') LIKE 'line %'"
    )
    there = sum(line.startswith("line ") for line, _ in said_lines)
    if there != lines[0][0]:
        yield f"{lines[0][0]} lines were said, {there} are kept"


async def _meant(boss: Boss) -> None:
    """What is written gets its vector; what is changed another one, what is forgotten none."""
    vectors = "SELECT 1 WHERE (SELECT count(*) FROM memory_vectors) = CAST(? AS INT)"
    for n, text in enumerate(("My dog is called Findus", "The car is red", "Tea at four"), 1):
        await boss.orders(f"/memory add {text}")
        await boss.until(vectors, str(n))
    car = await boss.until(_ID, "The car is red")
    await boss.orders(f"/memory edit {car} The automobile is blue")
    await boss.until(_ID, "The automobile is blue")
    await boss.until(vectors, "3")
    await boss.orders(f"/memory forget {await boss.until(_ID, 'Tea at four')}")
    await boss.until(vectors, "2")
    await boss.orders("/memory search vehicle")
    await boss.until(vectors, "2")


def _found(home: Path) -> Iterable[str]:
    yield from refused(home)
    sql = "SELECT m.text FROM memories m LEFT JOIN memory_vectors v ON v.number = m.number"
    bare = rows(home, f"{sql} WHERE v.number IS NULL AND m.kind = 'longterm'")
    if bare:
        yield f"without a vector: {bare}"
    card = rows(
        home,
        "SELECT o.card FROM inbox i JOIN outbox o ON o.\"key\" = 'reply:' || i.id"
        " WHERE json_extract(i.incoming, '$.text') = '/memory search vehicle'",
    )
    if len(card) != 1 or "automobile" not in card[0][0]:
        yield f"the vehicle is not found: {str(card)[:200]}"


@asynccontextmanager
async def _embedding() -> AsyncGenerator[Mapping[str, str], None]:
    async with embedding_service() as service:
        yield {
            "EMBEDDING_BASE_URL": f"{service.url}/v1",
            "EMBEDDING_MODEL": "small",
            "EMBEDDING_API_KEY": KEY,
        }


STORIES = (
    Story(
        name="time",
        live=_time,
        ends={},
        files={},
        moves=(
            "kind.>episode",
            "memory.active>archived",
            "memory.archived>gone",
            "job.begun>waiting",
            "file.written>gone",
        ),
        settings={"SHIFTBOSS_MEMORY": AT_ONCE},
        mind=_OF_TIME,
        remembered=_faded,
    ),
    Story(
        name="past",
        live=_past,
        ends={},
        files={},
        moves=(
            "summary.>leaf",
            "summary.>condensed",
            "place.>there",
            "place.there>gone",
            "debt.>pending",
            "debt.pending>done",
            "debt.done>pending",
        ),
        settings={"SHIFTBOSS_MEMORY": "{extract: false, context_tokens: 2000, tail_messages: 4}"},
        mind=_of_past,
        remembered=_told,
    ),
    Story(
        name="meanings",
        live=_meant,
        ends={},
        files={},
        moves=(
            "vector.>there",
            "vector.there>gone",
        ),
        mind=Mind(),
        service=_embedding,
        remembered=_found,
    ),
)
