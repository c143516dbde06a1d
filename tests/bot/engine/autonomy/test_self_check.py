"""The self-check: told once on change and once on recovery, over starts and deaths."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cards.catalog import catalog_for
from storage.records.autonomy import HealthFinding, HealthGrade
from storage.records.people import Language
from storage.records.tasks import Task
from tests.bot.engine.autonomy.self_check_world import (
    LOW,
    STUCK,
    SelfCheckWorld,
    ToldCheck,
    self_check_world,
)
from tests.bot.engine.schedule.schedule_world import Death
from tests.engine_harness import BOSS, CHAT

WORDS = catalog_for(Language.ENGLISH)


async def test_a_problem_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        healthy = await world.run()
        world.check.findings = [LOW]
        new = await world.run(minutes=30)
        world.check.findings = [replace(LOW, facts={"free_bytes": 2})]
        same = await world.run(minutes=30)
        world.check.findings = []
        over = await world.run(minutes=30)
        still_over = await world.run(minutes=30)

        assert healthy == same == still_over == ""
        assert "Self-check: 1 problem" in new
        assert "1 problem resolved" in over
        (incident,) = await world.repo.list_incidents(9)
        assert incident.ended_at is not None
        assert incident.finding.facts == {"free_bytes": 2}


@pytest.mark.parametrize("moment", range(3))
async def test_a_death_at_any_moment_tells_it_exactly_once(tmp_path: Path, moment: int) -> None:
    """While the card is written, while the change is committed, after it."""
    async with self_check_world(tmp_path) as world:
        world.check.findings = [LOW]
        world.poster.death = moment
        with pytest.raises(Death):
            await world.run()
        runs = len(await world.repo.list_runs(9))
        # The run that was not committed has not taken a number.
        world.runs = runs
        told_before = runs and await world.poster.has(f"self-check:1:{CHAT.id}")

        told_after = await world.run(minutes=30)
        again = await world.run(minutes=30)

        assert bool(told_before) != bool(told_after)
        assert again == ""
        assert len(await world.repo.list_incidents(9)) == 1


async def test_a_problem_that_comes_and_goes_is_told_less(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        cards = []
        for there in (True, False, True, False, True, False, True, False, True):
            world.check.findings = [LOW] if there else []
            cards.append(await world.run(minutes=30))
        world.check.findings = []
        gone = [await world.run(hours=4), await world.run(hours=4), await world.run(hours=4)]

        assert "Back again" in cards[2]
        assert "comes and goes" in cards[4]
        assert cards[5:] == [""] * 4
        assert [bool(each) for each in gone] == [False, False, True]
        assert len(await world.repo.list_incidents(9)) == 1


async def test_a_problem_after_a_day_is_a_new_one(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [LOW]
        await world.run()
        world.check.findings = []
        await world.run(minutes=30)
        world.check.findings = [LOW]

        card = await world.run(days=2)

        assert "back" not in card
        assert [each.ended_at is None for each in await world.repo.list_incidents(9)] == [
            True,
            False,
        ]


async def test_a_check_that_raises_is_a_problem_itself_and_stops_no_other(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [LOW]
        await world.run()
        world.check.error = OSError("no such device")

        card = await world.run(ToldCheck(name="money", findings=[STUCK], helps=False), minutes=30)

        assert "The check itself failed: no such device" in card
        assert "The queue is stuck" in card
        assert "over" not in card, "nothing is known of what it found before"
        (report,) = await world.repo.list_runs(1)
        assert report.grade is HealthGrade.FAIL


async def test_a_check_that_takes_too_long_is_left(tmp_path: Path) -> None:
    class Slow(ToldCheck):
        async def find(self) -> list[HealthFinding]:
            raise TimeoutError

    async with self_check_world(tmp_path) as world:
        report = await world.service(Slow(name="store")).check()

        (slow,) = report.results[1].findings
        assert slow.text == "check_slow"
        assert not report.results[1].is_complete


async def test_a_safe_repair_is_made_and_told_once(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [STUCK]

        card = await world.run()
        after = await world.run(minutes=30)

        assert "Woke the queue" in card
        assert "is stuck" not in card, "it is repaired"
        assert after == ""
        assert world.check.repairs == ["wake_tasks"]


async def test_a_repair_that_does_not_help_leaves_a_problem(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings, world.check.helps = [STUCK], False

        card = await world.run()
        after = await world.run(minutes=30)

        assert "is stuck" in card
        assert "Woke" not in card
        assert after == ""
        assert world.check.repairs == ["wake_tasks"] * 2, "it is tried again"


async def test_nothing_is_told_in_quiet_hours_but_after_them(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings, world.quiet = [LOW], True
        quiet = await world.run()
        world.quiet = False

        assert quiet == ""
        assert "a problem" in await world.run(minutes=30)


async def test_without_the_program_nothing_is_repaired_stored_or_told(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [STUCK]

        report = await world.service().check()

        assert report.results[0].findings == (STUCK,)
        assert world.check.repairs == []
        assert await world.repo.list_runs(9) == []


async def test_an_owners_yes_creates_the_proposed_task_once(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [LOW]
        card = await world.run()
        (incident,) = await world.repo.list_open()

        task = await start_repair(world, incident.id)
        again = await start_repair(world, incident.id)

        assert task is not None
        assert again is not None
        assert task.id == again.id
        assert task.title.startswith("[self]")
        assert all(line in card for line in task.instruction.splitlines() if line)
        assert (await world.repo.get(incident.id)).task_id == task.id


async def test_a_problem_that_is_over_gets_no_task(tmp_path: Path) -> None:
    async with self_check_world(tmp_path) as world:
        world.check.findings = [LOW]
        await world.run()
        (incident,) = await world.repo.list_open()
        world.check.findings = []
        await world.run(minutes=30)

        assert await start_repair(world, incident.id) is None


async def start_repair(world: SelfCheckWorld, incident_id: int) -> Task | None:
    service = world.service()
    async with AsyncExitStack() as stack:
        await service.start(stack)
        _, task = await service.start_repair(
            incident_id, by=BOSS, chat=CHAT.id, reply_to="", words=WORDS
        )
    return task
