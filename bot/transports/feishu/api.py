"""Client of the Feishu open platform: HTTP calls, tenant access token and error mapping."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from bot.config.server_dates import note_response
from bot.config.tls import context_for
from bot.transports import ports

log = logging.getLogger(__name__)

_INNER_CODE = re.compile(r"ErrCode:\s*(\d+)")
_CARD_CODES = range(200200, 201000)
HTTP_TOO_MANY_REQUESTS = 429
_HTTP_SERVER_ERROR = 500
_QUOTA_PAUSE = 3600.0


class FeishuErrorKind(StrEnum):
    """Classes of error codes by the required response, see `translate_error`."""

    TOKEN = "token"  # noqa: S105 - a kind of error
    CREDENTIALS = "credentials"
    RATE = "rate"
    CHANNEL_RATE = "channel_rate"
    QUOTA = "quota"
    SCOPE = "scope"
    CLOSED = "closed"
    GONE = "gone"
    NO_TOPICS = "no_topics"
    NO_EDIT = "no_edit"
    CARD = "card"
    LARGE_FILE = "large_file"
    BAD_FILE = "bad_file"
    INTERACTING = "interacting"
    SEQUENCE = "sequence"
    STREAM_CLOSED = "stream_closed"
    SERVER = "server"
    OTHER = "other"


ERROR_KINDS: dict[int, FeishuErrorKind] = {
    **dict.fromkeys(
        (99991661, 99991663, 99991664, 99991665, 99991668, 99991671), FeishuErrorKind.TOKEN
    ),
    **dict.fromkeys((10003, 10014, 1000040344, 514), FeishuErrorKind.CREDENTIALS),
    230020: FeishuErrorKind.RATE,
    11232: FeishuErrorKind.CHANNEL_RATE,
    99991400: FeishuErrorKind.CHANNEL_RATE,
    99991403: FeishuErrorKind.QUOTA,
    **dict.fromkeys((99991672, 99991679, 230027), FeishuErrorKind.SCOPE),
    **dict.fromkeys((230002, 230006, 230013, 230034, 230035, 230053), FeishuErrorKind.CLOSED),
    **dict.fromkeys((232006, 232009, 232010), FeishuErrorKind.CLOSED),
    **dict.fromkeys((230011, 230110, 230031, 231003, 300313, 200750), FeishuErrorKind.GONE),
    230071: FeishuErrorKind.NO_TOPICS,
    **dict.fromkeys((230054, 230072, 230075), FeishuErrorKind.NO_EDIT),
    **dict.fromkeys((230025, 230099, 11310, 100290), FeishuErrorKind.CARD),
    **dict.fromkeys((300301, 300302, 300305, 300315), FeishuErrorKind.CARD),
    **dict.fromkeys((234006, 234037), FeishuErrorKind.LARGE_FILE),
    **dict.fromkeys((234001, 234003, 234010, 234011, 234043, 230055), FeishuErrorKind.BAD_FILE),
    200810: FeishuErrorKind.INTERACTING,
    300317: FeishuErrorKind.SEQUENCE,
    **dict.fromkeys((200850, 300309), FeishuErrorKind.STREAM_CLOSED),
}


class FeishuError(Exception):
    """The platform refused the request. The text contains code and log ID, never what was sent."""

    def __init__(
        self, code: int, msg: str, *, status: int = 200, retry_after: float = 0.0, log_id: str = ""
    ) -> None:
        self.code = code
        self.msg = msg
        self.status = status
        self.retry_after = retry_after
        super().__init__(f"{code} (HTTP {status}, log {log_id or '-'}): {msg[:300]}")

    @property
    def inner_code(self) -> int:
        """The error code inside the message, if there is one."""
        found = _INNER_CODE.search(self.msg)
        return int(found.group(1)) if found else self.code

    @property
    def kind(self) -> FeishuErrorKind:
        if self.code in ERROR_KINDS:
            return ERROR_KINDS[self.code]
        if self.status == HTTP_TOO_MANY_REQUESTS:
            return FeishuErrorKind.CHANNEL_RATE
        if self.code in _CARD_CODES:
            return FeishuErrorKind.CARD
        return (
            FeishuErrorKind.SERVER if self.status >= _HTTP_SERVER_ERROR else FeishuErrorKind.OTHER
        )


class FeishuConnectionError(Exception):
    """No response. `may_have_arrived` means that the request may have been executed."""

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        self.may_have_arrived = may_have_arrived
        super().__init__(reason)


def translate_error(  # noqa: PLR0911 - one answer for each kind
    error: FeishuError | FeishuConnectionError, *, repeatable: bool = False
) -> ports.DeliveryError:
    """Map to a DeliveryError. `repeatable` means that repeating the call has no visible effect."""
    if isinstance(error, FeishuConnectionError):
        return (
            ports.DeliveryUncertain(str(error))
            if error.may_have_arrived and not repeatable
            else ports.PlatformUnavailable(str(error))
        )
    match error.kind:
        case FeishuErrorKind.RATE:
            return ports.DeliveryRateLimited(error.retry_after or 0.5)
        case FeishuErrorKind.CHANNEL_RATE:
            return ports.DeliveryRateLimited(error.retry_after or 1.0, whole_channel=True)
        case FeishuErrorKind.QUOTA:
            return ports.DeliveryRateLimited(_QUOTA_PAUSE, whole_channel=True)
        case FeishuErrorKind.INTERACTING:
            return ports.DeliveryRateLimited(1.0)
        case FeishuErrorKind.CLOSED:
            return ports.ChatUnreachable(str(error))
        case FeishuErrorKind.LARGE_FILE:
            return ports.FileTooLarge(str(error))
        case (
            FeishuErrorKind.TOKEN
            | FeishuErrorKind.CREDENTIALS
            | FeishuErrorKind.SCOPE
            | FeishuErrorKind.SERVER
            | FeishuErrorKind.SEQUENCE
        ):
            return ports.PlatformUnavailable(str(error))
        case _:
            return ports.ContentRefused(str(error))


# The platform issues a new token only within the last thirty minutes of the old one.
_RENEW_MARGIN = 1200.0
_RENEW_MARGIN_SHARE = 0.25


class FeishuTenantToken:
    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[str, float]]], now: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = 0.0
        self._expires_at = 0.0

    async def get(self) -> str:
        """A valid token; concurrent callers share one request."""
        if not self._token or self._now() >= self._renew_at:
            async with self._lock:
                if not self._token or self._now() >= self._renew_at:
                    await self._renew()
        return self._token

    def invalidate(self, token: str) -> None:
        """Drop a refused token; the next `get` requests another."""
        if token == self._token:
            self._token = ""

    async def _renew(self) -> None:
        asked = self._now()
        try:
            token, lives = await self._fetch()
        except (FeishuError, FeishuConnectionError):
            # The old token is valid until it expires, so a failed renewal can wait.
            if self._token and self._now() < self._expires_at:
                return
            raise
        self._token = token
        self._expires_at = asked + lives
        self._renew_at = self._expires_at - min(_RENEW_MARGIN, lives * _RENEW_MARGIN_SHARE)


_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - an address
_MAX_ERROR_BODY = 1024 * 1024
_T = TypeVar("_T")
_NOT_SENT_ERRORS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuUpload:
    """A multipart form with one file."""

    fields: Mapping[str, str]
    name: str
    filename: str
    data: bytes = field(repr=False)


class FeishuApi:
    """`on_call` is called for every request that counts against the tenant's monthly quota."""

    def __init__(
        self,
        *,
        client: httpx.AsyncClient,
        app_id: str,
        app_secret: str,
        now: Callable[[], float],
        on_call: Callable[[], None],
    ) -> None:
        self._client = client
        self._app_id = app_id
        self._app_secret = app_secret
        self._on_call = on_call
        self._token = FeishuTenantToken(self._fetch_token, now)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        upload: FeishuUpload | None = None,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        """Call the API and return the whole response. Raises FeishuError or FeishuConnectionError.
        With `repeatable`, it does not matter whether a failed request was executed."""
        more: dict[str, Any] = {"params": params}
        if upload is not None:
            more["data"] = dict(upload.fields)
            more["files"] = {upload.name: (upload.filename, upload.data)}
        elif body is not None:
            more["json"] = body

        async def once(token: str) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            target = f"/open-apis{path}"
            return await self._exchange(
                method, target, repeatable=repeatable, headers=headers, **more
            )

        return await self._call_with_token(once)

    async def download(self, path: str, params: Mapping[str, str], limit: int) -> FeishuDownload:
        """Download at most `limit` bytes."""

        async def once(token: str) -> FeishuDownload:
            return await self._stream(path, params, token, limit)

        return await self._call_with_token(once)

    async def discover_endpoint(self) -> dict[str, Any]:
        """Endpoint of the long connection."""
        body = {"AppID": self._app_id, "AppSecret": self._app_secret}
        answer = await self._exchange(
            "POST", "/callback/ws/endpoint", repeatable=True, json=body, headers={"locale": "zh"}
        )
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def is_own_app(self, sender: str) -> bool:
        """Whether the app ID of a message is ours; messages of apps carry it."""
        return sender == self._app_id

    async def fetch_bot(self) -> FeishuBot:
        bot = (await self.call("GET", "/bot/v3/info")).get("bot")
        open_id = bot.get("open_id") if isinstance(bot, dict) else None
        if not isinstance(bot, dict) or not isinstance(open_id, str) or not open_id:
            raise FeishuError(11205, "the app has no bot")
        return FeishuBot(open_id=open_id, name=str(bot.get("app_name") or ""))

    async def _call_with_token(self, once: Callable[[str], Awaitable[_T]]) -> _T:
        """Retry once with a new token if the first one is refused."""
        self._on_call()
        token = await self._token.get()
        try:
            return await once(token)
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.TOKEN:
                raise
        self._token.invalidate(token)
        self._on_call()
        return await once(await self._token.get())

    async def _fetch_token(self) -> tuple[str, float]:
        body = {"app_id": self._app_id, "app_secret": self._app_secret}
        answer = await self._exchange("POST", _TOKEN_PATH, repeatable=True, json=body)
        try:
            return str(answer["tenant_access_token"]), float(answer["expire"])
        except (KeyError, TypeError, ValueError) as error:
            raise FeishuError(-1, "token answer without a token", status=502) from error

    async def _exchange(
        self, method: str, path: str, *, repeatable: bool, **more: Any
    ) -> dict[str, Any]:
        try:
            response = await self._client.request(method, path, **more)
        except _NOT_SENT_ERRORS as error:
            raise FeishuConnectionError(_error_type(error), may_have_arrived=False) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FeishuConnectionError(
                _error_type(error), may_have_arrived=not repeatable
            ) from error
        return _parse_response(response, response.content)

    async def _stream(
        self, path: str, params: Mapping[str, str], token: str, limit: int
    ) -> FeishuDownload:
        headers = {"Authorization": f"Bearer {token}"}
        request = self._client.stream("GET", f"/open-apis{path}", params=params, headers=headers)
        data = bytearray()
        try:
            async with request as response:
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > (_MAX_ERROR_BODY if response.is_error else limit):
                        raise FeishuError(234037, f"larger than {limit} bytes")
        except httpx.HTTPError as error:
            raise FeishuConnectionError(_error_type(error), may_have_arrived=False) from error
        kind = response.headers.get("content-type", "")
        # A JSON file has an attachment header, an error response has not.
        attached = "content-disposition" in response.headers
        if response.is_error or ("json" in kind and not attached):
            _parse_response(response, bytes(data))
        return FeishuDownload(data=bytes(data), content_type=kind)


