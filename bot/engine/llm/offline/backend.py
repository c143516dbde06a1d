"""Provides the offline backend, which works by fixed rules and says so in every answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.engine.llm.answer_schemas import (
    MAX_TEXT,
    PROPOSE_TASK,
    IntentAnswer,
    PlanAnswer,
    PlanStep,
    StepAnswer,
    find_faults,
)
from bot.engine.llm.backend import (
    OFFLINE_NAME,
    AgentEvent,
    BackendDenied,
    BackendReadiness,
    BaseRun,
    InvalidAnswer,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    TokenUsage,
    ToolFinished,
    ToolStarted,
)
from bot.engine.llm.offline.action_parser import (
    can_perform,
    classify_intent,
    needs_workspace,
    parse_action,
    split_steps,
    step_title,
)
from bot.engine.llm.offline.actions import (
    ActionContext,
    ActionOutcome,
    CountAction,
    FileText,
    GreetAction,
    ListFolderAction,
    OfflineAction,
    ShowAction,
    SummariseAction,
    UnknownAction,
    WriteFileAction,
    perform_action,
)
from bot.engine.llm.tool_calls import CallDecision, CallKind, CallVerdict, ToolCall, call_title
from cards.catalog import catalog_for
from storage.records.people import Language

MAX_DELTAS = 200
_CALL_IDS = tuple(f"offline-{number}" for number in range(1, 21))
_CALL_ID = _CALL_IDS[0]
_DELTA_PATTERN = re.compile(r"[^\s\u4e00-\u9fff]+\s*|[\u4e00-\u9fff]{1,4}|\s+")

Sleep = Callable[[float], Awaitable[None]]


class OfflineBackend:
    """Plans by splitting the text and performs the actions that `action_parser` recognizes."""

    name = OFFLINE_NAME
    models = (OFFLINE_NAME,)
    accepts_tools = True

    def __init__(self, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[_OfflineRun]:
        run = _OfflineRun(request, self._sleep)
        try:
            yield run
        finally:
            await run.aclose()

    async def check(self) -> BackendReadiness:
        return BackendReadiness()


class _OfflineRun(BaseRun):
    def __init__(self, request: RunRequest, sleep: Sleep) -> None:
        super().__init__()
        self._request = request
        self._words = catalog_for(_parse_language(request.language))
        self._sleep = sleep

    @property
    def usage_so_far(self) -> TokenUsage:
        return TokenUsage()

    async def _run_events(self) -> AsyncGenerator[AgentEvent, None]:
        request = self._request
        if request.purpose is RunPurpose.STEP:
            action = await asyncio.to_thread(_action_of_step, request)
            call = _tool_call_of(action)
            if call:
                yield ToolStarted(call_id=_CALL_ID, name=call.name, title=call.title)
            outcome = await self._perform_if_allowed(action, call)
            if isinstance(outcome, ToolCall):
                self._result = replace(
                    self._build_result("", None), new_history=(), suspended=(outcome,)
                )
                return
            if call:
                good = outcome.status == "done"
                yield ToolFinished(
                    call_id=_CALL_ID, succeeded=good, summary=_first_line(outcome.text)
                )
            text, value = self._step_answer(outcome)
        else:
            text, value = await self._answer_text()
        for delta in _deltas(text):
            yield TextDelta(text=delta)
            await asyncio.sleep(0)
        self._result = self._build_result(text, value)

    async def _perform_if_allowed(
        self, action: OfflineAction, call: ToolCall | None
    ) -> ActionOutcome | ToolCall:
        """Return the call if it needs an approval first. One that failed or was cut off earlier is
        made again, under a new ID: every action may be repeated, since it writes its whole file."""
        permit, answers = self._request.permit, self._request.answers
        if call is None or permit is None:
            return await perform_action(action, self._action_context())
        given = CallDecision(verdict=CallVerdict.ANSWER, has_failed=True)
        for call_id in sorted(_CALL_IDS, key=lambda each: each not in answers):
            call = replace(call, call_id=call_id)
            given = answers.get(call_id, CallDecision(verdict=CallVerdict.ALLOW))
            if given.verdict is CallVerdict.ALLOW:
                given = await permit(call)
            if not given.has_failed:
                break
        match given.verdict:
            case CallVerdict.PENDING:
                return call
            case CallVerdict.ANSWER if not given.has_failed:
                files = (action.path,) if isinstance(action, WriteFileAction) else ()
                return ActionOutcome(status="done", text=given.text, files=files)
            case CallVerdict.DENY | CallVerdict.ANSWER:
                return ActionOutcome(status="blocked", text=given.text)
            case CallVerdict.ALLOW:
                outcome = await perform_action(action, self._action_context())
                good = outcome.status == "done"
                await permit.record_outcome(call.call_id, succeeded=good, outcome=outcome.text)
                return outcome

    async def _answer_text(self) -> tuple[str, BaseModel | None]:
        text = str(self._request.facts.get("text") or self._request.prompt)
        if self._request.result is IntentAnswer:
            return "", await asyncio.to_thread(classify_intent, text)
        form = self._request.result
        if form is not None and issubclass(form, PlanAnswer):
            return await asyncio.to_thread(self._plan_answer, text)
        if await self._propose(text):
            return self._words("offline.note"), self._check_answer_type(None)
        return self._with_offline_note(await self._chat_reply(text)), self._check_answer_type(None)

    async def _propose(self, text: str) -> bool:
        """Propose work as a task, if the request allows it and the rules can do it."""
        tools = {tool.name: tool for tool in self._request.tools}
        intent = classify_intent(text)
        if intent.kind != "task" or PROPOSE_TASK not in tools or not can_perform(text):
            return False
        title, priority = intent.title or _first_line(text), intent.priority or "important"
        await tools[PROPOSE_TASK].run({"title": title, "task": text, "priority": priority})
        return True

    def _plan_answer(self, text: str) -> tuple[str, BaseModel]:
        pieces = split_steps(text)
        if all(isinstance(parse_action(piece), GreetAction) for piece in pieces.steps):
            answer = self._with_offline_note(self._words("offline.hello"))
            return answer, PlanAnswer(answer=answer)
        planned = self._words("offline.planned", n=len(pieces.steps))
        plan = self._with_offline_note(f"{planned}\n\n{pieces.intro}" if pieces.intro else planned)
        return plan, PlanAnswer(plan=plan, steps=[_plan_step(piece) for piece in pieces.steps])

    def _step_answer(self, outcome: ActionOutcome) -> tuple[str, BaseModel | None]:
        text = self._with_offline_note(outcome.text)
        answer = StepAnswer(status=outcome.status, summary=text, files=list(outcome.files))
        return text, self._check_answer_type(answer)

    async def _chat_reply(self, text: str) -> str:
        """A chat answer has no workspace; actions that need one require a task."""
        action = parse_action(text)
        if needs_workspace(action) or classify_intent(text).kind == "task":
            if can_perform(text):
                return self._words("offline.try_run", text=_first_line(text))
            return self._words("offline.cannot_answer")
        outcome = await perform_action(action, self._action_context())
        return outcome.text if outcome.status == "done" else self._words("offline.cannot_answer")

    def _check_answer_type(self, answer: BaseModel | None) -> BaseModel | None:
        """Return the answer if it has the requested type. Raises BackendDenied."""
        asked = self._request.result
        if asked is None:
            return None
        if type(answer) is StepAnswer and issubclass(asked, StepAnswer):
            try:
                return asked.model_validate(answer.model_dump())
            except ValidationError as error:
                raise InvalidAnswer(
                    "the offline backend cannot fill in the output", faults=find_faults(error)
                ) from None
        if answer is None or not issubclass(asked, type(answer)):
            raise BackendDenied(f"the offline backend cannot fill in {asked.__name__}")
        return answer

    def _with_offline_note(self, text: str) -> str:
        note = self._words("offline.note")
        return f"{text[: MAX_TEXT - len(note) - 10].rstrip()}\n\n{note}"

    def _action_context(self) -> ActionContext:
        return ActionContext(
            workspace=self._request.workspace,
            words=self._words,
            earlier_actions=_earlier_actions(self._request.facts),
            longest_wait=self._request.limits.wall_seconds,
            sleep=self._sleep,
        )

    def _build_result(self, text: str, value: BaseModel | None) -> RunResult:
        asked = str(self._request.facts.get("text") or self._request.prompt)
        spoken = text if self._request.purpose is not RunPurpose.INTENT else ""
        return RunResult(
            text=text,
            value=value,
            model=OFFLINE_NAME,
            usage=TokenUsage(cost=Decimal(0)),
            new_history=_history_messages(asked, spoken) if spoken else (),
        )


def _action_of_step(request: RunRequest) -> OfflineAction:
    """Prefer the step's full text in the instruction, which a plan may shorten.

    For plans of other backends, detail or title may match a phrase."""
    step: Mapping[str, Any] = request.facts.get("step") or {}
    title, detail = str(step.get("title") or ""), str(step.get("detail") or "")
    whole = _full_step_texts(str(request.facts.get("instruction") or "")).get(title, "")
    texts = (whole, detail, title) if step else (request.prompt,)
    acts = (parse_action(text) for text in texts)
    return next(
        (action for action in acts if not isinstance(action, UnknownAction)), UnknownAction()
    )


def _earlier_actions(facts: Mapping[str, Any]) -> tuple[OfflineAction, ...]:
    """Return the actions of completed steps."""
    wholes = _full_step_texts(str(facts.get("instruction") or ""))
    done: Sequence[Mapping[str, Any]] = facts.get("done") or ()
    titles = (str(step.get("title") or "") for step in done)
    return tuple(parse_action(wholes.get(title, title)) for title in titles)


def _full_step_texts(instruction: str) -> dict[str, str]:
    """Map the possibly shortened titles of planned steps to their full texts."""
    return {step_title(piece): piece for piece in split_steps(instruction).steps}


def _plan_step(piece: str) -> PlanStep:
    title = step_title(piece)
    whole = title == piece.strip().rstrip(".。;；")
    return PlanStep(title=title, detail="" if whole else piece[:MAX_TEXT])


def _tool_call_of(action: OfflineAction) -> ToolCall | None:
    """Return the equivalent tool call, for authorization."""
    match action:
        case WriteFileAction(path=path):
            return _build_call("write", CallKind.EDIT, path)
        case ListFolderAction(path=path):
            return _build_call("list", CallKind.READ, path)
        case ShowAction(source=FileText(path=path)):
            return _build_call("read", CallKind.READ, path)
        case SummariseAction(source=FileText(path=path)) | CountAction(source=FileText(path=path)):
            return _build_call("read", CallKind.READ, path)
        case _:
            return None


def _build_call(name: str, kind: CallKind, path: str) -> ToolCall:
    arguments = {"path": path}
    title = call_title(name, arguments)
    return ToolCall(call_id=_CALL_ID, name=name, arguments=arguments, kind=kind, title=title)


def _deltas(text: str) -> list[str]:
    """Split into words, or larger pieces for long texts."""
    words = _DELTA_PATTERN.findall(text)
    size = len(words) // MAX_DELTAS + 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def _history_messages(asked: str, answered: str) -> tuple[Any, ...]:
    """Use the format of the model backends, so that a model can continue the session later."""
    return (
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": asked}]},
        {
            "kind": "response",
            "parts": [{"part_kind": "text", "content": answered}],
            "model_name": OFFLINE_NAME,
        },
    )


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line[:200]


def _parse_language(code: str) -> Language:
    return Language.CHINESE if code.lower().startswith("zh") else Language.ENGLISH
