"""Helpers over deaths: run once more where that does no harm, and told exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bot.engine.agent.helpers.service import HelperService
from bot.engine.dispatch.helped import Helped
from bot.engine.llm.base import BackendDenied, BackendUnavailable, RunRequest, RunResult
from storage import schema
from storage.agents.calls import CallRepo
from storage.agents.helpers import HelperRepo
from storage.db import Database, Transaction
from storage.records.helpers import Helper
from storage.records.helping import HelperStatus
from storage.records.tasks import TaskStatus
from storage.records.tools import CallState, NewCall
from tests.bot.engine.agent.helpers.world import Talkative, give_account, house
from tests.engine_world import BOSS


async def made_call(db: Database, helper: Helper, *, kind: str) -> None:
    """The helper has begun this call."""
    new = NewCall(
        session_id=helper.session_id,
        call_id="c1",
        task_id=helper.task_id,
        path=f"helper:{helper.id}",
        chat_id=helper.chat_id,
        person_id=helper.person_id,
        backend="fake",
        tool="write",
        kind=kind,
        title="write notes.md",
        detail="",
        arguments={},
        command_hash="x",
        verdict="allow",
        why="",
        pattern="",
        state=CallState.RUNNING,
    )
    async with db.write() as tx:
        await CallRepo(db).add(tx, new, now=helper.started_at or helper.created_at)


@dataclass
class Acting(Talkative):
    """A helper's model service goes away just when the helper has written something."""

    db: Database | None = None
    helper: Helper | None = None
    may_act: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle(self, request: RunRequest) -> RunResult:
        await self.may_act.wait()
        assert self.db is not None
        assert self.helper is not None
        now = await HelperRepo(self.db).get(self.helper.id)
        await made_call(self.db, now, kind="edit")
        raise BackendUnavailable("busy", retry_after=0.0)


async def test_what_was_only_accepted_is_run_after_a_death(tmp_path: Path) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as first:
        task = await first.world.add()
        helper = await first.send(await first.job(task))

    backend = Talkative()
    async with house(tmp_path, backend, running=False) as second:
        ended = await second.ended(helper)

        assert (ended.status, ended.result) == (HelperStatus.DONE, "found look")
        assert backend.prompts == ["look"]
        (said,) = await second.said_to(task)
        assert "found look" in said


async def test_what_was_at_work_and_did_nothing_yet_begins_anew_and_is_told_once(
    tmp_path: Path,
) -> None:
    cut = Talkative(on_helper=lambda _prompt: asyncio.Event())
    async with house(tmp_path, cut, running=False) as first:
        task = await first.world.add()
        helper = await first.at_work(await first.send(await first.job(task)))
        await made_call(first.world.db, helper, kind="read")

    async with house(tmp_path, Talkative(), running=False) as second:
        ended = await second.ended(helper)

        assert ended.status is HelperStatus.DONE
        assert len(await second.said_to(task)) == 1


async def test_what_had_changed_something_is_not_done_twice(tmp_path: Path) -> None:
    cut = Talkative(on_helper=lambda _prompt: asyncio.Event())
    async with house(tmp_path, cut, running=False) as first:
        task = await first.world.add()
        helper = await first.at_work(await first.send(await first.job(task)))
        await made_call(first.world.db, helper, kind="edit")

    backend = Talkative()
    async with house(tmp_path, backend, running=False) as second:
        ended = await second.ended(helper)

        assert ended.status is HelperStatus.FAILED
        assert "write notes.md" in ended.result
        assert backend.prompts == []
        (said,) = await second.said_to(task)
        assert "has failed" in said


