"""The backend for when there is no model: fixed rules, and the honesty to say so every time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from bot.engine.llm.answers import (
    MAX_TEXT,
    PROPOSE_TASK,
    Intent,
    PlanAnswer,
    PlanStep,
    StepAnswer,
)
from bot.engine.llm.base import (
    BackendDenied,
    Caps,
    Health,
    Purpose,
    RunRequest,
    RunResult,
    Usage,
    title_of,
)
from bot.engine.llm.calls import CallKind, Leave, Permission, ToolCall
from bot.engine.llm.events import AgentEvent, TextDelta, ToolFinished, ToolStarted
from bot.engine.llm.loop.run import OneRun
from bot.engine.llm.rules.acts import (
    Act,
    Count,
    Greet,
    InFile,
    ListFolder,
    Show,
    Summarise,
    Unknown,
    Write,
)
from bot.engine.llm.rules.forms import recognise
from bot.engine.llm.rules.intent import intent, touches_files
from bot.engine.llm.rules.perform import Outcome, Site, perform
from bot.engine.llm.rules.split import split
from bot.engine.llm.rules.split import title_of as step_title
from cards.words import words_for
from storage.records.people import Language

NAME = "offline"
MAX_DELTAS = 200
_CALL = "offline-1"
_DELTA = re.compile(r"[^\s\u4e00-\u9fff]+\s*|[\u4e00-\u9fff]{1,4}|\s+")

Sleep = Callable[[float], Awaitable[None]]


class OfflineBackend:
    """Plans from the text and does what the fixed forms of `rules` cover. Never pretends."""

    name = NAME
    models = (NAME,)
    caps = Caps()

    def __init__(self, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[_OfflineRun]:
        run = _OfflineRun(request, self._sleep)
        try:
            yield run
        finally:
            await run.aclose()

    async def check(self) -> Health:
        """Always ready."""
        return Health()


class _OfflineRun(OneRun):
    def __init__(self, request: RunRequest, sleep: Sleep) -> None:
        super().__init__()
        self._request = request
        self._words = words_for(_language(request.language))
        self._sleep = sleep

    @property
    def spent(self) -> Usage:
        return Usage()

    async def _go(self) -> AsyncGenerator[AgentEvent, None]:
        request = self._request
        if request.purpose is Purpose.STEP:
            act = await asyncio.to_thread(_step_act, request)
            call = _call_of(act)
            if call:
                yield ToolStarted(call_id=_CALL, name=call.name, title=call.title, does=call.kind)
            outcome = await self._done(act, call)
            if outcome is None and call:
                self._result = replace(self._ended("", None), new_history=(), suspended=(call,))
                return
            assert outcome is not None
            if call:
                good = outcome.status == "done"
                yield ToolFinished(call_id=_CALL, good=good, summary=_line(outcome.text))
            text, value = self._step(outcome)
        else:
            text, value = await self._answer()
        for delta in _deltas(text):
            yield TextDelta(text=delta)
            await asyncio.sleep(0)
        self._result = self._ended(text, value)

    async def _done(self, act: Act, call: ToolCall | None) -> Outcome | None:
        """None where somebody has to allow it first."""
        permit = self._request.permit
        if call is None or permit is None:
            return await perform(act, self._site())
        given = self._request.answers.get(_CALL, Permission(leave=Leave.ALLOW))
        if given.leave is Leave.ALLOW:
            given = await permit(call)
        match given.leave:
            case Leave.LATER:
                return None
            case Leave.DENY:
                return Outcome(status="blocked", text=given.text)
            case Leave.ANSWER:
                return Outcome(status="done", text=given.text)
            case Leave.ALLOW:
                outcome = await perform(act, self._site())
                good = outcome.status == "done"
                await permit.ended(_CALL, good=good, outcome=outcome.text)
                return outcome

    async def _answer(self) -> tuple[str, BaseModel | None]:
        text = str(self._request.facts.get("text") or self._request.prompt)
        if self._request.result is Intent:
            return "", await asyncio.to_thread(intent, text)
        if self._request.result is PlanAnswer:
            return await asyncio.to_thread(self._plan, text)
        if await self._propose(text):
            return self._words("offline.note"), self._only(None)
        return self._noted(await self._talk(text)), self._only(None)

    async def _propose(self, text: str) -> bool:
        """Work is not talk: where a task can be proposed, propose it."""
        tools = {tool.name: tool for tool in self._request.tools}
        heard = intent(text)
        if heard.kind != "task" or PROPOSE_TASK not in tools:
            return False
        title, priority = heard.title or _line(text), heard.priority or "important"
        await tools[PROPOSE_TASK].run({"title": title, "task": text, "priority": priority})
        return True

    def _plan(self, text: str) -> tuple[str, BaseModel]:
        pieces = split(text)
        if all(isinstance(recognise(piece), Greet) for piece in pieces.steps):
            answer = self._noted(self._words("offline.hello"))
            return answer, PlanAnswer(answer=answer)
        planned = self._words("offline.planned", n=len(pieces.steps))
        plan = self._noted(f"{planned}\n\n{pieces.opening}" if pieces.opening else planned)
        return plan, PlanAnswer(plan=plan, steps=[_plan_step(piece) for piece in pieces.steps])

    def _step(self, outcome: Outcome) -> tuple[str, BaseModel | None]:
        text = self._noted(outcome.text)
        answer = StepAnswer(status=outcome.status, summary=text, files=list(outcome.files))
        return text, self._only(answer)

    async def _talk(self, text: str) -> str:
        """Talk has no folder to work in: what needs one is for a task."""
        act = recognise(text)
        if touches_files(act) or intent(text).kind == "task":
            return self._words("offline.try_run", text=_line(text))
        outcome = await perform(act, self._site())
        return outcome.text if outcome.status == "done" else self._words("offline.cannot_answer")

    def _only(self, answer: BaseModel | None) -> BaseModel | None:
        """The answer, if that is what was asked for."""
        asked = self._request.result
        if asked is None:
            return None
        if answer is None or asked is not type(answer):
            raise BackendDenied(f"the offline backend cannot fill in {asked.__name__}")
        return answer

    def _noted(self, text: str) -> str:
        note = self._words("offline.note")
        return f"{text[: MAX_TEXT - len(note) - 10].rstrip()}\n\n{note}"

    def _site(self) -> Site:
        return Site(
            workspace=self._request.workspace,
            words=self._words,
            earlier=_earlier(self._request.facts),
            longest_wait=self._request.limits.seconds,
            sleep=self._sleep,
        )

    def _ended(self, text: str, value: BaseModel | None) -> RunResult:
        asked = str(self._request.facts.get("text") or self._request.prompt)
        spoken = text if self._request.purpose is not Purpose.INTENT else ""
        return RunResult(
            text=text,
            value=value,
            model=NAME,
            usage=Usage(cost=Decimal(0)),
            new_history=_history(asked, spoken) if spoken else (),
        )


def _step_act(request: RunRequest) -> Act:
    """The step's own words in the instruction come first: a plan may hold less of them. Where it
    is not our plan, the detail says more than the title, but only one of them may fit a form."""
    step: Mapping[str, Any] = request.facts.get("step") or {}
    title, detail = str(step.get("title") or ""), str(step.get("detail") or "")
    whole = _wholes(str(request.facts.get("instruction") or "")).get(title, "")
    texts = (whole, detail, title) if step else (request.prompt,)
    acts = (recognise(text) for text in texts)
    return next((act for act in acts if not isinstance(act, Unknown)), Unknown())


def _earlier(facts: Mapping[str, Any]) -> tuple[Act, ...]:
    """The acts of the steps already done."""
    wholes = _wholes(str(facts.get("instruction") or ""))
    done: Sequence[Mapping[str, Any]] = facts.get("done") or ()
    titles = (str(step.get("title") or "") for step in done)
    return tuple(recognise(wholes.get(title, title)) for title in titles)


def _wholes(instruction: str) -> dict[str, str]:
    """Each planned step's whole text by its title, which may be cut short."""
    return {step_title(piece): piece for piece in split(instruction).steps}


