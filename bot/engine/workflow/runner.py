"""Move one task on, step by step, until it gives its slot back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar, assert_never

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Reply
from bot.engine.agent.team import Team, purposes
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BudgetReached,
    CannotWork,
    Purpose,
)
from bot.engine.observe.ids import node_span
from bot.engine.workflow import prompts
from bot.engine.workflow.boundary import Boundary
from bot.engine.workflow.graph import PLANNING, Workflow
from bot.engine.workflow.model.nodes import Retry
from bot.engine.workflow.running.branches import Branches
from bot.engine.workflow.running.kit import Kit
from bot.engine.workflow.running.planning import agreed
from bot.engine.workflow.running.tries import Tries
from bot.engine.workflow.steps import (
    Attempt,
    Following,
    Landing,
    Next,
    Replan,
    Steps,
    attempted,
    output_of,
)
from bot.engine.workflow.suspension import Suspensions
from bot.engine.workflow.verdict import Manner, Record, Verdict, of_answer, of_error
from cards import formats
from cards.words import Words, words_for
from storage.errors import LostLease, StoreUnavailable
from storage.records.people import Language
from storage.records.tasks import Lease, NodeRun, NodeStatus, Task, TaskId, TaskStatus

log = logging.getLogger(__name__)

_STORE_REST = 5.0
# A clock that is set forward is noticed this late by what waits beside steps that run.
_LONGEST_SLEEP = 300.0

_T = TypeVar("_T")


class TaskRunner:
    """Runs claimed tasks, any number at once. Everything it knows is in the store."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._errands: dict[TaskId, _Errand] = {}

    async def run(self, task: Task) -> None:
        """Run a task just claimed. Cancel to stop at once: what is stored stays true."""
        errand = _Errand(self._kit, task, await self._kit.language_of(task))
        self._errands[task.id] = errand
        try:
            await errand.run()
        except LostLease:
            log.info("task %s is not ours any more", task.id)
        finally:
            # A task stopped and claimed again at once has a newer entry here: not ours to drop.
            if self._errands.get(task.id) is errand:
                del self._errands[task.id]
            self._kit.progress.forget(task.id)

    def look_again(self, task: TaskId | None = None) -> None:
        """Somebody may have decided what a step of a running task waits for, or has given an
        order of that one."""
        for id_, errand in self._errands.items():
            if task in {None, id_}:
                errand.news.set()


