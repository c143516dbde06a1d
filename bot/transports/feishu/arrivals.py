"""What arrives over the long connection, handed to the intake before it is acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from pydantic import ValidationError

from bot.transports.base import Intake, Toast
from bot.transports.feishu import events
from bot.transports.feishu.content import read_content
from bot.transports.feishu.marks import kind_of, thread_of, token_of
from bot.transports.feishu.posting import Posting
from cards.words import words_for
from storage.records.messages import EntryIn, MessageIn, Place, PressIn, Sender
from storage.records.people import Channel, ChatKind, Language

log = logging.getLogger(__name__)

# The platform waits three seconds for the answer to a press, the way back included.
_PATIENCE = 2.0
_LAST_MOMENT = 2.6
# What is only nice to know about a message must not hold up its ack.
_LOOK_UP = 0.6


class Arrivals:
    def __init__(self, *, intake: Intake, posting: Posting) -> None:
        self._intake = intake
        self._posting = posting
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._private: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.bot_id = ""

    async def handle(self, payload: bytes) -> Mapping[str, Any] | None:
        """Store one event; the answer is what the presser of a button sees. Events that mean
        nothing to us, or nothing at all, count as handled: coming again would not mend them."""
        try:
            envelope = events.Envelope.model_validate_json(payload)
            return await self._dispatch(envelope)
        except ValidationError as error:
            log.warning("feishu: malformed event dropped: %s", _summary(error))
            return None

    async def _dispatch(self, envelope: events.Envelope) -> Mapping[str, Any] | None:
        event = envelope.event
        match envelope.header.event_type:
            case events.MESSAGE:
                await self._message(events.MessageEvent.model_validate(event))
            case events.ACTION:
                return await self._press(events.ActionEvent.model_validate(event))
            case events.ENTERED:
                await self._entered(events.EnteredEvent.model_validate(event))
            case events.ADDED:
                added = events.AddedEvent.model_validate(event)
                await self._added(added, envelope.header.event_id)
            case events.MENU:
                menu = events.MenuEvent.model_validate(event)
                await self._menu(menu, envelope.header.event_id)
            case other:
                log.debug("feishu: event %s is not for us", other)
        return None

    async def _message(self, event: events.MessageEvent) -> None:
        info = event.message
        sender = event.sender.sender_id or events.Ids()
        async with self._in_order(info.chat_id):
            private = info.chat_type == "p2p"
            if private and sender.open_id:
                self._private[sender.open_id] = info.chat_id
            content = read_content(info, self.bot_id)
            # Together, so that all of it costs no more time than one may.
            title, name, addressed = await asyncio.gather(
                self._title("" if private else info.chat_id),
                self._name(sender.open_id),
                self._addressed(info),
            )
            incoming = MessageIn(
                place=Place(
                    channel=Channel.FEISHU,
                    chat=info.chat_id,
                    kind=ChatKind.PRIVATE if private else ChatKind.GROUP,
                    thread=(info.root_id or info.message_id) if info.thread_id else "",
                    title=title,
                ),
                sender=Sender(
                    external_id=sender.open_id,
                    name=name,
                    is_bot=event.sender.sender_type == "app",
                ),
                message_id=info.message_id,
                text=content.text,
                addressed=addressed,
                sent_at=_when(info.create_time),
                attachments=content.files,
                reply_to=info.parent_id or "",
            )
            # The page of this event says outright: trust message_id, not event_id.
            await self._intake.accept(incoming, dedupe=info.message_id)
        self._posting.heard(info.chat_id, info.message_id)

    def _in_order(self, chat_id: str) -> asyncio.Lock:
        """Messages of one chat are stored in the order in which they came."""
        lock = self._order.get(chat_id)
        if lock is None:
            lock = self._order[chat_id] = asyncio.Lock()
        return lock

    async def _addressed(self, info: events.MessageInfo) -> bool:
        """Only a mention of the bot itself, or an answer to it, is meant for it."""
        if info.chat_type == "p2p":
            return True
        if any(mention.id.open_id == self.bot_id for mention in info.mentions or []):
            return True
        if not info.parent_id:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP):
                return await self._posting.is_ours(info.parent_id)
        return False

    async def _title(self, chat_id: str) -> str:
        return await _known(self._titles, chat_id, self._posting.chat_title)

    async def _name(self, open_id: str) -> str:
        return await _known(self._names, open_id, self._posting.person_name)

    async def _entered(self, event: events.EnteredEvent) -> None:
        """Fires at every opening of the chat: the key makes it count once."""
        open_id = event.operator_id.open_id
        self._private[open_id] = event.chat_id
        place = Place(channel=Channel.FEISHU, chat=event.chat_id, kind=ChatKind.PRIVATE)
        sender = Sender(external_id=open_id, name=await self._name(open_id))
        incoming = EntryIn(place=place, sender=sender)
        await self._intake.accept(incoming, dedupe=f"entered:{event.chat_id}")

    async def _added(self, event: events.AddedEvent, event_id: str) -> None:
        place = Place(
            channel=Channel.FEISHU, chat=event.chat_id, kind=ChatKind.GROUP, title=event.name
        )
        sender = Sender(external_id=event.operator_id.open_id)
        incoming = EntryIn(place=place, sender=sender)
        await self._intake.accept(incoming, dedupe=f"added:{event_id or event.chat_id}")

    async def _menu(self, event: events.MenuEvent, event_id: str) -> None:
        """A menu key is a command typed. The event names no chat, only the person: a chat id
        that is an open id is where to reach them just as well."""
        open_id = event.operator.operator_id.open_id
        chat = self._private.get(open_id, open_id)
        incoming = MessageIn(
            place=Place(channel=Channel.FEISHU, chat=chat, kind=ChatKind.PRIVATE),
            sender=Sender(external_id=open_id, name=event.operator.operator_name),
            message_id=f"menu:{event_id}",
            text=f"/{event.event_key.lstrip('/')}",
            addressed=True,
            sent_at=datetime.now(UTC),
        )
        await self._intake.accept(incoming, dedupe=f"menu:{event_id}")

    async def _press(self, event: events.ActionEvent) -> Mapping[str, Any]:
        value = event.action.value
        kind = kind_of(value)
        if event.context.open_chat_id in self._private.values():
            kind = ChatKind.PRIVATE
        incoming = PressIn(
            place=Place(
                channel=Channel.FEISHU,
                chat=event.context.open_chat_id,
                kind=kind,
                thread=thread_of(value),
            ),
            sender=Sender(external_id=event.operator.open_id),
            token=token_of(value, event.action.name),
            message_id=event.context.open_message_id,
            value=_picked(event.action),
            form=_filled(event.action.form_value or {}),
        )
        try:
            async with asyncio.timeout(_LAST_MOMENT):
                toast = await self._intake.press(incoming, dedupe=event.token, patience=_PATIENCE)
        except TimeoutError:
            return _generic("working", good=True)
        except Exception:  # the presser must see an answer; the log has the reason
            log.exception("feishu: a press could not be handled")
            return _generic("failed", good=False)
        return {"toast": {"type": _tone(toast), "content": toast.text}}


async def _known(known: dict[str, str], key: str, ask: Callable[[str], Awaitable[str]]) -> str:
    """What the platform says about it, asked once; nothing if it does not say so in time."""
    if key and key not in known:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP):
                known[key] = await ask(key)
    return known.get(key, "")


def _tone(toast: Toast) -> str:
    return "success" if toast.good else "warning"


def _generic(key: str, *, good: bool) -> Mapping[str, Any]:
    """An answer in both languages: the client picks its own."""
    chinese = words_for(Language.CHINESE)(f"render.feishu.{key}")
    english = words_for(Language.ENGLISH)(f"render.feishu.{key}")
    toast = {
        "type": "info" if good else "error",
        "content": english,
        "i18n": {"zh_cn": chinese, "en_us": english},
    }
    return {"toast": toast}


def _picked(action: events.Action) -> str:
    if action.option is not None:
        return action.option
    if action.options:
        return ",".join(action.options)
    return action.input_value or ""


def _filled(values: Mapping[str, Any]) -> dict[str, str]:
    """Form members under the names the card's view gave them: `~2` marks a renderer's twin."""
    filled: dict[str, str] = {}
    for name, value in values.items():
        base, _, number = name.rpartition("~")
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value or "")
        filled[base if base and number.isdigit() else name] = text
    return filled


def _when(milliseconds: str) -> datetime:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _summary(error: ValidationError) -> str:
    """Where it is wrong, without the content: messages do not belong in logs."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['type']}"
        for one in error.errors(include_input=False)[:3]
    )