async def call_with_retries(
    call: Callable[[], Awaitable[dict[str, Any]]],
    *,
    delays: Sequence[float],
    may_retry: Callable[[FeishuError, float], bool],
    sleep: Callable[[float], Awaitable[None]],
    jitter: Callable[[], float] = lambda: 0.0,
) -> dict[str, Any]:
    """The `data` of the answer. A refused call is repeated after each of `delays`, in seconds, or
    after a longer time that the platform names. `may_retry` receives the refusal and this time;
    `jitter` is the share by which it is longer. Raises what the last `call` raises.
    """
    for delay in (*delays, None):
        try:
            answer = await call()
        except FeishuError as error:
            if delay is None:
                raise
            wait = max(error.retry_after, delay)
            if not may_retry(error, wait):
                raise
            wait *= 1 + jitter()
            log.info("feishu: refused (%d), next try in %.1f s", error.code, wait)
            await sleep(wait)
        else:
            data = answer.get("data")
            return data if isinstance(data, dict) else {}
    raise AssertionError("the last try raises")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuBot:
    """Mentions refer to its `open_id`."""

    open_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuDownload:
    data: bytes = field(repr=False)
    content_type: str


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine, so that no proxy can reach it."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def path_segment(value: str) -> str:
    """An ID, escaped as one path segment."""
    return quote(value, safe="")


