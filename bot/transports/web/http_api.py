"""HTTP API of the web chat: files, uploads, and messages from programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from bot.transports.ports import FileTooLarge
from bot.transports.web.access import get_session_id, has_bearer_token, redirect_with_cookie
from bot.transports.web.files import MAX_FILE_BYTES, EmptyUpload, WebFileStore
from bot.transports.web.frames import MAX_TEXT
from bot.transports.web.page_connections import WebTabs
from bot.transports.web.pages import WebPages
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER, WebSayHandler
from bot.transports.web.sessions import WebSessionService
from cards.catalog import TextCatalog
from cards.render import text
from storage.errors import NotFound
from storage.records.messages import IncomingMessage
from storage.records.people import WebKeyKind

_MEGABYTE = 1024 * 1024
_MAX_PAGE = 20
_FILE_HEADERS = {
    # Files may come from a model: they are sandboxed and cannot run scripts.
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, no-cache",
}


class _SayBody(BaseModel):
    """Without `buttons`, card texts omit button placeholders; `quiet` keeps message and answer out
    of the web chat."""

    text: str = Field(min_length=1, max_length=MAX_TEXT)
    id: str = Field(default="", pattern=r"^[A-Za-z0-9-]{8,64}$|^$")
    buttons: bool = True
    quiet: bool = False


@dataclass(kw_only=True, eq=False)
class WebHttpApi:
    files: WebFileStore
    say_handler: WebSayHandler
    sessions: WebSessionService
    tabs: WebTabs
    token: str = field(repr=False)
    cookie: str
    pages: WebPages
    now: Callable[[], datetime]
    new_id: Callable[[], str]

    async def file(self, request: Request) -> Response:
        found = await self.files.find(request.path_params["path"])
        if found is None:
            return PlainTextResponse(self.pages.words(request)("web.no_such_file"), status_code=404)
        how = "inline" if found.inline else "attachment"
        name = quote(found.path.name.encode("utf-8", "replace"), safe="")
        headers = {**_FILE_HEADERS, "content-disposition": f"{how}; filename*=utf-8''{name}"}
        return FileResponse(found.path, media_type=found.mime, headers=headers)

    async def upload(self, request: Request) -> Response:
        words, name = self.pages.words(request), request.query_params.get("name", "")
        if int(request.headers.get("content-length") or 0) > MAX_FILE_BYTES:
            return _too_large_response(words, name)
        try:
            kept = await self.files.save_upload(self.new_id(), name, request.stream())
        except FileTooLarge:
            return _too_large_response(words, name)
        except EmptyUpload:
            problem = words("web.empty_file", name=name[:80])
            return JSONResponse({"error": problem}, status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)
        except OSError:
            problem = words("web.upload_failed", name=name[:80])
            return JSONResponse({"error": problem}, status_code=507)
        upload_id = kept.reference["path"].split("/")[-2]
        facts = {"id": upload_id, "name": kept.name, "size": kept.size, "kind": kept.kind}
        return JSONResponse(facts, status_code=201)

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser; a program with the token has none."""
        await self.sessions.end(get_session_id(request))
        return RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})

    async def show_link(self, request: Request) -> Response:
        """Looking at a link does not use it up: chat platforms fetch the links that they show."""
        link = await self.sessions.find_link(request.path_params["secret"])
        return await self.pages.link_page(request, link, status=200 if link else 410)

    async def use_link(self, request: Request) -> Response:
        """Sign in, or show the new token, once. A cookie that came along is never taken over."""
        link = await self.sessions.find_link(request.path_params["secret"])
        try:
            if link is None:
                return await self.pages.link_page(request, None, status=410)
            if link.kind is WebKeyKind.NEW_TOKEN:
                token = await self.sessions.create_token(link.person_id, link.name, link=link.id)
                if request.headers.get("accept", "") == "application/json":
                    return JSONResponse({"name": link.name, "token": token}, status_code=201)
                return await self.pages.link_page(request, link, token=token)
            agent = request.headers.get("user-agent", "")
            replaced = request.cookies.get(self.cookie, "")
            cookie = await self.sessions.sign_in(link, agent, replaced=replaced)
        except NotFound:
            return await self.pages.link_page(request, None, status=410)
        page = request.query_params.get("to", "")
        is_page = page.isascii() and page.isalpha() and len(page) <= _MAX_PAGE
        where = f"/dashboard/{page}" if is_page else "/dashboard"
        return redirect_with_cookie(request, where, self.cookie, cookie)

    async def say(self, request: Request) -> Response:
        """Requires the token; a cookie is not sufficient."""
        words = self.pages.words(request)
        if not has_bearer_token(request, self.token):
            return JSONResponse({"error": words("web.needs_token")}, status_code=401)
        try:
            said = _SayBody.model_validate_json(await request.body())
        except ValidationError as problem:
            places = sorted({".".join(map(str, error["loc"])) for error in problem.errors()})
            return JSONResponse({"error": f"wrong: {', '.join(places)}"}, status_code=422)
        message = IncomingMessage(
            place=LOCAL_PLACE,
            sender=LOCAL_SENDER,
            message_id=said.id or self.new_id(),
            text=said.text,
            addressed=True,
            sent_at=self.now(),
            quiet=said.quiet,
        )
        if not said.quiet:
            self.tabs.show_user_message(message)
        spoken = await self.say_handler.say(message, dedupe=message.message_id)
        shown = [
            {"title": card.title, "text": text.render(card, include_controls=said.buttons).text}
            for card in spoken.cards
        ]
        answer = {"id": message.message_id, "good": spoken.good, "cards": shown}
        return JSONResponse({**answer, "data": spoken.data})


def _too_large_response(words: TextCatalog, name: str) -> Response:
    problem = words("web.too_large", name=name[:80], limit=MAX_FILE_BYTES // _MEGABYTE)
    return JSONResponse({"error": problem}, status_code=413)
