"""The Feishu and Lark transport, and its operator alerts."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bot.transports import ports
from bot.transports.feishu.api import (
    FeishuApi,
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    build_http_client,
    translate_error,
)
from bot.transports.feishu.cardkit import FeishuCardKit, FeishuStreams
from bot.transports.feishu.delivery import (
    FeishuDelivery,
    FeishuPart,
    FeishuPartKind,
    FeishuPlacement,
    FeishuPreparedMessage,
    has_files_left,
    parse_placement,
)
from bot.transports.feishu.documents import FeishuDocuments, feishu_web_domain
from bot.transports.feishu.incoming import FeishuEventHandler
from bot.transports.feishu.long_connection import (
    FeishuConnectionRefused,
    FeishuLongConnection,
)
from bot.transports.feishu.messages import FeishuFiles, FeishuMessages
from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import InboxPort, OutboundMessage
from cards.render.feishu.card import ANSWER_ELEMENT_ID, card_summary
from storage.records.messages import MessagePlacement, OutboxId, RemoteFile
from storage.records.people import Channel, Chat

if TYPE_CHECKING:
    from bot.sync.ports import TableChange

_NO_FACTS: Mapping[str, object] = MappingProxyType({})


class FeishuAlertArea(StrEnum):
    """Area of a problem, most important first."""

    LINK = "link"
    STORE = "store"
    SENDING = "sending"
    CARDS = "cards"


class FeishuAlerts:
    """Reports the most important of all current problems, so that one area does not hide or clear
    another's."""

    def __init__(self, alert: Callable[..., None]) -> None:
        self._alert = alert
        self._active: dict[FeishuAlertArea, tuple[str, Mapping[str, object]]] = {}
        self._last_sent: tuple[str, Mapping[str, object]] | None = None

    def report(
        self, area: FeishuAlertArea, key: str, facts: Mapping[str, object] = _NO_FACTS
    ) -> None:
        """An empty key clears the area's problem."""
        if key:
            self._active[area] = (key, facts)
        else:
            self._active.pop(area, None)
        worst = next(
            (self._active[area] for area in FeishuAlertArea if area in self._active),
            ("", _NO_FACTS),
        )
        if worst != self._last_sent:
            self._last_sent = worst
            self._alert(worst[0], **worst[1])


log = logging.getLogger(__name__)

_MAX_REMEMBERED = 500
# Delivery paces messages, but not their parts; five a second are allowed.
_PART_INTERVAL = 0.25


