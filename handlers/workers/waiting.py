"""What a newer message does to an answer in the making, and who waits in line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from cards.courier import Courier
from cards.model import Card
from cards.views.errors import notice_card
from cards.words import Words
from handlers.access.choosing import check_choice
from handlers.errors import UserError
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.errors import StoreUnavailable
from storage.records.messages import InboxId, InboxRow, MessageIn, Urgency
from storage.records.people import ChatId, ChatKind

log = logging.getLogger(__name__)

MOST_WAITING = 20
"""Messages of one chat that wait for an answer's end; what comes beyond is asked to come again."""

CUT = "cut"
WAIT = "wait"
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("cut", "interrupt", "打断"), CUT),
    **dict.fromkeys(("wait", "queue", "排队", "等待"), WAIT),
    **dict.fromkeys(("auto", "default", "自动", "默认"), ""),
}
_PIECE = 3500
"""A text so long may be the first of several that are one message."""

commands = Commands("talk")


@commands("queue", usage="[cut|wait|auto]", aliases=("排队",), immediate=True)
async def queue(request: Request) -> Reply:
    """Show or choose whether a newer message cuts an answer short or waits for its end."""
    chosen = request.args.strip().casefold()
    request.services.talk.queue(request.chat.id, request.chat.settings.queue)
    if not chosen:
        return _told(request, "queue.now")
    if chosen not in _WORDS:
        raise UserError("queue_word", word=request.args[:40])
    await check_choice(request)
    settings = replace(request.chat.settings, queue=_WORDS[chosen])
    await request.services.people.adjust(request.chat, settings)
    request.services.talk.queue(request.chat.id, settings.queue)
    return _told(request, "queue.changed")


def _told(request: Request, key: str) -> Reply:
    waits = request.services.talk.waits(request.chat.id)
    how = request.words(f"queue.{WAIT if waits else CUT}")
    card = notice_card(request.words("queue.title"), request.words(key, how=how))
    return Reply(card=card, data={"queue": WAIT if waits else CUT})


class Line:
    """Messages that wait for an answer's end, by chat. It is for the eye only: the inbox keeps
    them, and after a restart they are answered in their order all the same, but for those that
    were sent away."""

    def __init__(self) -> None:
        self._rows: dict[ChatId, list[InboxId]] = {}
        self._shown: set[InboxId] = set()
        self._refused: dict[ChatId, set[InboxId]] = {}
        self._pieces: set[ChatId] = set()

    def join(self, row: InboxRow) -> None:
        rows = self._rows.setdefault(row.chat_id, [])
        if len(rows) < MOST_WAITING:
            rows.append(row.id)
        else:
            self._refused.setdefault(row.chat_id, set()).add(row.id)

    def begins(self, row: InboxRow) -> bool:
        """Its turn has come, and that of all before it; False if it was sent away."""
        rows = [each for each in self._rows.pop(row.chat_id, []) if each > row.id]
        if rows:
            self._rows[row.chat_id] = rows
        else:
            self._pieces.discard(row.chat_id)
        refused = self._refused.pop(row.chat_id, set())
        if left := {each for each in refused if each > row.id}:
            self._refused[row.chat_id] = left
        return row.id not in refused

    async def show(self, row: InboxRow, courier: Courier, words: Words) -> Reply | None:
        """Say that it waits, in the place of its answer. The reply to one too many, which is all
        that becomes of it."""
        rows = self._rows.get(row.chat_id, [])
        if row.id in self._refused.get(row.chat_id, ()):
            return Reply(card=notice_card("", words("queue.full", n=len(rows))))
        if row.id in rows and not self._belongs_to_others(row):
            self._shown.add(row.id)
            await _send(courier, row, words("queue.waits", n=rows.index(row.id) + 1))
        return None

    async def close(self, row: InboxRow, reply: Reply, courier: Courier, words: Words) -> None:
        """What was shown in the place of the answer, where the answer has another place."""
        if row.id not in self._shown:
            return
        self._shown.discard(row.id)
        if reply.card is None or reply.key:
            await _send(courier, row, words("queue.taken"))

    def waiting(self, chat_id: ChatId) -> int:
        return len(self._rows.get(chat_id, ()))

    def _belongs_to_others(self, row: InboxRow) -> bool:
        """A file without words and a piece of a text get no answer of their own."""
        said = row.incoming
        if not isinstance(said, MessageIn) or not said.text.strip():
            return True
        if len(said.text) >= _PIECE:
            self._pieces.add(row.chat_id)
        return row.chat_id in self._pieces


async def _send(courier: Courier, row: InboxRow, text: str) -> None:
    card: Card = notice_card("", text)
    said = row.incoming
    in_group = isinstance(said, MessageIn) and said.place.kind is ChatKind.GROUP
    try:
        await courier.send(
            row.chat_id,
            card,
            key=f"reply:{row.id}",
            urgency=Urgency.ANSWER,
            reply_to=said.message_id if in_group and isinstance(said, MessageIn) else "",
        )
    except StoreUnavailable as error:
        # It waits all the same.
        log.warning("That a message waits cannot be shown: %s", error)
