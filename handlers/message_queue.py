"""Handles messages that arrive while an answer is being written, and their queue."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from cards.catalog import TextCatalog
from cards.courier import Courier
from cards.model import Card, notice_card
from handlers.chat import check_may_choose
from handlers.errors import UserError
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request, Silence
from storage.errors import StoreUnavailable
from storage.records.messages import DeliveryUrgency, InboxId, InboxRow, IncomingMessage
from storage.records.people import ChatId, ChatKind

log = logging.getLogger(__name__)

MAX_SHOWN = 20
"""Waiting messages of one chat that are shown their position; further ones wait as well."""

INTERRUPT_MODE = "cut"
WAIT_MODE = "wait"
_MODE_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("cut", "interrupt", "打断"), INTERRUPT_MODE),
    **dict.fromkeys(("wait", "queue", "排队", "等待"), WAIT_MODE),
    **dict.fromkeys(("auto", "default", "自动", "默认"), ""),
}
_SPLIT_MESSAGE_LENGTH = 3500
"""A text this long may be the first part of a split message."""

_HELD_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("handle", "处理"), True),
    **dict.fromkeys(("drop", "忽略"), False),
}

commands = CommandRegistry("talk")


@commands("queue", aliases=("排队",), immediate=True)
async def choose_queue_mode(request: Request) -> Reply:
    word = request.args.strip().casefold()
    request.services.conversations.set_queue_mode(request.chat.id, request.chat.settings.queue)
    if not word:
        return _mode_reply(request, "queue.now")
    if word in _HELD_WORDS:
        return Reply(card=await decide_held(request, handle=_HELD_WORDS[word]))
    if word not in _MODE_WORDS:
        raise UserError("queue_word", word=request.args[:40])
    await check_may_choose(request)
    settings = replace(request.chat.settings, queue=_MODE_WORDS[word])
    await request.services.people.update_chat_settings(request.chat, settings)
    request.services.conversations.set_queue_mode(request.chat.id, settings.queue)
    return _mode_reply(request, "queue.changed")


async def decide_held(request: Request, *, handle: bool) -> Card:
    """Have the chat's held messages handled, or leave them unanswered; in a group owners only,
    because they act in the name of those who wrote them."""
    if not request.in_private:
        request.require_owner()
    held = request.services.held
    done = await (held.release if handle else held.drop)(request.chat.id)
    key = ("held.handled" if handle else "held.dropped") if done else "held.none"
    return notice_card("", request.words(key, n=done))


def _mode_reply(request: Request, key: str) -> Reply:
    waits = request.services.conversations.queues_messages(request.chat.id)
    how = request.words(f"queue.{WAIT_MODE if waits else INTERRUPT_MODE}")
    card = notice_card(request.words("queue.title"), request.words(key, how=how))
    return Reply(card=card, data={"queue": WAIT_MODE if waits else INTERRUPT_MODE})


class WaitingMessages:
    """Tracks, by chat, messages that wait for an answer to end. For display only: the inbox stores
    them and has them answered in order."""

    def __init__(self) -> None:
        self._waiting_ids: dict[ChatId, list[InboxId]] = {}
        self._shown: dict[str, InboxRow] = {}
        self._split_message_chats: set[ChatId] = set()

    def add(self, row: InboxRow) -> None:
        self._waiting_ids.setdefault(row.chat_id, []).append(row.id)

    def start_turn(self, row: InboxRow) -> None:
        """Start this message's turn, and that of all before it."""
        rows = [each for each in self._waiting_ids.pop(row.chat_id, []) if each > row.id]
        if rows:
            self._waiting_ids[row.chat_id] = rows
        else:
            self._split_message_chats.discard(row.chat_id)

    async def show_position(self, row: InboxRow, courier: Courier, words: TextCatalog) -> None:
        """Show the position in the place of the answer."""
        rows = self._waiting_ids.get(row.chat_id, [])[:MAX_SHOWN]
        if row.id in rows and not self._needs_no_answer(row):
            self._shown[row.source] = row
            await _send_notice(courier, row, words("queue.waits", n=rows.index(row.id) + 1))

    async def finish_turn(
        self, row: InboxRow, reply: Reply, courier: Courier, words: TextCatalog
    ) -> None:
        """Update the position notices of messages whose answer appears elsewhere."""
        for source in reply.joined:
            if (earlier := self._shown.pop(source, None)) is not None:
                await _send_notice(courier, earlier, words("queue.joined"))
        if row.source not in self._shown or reply.silence is Silence.INTERRUPTED:
            return
        del self._shown[row.source]
        if reply.card is None or reply.key:
            await _send_notice(courier, row, words("queue.taken"))

    def count_waiting(self, chat_id: ChatId) -> int:
        return len(self._waiting_ids.get(chat_id, ()))

    def _needs_no_answer(self, row: InboxRow) -> bool:
        """Files without text and parts of a split message get no answer of their own."""
        message = row.incoming
        if not isinstance(message, IncomingMessage) or not message.text.strip():
            return True
        if len(message.text) >= _SPLIT_MESSAGE_LENGTH:
            self._split_message_chats.add(row.chat_id)
        return row.chat_id in self._split_message_chats


async def _send_notice(courier: Courier, row: InboxRow, text: str) -> None:
    message = row.incoming
    in_group = isinstance(message, IncomingMessage) and message.place.kind is ChatKind.GROUP
    try:
        await courier.send(
            row.chat_id,
            notice_card("", text),
            key=f"reply:{row.id}",
            urgency=DeliveryUrgency.ANSWER,
            reply_to=message.message_id
            if in_group and isinstance(message, IncomingMessage)
            else "",
        )
    except StoreUnavailable as error:
        # The message waits nevertheless.
        log.warning("The waiting status of a message cannot be shown: %s", error)
