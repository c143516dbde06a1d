"""Runs a coding CLI until it returns a result or reaches a limit: builds its prompts and parses the
structured results."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from bot.engine.llm.acp.agent_config import AcpAgentConfig, ResumeSupport
from bot.engine.llm.acp.connection import SecretRedactor
from bot.engine.llm.acp.permission_requests import (
    AcpPermissionRequest,
    PermissionBroker,
    PermissionRequestStore,
)
from bot.engine.llm.acp.process import AcpFailure, failure_error, is_setup_error
from bot.engine.llm.acp.runtime import AcpRuntime, agent_home
from bot.engine.llm.acp.session import AcpSession, open_cli
from bot.engine.llm.acp.updates import AcpCallTracker, AcpUsageMeter
from bot.engine.llm.answer_schemas import find_faults, repair_json
from bot.engine.llm.backend import (
    AgentEvent,
    BackendError,
    BackendNotReady,
    BaseRun,
    ImageInput,
    InvalidAnswer,
    LimitKind,
    RunLimitReached,
    RunNotice,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    TokenUsage,
    ToolFinished,
    ToolStarted,
    WorkerMode,
)
from bot.engine.llm.tool_calls import CallDecision, CallVerdict, ToolCall
from bot.engine.llm.written_forms import read_form
from cards.formats import drop_surrogates

# --- prompts and results

RESULT_FILE = ".shiftboss/result.json"
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_MAX_FILE_BYTES = 500_000


class MissingResult(Exception):
    """No usable result; the message explains it to the model. `faults` are what is wrong with the
    object that it gave, empty if it gave none."""

    def __init__(self, why: str, faults: str = "") -> None:
        self.faults = faults
        super().__init__(why)


def result_instructions(result_type: type[BaseModel]) -> str:
    """Return the prompt text that requests the result."""
    schema = json.dumps(result_type.model_json_schema(), ensure_ascii=False)
    return (
        "When you are finished, end your last message with exactly one fenced block that begins"
        " with ```json and holds one JSON object that follows this JSON schema:\n"
        f"{schema}\n"
        f"(Instead of the block you may write the same object to the file {RESULT_FILE}.)"
        " Only this object counts as your result. Say honestly in it what you did not do."
    )


def result_retry_prompt(problem: str) -> str:
    return (
        f"Your result could not be read: {problem}. Do no further work and use no tools: answer "
        "with"
        " only the ```json block that was asked for."
    )


def delete_result_file(workspace: Path | None) -> None:
    """Delete the result file of an earlier run. Blocking."""
    if workspace is None:
        return
    path = workspace / RESULT_FILE
    if path.parent.resolve().is_relative_to(workspace.resolve()):
        path.unlink(missing_ok=True)


def parse_result(text: str, workspace: Path | None, result_type: type[BaseModel]) -> BaseModel:
    """Parse the last fenced block with a result, or the result file, or without these what else in
    the text is one. Raises MissingResult. Blocking."""
    faults = ""
    for found in (*_result_blocks(text), *_result_file_text(workspace)):
        try:
            return result_type.model_validate_json(found)
        except ValidationError as error:
            faults = find_faults(error)
        with suppress(ValueError):
            return result_type.model_validate_json(repair_json(found))
    if faults:
        raise MissingResult(faults, faults)
    if (value := read_form(text, result_type)) is not None:
        return value
    raise MissingResult("there was no ```json block")


def strip_result(text: str) -> str:
    """Remove the result block at the end of the text."""
    found = list(_FENCED.finditer(text))
    if found and not text[found[-1].end() :].strip():
        return text[: found[-1].start()].rstrip()
    return text


def _result_blocks(text: str) -> Iterator[str]:
    fenced = [match.group(1) for match in _FENCED.finditer(text)]
    # A nested block ends the outer match early, so fall back to braces.
    start, end = text.rfind("```json"), text.rfind("}")
    outer = text[text.find("{", start) : end + 1] if 0 <= start < end else ""
    bare = text.strip()
    yield from [found for found in reversed(fenced) if found.lstrip().startswith("{")][:1]
    yield from [outer] if outer else []
    yield from [bare] if bare.startswith("{") and bare.endswith("}") else []


def _result_file_text(workspace: Path | None) -> Iterator[str]:
    if workspace is None:
        return
    path = workspace / RESULT_FILE
    # Don't follow links: the CLI must not hand in files from outside.
    if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
        with path.open("rb") as file:
            yield file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")


_MAX_IMAGE_BYTES = 5_000_000
_MAX_DETAIL = 4_000
_READ_ONLY_NOTES = {
    WorkerMode.PLAN: "Only plan: look at what you need, and change nothing.",
    WorkerMode.REVIEW: "Only review: look at what you need, and change nothing.",
}


def system_hash(request: RunRequest) -> str:
    return hashlib.sha256(request.system.encode("utf-8", "replace")).hexdigest()[:16]


def first_prompt(
    request: RunRequest,
    mode: WorkerMode,
    *,
    resumed: bool,
    decided: Sequence[tuple[AcpPermissionRequest | None, str, CallDecision]],
) -> str:
    """Build the first prompt; the system text is included once per session and whenever it
    changes."""
    is_known = resumed and _last_system_hash(request.history) == system_hash(request)
    parts = [
        "" if is_known else request.system,
        "" if resumed else render_history(request.history),
        _READ_ONLY_NOTES.get(mode, ""),
        *(_decision_text(*each) for each in decided),
        request.prompt,
        result_instructions(request.result) if request.result is not None else "",
    ]
    return drop_surrogates("\n\n".join(part for part in parts if part.strip()))


def denial_prompt(denied: Sequence[tuple[ToolCall, str]], *, wants_result: bool) -> str:
    """Ask a CLI that ended its turn after a denial to continue without the call."""
    lines = [f"Not allowed: {call.title}. {why}".rstrip() for call, why in denied]
    end = (
        "Do not try it another way. Continue with what can be done without it, and end with the"
        " ```json block that was asked for."
        if wants_result
        else "Continue without it."
    )
    return drop_surrogates("\n".join([*lines, end]))


async def content_blocks(
    text: str, images: Sequence[ImageInput], *, images_accepted: bool
) -> list[dict[str, Any]]:
    """Build the protocol's content blocks; pictures that a CLI doesn't accept are named in the
    text."""
    found: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for picture in images:
        data = await asyncio.to_thread(picture.read, _MAX_IMAGE_BYTES) if images_accepted else b""
        if data:
            encoded = base64.b64encode(data).decode()
            found.append({"type": "image", "mimeType": picture.mime, "data": encoded})
        else:
            found[0]["text"] += f"\n\n[a picture, {picture.path.name}, cannot be shown to you]"
    return found


def _decision_text(
    stored: AcpPermissionRequest | None, call_id: str, decision: CallDecision
) -> str:
    title = stored.title if stored else f"the call {call_id} that you wanted to make"
    detail = f"\n```\n{stored.detail[:_MAX_DETAIL]}\n```" if stored and stored.detail else ""
    if decision.verdict is CallVerdict.ALLOW:
        return (
            f"Approved: {title}{detail}\nMake exactly this call now, unchanged: nothing else"
            " is approved. Then continue your work."
        )
    if decision.verdict is CallVerdict.ANSWER:
        return f"The answer to {title}: {decision.text}\nContinue your work."
    return (
        f"Not approved: {title}{detail}\n{decision.text}\nDo not try it again, nor in another way."
        " Continue with what can be done without it."
    )


def _last_system_hash(history: Sequence[Any]) -> str:
    for entry in reversed(history):
        if isinstance(entry, dict) and isinstance(exchange := entry.get("cli"), dict):
            return str(exchange.get("system", ""))
    return ""


_MAX_TURN = 6_000


_MAX_HISTORY = 24_000


def history_entry(*, prompt: str, answer: str, system: str) -> Mapping[str, Any]:
    """Build a history entry; `system` is the hash of the system text."""
    return {
        "cli": {"prompt": _shorten_turn(prompt), "answer": _shorten_turn(answer), "system": system}
    }


def render_history(history: Sequence[Any]) -> str:
    """Render the history for a session that can't be resumed; oldest entries are omitted."""
    texts: list[str] = []
    for entry in reversed(history):
        exchange = entry.get("cli") if isinstance(entry, dict) else None
        if not isinstance(exchange, dict):
            continue
        texts.append(
            f"You were asked:\n{exchange.get('prompt')}\n\nYou answered:\n{exchange.get('answer')}"
        )
        if sum(map(len, texts)) > _MAX_HISTORY:
            break
    if not texts:
        return ""
    return "Earlier in this session:\n\n" + "\n\n---\n\n".join(reversed(texts))


