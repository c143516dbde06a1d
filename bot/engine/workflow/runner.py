"""Move one task on, step by step, until it gives its slot back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar, assert_never
from zoneinfo import ZoneInfo

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Desk, Reply
from bot.engine.agent.leave.asking import Asker
from bot.engine.agent.team import Team, Worker, purposes
from bot.engine.agent.workbench import Equipment, Job, Workbench
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BudgetReached,
    Chosen,
    Purpose,
)
from bot.engine.workflow import prompts
from bot.engine.workflow.boundary import AskForMore, Boundary, Leaves
from bot.engine.workflow.graph import PLANNING
from bot.engine.workflow.places.artifacts import Artifacts, Collected, names_in_workspace
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.steps import (
    Following,
    Landing,
    Next,
    Replan,
    attempted,
    output_of,
    planned,
)
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.suspension import Suspensions, news
from bot.engine.workflow.verdict import Record, Verdict, of_answer, of_error
from cards import formats
from cards.words import Words, words_for
from storage.errors import LostLease, StoreUnavailable
from storage.records.people import Chat, ChatId, Language
from storage.records.tasks import Lease, NodeRun, Task, TaskStatus

log = logging.getLogger(__name__)

_MOST_CONTEXT = 120_000
_STORE_REST = 5.0

_T = TypeVar("_T")

ShowPictures: TypeAlias = Callable[[Ask, Chosen, Sequence[str]], Awaitable[Ask]]
"""The same with those of these files of its workspace that are pictures, as its model can take
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What every errand needs. `bench` is where a worker finds its tools; `chat_of` finds
    the chat whose model does the work where the task names none; `leaves` says which steps a
    person is asked about; `recall` finds what earlier tasks have left that may help; `on_change`
    is called after each commit that wrote events; `zone` is the one that people's clocks show.
    `asker` asks for leave to use tools: without one no step stops for that. `progress` is told
    what the running step does; `show_pictures` gives the model those that were sent along."""

    store: WorkStore
    desk: Desk
    artifacts: Artifacts
    bench: Workbench
    language_of: Callable[[Task], Awaitable[Language]]
    chat_of: Callable[[ChatId], Awaitable[Chat]]
    leaves: Leaves
    ask_for_more: AskForMore
    recall: Callable[[Task], Awaitable[Sequence[str]]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    on_change: Callable[[], None]
    zone: ZoneInfo
    asker: Asker | None = None
    show_pictures: ShowPictures | None = None
    progress: Progress = field(default_factory=Progress)


class TaskRunner:
    """Runs claimed tasks, any number at once. Everything it knows is in the store."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    async def run(self, task: Task) -> None:
        """Run a task just claimed. Cancel to stop at once: what is stored stays true."""
        try:
            await _Errand(self._kit, task, await self._kit.language_of(task)).run()
        except LostLease:
            log.info("task %s is not ours any more", task.id)
        finally:
            self._kit.progress.forget(task.id)


