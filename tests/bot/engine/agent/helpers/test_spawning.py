"""What a worker gets when it wants a helper: a row on disk, or one clear sentence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.account import Account
from bot.engine.agent.helpers.patience import Patient
from bot.engine.agent.helpers.spawning import MOST_AT_ONCE, MOST_EVER
from bot.engine.agent.leave.permits import Leaves
from bot.engine.agent.personas.builtin import PRAGMATIST
from bot.engine.agent.tools.sessions_spawn import NotSent, sessions_spawn
from bot.engine.agent.workbench import Job
from bot.engine.llm.base import ERROR
from bot.engine.llm.calls import CallKind, Leave, ToolCall
from storage.agents.calls import CallRepo
from storage.approvals import Approvals
from storage.records.approvals import Approval, ApprovalState
from storage.records.helpers import Helper
from storage.records.helping import HelperStatus
from storage.sessions import SessionRepo
from tests.bot.engine.agent.helpers.world import House, Talkative, house
from tests.bot.engine.agent.leave.world import leaves_on


async def call(home: House, job: Job, **arguments: Any) -> str:
    tool = sessions_spawn(partial(home.spawning.spawn, job))
    return await tool.run({"task": "look", "label": "two words", **arguments})


async def finish(home: House, helper: Helper) -> None:
    async with home.world.db.write() as tx:
        await home.kit.repo.end(tx, helper.id, HelperStatus.DONE, "", now=home.world.clock())


async def tell(home: House, helper: Helper) -> None:
    async with home.world.db.write() as tx:
        await home.kit.repo.deliver(tx, (helper,), now=home.world.clock())


async def kept(home: House, job: Job) -> None:
    """The turn of that worker has come to its end."""
    async with home.world.db.write() as tx:
        sessions = SessionRepo(home.world.db)
        await sessions.extend(tx, job.session.id, (), tokens=0, now=home.world.clock())


async def test_accepted_is_said_of_what_is_on_disk(tmp_path: Path) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        said = await call(home, await home.job(await home.world.add()))

        (helper,) = await home.kit.repo.open_ones()
        assert said.startswith(f"accepted {helper.id}")
        assert (helper.depth, helper.label, helper.keep) == (1, "two words", True)


async def test_the_same_wish_of_the_same_step_is_the_same_helper(tmp_path: Path) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        job = await home.job(await home.world.add())
        once, again = await home.send(job, "look"), await home.send(job, "look")
        elsewhere = await home.send(replace(job, path="s2"), "look")

        assert once.id == again.id
        assert elsewhere.id != once.id


async def test_a_chat_may_want_the_same_again_once_it_has_heard(tmp_path: Path) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
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
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        job = await home.job(None)
        once = await home.send(job)
        await finish(home, once)
        await tell(home, once)
        again = await home.send(job)

        assert again.id == once.id


async def test_a_lost_turn_sends_nobody_off_again_though_the_chat_went_on_meanwhile(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        job = replace(await home.job(None), turn="message-1")
        once = await home.send(job)
        await finish(home, once)
        await tell(home, once)
        await kept(home, job)
        again = await home.send(job)
        later = await home.send(replace(job, turn="message-2"))

        assert again.id == once.id
        assert later.id != once.id


async def test_too_many_at_once_and_in_all_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        job = await home.job(await home.world.add())
        for n in range(MOST_EVER):
            helper = await home.send(job, f"task {n}")
            if n >= MOST_AT_ONCE - 1:
                if n == MOST_AT_ONCE - 1:
                    with pytest.raises(NotSent, match="at work already"):
                        await home.send(job, "one more")
                await finish(home, helper)
        for helper in await home.kit.repo.open_ones():
            await finish(home, helper)

        with pytest.raises(NotSent, match="all you get"):
            await home.send(job, "the last")


@pytest.mark.parametrize(
    ("changes", "arguments", "why"),
    [
        ({"depth": 2}, {}, "cannot send off another"),
        ({"account": Account(person=None, chat=None)}, {}, "nobody here"),
        ({}, {"task": "  "}, "say what to do"),
        ({}, {"persona": "wizard"}, "there are tester"),
    ],
)
async def test_a_refusal_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], arguments: dict[str, str], why: str
) -> None:
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        job = replace(await home.job(await home.world.add()), **changes)
        said = await call(home, job, **arguments)

        assert said.startswith(ERROR)
        assert why in said
        assert await home.kit.repo.open_ones() == ()


async def test_leave_that_nobody_gives_in_time_is_refused_and_asked_no_more(
    tmp_path: Path,
) -> None:
    shown: list[Approval] = []
    async with house(tmp_path, Talkative(), serving=False, running=False) as home:
        db, clock = home.world.db, home.world.clock
        leaves: Leaves = leaves_on(db, clock, shown)
        job = await home.job(await home.world.add(), depth=1, path="helper:h1")
        permit = Patient(
            inner=leaves.permit(job, PRAGMATIST),
            session_id=job.session.id,
            patience=0.01,
            db=db,
            calls=CallRepo(db),
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

        assert given.leave is Leave.DENY
        assert "in time" in given.text
        (asked,) = shown
        approvals = Approvals(db, now=clock, consequences={})
        assert (await approvals.get(asked.id)).state is ApprovalState.EXPIRED
