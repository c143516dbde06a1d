"""The incoming side of the mail room: stored before anything happens, handled once, in order."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeGuard

from bot.transports.alerts import Alerts
from bot.transports.answering import Answering
from bot.transports.attachments import Attachments
from bot.transports.base import Toast, Transport
from bot.transports.cleaning import cleaned, language_of
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from bot.transports.delivery import Delivery
from bot.transports.lanes import PIECES_WITHIN, Lanes, can_go_on, is_piece
from bot.transports.routing import Router
from cards.words import words_for
from handlers.request import Reply
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.mail.actions import Actions
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.mail.outbox import Outbox
from storage.records.messages import (
    EntryIn,
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    MessageIn,
    PressIn,
)
from storage.records.people import Channel, ChatId, ChatKind, Language

log = logging.getLogger(__name__)

TOO_OLD = timedelta(hours=12)
"""A message that arrives so long after it was sent is kept, but not acted on."""

_LONGEST_DEDUPE = 200
_HOUSEKEEPING = 24 * 3600.0


class Intake:
    """A service, and the Intake of bot.transports.base. `transports` may be filled until the
    first message with a file."""

    name = "intake"

    def __init__(
        self,
        *,
        db: Database,
        chats: Chats,
        inbox: Inbox,
        outbox: Outbox,
        actions: Actions,
        courier: OutboxCourier,
        delivery: Delivery,
        router: Router,
        transports: Mapping[Channel, Transport],
        home: Path,
        clock: Clock,
        alerts: Alerts,
        takes_up: bool = True,
    ) -> None:
        """Without `takes_up` what earlier lives have left stays where it is."""
        self._takes_up = takes_up
        self._db = db
        self._chats = chats
        self._inbox = inbox
        self._outbox = outbox
        self._actions = actions
        self._router = router
        self._clock = clock
        self._alerts = alerts
        self._answering = Answering(
            db=db,
            chats=chats,
            inbox=inbox,
            courier=courier,
            delivery=delivery,
            router=router,
            attachments=Attachments(transports=transports, home=home, clock=clock),
            clock=clock,
        )
        self._lanes = Lanes(self._work, clock)
        self._pieces: dict[tuple[str, ...], float] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        """Take up what was left unfinished. To be called before any transport starts."""
        await self._lanes.start(stack)
        if self._takes_up:
            await self.recover()

    async def run(self) -> None:
        """Forget what is long done, once a day."""
        while True:
            try:
                now = self._clock.now()
                rows, buttons = await self._inbox.prune(now=now), await self._actions.prune(now=now)
                if rows or buttons:
                    log.info("Forgot %s old arrivals and %s old buttons", rows, buttons)
            except StoreUnavailable as error:
                log.warning("Nothing can be forgotten now: %s", error)
            await self._clock.sleep(_HOUSEKEEPING)

    async def drain(self) -> None:
        """From now on what arrives is only stored: the next start takes it up, and what was being
        answered with it."""
        await self._lanes.close()

    async def recover(self) -> None:
        for row in await self._inbox.unfinished():
            self._dispatch(row)

    async def accept(self, incoming: MessageIn | EntryIn, *, dedupe: str) -> InboxId | None:
        if not _is_for_us(incoming):
            if not self._is_expected(incoming):
                return None
            incoming = replace(incoming, addressed=True)
        late = isinstance(incoming, MessageIn) and self._clock.now() - incoming.sent_at > TOO_OLD
        state = InboxState.HANDLED if late else InboxState.NEW
        row = await self._store(cleaned(incoming), dedupe, state)
        if row is None:
            return None
        if late:
            log.info("Inbox %s came too late to be acted on", row.id)
            return row.id
        self._expect_more(row.incoming)
        if self._lanes.closed:
            return row.id
        self._router.arriving(row)
        self._dispatch(row)
        if (refusal := await self._router.waiting(row)) is not None:
            await self._answering.send_away(row, refusal)
        return row.id

    async def press(self, incoming: PressIn, *, dedupe: str, patience: float) -> Toast:
        row = await self._store(cleaned(incoming), dedupe, InboxState.NEW)
        if row is None:
            known = words_for(language_of(incoming) or Language.ENGLISH)
            return Toast(text=known("mail.press_known"))
        words = await self._answering.words(row)
        if self._lanes.closed:
            return Toast(text=words("mail.restarting"))
        task = self._lanes.jump(row, self._answering.answer([row]))
        if not await self._in_time(task, patience):
            self._lanes.spawn(self._tell_late(task, row), f"late toast {row.id}")
            return Toast(text=words("mail.working"))
        reply = task.result()
        return Toast(text=reply.toast or words("mail.done"), good=reply.good)

    def take(self, row: InboxRow) -> None:
        """Work on what the house itself has put into the inbox, in its chat's turn."""
        if not self._lanes.closed:
            self._dispatch(row)

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        self._alerts.tell(channel, key, facts)

    async def finished(self, inbox_id: InboxId) -> None:
        """Wait until an arrival is handled; its reply is in the outbox then, if there is one."""
        await self._lanes.finished(inbox_id)

    def _expect_more(self, incoming: Incoming) -> None:
        """In a group only a text's first piece names us: the next ones are ours all the same."""
        now, kept = self._clock.elapsed(), PIECES_WITHIN.total_seconds()
        self._pieces = {who: at for who, at in self._pieces.items() if now - at <= kept}
        if isinstance(incoming, MessageIn) and is_piece(incoming):
            self._pieces[_writer(incoming)] = now
        else:
            self._pieces.pop(_writer(incoming), None)

    def _is_expected(self, incoming: MessageIn | EntryIn) -> TypeGuard[MessageIn]:
        if not isinstance(incoming, MessageIn) or not can_go_on(incoming):
            return False
        at = self._pieces.get(_writer(incoming))
        return at is not None and self._clock.elapsed() - at <= PIECES_WITHIN.total_seconds()

    async def _work(self, rows: Sequence[InboxRow]) -> None:
        await self._answering.answer(rows)

    def _dispatch(self, row: InboxRow) -> None:
        if self._jumps(row.incoming):
            self._lanes.jump(row, self._answering.answer([row]))
        else:
            self._lanes.put(row)

    def _jumps(self, incoming: Incoming) -> bool:
        if isinstance(incoming, MessageIn):
            return self._router.is_immediate(incoming)
        return isinstance(incoming, PressIn)

    async def _store(self, incoming: Incoming, dedupe: str, state: InboxState) -> InboxRow | None:
        now = self._clock.now()
        async with self._db.write() as tx:
            chat_id = await self._chat_of(tx, incoming)
            # Most are handled at once: their first attempt is counted without a second write.
            at_once = (
                state is InboxState.NEW
                and not self._lanes.closed
                and (self._jumps(incoming) or self._lanes.idle(chat_id, incoming))
            )
            row = await self._inbox.accept(
                tx,
                incoming,
                dedupe=_fitting(dedupe),
                chat_id=chat_id,
                now=now,
                state=state,
                attempts=int(at_once),
            )
        if row is not None and row.attempts:
            self._answering.begun(row)
        return row

    async def _chat_of(self, tx: Transaction, incoming: Incoming) -> ChatId:
        place = incoming.place
        if isinstance(incoming, PressIn):
            # Not every platform tells in which thread the pressed card stands; the store does.
            card = await self._outbox.at(place.channel, place.chat, incoming.message_id, tx)
            if card is not None:
                return card.chat_id
        chat = await self._chats.meet(tx, place, incoming.sender, self._clock.now())
        return chat.id

    async def _in_time(self, task: asyncio.Task[Reply], patience: float) -> bool:
        timer = asyncio.create_task(self._wait(patience), name="patience")
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return task.done() and not task.cancelled()

    async def _wait(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def _tell_late(self, task: asyncio.Task[Reply], row: InboxRow) -> None:
        """What a toast would have said comes as a card when nobody waits for the toast."""
        reply = await task
        if reply.card is None and reply.toast:
            await self._answering.tell(row, reply.toast, key=f"toast:{row.id}")


def _is_for_us(incoming: MessageIn | EntryIn) -> bool:
    if incoming.sender.is_bot:
        return False
    if isinstance(incoming, EntryIn):
        return True
    return incoming.addressed or incoming.place.kind is not ChatKind.GROUP


def _writer(incoming: Incoming) -> tuple[str, ...]:
    place = incoming.place
    return place.channel, place.chat, place.thread, incoming.sender.external_id


def _fitting(dedupe: str) -> str:
    if len(dedupe) <= _LONGEST_DEDUPE:
        return dedupe
    return hashlib.sha256(dedupe.encode("utf-8", "surrogatepass")).hexdigest()
