"""Memory over time: what fades, what ends, what is made shorter, and what is found by meaning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.inspection import rows
from tests.chaos.memory.ingestion_stories import AT_ONCE, differs
from tests.chaos.memory.invariants import refused
from tests.chaos.memory.scripted_model import ExtractedFact, ScriptedMemoryModel
from tests.chaos.story import CrashStory, ScriptedUser
from tests.emulators.embeddings import KEY, embedding_service
from tests.emulators.models.script import ReceivedRequest, ScriptedReply

_ID = "SELECT id FROM memories WHERE text = ? AND state = 'active'"
_CELL = "SELECT 1 FROM memories WHERE kind = 'cell' AND instr(text, ?)"
_FERRY = "The ferry leaves from pier nine"
_STORM = "The storm has a name"
_BRIDGE = "The bridge is closed for good"
_CARRIED = "The last lines of the conversation before this one"
_A_MONTH = 24 * 26

_OF_TIME = ScriptedMemoryModel(
    drawn=[
        ExtractedFact(cue="ferry", text=_FERRY, category="lessons"),
        ExtractedFact(cue="storm", text=_STORM, category="lessons"),
        ExtractedFact(cue="bridge", text=_BRIDGE, category="pitfalls"),
    ],
    fails_on=["storm"],
)


async def _time(boss: ScriptedUser) -> None:
    """A service that is tired is asked again later; talk ends by silence; facts are archived,
    fall, and go."""

    async def says(text: str) -> None:
        await boss.channel.send_message(text)
        await boss.wait_for_row(_CELL, text)

    await says("We talk about the lanterns of the harbour")
    await says("And about the ropes beside the lanterns")
    boss.advance_clock(0.5)
    await says("From now on: the storm is called by its name")
    await boss.wait_for_row("SELECT 1 FROM memories WHERE kind = 'episode'")
    await boss.wait_for_row("SELECT 1 FROM memory_jobs WHERE tries > 0 AND why <> 'begun'")
    boss.advance_clock(2)
    await says("The weather of the week was good")
    await boss.wait_for_row(_ID, _STORM)
    await says("The bridge is closed for good, they say at the harbour")
    boss.advance_clock(12)
    await says("From now on: the ferry leaves from pier nine")
    await boss.wait_for_row(_ID, _FERRY)
    await boss.wait_for_row(_ID, _BRIDGE)
    await boss.send_command(f"/memory pin {await boss.wait_for_row(_ID, _BRIDGE)}")
    boss.advance_clock(_A_MONTH)
    await boss.wait_for_row(
        "SELECT 1 WHERE (SELECT count(*) FROM memories WHERE state = 'archived') = 2"
    )
    boss.advance_clock(3 * _A_MONTH)
    await boss.wait_for_row(
        "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM memories WHERE text = ?)", _FERRY
    )
    await boss.wait_for_row(
        "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM memories WHERE text = ?)", _STORM
    )


def _faded(home: Path) -> Iterable[str]:
    yield from refused(home)
    yield from differs(home, {(_BRIDGE, "fact", "active"): 1}, gone=[_FERRY, _STORM])
    episodes = rows(home, "SELECT evidence FROM memories WHERE kind = 'episode' ORDER BY number")
    if [len(json.loads(each)) for (each,) in episodes][:1] != [2]:
        yield f"the episodes are {episodes}"


_LINE = ("and so on and on with the garden and what grows in it, " * 55).rstrip()
_KEY = "The garden key hangs behind the shed of Fritz"
_LONG = "They talked of a garden. " * 90


def _of_past(asked: ReceivedRequest) -> ScriptedReply:
    if "Summarise this part" in asked.last_text or "Join these summaries" in asked.last_text:
        return ScriptedReply(text=_LONG)
    if "afterwards" in asked.last_text:
        whole = json.dumps(asked.body, ensure_ascii=False)
        return ScriptedReply(
            text="It is carried over." if _CARRIED in whole else "Nothing was said."
        )
    return ScriptedReply(text=f"heard {asked.last_text.strip()[:9]}")


async def _past(boss: ScriptedUser) -> None:
    """A chat that outgrows what a model is told, over and over; found again, and begun anew."""
    await boss.send_command(f"line 000: {_KEY}")
    turn = 0
    while not await boss.has_row("SELECT 1 FROM summaries WHERE depth = 1") and turn < _MOST:
        turn += 1
        await boss.send_command(f"line {turn:03}: {_LINE}")
    await boss.send_command("/history search garden key Fritz")
    await boss.send_command("/compact")
    await boss.wait_for_row("SELECT 1 FROM memory_jobs WHERE kind = 'compact' AND state = 'done'")
    await boss.send_command("/new")
    await boss.send_command("afterwards: what was it that we said before?")


_MOST = 40
_LINES_SAID = (
    "SELECT substr(json_extract(incoming, '$.text'), 1, 8) FROM inbox"
    " WHERE json_extract(incoming, '$.text') LIKE 'line %'"
)


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
    # Twice at most where a line was put aside, perhaps after it was answered, and said again.
    aside = Counter(line for (line,) in rows(home, f"{_LINES_SAID} AND state = 'failed'"))
    for line, n in said_lines:
        if line.startswith("line ") and n > 1 + aside[line]:
            yield f"{line} stands {n} times in the conversation"
    # One that was joined to the next stands in the middle of its text.
    whole = f"{_LINES_SAID} AND state <> 'failed' AND outcome NOT LIKE 'joined %'"
    lines = {line for (line,) in rows(home, whole)}
    if missing := lines - {line for line, _ in said_lines}:
        yield f"said and not kept: {sorted(missing)}"


async def _meant(boss: ScriptedUser) -> None:
    """New entries get a vector, changed ones a new one, forgotten ones none."""
    vectors = "SELECT 1 WHERE (SELECT count(*) FROM memory_vectors) = CAST(? AS INT)"
    for n, text in enumerate(("My dog is called Findus", "The car is red", "Tea at four"), 1):
        await boss.send_command(f"/memory add {text}")
        await boss.wait_for_row(vectors, str(n))
    car = await boss.wait_for_row(_ID, "The car is red")
    await boss.send_command(f"/memory edit {car} The automobile is blue")
    await boss.wait_for_row(_ID, "The automobile is blue")
    await boss.wait_for_row(vectors, "3")
    await boss.send_command(f"/memory forget {await boss.wait_for_row(_ID, 'Tea at four')}")
    await boss.wait_for_row(vectors, "2")
    await boss.send_command("/memory search vehicle")
    await boss.wait_for_row(vectors, "2")


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
    CrashStory(
        name="time",
        act=_time,
        final_statuses={},
        files={},
        transitions=(
            "kind.>episode",
            "memory.active>archived",
            "memory.archived>gone",
            "job.begun>waiting",
            "file.written>gone",
        ),
        settings={"SHIFTBOSS_MEMORY": AT_ONCE},
        model=_OF_TIME,
        check_memory=_faded,
    ),
    CrashStory(
        name="past",
        act=_past,
        final_statuses={},
        files={},
        transitions=(
            "summary.>leaf",
            "summary.>condensed",
            "place.>there",
            "place.there>gone",
            "debt.>pending",
            "debt.pending>done",
            "debt.done>pending",
        ),
        settings={"SHIFTBOSS_MEMORY": "{extract: false, context_tokens: 2000, tail_messages: 4}"},
        model=_of_past,
        check_memory=_told,
    ),
    CrashStory(
        name="meanings",
        act=_meant,
        final_statuses={},
        files={},
        transitions=(
            "vector.>there",
            "vector.there>gone",
        ),
        model=ScriptedMemoryModel(),
        service=_embedding,
        check_memory=_found,
    ),
)
