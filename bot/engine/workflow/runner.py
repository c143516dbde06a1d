"""Runs claimed tasks: requests plans, executes steps (several at once where the workflow allows it)
and commits every result, until the task gives its slot back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TypeVar, assert_never

from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.agent.prompt_versions import TaskAttempt
from bot.engine.agent.worker_context import WorkerTeam, persona_purposes
from bot.engine.llm.answer_schemas import StepAnswer, plan_answer_for
from bot.engine.llm.backend import BackendDenied, BackendError, BudgetExceeded, RunPurpose
from bot.engine.tracing.span_ids import node_span_id
from bot.engine.workers.spec import CostAccount
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow import prompts
from bot.engine.workflow.checkpoint import TaskCheckpoint
from bot.engine.workflow.checkpoint_events import (
    FilesUnchecked,
    MergePending,
    NextAction,
    PlanningStarted,
    ReplanRequest,
    StartedStep,
    StepsStarted,
)
from bot.engine.workflow.concurrent_work import ConcurrentWork
from bot.engine.workflow.definition import RetryPolicy, Workflow
from bot.engine.workflow.error_policy import (
    FailureHistory,
    RetryDecision,
    RetryOptions,
    decide_on_answer,
    decide_on_call,
    decide_on_error,
)
from bot.engine.workflow.node_runs import (
    FRESH_START_PATH,
    PLANNING_PATH,
    REPORTED_ERROR_KEY,
    VALUES_KEY,
)
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.output_schema import TypedStepAnswer
from bot.engine.workflow.plan import repeats_open_steps
from bot.engine.workflow.planner import (
    UnreadablePlan,
    defer_first_questions,
    is_joinable,
    one_step_plan,
    request_valid_plan,
)
from bot.engine.workflow.step_executor import RunnerDeps, StepExecutor, words_of
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from storage.db import retry_until_stored
from storage.errors import LostLease
from storage.records.people import Language
from storage.records.tasks import NodeRun, NodeStatus, Task, TaskId, TaskLease, TaskStatus

log = logging.getLogger(__name__)

# The longest sleep beside running steps: a clock set forward is noticed this late.
_MAX_SLEEP = 300.0
_MAX_SUMMARY = 20_000

_T = TypeVar("_T")


class TaskRunner:
    """Runs any number of claimed tasks at once. All of its state is in the store."""

    def __init__(self, deps: RunnerDeps) -> None:
        self._deps = deps
        self._begun_at = deps.now()
        self._task_runs: dict[TaskId, _TaskRun] = {}

    async def run(self, task: Task) -> None:
        """Run a task that was just claimed. It may be cancelled at any time; what is stored is
        complete.
        """
        language = await self._deps.language_of(task)
        task_run = _TaskRun(self._deps, task, language, self._begun_at)
        self._task_runs[task.id] = task_run
        try:
            await task_run.run()
        except LostLease:
            log.info("task %s: the lease is lost", task.id)
        finally:
            # A task that was stopped and claimed again at once has a newer entry here.
            if self._task_runs.get(task.id) is task_run:
                del self._task_runs[task.id]
            self._deps.progress.forget_task(task.id)
            await self._deps.gateway.end_kept_processes(task.id)

    def wake(self, task: TaskId | None = None) -> None:
        """Wake a running task, or all: a person may have decided about a step or sent a
        command."""
        for id_, task_run in self._task_runs.items():
            if task in {None, id_}:
                task_run.wake_signal.set()


class _TaskRun:
    """One run of a task: its lease, and the sessions that its steps share."""

    _team: WorkerTeam
    _executor: StepExecutor

    def __init__(
        self, deps: RunnerDeps, task: Task, language: Language, program_began_at: datetime
    ) -> None:
        self._deps = deps
        self._program_began_at = program_began_at
        self._task = task
        self._language = language
        self._words: TextCatalog = catalog_for(language)
        self._checkpoint = TaskCheckpoint(
            TaskLease(task_id=task.id, epoch=task.epoch),
            store=deps.store,
            gateway=deps.gateway,
            approvals=deps.step_approvals,
            request_cap_extension=deps.request_cap_extension,
            now=deps.now,
            on_change=deps.on_change,
            words=self._words,
            zone=deps.zone,
            tool_approvals=deps.tool_approvals,
        )
        self.wake_signal = asyncio.Event()
        self._planning_failures = 0
        # Tries of each step that failed in a row, and how long to wait before the next.
        self._consecutive_failures: Counter[str] = Counter()
        self._pending_retries: dict[str, RetryDecision] = {}
        self._account = CostAccount(person=task.created_by, chat=task.chat_id, task=task.id)

    async def run(self) -> None:
        try:
            await self._prepare_workers()
        except BackendDenied as error:
            await self._block_task(error)
            return
        started = events.Started(since=self._program_began_at)
        begun = started if self._task.graph_version else events.PlanningBegun()
        await self._run_steps(await self._commit(begun))

    async def _run_steps(self, following: NextAction) -> None:
        """Do steps, several at once where the workflow allows it, until the slot is given back."""
        cancelled = self._checkpoint.cancelled_attempts
        async with ConcurrentWork[NextAction]() as branches:
            while following is not None:
                await branches.cancel(cancelled)
                match following:
                    case PlanningStarted():
                        following = await self._make_plan(following)
                    case MergePending(task=task):
                        following = await self._merge_work(task)
                    case FilesUnchecked():
                        following = await self._check_files(following)
                    case StepsStarted():
                        for step in following.steps:
                            attempt = (step.run.path, step.run.attempt)
                            # The commit that cancelled it may be newer than this answer.
                            if attempt not in cancelled:
                                name = f"step {step.node.id}"
                                branches.start(self._run_step(step), name, attempt)
                        following = await self._next_action(branches, following)
                    case never:
                        assert_never(never)

    async def _next_action(
        self, branches: ConcurrentWork[NextAction], last: StepsStarted
    ) -> NextAction:
        """The action after the step that ends first, or after a wake-up that is due before."""
        if branches:
            within = None
            if last.wake_at is not None:
                left = (last.wake_at - self._deps.now()).total_seconds()
                within = min(_MAX_SLEEP, max(0.0, left))
            ended = await branches.next_result(
                seconds=within, signal=self.wake_signal if last.wakes_on_signal else None
            )
            if ended:
                return ended[0]
            self.wake_signal.clear()
        return await self._commit_with_retry(events.Woken())

    async def _prepare_workers(self) -> None:
        """Choose the worker of each step. The task's own choices win over its chat's, those over
        its persona's, and those over the program's.
        """
        task = self._task
        settings = (await self._deps.chat_of(task.chat_id)).settings
        again = await self._deps.store.graphs.find_run(task.id, FRESH_START_PATH)
        times = 0 if again is None else again.output.get("times", 0)
        self._team = WorkerTeam(
            self._deps.gateway,
            self._deps.worker_context,
            # Steps that run again must not be told what came of them before.
            key=f"task:{task.id}:again{times}" if times else f"task:{task.id}",
            preferences=(task, settings),
            max_session_tokens=self._deps.max_context_tokens,
        )
        await self._team.assign_lead(task.persona or settings.persona)
        self._executor = StepExecutor(self._deps, self._team, self._account, self._language)

    @property
    def _session_id(self) -> str:
        return self._team.current_lead.session.id

    async def _rotate_session(self, reply: ModelReply) -> None:
        """Replace a session that has grown too long: the next step gets the whole context."""
        if reply.result.context_tokens > self._deps.max_context_tokens:
            self._team.retire_session(reply.session)
            await self._team.get_worker("")

    async def _run_step(self, step: StartedStep) -> NextAction:
        if rest := self._pending_retries.pop(step.node.id, None):
            await self._wait_before_retry(rest)
        if step.replan is not None:
            return await self._replace_plan(step, step.replan)
        return await self._attempt_step(step)

    async def _block_task(self, error: BackendError) -> None:
        begun = await self._checkpoint.commit(events.PlanningBegun())
        assert isinstance(begun, PlanningStarted)
        told = self._words(error.hint)
        await self._checkpoint.commit(
            events.RunStopped(_failed(begun.run, told), TaskStatus.BLOCKED, told)
        )

    async def _make_plan(self, begun: PlanningStarted) -> NextAction:
        """Request a plan once. If that fails, planning starts again unless it was the
        last attempt.
        """
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import find_named_files

        run, recalled = begun.run, await self._deps.recall(self._task)
        prompt = prompts.plan_prompt(self._task, messages=begun.messages, memories=recalled)
        try:
            reply, plan = await self._request_plan(prompt, run)
        except BudgetExceeded as reached:
            return await self._wait_for_budget(run, reached)
        except UnreadablePlan as error:
            log.warning("task %s is done in one step: %s", self._task.id, error)
            plan = one_step_plan(self._task, error.reason, self._words)
            return await self._commit_with_retry(events.PlanAdopted(run, None, plan))
        except BackendError as error:
            verdict = decide_on_error(
                error,
                failures_before=self._planning_failures,
                words=self._words,
                options=self._retry_options(),
            )
        else:
            named = () if plan.nodes else find_named_files(self._task.instruction)
            if named:
                # An answer makes no file.
                why = self._words("workflow.names_files", files=", ".join(named))
                plan = one_step_plan(self._task, why, self._words)
            elif self._is_too_fine(reply, plan):
                why = self._words("workflow.too_fine")
                plan = one_step_plan(self._task, why, self._words)
            if reply.result.writes_calls:
                # A small model answers beside its steps, before anything is done.
                nodes = tuple(replace(node, own_session=True) for node in plan.nodes)
                plan = replace(plan, nodes=nodes)
            risk_words = self._deps.step_approvals.rules.words
            plan = defer_first_questions(plan, prompt, risk_words)
            # Its steps share the session that contains the task and the plan.
            self._executor.mark_task_delivered(self._session_id)
            return await self._commit_with_retry(events.PlanAdopted(run, reply, plan))
        if verdict.stop is not None:
            status, reason = verdict.stop
            return await self._commit(
                events.RunStopped(_failed(run, verdict.error), status, reason)
            )
        self._planning_failures += 1
        await self._wait_before_retry(verdict)
        return await self._commit(events.PlanningBegun())

    async def _request_plan(self, prompt: str, run: NodeRun) -> tuple[ModelReply, Workflow]:
        team = persona_purposes(await self._deps.worker_context.personas.get_all())
        planner = await self._deps.worker_context.get_built_in(
            prompts.PLANNER,
            prompts.BUILT_IN_PROMPTS[prompts.PLANNER],
            TaskAttempt(run.task_id, run.path, run.attempt),
        )
        ask = ModelRequest(
            purpose=RunPurpose.PLAN,
            prompt=prompt,
            system_prompt=prompts.plan_system(self._language, team, planner),
            language=self._language,
            account=self._account,
            facts={"text": self._task.instruction, "files": self._task.files},
            workspace=await self._deps.artifacts.workspace(self._task),
            result_type=plan_answer_for(tuple(sorted(team))),
            limits=self._team.current_lead.persona.limits.apply(self._deps.limits),
            parent_span=node_span_id(run.task_id, run.path, run.attempt),
        )
        ask = await self._executor.with_images(ask, self._team.current_lead, self._task.files)
        watch = self._deps.progress.watch(self._task.id, PLANNING_PATH)

        async def put(ask: ModelRequest) -> ModelReply:
            ask = replace(ask, turn_key=f"plan {run.task_id} {ask.prompt}")
            lead, gateway = self._team.current_lead, self._deps.gateway
            while True:
                try:
                    return await gateway.call_model(ask, lead.chosen, lead.session, watch)
                except BackendError as error:
                    instead = await self._team.get_replacement(lead, error, path=run.path)
                    if instead is None:
                        raise
                lead = instead
                ask = await self._executor.with_images(
                    replace(ask, pictures=()), lead, self._task.files
                )

        async def paid(reply: ModelReply) -> None:
            await self._write_with_retry(partial(self._checkpoint.record_reply, reply))

        return await request_valid_plan(ask, put, paid, self._words)

    async def _attempt_step(self, step: StartedStep) -> NextAction:
        """Execute one attempt of a step and commit its result."""
        if step.node.role is NodeRole.CALL:
            return await self._attempt_call(step)
        try:
            step = await self._executor.note_files(step)
            attempt = await self._executor.attempt(step)
        except BudgetExceeded as reached:
            return await self._wait_for_budget(step.run, reached)
        except BackendError as error:
            verdict = decide_on_error(
                error,
                failures_before=self._failure_history(step).consecutive,
                words=self._words,
                options=self._retry_options(step.node.retry),
            )
            return await self._record_attempt(step, verdict)
        step, reply, collected = attempt.step, attempt.reply, attempt.files
        if reply.result.suspended:
            return await self._suspend_step(step, reply)
        answer = reply.result.value
        assert isinstance(answer, StepAnswer)
        history = self._failure_history(step)
        verdict = decide_on_answer(
            answer,
            faults={"missing_files": collected.missing, **attempt.faults},
            called_nothing=attempt.called_nothing,
            known_words=words_of(step),
            failed_report=step.failed_report,
            last_report=step.last_report,
            # Outages before count neither as attempts nor as warnings.
            history=replace(history, consecutive=history.consecutive if step.last_error else 0),
            words=self._words,
            options=self._retry_options(step.node.retry),
        )
        # `made` has the files as the worker names them, `files` as people get them.
        output: dict[str, object] = {
            "summary": answer.summary[:_MAX_SUMMARY],
            "made": list(answer.files),
            "files": list(collected.copies),
            "left_out": list(collected.skipped),
            **step.delivery_output,
        }
        if isinstance(answer, TypedStepAnswer) and answer.status == "done":
            output[VALUES_KEY] = answer.output
        self._executor.mark_delivered(step, reply)
        await self._rotate_session(reply)
        return await self._record_attempt(step, verdict, reply, answer, output)

    async def _attempt_call(self, step: StartedStep) -> NextAction:
        """Execute one attempt of a step that calls a tool itself, and commit its result."""
        try:
            result, files, session_id = await self._executor.call(step)
        except BackendDenied as error:
            told = self._words(error.hint)
            verdict = RetryDecision(
                status=NodeStatus.FAILED, error=told, stop=(TaskStatus.BLOCKED, told)
            )
            return await self._record_attempt(step, verdict, is_call=True)
        if result.pending_call:
            call = (session_id, result.pending_call)
            waits = self._words("tools.waits")
            return await self._commit_with_retry(events.StepSuspended(step, None, waits, call))
        verdict = decide_on_call(
            result.error,
            may_repeat=step.node.repeatable,
            failures_before=self._failure_history(step).consecutive,
            options=self._retry_options(step.node.retry),
        )
        output: dict[str, object] = {
            "summary": result.summary,
            "files": list(files.copies),
            "left_out": list(files.skipped),
            VALUES_KEY: dict(result.values),
        }
        return await self._record_attempt(step, verdict, output=output, is_call=True)

    async def _record_attempt(
        self,
        step: StartedStep,
        verdict: RetryDecision,
        reply: ModelReply | None = None,
        answer: StepAnswer | None = None,
        output: Mapping[str, object] = MappingProxyType({}),
        *,
        is_call: bool = False,
    ) -> NextAction:
        self._consecutive_failures[step.node.id] += 1
        if verdict.status is NodeStatus.DONE:
            del self._consecutive_failures[step.node.id]
        elif not is_call:
            output = {**output, **step.unfinished_output}
        if verdict.backend_unavailable:
            output = {**output, REPORTED_ERROR_KEY: step.last_error}
        if verdict.delay_seconds:
            self._pending_retries[step.node.id] = verdict
        ended = replace(
            step.run,
            status=verdict.status,
            output=output,
            error=verdict.error,
            ended_at=self._deps.now(),
        )
        reason = verdict.error or str(output.get("summary", ""))
        attempt = events.StepEnded(
            run=ended,
            title=step.node.title,
            reply=reply,
            notes=answer,
            may_retry=verdict.may_retry,
            stop=verdict.stop,
            is_permanent=verdict.is_permanent,
            replan_reason=reason if verdict.replan else "",
            is_call=is_call,
        )
        return await self._commit_with_retry(attempt)

    def _retry_options(self, retry: RetryPolicy | None = None) -> RetryOptions:
        return RetryOptions(policy=retry, jitter=self._deps.jitter())

    def _failure_history(self, step: StartedStep) -> FailureHistory:
        """The earlier failures of a step. While several steps run at once, each counts its own
        failures in a row.
        """
        record = FailureHistory.from_task(step.task)
        if step.workflow.parallel == 1:
            return record
        return replace(record, consecutive=self._consecutive_failures[step.node.id])

    async def _suspend_step(self, step: StartedStep, reply: ModelReply) -> NextAction:
        self._executor.mark_delivered(step, reply)
        return await self._commit_with_retry(
            events.StepSuspended(step, reply, self._words("tools.waits"))
        )

    async def _wait_before_retry(self, verdict: RetryDecision) -> None:
        """Wait until the next attempt; the card says so if the model is unreachable."""
        if not verdict.backend_unavailable:
            await self._deps.sleep(verdict.delay_seconds)
            return
        at = self._deps.now() + timedelta(seconds=verdict.delay_seconds)
        why = self._words("work.unreachable", at=formats.time_of_day(at, self._deps.zone))
        await self._commit_with_retry(events.ReasonChanged(why, why))
        await self._deps.sleep(verdict.delay_seconds)
        told = self._words("work.tries_again")
        await self._commit_with_retry(events.ReasonChanged("", told, replaces=why))

    async def _replace_plan(self, step: StartedStep, asked: ReplanRequest) -> NextAction:
        """Request new steps for the rest of the plan. If there are none the old plan stays, unless
        its failure was the reason: then a person is needed."""
        prompt = prompts.replan_prompt(
            step.task,
            step.workflow,
            step.runs,
            asked.reason,
            step.messages,
            partial_runs=asked.partial_runs,
        )
        try:
            reply, plan = await self._request_plan(prompt, step.run)
        except BudgetExceeded as reached:
            return await self._wait_for_budget(step.run, reached)
        except BackendError as error:
            log.warning("task %s cannot be replanned: %s", step.task.id, error)
            if step.task.failures_in_row and not asked.order_number:
                untried = replace(step.run, error=asked.reason)
                return await self._commit(
                    events.RunStopped(untried, TaskStatus.BLOCKED, asked.reason, may_retry=True)
                )
            self._checkpoint.decline_replan(asked.order_number)
            return await self._attempt_step(step)
        if not asked.order_number and repeats_open_steps(plan, step.workflow, step.runs):
            # What has failed twice fails again; the task itself may not.
            plan = one_step_plan(self._task, self._words("workflow.same_plan"), self._words)
        elif not asked.order_number and self._is_too_fine(reply, plan):
            plan = one_step_plan(self._task, self._words("workflow.too_fine"), self._words)
        return await self._commit_with_retry(events.PlanReplaced(step, reply, plan))

    def _is_too_fine(self, reply: ModelReply, plan: Workflow) -> bool:
        return reply.result.writes_calls and is_joinable(plan, self._task.instruction)

    async def _wait_for_budget(self, run: NodeRun, reached: BudgetExceeded) -> NextAction:
        return await self._commit(events.BudgetReached(run, reached.cap, self._words(reached.hint)))

    async def _check_files(self, last: FilesUnchecked) -> NextAction:
        """Look for the files that a branching plan should have made. Repeating it after a crash is
        safe.
        """
        try:
            workspace = await self._deps.artifacts.workspace(last.task)
        except BackendDenied as error:
            log.warning("task %s: its files are not checked: %s", last.task.id, error)
            return await self._commit_with_retry(events.FilesChecked(()))
        found = await self._deps.artifacts.collect(last.task.id, workspace, (), last.files)
        return await self._commit_with_retry(events.FilesChecked(found.missing))

    async def _merge_work(self, task: Task) -> NextAction:
        """Merge the work into the project. Repeating it after a crash changes nothing."""
        await self._deps.gateway.end_kept_processes(task.id)
        landed = await self._deps.artifacts.merge(task)
        return await self._commit_with_retry(events.Merged(landed.describe(self._words)))

    async def _commit(self, event: events.CheckpointEvent) -> NextAction:
        return await self._checkpoint.commit(event, self._session_id)

    async def _commit_with_retry(self, event: events.CheckpointEvent) -> NextAction:
        return await self._write_with_retry(partial(self._commit, event))

    async def _write_with_retry(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Write, and wait while the disk is full: the call was paid for and must not be
        repeated.
        """
        return await retry_until_stored(write, self._deps.sleep, f"task {self._task.id}")


def _failed(run: NodeRun, error: str) -> NodeRun:
    return replace(run, status=NodeStatus.FAILED, error=error)
