"""Helpers over deaths: run once more where that does no harm, and told exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bot.engine.agent.subagents.service import SubagentService
from bot.engine.llm.backend import BackendDenied, BackendUnavailable, RunRequest, RunResult
from bot.engine.tasks.subagent_reports import SubagentReportDelivery
from storage import schema
from storage.approvals import NewApproval, add_approval
from storage.db import Database, Transaction
from storage.ids import IdGenerator
from storage.records.approvals import ApprovalKind, ApprovalState, NewToolCall, ToolCallState
from storage.records.tasks import NodeStatus, SubagentStatus, Task, TaskStatus
from storage.records.workers import Subagent
from storage.subagents import SubagentRepo
from storage.tools import ToolCallRepo
from tests.bot.engine.agent.subagents.builders import (
    SubagentAnswersBackend,
    give_account,
    subagent_setup,
)
from tests.engine_harness import BOSS, CHAT
from tests.waiting import wait_until


async def made_call(
    db: Database, helper: Subagent, *, kind: str, state: ToolCallState = ToolCallState.RUNNING
) -> int:
    """The helper has begun this call, or awaits leave for it; returns its row."""
    new = NewToolCall(
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
        state=state,
    )
    async with db.write() as tx:
        made = await ToolCallRepo(db).add(tx, new, now=helper.started_at or helper.created_at)
    return made.id


async def die_at_call(
    home: Path, *, kind: str, state: ToolCallState = ToolCallState.RUNNING
) -> tuple[Task, Subagent]:
    """A task and its helper, whose process has died at this call."""
    cut = SubagentAnswersBackend(on_helper=lambda _prompt: asyncio.Event())
    async with subagent_setup(home, cut, start_dispatcher=False) as first:
        task = await first.world.create_task()
        helper = await first.at_work(await first.send(await first.job(task)))
        await made_call(first.world.db, helper, kind=kind, state=state)
    return task, helper


@dataclass
class Acting(SubagentAnswersBackend):
    """A helper's model service goes away just when the helper has written something."""

    db: Database | None = None
    helper: Subagent | None = None
    may_act: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, request: RunRequest) -> RunResult:
        await self.may_act.wait()
        assert self.db is not None
        assert self.helper is not None
        now = await SubagentRepo(self.db).get(self.helper.id)
        await made_call(self.db, now, kind="edit")
        raise BackendUnavailable("busy", retry_after=0.0)


async def test_what_was_only_accepted_is_run_after_a_death(tmp_path: Path) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as first:
        task = await first.world.create_task()
        helper = await first.send(await first.job(task))

    backend = SubagentAnswersBackend()
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as second:
        ended = await second.ended(helper)

        assert (ended.status, ended.result) == (SubagentStatus.DONE, "found look")
        assert backend.prompts == ["look"]
        (said,) = await second.said_to(task)
        assert "found look" in said


async def test_what_was_at_work_and_did_nothing_yet_begins_anew_and_is_told_once(
    tmp_path: Path,
) -> None:
    task, helper = await die_at_call(tmp_path, kind="read")

    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as second:
        ended = await second.ended(helper)

        assert ended.status is SubagentStatus.DONE
        assert len(await second.said_to(task)) == 1


async def test_a_call_nobody_was_asked_about_before_the_death_does_not_stay_open(
    tmp_path: Path,
) -> None:
    _, helper = await die_at_call(tmp_path, kind="edit", state=ToolCallState.OPEN)

    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as second:
        ended = await second.ended(helper)

        assert ended.status is SubagentStatus.DONE
        (call,) = await second.world.db.fetch_all(select(schema.tool_calls))
        assert (call.state, call.ended_at is None) == ("cut", False)


async def test_what_had_changed_something_is_not_done_twice(tmp_path: Path) -> None:
    task, helper = await die_at_call(tmp_path, kind="edit")

    backend = SubagentAnswersBackend()
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as second:
        ended = await second.ended(helper)

        assert ended.status is SubagentStatus.FAILED
        assert "write notes.md" in ended.result
        assert backend.prompts == []
        (said,) = await second.said_to(task)
        assert "has failed" in said


