"""The agent loop of the model APIs. Heavy to import: only `api` does, when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ToolOutput
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserContent,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from bot.engine.llm import api_history
from bot.engine.llm.access import Access, Api
from bot.engine.llm.api_errors import is_theirs, translated
from bot.engine.llm.api_meter import CUT, MeteredModel
from bot.engine.llm.api_models import first_model
from bot.engine.llm.base import (
    BackendError,
    BadAnswer,
    Picture,
    RunRequest,
    RunResult,
    TooLong,
    Usage,
)
from bot.engine.llm.events import AgentEvent, TextDelta, ThoughtDelta
from bot.engine.llm.loop.run import OneRun
from bot.engine.llm.loop.toolbox import Toolbox
from bot.engine.llm.loop.written import WrittenCalls

MAX_PICTURE = 5_000_000
CONNECT_SECONDS = 10.0
NO_KEY = "no-key"
_NO_ANSWER = {
    CUT: "the answer was cut off at the longest allowed",
    "content_filter": "the model refused to answer",
}

Output: TypeAlias = str | BaseModel | DeferredToolRequests | None


class Engine:
    """The connections to one API, and the runs over them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        timeout = httpx2.Timeout(access.silence, connect=CONNECT_SECONDS)
        self._http = httpx2.AsyncClient(timeout=timeout, follow_redirects=True)
        self._models: dict[str, Model] = {}
        self._first = ""

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[ApiRun]:
        prompt = await _prompt(request)
        model = await asyncio.to_thread(self._model, request.model or await self._only_model())
        run = ApiRun(request, model, prompt, self._access)
        try:
            yield run
        finally:
            await run.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _only_model(self) -> str:
        """For who has set no model: what the service lists first. Asked once."""
        if not self._first:
            key, url = self._access.key or NO_KEY, self._access.base_url
            self._first = await first_model(self._http, url, key)
        return self._first

    def _model(self, name: str) -> Model:
        if name not in self._models:
            self._models[name] = self._new_model(name)
        return self._models[name]

    def _new_model(self, name: str) -> Model:
        key, url = self._access.key or NO_KEY, self._access.base_url or None
        if self._access.api is Api.ANTHROPIC:
            anthropic = AnthropicProvider(api_key=key, base_url=url, http_client=self._http)
            return AnthropicModel(name, provider=anthropic)
        openai = OpenAIProvider(api_key=key, base_url=url, http_client=self._http)
        model = OpenAIChatModel(name, provider=openai)
        return WrittenCalls(model) if self._access.written_calls else model


