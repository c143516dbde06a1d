"""Pages of the web chat: the chat, the access error page and static files."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from bot.transports.ports import CommandMenu
from bot.transports.web.access import AccessVerdict
from bot.transports.web.files import MAX_FILE_BYTES
from bot.transports.web.frames import MAX_FILES, MAX_TEXT
from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language, WebLink

if TYPE_CHECKING:
    from jinja2 import Environment

LANGUAGE_COOKIE = "shiftboss_lang"


def negotiate_language(connection: HTTPConnection, default: Language | None) -> Language:
    """Language in the order: the page's URL (`?language=`), the person's choice, the configured
    one, the browser's preference, English."""
    shown = Language.from_tag(connection.query_params.get("language", ""))
    if shown:
        return shown
    switched = Language.from_tag(connection.cookies.get(LANGUAGE_COOKIE, ""))
    return switched or default or _accepted_language(connection.headers.get("accept-language", ""))


def _accepted_language(header: str) -> Language:
    wishes = sorted(map(_parse_preference, header.split(",")[:20]), key=lambda wish: -wish[0])
    found = (Language.from_tag(tag) for _weight, tag in wishes)
    return next((language for language in found if language), Language.ENGLISH)


def _parse_preference(part: str) -> tuple[float, str]:
    tag, _, weight = part.partition(";")
    try:
        return float(weight.strip().removeprefix("q=") or 1), tag
    except ValueError:
        return 0.0, tag