class _Errand:
    """One task under way: its lease, and the session that its steps share."""

    _team: Team
    _lead: Worker

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
            suspensions=Suspensions(kit.asker),
        )
        self._declined: set[int] = set()
        self._heard: dict[str, prompts.Heard] = {}
        self._lease = Lease(task_id=task.id, epoch=task.epoch)
        self._account = Account(person=task.created_by, chat=task.chat_id, task=task.id)

    async def run(self) -> None:
        try:
            await self._gather()
        except BackendDenied as error:
            await self._block(error)
            return
        if self._task.graph_version:
            step = await self._boundary.go_on(self._lease, self._session_id)
        else:
            step = await self._plan()
        while step is not None:
            step = await self._follow(step)

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
            most_tokens=_MOST_CONTEXT,
        )
        self._lead = await self._team.lead(task.persona or settings.persona)

    @property
    def _session_id(self) -> str:
        return self._lead.session.id

    async def _make_room(self, reply: Reply) -> None:
        """A session that has grown too long is left behind: the next step is told everything."""
        if reply.result.context > _MOST_CONTEXT:
            self._team.leave(reply.session)
            self._lead = await self._team.member("")

    async def _follow(self, step: Next | Landing) -> Following:
        match step:
            case Landing(task=task):
                return await self._land(task)
            case Next(replan=Replan() as asked) if asked.order not in self._declined:
                return await self._replan(step, asked)
            case Next():
                return await self._do(step)
            case never:
                assert_never(never)

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
                reply = await self._ask_for_plan(prompt)
            except BudgetReached as reached:
                await self._wait_for_money(run, reached)
                return None
            except BackendError as error:
                verdict = of_error(error, failures=failures, words=self._words)
            else:
                plan = planned(reply)
                # Its steps share the session in which the task was told and the plan was made.
                self._heard[self._session_id] = prompts.Heard(task=True)
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

    async def _ask_for_plan(self, prompt: str) -> Reply:
        ask = Ask(
            purpose=Purpose.PLAN,
            prompt=prompt,
            system=prompts.plan_system(self._language, purposes(await self._kit.bench.known())),
            language=self._language,
            account=self._account,
            facts={"text": self._task.instruction, "files": self._task.files},
            workspace=await self._kit.artifacts.workspace(self._task),
            result=PlanAnswer,
        )
        ask = await self._with_pictures(ask, self._lead)
        watch = self._kit.progress.watch(self._task.id, PLANNING)
        return await self._kit.desk.ask(ask, self._lead.chosen, self._lead.session, watch)

    async def _do(self, step: Next) -> Following:
        """Try one step once, store how it ended, and say what is next."""
        try:
            reply, collected = await self._attempt(step)
        except BudgetReached as reached:
            await self._wait_for_money(step.run, reached)
            return None
        except BackendError as error:
            failures = step.task.failures_in_row
            verdict = of_error(error, failures=failures, words=self._words)
            attempt = attempted(step, verdict, None, {}, now=self._kit.now())
        else:
            if reply.result.suspended:
                return await self._suspended(step, reply)
            answer = reply.result.value
            assert isinstance(answer, StepAnswer)
            verdict = of_answer(
                answer,
                missing=collected.missing,
                before=Record.of(step.task),
                words=self._words,
            )
            output = output_of(answer, collected, heard=len(step.said))
            now = self._kit.now()
            attempt = attempted(step, verdict, reply, output, now=now, notes=answer)
            self._told(step, reply)
            await self._make_room(reply)
        following = await self._kept(
            partial(self._boundary.settle, self._lease, attempt, self._session_id)
        )
        if isinstance(following, Next) and verdict.replan:
            why = verdict.error or str(attempt.run.output.get("summary", ""))
            following = replace(following, replan=Replan(why=why))
        if following is not None and verdict.wait:
            await self._wait(verdict)
        return following

    async def _suspended(self, step: Next, reply: Reply) -> Following:
        """What it has used is kept; it goes on when people have decided."""
        self._told(step, reply)
        why = self._words("tools.waits")
        return await self._kept(partial(self._boundary.suspend, self._lease, step, reply, why))

    def _told(self, step: Next, reply: Reply) -> None:
        """The session holds the task and this step now."""
        session = reply.session.id
        steps = self._heard.get(session, prompts.NOTHING).steps | {step.node.id}
        self._heard[session] = prompts.Heard(task=True, steps=steps)

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

    async def _attempt(self, step: Next) -> tuple[Reply, Collected]:
        workspace = await self._kit.artifacts.workspace(step.task)
        worker = await self._team.member(step.node.persona)
        equipment = await self._equip(step, worker, workspace)
        trouble = step.runs[step.node.id].error if step.node.id in step.runs else ""
        ask = Ask(
            purpose=Purpose.STEP,
            prompt=prompts.step_prompt(
                step.task,
                step.workflow,
                step.runs,
                step.node,
                trouble=trouble,
                said=prompts.still_news(step.said, step.runs),
                heard=self._heard.get(worker.session.id, prompts.NOTHING),
            ),
            system=_joined(equipment.system, prompts.step_system(self._language)),
            language=self._language,
            account=self._account,
            facts=prompts.step_facts(step.task, step.workflow, step.runs, step.node),
            workspace=workspace,
            tools=equipment.tools,
            permit=equipment.permit,
            servers=equipment.servers,
            result=StepAnswer,
            mode=equipment.persona.works_in,
            goes_on=news(step) if step.resumes else None,
        )
        if not step.resumes:
            ask = await self._with_pictures(ask, worker)
        watch = self._kit.progress.watch(step.task.id, step.node.id)
        reply = await self._kit.desk.ask(ask, worker.chosen, worker.session, watch)
        answer = reply.result.value
        claimed = tuple(answer.files) if isinstance(answer, StepAnswer) else ()
        return reply, await self._kit.artifacts.collect(step.task.id, workspace, claimed)

    async def _with_pictures(self, ask: Ask, worker: Worker) -> Ask:
        """What the Boss sent along to look at, where its session has not heard of the task yet:
        what an earlier life was answered in it began with them."""
        show, names = self._kit.show_pictures, names_in_workspace(self._task.files)
        session = worker.session
        if show is None or session.turns or self._heard.get(session.id, prompts.NOTHING).task:
            return ask
        return await show(ask, worker.chosen, names)

    async def _equip(self, step: Next, worker: Worker, workspace: Path) -> Equipment:
        job = Job(
            account=self._account,
            session=worker.session,
            language=self._language,
            workspace=workspace,
            persona=worker.persona.name,
            mode=worker.persona.works_in,
            path=step.node.id,
            text=f"{step.node.title}\n{step.node.detail}",
        )
        return await self._kit.bench.equip(job)

    async def _replan(self, step: Next, asked: Replan) -> Following:
        """Ask for a new end of the plan. Where there is no answer the old plan stays, unless it
        is its failing that has asked: then a person is needed."""
        prompt = prompts.replan_prompt(step.task, step.workflow, step.runs, asked.why, step.said)
        try:
            reply = await self._ask_for_plan(prompt)
        except BudgetReached as reached:
            await self._wait_for_money(step.run, reached)
            return None
        except BackendError as error:
            log.warning("task %s gets no new plan: %s", step.task.id, error)
            if step.task.failures_in_row and not asked.order:
                await self._boundary.stop_at(self._lease, step, TaskStatus.BLOCKED, asked.why)
                return None
            self._declined.add(asked.order)
            return step
        plan = planned(reply)
        return await self._kept(
            partial(self._boundary.replace_plan, self._lease, step, reply, plan, self._session_id)
        )

    async def _wait_for_money(self, run: NodeRun, reached: BudgetReached) -> None:
        await self._boundary.wait_for_money(
            self._lease, run, reached.hit, self._words(reached.hint)
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


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