class ApiRun(OneRun):
    """One run of the agent loop; see `base.Run`."""

    def __init__(
        self, request: RunRequest, model: Model, prompt: list[UserContent], access: Access
    ) -> None:
        super().__init__()
        self._request = request
        self._prompt = prompt
        self._access = access
        self._usage = RunUsage()
        self._model = model
        self._meter: MeteredModel | None = None
        if request.gate is not None:
            self._model = self._meter = MeteredModel(
                model,
                request.gate,
                spent=lambda: self.spent,
                prompt=prompt,
                answered=frozenset(request.answers),
                whole=request.result is not None,
            )
        self._texts: list[str] = []
        self._gap = False
        self._tools = Toolbox(request)

    @property
    def spent(self) -> Usage:
        reported = _usage(self._usage)
        return self._meter.with_broken(reported) if self._meter else reported

    async def _go(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._work()) as events:
                async for event in events:
                    yield event
        except BackendError:
            raise
        except Exception as error:  # the border: no library's exception may leave a backend
            if self._tools.busy and not is_theirs(error):
                raise  # a tool of ours is broken
            failure = translated(error, self.spent, self._access.key)
            if isinstance(failure, TooLong) and self._meter is not None:
                failure.new_history = self._meter.added
            # Without its cause: that may quote the request, key and all.
            raise failure from None

    async def _work(self) -> AsyncGenerator[AgentEvent, None]:
        request = self._request
        history = await asyncio.to_thread(api_history.load, request.history)
        stream = self._agent().run_stream_events(
            self._prompt or None,
            message_history=history,
            deferred_tool_results=self._tools.results() if history else None,
            usage=self._usage,
            usage_limits=UsageLimits(
                request_limit=request.limits.turns,
                output_tokens_limit=request.limits.output_tokens,
            ),
            timeout=request.limits.seconds,
        )
        async with stream as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    self._result = self._ended(event.result)
                    continue
                for ours in self._events_of(event):
                    yield ours

    def _agent(self) -> Agent[None, Output]:
        request = self._request
        most = min(request.limits.output_tokens, request.answer_tokens)
        # Trying again is the caller's business: it knows what else waits.
        settings = ModelSettings(max_tokens=most, max_retries=0)
        if self._access.api is Api.ANTHROPIC:
            settings["cache"] = True
        # None is a good answer where the tools have already said everything.
        form: Any = [ToolOutput(request.result)] if request.result else [str, type(None)]
        return Agent(
            self._model,
            output_type=[*form, DeferredToolRequests],
            instructions=_clean(request.system) or None,
            tools=self._tools.for_library(),
            retries={"tools": 2, "output": 1},
            model_settings=settings,
        )

    def _events_of(self, event: object) -> list[AgentEvent]:
        """Kinds of events we do not know are none of our business."""
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                # The first words come with the part's start.
                self._gap = bool(self._texts)
                return self._said(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return self._said(text)
            case (
                PartStartEvent(part=ThinkingPart(content=str(text)))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            ):
                return [ThoughtDelta(text=text)] if text else []
            case FunctionToolCallEvent() | FunctionToolResultEvent():
                return self._tools.events_of(event)
            case _:
                return []

    def _said(self, text: str) -> list[AgentEvent]:
        if not text:
            return []
        if self._gap:
            # What was said before a tool call and after it are paragraphs of one answer.
            text, self._gap = f"\n\n{text}", False
        self._texts.append(text)
        return [TextDelta(text=text)]

    def _ended(self, result: AgentRunResult[Output]) -> RunResult:
        text = "".join(self._texts)
        value = result.output if isinstance(result.output, BaseModel) else None
        put_off = self._tools.put_off(result.output)
        ended = result.response.finish_reason or ""
        # Half a text is worth reading and can be gone on with; half a form is nothing.
        cut = ended == CUT and self._request.result is None and bool(text.strip())
        if value is None and ended in _NO_ANSWER and not (cut or put_off):
            raise BadAnswer(_NO_ANSWER[ended], usage=_usage(self._usage))
        if value is None and not text.strip() and not self._tools.calls:
            raise BadAnswer("the answer was empty", usage=_usage(self._usage))
        return RunResult(
            text=text,
            value=value,
            model=result.response.model_name or self._model.model_name,
            usage=_usage(self._usage),
            new_history=api_history.dump(result.new_messages()),
            cut=cut,
            context=result.response.usage.input_tokens + result.response.usage.output_tokens,
            suspended=put_off,
        )


async def _prompt(request: RunRequest) -> list[UserContent]:
    pictures = [await asyncio.to_thread(_picture, picture) for picture in request.pictures]
    text = _clean(request.prompt)
    if text.strip() or not (pictures or request.answers):
        return [text, *pictures]
    return pictures


def _picture(picture: Picture) -> UserContent:
    """The picture, or a word in its place: the question may make sense without it."""
    data = _bytes(picture.path)
    if not data or len(data) > MAX_PICTURE:
        return f"[the picture {picture.path.name} is missing or too large]"
    return BinaryContent(data=data, media_type=picture.mime)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _clean(text: str) -> str:
    """Without lone surrogates, which no wire can carry."""
    return text.encode("utf-8", "replace").decode()


def _usage(usage: RunUsage) -> Usage:
    return Usage(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost=usage.cost,
    )
