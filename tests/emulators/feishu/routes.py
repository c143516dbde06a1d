"""Routes, authorisation, faults and the record of every request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.emulators.feishu.bitable import bitable_routes
from tests.emulators.feishu.documents import document_routes
from tests.emulators.feishu.http_server import CutConnection, HttpRequest, HttpResponse
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError, InjectedFault
from tests.emulators.feishu.registration import PATH as REGISTRATION_PATH

if TYPE_CHECKING:
    from tests.emulators.feishu.emulator import FeishuEmulator

RouteResult: TypeAlias = "dict[str, Any] | HttpResponse"
RouteHandler: TypeAlias = Callable[..., RouteResult]
_OPEN = {
    "/callback/ws/endpoint",
    "/open-apis/auth/v3/tenant_access_token/internal",
    REGISTRATION_PATH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request as it was answered; `code` is None where no envelope was sent."""

    method: str
    path: str
    query: dict[str, str]
    json: Any
    headers: dict[str, str]
    status: int
    code: int | None
    at: float


class FeishuRoutes:
    def __init__(self, fs: FeishuEmulator) -> None:
        self._fs = fs
        self._routes = [
            (method, re.compile(pattern.replace("{}", "([^/]+)")), route)
            for method, pattern, route in _routes(fs)
        ]
        self.faults: list[InjectedFault] = []
        self.requests: list[RecordedRequest] = []

    async def handle(self, request: HttpRequest) -> HttpResponse:
        fault = self._fault(request)
        try:
            if fault is not None:
                fault.hits += 1
                await _apply_fault(fault)
            response, code = self._answer(request), 0
            await self._fs.bitable.settle(request.path)
        except FeishuApiError as error:
            response, code = _refusal(error), error.code
        except _RawResponse as raw:
            response, code = raw.response, -1
        except CutConnection:
            self._record(request, 0, None)
            raise
        self._record(request, response.status, None if code == -1 else code)
        if fault is not None and fault.cut is ConnectionCut.AFTER:
            raise CutConnection
        return response

    def _fault(self, request: HttpRequest) -> InjectedFault | None:
        fits = (f for f in self.faults if f.matches(request.method, request.path))
        return next(fits, None)

    def _record(self, request: HttpRequest, status: int, code: int | None) -> None:
        self.requests.append(
            RecordedRequest(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                json=request.json(),
                headers=dict(request.headers),
                status=status,
                code=code,
                at=self._fs.clock.now(),
            )
        )
        self._fs.world.notify_changed()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        for method, pattern, route in self._routes:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                result = self._call(request, pattern.pattern, route, match.groups())
                if isinstance(result, HttpResponse):
                    return result
                return envelope(0, "success", **result)
        raise FeishuApiError(99991201, "404 page not found", status=404)

    def _call(
        self, request: HttpRequest, name: str, route: RouteHandler, groups: tuple[str, ...]
    ) -> RouteResult:
        if request.path not in _OPEN:
            self._fs.tokens.check(request.headers.get("authorization", ""))
            self._fs.rates.count_call()
            self._fs.rates.api(f"{request.method} {name}")
        return route(request, *groups)


def envelope(code: int, msg: str, *, status: int = 200, **fields: Any) -> HttpResponse:
    """The platform's JSON envelope with whatever else stands on its top level."""
    body = json.dumps({"code": code, "msg": msg, **fields}, ensure_ascii=False).encode()
    headers = {
        "content-type": "application/json; charset=utf-8",
        "x-tt-logid": "202611210000000000000000000000",
    }
    return HttpResponse(status=status, body=body, headers=headers)


def _refusal(error: FeishuApiError) -> HttpResponse:
    response = envelope(error.code, error.msg, status=error.status)
    return replace(response, headers={**response.headers, **error.headers})


class _RawResponse(Exception):
    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


async def _apply_fault(fault: InjectedFault) -> None:
    if fault.gate is not None:
        await fault.gate.wait()
    if fault.delay:
        await asyncio.sleep(fault.delay)
    if fault.cut is ConnectionCut.BEFORE:
        raise CutConnection
    if fault.error is not None:
        raise fault.error
    if fault.raw is not None:
        headers = {"content-type": "text/html"}
        raise _RawResponse(HttpResponse(status=fault.status, body=fault.raw, headers=headers))


def _routes(fs: FeishuEmulator) -> list[tuple[str, str, RouteHandler]]:
    im, kit = "/open-apis/im/v1", "/open-apis/cardkit/v1/cards"
    messages, media, cards = fs.messages, fs.media, fs.cardkit

    def data(route: Callable[..., dict[str, Any]]) -> RouteHandler:
        return lambda *args: {"data": route(*args)}

    return [
        ("POST", REGISTRATION_PATH, fs.registration.answer),
        ("POST", "/callback/ws/endpoint", fs.discovery),
        ("POST", "/open-apis/auth/v3/tenant_access_token/internal", fs.issue_token),
        ("GET", "/open-apis/bot/v3/info", lambda _: {"bot": fs.bot}),
        ("GET", "/open-apis/application/v6/scopes", data(fs.app.list_scopes)),
        ("GET", "/open-apis/application/v6/applications/me", data(fs.app.describe)),
        ("POST", f"{im}/messages", data(messages.create)),
        ("POST", f"{im}/messages/{{}}/reply", data(messages.reply)),
        ("PATCH", f"{im}/messages/{{}}", data(messages.patch)),
        ("PUT", f"{im}/messages/{{}}", data(messages.put)),
        ("DELETE", f"{im}/messages/{{}}", data(lambda _, mid: messages.delete(mid))),
        ("GET", f"{im}/messages/{{}}", data(lambda _, mid: messages.get(mid))),
        ("POST", f"{im}/messages/{{}}/reactions", data(messages.react)),
        (
            "DELETE",
            f"{im}/messages/{{}}/reactions/{{}}",
            data(lambda _, mid, rid: messages.unreact(mid, rid)),
        ),
        (
            "GET",
            f"{im}/messages/{{}}/resources/{{}}",
            lambda request, mid, key: media.resource(mid, key, request.query.get("type", "")),
        ),
        ("POST", f"{im}/images", data(media.upload_image)),
        ("GET", f"{im}/images/{{}}", lambda _, key: media.image(key)),
        ("POST", f"{im}/files", data(media.upload_file)),
        ("GET", f"{im}/chats/{{}}", data(lambda _, cid: messages.chat(cid))),
        ("GET", "/open-apis/contact/v3/users/{}", data(lambda _, uid: messages.person(uid))),
        ("POST", f"{kit}/id_convert", data(cards.convert)),
        ("POST", kit, data(cards.create)),
        ("PUT", f"{kit}/{{}}", data(cards.update)),
        ("PATCH", f"{kit}/{{}}/settings", data(cards.settings)),
        ("POST", f"{kit}/{{}}/batch_update", data(cards.batch)),
        ("POST", f"{kit}/{{}}/elements", data(cards.insert)),
        ("PUT", f"{kit}/{{}}/elements/{{}}/content", data(cards.content)),
        ("PUT", f"{kit}/{{}}/elements/{{}}", data(cards.element)),
        ("PATCH", f"{kit}/{{}}/elements/{{}}", data(cards.element)),
        ("DELETE", f"{kit}/{{}}/elements/{{}}", data(cards.element)),
        ("POST", "/open-apis/interactive/v1/card/update", data(fs.presses.delayed_update)),
        *bitable_routes(fs.bitable, data),
        *document_routes(fs.drive, data),
    ]
