"""Runs the agent loop on model APIs; slow to import."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias

import httpx2
import pydantic_ai
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ModelRetry,
    ToolOutput,
)
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserContent,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from bot.config.server_dates import note_response
from bot.engine.llm.api.access import ApiAccess, ApiProvider, LearnedToolForms, ToolForm
from bot.engine.llm.api.error_mapping import is_library_error, translate_error
from bot.engine.llm.api.metered_model import (
    FINISH_LENGTH,
    MeteredModel,
    dump_history,
    load_history,
    usage_of,
)
from bot.engine.llm.api.repetition import watch_silence
from bot.engine.llm.api.run_toolset import RunToolset
from bot.engine.llm.api.text_tool_calls import (
    TextReader,
    TextToolCallModel,
    WrittenCallModel,
)
from bot.engine.llm.backend import (
    AgentEvent,
    BackendDenied,
    BackendError,
    BackendUnavailable,
    BaseRun,
    ContextTooLong,
    ImageInput,
    InvalidAnswer,
    RunNotice,
    RunRequest,
    RunResult,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
)
from cards.formats import drop_surrogates

# What the terminal shows is ours: the library would print its logo with the first call.
pydantic_ai.BANNER_ENABLED = False


async def fetch_first_model(http: httpx2.AsyncClient, base_url: str, key: str) -> str:
    """Return the first model listed by `GET /models`. Raises BackendError."""
    headers = {"authorization": f"Bearer {key}"}
    try:
        response = await http.get(f"{base_url.rstrip('/')}/models", headers=headers)
    except httpx2.HTTPError as error:
        raise BackendUnavailable(f"no list of models: {type(error).__name__}") from None
    status = response.status_code
    if response.is_server_error or status == HTTPStatus.TOO_MANY_REQUESTS:
        raise BackendUnavailable(f"no list of models: status {status}")
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise BackendDenied(f"no list of models: status {status}", hint="backend.bad_key")
    if response.is_client_error:
        raise BackendDenied(f"no list of models: status {status}; set SHIFTBOSS_MODEL")
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidAnswer("the list of models cannot be read; set SHIFTBOSS_MODEL") from error


MAX_IMAGE_BYTES = 5_000_000
CONNECT_SECONDS = 10.0
PLACEHOLDER_KEY = "no-key"
_FINISH_ERRORS = {
    FINISH_LENGTH: "the answer was cut off at the longest allowed",
    "content_filter": "the model refused to answer",
}

_ANSWER_IN_FORM = "Go on, and give your answer in the required form."

RunOutput: TypeAlias = str | BaseModel | DeferredToolRequests | None


async def _keep_to_service(response: httpx2.Response) -> None:
    """A service may move within itself, and to https, but must not send key and words elsewhere: as
    an answer without an address, its redirect is an error."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    try:
        there = here.join(response.headers["location"])
    except httpx2.InvalidURL:
        there = httpx2.URL("")
    is_upgrade = (here.scheme, there.scheme) == ("http", "https") and here.host == there.host
    if not is_upgrade and (here.scheme, here.host, here.port) != (
        there.scheme,
        there.host,
        there.port,
    ):
        del response.headers["location"]


def _build_event_reader() -> None:
    """The SDK would build it, of some hundred classes, with the first event, and keep it."""
    from anthropic._models import construct_type
    from anthropic.types.beta import BetaRawMessageStreamEvent

    construct_type(type_=BetaRawMessageStreamEvent, value={"type": "message_stop"})


