"""Stores events of the long connection in the inbox before they are acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pydantic import ValidationError

from bot.transports.feishu import events
from bot.transports.feishu.events import (
    get_chat_kind,
    get_thread,
    get_token,
    is_marked_as_forwarded,
    parse_content,
)
from bot.transports.feishu.messages import FeishuMessages
from bot.transports.ports import InboxPort
from cards.catalog import catalog_for
from storage.records.messages import (
    ChatAddress,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessageSender,
)
from storage.records.people import Channel, ChatKind, Language

if TYPE_CHECKING:
    from bot.sync.ports import TableChange

log = logging.getLogger(__name__)

# The platform waits three seconds for the response to a press, including transfer.
_PRESS_WAIT = 2.0
_PRESS_DEADLINE = 2.6
# Optional lookups must not delay the acknowledgement.
_LOOKUP_TIMEOUT = 0.6
_FORWARD_TIMEOUT = 2.0
"""Feishu repeats an event that is not acknowledged within three seconds."""


class FeishuEventHandler:
    """Handles events. `on_table_change` is called for each announced change of a Bitable; it must
    not block.
    """

    def __init__(
        self,
        *,
        inbox: InboxPort,
        messages: FeishuMessages,
        on_table_change: Callable[[TableChange], None] = lambda _: None,
    ) -> None:
        self._inbox = inbox
        self._on_table_change = on_table_change
        self._messages = messages
        self._chat_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._private_chats: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.bot_id = ""

    async def handle(self, payload: bytes) -> Mapping[str, Any] | None:
        """Store one event; returns the toast for a button press. Unknown and invalid events count
        as handled, since a repeat would be just as invalid."""
        try:
            envelope = events.FeishuEnvelope.model_validate_json(payload)
            return await self._dispatch(envelope)
        except ValidationError as error:
            log.warning("feishu: malformed event dropped: %s", _validation_summary(error))
            return None

    async def _dispatch(self, envelope: events.FeishuEnvelope) -> Mapping[str, Any] | None:
        event = envelope.event
        match envelope.header.event_type:
            case events.MESSAGE_RECEIVED:
                await self._on_message(events.FeishuMessageEvent.model_validate(event))
            case events.MESSAGE_RECALLED:
                await self._on_recall(events.FeishuRecallEvent.model_validate(event))
            case events.CARD_ACTION:
                return await self._on_press(events.FeishuActionEvent.model_validate(event))
            case events.CHAT_ENTERED:
                await self._on_chat_entered(events.FeishuChatEnteredEvent.model_validate(event))
            case events.BOT_ADDED:
                added = events.FeishuBotAddedEvent.model_validate(event)
                await self._on_bot_added(added, envelope.header.event_id)
            case events.BOT_MENU:
                menu = events.FeishuMenuEvent.model_validate(event)
                await self._on_menu(menu, envelope.header.event_id)
            case events.TABLE_RECORDS_CHANGED | events.TABLE_FIELDS_CHANGED:
                # Loaded with the first event: most installations have no Bitable.
                from bot.transports.feishu.bitable_events import parse_table_change

                if (change := parse_table_change(event)) is not None:
                    self._on_table_change(change)
            case other:
                log.debug("feishu: event %s is ignored", other)
        return None

    async def _on_message(self, event: events.FeishuMessageEvent) -> None:
        info = event.message
        sender = event.sender.sender_id or events.FeishuIds()
        async with self._chat_lock(info.chat_id):
            private = info.chat_type == "p2p"
            if private and sender.open_id:
                self._private_chats[sender.open_id] = info.chat_id
            content = parse_content(info, self.bot_id)
            # Concurrent, so that all lookups take no longer than one may.
            title, name, addressed, passed_on = await asyncio.gather(
                _look_up_cached(
                    self._titles,
                    "" if private else info.chat_id,
                    self._messages.fetch_chat_title,
                ),
                self._get_person_name(sender.open_id),
                self._is_addressed(info),
                self._fetch_forwarded(info, content),
            )
            incoming = IncomingMessage(
                place=ChatAddress(
                    channel=Channel.FEISHU,
                    chat=info.chat_id,
                    kind=ChatKind.PRIVATE if private else ChatKind.GROUP,
                    thread=(info.root_id or info.message_id) if info.thread_id else "",
                    title=title,
                ),
                sender=MessageSender(
                    external_id=sender.open_id,
                    name=name,
                    is_bot=event.sender.sender_type == "app",
                ),
                message_id=info.message_id,
                text=passed_on or content.text,
                addressed=addressed,
                sent_at=_parse_time(info.create_time),
                attachments=content.files,
                reply_to=info.parent_id or "",
                forwarded=content.is_forward or is_marked_as_forwarded(content.text),
            )
            # The documentation says to deduplicate by message_id, not event_id.
            await self._inbox.accept(incoming, dedupe=info.message_id)
        self._messages.note_incoming(info.chat_id, info.message_id)

    async def _on_recall(self, event: events.FeishuRecallEvent) -> None:
        """Withdraw a recalled message, if its author recalled it; a group's manager
        only hides it.
        """
        if event.recall_type in {"", "message_owner"}:
            # Behind the message itself, which may still be on its way into the store.
            async with self._chat_lock(event.chat_id):
                await self._inbox.recall(Channel.FEISHU, dedupe=event.message_id)

    def _chat_lock(self, chat_id: str) -> asyncio.Lock:
        """Serialises storing of a chat's messages."""
        lock = self._chat_locks.get(chat_id)
        if lock is None:
            lock = self._chat_locks[chat_id] = asyncio.Lock()
        return lock

    async def _is_addressed(self, info: events.FeishuMessageInfo) -> bool:
        """Whether the message mentions the bot or replies to it."""
        if info.chat_type == "p2p":
            return True
        if any(mention.id.open_id == self.bot_id for mention in info.mentions or []):
            return True
        if not info.parent_id:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                return await self._messages.is_own_message(info.parent_id)
        return False

    async def _fetch_forwarded(
        self, info: events.FeishuMessageInfo, content: events.FeishuContent
    ) -> str:
        if not content.is_forward:
            return ""
        try:
            async with asyncio.timeout(_FORWARD_TIMEOUT):
                return await self._messages.fetch_forwarded(info.message_id, self.bot_id)
        except TimeoutError:
            return ""

    async def _get_person_name(self, open_id: str) -> str:
        return await _look_up_cached(self._names, open_id, self._messages.fetch_person_name)

    async def _on_chat_entered(self, event: events.FeishuChatEnteredEvent) -> None:
        """Greet a person once; the event comes with every opening of the chat."""
        open_id = event.operator_id.open_id
        self._private_chats[open_id] = event.chat_id
        place = ChatAddress(channel=Channel.FEISHU, chat=event.chat_id, kind=ChatKind.PRIVATE)
        sender = MessageSender(external_id=open_id, name=await self._get_person_name(open_id))
        incoming = IncomingChatOpen(place=place, sender=sender)
        await self._inbox.accept(incoming, dedupe=f"entered:{event.chat_id}")

    async def _on_bot_added(self, event: events.FeishuBotAddedEvent, event_id: str) -> None:
        place = ChatAddress(
            channel=Channel.FEISHU, chat=event.chat_id, kind=ChatKind.GROUP, title=event.name
        )
        sender = MessageSender(external_id=event.operator_id.open_id)
        incoming = IncomingChatOpen(place=place, sender=sender)
        await self._inbox.accept(incoming, dedupe=f"added:{event_id or event.chat_id}")

    async def _on_menu(self, event: events.FeishuMenuEvent, event_id: str) -> None:
        """Handle a menu key as a command. The event names only the person; an open ID also works as
        a chat ID.
        """
        open_id = event.operator.operator_id.open_id
        chat = self._private_chats.get(open_id, open_id)
        incoming = IncomingMessage(
            place=ChatAddress(channel=Channel.FEISHU, chat=chat, kind=ChatKind.PRIVATE),
            sender=MessageSender(external_id=open_id, name=event.operator.operator_name),
            message_id=f"menu:{event_id}",
            text=f"/{event.event_key.lstrip('/')}",
            addressed=True,
            sent_at=datetime.now(UTC),
        )
        await self._inbox.accept(incoming, dedupe=f"menu:{event_id}")

    async def _on_press(self, event: events.FeishuActionEvent) -> Mapping[str, Any]:
        """Handle a press. The platform's `operator` says who pressed, never the content of the
        button.
        """
        value = event.action.value
        kind = get_chat_kind(value)
        if event.context.open_chat_id in self._private_chats.values():
            kind = ChatKind.PRIVATE
        incoming = IncomingPress(
            place=ChatAddress(
                channel=Channel.FEISHU,
                chat=event.context.open_chat_id,
                kind=kind,
                thread=get_thread(value),
            ),
            sender=MessageSender(external_id=event.operator.open_id),
            token=get_token(value, event.action.name),
            message_id=event.context.open_message_id,
            value=_selected_value(event.action),
            form=_form_values(event.action.form_value or {}),
        )
        try:
            async with asyncio.timeout(_PRESS_DEADLINE):
                toast = await self._inbox.press(
                    incoming, dedupe=event.token, wait_seconds=_PRESS_WAIT
                )
        except TimeoutError:
            return _bilingual_toast("working", good=True)
        except Exception:  # the person must see a response; the log has the reason
            log.exception("feishu: a press could not be handled")
            return _bilingual_toast("failed", good=False)
        tone = "success" if toast.good else "warning"
        return {"toast": {"type": tone, "content": toast.text}}


