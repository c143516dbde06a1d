"""Memory that is written by the program: out of talk and of tasks, with a model and without."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.chaos.inspection import rows
from tests.chaos.memory.invariants import refused
from tests.chaos.memory.scripted_model import ExtractedFact, ScriptedMemoryModel
from tests.chaos.story import CrashStory, ScriptedUser

AT_ONCE = "{extract: true, extract_after_seconds: 0}"

_PEANUTS = "The Boss cannot eat peanuts"
_TEA = "The Boss drinks green tea"
_CHESS = "The Boss plays chess"
_SAUNA = "The Boss likes the sauna"
_OPERA = "The Boss likes the opera"
_VIM = "The Boss edits everything in vim"
_LIVES_IN_ULM = "From now on I live in Ulm"
_PUT_ASIDE = "SELECT 1 FROM inbox WHERE state = 'failed' AND json_extract(incoming, '$.text') = ?"
_ULM, _BONN = "The Boss lives in Ulm", "The Boss lives in Bonn"
_POND, _SHED = "The garden has a pond", "The garden has a shed"
_BOTH = "The garden has a pond and a shed"
_PORT = "The harbour desk listens on port 9191"

_MIND = ScriptedMemoryModel(
    drawn=[
        ExtractedFact(cue="peanuts", topic="allergy", text=_PEANUTS),
        ExtractedFact(cue="green tea", topic="drink", text=_TEA, category="preferences"),
        ExtractedFact(cue="chess", topic="game", text=_CHESS, category="preferences"),
        ExtractedFact(cue="sauna", topic="sauna", text=_SAUNA, category="preferences"),
        ExtractedFact(cue="opera", topic="opera", text=_OPERA, category="preferences"),
        ExtractedFact(cue="Ulm", topic="home", text=_ULM),
        ExtractedFact(cue="Bonn", topic="home", text=_BONN, confidence=0.9),
        ExtractedFact(cue="pond", topic="garden", text=_POND, category="entities"),
        ExtractedFact(cue="shed", topic="garden", text=_SHED, category="entities"),
        ExtractedFact(
            cue="vim", topic="editor", text=_VIM, category="preferences", confidence=0.95
        ),
        ExtractedFact(cue="harbour", text=_PORT, category="lessons"),
    ],
    verdicts={
        _BONN: {"decision": "supersede", "match": 1},
        _SHED: {"decision": "merge", "match": 1, "merged": _BOTH},
    },
    answers={"Which port": "It is 9191."},
)

_DONE_JOBS = (
    "SELECT 1 WHERE (SELECT count(*) FROM memory_jobs WHERE state = 'done') >= CAST(? AS INT)"
)
_CANDIDATE = "SELECT id FROM memories WHERE state = 'candidate' AND text = ?"


async def _notes(boss: ScriptedUser) -> None:
    """Statements become cells, facts and profiles; they are supported, superseded and merged,
    promoted automatically or by the Boss, and forgotten."""
    jobs = 0

    async def says(text: str, *, jobs_more: int = 1) -> None:
        nonlocal jobs
        jobs += jobs_more
        await boss.channel.send_message(text)
        await boss.wait_for_row(
            "SELECT 1 FROM memories WHERE kind = 'cell' AND instr(text, ?)", text
        )
        await boss.wait_for_row(_DONE_JOBS, str(jobs))

    await says("From now on call me Ann, and keep it short")
    await says("From now on: no peanuts, but green tea and chess")
    await says("From now on, once more: never peanuts, always green tea and chess")
    await boss.channel.press("Keep", about="worth remembering")
    await boss.wait_for_row(
        "SELECT 1 WHERE (SELECT count(*) FROM memories WHERE kind = 'longterm'"
        " AND state = 'active' AND origin = 'manual') = 3"
    )
    await says("From now on the sauna is heated for me")
    await says("From now on: the sauna again, please")
    await boss.send_command(f"/candidates drop {await boss.wait_for_row(_CANDIDATE, _SAUNA)}")
    await says("From now on we go to the opera together")
    await says("From now on: the opera again, please")
    await boss.send_command(f"/candidates keep {await boss.wait_for_row(_CANDIDATE, _OPERA)}")
    await says(_LIVES_IN_ULM)
    await says("From now on I live in Bonn")
    await says("From now on the garden has its pond")
    await says("From now on the garden has its shed too")
    for turn in ("first", "second", "third"):
        await says(f"I edit everything, also the {turn} letter, in vim", jobs_more=0)
    await says("I edit everything, also the fourth letter, in vim")
    await says("No, that's wrong, the harbour desk should be on 9191")
    await boss.channel.send_message("Which port does the desk of the harbour use?")
    await boss.wait_for_row("SELECT 1 FROM memory_uses WHERE confirmed_at IS NOT NULL")
    forgotten = await boss.wait_for_row(
        "SELECT id FROM memories WHERE text = ? AND kind = 'longterm'", _PEANUTS
    )
    await boss.send_command(f"/memory forget {forgotten}")
    await says("From now on, as I said before: peanuts are not for me")


def _noted(home: Path) -> Iterable[str]:
    yield from refused(home)
    # Put aside after its turn was kept, the first home is told once more, after the second.
    again = rows(home, _PUT_ASIDE, _LIVES_IN_ULM)
    current, past = (_ULM, _BONN) if again else (_BONN, _ULM)
    wanted = {
        (_TEA, "longterm", "active"): 1,
        (_CHESS, "longterm", "active"): 1,
        (_OPERA, "longterm", "active"): 1,
        (current, "profile", "active"): 1,
        (past, "profile", "superseded"): 1,
        (_BOTH, "fact", "active"): 1,
        (_VIM, "longterm", "active"): 1,
    }
    yield from differs(home, wanted, gone=[_PEANUTS, _POND, _SHED])
    sauna = "SELECT kind, state FROM memories WHERE text = ? ORDER BY state"
    # Dropped, and with it the fact below.
    if (found := rows(home, sauna, _SAUNA)) != [("longterm", "rejected")]:
        yield f"{_SAUNA} is {found}"
    cells = "SELECT count(*) FROM memories WHERE kind = 'cell'"
    # Two went with the peanuts, two with the sauna.
    # A message may be put aside after its turn was kept, and is then said again.
    aside = rows(home, "SELECT count(*) FROM inbox WHERE state = 'failed'")[0][0]
    if not _CELLS <= (cell_count := rows(home, cells)[0][0]) <= _CELLS + aside:
        yield f"{cell_count} turns are kept, not {_CELLS}"


_CELLS = 14


def differs(
    home: Path, wanted: dict[tuple[str, str, str], int], *, gone: Iterable[str] = ()
) -> Iterable[str]:
    """Of these words what is wanted, and nothing more."""
    sql = "SELECT text, kind, state, count(*) FROM memories GROUP BY 1, 2, 3"
    there = {(text, kind, state): n for text, kind, state, n in rows(home, sql)}
    for key, n in wanted.items():
        if there.get(key, 0) != n:
            others = [each for each in there if each[0] == key[0]]
            yield f"{key} is there {there.get(key, 0)} times, not {n}: {others}"
    for text in gone:
        if found := [each for each in there if each[0] == text]:
            yield f"{text!r} is there: {found}"


STORIES = (
    CrashStory(
        name="notes",
        act=_notes,
        final_statuses={},
        files={},
        transitions=(
            "kind.>cell",
            "kind.>fact",
            "kind.>profile",
            "kind.>longterm",
            "memory.>active",
            "memory.>candidate",
            "memory.active>superseded",
            "memory.candidate>active",
            "memory.candidate>rejected",
            "memory.superseded>gone",
            "job.>gathering",
            "job.>waiting",
            "job.gathering>waiting",
            "job.waiting>begun",
            "job.begun>done",
            "tier.>peripheral",
            "tier.>working",
            "use.>shown",
            "use.>confirmed",
            "words.>there",
        ),
        settings={"SHIFTBOSS_MEMORY": AT_ONCE},
        model=_MIND,
        check_memory=_noted,
    ),
)
