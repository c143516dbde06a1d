"""Renders pages within the layout that all of them share."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeAlias
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from bot.dashboard.request import VISITOR, DashboardDeps, DashboardRequest, find_words
from cards import formats
from cards.catalog import TextCatalog
from cards.render.web import render_markdown
from handlers.middleware import ErrorExplanation
from storage.records.people import Language, PersonRole

STATIC_TYPES = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}
_NO_STORE = {"cache-control": "no-store"}

PageHandler: TypeAlias = Callable[[DashboardRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page. `name` is that of its template, and of its texts under `dashboard.<name>`; without
    `in_menu` it is reached from other pages only. `post` answers its forms."""

    path: str
    name: str
    show: PageHandler
    post: PageHandler | None = None
    in_menu: bool = True
    role: PersonRole = PersonRole.OWNER


def render_page(
    request: DashboardRequest,
    name: str,
    *,
    status_code: int = 200,
    failure: Sequence[str] = (),
    **facts: object,
) -> Response:
    """Fill in the template `<name>.html`, which extends `layout.html`. `failure` says what is wrong
    with a form that was sent, and what to do."""
    return _render(
        request.deps,
        request.http,
        request.words,
        name,
        person=request.person,
        facts={**facts, "failure": failure},
        status=422 if failure else status_code,
    )


def render_problem(
    deps: DashboardDeps, http: Request, problem: ErrorExplanation, status: int
) -> Response:
    # After a form: the page that it came from, as it is now.
    path = quote(http.url.path)
    again = path if http.method == "POST" and path.startswith("/dashboard/") else ""
    facts: dict[str, object] = {"problem": problem, "again": again}
    words = find_words(deps, http)
    return _render(deps, http, words, "problem", person=None, facts=facts, status=status)


def preload() -> None:
    """Load templates and files, so that no request waits for the disk. Blocking."""
    _version()
    for name in _environment().list_templates():
        _environment().get_template(name)


@cache
def static_file(name: str) -> bytes:
    return files("bot.dashboard").joinpath("static", name).read_bytes()


def _render(
    deps: DashboardDeps,
    http: Request,
    words: TextCatalog,
    name: str,
    *,
    person: object,
    facts: dict[str, object],
    status: int = 200,
) -> Response:
    html = (
        _environment()
        .get_template(f"{name}.html")
        .render(
            words=words,
            page=name,
            menu=http.app.state.menu,
            current=_find_current(http),
            newest_event=getattr(http.state, "newest_event", None),
            person=person,
            has_chat=http.scope[VISITOR].is_local,
            zone=deps.zone,
            version=deps.version,
            own_version=_version(),
            other_language=next(each for each in Language if each is not words.language),
            **facts,
        )
    )
    return HTMLResponse(html, status_code=status, headers=_NO_STORE)


def _find_current(http: Request) -> str:
    """The name of the menu's page that this one belongs to."""
    path, pages = http.url.path, http.app.state.menu
    above = [each for each in pages if path == each.path or path.startswith(f"{each.path}/")]
    return max(above, key=lambda each: len(each.path)).name if above else ""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bot.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["markdown"] = lambda text: Markup(render_markdown(text))  # noqa: S704 - safe HTML by contract
    environment.filters["money"] = formats.money
    environment.filters["date_time"] = formats.date_time
    return environment


@cache
def _version() -> str:
    return hashlib.sha256(b"".join(map(static_file, STATIC_TYPES))).hexdigest()[:10]