async def _look_up_cached(
    cache: dict[str, str], key: str, look_up: Callable[[str], Awaitable[str]]
) -> str:
    """Look up once and cache; empty if there is no result in time."""
    if key and key not in cache:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                cache[key] = await look_up(key)
    return cache.get(key, "")


def _bilingual_toast(key: str, *, good: bool) -> Mapping[str, Any]:
    """A toast in both languages; the client chooses."""
    chinese = catalog_for(Language.CHINESE)(f"render.feishu.{key}")
    english = catalog_for(Language.ENGLISH)(f"render.feishu.{key}")
    toast = {
        "type": "info" if good else "error",
        "content": english,
        "i18n": {"zh_cn": chinese, "en_us": english},
    }
    return {"toast": toast}


def _selected_value(action: events.FeishuAction) -> str:
    if action.option is not None:
        return action.option
    if action.options:
        return ",".join(action.options)
    return action.input_value or ""


def _form_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Form values under the card's field names; the renderer marks duplicates as `~2`."""
    filled: dict[str, str] = {}
    for name, value in values.items():
        base, _, number = name.rpartition("~")
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value or "")
        filled[base if base and number.isdigit() else name] = text
    return filled


def _parse_time(milliseconds: str) -> datetime:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _validation_summary(error: ValidationError) -> str:
    """Locations of errors without values, since messages must not be logged."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['type']}"
        for one in error.errors(include_input=False)[:3]
    )
