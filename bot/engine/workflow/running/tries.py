"""One try of one step: who does it, with what, and what came of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Reply
from bot.engine.agent.team import Team, Worker
from bot.engine.agent.workbench import Equipment, Job
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import CannotWork, LimitReached, Purpose
from bot.engine.observe.ids import node_span
from bot.engine.workflow import prompts
from bot.engine.workflow.places.artifacts import Collected, names_in_workspace
from bot.engine.workflow.running.kit import Kit
from bot.engine.workflow.steps import Next
from bot.engine.workflow.suspension import news
from storage.records.people import Language


class Tries:
    """The steps of one errand. Those that share a session are done one after the other."""

    def __init__(self, kit: Kit, team: Team, account: Account, language: Language) -> None:
        self._kit = kit
        self._team = team
        self._account = account
        self._language = language
        self._heard: dict[str, prompts.Heard] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def once(self, step: Next) -> tuple[Reply, Collected]:
        """Raises BackendError, and LimitReached where the step's own time is over."""
        name, lane = step.node.persona, step.lane
        worker = await self._team.member(name, lane)
        try:
            return await self._within_its_time(worker, step)
        except CannotWork:
            instead = await self._team.instead(worker, name, lane)
            if instead is None:
                raise
        return await self._within_its_time(instead, step)

    async def _within_its_time(self, worker: Worker, step: Next) -> tuple[Reply, Collected]:
        async with self._turns[worker.session.id]:
            limit = asyncio.timeout(step.node.timeout)
            try:
                async with limit:
                    return await self._done_by(worker, step)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise LimitReached("the step's time is over", hint="workflow.step_late") from error
            finally:
                self._kit.progress.ended(step.task.id, step.node.id)

    def told(self, step: Next, reply: Reply) -> None:
        """The session holds the task and this step now."""
        session = reply.session.id
        steps = self._heard.get(session, prompts.NOTHING).steps | {step.node.id}
        self._heard[session] = prompts.Heard(task=True, steps=steps)

    def told_of_task(self, session: str) -> None:
        self._heard[session] = prompts.Heard(task=True)

    async def with_pictures(self, ask: Ask, worker: Worker, files: tuple[str, ...]) -> Ask:
        """What the Boss sent along to look at, where its session has not heard of the task yet:
        what an earlier life was answered in it began with them."""
        show, names = self._kit.show_pictures, names_in_workspace(files)
        session = worker.session
        if show is None or session.turns or self._heard.get(session.id, prompts.NOTHING).task:
            return ask
        return await show(ask, worker.chosen, names)

    async def _done_by(self, worker: Worker, step: Next) -> tuple[Reply, Collected]:
        workspace = await self._kit.artifacts.workspace(step.task)
        equipment = await self._equip(step, worker, workspace)
        trouble = step.runs[step.node.id].error if step.node.id in step.runs else ""
        ask = Ask(
            purpose=Purpose.STEP,
            prompt=equipment.aside
            + prompts.step_prompt(
                step.task,
                step.workflow,
                step.runs,
                step.node,
                trouble=trouble,
                said=prompts.still_news(step.said, step.runs, step.deaf),
                heard=self._heard.get(worker.session.id, prompts.NOTHING),
            )
            + _must_be_there(step),
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
            parent=node_span(step.task.id, step.node.id, step.run.attempt),
        )
        if not step.resumes:
            ask = await self.with_pictures(ask, worker, step.task.files)
        watch = self._kit.progress.watch(step.task.id, step.node.id)
        reply = await self._kit.desk.ask(ask, worker.chosen, worker.session, watch)
        answer = reply.result.value
        claimed = tuple(answer.files) if isinstance(answer, StepAnswer) else ()
        if isinstance(answer, StepAnswer) and answer.status == "done":
            claimed += step.node.deliverables
        return reply, await self._kit.artifacts.collect(step.task.id, workspace, claimed)

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


def _must_be_there(step: Next) -> str:
    names = ", ".join(step.node.deliverables)
    return f"\n\nFiles that must be there when it is done: {names}" if names else ""


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