def _parse_response(response: httpx.Response, content: bytes) -> dict[str, Any]:
    """The response's JSON. Raises on errors and invalid responses."""
    status = response.status_code
    log_id = response.headers.get("x-tt-logid", "")
    retry_after = _retry_after(response.headers)
    try:
        body = json.loads(content)
        code = int(body["code"])
    except (ValueError, KeyError, TypeError) as error:
        bad = status if status == HTTP_TOO_MANY_REQUESTS else max(status, 502)
        raise FeishuError(
            -1, "not an answer of the platform", status=bad, retry_after=retry_after
        ) from error
    if code != 0:
        msg = str(body.get("msg", ""))
        raise FeishuError(code, msg, status=status, retry_after=retry_after, log_id=log_id)
    return dict(body)


def _retry_after(headers: httpx.Headers) -> float:
    for name in ("x-ogw-ratelimit-reset", "retry-after"):
        try:
            return max(0.0, float(headers.get(name, "")))
        except ValueError:
            continue
    return 0.0


def _error_type(error: Exception) -> str:
    """The type of the error only, because addresses and headers must not be logged."""
    return type(error).__name__


_HTTP_TIMEOUT = httpx.Timeout(20.0, connect=8.0)


def build_http_client(domain: str) -> httpx.AsyncClient:
    """One client for all requests, using the environment's proxy except for local addresses."""
    trust_env = not is_loopback(domain)
    build = partial(
        httpx.AsyncClient,
        base_url=domain.rstrip("/"),
        timeout=_HTTP_TIMEOUT,
        verify=context_for(domain),
        event_hooks={"response": [note_response]},
    )
    try:
        return build(trust_env=trust_env)
    except (ImportError, ValueError) as error:
        log.warning("feishu: the proxy of the environment cannot be used: %s", error)
        return build(trust_env=False)
