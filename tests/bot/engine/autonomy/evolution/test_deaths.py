"""Death right after any commit of an evolution loses nothing and repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.records.prompt_versions import CycleOutcome, EvolutionMode, VersionState
from tests.bot.engine.autonomy.evolution.evolution_world import (
    APPROVAL,
    BETTER,
    PROPOSAL,
    EvolvingBackend,
    open_world,
)
from tests.bot.engine.crash import CrashAfterCommit
from tests.engine_harness import BOSS, ManualClock, RecordingCourier


@pytest.mark.parametrize("nth", range(1, 13))
async def test_after_a_death_while_proposing_an_owner_is_asked_once_or_not_at_all(
    tmp_path: Path, nth: int
) -> None:
    clock = ManualClock()
    backend = EvolvingBackend()
    async with open_world(tmp_path, backend=backend, clock=clock) as world:
        await world.fire_signal()
        backend.answers = [PROPOSAL, APPROVAL]
        crash = CrashAfterCommit(nth)
        with pytest.MonkeyPatch.context() as patch:
            crash.install(patch)
            await crash.run_until_crash(world.service.run_cycle(by=BOSS))
    asked = len(backend.questions)

    async with open_world(tmp_path, backend=backend, clock=clock) as world:
        await world.service.run_cycle(by=BOSS)

        # Nothing is paid for twice.
        assert len(backend.questions) == asked
        waiting = await world.waiting()
        (signal,) = await world.service.list_signals(5)
        if signal.outcome is CycleOutcome.PROPOSED:
            assert [each.id for each in world.shown] == [each.id for each in waiting]
            assert len(waiting) == 1
            assert await world.states() == [VersionState.DRAFT]
        else:
            assert signal.outcome is CycleOutcome.STARTED
            assert not waiting
            assert await world.states() == []


@pytest.mark.parametrize("end", ["worse", "better"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_after_a_death_at_a_verdict_it_stands_and_is_told_once(
    tmp_path: Path, nth: int, end: str
) -> None:
    clock, courier, backend = ManualClock(), RecordingCourier(), EvolvingBackend()
    given = {"clock": clock, "courier": courier, "backend": backend}
    async with open_world(tmp_path, mode=EvolutionMode.AUTO, **given) as world:  # type: ignore[arg-type]
        await world.start_trial()
        backend.fails = lambda prompt: (BETTER in prompt) is (end == "worse")
        await world.do_tasks_with_each_prompt(20)
        crash = CrashAfterCommit(nth)
        with pytest.MonkeyPatch.context() as patch:
            crash.install(patch)
            await crash.run_until_crash(world.service._settle_trials())

    async with open_world(tmp_path, mode=EvolutionMode.AUTO, **given) as world:  # type: ignore[arg-type]
        backend.answers = []
        await world.service._settle_trials()

        wanted = VersionState.RETIRED if end == "worse" else VersionState.ACTIVE
        assert await world.states() == [wanted]
        assert len(world.told()) == 1


@pytest.mark.parametrize("approve", [True, False])
async def test_a_decision_and_its_effect_are_one_commit(tmp_path: Path, approve: bool) -> None:
    clock, backend = ManualClock(), EvolvingBackend()
    async with open_world(tmp_path, backend=backend, clock=clock) as world:
        await world.fire_signal()
        backend.answers = [PROPOSAL, APPROVAL]
        await world.service.run_cycle(by=BOSS)
        crash = CrashAfterCommit(1)
        with pytest.MonkeyPatch.context() as patch:
            crash.install(patch)
            await crash.run_until_crash(world.decide(approve=approve))

    async with open_world(tmp_path, backend=backend, clock=clock) as world:
        assert await world.states() == [VersionState.TRIAL if approve else VersionState.RETIRED]
        assert await world.waiting() == ()


async def test_a_draft_whose_request_a_restore_has_closed_ends(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.fire_signal()
        world.backend.answers = [PROPOSAL, APPROVAL]
        await world.service.run_cycle(by=BOSS)
        async with world.engine.db.write() as tx:
            await tx.exec_driver_sql("UPDATE approvals SET state = 'expired'")

        await world.service.run_cycle(by=BOSS)

        assert await world.states() == [VersionState.RETIRED]