async def test_a_turn_that_broke_off_behind_a_change_is_not_made_again(tmp_path: Path) -> None:
    backend = Acting()
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as home:
        task = await home.world.create_task()
        backend.db, backend.helper = home.world.db, await home.send(await home.job(task))
        backend.may_act.set()
        ended = await home.ended(backend.helper)

        assert ended.status is SubagentStatus.FAILED
        assert "write notes.md" in ended.result
        assert backend.prompts == ["look"]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_has_ended_is_told_already_and_not_again(tmp_path: Path, fails: bool) -> None:
    def says(_prompt: str) -> object:
        return BackendDenied("no key") if fails else "found it"

    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(on_helper=says), start_dispatcher=False
    ) as first:
        task = await first.world.create_task()
        helper = await first.ended(await first.send(await first.job(task)))
        assert helper.status is (SubagentStatus.FAILED if fails else SubagentStatus.DONE)
        assert helper.delivered_at is not None

    backend = SubagentAnswersBackend()
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as second:
        await second.service.advance()

        assert backend.prompts == []
        assert len(await second.said_to(task)) == 1


async def test_a_task_waits_for_its_helpers_and_closes_with_what_they_bring(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    backend = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: held)
    async with subagent_setup(tmp_path, backend) as home:
        task = await home.world.create_task("Do it")
        await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        held.set()
        view = await home.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert backend.started_steps == ["one", "🤝 label look"]
        told = [each.prompt for each in backend.requests if "late" in each.prompt]
        assert len(told) == 1
        assert "New messages from the Boss" not in told[0]


async def test_a_task_that_waits_over_a_death_goes_on_when_its_helper_has_reported(
    tmp_path: Path,
) -> None:
    cut = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with subagent_setup(tmp_path, cut) as first:
        task = await first.world.create_task()
        await first.send(await first.job(task))
        await first.world.until(task, TaskStatus.WAITING)

    backend = SubagentAnswersBackend()
    async with subagent_setup(tmp_path, backend) as second:
        view = await second.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert backend.started_steps == ["🤝 label look"]


async def test_a_stopped_task_ends_its_helpers(tmp_path: Path) -> None:
    backend = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with subagent_setup(tmp_path, backend) as home:
        task = await home.world.create_task()
        helper = await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        await home.world.tasks.stop(task, by=BOSS, source="stop:1")
        home.service.check_needed()

        ended = await home.ended(helper)
        assert ended.status is SubagentStatus.FAILED
        assert "Stopped" in ended.result


async def test_a_branch_that_a_join_ended_ends_its_helpers_without_a_report(
    tmp_path: Path,
) -> None:
    backend = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with subagent_setup(tmp_path, backend) as home:
        graphs = home.world.store.graphs
        task = await home.world.create_task()
        helper = await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        run = await graphs.find_run(task.id, helper.path)
        assert run is not None
        async with home.world.db.write() as tx:
            await graphs.save_run(tx, replace(run, status=NodeStatus.CANCELLED))
        home.service.check_needed()

        ended = await home.ended(helper)
        view = await home.world.until(task)
        said = await home.world.store.events.get_worker_input(task.id)
        assert "Stopped" in ended.result
        assert view.task.status is TaskStatus.COMPLETED
        assert said.messages == ()


async def test_nobody_is_asked_any_more_for_a_helper_that_was_ended(tmp_path: Path) -> None:
    backend = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: asyncio.Event())
    async with subagent_setup(tmp_path, backend) as home:
        db = home.world.db
        task = await home.world.create_task()
        helper = await home.at_work(await home.send(await home.job(task)))
        row = await made_call(db, helper, kind="edit", state=ToolCallState.OPEN)
        new = NewApproval(
            kind=ApprovalKind.TOOL,
            task_id=None,
            chat_id=CHAT.id,
            title="write notes.md",
            approvers=(BOSS.id,),
            expires_at=home.world.clock() + timedelta(hours=1),
        )
        async with db.write() as tx:
            asked = await add_approval(tx, new, ids=IdGenerator(), now=home.world.clock())
            await ToolCallRepo(db).bind_approval(tx, row, asked.id)
        await home.world.tasks.stop(task, by=BOSS, source="stop:1")
        home.service.check_needed()
        await home.ended(helper)

        (call,) = await db.fetch_all(select(schema.tool_calls))
        (approval,) = await db.fetch_all(select(schema.approvals))
        assert (call.state, call.ended_at is None) == ("cut", False)
        assert approval.state != ApprovalState.WAITING.value


