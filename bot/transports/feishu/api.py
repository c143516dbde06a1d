"""HTTP calls to the open platform over one shared client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from bot.transports.feishu.errors import HTTP_TOO_MANY, Broken, FeishuError, Kind
from bot.transports.feishu.tokens import TenantToken

_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - an address
_ERROR_BODY = 1024 * 1024
_T = TypeVar("_T")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A multipart form with one file in it."""

    fields: Mapping[str, str]
    name: str
    filename: str
    data: bytes = field(repr=False)


class FeishuApi:
    """`on_call` is told of every call that counts against the tenant's monthly quota."""

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
        self._token = TenantToken(self._fetch_token, now)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        upload: Upload | None = None,
        unseen: bool = False,
    ) -> dict[str, Any]:
        """The whole answer of a good call. Raises FeishuError or Broken. `unseen`: nobody sees
        what this call does, so it never matters whether a lost one arrived."""
        more: dict[str, Any] = {"params": params}
        if upload is not None:
            more["data"] = dict(upload.fields)
            more["files"] = {upload.name: (upload.filename, upload.data)}
        elif body is not None:
            more["json"] = body

        async def once(token: str) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            target = f"/open-apis{path}"
            return await self._exchange(method, target, unseen=unseen, headers=headers, **more)

        return await self._with_token(once)

    async def download(self, path: str, params: Mapping[str, str], limit: int) -> Download:
        """The bytes behind `path`; refuses what is larger than `limit`."""

        async def once(token: str) -> Download:
            return await self._stream(path, params, token, limit)

        return await self._with_token(once)

    async def discover(self) -> dict[str, Any]:
        """Where the long connection is to be made."""
        body = {"AppID": self._app_id, "AppSecret": self._app_secret}
        answer = await self._exchange(
            "POST", "/callback/ws/endpoint", unseen=True, json=body, headers={"locale": "zh"}
        )
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def is_me(self, sender: str) -> bool:
        """Messages of an app name it by its app id."""
        return sender == self._app_id

    async def bot_id(self) -> str:
        """The bot's own open id, by which mentions name it."""
        bot = (await self.call("GET", "/bot/v3/info")).get("bot")
        open_id = bot.get("open_id") if isinstance(bot, dict) else None
        if not isinstance(open_id, str) or not open_id:
            raise FeishuError(11205, "the app has no bot")
        return open_id

    async def _with_token(self, once: Callable[[str], Awaitable[_T]]) -> _T:
        """One more try with a fresh token where the first was refused."""
        self._on_call()
        token = await self._token.get()
        try:
            return await once(token)
        except FeishuError as error:
            if error.kind is not Kind.TOKEN:
                raise
        self._token.drop(token)
        self._on_call()
        return await once(await self._token.get())

    async def _fetch_token(self) -> tuple[str, float]:
        body = {"app_id": self._app_id, "app_secret": self._app_secret}
        answer = await self._exchange("POST", _TOKEN_PATH, unseen=True, json=body)
        try:
            return str(answer["tenant_access_token"]), float(answer["expire"])
        except (KeyError, TypeError, ValueError) as error:
            raise FeishuError(-1, "token answer without a token", status=502) from error

    async def _exchange(
        self, method: str, path: str, *, unseen: bool, **more: Any
    ) -> dict[str, Any]:
        try:
            response = await self._client.request(method, path, **more)
        except _UNSENT as error:
            raise Broken(_reason(error), sent=False) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Broken(_reason(error), sent=not unseen) from error
        return _read(response, response.content)

    async def _stream(
        self, path: str, params: Mapping[str, str], token: str, limit: int
    ) -> Download:
        headers = {"Authorization": f"Bearer {token}"}
        request = self._client.stream("GET", f"/open-apis{path}", params=params, headers=headers)
        data = bytearray()
        try:
            async with request as response:
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > (_ERROR_BODY if response.is_error else limit):
                        raise FeishuError(234037, f"larger than {limit} bytes")
        except httpx.HTTPError as error:
            raise Broken(_reason(error), sent=False) from error
        kind = response.headers.get("content-type", "")
        # A file that is JSON comes as an attachment; a refusal does not.
        attached = "content-disposition" in response.headers
        if response.is_error or ("json" in kind and not attached):
            _read(response, bytes(data))
        return Download(data=bytes(data), kind=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    data: bytes = field(repr=False)
    kind: str


def segment(value: str) -> str:
    """An id as one piece of a path, whatever is in it."""
    return quote(value, safe="")


def _read(response: httpx.Response, content: bytes) -> dict[str, Any]:
    """The envelope of an answer; a refusal, or an answer without one, is raised."""
    status = response.status_code
    log_id = response.headers.get("x-tt-logid", "")
    retry_after = _seconds(response.headers)
    try:
        body = json.loads(content)
        code = int(body["code"])
    except (ValueError, KeyError, TypeError) as error:
        bad = status if status == HTTP_TOO_MANY else max(status, 502)
        raise FeishuError(
            -1, "not an answer of the platform", status=bad, retry_after=retry_after
        ) from error
    if code != 0:
        msg = str(body.get("msg", ""))
        raise FeishuError(code, msg, status=status, retry_after=retry_after, log_id=log_id)
    return dict(body)


def _seconds(headers: httpx.Headers) -> float:
    for name in ("x-ogw-ratelimit-reset", "retry-after"):
        try:
            return max(0.0, float(headers.get(name, "")))
        except ValueError:
            continue
    return 0.0


def _reason(error: Exception) -> str:
    """The kind of trouble only: addresses and headers stay out of logs."""
    return type(error).__name__
