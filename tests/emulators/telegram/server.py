"""HTTP in front of the emulated world: paths, mischief, answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import Server

from tests.emulators.telegram.errors import TelegramApiError, too_many_requests
from tests.emulators.telegram.faults import (
    DropAfterFault,
    DropBeforeFault,
    GarbageFault,
    HoldFault,
    RateLimitFault,
    RefusalFault,
    ServerErrorFault,
    SlowFault,
)
from tests.emulators.telegram.methods import files, messages, service
from tests.emulators.telegram.request_forms import RequestForm, read_form
from tests.emulators.telegram.state import RecordedCall, TelegramState

Method: TypeAlias = Callable[[TelegramState, RequestForm], Awaitable[Any]]

# Telegram takes method names in any case.
METHODS: dict[str, Method] = {
    name.lower(): method
    for name, method in (
        ("getMe", service.get_me),
        ("getUpdates", service.get_updates),
        ("setWebhook", service.set_webhook),
        ("deleteWebhook", service.delete_webhook),
        ("getWebhookInfo", service.get_webhook_info),
        ("sendMessage", messages.send_message),
        ("sendMessageDraft", messages.send_message_draft),
        ("sendChatAction", messages.send_chat_action),
        ("editMessageText", messages.edit_message_text),
        ("editMessageCaption", messages.edit_message_caption),
        ("editMessageReplyMarkup", messages.edit_message_reply_markup),
        ("deleteMessage", messages.delete_message),
        ("setMessageReaction", messages.set_message_reaction),
        ("sendPhoto", files.send_photo),
        ("sendDocument", files.send_document),
        ("sendMediaGroup", files.send_media_group),
        ("getFile", files.get_file),
        ("answerCallbackQuery", service.answer_callback_query),
        ("setMyCommands", service.set_my_commands),
        ("getMyCommands", service.get_my_commands),
        ("setChatMenuButton", service.set_chat_menu_button),
        ("getChat", service.get_chat),
        ("getChatMember", service.get_chat_member),
    )
}


class BotApi:
    """The ASGI application."""

    def __init__(self, world: TelegramState) -> None:
        self._world = world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._route(request)
        except TelegramApiError as error:
            response = JSONResponse(error.as_json(), status_code=error.code)
        if response is None:
            await _break_connection(send)
            return
        await response(scope, receive, send)

    async def _route(self, request: Request) -> Response | None:
        parts = request.url.path.strip("/").split("/")
        if parts[0] == "file" and len(parts) > 2:
            self._world.check_token(parts[1].removeprefix("bot"))
            return self._download("/".join(parts[2:]))
        if len(parts) != 2 or not parts[0].startswith("bot"):
            raise TelegramApiError(404, "Not Found")
        return await self._call(parts[0].removeprefix("bot"), parts[1], request)

    def _download(self, path: str) -> Response:
        for stored in self._world.files.values():
            if stored.path == path:
                return Response(stored.upload.content, media_type="application/octet-stream")
        raise TelegramApiError(404, "Not Found")

    async def _call(self, token: str, method: str, request: Request) -> Response | None:
        form = await read_form(request)
        call = RecordedCall(method=method, form=form, at=self._world.clock())
        self._world.calls.append(call)
        self._world.changes.notify()
        try:
            self._world.check_token(token)
            response = await self._misbehave_or_answer(method, form)
        except TelegramApiError as error:
            call.error = error.description
            call.status = error.code
            raise
        call.status = response.status_code if response is not None else 0
        return response

    async def _misbehave_or_answer(self, method: str, form: RequestForm) -> Response | None:
        self._check_ban(form)
        self._check_flood(method, form)
        match mischief := self._world.fault_plans.take(method):
            case None | HoldFault() | SlowFault() | DropAfterFault():
                answer = await self._answer(method, form)
                return await self._deliver(mischief, answer)
            case DropBeforeFault():
                return None
            case GarbageFault(body=body, code=code):
                return Response(body, status_code=code)
            case ServerErrorFault(code=code, description=description):
                raise TelegramApiError(code, description)
            case RefusalFault(error=error):
                raise error
            case RateLimitFault(retry_after=seconds):
                self._world.bans.start(form.text("chat_id"), self._world.clock() + seconds)
                raise too_many_requests(seconds)

    async def _deliver(
        self, mischief: HoldFault | SlowFault | DropAfterFault | None, answer: Any
    ) -> Response | None:
        match mischief:
            case DropAfterFault():
                return None
            case HoldFault(entered=entered, gate=gate):
                entered.set()
                await gate.wait()
            case SlowFault(seconds=seconds):
                await asyncio.sleep(seconds)
            case None:
                pass
        return JSONResponse({"ok": True, "result": answer})

    async def _answer(self, method: str, form: RequestForm) -> Any:
        run = METHODS.get(method.lower())
        if run is None:
            raise TelegramApiError(404, "Not Found: method not found")
        return await run(self._world, form)

    def _check_ban(self, form: RequestForm) -> None:
        chat = form.text("chat_id")
        left = self._world.bans.remaining(chat, self._world.clock()) if chat else 0
        if left > 0:
            raise too_many_requests(math.ceil(left))

    def _check_flood(self, method: str, form: RequestForm) -> None:
        album = form.data("media", "media")
        messages = len(album) if isinstance(album, list) else 1
        now, chat = self._world.clock(), form.text("chat_id")
        left = self._world.flood.check(method, chat, messages, now)
        if left > 0:
            self._world.bans.start(chat, now + left)
            raise too_many_requests(math.ceil(left))


class QuietServer(Server):
    """uvicorn inside the test's loop, without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen() -> socket.socket:
    """A listening socket on a free loopback port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def make_server(world: TelegramState) -> QuietServer:
    return QuietServer(
        Config(
            BotApi(world),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
    )


async def _break_connection(send: Send) -> None:
    """Cut the wire without an answer: uvicorn's send belongs to the object with the transport."""
    cycle: Any = getattr(send, "__self__")  # noqa: B009 - not part of the ASGI type
    cycle.transport.abort()
    while not cycle.disconnected:
        await asyncio.sleep(0)