async def test_a_turn_that_broke_off_behind_a_change_is_not_made_again(tmp_path: Path) -> None:
    backend = Acting()
    async with house(tmp_path, backend, running=False) as home:
        task = await home.world.add()
        backend.db, backend.helper = home.world.db, await home.send(await home.job(task))
        backend.may_act.set()
        ended = await home.ended(backend.helper)

        assert ended.status is HelperStatus.FAILED
        assert "write notes.md" in ended.result
        assert backend.prompts == ["look"]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_has_ended_is_told_already_and_not_again(tmp_path: Path, fails: bool) -> None:
    def says(_prompt: str) -> object:
        return BackendDenied("no key") if fails else "found it"

    async with house(tmp_path, Talkative(on_helper=says), running=False) as first:
        task = await first.world.add()
        helper = await first.ended(await first.send(await first.job(task)))
        assert helper.status is (HelperStatus.FAILED if fails else HelperStatus.DONE)
        assert helper.delivered_at is not None

    backend = Talkative()
    async with house(tmp_path, backend, running=False) as second:
        await second.service.turn()

        assert backend.prompts == []
        assert len(await second.said_to(task)) == 1


async def test_a_task_waits_for_its_helpers_and_closes_with_what_they_bring(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    backend = Talkative(steps=("one",), on_helper=lambda _prompt: held)
    async with house(tmp_path, backend) as home:
        task = await home.world.add("Do it")
        await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        held.set()
        view = await home.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert backend.done == ["one", "🤝 label look"]
        told = [each.prompt for each in backend.asked if "late" in each.prompt]
        assert len(told) == 1
        assert "The Boss has said" not in told[0]


async def test_a_task_that_waits_over_a_death_goes_on_when_its_helper_has_reported(
    tmp_path: Path,
) -> None:
    cut = Talkative(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with house(tmp_path, cut) as first:
        task = await first.world.add()
        await first.send(await first.job(task))
        await first.world.until(task, TaskStatus.WAITING)

    backend = Talkative()
    async with house(tmp_path, backend) as second:
        view = await second.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert backend.done == ["🤝 label look"]


async def test_a_stopped_task_ends_its_helpers(tmp_path: Path) -> None:
    backend = Talkative(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with house(tmp_path, backend) as home:
        task = await home.world.add()
        helper = await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        await home.world.foreman.stop(task, by=BOSS, source="stop:1")
        home.service.look()

        ended = await home.ended(helper)
        assert ended.status is HelperStatus.FAILED
        assert "Stopped" in ended.result


async def test_a_paused_task_keeps_the_result_for_when_it_goes_on(tmp_path: Path) -> None:
    held = asyncio.Event()
    backend = Talkative(steps=("one",), on_helper=lambda _prompt: held)
    async with house(tmp_path, backend) as home:
        task = await home.world.add()
        helper = await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        await home.world.foreman.pause(task, by=BOSS, source="pause:1")
        held.set()
        await home.ended(helper)
        view = await home.world.until(task, TaskStatus.PAUSED)
        assert backend.done == ["one"]

        await home.world.foreman.resume(view.task, by=BOSS, source="resume:1")
        await home.world.until(task)
        assert backend.done == ["one", "🤝 label look"]


async def test_a_report_that_holds_a_risk_word_asks_nobody(tmp_path: Path) -> None:
    backend = Talkative(steps=("one",), on_helper=lambda _prompt: "deploy everything now")
    async with house(tmp_path, backend) as home:
        task = await home.world.add()
        await home.send(await home.job(task))

        view = await home.world.until(task)
        assert view.task.status is TaskStatus.COMPLETED


async def test_a_chat_hears_of_all_its_helpers_at_once_when_the_last_has_ended(
    tmp_path: Path,
) -> None:
    held = {"slow": asyncio.Event()}
    backend = Talkative(on_helper=lambda prompt: held.get(prompt, "quick result"))
    async with house(tmp_path, backend, running=False) as home:
        await give_account(home.world.db)
        job = await home.job(None)
        slow, quick = await home.send(job, "slow"), await home.send(job, "quick")
        await home.ended(quick)
        assert home.posted == []
        held["slow"].set()
        await home.ended(slow)

        (row,) = home.posted
        told = getattr(row.incoming, "told", "")
        assert "quick result" in told
        assert "late" in told
        assert (await home.kit.repo.get(slow.id)).delivered_at is not None


async def test_what_keeps_nothing_is_forgotten_once_it_is_told(tmp_path: Path) -> None:
    async def messages(db: Database, helper: Helper) -> int:
        query = select(func.count()).where(schema.messages.c.session_id == helper.session_id)
        async with db.read() as view:
            return await view.scalar(query) or 0

    async with house(tmp_path, Talkative(), running=False) as home:
        job = await home.job(await home.world.add())
        gone = await home.ended(await home.send(job, "one", keep=False))
        kept = await home.ended(await home.send(job, "two"))

        assert await messages(home.world.db, gone) == 0
        assert await messages(home.world.db, kept) == 1


async def test_a_helper_waits_for_its_own_and_reports_with_what_they_bring(
    tmp_path: Path,
) -> None:
    held = {"outer": asyncio.Event()}
    backend = Talkative(on_helper=lambda prompt: held.get(prompt, f"heard: {prompt}"))
    async with house(tmp_path, backend, running=False, slots=1) as home:
        task = await home.world.add()
        outer = await home.at_work(await home.send(await home.job(task), "outer"))
        session = await home.world.desk.session(
            f"helper:{outer.id}", home.world.desk.choose("", "")
        )
        job = await home.job(task, depth=1, path=f"helper:{outer.id}")
        inner = await home.send(replace(job, session=session), "inner")
        held["outer"].set()
        ended = await home.ended(outer)

        assert "heard: inner" in ended.result
        assert (await home.kit.repo.get(inner.id)).delivered_at is not None
        (said,) = await home.said_to(task)
        assert f"Helper {outer.id}" in said


async def test_drained_nothing_more_begins_and_who_is_at_work_may_end(tmp_path: Path) -> None:
    held = asyncio.Event()
    backend = Talkative(on_helper=lambda _prompt: held)
    async with house(tmp_path, backend, running=False, slots=1) as home:
        job = await home.job(await home.world.add())
        first = await home.at_work(await home.send(job, "first"))
        second = await home.send(job, "second")
        draining = asyncio.create_task(home.service.drain())
        await home.kit.closing.wait()
        held.set()
        await draining

        assert (await home.kit.repo.get(first.id)).status is HelperStatus.DONE
        assert (await home.kit.repo.get(second.id)).status is HelperStatus.ACCEPTED


async def test_a_report_does_not_take_the_place_of_a_decision_that_the_chat_waits_for(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, Talkative(), running=False) as home:
        db = home.world.db
        await give_account(db)
        job = await home.job(None)
        helper = await home.send(job)
        calls = CallRepo(db)
        stopped = replace(helper, session_id=job.session.id)
        await made_call(db, stopped, kind="edit")
        async with db.write() as tx:
            await calls.suspend(tx, job.session.id, ["c1"])
        await home.ended(helper)
        assert home.posted == []

        async with db.write() as tx:
            (call,) = await calls.suspended(job.session.id, tx=tx)
            await calls.deliver(tx, call, now=home.world.clock())
        home.service.wake()

        await home.until_posted()
        assert (await home.kit.repo.get(helper.id)).delivered_at is not None


async def test_what_breaks_off_is_told_and_what_cannot_be_told_is_not_paid_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = RuntimeError("a tool of ours is broken")
    backend = Talkative(on_helper=lambda _prompt: broken)
    async with house(tmp_path, backend, running=False) as home:
        task = await home.world.add()
        helper = await home.send(await home.job(task))
        ended = await home.ended(helper)
        await home.service.turn()

        assert ended.status is HelperStatus.FAILED
        assert "i1" in ended.result
        assert backend.prompts == ["look"]
    assert "incident=i1" in caplog.text


class Broken(Helped):
    async def deliver(self, tx: Transaction, helper: Helper) -> Callable[[], None]:
        raise RuntimeError("nobody foresaw this")


async def test_a_helper_whose_end_cannot_be_kept_is_not_begun_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        await home.send(await home.job(await home.world.add()))

        parents = home.kit.parents
        assert isinstance(parents, Helped)
        broken = Broken(**{each.name: getattr(parents, each.name) for each in fields(parents)})
        service = HelperService(replace(home.kit, parents=broken), new_incident=lambda: "i2")
        for _ in range(3):
            await service.turn()
            working = [each.work for each in service._running.values()]
            await asyncio.gather(*working, return_exceptions=True)

        assert len(home.backend.prompts) == 1
    assert "incident=i2" in caplog.text
