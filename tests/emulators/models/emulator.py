"""The APIs of Anthropic, OpenAI (Chat Completions and Responses) and Gemini on a loopback port, for
tests.

async with Models() as models:
    models.replies(Reply(text="hello"), Reply(failure=Failure(status=529)))
    …  # ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL: models.url, OPENAI_BASE_URL:
    …  # models.openai_url, key: models.key
    assert models.requests[0].said == ("hi",)
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from tests.emulators.models import anthropic_api, gemini_api, openai_api, responses_api
from tests.emulators.models.default_replies import default_reply
from tests.emulators.models.http_server import (
    ConnectionDropped,
    HttpAnswer,
    HttpRequest,
    HttpServer,
)
from tests.emulators.models.prompt_cache import PromptCache
from tests.emulators.models.script import (
    ReceivedRequest,
    RequestRejected,
    ScriptedFailure,
    ScriptedReply,
)

KEY = "test-key-0123456789"
ANTHROPIC_MODELS = ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-sonnet-5")
OPENAI_MODELS = ("local-model", "gpt-5.2", "gpt-5-mini", "gpt-4o", "gpt-4o-mini")
_SECRET_HEADERS = ("x-api-key", "authorization")

ReplyFunction = Callable[[ReceivedRequest], ScriptedReply]


class ModelEmulator:
    """`requests` are the valid ones, `billed` those that were answered, with their usage; `refused`
    is what the real APIs would not have taken; `disconnects` are the paths of answers whose client
    left before their end."""

    def __init__(self, *, key: str = KEY, cache_floor: int = 1024) -> None:
        self.key = key
        self.known_models = frozenset((*ANTHROPIC_MODELS, *OPENAI_MODELS, *gemini_api.MODELS))
        self.requests: list[ReceivedRequest] = []
        self.billed: list[tuple[ReceivedRequest, Mapping[str, int]]] = []
        self.refused: list[RequestRejected] = []
        self.disconnects: list[str] = []
        self._queue: deque[ScriptedReply] = deque()
        self._replier: ReplyFunction = default_reply
        self._cache = PromptCache(cache_floor)
        self._changed = asyncio.Condition()
        self._notices: set[asyncio.Task[None]] = set()
        self._server = HttpServer(self._handle, self._on_disconnect)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop()

    @property
    def url(self) -> str:
        """The host root, as ANTHROPIC_BASE_URL wants it."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def replies(self, *script: ScriptedReply | ReplyFunction) -> None:
        """Replies are given once each, in order; a function answers whatever comes after them.
        With nothing left the deterministic worker answers."""
        for one in script:
            if isinstance(one, ScriptedReply):
                self._queue.append(one)
            else:
                self._replier = one

    async def wait_for_request(self, count: int = 1) -> ReceivedRequest:
        """Wait until so many valid requests have come; the last of them."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def wait_for_disconnect(self, count: int = 1) -> None:
        """Wait until so many clients have left before their answer ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.disconnects) >= count)

    async def _handle(self, request: HttpRequest, answer: HttpAnswer) -> None:
        api = _api(request)
        if api is None:
            await answer.json(404, {"error": {"message": f"no route {request.path}"}})
            return
        try:
            asked = self._check(api, request)
        except RequestRejected as refused:
            self.refused.append(refused)
            await answer.json(refused.status, api.refusal(refused))
            return
        if asked is None:
            await answer.json(200, openai_api.models(OPENAI_MODELS))
            return
        if isinstance(api, gemini_api.GeminiEndpoint) and api.counts:
            await answer.json(200, api.counted(asked))
            return
        self.requests.append(asked)
        self._notify()
        reply = self._queue.popleft() if self._queue else self._replier(asked)
        await self._send_reply(api, asked, reply, answer)

    def _check(self, api: Any, request: HttpRequest) -> ReceivedRequest | None:
        """The request in neutral form; None for the list of models."""
        api.check_headers(request.headers, frozenset({self.key}))
        if request.method == "GET":
            return None
        try:
            body = json.loads(request.body)
        except ValueError as error:
            raise RequestRejected(
                400, "We could not parse the JSON body of your request."
            ) from error
        headers = {
            name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS
        }
        asked: ReceivedRequest = api.asked(body, headers, self.known_models)
        return asked

    async def _send_reply(
        self, api: Any, asked: ReceivedRequest, reply: ScriptedReply, answer: HttpAnswer
    ) -> None:
        number = len(self.requests)
        if reply.hold and not (asked.stream and reply.hold_after):
            await reply.hold.wait()
        if reply.drop_after == 0:
            raise ConnectionDropped
        if reply.failure and reply.fail_after is None:
            await answer.json(
                reply.failure.status, api.failure(reply.failure), _retry_after_header(reply.failure)
            )
        elif reply.garbage is not None:
            kind = {"content-type": "text/event-stream" if asked.stream else "application/json"}
            await answer.whole(200, reply.garbage.encode(), kind)
        elif asked.stream:
            events = api.events(asked, reply, number, self._usage(asked, reply))
            failed = api.error_event(reply.failure) if reply.failure else ""
            await _stream(answer, reply, events, failed)
        else:
            whole = api.whole(asked, reply, number, self._usage(asked, reply))
            await answer.json(200, whole)

    def _usage(self, asked: ReceivedRequest, reply: ScriptedReply) -> Mapping[str, int]:
        usage = {**self._cache.usage(asked), **(reply.usage or {})}
        self.billed.append((asked, usage))
        return usage

    def _on_disconnect(self, request: HttpRequest) -> None:
        self.disconnects.append(request.path)
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.ensure_future(notify())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)


async def _stream(
    answer: HttpAnswer, reply: ScriptedReply, events: Iterator[str], failed: str
) -> None:
    await answer.start_stream({"request-id": "req_emulated"})
    for at, event in enumerate(events):
        if reply.hold and reply.hold_after == at:
            while reply.keeps_alive and not reply.hold.is_set():
                await answer.piece(": still here\n\n")
                await asyncio.sleep(0.01)
            await reply.hold.wait()
        if reply.drop_after == at:
            raise ConnectionDropped
        if failed and reply.fail_after == at:
            await answer.piece(failed)
            break
        await answer.piece(event)
        await asyncio.sleep(reply.pace)
    await answer.end_stream()


def _retry_after_header(failure: ScriptedFailure) -> dict[str, str]:
    return {"retry-after": failure.retry_after} if failure.retry_after else {}


def _api(request: HttpRequest) -> Any:
    """The API call at this path; None for an unknown path."""
    if request.method == "POST" and (found := gemini_api.endpoint(request.path, request.query)):
        return found
    return _API.get((request.method, request.path))


_API: dict[tuple[str, str], Any] = {
    ("POST", "/v1/messages"): anthropic_api,
    ("POST", "/v1/chat/completions"): openai_api,
    ("POST", "/v1/responses"): responses_api,
    ("GET", "/v1/models"): openai_api,
}