class ModelApiClient:
    """Holds the connections to one API."""

    def __init__(self, access: ApiAccess, tool_forms: LearnedToolForms | None) -> None:
        self._access = access
        self._tool_forms = tool_forms
        timeout = httpx2.Timeout(access.max_silence, connect=CONNECT_SECONDS)
        self._http = httpx2.AsyncClient(
            timeout=timeout,
            follow_redirects=True,
            event_hooks={"response": [note_response, _keep_to_service]},
        )
        self._models: dict[str, Model] = {}
        self._default_model_name = ""

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[ApiRun]:
        prompt = await _prompt_content(request)
        name = request.model or await self._default_model()
        toolset = RunToolset(request)
        model = await asyncio.to_thread(self._model, name)
        model = await self._with_reader(model, name, request, toolset)
        run = ApiRun(request, model, prompt, self._access, toolset)
        try:
            yield run
        finally:
            await run.aclose()

    async def preload(self, model: str) -> None:
        """Import the SDK of the model's provider; the model may be the one that the service
        lists first."""
        await asyncio.to_thread(self._model if model else self._build_model, model)
        # Builds what reads stored messages.
        await asyncio.to_thread(load_history, ())
        # SDKs name the system in their first request: this starts a process, and is remembered.
        await asyncio.to_thread(platform.platform)
        if self._access.provider is ApiProvider.ANTHROPIC:
            await asyncio.to_thread(_build_event_reader)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _default_model(self) -> str:
        """Return the first model that the service lists; cached."""
        if not self._default_model_name:
            key, url = self._access.key or PLACEHOLDER_KEY, self._access.base_url
            self._default_model_name = await fetch_first_model(self._http, url, key)
        return self._default_model_name

    async def _with_reader(
        self, model: Model, name: str, request: RunRequest, toolset: RunToolset
    ) -> Model:
        """Have the model's text read for calls, and ask for them as text where it needs that."""
        forms, service = self._tool_forms, self._access.base_url
        if self._access.tool_form is ToolForm.WRITTEN:
            asked = TextReader(form=request.result, is_asked=True)
            return TextToolCallModel(model, asked, toolset.choose_tools)
        if forms is None or not self._access.learns_tool_form:
            return WrittenCallModel(model, TextReader(form=request.result))
        learn = partial(forms.observe, service, name)
        if await forms.is_written(service, name):
            asked = TextReader(form=request.result, is_asked=True, on_call=learn)
            return TextToolCallModel(model, asked, toolset.choose_tools)
        return WrittenCallModel(model, TextReader(form=request.result, on_call=learn))

    def _model(self, name: str) -> Model:
        if name not in self._models:
            self._models[name] = self._build_model(name)
        return self._models[name]

    def _build_model(self, name: str) -> Model:
        """Import only the SDK that is used: 34 MiB for Anthropic, 14 MiB for OpenAI."""
        key, url = self._access.key or PLACEHOLDER_KEY, self._access.base_url or None
        if self._access.provider is ApiProvider.ANTHROPIC:
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            anthropic = AnthropicProvider(api_key=key, base_url=url, http_client=self._http)
            return AnthropicModel(name, provider=anthropic)
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        openai = OpenAIProvider(api_key=key, base_url=url, http_client=self._http)
        return OpenAIChatModel(name, provider=openai)