class _Errand:
    """One task under way: its lease, and the sessions that its steps share."""

    _team: Team
    _tries: Tries

    def __init__(self, kit: Kit, task: Task, language: Language) -> None:
        self._kit = kit
        self._task = task
        self._language = language
        self._words: Words = words_for(language)
        self._boundary = Boundary(
            store=kit.store,
            desk=kit.desk,
            leaves=kit.leaves,
            ask_for_more=kit.ask_for_more,
            now=kit.now,
            on_change=kit.on_change,
            words=self._words,
            zone=kit.zone,
            suspensions=Suspensions(kit.asker),
        )
        self.news = asyncio.Event()
        # Tries of each step that failed in a row, and how long to wait before the next.
        self._in_row: Counter[str] = Counter()
        self._rests: dict[str, Verdict] = {}
        self._lease = Lease(task_id=task.id, epoch=task.epoch)
        self._account = Account(person=task.created_by, chat=task.chat_id, task=task.id)

    async def run(self) -> None:
        try:
            await self._gather()
        except BackendDenied as error:
            await self._block(error)
            return
        if self._task.graph_version:
            following = await self._boundary.go_on(self._lease, self._session_id)
        else:
            following = await self._plan()
        await self._see_through(following)

    async def _see_through(self, following: Following) -> None:
        """Do steps, several at once where the workflow allows it, until the slot is given back."""
        async with Branches[Following]() as branches:
            while following is not None:
                match following:
                    case Landing(task=task):
                        following = await self._land(task)
                    case Steps():
                        for step in following.steps:
                            branches.begin(self._follow(step), f"step {step.node.id}")
                        following = await self._next(branches, following)
                    case never:
                        assert_never(never)

    async def _next(self, branches: Branches[Following], last: Steps) -> Following:
        """What comes after the step that ends first; or after a look, where there is something to
        look for before."""
        if branches:
            within = None
            if last.look_at is not None:
                left = (last.look_at - self._kit.now()).total_seconds()
                within = min(_LONGEST_SLEEP, max(0.0, left))
            ended = await branches.first(within=within, news=self.news if last.listens else None)
            if not ended:
                self.news.clear()
            if ended:
                return ended[0]
        return await self._kept(partial(self._boundary.look_again, self._lease, self._session_id))

    async def _gather(self) -> None:
        """The task's own choices come before its chat's, those before its persona's, and that
        before the program's."""
        task = self._task
        settings = (await self._kit.chat_of(task.chat_id)).settings
        self._team = Team(
            self._kit.desk,
            self._kit.bench,
            key=f"task:{task.id}",
            choices=(task, settings),
            most_tokens=self._kit.most_context,
        )
        await self._team.lead(task.persona or settings.persona)
        self._tries = Tries(self._kit, self._team, self._account, self._language)

    @property
    def _session_id(self) -> str:
        return self._team.leader.session.id

    async def _make_room(self, reply: Reply) -> None:
        """A session that has grown too long is left behind: the next step is told everything."""
        if reply.result.context > self._kit.most_context:
            self._team.leave(reply.session)
            await self._team.member("")

    async def _follow(self, step: Next) -> Following:
        if rest := self._rests.pop(step.node.id, None):
            await self._wait(rest)
        if step.replan is not None:
            return await self._replan(step, step.replan)
        return await self._do(step)

    async def _block(self, error: BackendError) -> None:
        run, _ = await self._boundary.begin_planning(self._lease, "")
        told = self._words(error.hint)
        await self._boundary.give_up_planning(
            self._lease, run, error=told, status=TaskStatus.BLOCKED, reason=told
        )

    async def _plan(self) -> Following:
        """Ask for a plan until there is one or the tries run out."""
        failures = 0
        while True:
            run, said = await self._boundary.begin_planning(self._lease, self._session_id)
            recalled = await self._kit.recall(self._task)
            prompt = prompts.plan_prompt(self._task, said=said, recalled=recalled)
            try:
                reply, plan = await self._ask_for_plan(prompt, run)
            except BudgetReached as reached:
                return await self._wait_for_money(run, reached)
            except BackendError as error:
                manner = self._manner()
                verdict = of_error(error, failures=failures, words=self._words, manner=manner)
            else:
                # Its steps share the session in which the task was told and the plan was made.
                self._tries.told_of_task(self._session_id)
                return await self._kept(
                    partial(
                        self._boundary.adopt_plan, self._lease, run, reply, plan, self._session_id
                    )
                )
            if verdict.stop is not None:
                status, reason = verdict.stop
                await self._boundary.give_up_planning(
                    self._lease, run, error=verdict.error, status=status, reason=reason
                )
                return None
            failures += 1
            await self._wait(verdict)

    async def _ask_for_plan(self, prompt: str, run: NodeRun) -> tuple[Reply, Workflow]:
        ask = Ask(
            purpose=Purpose.PLAN,
            prompt=prompt,
            system=prompts.plan_system(self._language, purposes(await self._kit.bench.known())),
            language=self._language,
            account=self._account,
            facts={"text": self._task.instruction, "files": self._task.files},
            workspace=await self._kit.artifacts.workspace(self._task),
            result=PlanAnswer,
            parent=node_span(run.task_id, run.path, run.attempt),
        )
        ask = await self._tries.with_pictures(ask, self._team.leader, self._task.files)
        watch = self._kit.progress.watch(self._task.id, PLANNING)

        async def put(ask: Ask) -> Reply:
            lead = self._team.leader
            try:
                return await self._kit.desk.ask(ask, lead.chosen, lead.session, watch)
            except CannotWork:
                instead = await self._team.instead(lead, "")
                if instead is None:
                    raise
            ask = await self._tries.with_pictures(
                replace(ask, pictures=()), instead, self._task.files
            )
            return await self._kit.desk.ask(ask, instead.chosen, instead.session, watch)

        async def paid(reply: Reply) -> None:
            await self._kept(partial(self._boundary.paid, self._lease, reply))

        return await agreed(ask, put, paid, self._words)

    async def _do(self, step: Next) -> Following:
        """Try one step once, store how it ended, and say what is next."""
        try:
            reply, collected = await self._tries.once(step)
        except BudgetReached as reached:
            return await self._wait_for_money(step.run, reached)
        except BackendError as error:
            failures = self._record(step).in_row
            verdict = of_error(
                error, failures=failures, words=self._words, manner=self._manner(step.node.retry)
            )
            attempt = attempted(step, verdict, None, {}, now=self._kit.now())
        else:
            if reply.result.suspended:
                return await self._suspended(step, reply)
            answer = reply.result.value
            assert isinstance(answer, StepAnswer)
            verdict = of_answer(
                answer,
                missing=collected.missing,
                before=self._record(step),
                words=self._words,
                manner=self._manner(step.node.retry),
            )
            output = output_of(answer, collected, step)
            now = self._kit.now()
            attempt = attempted(step, verdict, reply, output, now=now, notes=answer)
            self._tries.told(step, reply)
            await self._make_room(reply)
        return await self._settled(step, attempt, verdict)

    async def _settled(self, step: Next, attempt: Attempt, verdict: Verdict) -> Following:
        self._in_row[step.node.id] += 1
        if attempt.run.status is NodeStatus.DONE:
            del self._in_row[step.node.id]
        if verdict.wait:
            self._rests[step.node.id] = verdict
        why = verdict.error or str(attempt.run.output.get("summary", ""))
        replan = why if verdict.replan else ""
        return await self._kept(
            partial(self._boundary.settle, self._lease, attempt, self._session_id, replan=replan)
        )

    def _manner(self, retry: Retry | None = None) -> Manner:
        return Manner(retry=retry, chance=self._kit.chance())

    def _record(self, step: Next) -> Record:
        """Where several steps run at once each has its own row of failures."""
        record = Record.of(step.task)
        if step.workflow.parallel == 1:
            return record
        return replace(record, in_row=self._in_row[step.node.id])

    async def _suspended(self, step: Next, reply: Reply) -> Following:
        """What it has used is kept; it goes on when people have decided."""
        self._tries.told(step, reply)
        why = self._words("tools.waits")
        return await self._kept(
            partial(self._boundary.suspend, self._lease, step, reply, why, self._session_id)
        )

    async def _wait(self, verdict: Verdict) -> None:
        """Until the next try; the card says so where it is the model that is waited for."""
        if not verdict.away:
            await self._kit.sleep(verdict.wait)
            return
        at = self._kit.now() + timedelta(seconds=verdict.wait)
        why = self._words("work.unreachable", at=formats.clock(at, self._kit.zone))
        await self._kept(partial(self._boundary.note, self._lease, why, why))
        await self._kit.sleep(verdict.wait)
        told = self._words("work.tries_again")
        await self._kept(partial(self._boundary.note, self._lease, "", told, instead_of=why))

    async def _replan(self, step: Next, asked: Replan) -> Following:
        """Ask for a new end of the plan. Where there is no answer the old plan stays, unless it
        is its failing that has asked: then a person is needed."""
        prompt = prompts.replan_prompt(
            step.task, step.workflow, step.runs, asked.why, step.said, so_far=asked.so_far
        )
        try:
            reply, plan = await self._ask_for_plan(prompt, step.run)
        except BudgetReached as reached:
            return await self._wait_for_money(step.run, reached)
        except BackendError as error:
            log.warning("task %s gets no new plan: %s", step.task.id, error)
            if step.task.failures_in_row and not asked.order:
                await self._boundary.stop_at(self._lease, step, TaskStatus.BLOCKED, asked.why)
                return None
            self._boundary.decline(asked.order)
            return await self._do(step)
        return await self._kept(
            partial(self._boundary.replace_plan, self._lease, step, reply, plan, self._session_id)
        )

    async def _wait_for_money(self, run: NodeRun, reached: BudgetReached) -> Following:
        why = self._words(reached.hint)
        return await self._boundary.wait_for_money(
            self._lease, run, reached.hit, why, self._session_id
        )

    async def _land(self, task: Task) -> Following:
        """Done again after a crash it changes nothing."""
        landed = await self._kit.artifacts.land(task)
        note = landed.told(self._words)
        return await self._kept(partial(self._boundary.landed, self._lease, note, self._session_id))

    async def _kept(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """What a call brought is paid for: a full disk is waited for, and nothing done twice."""
        while True:
            try:
                return await write()
            except StoreUnavailable as error:
                log.warning("what task %s did waits for the store: %s", self._task.id, error)
                await self._kit.sleep(_STORE_REST)