async def test_a_paused_task_keeps_the_result_for_when_it_goes_on(tmp_path: Path) -> None:
    held = asyncio.Event()
    backend = SubagentAnswersBackend(steps=("one",), on_helper=lambda _prompt: held)
    async with subagent_setup(tmp_path, backend) as home:
        task = await home.world.create_task()
        helper = await home.send(await home.job(task))
        await home.world.until(task, TaskStatus.WAITING)
        await home.world.tasks.pause(task, by=BOSS, source="pause:1")
        held.set()
        await home.ended(helper)
        view = await home.world.until(task, TaskStatus.PAUSED)
        assert backend.started_steps == ["one"]

        await home.world.tasks.resume(view.task, by=BOSS, source="resume:1")
        await home.world.until(task)
        assert backend.started_steps == ["one", "🤝 label look"]


async def test_a_report_that_holds_a_risk_word_asks_nobody(tmp_path: Path) -> None:
    backend = SubagentAnswersBackend(
        steps=("one",), on_helper=lambda _prompt: "deploy everything now"
    )
    async with subagent_setup(tmp_path, backend) as home:
        task = await home.world.create_task()
        await home.send(await home.job(task))

        view = await home.world.until(task)
        assert view.task.status is TaskStatus.COMPLETED


async def test_a_chat_hears_of_all_its_helpers_at_once_when_the_last_has_ended(
    tmp_path: Path,
) -> None:
    held = {"slow": asyncio.Event()}
    backend = SubagentAnswersBackend(on_helper=lambda prompt: held.get(prompt, "quick result"))
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as home:
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


async def test_reports_that_another_delivery_took_along_are_no_second_empty_message(
    tmp_path: Path,
) -> None:
    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as home:
        await give_account(home.world.db)
        job = await home.job(None)
        helpers = [await home.send(job, "one"), await home.send(job, "two")]
        ended = [await home.ended(each) for each in helpers]
        await home.until_posted()

        for each in ended:  # as one who has read before that this is owed
            async with home.world.db.write() as tx:
                after = await home.kit.parents.deliver(tx, each)
            after()

        told = [getattr(row.incoming, "told", "") for row in home.posted]
        assert [text.count("found one") for text in told].count(1) == 1
        assert [text.count("found two") for text in told].count(1) == 1
        assert all("found" in text for text in told), "none is empty"


@pytest.mark.parametrize(
    ("said", "reported"),
    [(["  \n", "It is red."], "It is red."), (["", "", "more"], "[the report is empty]")],
)
async def test_who_ends_without_a_word_is_asked_once_for_the_report(
    tmp_path: Path, said: list[str], reported: str
) -> None:
    replies = iter(said)
    backend = SubagentAnswersBackend(on_helper=lambda _prompt: next(replies))
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as home:
        task = await home.world.create_task()
        helper = await home.send(await home.job(task))
        ended = await home.ended(helper)

        assert (ended.status, ended.result) == (SubagentStatus.DONE, reported)
        assert len(backend.prompts) == 2
        (told,) = await home.said_to(task)
        assert reported in told


@pytest.mark.parametrize("writes", [True, False])
async def test_who_ends_without_the_file_it_was_to_write_is_told_so_once(
    tmp_path: Path, writes: bool
) -> None:
    def work(prompt: str) -> str:
        workspace = backend.requests[-1].workspace
        if "No such file is there" in prompt and writes and workspace is not None:
            workspace.mkdir(parents=True)
            (workspace / "cats.txt").write_text("miau")
        return "I wrote it."

    backend = SubagentAnswersBackend(on_helper=work)
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as home:
        task = await home.world.create_task()
        helper = await home.send(await home.job(task), "Write a poem into cats.txt")
        ended = await home.ended(helper)

        (told,) = await home.said_to(task)
    assert len(backend.prompts) == 2
    assert "⚠️ Not written: cats.txt" in backend.prompts[1]
    assert ended.result.startswith("I wrote it.")
    assert ("⚠️ Not written: cats.txt" in ended.result) is not writes
    assert ("⚠️ Not written: cats.txt" in told) is not writes


async def test_a_death_between_an_empty_end_and_its_report_reports_once(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def silent(prompt: str) -> object:
        return "" if prompt == "look" else asked  # waits for ever

    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(on_helper=silent), start_dispatcher=False
    ) as first:
        task = await first.world.create_task()
        helper = await first.send(await first.job(task))
        await wait_until(lambda: len(first.backend.prompts) == 2)

    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as second:
        ended = await second.ended(helper)

        assert ended.status is SubagentStatus.DONE
        assert ended.result.startswith("found")
        assert len(await second.said_to(task)) == 1


