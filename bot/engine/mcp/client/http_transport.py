"""Connects the SDK's session to an MCP server at a URL, through a guarded HTTP client, and signs in
to it by OAuth, with tokens kept in a file. Imports the SDK, so it is imported on first use."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from bot.config.tls import tls_context
from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.server_config import CLIENT_NAME, McpError
from bot.engine.web import FetchRefused, WebFetcher, WebUrl, parse_url
from storage.data_directory import write_private_file

# --- the connection
# The host name is resolved and checked once, as for fetched pages; all messages go to that address,
# and redirects are not followed because headers may contain secrets.

MAX_RESPONSE_BYTES = 8_000_000
_MAX_STREAM_SECONDS = 600.0
_MAX_RESUMPTIONS = 20
"""Streams that are opened or resumed between two of our requests."""

CLOSED_MESSAGE = "Connection closed"
"""With the code CONNECTION_CLOSED it is the SDK's own error for a session that has ended. Servers
use the code alone for other things."""

_CONNECT_SECONDS = 30.0
_MAX_ERROR_CHARS = 300
_NOT_FOUND, _NOT_ALLOWED, _MOVED, _FAILED, _UNAUTHORIZED = 404, 405, 300, 400, 401
_FORBIDDEN = 403
_MAX_OTHER_SITES = 4
_MAX_SHOWN_SCOPE = 120
_MORE_RIGHTS = (
    "the server wants more rights for this ({scope}); an owner can grant them with /mcp login NAME"
)
_SCOPE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,1000}")
_SCOPE_FIELD = re.compile(r'(?:,\s*|(?<=\s))scope=(?:"[^"]*"|[^\s,]+)', re.IGNORECASE)


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], fetcher: WebFetcher, auth: httpx2.Auth | None = None
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Yield the streams of a session with the server at this URL. Raises McpError."""
    async with guarded_client(url, headers, fetcher, auth=auth) as (client, target):
        opened = streamable_http_client(
            target, http_client=client, max_sse_event_size=MAX_RESPONSE_BYTES
        )
        async with opened as streams:
            yield streams


@asynccontextmanager
async def guarded_client(
    url_text: str,
    headers: Mapping[str, str],
    fetcher: WebFetcher,
    *,
    auth: httpx2.Auth | None,
    shows_errors: bool = False,
    scope: str = "",
) -> AsyncGenerator[tuple[httpx2.AsyncClient, str], None]:
    """Yield a client for the server at this URL, and the URL as it is sent. With `auth`, hosts that
    sign people in are reached too; `shows_errors` passes on their error responses, and asks for
    these rights (`scope`) beside those that the server names. Raises McpError."""
    url = parse_url(url_text)
    if url is None:
        raise McpError("its address is no plain http or https URL")
    try:
        address, *_ = await fetcher.resolve_addresses(url)
    except FetchRefused as error:
        hint = "; SHIFTBOSS_FETCH_PRIVATE names the places of your own that may be reached"
        raise McpError(f"{error}{hint}") from error
    verify = await asyncio.to_thread(tls_context)
    transport = _GuardedTransport(
        url,
        address,
        partial(httpx2.AsyncHTTPTransport, verify=verify),
        fetcher=None if auth is None else fetcher,
        shows_errors=shows_errors,
        scope=scope,
        file=auth.context.storage if isinstance(auth, OAuthClientProvider) else None,
    )
    client = httpx2.AsyncClient(
        transport=transport,
        headers=dict(headers),
        auth=auth,
        trust_env=False,
        # Reading is limited by each request's own time.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
    )
    async with client:
        yield client, f"{url.scheme}://{url.site}{url.path}"


