"""A change of a prompt, from the signal to its end, through the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.autonomy.evolution.service import MIN_TASKS
from bot.engine.autonomy.evolution.sources import BuiltInTexts
from bot.engine.llm.backend import BackendDenied
from bot.engine.workflow.prompts import BUILT_IN_PROMPTS
from storage.records.approvals import ApprovalState
from storage.records.prompt_versions import (
    ORIGINAL,
    CycleOutcome,
    EvolutionMode,
    PromptKind,
    PromptRef,
    SignalKind,
    VersionState,
)
from tests.bot.engine.autonomy.evolution.evolution_world import (
    APPROVAL,
    BETTER,
    NAME,
    PROPOSAL,
    REF,
    WRITTEN,
    EditedPersonas,
    EvolvingBackend,
    open_world,
)
from tests.engine_harness import BOSS

MANY = 60
"""Tasks by which every fair coin has decided."""


async def test_a_signal_leads_to_a_reviewed_change_that_waits_for_an_owner(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.fire_signal()
        world.backend.answers = [PROPOSAL, APPROVAL]

        report = await world.service.run_cycle(by=BOSS)

        (signal,) = report.signals
        assert (signal.kind, signal.outcome) == (SignalKind.RETRIES, CycleOutcome.PROPOSED)
        (approval,) = await world.waiting()
        assert [each.id for each in world.shown] == [approval.id]
        assert "+Read the whole task once more before you report." in approval.detail
        assert approval.payload["signal"] == {"kind": "retries", "hits": 3, "window": 10}
        assert await world.states() == [VersionState.DRAFT]
        await world.do_task()
        assert set(world.prompts_used()) == {WRITTEN}


async def test_without_a_signal_no_model_is_called(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for _ in range(5):
            await world.do_task()

        report = await world.service.run_cycle(by=BOSS)

        assert report.signals == []
        assert world.backend.questions == []


async def test_a_signal_is_acted_on_once_a_day(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.fire_signal()
        world.backend.answers = [PROPOSAL, APPROVAL]
        await world.service.run_cycle(by=BOSS)

        again = await world.service.run_cycle(by=BOSS)

        assert again.signals == []
        assert len(world.backend.questions) == 2


async def test_a_declined_change_is_never_used(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.fire_signal()
        world.backend.answers = [PROPOSAL, APPROVAL]
        await world.service.run_cycle(by=BOSS)

        await world.decide(approve=False)

        assert await world.states() == [VersionState.RETIRED]
        for _ in range(5):
            await world.do_task()
        assert set(world.prompts_used()) == {WRITTEN}


async def test_a_trial_serves_a_share_of_the_tasks_and_each_attempt_keeps_its_version(
    tmp_path: Path,
) -> None:
    async with open_world(tmp_path) as world:
        await world.start_trial()
        before = len(world.prompts_used())

        tasks = [await world.do_task() for _ in range(9)]

        used = world.prompts_used()[before:]
        assert {WRITTEN, BETTER} == set(used)
        for task, prompt in zip(tasks, used, strict=True):
            ((_, attempt, version),) = await world.versions.list_used(task.id)
            assert attempt == 1
            assert version.number == (1 if prompt == BETTER else ORIGINAL)


async def test_a_change_that_makes_things_worse_is_rolled_back_by_itself(tmp_path: Path) -> None:
    backend = EvolvingBackend()
    async with open_world(tmp_path, backend=backend) as world:
        await world.start_trial()
        backend.fails = lambda prompt: BETTER in prompt

        for _ in range(MANY):
            await world.do_task()
            if await world.states() == [VersionState.RETIRED]:
                break

        version = await world.version()
        assert version.end_reason == "worse"
        assert world.told() == [f"↩️ {NAME}: version 1 is no longer used"]
        failed = world.prompts_used().count(BETTER)
        assert failed == 3
        for _ in range(5):
            await world.do_task()
        assert world.prompts_used().count(BETTER) == failed


async def test_a_better_change_is_adopted_after_the_approval(tmp_path: Path) -> None:
    backend = EvolvingBackend()
    async with open_world(tmp_path, backend=backend) as world:
        await world.start_trial()
        backend.fails = lambda prompt: BETTER not in prompt

        for _ in range(MANY):
            await world.do_task()
            if await world.waiting():
                break

        (approval,) = await world.waiting()
        figures = approval.payload["figures"]
        assert figures["trial"]["successes"] == figures["trial"]["tasks"] >= 10
        assert figures["control"]["successes"] == 0
        assert await world.states() == [VersionState.TRIAL]
        await world.decide(approve=True)
        assert await world.states() == [VersionState.ACTIVE]
        before = len(world.prompts_used())
        for _ in range(6):
            await world.do_task()
        assert set(world.prompts_used()[before:]) == {BETTER}


async def test_with_auto_a_better_change_is_adopted_and_told(tmp_path: Path) -> None:
    backend = EvolvingBackend()
    async with open_world(tmp_path, backend=backend, mode=EvolutionMode.AUTO) as world:
        await world.start_trial()
        backend.fails = lambda prompt: BETTER not in prompt

        await world.do_tasks_with_each_prompt(MIN_TASKS)
        await world.do_task()

        assert await world.waiting() == ()
        assert world.told() == [f"🧬 {NAME}: version 1 is adopted"]


async def test_noise_does_not_adopt(tmp_path: Path) -> None:
    async with open_world(tmp_path, mode=EvolutionMode.AUTO) as world:
        await world.start_trial()

        await world.do_tasks_with_each_prompt(MIN_TASKS)
        assert await world.states() == [VersionState.TRIAL]
        await world.do_task()

        assert await world.states() == [VersionState.RETIRED]
        assert (await world.version()).end_reason == "unclear"


async def test_a_trial_without_enough_tasks_ends_after_two_weeks(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.start_trial()
        world.engine.clock.advance(days=15)
        world.backend.answers = [BackendDenied("closed")]

        await world.service.run_cycle(by=BOSS)

        assert (await world.version()).end_reason == "unclear"


async def test_a_rollback_restores_exactly_the_text_before_at_once(tmp_path: Path) -> None:
    backend = EvolvingBackend()
    async with open_world(tmp_path, backend=backend, mode=EvolutionMode.AUTO) as world:
        await world.start_trial()
        backend.fails = lambda prompt: BETTER not in prompt
        await world.do_tasks_with_each_prompt(MIN_TASKS)
        await world.do_task()
        assert await world.states() == [VersionState.ACTIVE]
        backend.fails = lambda _prompt: False

        await world.service.roll_back(REF, by=BOSS)

        (prompt,) = await world.service.find_prompts(NAME)
        assert prompt.content == WRITTEN
        assert (await world.version()).end_reason == "rolled_back"
        await world.do_task()
        assert world.prompts_used()[-1] == WRITTEN
        assert await world.service.roll_back(REF, by=BOSS) is None


async def test_a_rollback_during_a_trial_withdraws_what_is_asked(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.fire_signal()
        world.backend.answers = [PROPOSAL, APPROVAL]
        await world.service.run_cycle(by=BOSS)
        (approval,) = await world.waiting()

        await world.service.roll_back(REF, by=BOSS)

        assert await world.waiting() == ()
        assert (await world.approvals.get(approval.id)).state is ApprovalState.EXPIRED
        assert await world.states() == [VersionState.RETIRED]


async def test_a_text_that_people_change_wins_over_every_version(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.start_trial()
        world.personas.prompts[NAME] = "Mine."

        await world.do_task()

        assert (await world.version()).end_reason == "changed"
        assert world.told() == [f"↩️ {NAME}: version 1 is no longer used"]
        last = world.backend.requests[-1].system
        assert last.startswith("Mine.")


async def test_off_changes_and_asks_nothing(tmp_path: Path) -> None:
    async with open_world(tmp_path, mode=EvolutionMode.OFF) as world:
        await world.fire_signal()

        report = await world.service.run_cycle(by=BOSS)

        assert report.signals == ()
        assert world.backend.questions == []


async def test_a_built_in_prompt_is_tried_and_rolled_back_like_others(tmp_path: Path) -> None:
    personas = EditedPersonas()
    personas.prompts[NAME] = ""
    written = BUILT_IN_PROMPTS["worker"]
    better = f"{written}\nRead the whole task once more before you report."
    ref = PromptRef(PromptKind.BUILT_IN, "worker")
    async with open_world(tmp_path, personas=personas) as world:
        await world.fire_signal()
        world.backend.answers = [{**PROPOSAL, "instructions": better}, APPROVAL]
        await world.service.run_cycle(by=BOSS)
        await world.decide(approve=True)
        tried = [(await world.do_task(), world.step_prompt()) for _ in range(9)]

        for task, prompt in tried:
            ((_, attempt, version),) = await world.versions.list_used(task.id)
            assert (version.kind, attempt) == (PromptKind.BUILT_IN, 1)
            assert version.number == (1 if better in prompt else ORIGINAL)
        assert {better in prompt for _, prompt in tried} == {True, False}
        assert all("Write everything the Boss reads in" in prompt for _, prompt in tried)

        (found,) = await world.service.find_prompts("built-in:worker")
        assert (found.written, len(found.versions)) == (written, 1)
        await world.service.roll_back(ref, by=BOSS)
        for _ in range(5):
            await world.do_task()
            assert better not in world.step_prompt()


@pytest.mark.parametrize("name", ["worker", "planner"])
async def test_words_that_the_program_reads_stay_in_built_in_prompts(name: str) -> None:
    texts = BuiltInTexts()
    written = (await texts.list_texts())[name]

    assert await texts.find_objection(written, f"{written} Be brief.") == ""
    for word in ("done", "`findings`", '"ask"', "data, never"):
        if word in written:
            assert await texts.find_objection(written, f"{written.replace(word, '')} Be brief.")
