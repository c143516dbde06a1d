"""One request, as pages and the API know it."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from starlette.datastructures import FormData
from starlette.formparsers import FormParser, MultiPartException
from starlette.requests import HTTPConnection
from starlette.requests import Request as HttpRequest

from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.courier import CardRef
from handlers.errors import ActionForbidden, UserError
from handlers.ports import Clock, HandlerServices
from handlers.request import Request
from storage.records.channels import SetupSession
from storage.records.people import Chat, Language, Person, PersonId, PersonRole, WebVisitor

MAX_FORM_BYTES = 1024 * 1024
MAX_SETUP_BYTES = 16_384
"""Of the forms that connect models and platforms."""
VISITOR = "visitor"
"""The key in the scope under which access control leaves the WebVisitor."""

_MAX_SOURCE = 64
_MAX_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardDeps:
    """`negotiate` finds the language of a request; its second argument is the one to take before
    the browser's preference. `get_chat` returns the visitor's own private chat, and raises NotFound
    if there is none. `fixed_language` is that of everyone. `version` changes with the files under
    `/static/`. `is_welcome` says whether whoever sent a request that lasts still has the same
    access; `stopping` ends such requests, of which `streams` counts those that are open. `read_log`
    returns the newest lines of the log, the newest first, without secrets. `find_file` finds a file
    by its path in the data directory, unless that leads out of its folder for files. `first_time`
    returns when it was called first with this text."""

    services: HandlerServices
    now: Clock
    zone: ZoneInfo
    negotiate: Callable[[HTTPConnection, Language | None], Language]
    get_chat: Callable[[WebVisitor], Awaitable[Chat]]
    fixed_language: Language | None
    version: str
    new_incident: Callable[[], str]
    is_welcome: Callable[[HttpRequest], Awaitable[bool]]
    stopping: asyncio.Event
    read_log: Callable[[int], Awaitable[Sequence[str]]]
    find_file: Callable[[str], Awaitable[Path | None]]
    first_time: Callable[[str], Awaitable[datetime]]
    streams: Counter[PersonId] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardRequest:
    """One request of a person with access. `chat` is their own private chat: what they create here
    belongs to it, and what they may see is decided for it."""

    http: HttpRequest
    deps: DashboardDeps
    visitor: WebVisitor
    chat: Chat
    words: TextCatalog

    @property
    def services(self) -> HandlerServices:
        return self.deps.services

    @property
    def person(self) -> Person:
        return self.visitor.person

    async def form(self, max_bytes: int = MAX_FORM_BYTES) -> FormData:
        """Raises UserError for one that is longer or has too many fields."""

        async def read() -> AsyncGenerator[bytes, None]:
            size = 0
            async for chunk in self.http.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise UserError("form_too_long", limit=max_bytes)
                yield chunk

        try:
            return await FormParser(self.http.headers, read()).parse()
        except MultiPartException as error:
            raise UserError("form_too_long", limit=max_bytes) from error

    @property
    def session(self) -> SetupSession:
        return SetupSession(person_id=self.person.id, session_id=self.visitor.session_id)

    @property
    def by_owner(self) -> bool:
        return self.person.role.allows(PersonRole.OWNER)

    def command(self, source: str = "", *, args: str = "") -> Request:
        """The same request as handlers of commands get it. Changes are recorded under `source`."""
        return Request(
            person=self.person,
            chat=self.chat,
            words=self.words,
            args=args,
            source=source,
            origin=source,
            now=self.now,
            zone=self.deps.zone,
            services=self.services,
            answer_ref=CardRef(key="", revision=0),
            web_session=self.visitor.session_id,
        )

    @property
    def now(self) -> datetime:
        return self.deps.now()

    def number(self, name: str) -> int:
        """Of the query; 0 for anything that is none, or too large."""
        text = self.http.query_params.get(name, "")
        usable = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
        return int(text) if usable else 0


def find_words(deps: DashboardDeps, http: HTTPConnection) -> TextCatalog:
    """Programs ask by header; people are answered in their language."""
    visitor: WebVisitor = http.scope[VISITOR]
    asked = not visitor.session_id and "accept-language" in http.headers
    own = None if asked else visitor.person.language
    return catalog_for(deps.negotiate(http, deps.fixed_language or own))


async def read_request(
    deps: DashboardDeps, http: HttpRequest, *, needs: PersonRole = PersonRole.MEMBER
) -> DashboardRequest:
    """Raises ActionForbidden without that role."""
    visitor: WebVisitor = http.scope[VISITOR]
    if not visitor.person.role.allows(needs):
        raise ActionForbidden
    return DashboardRequest(
        http=http,
        deps=deps,
        visitor=visitor,
        chat=await deps.get_chat(visitor),
        words=find_words(deps, http),
    )


def new_source() -> str:
    """Made with a form, so that sending it twice changes things once."""
    return secrets.token_hex(12)


def form_source(form: FormData) -> str:
    given = form_text(form, "source")
    usable = given.isascii() and given.isalnum() and len(given) <= _MAX_SOURCE
    return f"page:{given if usable else new_source()}"


def form_text(form: FormData, name: str) -> str:
    """With plain line ends, and without other control characters or spaces around it; empty if it
    is missing."""
    value = form.get(name, "")
    return formats.strip_controls(value).strip() if isinstance(value, str) else ""
