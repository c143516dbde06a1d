"""A worker that spawns a helper gets a stored row, or one clear sentence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.subagents.service import TimedAuthorizer
from bot.engine.agent.subagents.spawning import (
    MAX_STARTED,
    MAX_UNFINISHED,
    SpawnRefused,
    sessions_spawn_tool,
)
from bot.engine.llm.tool_calls import ERROR_PREFIX, CallKind, CallVerdict, ToolCall
from bot.engine.permissions.service import PermissionService
from bot.engine.workers.personas import PRAGMATIST_PERSONA
from bot.engine.workers.spec import CostAccount, WorkerSpec
from storage.approvals import ApprovalRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import SubagentStatus
from storage.records.workers import Subagent
from storage.sessions import SessionRepo
from storage.tools import ToolCallRepo
from tests.bot.engine.agent.subagents.builders import (
    SubagentAnswersBackend,
    SubagentSetup,
    subagent_setup,
)
from tests.bot.engine.permissions.builders import build_permission_service


async def call(home: SubagentSetup, job: WorkerSpec, **arguments: Any) -> str:
    tool = sessions_spawn_tool(partial(home.spawning.spawn, job))
    return await tool.run({"task": "look", "label": "two words", **arguments})


async def finish(home: SubagentSetup, helper: Subagent) -> None:
    async with home.world.db.write() as tx:
        await home.kit.repo.mark_ended(
            tx, helper.id, SubagentStatus.DONE, "", now=home.world.clock()
        )


async def tell(home: SubagentSetup, helper: Subagent) -> None:
    async with home.world.db.write() as tx:
        await home.kit.repo.mark_delivered(tx, (helper,), now=home.world.clock())


async def kept(home: SubagentSetup, job: WorkerSpec) -> None:
    """The turn of that worker has come to its end."""
    async with home.world.db.write() as tx:
        sessions = SessionRepo(home.world.db)
        await sessions.append_messages(tx, job.session.id, (), tokens=0, now=home.world.clock())


async def test_accepted_is_said_of_what_is_on_disk(tmp_path: Path) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        said = await call(home, await home.job(await home.world.create_task()))

        (helper,) = await home.kit.repo.list_unfinished()
        assert said.startswith(f"accepted {helper.id}")
        assert (helper.depth, helper.label, helper.keep) == (1, "two words", True)


async def test_the_same_wish_of_the_same_step_is_the_same_helper(tmp_path: Path) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = await home.job(await home.world.create_task())
        once, again = await home.send(job, "look"), await home.send(job, "look")
        elsewhere = await home.send(replace(job, step_path="s2"), "look")

        assert once.id == again.id
        assert elsewhere.id != once.id


async def test_a_chat_may_want_the_same_again_once_it_has_heard(tmp_path: Path) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = await home.job(None)
        once, again = await home.send(job), await home.send(job)
        await kept(home, job)
        await finish(home, once)
        await tell(home, once)
        later = await home.send(job)

        assert once.id == again.id
        assert later.id != once.id


async def test_a_turn_that_was_lost_sends_nobody_off_again_though_the_report_was_quicker(
    tmp_path: Path,
) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = await home.job(None)
        once = await home.send(job)
        await finish(home, once)
        await tell(home, once)
        again = await home.send(job)

        assert again.id == once.id


async def test_a_lost_turn_sends_nobody_off_again_though_the_chat_went_on_meanwhile(
    tmp_path: Path,
) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = replace(await home.job(None), turn_key="message-1")
        once = await home.send(job)
        await finish(home, once)
        await tell(home, once)
        await kept(home, job)
        again = await home.send(job)
        later = await home.send(replace(job, turn_key="message-2"))

        assert again.id == once.id
        assert later.id != once.id


async def test_too_many_at_once_and_in_all_are_refused(tmp_path: Path) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = await home.job(await home.world.create_task())
        for n in range(MAX_STARTED):
            helper = await home.send(job, f"task {n}")
            if n >= MAX_UNFINISHED - 1:
                if n == MAX_UNFINISHED - 1:
                    with pytest.raises(SpawnRefused, match="at work already"):
                        await home.send(job, "one more")
                await finish(home, helper)
        for helper in await home.kit.repo.list_unfinished():
            await finish(home, helper)

        with pytest.raises(SpawnRefused, match="the limit"):
            await home.send(job, "the last")


@pytest.mark.parametrize(
    ("changes", "arguments", "why"),
    [
        ({"depth": 2}, {}, "cannot start another"),
        ({"account": CostAccount(person=None, chat=None)}, {}, "only be started for a person"),
        ({}, {"task": "  "}, "say what to do"),
        ({}, {"persona": "wizard"}, "there are tester"),
    ],
)
async def test_a_refusal_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], arguments: dict[str, str], why: str
) -> None:
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        job = replace(await home.job(await home.world.create_task()), **changes)
        said = await call(home, job, **arguments)

        assert said.startswith(ERROR_PREFIX)
        assert why in said
        assert await home.kit.repo.list_unfinished() == ()


async def test_leave_that_nobody_gives_in_time_is_refused_and_asked_no_more(
    tmp_path: Path,
) -> None:
    shown: list[Approval] = []
    async with subagent_setup(
        tmp_path, SubagentAnswersBackend(), serving=False, start_dispatcher=False
    ) as home:
        db, clock = home.world.db, home.world.clock
        leaves: PermissionService = build_permission_service(db, clock, shown)
        job = await home.job(await home.world.create_task(), depth=1, path="helper:h1")
        permit = TimedAuthorizer(
            inner=leaves.create_authorizer(job, PRAGMATIST_PERSONA),
            session_id=job.session.id,
            timeout=0.01,
            db=db,
            calls=ToolCallRepo(db),
            repo=home.kit.repo,
            now=clock,
        )
        wish = ToolCall(
            call_id="c1",
            name="deploy",
            arguments={"command": "ship"},
            kind=CallKind.EXECUTE,
            title="deploy ship",
            detail="ship",
        )
        given = await permit(wish)

        assert given.verdict is CallVerdict.DENY
        assert "in time" in given.text
        (asked,) = shown
        approvals = ApprovalRepo(db, now=clock, decision_handlers={})
        assert (await approvals.get(asked.id)).state is ApprovalState.EXPIRED