_TYPES = {"app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}
_TEMPLATES = ("bare.html", "chat.html", "denied.html", "sign_in.html")
_log = logging.getLogger(__name__)
_API_PATHS = ("/api/v1/", "/metrics")
# Texts that app.js uses; the others are part of the page.
_SCRIPT_TEXTS = (
    *("online", "connecting", "reconnecting", "working", "sending", "waiting_to_send"),
    *("try_again", "too_long", "too_large", "upload_failed", "empty_file", "remove"),
    *("copy", "copied", "replying_to", "you"),
)
_CACHE_FOREVER = "public, max-age=31536000, immutable"
_NO_STORE = "no-store"


class WebPages:
    """`default_language` is the configured language, None to follow the browser."""

    def __init__(
        self,
        menu: CommandMenu,
        default_language: Language | None,
        *,
        leases: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._menu = menu
        self._default_language = default_language
        self._leases = leases

    @staticmethod
    def version() -> str:
        """A version that changes with the static files, so that browsers can cache them forever."""
        return _version()

    @staticmethod
    def preload() -> None:
        """Load the texts of all languages, so that no request waits for the disk."""
        for language in Language:
            catalog_for(language)

    async def chat(self, request: Request) -> Response:
        words = self.words(request)
        page = await _template("chat.html", words, boot=self._boot_data(words))
        return HTMLResponse(page, headers={"cache-control": _NO_STORE})

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            return PlainTextResponse(self.words(request)("web.no_such_page"), status_code=404)
        headers = {"cache-control": _CACHE_FOREVER if "v" in request.query_params else "no-cache"}
        headers["vary"] = "accept-encoding"
        read = _static
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"], read = "gzip", _zipped
        content = await asyncio.to_thread(read, name)
        return Response(content, media_type=_TYPES[name], headers=headers)

    async def health(self, _request: Request) -> Response:
        """The health of this process, with its own part where several share the store."""
        leases = {} if self._leases is None else {"leases": list(self._leases())}
        return JSONResponse({"ok": True, **leases})

    async def not_found(self, request: Request, _problem: Exception) -> Response:
        return PlainTextResponse(self.words(request)("web.no_such_page"), status_code=404)

    async def server_error(self, request: Request, _problem: Exception) -> Response:
        """The page for an internal error; the server logs the traceback."""
        text = self.words(request)("web.broken")
        return JSONResponse({"error": text}, status_code=500)

    async def store_unavailable(self, request: Request, problem: Exception) -> Response:
        """The page for a store that does not answer; the visitor may try again."""
        _log.warning("%s could not be answered: %s", request.url.path, problem)
        text = self.words(request)("web.store_away")
        if request.method != "GET" or request.url.path.startswith("/api/"):
            return _problem("store_away", HTTPStatus.SERVICE_UNAVAILABLE, text)
        return PlainTextResponse(text, status_code=HTTPStatus.SERVICE_UNAVAILABLE)

    async def deny_response(self, request: Request, verdict: AccessVerdict) -> Response:
        words, path = self.words(request), request.url.path
        status, key = _DENIED.get(verdict, (401, "needs_token"))
        headers = {"cache-control": _NO_STORE, **_DENIED_HEADERS.get(status, {})}
        text = words(f"web.{key}", host=repr(request.headers.get("host", ""))[:80])
        if path.startswith(_API_PATHS):
            return _problem(key, status, text, headers)
        if verdict is AccessVerdict.OTHERS_CHAT and path == "/":
            return RedirectResponse("/dashboard", status_code=303, headers=headers)
        if verdict in _DENIED or request.method != "GET" or path.startswith("/api/"):
            return PlainTextResponse(text, status_code=status, headers=headers)
        page = await _template("denied.html", words, wrong=verdict is AccessVerdict.WRONG_TOKEN)
        return HTMLResponse(page, status_code=status, headers={"cache-control": _NO_STORE})

    async def link_page(
        self, request: Request, link: WebLink | None, *, token: str = "", status: int = 200
    ) -> Response:
        """The page of a link that works once: its purpose with a button that uses it, and
        afterwards the `token` that it made. None: the link no longer works.
        """
        facts = {"link": link, "token": token}
        page = await _template("sign_in.html", self.words(request), **facts)
        return HTMLResponse(page, status_code=status, headers={"cache-control": _NO_STORE})

    def words(self, request: Request) -> TextCatalog:
        return catalog_for(negotiate_language(request, self._default_language))

    def _boot_data(self, words: TextCatalog) -> Mapping[str, object]:
        return {
            "language": words.language,
            "menu": [{"name": name, "help": text} for name, text in self._menu(words.language)],
            # The page fills in the placeholders.
            "words": {
                key: words(f"web.{key}", limit="{limit}", name="{name}", text="{text}")
                for key in _SCRIPT_TEXTS
            },
            "limits": {"text": MAX_TEXT, "bytes": MAX_FILE_BYTES, "files": MAX_FILES},
        }


_DENIED: Mapping[AccessVerdict, tuple[int, str]] = {
    AccessVerdict.WRONG_HOST: (403, "wrong_host"),
    AccessVerdict.WRONG_ORIGIN: (403, "wrong_origin"),
    AccessVerdict.OTHERS_CHAT: (403, "others_chat"),
    AccessVerdict.TOO_MANY_GUESSES: (429, "too_many_guesses"),
    AccessVerdict.UNAVAILABLE: (503, "broken"),
}


_DENIED_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "30"},
}


async def _template(name: str, words: TextCatalog, **facts: object) -> str:
    # In a thread, because the first page loads the template engine and the files.
    return await asyncio.to_thread(_render, name, words, facts)


def _render(name: str, words: TextCatalog, facts: Mapping[str, object]) -> str:
    page = _environment().get_template(name)
    return page.render(words=words, version=WebPages.version(), **facts)


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    from cards.render.web import render_markdown

    folder = files("bot.transports.web").joinpath("templates")
    sources = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in _TEMPLATES}
    environment = Environment(
        loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    environment.filters["markdown"] = lambda text: Markup(render_markdown(text))  # noqa: S704 - safe HTML by contract
    return environment


@cache
def _static(name: str) -> bytes:
    return files("bot.transports.web").joinpath("static", name).read_bytes()


@cache
def _zipped(name: str) -> bytes:
    return gzip.compress(_static(name))


@cache
def _version() -> str:
    return hashlib.sha256(b"".join(map(_static, _TYPES))).hexdigest()[:10]


def _problem(
    key: str, status: int, text: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The error as RFC 9457 says, like all other answers of the API."""
    problem = {
        "type": f"urn:shiftboss:problem:{key.replace('_', '-')}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": text,
    }
    media = "application/problem+json"
    return JSONResponse(problem, status_code=status, headers=headers, media_type=media)
