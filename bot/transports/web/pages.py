"""The pages of the web chat: the chat itself, what is said to those without a key, static files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from bot.transports.base import Menu
from bot.transports.web.files import LARGEST
from bot.transports.web.gate import Verdict
from bot.transports.web.language import language_of
from bot.transports.web.wire import LONGEST_TEXT, MOST_FILES
from cards.render.web import render_markdown
from cards.words import Words, words_for
from storage.records.people import Language

_TYPES = {"app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}
_TEMPLATES = ("chat.html", "denied.html")
# What app.js says by itself; the rest is in the page already.
_SPOKEN = (
    *("online", "connecting", "reconnecting", "working", "sending", "waiting_to_send"),
    *("try_again", "too_long", "too_large", "upload_failed", "empty_file", "remove"),
    *("copy", "copied", "replying_to", "you"),
)
_FOR_EVER = "public, max-age=31536000, immutable"
_UNSEEN = "no-store"


class Pages:
    """`usual` is the language the settings ask for, None to follow the browser."""

    def __init__(self, menu: Menu, usual: Language | None) -> None:
        self._menu = menu
        self._usual = usual

    @staticmethod
    def prepare() -> None:
        """Read what pages are made of, so that no request waits for the disk."""
        _version()
        _environment()
        render_markdown("")
        for language in Language:
            words_for(language)

    async def chat(self, request: Request) -> Response:
        words = self.words(request)
        page = _template("chat.html", words, boot=self._boot(words))
        return HTMLResponse(page, headers={"cache-control": _UNSEEN})

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            return PlainTextResponse(self.words(request)("web.no_such_page"), status_code=404)
        headers = {"cache-control": _FOR_EVER if "v" in request.query_params else "no-cache"}
        return Response(_static(name), media_type=_TYPES[name], headers=headers)

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def missing(self, request: Request, _problem: Exception) -> Response:
        return PlainTextResponse(self.words(request)("web.no_such_page"), status_code=404)

    async def broken(self, request: Request, _problem: Exception) -> Response:
        """The traceback goes to the log by the server itself."""
        text = self.words(request)("web.broken")
        return JSONResponse({"error": text}, status_code=500)

    def deny(self, request: Request, verdict: Verdict) -> Response:
        words = self.words(request)
        headers = {"cache-control": _UNSEEN}
        match verdict:
            case Verdict.WRONG_HOST:
                text = words("web.wrong_host", host=repr(request.headers.get("host", ""))[:80])
                return PlainTextResponse(text, status_code=403, headers=headers)
            case Verdict.WRONG_ORIGIN:
                text = words("web.wrong_origin")
                return PlainTextResponse(text, status_code=403, headers=headers)
            case _ if request.method != "GET" or request.url.path.startswith("/api/"):
                text = words("web.needs_token")
                asking = {**headers, "www-authenticate": "Bearer"}
                return PlainTextResponse(text, status_code=401, headers=asking)
            case _:
                page = _template("denied.html", words, wrong=verdict is Verdict.WRONG_TOKEN)
                return HTMLResponse(page, status_code=401, headers=headers)

    def words(self, request: Request) -> Words:
        return words_for(language_of(request, self._usual))

    def _boot(self, words: Words) -> Mapping[str, object]:
        return {
            "language": words.language,
            "menu": [{"name": name, "help": text} for name, text in self._menu(words.language)],
            "words": {key: _raw(words, key) for key in _SPOKEN},
            "limits": {"text": LONGEST_TEXT, "bytes": LARGEST, "files": MOST_FILES},
        }


def _raw(words: Words, key: str) -> str:
    """The text with its places left open, for the page to fill in."""
    return words(f"web.{key}", limit="{limit}", name="{name}", text="{text}")


def _template(name: str, words: Words, **facts: object) -> str:
    return _environment().get_template(name).render(words=words, version=_version(), **facts)


@cache
def _environment() -> Environment:
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
def _version() -> str:
    """Changes with the files, so that browsers may keep them for ever."""
    return hashlib.sha256(b"".join(map(_static, _TYPES))).hexdigest()[:10]
