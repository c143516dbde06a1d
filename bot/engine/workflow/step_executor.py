"""Executes one attempt of one step: the worker, its tools and prompt, the model call, the files."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.prompt_versions import TaskAttempt
from bot.engine.agent.worker_context import (
    AssignedWorker,
    WorkerContext,
    WorkerContextBuilder,
    WorkerTeam,
)
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import (
    BackendError,
    RunLimitReached,
    RunLimits,
    RunPurpose,
    SelectedBackend,
)
from bot.engine.llm.file_syntax import SyntaxScanner, describe_faults, find_named_paths
from bot.engine.llm.tool_calls import READ_ONLY_KINDS, CallKind, NeededCall, ResultFault, WorkChecks
from bot.engine.llm.workspace_files import find_file
from bot.engine.permissions.requests import ApprovalRequester
from bot.engine.tracing.span_ids import node_span_id
from bot.engine.workers.spec import CostAccount, WorkerSpec
from bot.engine.workflow import prompts
from bot.engine.workflow.call_steps import CallResult, CallSteps
from bot.engine.workflow.checkpoint_events import StartedStep
from bot.engine.workflow.error_policy import find_placeholder
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.node_runs import attempts_before
from bot.engine.workflow.output_schema import answer_type
from bot.engine.workflow.plan import is_chain
from bot.engine.workflow.report_delivery import TaskSteering
from bot.engine.workflow.step_approvals import (
    RequestCapExtension,
    StepApprovalRequester,
    step_turn_key,
)
from bot.engine.workflow.task_store import TaskStore
from bot.engine.workspaces.task_workspaces import CollectedFiles, TaskArtifacts, workspace_names
from cards.catalog import catalog_for
from storage.records.people import Chat, ChatId, Language
from storage.records.tasks import Task

if TYPE_CHECKING:
    from bot.engine.agent.requested_values import FileMark

AttachImages: TypeAlias = Callable[
    [ModelRequest, SelectedBackend, Sequence[str]], Awaitable[ModelRequest]
]
"""Adds the pictures among these files to a request, in the form that the backend takes."""

MAX_CONTEXT_TOKENS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultClaim:
    """The files of a result, the files that the step's words name, and what is plainly untrue about
    the result: names by the key of the fault.
    """

    files: tuple[str, ...] = ()
    named_files: tuple[str, ...] = ()
    faults: dict[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerDeps:
    """The dependencies of every task run.

    `chat_of` finds the chat whose model does the work if the task names none; `step_approvals`
    decides which steps people are asked about; `recall` finds results of earlier tasks that may
    help; `on_change` is called after each commit that wrote events; `zone` is the time zone of
    people's clocks; `progress` receives the events of running steps; `limits` are those of a run
    unless its node or persona has others; `jitter`, from 0 to 1, spreads retries. A session of more
    than `max_context_tokens` is replaced. Without `attach_images` models see no pictures.
    `call_steps` executes the steps without a model."""

    store: TaskStore
    gateway: ModelGateway
    artifacts: TaskArtifacts
    worker_context: WorkerContextBuilder
    language_of: Callable[[Task], Awaitable[Language]]
    chat_of: Callable[[ChatId], Awaitable[Chat]]
    step_approvals: StepApprovalRequester
    request_cap_extension: RequestCapExtension
    recall: Callable[[Task], Awaitable[Sequence[str]]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    on_change: Callable[[], None]
    zone: ZoneInfo
    tool_approvals: ApprovalRequester
    attach_images: AttachImages | None
    progress: LiveProgress
    limits: RunLimits
    call_steps: CallSteps | None = None
    jitter: Callable[[], float] = random.random
    max_context_tokens: int = MAX_CONTEXT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttempt:
    """How an attempt ended. `step` includes the messages that its worker received during it.
    `faults` are keys in the catalogue's group `work`: what speaks against the report. With
    `called_nothing` the worker says that it could not do the step although it used none of its
    tools.
    """

    step: StartedStep
    reply: ModelReply
    files: CollectedFiles
    faults: Mapping[str, Sequence[str]]
    called_nothing: bool = False


class StepExecutor:
    """Executes the steps of one task run. Steps that share a session run one after the other."""

    def __init__(
        self, deps: RunnerDeps, team: WorkerTeam, account: CostAccount, language: Language
    ) -> None:
        self._deps = deps
        self._team = team
        self._account = account
        self._language = language
        self._delivered: dict[str, prompts.DeliveredContext] = {}
        self._session_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._scanner = SyntaxScanner()

    async def attempt(self, step: StartedStep) -> StepAttempt:
        """Execute one attempt. Raises BackendError, and RunLimitReached if the step is
        out of time.
        """
        name, lane = step.node.persona, step.lane
        # A person has decided about calls at the end of its session.
        keeps_history = step.is_resumed
        worker = await self._team.get_worker(name, lane, keeps_history=keeps_history)
        while True:
            try:
                return await self._attempt_in_time(worker, step)
            except BackendError as error:
                instead = await self._team.get_replacement(
                    worker, error, lane, path=step.node.id, keeps_history=keeps_history
                )
                if instead is None:
                    raise
                worker = instead

    async def call(self, step: StartedStep) -> tuple[CallResult, CollectedFiles, str]:
        """Make the call of a step without a model. Returns the result, copies of the files that it
        wrote, and the session in which the call is recorded. Raises BackendDenied.
        """
        if self._deps.call_steps is None:
            raise RuntimeError("no tools can be called")
        lead = self._team.current_lead
        session = await self._deps.gateway.open_session(f"task:{step.task.id}/calls", lead.chosen)
        workspace = await self._deps.artifacts.workspace(step.task)
        name = step.node.persona or lead.persona.name
        persona = await self._deps.worker_context.personas.get(name)
        spec = WorkerSpec(
            account=self._account,
            session=session,
            language=self._language,
            workspace=workspace,
            persona=persona.name,
            mode=persona.default_mode,
            step_path=step.node.id,
            attempt=step.run.attempt,
            request_text=step.node.detail,
            uses_memory=False,
        )
        words = catalog_for(self._language)
        try:
            async with asyncio.timeout(step.node.timeout):
                result = await self._deps.call_steps.perform(step.node, spec, words)
        except TimeoutError:
            result = CallResult(error=words("workflow.step_late"))
        files = await self._deps.artifacts.collect(step.task.id, workspace, result.files)
        return result, files, session.id

    async def note_files(self, step: StartedStep) -> StartedStep:
        """Find the `sound_files` and `value_files` of a step before it is attempted. If an attempt
        was cut off, their earlier state is unknown; files that the step names and that were written
        since then count as sound. Raises BackendError.
        """
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_values import mark_files

        known, marks = step.stored_sound_files, step.stored_value_files
        if known is None:
            workspace = await self._deps.artifacts.workspace(step.task)
            text = words_of(step)
            if step.run.attempt == 1 + attempts_before(step.runs):
                known = await asyncio.to_thread(self._scanner.find_sound, workspace, text)
                marks = await asyncio.to_thread(mark_files, workspace, _own_texts(step))
            else:
                named = find_named_paths(text)
                same = await self._deps.artifacts.find_unchanged(step.task, workspace, named)
                known = frozenset(named) - set(same)
        return replace(step, sound_files=known, value_files=marks)

    async def _attempt_in_time(self, worker: AssignedWorker, step: StartedStep) -> StepAttempt:
        async with self._session_locks[worker.session.id]:
            limit = asyncio.timeout(step.node.timeout)
            try:
                async with limit:
                    return await self._attempt_with(worker, step)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise RunLimitReached(
                    "the step's time is over", hint="workflow.step_late"
                ) from error
            finally:
                self._deps.progress.step_ended(step.task.id, step.node.id)

    def mark_delivered(self, step: StartedStep, reply: ModelReply) -> None:
        """Record that the session contains the task and this step."""
        session = reply.session.id
        steps = self._delivered_to(session).steps | {step.node.id}
        self._delivered[session] = prompts.DeliveredContext(task=True, steps=steps)

    def mark_task_delivered(self, session: str) -> None:
        self._delivered[session] = prompts.DeliveredContext(task=True)

    async def with_images(
        self, ask: ModelRequest, worker: AssignedWorker, files: tuple[str, ...]
    ) -> ModelRequest:
        """Add the task's pictures, unless the worker's session already has them: a session with
        turns, even of an earlier run, began with them.
        """
        attach, session = self._deps.attach_images, worker.session
        begun = session.turns or session.open_turn
        if attach is None or begun or self._delivered_to(session.id).task:
            return ask
        return await attach(ask, worker.chosen, workspace_names(files))

    def _delivered_to(self, session: str) -> prompts.DeliveredContext:
        return self._delivered.get(session, prompts.NOTHING_DELIVERED)

    async def _attempt_with(self, worker: AssignedWorker, step: StartedStep) -> StepAttempt:
        workspace = await self._deps.artifacts.workspace(step.task)
        context = await self._build_context(step, worker, workspace)
        rules = await self._deps.worker_context.get_built_in(
            prompts.WORKER,
            prompts.BUILT_IN_PROMPTS[prompts.WORKER],
            TaskAttempt(step.task.id, step.node.id, step.run.attempt),
        )
        steering = TaskSteering(
            step.messages,
            partial(self._fetch_messages, step.task),
            partial(self._deps.step_approvals.rules.may_hear, step.node),
        )
        no_call = await self._no_call_note(step, worker, context)
        ask = ModelRequest(
            purpose=RunPurpose.STEP,
            prompt=context.prompt_prefix
            + prompts.step_prompt(
                step.task,
                step.workflow,
                step.runs,
                step.node,
                last_error=_error_to_tell(step, no_call),
                messages=step.prompt_messages,
                delivered=self._delivered_to(worker.session.id),
            )
            + no_call,
            system_prompt="\n\n".join(
                filter(None, (context.system_prompt, prompts.step_system(self._language, rules)))
            ),
            language=self._language,
            account=self._account,
            facts=prompts.step_facts(step.task, step.workflow, step.runs, step.node),
            workspace=workspace,
            tools=context.tools,
            permit=context.permit,
            mcp_servers=context.mcp_servers,
            result_type=answer_type(step.node.output),
            limits=step.node.limits.apply(context.persona.limits.apply(self._deps.limits)),
            mode=context.persona.default_mode,
            persona=context.persona.name,
            resume_prompt=step.new_messages if step.is_resumed else None,
            parent_span=node_span_id(step.task.id, step.node.id, step.run.attempt),
            turn_key=step_turn_key(step.task.id, step.node),
            steering=steering,
            checks=self._work_checks(
                step, steering, worker, context, workspace, must_call=bool(no_call)
            ),
        )
        if not step.is_resumed:
            ask = await self.with_images(ask, worker, step.task.files)
        watch = self._deps.progress.watch(step.task.id, step.node.id)
        reply = await self._deps.gateway.call_model(ask, worker.chosen, worker.session, watch)
        step = replace(step, messages=steering.delivered)
        return await self._judge(step, reply, worker, context, workspace)

    async def _judge(
        self,
        step: StartedStep,
        reply: ModelReply,
        worker: AssignedWorker,
        context: WorkerContext,
        workspace: Path,
    ) -> StepAttempt:
        answer = reply.result.value
        claim, is_idle = ResultClaim(), False
        if isinstance(answer, StepAnswer):
            if answer.status == "done":
                # Anew, also after the check during the run: other calls of the same reply are
                # made after that one, and a reply that was stored before a crash had none.
                claim = await self._check_claim(step, worker, context, workspace, answer)
            else:
                claim = ResultClaim(files=tuple(answer.files))
                since = step.run.started_at
                is_idle = await self._has_only_talked(step, worker, context, since=since)
        files = await self._deps.artifacts.collect(
            step.task.id, workspace, claim.files, claim.named_files
        )
        return StepAttempt(
            step=step, reply=reply, files=files, faults=claim.faults, called_nothing=is_idle
        )

    async def _check_claim(
        self,
        step: StartedStep,
        worker: AssignedWorker,
        context: WorkerContext,
        workspace: Path,
        answer: StepAnswer,
    ) -> ResultClaim:
        """Check from outside what the worker claims to have done."""
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import find_named_files, lacks_number

        claimed = (*answer.files, *step.node.deliverables)
        named = _files_asked_for(step, find_named_files)
        faults = await self._find_faults(step, workspace, claimed, named)
        faults["commands_not_run"] = await self._commands_not_run(step, worker, context)
        is_silent = any(lacks_number(answer.summary, text) for text in _own_texts(step))
        faults["number_missing"] = (answer.summary,) if is_silent else ()
        return ResultClaim(files=claimed, named_files=named, faults=faults)

    async def _describe_result_faults(
        self,
        step: StartedStep,
        worker: AssignedWorker,
        context: WorkerContext,
        workspace: Path,
        answer: BaseModel,
    ) -> ResultFault | None:
        """Tell the worker what is plainly wrong with its result, before the result counts."""
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import says_unchanged

        if not isinstance(answer, StepAnswer) or answer.status != "done":
            return None
        faults = (await self._check_claim(step, worker, context, workspace, answer)).faults
        if says_unchanged(answer.summary):
            faults.pop("unchanged_files")
        if unfilled := find_placeholder(answer.summary, words_of(step)):
            faults["unfilled_report"] = (unfilled,)
        return prompts.describe_result_faults(faults)

    async def _has_only_talked(
        self,
        step: StartedStep,
        worker: AssignedWorker,
        context: WorkerContext,
        *,
        since: datetime | None,
    ) -> bool:
        """Whether the worker has tools but has called none in this step since then. Not known of
        coding CLIs, which have tools of their own.
        """
        if not (context.tools and worker.chosen.backend.accepts_tools):
            return False
        gateway, path = self._deps.gateway, step.node.id
        return not await gateway.has_called_tools(worker.session, path=path, since=since)

    async def _commands_not_run(
        self, step: StartedStep, worker: AssignedWorker, context: WorkerContext
    ) -> tuple[str, ...]:
        """The commands that the step asks for, if its worker could run commands but has called no
        tool that could. Not known of coding CLIs.
        """
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import find_commands

        commands = find_commands(f"{step.node.title}\n{step.node.detail}")
        can_run = any(tool.kind is CallKind.EXECUTE for tool in context.tools)
        if not (commands and can_run and worker.chosen.backend.accepts_tools):
            return ()
        has_run = await self._deps.gateway.has_called_tools(
            worker.session, path=step.node.id, since=None, only_looking=False
        )
        return () if has_run else tuple(dict.fromkeys(commands))

    def _work_checks(
        self,
        step: StartedStep,
        steering: TaskSteering,
        worker: AssignedWorker,
        context: WorkerContext,
        workspace: Path,
        *,
        must_call: bool,
    ) -> WorkChecks:
        """Which checks the step's work needs: any call if it names a file or a command; a run while
        its command has not been run; a change while the files to be written are as they were.
        """
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import find_commands, find_files_to_change, names_file

        text = f"{step.node.title}\n{step.node.detail}"
        must_call = must_call or names_file(text) or bool(find_commands(text))
        names = _files_asked_for(step, find_files_to_change)

        async def find_needed_call(calls: Sequence[CallKind]) -> NeededCall | None:
            if must_call and not calls:
                return NeededCall.ANY
            absent = [name for name in names if find_file(workspace, name) is None]
            if absent or await self._deps.artifacts.find_unchanged(step.task, workspace, names):
                # To look once more may be needed, for ever it is not.
                has_looked = len(calls) > 1 and READ_ONLY_KINDS.issuperset(calls[-2:])
                return NeededCall.CHANGING if has_looked else NeededCall.ANY
            if await self._commands_not_run(step, worker, context):
                return NeededCall.EXECUTING
            return None

        async def find_result_fault(answer: BaseModel) -> ResultFault | None:
            # What the Boss said during the run counts as it does in the end.
            told = replace(step, messages=steering.delivered)
            return await self._describe_result_faults(told, worker, context, workspace, answer)

        return WorkChecks(
            # What a resumed step has called before is not counted here.
            find_needed_call=None
            if step.is_resumed or not (must_call or names)
            else find_needed_call,
            find_result_fault=find_result_fault,
        )

    async def _no_call_note(
        self, step: StartedStep, worker: AssignedWorker, context: WorkerContext
    ) -> str:
        """A note for a worker that failed before without trying: weak models report instead of
        working.
        """
        if not step.last_error or not await self._has_only_talked(
            step, worker, context, since=None
        ):
            return ""
        names = ", ".join(tool.name for tool in context.tools[:_SHOWN_TOOLS])
        return _NO_CALL_NOTE.format(names=names)

    async def _find_faults(
        self, step: StartedStep, workspace: Path, claimed: Sequence[str], named: Sequence[str]
    ) -> dict[str, Sequence[str]]:
        """Look at the files that the worker claims, and at those that the step should make or
        change.
        """
        # Imported on first use: its many patterns cost the start.
        from bot.engine.agent.requested_files import find_files_to_change, find_untranslated
        from bot.engine.agent.requested_values import find_wrong_values

        to_change = _files_asked_for(step, find_files_to_change)
        valueless, overchanged = await asyncio.to_thread(
            find_wrong_values, workspace, _own_texts(step), _without_told(step)
        )
        return {
            "unchanged_files": await self._deps.artifacts.find_unchanged(
                step.task, workspace, to_change
            ),
            "spoilt_files": await asyncio.to_thread(
                describe_faults, workspace, _files_to_parse(step, claimed)
            ),
            "untranslated_files": await asyncio.to_thread(
                find_untranslated, workspace, words_of(step), named
            ),
            "files_without_value": valueless,
            "overchanged_files": overchanged,
        }

    async def _fetch_messages(self, task: Task) -> Sequence[str]:
        return (await self._deps.store.events.get_worker_input(task.id)).messages

    async def _build_context(
        self, step: StartedStep, worker: AssignedWorker, workspace: Path
    ) -> WorkerContext:
        spec = WorkerSpec(
            account=self._account,
            session=worker.session,
            language=self._language,
            workspace=workspace,
            persona=worker.persona.name,
            mode=worker.persona.default_mode,
            step_path=step.node.id,
            attempt=step.run.attempt,
            request_text=f"{step.node.title}\n{step.node.detail}",
            uses_memory=step.task.use_memory,
        )
        return await self._deps.worker_context.build(spec)


def _files_asked_for(step: StartedStep, find: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    """The files that the step asks for, and for the last step of a plan those of the task. Files
    that the Boss has mentioned since then are not judged.
    """
    own, *tasks = _own_texts(step)
    found = find(own, around=step.task.instruction)
    for text in tasks:
        found += find(text)
    said = "\n".join(step.messages)
    return tuple(name for name in dict.fromkeys(found) if name not in said)


def _own_texts(step: StartedStep) -> tuple[str, ...]:
    """The texts that the step is responsible for: its own, and for the last step of a plan the
    task's.
    """
    text = f"{step.node.title}\n{step.node.detail}"
    is_last = is_chain(step.workflow) and step.workflow.nodes[-1].id == step.node.id
    return (text, step.task.instruction) if is_last else (text,)


def _without_told(step: StartedStep) -> Mapping[str, FileMark]:
    """The `value_files`, except those that the Boss has mentioned since then."""
    said = "\n".join(step.messages)
    return {name: mark for name, mark in step.value_files.items() if name not in said}


def words_of(step: StartedStep) -> str:
    """The words of the step and of its task."""
    return f"{step.node.title}\n{step.node.detail}\n{step.task.instruction}"


def _files_to_parse(step: StartedStep, claimed: Sequence[str]) -> frozenset[str]:
    """The `sound_files`, except those that the Boss has mentioned since then. While other steps run
    and may be in the middle of a change, only the files that this step claims or names.
    """
    said = "\n".join(step.messages)
    found = frozenset(name for name in step.sound_files if name not in said)
    if step.workflow.parallel == 1:
        return found
    return found & {*claimed, *find_named_paths(f"{step.node.title}\n{step.node.detail}")}


_SHOWN_TOOLS = 6
_NO_CALL_NOTE = (
    "\n\nYou have not called a tool in this step, so nothing of it is done yet. Call one now,"
    " whichever the step needs ({names}); report when you have its result."
)


def _error_to_tell(step: StartedStep, no_call: str) -> str:
    """The error to tell the worker. An empty report is left out: a small model that reads it again
    repeats it.
    """
    return "" if no_call and step.failed_report else step.last_error
