"""Feishu and Lark: the Transport."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bot.transports import base
from bot.transports.base import Intake, Letter
from bot.transports.feishu.api import FeishuApi
from bot.transports.feishu.arrivals import Arrivals
from bot.transports.feishu.cardkit import CardKit
from bot.transports.feishu.delivery import Delivery, Shown
from bot.transports.feishu.errors import Broken, FeishuError, Kind, translate
from bot.transports.feishu.link.longconn import LongConnection, Refusal
from bot.transports.feishu.link.sdk import frame_class
from bot.transports.feishu.media import Media
from bot.transports.feishu.placement import Part, PartKind, Placement, read_placement
from bot.transports.feishu.posting import Posting
from bot.transports.feishu.streams import Streams
from bot.transports.feishu.troubles import Area, Troubles
from cards.render.feishu.card import ANSWER, summary
from storage.records.messages import OutboxId, Placed, RemoteFile
from storage.records.people import Channel, Chat

log = logging.getLogger(__name__)

_TIMEOUT = httpx.Timeout(20.0, connect=8.0)
_REMEMBERED = 500
# The delivery paces letters; the parts of one are ours to pace. Five a second are allowed.
_PART_PACE = 0.25


class FeishuTransport:
    """`on_call` is told of each call that counts against the tenant's monthly quota. A bot
    menu is made in the developer console, not here: its keys come back as commands."""

    channel = Channel.FEISHU

    def __init__(
        self,
        *,
        app_id: str,
        app_secret: str,
        domain: str,
        intake: Intake,
        home: Path,
        on_call: Callable[[], None] = lambda: None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._troubles = Troubles(partial(intake.alert, self.channel))
        self._pause = pause
        self._client = _client(domain)
        self._api = FeishuApi(
            client=self._client, app_id=app_id, app_secret=app_secret, now=now, on_call=on_call
        )
        posting = self._posting = Posting(self._api)
        self._cardkit = CardKit(self._api, pause)
        self._media = Media(self._api, home)
        self._delivery = Delivery(
            posting=posting,
            cardkit=self._cardkit,
            media=self._media,
            now=now,
            on_cardkit=self._note_cardkit,
        )
        self._arrivals = Arrivals(intake=intake, posting=posting)
        self._streams = Streams(cardkit=self._cardkit, opened=self._open_stream, pause=pause)
        self._places: OrderedDict[OutboxId, tuple[int, Placed]] = OrderedDict()
        self._connection = LongConnection(
            prepare=self._identify,
            discover=self._api.discover,
            handle=self._arrivals.handle,
            alert=partial(self._troubles.note, Area.LINK),
            stored=lambda good: self._troubles.note(Area.STORE, "" if good else "store"),
            domain=domain,
            pause=pause,
            jitter=jitter,
            now=now,
        )

    async def start(self, stack: AsyncExitStack) -> None:
        # The first use loads the generated protobuf module: better now than under a message.
        await asyncio.to_thread(frame_class)
        # Not entered: what was left by a death may have called the platform already.
        stack.push_async_callback(self._client.aclose)
        stack.push_async_callback(self._streams.close)

    async def run(self) -> None:
        await self._connection.run()

    async def deliver(self, letter: Letter) -> base.Delivery:
        placement = self._placement(letter)
        changing = bool(placement.parts)
        try:
            typed = await self._streams.end(letter.outbox_id)
            if typed:
                placement = self._placement(letter)
            shown = await self._delivery.prepare(letter, placement)
            if typed:
                await self._settle(typed, shown)
            await self._show(shown, placement)
            await self._delivery.send_files(shown, placement)
        except (FeishuError, Broken) as error:
            if placement.parts:
                # What is out already is changed by the next try, not sent again.
                self._keep(letter, placement)
            self._notice(error)
            raise translate(error, repeatable=changing) from error
        self._troubles.note(Area.SENDING, "")
        placed = self._keep(letter, placement)
        return base.Delivery(placed=placed, degraded=tuple(shown.degraded))

    async def stream(self, letter: Letter, markdown: str) -> None:
        known = self._places.get(letter.outbox_id)
        if known is None or letter.revision >= known[0]:
            self._streams.offer(letter, markdown)

    async def typing(self, chat: Chat) -> None:
        try:
            await self._posting.seen(chat.external_id)
        except (FeishuError, Broken) as error:
            log.debug("feishu: no sign of life: %s", error)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        try:
            return await self._media.fetch(file, into)
        except (FeishuError, Broken) as error:
            self._notice(error)
            raise translate(error, repeatable=True) from error
        except (KeyError, OSError) as error:
            raise base.Refused(f"cannot be fetched: {type(error).__name__}") from error

    # --- showing ----------------------------------------------------------------------------

    async def _show(self, shown: Shown, placement: Placement) -> None:
        """Change what is there, send what is new, take back what is too many."""
        had = placement.parts
        anew = bool(had)
        try:
            for index in range(min(len(had), len(shown.parts))):
                had[index] = await self._replace_part(shown, index, had[index])
        except FeishuError as error:
            if error.kind is not Kind.GONE:
                raise
            log.info("feishu: the message is gone, sent anew: %s", error)
            had = placement.parts = []
        for extra in had[len(shown.parts) :]:
            await self._posting.take_back(extra.message_id)
        del had[len(shown.parts) :]
        for index in range(len(had), len(shown.parts)):
            had.append(await self._send_part(shown, index, anew=anew))

    async def _replace_part(self, shown: Shown, index: int, part: Part) -> Part:
        try:
            return await self._delivery.change(shown, index, part)
        except FeishuError as error:
            if error.kind is not Kind.NO_EDIT:
                raise
        # Texts can be edited twenty times only: after that there is a new one.
        fresh = await self._send_part(shown, index, anew=True)
        await self._posting.take_back(part.message_id)
        return fresh

    async def _send_part(self, shown: Shown, index: int, *, anew: bool = False) -> Part:
        letter = shown.letter
        if index:
            await self._pause(_PART_PACE)
        return await self._delivery.send(
            shown,
            index,
            # Where it stood before, the plain id was used up by what is gone now.
            uuid=f"{letter.uuid}:{index}{':anew' if anew else ''}",
            reply_to="" if index or anew else letter.reply_to,
        )

    def _placement(self, letter: Letter) -> Placement:
        """Where the letter is: this process knows better than what was written down before."""
        known = self._places.get(letter.outbox_id)
        return read_placement(known[1] if known else letter.placed)

    # --- streaming --------------------------------------------------------------------------

    async def _open_stream(self, letter: Letter) -> str:
        """Make the letter's card an entity that is being streamed into, sending it if need be."""
        placement = self._placement(letter)
        shown = await self._delivery.prepare(letter, placement, streaming=True)
        if not placement.parts:
            placement.parts.append(await self._send_part(shown, 0))
            self._keep(letter, placement)
            part = placement.parts[0]
            return part.card_id if part.kind is PartKind.ENTITY else ""
        part = placement.parts[0]
        if part.kind is PartKind.TEXT:
            return ""
        card_id = part.card_id or await self._cardkit.convert(part.message_id)
        self._cardkit.adopt(card_id, part.sequence)
        await self._cardkit.update(card_id, shown.parts[0])
        placement.parts[0] = replace(part, kind=PartKind.ENTITY, card_id=card_id)
        self._keep(letter, placement)
        return card_id

    def _keep(self, letter: Letter, placement: Placement) -> Placed:
        """Remember the place: a stream and a delivery must find what the other one sent, though
        the letter they hold may have been written down before that."""
        placed = placement.placed()
        self._places[letter.outbox_id] = (letter.revision, placed)
        self._places.move_to_end(letter.outbox_id)
        if len(self._places) > _REMEMBERED:
            self._places.popitem(last=False)
        return placed

    async def _settle(self, card_id: str, shown: Shown) -> None:
        """The last text, then streaming off with a true summary; the full card comes after.
        None of it is needed for that to succeed."""
        elements = shown.parts[0]["body"]["elements"]
        final: dict[str, Any] = next(
            (one for one in elements if one.get("element_id") == ANSWER), {}
        )
        try:
            if final.get("content"):
                await self._cardkit.content(card_id, ANSWER, final["content"])
            await self._cardkit.settle(card_id, summary(shown.letter.card, shown.words))
        except FeishuError as error:
            log.info("feishu: the stream was closed already: %s", error)

    # --- trouble ----------------------------------------------------------------------------

    async def _identify(self) -> None:
        """Who we are in mentions: without it every mention, or none, would seem to be ours."""
        if self._arrivals.bot_id:
            return
        try:
            self._arrivals.bot_id = await self._api.bot_id()
        except FeishuError as error:
            if error.kind is Kind.OTHER:
                raise Refusal("bot", code=error.code) from error
            raise

    def _notice(self, error: FeishuError | Broken) -> None:
        """Trouble that only an operator can end."""
        if isinstance(error, FeishuError):
            if error.kind is Kind.QUOTA:
                self._troubles.note(Area.SENDING, "quota")
            elif error.kind is Kind.SCOPE:
                self._troubles.note(Area.SENDING, "scope", {"detail": error.msg[:200]})
            elif error.kind is Kind.CREDENTIALS:
                self._troubles.note(Area.SENDING, "credentials", {"code": error.code})

    def _note_cardkit(self, error: FeishuError | None) -> None:
        """Cards are patched, and look nearly as good, while CardKit is not granted."""
        if error is None:
            self._troubles.note(Area.CARDS, "")
        elif error.kind is Kind.SCOPE:
            self._troubles.note(Area.CARDS, "scope", {"detail": error.msg[:200]})


def _client(domain: str) -> httpx.AsyncClient:
    """One client for everything, through the proxy of the environment except to ourselves."""
    loopback = urlsplit(domain).hostname in ("127.0.0.1", "::1", "localhost")
    base_url = domain.rstrip("/")
    try:
        return httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT, trust_env=not loopback)
    except (ImportError, ValueError) as error:
        log.warning("feishu: the proxy of the environment cannot be used: %s", error)
        return httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT, trust_env=False)
