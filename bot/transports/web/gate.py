"""Who may reach the web chat: the access rule, before any page or socket is touched."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.transports.web.hosts import HostRule, same_origin
from bot.transports.web.token import cookie_value, same

_COOKIE_AGE = 180 * 24 * 3600
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS = ("/healthz", "/static/")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with it browsers send `Origin: null` even to ourselves.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    EXCHANGE = "exchange"
    WRONG_HOST = "wrong_host"
    WRONG_ORIGIN = "wrong_origin"
    NO_TOKEN = "no_token"  # noqa: S105 - a verdict, not a password
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a verdict, not a password


class Gate:
    """Host is one of ours; Origin equals Host for whatever changes something and for sockets;
    the token comes as bearer, as cookie, or once in the address, where it is exchanged for the
    cookie. `deny` makes the page that says what is wrong."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        cookie: str,
        hosts: HostRule,
        deny: Callable[[Request, Verdict], Response],
    ) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie
        self._hosts = hosts
        self._deny = deny

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(Request(scope), receive, _hardened(send))

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._judge(HTTPConnection(scope), safe=False) is Verdict.PASS:
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, request: Request, receive: Receive, send: Send) -> None:
        verdict = self._judge(request, safe=request.method in _SAFE_METHODS)
        match verdict:
            case Verdict.PASS:
                await self._app(request.scope, receive, send)
            case Verdict.EXCHANGE:
                await self._exchange(request)(request.scope, receive, send)
            case _:
                await self._deny(request, verdict)(request.scope, receive, send)

    def _judge(self, asked: HTTPConnection, *, safe: bool) -> Verdict:
        host = asked.headers.get("host", "")
        if not self._hosts.allows(host):
            return Verdict.WRONG_HOST
        bearer = is_bearer(asked, self._token)
        origin = asked.headers.get("origin")
        if not safe and not (same_origin(origin, host) if origin is not None else bearer):
            # No browser sends neither: that is a program, and only its token is missing.
            is_program = origin is None and self._cookie not in asked.cookies
            return Verdict.NO_TOKEN if is_program else Verdict.WRONG_ORIGIN
        if bearer or asked.url.path.startswith(_OPEN_PATHS):
            return Verdict.PASS
        given = asked.query_params.get("token")
        if safe and given is not None:
            return Verdict.EXCHANGE if same(given, self._token) else Verdict.WRONG_TOKEN
        known = same(asked.cookies.get(self._cookie, ""), cookie_value(self._token))
        return Verdict.PASS if known else Verdict.NO_TOKEN

    def _exchange(self, request: Request) -> Response:
        """The same address without the token, so that no history or screenshot shows it."""
        rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
        path = "/" + request.url.path.lstrip("/")
        response = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, status_code=303)
        response.set_cookie(
            self._cookie,
            cookie_value(self._token),
            max_age=_COOKIE_AGE,
            httponly=True,
            # Strict would lose the cookie on links from a Telegram or Feishu card.
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        response.headers["cache-control"] = "no-store"
        return response


def is_bearer(asked: HTTPConnection, token: str) -> bool:
    scheme, _, given = asked.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and same(given.strip(), token)


def _hardened(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