class ApiRun(BaseRun):
    """A run of the agent loop; satisfies `llm.backend.BackendRun`."""

    def __init__(
        self,
        request: RunRequest,
        model: Model,
        prompt: list[UserContent],
        access: ApiAccess,
        toolset: RunToolset,
    ) -> None:
        super().__init__()
        self._request = request
        self._prompt = prompt
        self._access = access
        self._usage = RunUsage()
        self._model = model
        self._writes_calls = isinstance(model, TextToolCallModel)
        self._metered_model: MeteredModel | None = None
        if request.gate is not None:
            self._model = self._metered_model = MeteredModel(
                model,
                request.gate,
                usage_so_far=lambda: self.usage_so_far,
                prompt=prompt,
                answered_calls=frozenset(request.answers),
                requires_complete=request.result is not None,
                on_reply=request.on_reply,
                is_resumed=request.resumed_text is not None,
            )
        self._texts: list[str] = []
        self._needs_paragraph_break = False
        self._continues_turn = False
        self._toolset = toolset
        self._unused_checks = request.checks

    @property
    def usage_so_far(self) -> TokenUsage:
        reported = usage_of(self._usage)
        return self._metered_model.with_interrupted(reported) if self._metered_model else reported

    async def _run_events(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._agent_events()) as events:
                async for event in events:
                    yield event
        except BackendError:
            raise
        except Exception as error:  # no library exception may leave a backend
            if self._toolset.running and not is_library_error(error):
                raise  # a bug in one of our tools
            failure = translate_error(error, self.usage_so_far, self._access.key)
            if isinstance(failure, ContextTooLong) and self._metered_model is not None:
                failure.new_history = self._metered_model.added_messages
            # Drop the cause: it may quote the request, including the key.
            raise failure from None

    async def _agent_events(self) -> AsyncGenerator[AgentEvent, None]:
        request = self._request
        history = await asyncio.to_thread(load_history, request.history)
        prompt: list[UserContent] | None = self._prompt or None
        if history and request.resumed_text is not None:
            prompt, self._continues_turn = None, True
            for ours in self._text_events(request.resumed_text):
                yield ours
            last = history[-1]
            if isinstance(last, ModelResponse) and not last.tool_calls:
                if request.result is None:
                    # It was the answer; only its caller has not stored it.
                    self._result = self._build_result(None, last, ())
                    return
                # Services want a message after a reply.
                prompt = [_ANSWER_IN_FORM, *await self._toolset.take_news()]
        stream = self._agent().run_stream_events(
            prompt,
            message_history=history,
            deferred_tool_results=self._toolset.deferred_results() if history else None,
            usage=self._usage,
            usage_limits=UsageLimits(
                request_limit=request.limits.turns,
                output_tokens_limit=request.limits.output_tokens,
            ),
            timeout=request.limits.wall_seconds,
        )
        watched = watch_silence(
            stream,
            notice_after=self._access.silence_notice,
            fail_after=self._access.max_silence,
            is_busy=lambda: self._toolset.running,
        )
        async with aclosing(watched) as events:
            async for event in events:
                if event is None:
                    yield RunNotice(key="backend.silent", passing=True)
                    continue
                if isinstance(event, AgentRunResultEvent):
                    ended = event.result
                    self._result = self._build_result(
                        ended.output, ended.response, self._unreported(ended.new_messages())
                    )
                    continue
                for ours in self._events_of(event):
                    yield ours

    def _agent(self) -> Agent[None, RunOutput]:
        request = self._request
        most = min(request.limits.output_tokens, request.answer_tokens)
        # The caller retries: it knows what else is waiting.
        settings = ModelSettings(max_tokens=most, max_retries=0)
        if self._access.provider is ApiProvider.ANTHROPIC:
            settings["cache"] = True
        # None is valid if tool calls already said everything.
        form: Any = [ToolOutput(request.result)] if request.result else [str, type(None)]
        agent: Agent[None, RunOutput] = Agent(
            self._model,
            output_type=[*form, DeferredToolRequests],
            instructions=drop_surrogates(request.system) or None,
            tools=self._toolset.library_tools(),
            retries={"tools": 2, "output": 2 if request.checks else 1},
            model_settings=settings,
        )
        agent.output_validator(self._check_result)
        return agent

    async def _check_result(self, output: RunOutput) -> RunOutput:
        """Send a result back once whose fault can be seen: it is cheaper than another attempt."""
        checks, self._unused_checks = self._unused_checks, None
        if checks is None or not isinstance(output, BaseModel):
            return output
        if fault := await checks.find_result_fault(output):
            self._toolset.is_over = fault.of_report_only
            raise ModelRetry(fault.text)
        return output

    def _events_of(self, event: object) -> list[AgentEvent]:
        """Unknown events are ignored."""
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                # The first text comes with the part's start.
                self._needs_paragraph_break = bool(self._texts)
                return self._text_events(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return self._text_events(text)
            case (
                PartStartEvent(part=ThinkingPart(content=str(text)))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            ):
                return [ThoughtDelta(text=text)] if text else []
            case FunctionToolCallEvent() | FunctionToolResultEvent():
                return self._toolset.events_of(event)
            case _:
                return []

    def _text_events(self, text: str) -> list[AgentEvent]:
        if not text:
            return []
        if self._needs_paragraph_break:
            # Separate text before and after a tool call by a paragraph.
            text, self._needs_paragraph_break = f"\n\n{text}", False
        self._texts.append(text)
        return [TextDelta(text=text)]

    def _unreported(self, added: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        """Return the messages that `on_reply` has not been given."""
        if self._request.on_reply is None:
            return added
        replies = [n for n, each in enumerate(added) if isinstance(each, ModelResponse)]
        return added[replies[-1] + 1 :] if replies else added

    def _build_result(
        self, output: RunOutput, last: ModelResponse, added: Sequence[ModelMessage]
    ) -> RunResult:
        text = "".join(self._texts)
        value = output if isinstance(output, BaseModel) else None
        suspended = self._toolset.suspended_calls(output)
        ended = last.finish_reason or ""
        # A truncated text is useful and can be continued; a truncated form is not.
        cut = ended == FINISH_LENGTH and self._request.result is None and bool(text.strip())
        if value is None and ended in _FINISH_ERRORS and not (cut or suspended):
            raise InvalidAnswer(_FINISH_ERRORS[ended], usage=usage_of(self._usage))
        has_called = self._toolset.call_count or self._continues_turn
        if value is None and not text.strip() and not has_called:
            raise InvalidAnswer("the answer was empty", usage=usage_of(self._usage))
        return RunResult(
            text=text,
            value=value,
            model=last.model_name or self._model.model_name,
            usage=usage_of(self._usage),
            new_history=dump_history(added),
            truncated=cut,
            context_tokens=last.usage.input_tokens + last.usage.output_tokens,
            suspended=suspended,
            writes_calls=self._writes_calls,
        )


async def _prompt_content(request: RunRequest) -> list[UserContent]:
    pictures = [await asyncio.to_thread(_image_content, picture) for picture in request.pictures]
    text = drop_surrogates(request.prompt)
    if text.strip() or not (pictures or request.answers):
        return [text, *pictures]
    return pictures


def _image_content(picture: ImageInput) -> UserContent:
    """Return the picture, or a note if it can't be read: the question may make sense without it."""
    data = picture.read(MAX_IMAGE_BYTES)
    if not data:
        return f"[the picture {picture.path.name} is missing or too large]"
    return BinaryContent(data=data, media_type=picture.mime)