class FeishuTransport:
    """`on_call` is called for each request that counts against the tenant's monthly quota, and
    `may_publish` says whether it leaves any for documents. Bot
    menus are set up in the developer console; their keys arrive as commands."""

    channel = Channel.FEISHU

    def __init__(
        self,
        *,
        app_id: str,
        app_secret: str,
        domain: str,
        inbox: InboxPort,
        home: Path,
        on_call: Callable[[], None] = lambda: None,
        may_publish: Callable[[], bool] = lambda: True,
        on_table_change: Callable[[TableChange], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bot_name = ""
        self._alerts = FeishuAlerts(partial(inbox.alert, self.channel))
        self._sleep = sleep
        self._client = build_http_client(domain)
        self._api = FeishuApi(
            client=self._client, app_id=app_id, app_secret=app_secret, now=now, on_call=on_call
        )
        posting = self._messages = FeishuMessages(self._api)
        self._cardkit = FeishuCardKit(self._api, sleep)
        self._files = FeishuFiles(self._api, home)
        self._delivery = FeishuDelivery(
            messages=posting,
            cardkit=self._cardkit,
            files=self._files,
            documents=FeishuDocuments(
                api=self._api,
                home=home,
                web_domain=feishu_web_domain(domain),
                may_publish=may_publish,
                sleep=sleep,
            ),
            now=now,
            on_cardkit=self._report_cardkit,
        )
        self._event_handler = FeishuEventHandler(
            inbox=inbox, messages=posting, on_table_change=on_table_change
        )
        self._streams = FeishuStreams(
            cardkit=self._cardkit, open_stream=self._open_stream, sleep=sleep
        )
        self._placements = LimitedDict[OutboxId, tuple[int, MessagePlacement]](_MAX_REMEMBERED)
        self._connection = FeishuLongConnection(
            prepare=self._load_bot,
            discover=self._api.discover_endpoint,
            handle=self._event_handler.handle,
            alert=partial(self._alerts.report, FeishuAlertArea.LINK),
            on_stored=lambda good: self._alerts.report(
                FeishuAlertArea.STORE, "" if good else "store"
            ),
            on_connected=lambda: inbox.connected(self.channel, self._bot_name),
            domain=domain,
            sleep=sleep,
            jitter=jitter,
            now=now,
        )

    async def start(self, stack: AsyncExitStack) -> None:
        # Not entered as a context manager: crash recovery may have used the client already.
        stack.push_async_callback(self._client.aclose)
        stack.push_async_callback(self._streams.close)

    async def run(self) -> None:
        await self._connection.run()

    async def deliver(self, message: OutboundMessage) -> ports.DeliveryResult:
        placement = self._current_placement(message)
        changing = bool(placement.parts)
        try:
            typed = await self._streams.finish(message.outbox_id)
            if typed:
                placement = self._current_placement(message)
            if not message.files_only:
                await self._delivery.publish_documents(message, placement)
            shown = await self._delivery.prepare(message, placement)
            if typed:
                await self._finish_stream(typed, shown)
            if message.files_only:
                await self._delivery.send_next_file(shown, placement)
            else:
                await self._show_parts(shown, placement)
        except (FeishuError, FeishuConnectionError) as error:
            if placement.parts or placement.documents:
                # The next try updates the parts already sent.
                self._remember_placement(message, placement)
            self._alert_on_error(error)
            raise translate_error(error, repeatable=changing) from error
        self._alerts.report(FeishuAlertArea.SENDING, "")
        placed = self._remember_placement(message, placement)
        return ports.DeliveryResult(
            placed=placed,
            degraded=tuple(shown.degraded),
            files_left=int(has_files_left(message.card, placement)),
        )

    async def stream(self, message: OutboundMessage, markdown: str) -> None:
        known = self._placements.get(message.outbox_id)
        if known is None or message.revision >= known[0]:
            self._streams.show(message, markdown)

    async def show_typing(self, chat: Chat) -> None:
        try:
            await self._messages.react_to_latest(chat.external_id)
        except (FeishuError, FeishuConnectionError) as error:
            log.debug("feishu: connection check failed: %s", error)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        try:
            return await self._files.fetch(file, into)
        except (FeishuError, FeishuConnectionError) as error:
            self._alert_on_error(error)
            raise translate_error(error, repeatable=True) from error
        except (KeyError, OSError) as error:
            raise ports.ContentRefused(f"cannot be fetched: {type(error).__name__}") from error

    async def _show_parts(self, shown: FeishuPreparedMessage, placement: FeishuPlacement) -> None:
        """Update existing parts, send new ones and delete surplus ones."""
        had = placement.parts
        anew = bool(had)
        try:
            for index in range(min(len(had), len(shown.parts))):
                had[index] = await self._replace_part(shown, index, had[index])
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.GONE:
                raise
            log.info("feishu: the message is gone, sent again: %s", error)
            had = placement.parts = []
        for extra in had[len(shown.parts) :]:
            await self._messages.delete(extra.message_id)
        del had[len(shown.parts) :]
        for index in range(len(had), len(shown.parts)):
            had.append(await self._send_part(shown, index, resent=anew))

    async def _replace_part(
        self, shown: FeishuPreparedMessage, index: int, part: FeishuPart
    ) -> FeishuPart:
        try:
            return await self._delivery.update_part(shown, index, part)
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.NO_EDIT:
                raise
        # A text can be edited twenty times; after that a new one is sent.
        fresh = await self._send_part(shown, index, resent=True)
        await self._messages.delete(part.message_id)
        return fresh

    async def _send_part(
        self, shown: FeishuPreparedMessage, index: int, *, resent: bool = False
    ) -> FeishuPart:
        message = shown.message
        if index:
            await self._sleep(_PART_INTERVAL)
        return await self._delivery.send_part(
            shown,
            index,
            # The plain ID was used for the deleted message.
            uuid=f"{message.idempotency_key}:{index}{':anew' if resent else ''}",
            reply_to="" if index or resent else message.reply_to,
        )

    def _current_placement(self, message: OutboundMessage) -> FeishuPlacement:
        """The message's placement; this process may know a newer one than the store."""
        known = self._placements.get(message.outbox_id)
        return parse_placement(known[1] if known else message.placed)

    async def _open_stream(self, message: OutboundMessage) -> str:
        """Turn the message's card into a streaming entity, sending it if necessary."""
        placement = self._current_placement(message)
        shown = await self._delivery.prepare(message, placement, streaming=True)
        if not placement.parts:
            placement.parts.append(await self._send_part(shown, 0))
            self._remember_placement(message, placement)
            part = placement.parts[0]
            return part.card_id if part.kind is FeishuPartKind.ENTITY else ""
        part = placement.parts[0]
        if part.kind is FeishuPartKind.TEXT:
            return ""
        card_id = part.card_id or await self._cardkit.convert_message(part.message_id)
        self._cardkit.adopt(card_id, part.sequence)
        await self._cardkit.update(card_id, shown.parts[0])
        placement.parts[0] = replace(part, kind=FeishuPartKind.ENTITY, card_id=card_id)
        self._remember_placement(message, placement)
        return card_id

    def _remember_placement(
        self, message: OutboundMessage, placement: FeishuPlacement
    ) -> MessagePlacement:
        """Remember the placement, so that stream and delivery find each other's message even if
        theirs was loaded earlier."""
        placed = placement.to_placed()
        self._placements[message.outbox_id] = (message.revision, placed)
        return placed

    async def _finish_stream(self, card_id: str, shown: FeishuPreparedMessage) -> None:
        """Set the last text and end streaming with a final summary. Delivery of the full card does
        not depend on it."""
        elements = shown.parts[0]["body"]["elements"]
        final: dict[str, Any] = next(
            (one for one in elements if one.get("element_id") == ANSWER_ELEMENT_ID), {}
        )
        try:
            if final.get("content"):
                await self._cardkit.set_content(card_id, ANSWER_ELEMENT_ID, final["content"])
            await self._cardkit.end_streaming(
                card_id, card_summary(shown.message.card, shown.words)
            )
        except FeishuError as error:
            log.info("feishu: the stream was closed already: %s", error)

    async def _load_bot(self) -> None:
        """Load the bot's ID, without which mentions cannot be recognised, and its name."""
        if self._event_handler.bot_id:
            return
        try:
            bot = await self._api.fetch_bot()
        except FeishuError as error:
            if error.kind is FeishuErrorKind.OTHER:
                raise FeishuConnectionRefused("bot", code=error.code) from error
            raise
        self._event_handler.bot_id, self._bot_name = bot.open_id, bot.name

    def _alert_on_error(self, error: FeishuError | FeishuConnectionError) -> None:
        """Report errors that only an operator can solve."""
        if isinstance(error, FeishuError):
            if error.kind is FeishuErrorKind.QUOTA:
                self._alerts.report(FeishuAlertArea.SENDING, "quota")
            elif error.kind is FeishuErrorKind.SCOPE:
                self._alerts.report(FeishuAlertArea.SENDING, "scope", {"detail": error.msg[:200]})
            elif error.kind is FeishuErrorKind.CREDENTIALS:
                self._alerts.report(FeishuAlertArea.SENDING, "credentials", {"code": error.code})

    def _report_cardkit(self, error: FeishuError | None) -> None:
        """Without CardKit permission, cards are patched instead."""
        if error is None:
            self._alerts.report(FeishuAlertArea.CARDS, "")
        elif error.kind is FeishuErrorKind.SCOPE:
            self._alerts.report(FeishuAlertArea.CARDS, "scope", {"detail": error.msg[:200]})