class _GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to the checked address, and limits what comes back.

    A failure becomes a JSON-RPC error for its own request, so that it does not end the session."""

    def __init__(
        self,
        url: WebUrl,
        address: str,
        create: Callable[[], httpx2.AsyncHTTPTransport],
        *,
        fetcher: WebFetcher | None,
        shows_errors: bool,
        scope: str,
        file: object,
    ) -> None:
        """`fetcher` checks the addresses of other hosts; without it none is reached. `file` keeps
        the rights that are missing, if it is a TokenFile."""
        self._url = url
        self._address = address
        self._create = create
        self._fetcher = fetcher
        self._shows_errors = shows_errors
        self._scope = scope
        self._file = file if isinstance(file, TokenFile) else None
        self._inner = create()
        self._others: dict[str, httpx2.AsyncHTTPTransport] = {}
        self._resumptions = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._is_elsewhere(request):
            return await self._send_elsewhere(request)
        if not self._is_wanted(request):
            return httpx2.Response(_NOT_ALLOWED, request=request)
        try:
            pinned = _pinned(request, self._url, self._address)
            response = await self._inner.handle_async_request(pinned)
        except httpx2.TransportError as error:
            return _error(request, f"{self._url.site}: {type(error).__name__}")
        try:
            return await self._limited(request, response)
        except httpx2.TransportError as error:
            return _error(request, str(error) or type(error).__name__)
        except BaseException:
            await response.aclose()
            raise

    async def aclose(self) -> None:
        for each in (self._inner, *self._others.values()):
            await each.aclose()

    def _is_elsewhere(self, request: httpx2.Request) -> bool:
        """Whether it is no message for the server: with another path, or to another host."""
        here = httpx2.URL(f"{self._url.scheme}://{self._url.site}{self._url.path}")
        return request.url != here

    async def _send_elsewhere(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a sign-in. Each host has connections of its own, so that none is
        reached under the certificate of another."""
        url = parse_url(str(request.url))
        is_plain = url is not None and url.scheme == "http" and self._url.scheme == "https"
        if self._fetcher is None or url is None or is_plain:
            raise httpx2.ConnectError("the server names an address that is not reached")
        try:
            address, *_ = await self._fetcher.resolve_addresses(url)
        except FetchRefused as error:
            raise httpx2.ConnectError(str(error)) from error
        site = f"{url.scheme}://{url.site}"
        if site not in self._others and len(self._others) >= _MAX_OTHER_SITES:
            raise httpx2.ConnectError("the server names too many addresses")
        inner = self._others.get(site) or self._others.setdefault(site, self._create())
        response = await inner.handle_async_request(_pinned(request, url, address))
        if (problem := _problem(response)) and not _MOVED <= response.status_code < _FAILED:
            await response.aclose()
            raise httpx2.ReadError(problem)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_LimitedStream(response),
            request=request,
        )

    def _is_wanted(self, request: httpx2.Request) -> bool:
        """Streams, of the server's own requests or resumed, are opened so often only."""
        if request.method != "GET":
            self._resumptions = 0
            return True
        self._resumptions += 1
        return self._resumptions <= _MAX_RESUMPTIONS

    async def _limited(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        if problem := _problem(response):
            await response.aclose()
            return _error(request, problem)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        stream = _LimitedStream(response)
        if kind == "text/event-stream" and response.status_code < _FAILED:
            return httpx2.Response(
                response.status_code, headers=response.headers, stream=stream, request=request
            )
        try:
            body = b"".join([chunk async for chunk in stream])
        finally:
            await response.aclose()
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            return _error(request, CLOSED_MESSAGE, CONNECTION_CLOSED)
        status = response.status_code
        if (missing := _missing_scope(response)) and (self._shows_errors or self._file is not None):
            # Who is signing in is not asked twice: the first call that needs more asks for it.
            if self._file is not None and not self._shows_errors:
                await self._file.want_scope(missing)
            return _error(request, _MORE_RIGHTS.format(scope=missing[:_MAX_SHOWN_SCOPE]))
        if status >= _FAILED and not self._shows_errors:
            if not _is_error_message(body):
                return _error(request, _describe_status(status))
            # In a run nobody can sign in, so no refusal starts that.
            status = 502
        headers = {
            name: data
            for name, data in response.headers.multi_items()
            if name.lower() not in {"content-length", "transfer-encoding"}
        }
        if status == _UNAUTHORIZED and self._scope:
            asked = union_scopes(extract_scope_from_www_auth(response), self._scope)
            told = headers.get("www-authenticate", "Bearer")
            headers["www-authenticate"] = _with_scope(told, asked or "")
        return httpx2.Response(status, headers=headers, content=body, request=request)


def _missing_scope(response: httpx2.Response) -> str:
    """The rights that a server asks for in the middle of a session."""
    error = extract_field_from_www_auth(response, "error")
    if response.status_code != _FORBIDDEN or error != "insufficient_scope":
        return ""
    scope = extract_scope_from_www_auth(response) or ""
    return scope if _SCOPE.fullmatch(scope) else ""


def _with_scope(challenge: str, scope: str) -> str:
    """The challenge of a server with these rights: the SDK asks for what stands there."""
    rest = _SCOPE_FIELD.sub("", challenge).rstrip(", ")
    return f'{rest}{"," if "=" in rest else ""} scope="{scope}"'


def _pinned(request: httpx2.Request, url: WebUrl, address: str) -> httpx2.Request:
    headers = httpx2.Headers(request.headers)
    headers["Host"] = url.site
    # Compressed responses could expand to any size.
    headers["Accept-Encoding"] = "identity"
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address, port=url.effective_port),
        headers=headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": url.host},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """A response's body, of limited size and time."""

    def __init__(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._deadline = time.monotonic() + _MAX_STREAM_SECONDS

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > MAX_RESPONSE_BYTES:
                raise httpx2.ReadError("the server's answer is too large")
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the server's answer does not end")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _problem(response: httpx2.Response) -> str:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        return "the server packs its answers, which was not asked for"
    if _MOVED <= response.status_code < _FAILED:
        return "the server sends us elsewhere, which is not followed"
    return ""


def _describe_status(status: int) -> str:
    hint = "; an owner can sign in with /mcp login NAME" if status == _UNAUTHORIZED else ""
    return f"the server answers with HTTP {status}{hint}"


def _is_error_message(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and isinstance(message.get("error"), dict)


def _error(request: httpx2.Request, text: str, code: int = INTERNAL_ERROR) -> httpx2.Response:
    """A response that the SDK passes on as the error of this request."""
    error = {"code": code, "message": text[:_MAX_ERROR_CHARS]}
    message = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(502, json=message, request=request)


# --- signing in, by the SDK's OAuth client

_MAX_SIGN_IN_ERROR_CHARS = 200
_REFUSED = (401, 403)
_REVOCATION_SECONDS = 15.0
_FILES_LOCK = threading.Lock()


_Model = TypeVar("_Model", bound=BaseModel)


class TokenFile:
    """One server's tokens and client; satisfies the SDK's `TokenStorage`. What was stored for
    another URL, or another client registered by hand, counts as absent."""

    def __init__(
        self,
        path: Path,
        server: McpServer,
        remember_secret: Callable[[str], None],
        on_missing_scope: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`remember_secret` is called with each token, `on_missing_scope` with the rights that
        calls were refused for, and the name of the sign-in that lacks them. Blocking."""
        self._remember_secret = remember_secret
        self._on_missing_scope = on_missing_scope
        self._path = path
        self._url = server.url
        self._oauth = server.oauth
        self._is_signing_in = False
        self.provider: OAuthClientProvider | None = None
        self._stored = self._read()
        self._remember_tokens()

    def _read(self) -> dict[str, Any]:
        try:
            stored = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        is_ours = isinstance(stored, dict) and self._owner.items() <= stored.items()
        return stored if is_ours else {}

    @property
    def _owner(self) -> Mapping[str, str]:
        client = self._oauth.get("client_id", "")
        return {"url": self._url, **({"client_id": client} if client else {})}

    @property
    def has_tokens(self) -> bool:
        return bool(self._stored.get("tokens"))

    @property
    def scope_to_ask(self) -> str:
        """The rights that a sign-in asks for beside those that the server names: those of the
        settings, and where some were missing, those too and what was granted before."""
        asked, missing = self._oauth.get("scope"), str(self._stored.get("wanted_scope", ""))
        tokens = _parse(OAuthToken, self._stored.get("tokens"))
        granted = tokens.scope if tokens and missing else None
        return union_scopes(union_scopes(asked, granted), missing) or ""

    async def want_scope(self, scope: str) -> None:
        """Keep the rights that were missing, for the next sign-in."""
        wanted = union_scopes(str(self._stored.get("wanted_scope", "")), scope) or ""
        if _SCOPE.fullmatch(wanted) and wanted != self._stored.get("wanted_scope"):
            await self._save({"wanted_scope": wanted})
        # Each time: the process may have ended between the two.
        stored = {key: str(self._stored.get(key, "")) for key in ("wanted_scope", "sign_in")}
        await self._on_missing_scope(stored["wanted_scope"], stored["sign_in"])

    def create_provider(
        self,
        redirect_uri: str = "http://127.0.0.1/",
        client_id: str = "",
        show: Callable[[str], Awaitable[None]] | None = None,
        wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> OAuthClientProvider:
        """Without `show` nobody is asked: it only uses and refreshes the tokens. With it they are
        not used: another person may sign in, or the same one with more rights. `client_id` is the
        address of our client's description, for servers that read it instead of registering us."""
        self._is_signing_in = show is not None
        provider = OAuthClientProvider(
            server_url=self._url,
            client_metadata=OAuthClientMetadata(
                client_name=CLIENT_NAME, redirect_uris=[AnyUrl(redirect_uri)]
            ),
            storage=self,
            redirect_handler=show,
            callback_handler=wait_for_code,
            client_metadata_url=client_id or None,
        )
        if not self._is_signing_in:
            # The SDK restores neither, and without them could not refresh after a restart.
            provider.context.token_expiry_time = self._stored.get("expires_at")
            provider.context.oauth_metadata = _parse(OAuthMetadata, self._stored.get("metadata"))
        self.provider = provider
        return provider

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._is_signing_in else _parse(OAuthToken, self._stored.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self.provider is not None
        known = self.provider.context
        metadata = known.oauth_metadata
        changes: dict[str, Any] = {
            "tokens": tokens.model_dump(mode="json"),
            "expires_at": known.token_expiry_time,
            "metadata": None if metadata is None else metadata.model_dump(mode="json"),
        }
        if self._is_signing_in:  # a refresh grants nothing new
            changes |= {"wanted_scope": "", "sign_in": secrets.token_hex(8)}
        await self._save(changes)
        self._remember_tokens()

    def _remember_tokens(self) -> None:
        tokens = _parse(OAuthToken, self._stored.get("tokens"))
        for each in (tokens.access_token, tokens.refresh_token) if tokens else ():
            if each:
                self._remember_secret(each)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if "client_id" not in self._oauth:
            return _parse(OAuthClientInformationFull, self._stored.get("client"))
        secret = self._oauth.get("client_secret")
        metadata = None if self.provider is None else self.provider.context.oauth_metadata
        known = (metadata and metadata.token_endpoint_auth_methods_supported) or ()
        # Basic is the default of RFC 8414.
        post = "client_secret_post" in known and "client_secret_basic" not in known
        method = "client_secret_post" if post else "client_secret_basic"
        return OAuthClientInformationFull(
            client_id=self._oauth["client_id"],
            client_secret=secret,
            redirect_uris=None,
            token_endpoint_auth_method=method if secret else "none",
        )

    async def settle_client(self) -> None:
        """Before the code is exchanged: how a client registered by hand says who it is depends on
        what the sign-in has found out about the server."""
        if "client_id" in self._oauth and self.provider is not None:
            self.provider.context.client_info = await self.get_client_info()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save({"client": client_info.model_dump(mode="json")})

    async def _save(self, changes: Mapping[str, Any]) -> None:
        """Other sessions with the server may have stored something since."""

        def write() -> None:
            with _FILES_LOCK:
                self._stored = {**self._read(), **changes, **self._owner}
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private_file(self._path, json.dumps(self._stored).encode())

        await asyncio.to_thread(write)


def _parse(kind: type[_Model], stored: object) -> _Model | None:
    try:
        return None if stored is None else kind.model_validate(stored)
    except ValidationError:
        return None


async def revoke(server: McpServer, file: TokenFile, fetcher: WebFetcher) -> bool:
    """Ask the authorization server to withdraw the tokens (RFC 7009); whether it has."""
    provider = file.create_provider()
    context, tokens = provider.context, await file.get_tokens()
    metadata = context.oauth_metadata
    if tokens is None or metadata is None or metadata.revocation_endpoint is None:
        return False
    context.client_info = client = await file.get_client_info()
    given = {"refresh_token": tokens.refresh_token, "access_token": tokens.access_token}
    try:
        async with (
            asyncio.timeout(_REVOCATION_SECONDS),
            guarded_client(server.url, {}, fetcher, auth=provider) as (http, _),
        ):
            for hint, token in given.items():
                if token:
                    form = {"token": token, "token_type_hint": hint}
                    form |= {"client_id": client.client_id} if client and client.client_id else {}
                    form, headers = context.prepare_token_auth(form, {})
                    response = await http.post(
                        str(metadata.revocation_endpoint),
                        data=form,
                        headers=headers,
                        auth=httpx2.Auth(),
                    )
                    if response.status_code >= _FAILED:
                        return False
    except (TimeoutError, OAuthFlowError, httpx2.HTTPError, McpError):
        return False
    return True


_FIRST_MESSAGES: Sequence[Mapping[str, Any]] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "shiftboss", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


async def sign_in(
    server: McpServer, provider: OAuthClientProvider, fetcher: WebFetcher, scope: str
) -> None:
    """Greet the server and ask for its tools: at one of both it asks for a sign-in. Raises
    McpError."""
    headers = {**server.headers, "Accept": "application/json, text/event-stream"}
    try:
        opened = guarded_client(
            server.url, headers, fetcher, auth=provider, shows_errors=True, scope=scope
        )
        refused = False
        async with opened as (client, target):
            for message in _FIRST_MESSAGES:
                async with client.stream("POST", target, json=message) as response:
                    refused = response.status_code in _REFUSED
                    session = response.headers.get("mcp-session-id")
                if refused or provider.context.current_tokens is not None:
                    break
                client.headers["mcp-protocol-version"] = LATEST_HANDSHAKE_VERSION
                if session is not None:
                    client.headers["mcp-session-id"] = session
    except (OAuthFlowError, httpx2.HTTPError, ValidationError, ValueError) as error:
        first_line = str(error).split("\n", 1)[0][:_MAX_SIGN_IN_ERROR_CHARS]
        raise McpError(first_line or type(error).__name__) from error
    if refused:
        raise McpError("the server refuses the sign-in")