def _plan_step(piece: str) -> PlanStep:
    title = step_title(piece)
    whole = title == piece.strip().rstrip(".。;；")
    return PlanStep(title=title, detail="" if whole else piece[:MAX_TEXT])


def _call_of(act: Act) -> ToolCall | None:
    """The act as the tool call a model would have made for it."""
    match act:
        case Write(path=path):
            return _wish("write", CallKind.EDIT, path)
        case ListFolder(path=path):
            return _wish("list", CallKind.READ, path)
        case Show(source=InFile(path=path)):
            return _wish("read", CallKind.READ, path)
        case Summarise(source=InFile(path=path)) | Count(source=InFile(path=path)):
            return _wish("read", CallKind.READ, path)
        case _:
            return None


def _wish(name: str, kind: CallKind, path: str) -> ToolCall:
    arguments = {"path": path}
    title = title_of(name, arguments)
    return ToolCall(call_id=_CALL, name=name, arguments=arguments, kind=kind, title=title)


def _deltas(text: str) -> list[str]:
    """Word by word; a long text in larger pieces, so that it does not take for ever."""
    words = _DELTA.findall(text)
    size = len(words) // MAX_DELTAS + 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def _history(asked: str, answered: str) -> tuple[Any, ...]:
    """In the form the model backends store, so that a model connected later reads on."""
    return (
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": asked}]},
        {
            "kind": "response",
            "parts": [{"part_kind": "text", "content": answered}],
            "model_name": NAME,
        },
    )


def _line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line[:200]


def _language(code: str) -> Language:
    return Language.CHINESE if code.lower().startswith("zh") else Language.ENGLISH