async def test_what_keeps_nothing_is_forgotten_once_it_is_told(tmp_path: Path) -> None:
    async def messages(db: Database, helper: Subagent) -> int:
        query = select(func.count()).where(schema.messages.c.session_id == helper.session_id)
        async with db.read() as view:
            return await view.scalar(query) or 0

    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as home:
        job = await home.job(await home.world.create_task())
        gone = await home.ended(await home.send(job, "one", keep=False))
        kept = await home.ended(await home.send(job, "two"))

        assert await messages(home.world.db, gone) == 0
        assert await messages(home.world.db, kept) == 1


async def test_a_helper_waits_for_its_own_and_reports_with_what_they_bring(
    tmp_path: Path,
) -> None:
    held = {"outer": asyncio.Event()}
    backend = SubagentAnswersBackend(on_helper=lambda prompt: held.get(prompt, f"heard: {prompt}"))
    async with subagent_setup(tmp_path, backend, start_dispatcher=False, slots=1) as home:
        task = await home.world.create_task()
        outer = await home.at_work(await home.send(await home.job(task), "outer"))
        session = await home.world.gateway.open_session(
            f"helper:{outer.id}", home.world.gateway.select_backend("", "")
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
    backend = SubagentAnswersBackend(on_helper=lambda _prompt: held)
    async with subagent_setup(tmp_path, backend, start_dispatcher=False, slots=1) as home:
        job = await home.job(await home.world.create_task())
        first = await home.at_work(await home.send(job, "first"))
        second = await home.send(job, "second")
        draining = asyncio.create_task(home.service.drain())
        await home.kit.closing.wait()
        held.set()
        await draining

        assert (await home.kit.repo.get(first.id)).status is SubagentStatus.DONE
        assert (await home.kit.repo.get(second.id)).status is SubagentStatus.ACCEPTED


async def test_a_report_does_not_take_the_place_of_a_decision_that_the_chat_waits_for(
    tmp_path: Path,
) -> None:
    async with subagent_setup(tmp_path, SubagentAnswersBackend(), start_dispatcher=False) as home:
        db = home.world.db
        await give_account(db)
        job = await home.job(None)
        helper = await home.send(job)
        calls = ToolCallRepo(db)
        stopped = replace(helper, session_id=job.session.id)
        await made_call(db, stopped, kind="edit")
        async with db.write() as tx:
            await calls.suspend(tx, job.session.id, ["c1"])
        await home.ended(helper)
        assert home.posted == []

        async with db.write() as tx:
            (call,) = await calls.list_suspended(job.session.id, tx=tx)
            await calls.mark_delivered(tx, call, now=home.world.clock())
        home.service.wake()

        await home.until_posted()
        assert (await home.kit.repo.get(helper.id)).delivered_at is not None


async def test_what_breaks_off_is_told_and_what_cannot_be_told_is_not_paid_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = RuntimeError("a tool of ours is broken")
    backend = SubagentAnswersBackend(on_helper=lambda _prompt: broken)
    async with subagent_setup(tmp_path, backend, start_dispatcher=False) as home:
        task = await home.world.create_task()
        helper = await home.send(await home.job(task))
        ended = await home.ended(helper)
        await home.service.advance()

        assert ended.status is SubagentStatus.FAILED
        assert "i1" in ended.result
        assert backend.prompts == ["look"]
    assert "incident=i1" in caplog.text


class Broken(SubagentReportDelivery):
    async def deliver(self, tx: Transaction, helper: Subagent) -> Callable[[], None]:
        raise RuntimeError("nobody foresaw this")


async def test_a_helper_whose_end_cannot_be_kept_is_not_begun_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        await home.send(await home.job(await home.world.create_task()))

        parents = home.kit.parents
        assert isinstance(parents, SubagentReportDelivery)
        broken = Broken(**{each.name: getattr(parents, each.name) for each in fields(parents)})
        service = SubagentService(replace(home.kit, parents=broken), new_incident=lambda: "i2")
        for _ in range(3):
            await service.advance()
            working = [each.task for each in service._running.values()]
            await asyncio.gather(*working, return_exceptions=True)

        assert len(home.backend.prompts) == 1
    assert "incident=i2" in caplog.text
