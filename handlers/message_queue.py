"""Handles messages that arrive while an answer is being written, and their queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cards.model import Card, notice_card
from handlers.errors import UserError
from handlers.request import CommandRegistry, Reply, Request, check_may_choose
from storage.records.messages import InboxId, InboxRow, IncomingMessage
from storage.records.people import ChatId

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
    if not word:
        return _mode_reply(request, request.chat.settings.queue, "queue.now")
    if word in _HELD_WORDS:
        return Reply(card=await decide_held(request, handle=_HELD_WORDS[word]))
    if word not in _MODE_WORDS:
        raise UserError("queue_word", word=request.args[:40])
    await check_may_choose(request)
    mode = _MODE_WORDS[word]
    await request.services.people.update_chat_settings(request.chat, queue=mode)
    return _mode_reply(request, mode, "queue.changed")


async def decide_held(request: Request, *, handle: bool) -> Card:
    """Have the chat's held messages handled, or leave them unanswered; in a group owners only,
    because they act in the name of those who wrote them."""
    if not request.in_private:
        request.require_owner()
    held = request.services.held
    done = await (held.release if handle else held.drop)(request.chat.id)
    key = ("held.handled" if handle else "held.dropped") if done else "held.none"
    return notice_card("", request.words(key, n=done))


def _mode_reply(request: Request, mode: str, key: str) -> Reply:
    waits = request.services.conversations.queues_messages(mode)
    how = request.words(f"queue.{WAIT_MODE if waits else INTERRUPT_MODE}")
    card = notice_card(request.words("queue.title"), request.words(key, how=how))
    return Reply(card=card, data={"queue": WAIT_MODE if waits else INTERRUPT_MODE})


class WaitingMessages:
    """Tracks, by chat, messages that wait for an answer to end. For display only: the inbox stores
    them and has them answered in order."""

    def __init__(self) -> None:
        self._waiting_ids: dict[ChatId, list[InboxId]] = {}
        self._split_message_chats: set[ChatId] = set()

    def add(self, row: InboxRow) -> None:
        self._waiting_ids.setdefault(row.chat_id, []).append(row.id)

    def remove(self, row: InboxRow) -> None:
        """Forget a message that was taken back."""
        self._keep(row.chat_id, lambda each: each != row.id)

    def start_turn(self, row: InboxRow) -> None:
        """Start this message's turn, and that of all before it."""
        self._keep(row.chat_id, lambda each: each > row.id)

    def get_position(self, row: InboxRow) -> int:
        """The message's place in the line, from 1; 0 if it is not to be shown."""
        rows = self._waiting_ids.get(row.chat_id, [])[:MAX_SHOWN]
        return rows.index(row.id) + 1 if row.id in rows and not self._needs_no_answer(row) else 0

    def count_waiting(self, chat_id: ChatId) -> int:
        return len(self._waiting_ids.get(chat_id, ()))

    def _keep(self, chat_id: ChatId, waits: Callable[[InboxId], bool]) -> None:
        rows = [each for each in self._waiting_ids.pop(chat_id, []) if waits(each)]
        if rows:
            self._waiting_ids[chat_id] = rows
        else:
            self._split_message_chats.discard(chat_id)

    def _needs_no_answer(self, row: InboxRow) -> bool:
        """Files without text and parts of a split message get no answer of their own."""
        message = row.incoming
        if not isinstance(message, IncomingMessage) or not message.text.strip():
            return True
        if len(message.text) >= _SPLIT_MESSAGE_LENGTH:
            self._split_message_chats.add(row.chat_id)
        return row.chat_id in self._split_message_chats
