"""The plain HTTP side of the web chat: files, uploads, and saying something from a program."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from bot.transports.base import TooLarge
from bot.transports.web.files import LARGEST, EmptyFile, FileStore
from bot.transports.web.gate import is_bearer
from bot.transports.web.ports import PLACE, SENDER, Speaker
from bot.transports.web.tabs import Tabs
from bot.transports.web.wire import LONGEST_TEXT
from cards.render import text
from cards.words import Words
from storage.records.messages import MessageIn

_MEGABYTE = 1024 * 1024
_FILE_HEADERS = {
    # A file a model wrote is not a page of ours: it may show itself and do nothing.
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, no-cache",
}


class _SayBody(BaseModel):
    """`buttons` False leaves out of the cards' text what stands in for buttons; `quiet` keeps
    question and answer out of the web chat."""

    text: str = Field(min_length=1, max_length=LONGEST_TEXT)
    id: str = Field(default="", pattern=r"^[A-Za-z0-9-]{8,64}$|^$")
    buttons: bool = True
    quiet: bool = False


class Api:
    def __init__(
        self,
        *,
        files: FileStore,
        speaker: Speaker | None,
        tabs: Tabs,
        token: str,
        words: Callable[[Request], Words],
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._files = files
        self._speaker = speaker
        self._tabs = tabs
        self._token = token
        self._words = words
        self._now = now
        self._new_id = new_id

    async def file(self, request: Request) -> Response:
        found = await self._files.find(request.path_params["path"])
        if found is None:
            return PlainTextResponse(self._words(request)("web.no_such_file"), status_code=404)
        how = "inline" if found.inline else "attachment"
        name = quote(found.path.name.encode("utf-8", "replace"), safe="")
        headers = {**_FILE_HEADERS, "content-disposition": f"{how}; filename*=utf-8''{name}"}
        return FileResponse(found.path, media_type=found.mime, headers=headers)

    async def upload(self, request: Request) -> Response:
        words, name = self._words(request), request.query_params.get("name", "")
        if int(request.headers.get("content-length") or 0) > LARGEST:
            return _too_large(words, name)
        try:
            kept = await self._files.keep(self._new_id(), name, request.stream())
        except TooLarge:
            return _too_large(words, name)
        except EmptyFile:
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

    async def say(self, request: Request) -> Response:
        """A cookie is not enough here: this is for programs that know the token."""
        words = self._words(request)
        if not is_bearer(request, self._token):
            return JSONResponse({"error": words("web.needs_token")}, status_code=401)
        if self._speaker is None:
            return JSONResponse({"error": words("web.no_such_page")}, status_code=404)
        try:
            said = _SayBody.model_validate_json(await request.body())
        except ValidationError as problem:
            places = sorted({".".join(map(str, error["loc"])) for error in problem.errors()})
            return JSONResponse({"error": f"wrong: {', '.join(places)}"}, status_code=422)
        message = MessageIn(
            place=PLACE,
            sender=SENDER,
            message_id=said.id or self._new_id(),
            text=said.text,
            addressed=True,
            sent_at=self._now(),
            quiet=said.quiet,
        )
        if not said.quiet:
            self._tabs.show_said(message)
        spoken = await self._speaker.say(message, dedupe=message.message_id)
        shown = [
            {"title": card.title, "text": text.render(card, pressable=said.buttons).text}
            for card in spoken.cards
        ]
        answer = {"id": message.message_id, "good": spoken.good, "cards": shown}
        return JSONResponse({**answer, "data": spoken.data})


def _too_large(words: Words, name: str) -> Response:
    problem = words("web.too_large", name=name[:80], limit=LARGEST // _MEGABYTE)
    return JSONResponse({"error": problem}, status_code=413)
