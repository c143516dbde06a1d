"""The inbox service: stores everything that arrives, and has each message handled once and in
order.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from bot.transports.alerts import ChannelAlerts
from bot.transports.chat_queue import (
    FRAGMENT_WINDOW,
    PACE_BURST,
    ChatQueues,
    can_continue_fragment,
    is_fragment,
    sender_key,
)
from bot.transports.files import AttachmentFetcher
from bot.transports.held_messages import HeldMessages
from bot.transports.inbox_worker import InboxWorker
from bot.transports.limited_dict import LimitedDict
from bot.transports.outbox import OutboxCourier
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import Clock, IncomingRouter, PressToast, Transport
from bot.transports.reply_relay import ReplyRelay
from bot.transports.sanitize import detect_language, sanitize_incoming
from cards.catalog import catalog_for
from handlers.request import Reply
from storage.db import Database, Transaction, finish_despite_cancel
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.messages.card_actions import CardActionRepo
from storage.messages.chats import ChatRepo
from storage.messages.inbox import INBOX_RETENTION, InboxRepo
from storage.messages.outbox import OutboxRepo
from storage.records.messages import (
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    OutboxRow,
)
from storage.records.people import Channel, ChatId, ChatKind, ChatSettings, Language
from storage.restore import find_restore
from storage.shared_files import OneFolder, SharedFiles

log = logging.getLogger(__name__)


MAX_MESSAGE_AGE = timedelta(hours=12)
"""Messages delivered later than this are offered, not acted on."""

MAX_DELAYED = 1000
"""Messages of one sender in one chat that may wait for their pace; further ones are offered."""

MAX_RETRY_DELAY = 60.0
"""Maximum wait, in seconds, of a message that several lives of the process have started."""

REPLY_PATIENCE = 10.0
"""Seconds after which nobody comes any more for the reply to a press."""

_MAX_DEDUPE_LENGTH = 200
_PRUNE_INTERVAL = 24 * 3600.0
_MAX_OWN = 10_000


@dataclass(kw_only=True, eq=False)
class InboxService:
    """A service, and the implementation of `bot.transports.ports.InboxPort`. `transports` may be
    filled until the first message with a file arrives. With `resume_unfinished`, messages left by
    an earlier process are handled. Settled rows are kept for `retention`.

    If several processes share the store, the one that `leads` handles all messages, from `start`
    on. The others store what arrives, and wait for the reply if somebody waits for it.
    """

    name = "inbox"

    db: Database
    chats: ChatRepo
    inbox: InboxRepo
    outbox: OutboxRepo
    actions: CardActionRepo
    courier: OutboxCourier
    outbox_sender: OutboxSender
    held: HeldMessages
    router: IncomingRouter
    transports: Mapping[Channel, Transport]
    home: Path
    clock: Clock
    alerts: ChannelAlerts
    resume_unfinished: bool = True
    leads: bool = True
    files: SharedFiles = field(default_factory=OneFolder)
    retention: Callable[[], timedelta] = lambda: INBOX_RETENTION
    _restored_at: datetime | None = field(default=None, init=False)
    _fragment_senders: dict[tuple[str, ...], float] = field(default_factory=dict, init=False)
    _asked: dict[str, Reply | None] = field(default_factory=dict, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _taken_up: InboxId | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._own: LimitedDict[InboxId, bool] = LimitedDict(_MAX_OWN)
        self._relay = ReplyRelay(self.inbox, self.clock)
        self._worker = InboxWorker(
            db=self.db,
            chats=self.chats,
            inbox=self.inbox,
            courier=self.courier,
            outbox_sender=self.outbox_sender,
            router=self.router,
            attachments=AttachmentFetcher(
                transports=self.transports, home=self.home, clock=self.clock, files=self.files
            ),
            clock=self.clock,
            on_reply=self._note_reply,
        )
        self._queues = ChatQueues(self._worker.handle, self.clock)
        self.held.on_release = self.enqueue

    async def start(self, stack: AsyncExitStack) -> None:
        """Resume unfinished messages. Must be called before any transport starts."""
        restored = await find_restore(KeyValueStore(self.db))
        self._restored_at = restored.restored_at if restored else None
        self.leads = True
        # All that an outage may prevent comes first, so that the start can be repeated.
        left = await self.inbox.list_unfinished() if self.resume_unfinished else ()
        untold = await self.inbox.list_untaken() if self.resume_unfinished else ()
        await self._queues.start(stack)
        self._recover(left)
        for row in untold:
            self._follow_with_card(row)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._prune_daily(), name="prune the inbox")
            group.create_task(self._take_up_arrivals(), name="messages of other processes")

    async def _prune_daily(self) -> None:
        while True:
            try:
                now = self.clock.now()
                rows = await self.inbox.prune(now=now, keep=self.retention())
                buttons = await self.actions.prune(now=now)
                if rows or buttons:
                    log.info("Deleted %s old inbox rows and %s old buttons", rows, buttons)
            except StoreUnavailable as error:
                log.warning("Old rows cannot be deleted now: %s", error)
            await self.clock.sleep(_PRUNE_INTERVAL)

    async def drain(self) -> None:
        """Only store messages from now on. The next start handles them, and those in progress."""
        await self._queues.close()

    def _recover(self, left: Sequence[InboxRow]) -> None:
        """Resume the messages of earlier and of other processes. A chat whose message was started
        several times waits first, so that a process that keeps dying does not use up its attempts.
        """
        chats: dict[ChatId, list[InboxRow]] = {}
        for row in left:
            self._taken_up = row.id
            if row.id in self._own:
                # It has come since this process leads, which handles it already.
                continue
            self._worker.note_relayed(row)
            chats.setdefault(row.chat_id, []).append(row)
        for chat_id, rows in chats.items():
            attempts = max(row.attempts for row in rows)
            at_once = [row for row in rows if self._bypasses_queue(row.incoming)]
            if attempts > 1:
                self._queues.hold(chat_id)
                delay = min(MAX_RETRY_DELAY, 2.0**attempts)
                retry = self._retry_later(chat_id, at_once, delay)
                self._queues.spawn(retry, f"backoff of {chat_id}")
            for row in rows:
                if attempts <= 1 or row not in at_once:
                    self._route(row)

    async def _retry_later(
        self, chat_id: ChatId, at_once: Sequence[InboxRow], delay: float
    ) -> None:
        await self.clock.sleep(delay)
        self._queues.release(chat_id)
        for row in at_once:
            self._route(row)

    def notify_stored(self, inbox_id: InboxId | None) -> None:
        """Call this when another process may have stored or settled it (None: any)."""
        self._relay.notify_changed(inbox_id)
        if inbox_id is None:
            self._taken_up = None
        elif inbox_id in self._own or (self._taken_up is not None and inbox_id <= self._taken_up):
            return
        self._arrived.set()

    async def _take_up_arrivals(self) -> None:
        """Handle what other processes have stored."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            try:
                rows = await self.inbox.list_unfinished(self._taken_up)
            except StoreUnavailable as error:
                log.warning("Messages of other processes cannot be read now: %s", error)
                continue
            for row in rows:
                self._taken_up = max(row.id, self._taken_up or row.id)
                if row.id not in self._own and not self._queues.is_pending(row.id):
                    await self._take_up(row)

    async def _take_up(self, row: InboxRow) -> None:
        if self._queues.is_closed:
            return
        self._worker.note_relayed(row)
        if isinstance(row.incoming, IncomingPress):
            self._queues.run_now(row, self._worker.handle([row], shows_toast=True))
            self._follow_with_card(row)
            return
        try:
            # Only this process knows how many messages of a sender wait, and of a restore.
            if await self._must_be_held(row.incoming) and await self._hold(row):
                return
            chat = await self.chats.get(row.chat_id)
            await self._begin(row, chat.settings)
        except StoreUnavailable as error:
            log.warning("Inbox %s is taken up later: %s", row.id, error)

    async def _hold(self, row: InboxRow) -> bool:
        words = await self._worker.load_words(row)
        async with self.db.write() as tx:
            if not await self.inbox.hold(tx, row.id):
                return False
            await self.held.offer(tx, row.chat_id, words)
        self.courier.wake()
        return True

    def _follow_with_card(self, row: InboxRow) -> None:
        """Show the result of a press as a card if the process that was to answer it dies first."""
        if isinstance(row.incoming, IncomingPress):
            self._queues.spawn(self._tell_untaken(row), f"untold reply to {row.id}")

    async def _tell_untaken(self, row: InboxRow) -> None:
        await self.wait_handled(row.id)
        await self.clock.sleep(REPLY_PATIENCE)
        reply = await self._worker.retry_while_store_fails(lambda: self._relay.look(row.id))
        if reply is not None:
            await self._notify_late_result(reply, row)
            await self._worker.retry_while_store_fails(lambda: self.inbox.take_reply(row.id))

    async def accept(
        self, incoming: IncomingMessage | IncomingChatOpen, *, dedupe: str
    ) -> InboxId | None:
        # A transport may be stopped at any moment, and what is stored must be queued too.
        return await finish_despite_cancel(self._accept(incoming, dedupe, leads=self.leads))

    async def ask(self, incoming: IncomingMessage, *, dedupe: str) -> Reply | None:
        """Accept a message, wait until it is handled and return the reply; None if there is none
        to this message, such as for a repeated one."""
        leads, name = self.leads, incoming.message_id
        self._asked[name] = None
        try:
            inbox_id = await finish_despite_cancel(
                self._accept(incoming, dedupe, leads=leads, expects_reply=not leads)
            )
            if inbox_id is None:
                return None
            if not leads:
                return await self._relay.wait(inbox_id)
            await self.wait_handled(inbox_id)
            return self._asked[name]
        finally:
            del self._asked[name]

    def _note_reply(self, row: InboxRow, reply: Reply) -> None:
        if isinstance(row.incoming, IncomingMessage) and row.incoming.message_id in self._asked:
            self._asked[row.incoming.message_id] = reply

    async def _accept(
        self,
        incoming: IncomingMessage | IncomingChatOpen,
        dedupe: str,
        *,
        leads: bool,
        expects_reply: bool = False,
    ) -> InboxId | None:
        """Store an event and handle it if this process leads. `leads` is asked once, because it
        changes while this process takes over; what it has not stored as the leader is taken up
        later.
        """
        if not _is_addressed_to_bot(incoming):
            if not isinstance(incoming, IncomingMessage) or not (
                self._continues_fragment(incoming) or await self._is_own_command(incoming)
            ):
                return None
            incoming = replace(incoming, addressed=True)
        cleaned = sanitize_incoming(incoming)
        state = InboxState.HELD if await self._must_be_held(cleaned) else InboxState.NEW
        row, settings = await self._store(
            cleaned, dedupe, state, leads=leads, expects_reply=expects_reply
        )
        if row is None:
            return None
        if state is InboxState.HELD or isinstance(incoming, IncomingChatOpen):
            # An open chat gets what it was closed to, also if there is no answer.
            self.courier.wake()
        if state is InboxState.NEW and leads:
            await self._begin(row, settings)
        return row.id

    async def _begin(self, row: InboxRow, settings: ChatSettings) -> None:
        self._track_fragments(row.incoming)
        if self._queues.is_closed:
            return
        delayed = self._queues.count_delayed(row.incoming)
        self.router.on_message_waiting(row, settings.queue)
        self._route(row)
        if not delayed and self._queues.count_delayed(row.incoming):
            await self._notify_delayed(row)
        else:
            await self._worker.show_waiting(row)

    async def _is_own_command(self, incoming: IncomingMessage) -> bool:
        """Whether a command without the bot's name, in a group, is one that cards print. Commands
        of strangers may be meant for other bots.
        """
        if incoming.sender.is_bot:
            return False
        return self.router.is_command(incoming) and await self.router.is_known_sender(incoming)

    async def _must_be_held(self, incoming: Incoming) -> bool:
        """Whether a message is too late or one of too many; never asked of strangers."""
        if not isinstance(incoming, IncomingMessage):
            return False
        if self._is_from_before_restore(incoming):
            return await self.router.is_known_sender(incoming)
        if self._is_exempt(incoming):
            return False
        late = self.clock.now() - incoming.sent_at > MAX_MESSAGE_AGE
        if not late and self._queues.count_delayed(incoming) < MAX_DELAYED:
            return False
        return await self.router.is_known_sender(incoming)

    def _is_exempt(self, incoming: Incoming) -> bool:
        """Whether neither age nor pace delays the message."""
        if not isinstance(incoming, IncomingMessage):
            return isinstance(incoming, IncomingPress)
        return bool(incoming.told) or self.router.is_urgent(incoming)

    async def _notify_delayed(self, row: InboxRow) -> None:
        incoming = row.incoming
        if isinstance(incoming, IncomingMessage) and await self.router.is_known_sender(incoming):
            words = await self._worker.load_words(row)
            text = words("queue.paced", n=PACE_BURST)
            await self._worker.notify(row, text, key=f"paced:{row.id}")

    async def press(
        self, incoming: IncomingPress, *, dedupe: str, wait_seconds: float
    ) -> PressToast:
        return await finish_despite_cancel(self._press(incoming, dedupe, wait_seconds))

    async def _press(self, incoming: IncomingPress, dedupe: str, wait_seconds: float) -> PressToast:
        leads, cleaned = self.leads, sanitize_incoming(incoming)
        row, _ = await self._store(
            cleaned, dedupe, InboxState.NEW, leads=leads, expects_reply=not leads
        )
        if row is None:
            known = catalog_for(detect_language(incoming) or Language.ENGLISH)
            return PressToast(text=known("mail.press_known"))
        words = await self._worker.load_words(row)
        if self._queues.is_closed:
            return PressToast(text=words("mail.restarting"))
        # Asked first, because the press changes the card.
        is_twin = await self._is_twin(incoming, row.chat_id)
        if leads:
            task = self._queues.run_now(row, self._worker.handle([row], shows_toast=True))
        else:
            task = self._queues.spawn(self._relay.wait(row.id), f"reply to {row.id}")
        if not await self._finishes_within(task, wait_seconds):
            self._queues.spawn(self._await_late_result(task, row), f"late toast {row.id}")
            return PressToast(text=words("mail.working"))
        reply = task.result()
        return PressToast(
            text=reply.toast or words("mail.done"),
            good=reply.good,
            is_twin=is_twin,
        )

    async def recall(self, channel: Channel, *, dedupe: str) -> None:
        """Take back a message for its sender. If it was not started, it is dropped; otherwise a
        command in the sender's name stops its answer or task."""
        async with self.db.write() as tx:
            row = await self.inbox.find(tx, channel, _shorten_dedupe_key(dedupe))
            if row is None or not isinstance(row.incoming, IncomingMessage):
                return
            is_new = row.state is InboxState.NEW
            withdrawn = row.state is InboxState.HELD or (is_new and await self._withdraw(tx, row))
            if withdrawn:
                words = await self._worker.load_words(row)
                await self._worker.end_waiting(tx, row, words("queue.recalled"))
                await self.inbox.settle(tx, {row.id: "dropped"}, now=self.clock.now())
        if withdrawn:
            self.router.on_message_withdrawn(row)
            self.courier.wake()
            return
        task = await self.router.find_task(row)
        if not task and row.state is not InboxState.NEW:
            return
        said = replace(
            row.incoming,
            message_id=f"recalled:{row.incoming.message_id}",
            text=f"/stop {task}".strip(),
            addressed=True,
            sent_at=self.clock.now(),
            attachments=(),
            reply_to="",
        )
        await self.accept(said, dedupe=f"recalled:{dedupe}")

    async def _withdraw(self, tx: Transaction, row: InboxRow) -> bool:
        """Withdraw the row; False if its handling has begun."""
        if self.leads:
            return self._queues.withdraw(row.id)
        return await self.inbox.drop_untried(tx, row.id, now=self.clock.now())

    async def _is_twin(self, incoming: IncomingPress, chat_id: ChatId) -> bool:
        """Whether the press was on a second copy of the card, which nothing updates."""
        action = await self.actions.get_action(incoming.token)
        card = None if action is None else await self.outbox.find_by_key(action.card_key)
        if card is None or incoming.message_id in _messages_of(card):
            return False
        if not card.maybe_delivered:
            return card.placement is not None
        if card.chat_id == chat_id and not incoming.place.channel.recognizes_repeats:
            async with self.db.write() as tx:
                await self.outbox.adopt_copy(tx, card.id, incoming.message_id)
        return False

    def enqueue(self, row: InboxRow) -> None:
        """Queue a row that Shiftboss itself has stored."""
        if not self._queues.is_closed:
            self._route(row)

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        self.alerts.report(channel, key, facts)

    def connected(self, channel: Channel, account: str = "") -> None:
        self.alerts.connected(channel, account)
        self.outbox_sender.connected(channel)

    async def wait_handled(self, inbox_id: InboxId) -> None:
        """Wait until this process has handled a message of its own; its reply is in the outbox
        then.
        """
        await self._queues.wait_handled(inbox_id)

    def _is_from_before_restore(self, incoming: IncomingMessage) -> bool:
        """Whether the message is older than the restored backup, so that the store cannot know
        whether it was handled. Compared in whole seconds, as platforms count.
        """
        return (
            self._restored_at is not None
            and not incoming.quiet
            and incoming.sent_at < self._restored_at.replace(microsecond=0)
        )

    def _track_fragments(self, incoming: Incoming) -> None:
        """Treat later fragments of a text as addressed: only the first mentions the bot."""
        now, kept = self.clock.elapsed(), FRAGMENT_WINDOW.total_seconds()
        self._fragment_senders = {
            who: at for who, at in self._fragment_senders.items() if now - at <= kept
        }
        if isinstance(incoming, IncomingMessage) and is_fragment(incoming):
            self._fragment_senders[sender_key(incoming)] = now
        else:
            self._fragment_senders.pop(sender_key(incoming), None)

    def _continues_fragment(self, incoming: IncomingMessage) -> bool:
        if not can_continue_fragment(incoming):
            return False
        at = self._fragment_senders.get(sender_key(incoming))
        return at is not None and self.clock.elapsed() - at <= FRAGMENT_WINDOW.total_seconds()

    def _route(self, row: InboxRow) -> None:
        self._queues.enqueue(
            row,
            immediate=self._bypasses_queue(row.incoming),
            paced=not self._is_exempt(row.incoming),
        )

    def _bypasses_queue(self, incoming: Incoming) -> bool:
        if isinstance(incoming, IncomingMessage):
            return self.router.is_immediate(incoming)
        return isinstance(incoming, IncomingPress)

    async def _store(
        self,
        incoming: Incoming,
        dedupe: str,
        state: InboxState,
        *,
        leads: bool,
        expects_reply: bool = False,
    ) -> tuple[InboxRow | None, ChatSettings]:
        """Store the event with its chat's settings at that time. Returns the new row, or None for a
        duplicate.
        """
        now = self.clock.now()
        async with self.db.write() as tx:
            chat_id, settings = await self._resolve_chat(tx, incoming)
            # Most messages are handled at once, so the first attempt is counted here without a
            # second write.
            at_once = (
                leads
                and state is InboxState.NEW
                and not self._queues.is_closed
                and (self._bypasses_queue(incoming) or self._queues.is_idle(chat_id, incoming))
                and (self._is_exempt(incoming) or not self._queues.is_too_fast(incoming))
            )
            row = await self.inbox.accept(
                tx,
                incoming,
                dedupe=_shorten_dedupe_key(dedupe),
                chat_id=chat_id,
                now=now,
                state=state,
                attempts=int(at_once),
            )
            if row is not None and leads:
                self._own[row.id] = True
            if row is not None and expects_reply:
                await self.inbox.expect_reply(tx, row.id)
            if row is not None and state is InboxState.HELD:
                language = settings.language or detect_language(incoming)
                await self.held.offer(tx, chat_id, catalog_for(language or Language.ENGLISH))
        if row is not None and row.attempts:
            self._worker.note_first_attempt(row)
        return row, settings

    async def _resolve_chat(
        self, tx: Transaction, incoming: Incoming
    ) -> tuple[ChatId, ChatSettings]:
        """The event's chat with its settings; presses need no settings."""
        place = incoming.place
        if isinstance(incoming, IncomingPress):
            # Some platforms do not name the thread of a pressed card; the store does.
            card = await self.outbox.find_by_platform_message(
                place.channel, place.chat, incoming.message_id, tx
            )
            if card is not None:
                return card.chat_id, ChatSettings()
        chat = await self.chats.get_or_create(tx, place, incoming.sender, self.clock.now())
        return chat.id, chat.settings

    async def _finishes_within(self, task: asyncio.Task[Reply], wait_seconds: float) -> bool:
        timer = asyncio.create_task(self.clock.sleep(wait_seconds), name="patience")
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return task.done() and not task.cancelled()

    async def _await_late_result(self, task: asyncio.Task[Reply], row: InboxRow) -> None:
        await self._notify_late_result(await task, row)

    async def _notify_late_result(self, reply: Reply, row: InboxRow) -> None:
        """Send the result as a card, since the toast can no longer be shown."""
        if reply.card is None and reply.toast:
            await self._worker.notify(row, reply.toast, key=f"toast:{row.id}")


def _is_addressed_to_bot(incoming: IncomingMessage | IncomingChatOpen) -> bool:
    if isinstance(incoming, IncomingChatOpen):
        return not incoming.sender.is_bot
    if incoming.sender.is_bot and not incoming.sender.anonymous:
        return False
    return incoming.addressed or incoming.place.kind is not ChatKind.GROUP


def _messages_of(card: OutboxRow) -> Sequence[str]:
    return () if card.placement is None else card.placement.message_ids


def _shorten_dedupe_key(dedupe: str) -> str:
    if len(dedupe) <= _MAX_DEDUPE_LENGTH:
        return dedupe
    return hashlib.sha256(dedupe.encode("utf-8", "surrogatepass")).hexdigest()