def _shorten_turn(text: str) -> str:
    if len(text) <= _MAX_TURN:
        return text
    half = _MAX_TURN // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


# --- the run

_QUEUE_SIZE = 256
_MAX_CHARACTERS = 2_000_000
_MAX_DENIALS = 3
_CHARS_PER_TOKEN = 16
_READ_ONLY_PURPOSES = {RunPurpose.PLAN, RunPurpose.INTENT}

_QueueItem: TypeAlias = Mapping[str, Any] | AgentEvent | None


class AcpRun(BaseRun):
    """Satisfies `llm.backend.BackendRun`.

    Updates pass through a short queue, which applies back-pressure and yields all events before the
    turn's response."""

    def __init__(self, agent: AcpAgentConfig, request: RunRequest, runtime: AcpRuntime) -> None:
        super().__init__()
        self._agent = agent
        self._request = request
        self._runtime = runtime
        self._mode = WorkerMode.PLAN if request.purpose in _READ_ONLY_PURPOSES else request.mode
        self._home = agent_home(runtime.root, agent.name, request.persona)
        self._meter = AcpUsageMeter()
        self._call_tracker = AcpCallTracker(command_in_title=agent.command_in_title)
        self._queue: asyncio.Queue[_QueueItem] = asyncio.Queue(_QUEUE_SIZE)
        self._broker = PermissionBroker(
            request,
            self._mode,
            self._call_tracker,
            approval_wait=runtime.approval_wait,
            emit=self._emit,
        )
        self._redactor = SecretRedactor(
            [each for server in request.servers for each in server.secrets]
        )
        self._listening = False
        self._texts: list[str] = []
        self._written = 0
        self._needs_paragraph_break = False
        self._used_tools = False
        self._deadline = 0.0

    @property
    def usage_so_far(self) -> TokenUsage:
        return self._meter.usage

    async def _run_events(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._run_in_slot()) as events:
                async for event in events:
                    yield event
        except BackendError as error:
            error.usage = self.usage_so_far
            if is_setup_error(error) and not self._used_tools:
                # The setup problem shows only now, and nothing has been changed yet.
                raise BackendNotReady(str(error), usage=error.usage, hint=error.hint) from None
            raise

    async def _run_in_slot(self) -> AsyncGenerator[AgentEvent, None]:
        """Limit the number of concurrent processes, which need much memory."""
        slots = self._runtime.slots
        if slots.locked():
            yield RunNotice(key="backend.cli_queue", facts={"name": self._agent.name})
        async with (
            slots,
            open_cli(
                self._agent,
                self._request,
                self._runtime,
                self._home,
                mode=self._mode,
                on_update=self._on_update,
                on_permission_request=self._broker.handle_request,
            ) as session,
            aclosing(self._session_events(session)) as events,
        ):
            async for event in events:
                yield event

    async def _session_events(self, session: AcpSession) -> AsyncGenerator[AgentEvent, None]:
        request, info = self._request, session.info
        resumes = self._agent.resume is not ResumeSupport.NONE
        if request.external_id and resumes and not info.resumed:
            yield RunNotice(key="backend.cli_afresh", facts={"name": self._agent.name})
        if session.meter is not None:
            self._meter.continue_from(session.meter)
        session.meter = self._meter
        self._meter.start_run()
        self._deadline = _now() + self._runtime.run_seconds(request.limits)
        await asyncio.to_thread(delete_result_file, request.workspace)
        store = PermissionRequestStore(self._home.requests_folder, info.id)
        await asyncio.to_thread(store.adopt_session, request.external_id)
        decided = await self._broker.start(store)
        text = first_prompt(request, self._mode, resumed=info.resumed, decided=decided)
        denials, asked_again = 0, False
        while True:
            async with aclosing(self._prompt_events(session, text)) as events:
                async for event in events:
                    yield event
            if self._broker.suspended:
                self._store_result(None)
                return
            value, missing = await self._read_result()
            if missing is None:
                self._store_result(value)
                session.has_completed = True
                return
            if self._broker.denied and denials < _MAX_DENIALS:
                denied, self._broker.denied = self._broker.denied, []
                denials += 1
                text = denial_prompt(denied, wants_result=request.result is not None)
            elif request.result is not None and not asked_again:
                asked_again = True
                text = result_retry_prompt(str(missing))
            else:
                raise self._missing_result_error(missing)
            if self.usage_so_far.output_tokens > request.limits.output_tokens:
                raise RunLimitReached(
                    f"{self._agent.name} wrote more than one run may", hint=LimitKind.TOKENS.hint
                )

    async def _prompt_events(
        self, session: AcpSession, text: str
    ) -> AsyncGenerator[AgentEvent, None]:
        """Send one prompt and yield its events; collected texts are those of this turn."""
        request = self._request
        if request.gate is not None:
            expected = self._meter.context_tokens + len(text) // 2
            await request.gate(request.model or self._agent.name, expected, self.usage_so_far)
        pictures = request.pictures if not self._meter.usage.requests else ()
        blocks = await content_blocks(text, pictures, images_accepted=session.info.accepts_images)
        self._texts, self._needs_paragraph_break, self._listening = [], False, True
        self._meter.count_prompt(text)
        answer = session.prompt(blocks)
        answer.add_done_callback(lambda _: self._wake())
        try:
            async with aclosing(self._events_until(answer)) as events:
                async for event in events:
                    yield event
        finally:
            # Discard further updates.
            self._listening = False
            while not self._queue.empty():
                self._queue.get_nowait()
        if self._broker.suspended:
            await session.wait_for_replies()
        else:
            self._check_stop_reason(await answer)

    async def _events_until(
        self, answer: asyncio.Future[Mapping[str, Any]]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Yield events until the response arrives or the run is suspended."""
        while not (answer.done() and self._queue.empty()):
            for event in self._events_of(await self._next_item(answer)):
                await self._track_event(event)
                yield event
            if self._broker.error is not None:
                raise self._broker.error
            if self._broker.suspended and not self._broker.pending_count:
                return

    async def _next_item(self, answer: asyncio.Future[Mapping[str, Any]]) -> _QueueItem:
        """Return the next item; None on a state change or when the turn is complete.

        The time limit is paused while people are asked."""
        while True:
            if answer.done() and self._queue.empty():
                return None
            asked = self._broker.pending_count > 0
            began = _now()
            left = None if asked else min(self._deadline - began, self._runtime.idle_timeout)
            try:
                async with asyncio.timeout(left):
                    item = await self._queue.get()
            except TimeoutError:
                raise self._timeout_error() from None
            if asked:
                self._deadline += _now() - began
            return item

    async def _on_update(self, update: Mapping[str, Any]) -> None:
        """Queue an update; outside a turn only usage counts, because the rest is replayed
        history."""
        if update.get("sessionUpdate") == "usage_update":
            self._meter.record_update(update)
        elif self._listening:
            self._meter.record_content(update)
            await self._queue.put(update)

    async def _emit(self, event: AgentEvent | None) -> None:
        if self._listening:
            await self._queue.put(event)

    def _wake(self) -> None:
        if self._queue.empty():
            self._queue.put_nowait(None)

    def _events_of(self, item: _QueueItem) -> list[AgentEvent]:
        if item is None:
            return []
        if not isinstance(item, Mapping):
            return [item]
        return [self._with_paragraph_break(event) for event in self._call_tracker.events(item)]

    def _with_paragraph_break(self, event: AgentEvent) -> AgentEvent:
        """Separate text before and after a tool call by a paragraph."""
        if isinstance(event, TextDelta) and self._needs_paragraph_break and self._texts:
            self._needs_paragraph_break = False
            return TextDelta(text=f"\n\n{event.text}")
        return event

    async def _track_event(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._needs_paragraph_break = False
                self._written += len(text)
                self._texts.append(text)
                most = min(_MAX_CHARACTERS, self._request.limits.output_tokens * _CHARS_PER_TOKEN)
                if self._written > most:
                    raise failure_error(AcpFailure.FLOOD, self._agent.name, "too long an answer")
            case ToolStarted():
                self._needs_paragraph_break = self._used_tools = True
            case ToolFinished():
                await self._broker.record_outcome(event)
            case _:
                pass

    @property
    def _text(self) -> str:
        """The turn's text, redacted as a whole because a secret may span chunks."""
        return self._redactor.redact_text("".join(self._texts))

    async def _read_result(self) -> tuple[BaseModel | None, MissingResult | None]:
        """Return the result, or the reason why it is missing."""
        form, text = self._request.result, self._text
        if form is None:
            empty = not text.strip() and (self._broker.denied or not self._used_tools)
            return None, MissingResult("the answer was empty") if empty else None
        try:
            return await asyncio.to_thread(parse_result, text, self._request.workspace, form), None
        except MissingResult as missing:
            return None, missing

    def _check_stop_reason(self, answer: Mapping[str, Any]) -> None:
        self._meter.record_turn(answer.get("usage"))
        reason = answer.get("stopReason")
        if reason == "refusal":
            raise InvalidAnswer(f"{self._agent.name} refused to answer")
        if reason == "cancelled" and not self._broker.denied and self._request.result is None:
            raise InvalidAnswer(f"{self._agent.name} gave up its turn")

    def _timeout_error(self) -> Exception:
        if _now() >= self._deadline:
            return RunLimitReached(
                f"{self._agent.name} took longer than one run may", hint=LimitKind.SECONDS.hint
            )
        return failure_error(AcpFailure.SILENT, self._agent.name)

    def _missing_result_error(self, missing: MissingResult) -> Exception:
        if self._request.result is None:
            return InvalidAnswer(f"{self._agent.name}: {missing}")
        return InvalidAnswer(
            f"{self._agent.name} returned no result: {missing}",
            hint=AcpFailure.NO_RESULT.hint,
            faults=missing.faults,
        )

    def _store_result(self, value: BaseModel | None) -> None:
        text = self._text
        shown = text if self._request.result is None else strip_result(text)
        history = history_entry(
            prompt=self._request.prompt, answer=text, system=system_hash(self._request)
        )
        self._result = RunResult(
            text=shown,
            value=value,
            model=self._request.model or self._agent.name,
            usage=self.usage_so_far,
            new_history=(history,),
            context_tokens=self._meter.context_tokens,
            suspended=tuple(self._broker.suspended),
        )


async def probe_version(agent: AcpAgentConfig, request: RunRequest, runtime: AcpRuntime) -> str:
    """Open a session and return the CLI's version. Raises BackendError."""
    home = agent_home(runtime.root, agent.name, request.persona)
    broker = PermissionBroker(
        request, WorkerMode.PLAN, AcpCallTracker(), approval_wait=0, emit=_ignore
    )
    async with open_cli(
        agent,
        request,
        runtime,
        home,
        mode=WorkerMode.PLAN,
        on_update=_ignore,
        on_permission_request=broker.handle_request,
    ) as session:
        return session.info.version


async def _ignore(_event: object) -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
