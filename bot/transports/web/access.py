"""Access control of the web chat: allowed hosts, same origin and token, checked before any page or
socket."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.transports.web.access_token import tokens_equal
from bot.transports.web.sessions import SESSION_LIFETIME, SIGN_IN_PATH, WebSessionService
from storage.errors import StorageError
from storage.records.people import WebVisitor

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - named to be recognised, not bound


def is_loopback(host: str) -> bool:
    address = _parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class AllowedHosts:
    """Host names that the web chat answers to; others are refused against DNS rebinding. When
    listening on all addresses, IP addresses are allowed as well."""

    def __init__(self, bound: str, *, public_url: str = "") -> None:
        public = urlsplit(public_url).hostname or ""
        self._names = {*_LOCAL_NAMES, bound.lower(), public} - {""}
        self._allow_any_address = bound in _ANY_ADDRESS

    def allows(self, header: str) -> bool:
        name = _host_name(header)
        is_address = _parse_address(name) is not None
        return name in self._names or (self._allow_any_address and is_address)


def get_browser_address(host: str, port: int) -> str:
    """URL for a browser on this machine."""
    shown = "127.0.0.1" if host in _ANY_ADDRESS else host
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def _host_name(header: str) -> str:
    """The host name; empty for anything but a name or an address, and a port, because URLs are made
    from it.
    """
    found = _HOST.fullmatch(header)
    return (found[1] or found[2]).lower() if found else ""


def _parse_address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


VISITOR = "visitor"
"""The key in the scope under which routes find who asks: a WebVisitor, or None for a program with
the token on a page of the web chat."""
_log = logging.getLogger(__name__)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS = (
    "/healthz", "/static/", f"{SIGN_IN_PATH}/", "/mcp/callback", "/mcp/client.json", "/hooks/",
)  # fmt: skip
_SHARED_PATHS = ("/dashboard/", "/api/v1/", "/metrics/", "/sign-out/")
"""Everything else is the local owner's chat."""
_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`, with which browsers send `Origin: null` even to the same origin.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


_FREE_FAILURES = 5
_MAX_WAIT = timedelta(seconds=30)
_FORGOTTEN_AFTER = timedelta(minutes=15)
_MAX_ADDRESSES = 1000
_FREE_FAILURES_OF_ALL = 60
_TOLD_AFTER = 5


@dataclass(kw_only=True, eq=False)
class LoginThrottle:
    """Slows down guesses of the token: per address, and over all addresses that never sent the
    right one. Nobody has to wait longer than 30 seconds, and attempts that are not checked do not
    lengthen the wait. `on_guessing` is called at the fifth failure and each later one, `on_failure`
    at each failure. Failures of other processes count too, through `note_failure`.
    """

    now: Callable[[], datetime]
    on_guessing: Callable[[str], None]
    on_failure: Callable[[str], None]
    _failures: OrderedDict[str, tuple[int, datetime]] = field(default_factory=OrderedDict)
    _known: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _of_all: tuple[int, datetime] | None = None

    def wait(self, address: str) -> timedelta:
        """Seconds until a token from this address is checked."""
        address = _network(address)
        own = self._remaining(self._failures.get(address), _FREE_FAILURES)
        if address in self._known:
            return own
        return max(own, self._remaining(self._of_all, _FREE_FAILURES_OF_ALL))

    def fail(self, address: str) -> None:
        self.note_failure(address)
        self.on_failure(address)
        if self._of_all is not None and self._of_all[0] >= _TOLD_AFTER:
            self.on_guessing(address)

    def note_failure(self, address: str) -> None:
        network, now = _network(address), self.now()
        self._failures[network] = self._count(self._failures.pop(network, None)), now
        self._of_all = self._count(self._of_all), now
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def succeed(self, address: str) -> None:
        network = _network(address)
        self._failures.pop(network, None)
        self._known[network] = None
        if len(self._known) > _MAX_ADDRESSES:
            self._known.popitem(last=False)

    def _count(self, before: tuple[int, datetime] | None) -> int:
        recent = before is not None and self.now() - before[1] < _FORGOTTEN_AFTER
        return before[0] + 1 if before is not None and recent else 1

    def _remaining(self, failed: tuple[int, datetime] | None, free: int) -> timedelta:
        if failed is None or failed[0] < free:
            return timedelta()
        pause = min(_MAX_WAIT, timedelta(seconds=2 ** min(10, failed[0] - free)))
        return max(timedelta(), failed[1] + pause - self.now())


def _network(address: str) -> str:
    """The network of an address: one person has a whole /64 of IPv6 addresses."""
    parsed = _parse_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return address


class AccessVerdict(StrEnum):
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    EXCHANGE = "exchange"
    WRONG_HOST = "wrong_host"
    WRONG_ORIGIN = "wrong_origin"
    NO_TOKEN = "no_token"  # noqa: S105 - a verdict, not a password
    UNAVAILABLE = "unavailable"
    TOO_MANY_GUESSES = "too_many_guesses"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a verdict, not a password
    OTHERS_CHAT = "others_chat"


@dataclass(eq=False)
class WebAccessControl:
    """Middleware that checks access. Host must be allowed; Origin must match Host for sockets and
    changes. The token is accepted as a bearer header, or once in the URL, where it is exchanged for
    the cookie of a new session. People's own tokens, and the sessions of other owners, are valid on
    shared paths only. `deny` renders the error page; `throttle` slows down guessing.
    """

    app: ASGIApp
    token: str = field(repr=False)
    cookie: str
    sessions: WebSessionService
    hosts: AllowedHosts
    deny_response: Callable[[Request, AccessVerdict], Awaitable[Response]]
    throttle: LoginThrottle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            verdict = await self._evaluate(HTTPConnection(scope), safe=False)
            if verdict is AccessVerdict.PASS:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._handle_http(Request(scope), receive, _with_security_headers(send))

    async def _handle_http(self, request: Request, receive: Receive, send: Send) -> None:
        verdict = await self._evaluate(request, safe=request.method in _SAFE_METHODS)
        match verdict:
            case AccessVerdict.PASS:
                await self.app(request.scope, receive, send)
            case AccessVerdict.EXCHANGE:
                response = await self._exchange_token(request)
                await response(request.scope, receive, send)
            case _:
                response = await self.deny_response(request, verdict)
                await response(request.scope, receive, send)

    async def _evaluate(self, connection: HTTPConnection, *, safe: bool) -> AccessVerdict:
        """Check the request. Tokens are not even compared while their address has to wait; a cookie
        cannot be guessed and needs no wait.
        """
        if not _carries_token(connection):
            return await self._check(connection, safe=safe)
        address = connection.client.host if connection.client else ""
        if self.throttle.wait(address):
            return AccessVerdict.TOO_MANY_GUESSES
        verdict = await self._check(connection, safe=safe)
        given = connection.query_params.get("token")
        known = has_bearer_token(connection, self.token) or _is_program(connection)
        if known or verdict is AccessVerdict.EXCHANGE:
            self.throttle.succeed(address)
        elif given is None or not tokens_equal(given, self.token):
            self.throttle.fail(address)
        return verdict

    async def _check(self, connection: HTTPConnection, *, safe: bool) -> AccessVerdict:
        host = connection.headers.get("host", "")
        if not self.hosts.allows(host):
            return AccessVerdict.WRONG_HOST
        try:
            return await self._check_visitor(connection, host, safe=safe)
        except StorageError:
            _log.exception("cannot look up who asks for a page")
            return AccessVerdict.UNAVAILABLE

    async def _check_visitor(
        self, connection: HTTPConnection, host: str, *, safe: bool
    ) -> AccessVerdict:
        path = f"{connection.scope['path'].rstrip('/')}/"
        shared = path.startswith(_SHARED_PATHS)
        is_local = has_bearer_token(connection, self.token)
        program = await self._find_program(connection, is_local=is_local, shared=shared)
        bearer = is_local or program is not None
        origin = connection.headers.get("origin")
        # The secret in the address of a link or a webhook is known to no other site.
        trusted = bearer or path.startswith((f"{SIGN_IN_PATH}/", "/hooks/"))
        if not safe and not (same_origin(origin, host) if origin is not None else trusted):
            # Browsers send at least one of both headers: this is a program without a token.
            is_program = origin is None and self.cookie not in connection.cookies
            return AccessVerdict.NO_TOKEN if is_program else AccessVerdict.WRONG_ORIGIN
        connection.scope[VISITOR] = program
        if is_local or (shared and bearer) or path.startswith(_OPEN_PATHS):
            return AccessVerdict.PASS
        if bearer:
            return AccessVerdict.OTHERS_CHAT
        given = connection.query_params.get("token")
        if safe and given is not None:
            return (
                AccessVerdict.EXCHANGE
                if tokens_equal(given, self.token)
                else AccessVerdict.WRONG_TOKEN
            )
        visitor = await self.sessions.find_by_cookie(connection.cookies.get(self.cookie, ""))
        connection.scope[VISITOR] = visitor
        if visitor is None:
            return AccessVerdict.NO_TOKEN
        return AccessVerdict.PASS if shared or visitor.is_local else AccessVerdict.OTHERS_CHAT

    async def _find_program(
        self, connection: HTTPConnection, *, is_local: bool, shared: bool
    ) -> WebVisitor | None:
        if is_local:
            return await self.sessions.get_local_visitor() if shared else None
        return await self.sessions.find_by_token(get_bearer_token(connection))

    async def _exchange_token(self, request: Request) -> Response:
        """Redirect to the URL without the token, so that no history or screenshot shows it. A
        cookie that came along is never taken over: its session ends."""
        try:
            cookie = await self.sessions.open(
                request.headers.get("user-agent", ""),
                replaced=request.cookies.get(self.cookie, ""),
            )
        except StorageError:
            _log.exception("cannot store the session of a browser")
            return await self.deny_response(request, AccessVerdict.UNAVAILABLE)
        rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
        path = "/" + request.url.path.lstrip("/")
        target = f"{path}?{urlencode(rest)}" if rest else path
        return redirect_with_cookie(request, target, self.cookie, cookie)


def redirect_with_cookie(request: Request, target: str, name: str, cookie: str) -> Response:
    response = RedirectResponse(target, status_code=303)
    response.set_cookie(
        name,
        cookie,
        max_age=int(SESSION_LIFETIME.total_seconds()),
        httponly=True,
        # `Strict` would omit the cookie on links from Telegram or Feishu.
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    response.headers["cache-control"] = "no-store"
    return response


def get_session_id(connection: HTTPConnection) -> str:
    """The id of the browser session of this request; empty for a program with a token."""
    visitor: WebVisitor | None = connection.scope.get(VISITOR)
    return visitor.session_id if visitor else ""


def _is_program(connection: HTTPConnection) -> bool:
    """Whether the request carries a valid token of a person."""
    visitor: WebVisitor | None = connection.scope.get(VISITOR)
    return visitor is not None and not visitor.session_id


def _carries_token(connection: HTTPConnection) -> bool:
    return "authorization" in connection.headers or "token" in connection.query_params


def has_bearer_token(connection: HTTPConnection, token: str) -> bool:
    given = get_bearer_token(connection)
    return bool(given) and tokens_equal(given, token)


def get_bearer_token(connection: HTTPConnection) -> str:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _with_security_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
