"""Ports between transports and the rest: what a platform must implement, what it may call, and the
clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cards.model import Card
from storage.records import messages
from storage.records.people import Channel, Chat, Language

if TYPE_CHECKING:
    from handlers.request import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage:
    """The latest revision of one logical message.

    `card` is sealed: every button has its token. `placed` is None for a first send.
    `idempotency_key` is stable per message and revision; pass it to platforms that deduplicate.
    `repeat` means that an earlier try may have arrived; mark the text accordingly, unless the
    platform deduplicates. `urgency` is for pacing; of a stream, `may_send` is asked before each
    edit of a message, which must be left out if it is False. `language` applies to texts that the
    transport adds. Where the platform cannot deduplicate, await `on_part` after each of several
    parts; a later try gets them in `placed`. With `files_only` the card is shown already; send
    its next file or album only.
    """

    outbox_id: messages.OutboxId
    chat: Chat
    card: Card
    revision: int
    urgency: messages.DeliveryUrgency
    idempotency_key: str
    reply_to: str = ""
    placed: messages.MessagePlacement | None = None
    repeat: bool = False
    files_only: bool = False
    language: Language = Language.ENGLISH
    on_part: Callable[[messages.MessagePlacement], Awaitable[None]] | None = field(
        default=None, compare=False
    )
    may_send: Callable[[], bool] = field(default=lambda: True, compare=False)


LanguageResolver: TypeAlias = Callable[[Chat, Card], Awaitable[Language]]
"""The language for a card in a chat. Implementations must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """A delivered message. `degraded` lists what the platform could not show, for the log.
    `files_left` is the number of files for the next turn, which waits behind the answers of others.
    """

    placed: messages.MessagePlacement
    degraded: tuple[str, ...] = ()
    files_left: int = 0


class DeliveryError(Exception):
    """Base of all errors of `deliver` and `fetch`; transports must translate platform errors."""


class DeliveryRateLimited(DeliveryError):
    """Retry after `retry_after` seconds. `whole_channel`: the limit is not this chat's."""

    def __init__(self, retry_after: float, *, whole_channel: bool = False) -> None:
        self.retry_after = retry_after
        self.whole_channel = whole_channel
        super().__init__(f"rate limited for {retry_after:g} s")


class ChatUnreachable(DeliveryError):
    """The chat accepts no messages (blocked, gone, not a member). Do not retry."""


class ContentRefused(DeliveryError):
    """The platform refuses this content in any form. Do not retry unchanged."""


class DeliveryUncertain(DeliveryError):
    """The message may have arrived: a timeout or lost connection after sending."""


class PlatformUnavailable(DeliveryError):
    """The message has not arrived but can be retried: connection refused, 5xx, token error."""


class FileTooLarge(DeliveryError):
    """The file exceeds the platform's or our own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressToast:
    """Short response to a button press; `good` is False if it was refused. `is_twin`: the card is a
    second copy, left by a crash while it was sent, that nothing updates; remove it."""

    text: str
    good: bool = True
    is_twin: bool = False


class InboxPort(Protocol):
    """The interface that transports call for incoming messages."""

    async def accept(
        self, incoming: messages.IncomingMessage | messages.IncomingChatOpen, *, dedupe: str
    ) -> messages.InboxId | None:
        """Store a message and queue it in its chat; returns when it is stored.

        Returns None for messages not meant for the bot and for duplicates: the same channel and
        `dedupe` key within at least 12 hours, including restarts.
        """
        ...

    async def press(
        self, incoming: messages.IncomingPress, *, dedupe: str, wait_seconds: float
    ) -> PressToast:
        """Store and handle a press. Responds within `wait_seconds`, with a neutral toast if the
        work continues."""
        ...

    async def recall(self, channel: Channel, *, dedupe: str) -> None:
        """Take back a message that its sender has recalled."""
        ...

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        """Report a channel's problem to the operator, in the log and on the status page, with the
        text `alert.<channel>.<key>`. An empty key clears it."""
        ...

    def connected(self, channel: Channel, account: str = "") -> None:
        """Report that the platform answers, for the first time or again, and to which account, so
        that waiting messages are sent at once."""
        ...


class Transport(Protocol):
    """One platform. `start` registers resources on the stack and must raise on programming errors
    only; invalid credentials are alerts, retried with backoff in `run`, which never returns."""

    channel: Channel

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...

    async def deliver(self, message: OutboundMessage) -> DeliveryResult:
        """Send the message or update the placed one. Must split, degrade and upload as needed, fall
        back to plain text, and raise DeliveryError only. Messages with files only are for turns
        with `files_only`, unless the card shows nothing else."""
        ...

    async def stream(self, message: OutboundMessage, markdown: str) -> None:
        """Show an unfinished answer at the platform's pace; the latest text wins. Best effort: must
        not raise DeliveryError or delay `deliver`."""
        ...

    async def show_typing(self, chat: Chat) -> None:
        """Show a typing indicator if the platform has one. Must not raise DeliveryError."""
        ...

    async def fetch(self, file: messages.RemoteFile, into: Path) -> Path:
        """Download a file into the folder and return its path. Raises FileTooLarge above 20 MB."""
        ...


MenuEntry: TypeAlias = tuple[str, str]
"""Command name and one-line help."""

CommandMenu: TypeAlias = Callable[[Language], tuple[MenuEntry, ...]]
"""The command menu in a language, for platforms that show one."""


class IncomingRouter(Protocol):
    def is_immediate(self, incoming: messages.IncomingMessage) -> bool:
        """True for control commands, which skip the queue."""
        ...

    def on_message_waiting(self, row: messages.InboxRow, mode: str) -> None:
        """Called for a new message, which may interrupt an answer in its chat, as `mode`
        (`ChatSettings.queue` when it was stored) says. Must not raise."""
        ...

    def is_command(self, incoming: messages.IncomingMessage) -> bool:
        """True for a command of ours that is not addressed to another bot."""
        ...

    def is_urgent(self, incoming: messages.IncomingMessage) -> bool:
        """True for commands that must never wait for their sender's pace."""
        ...

    def on_message_withdrawn(self, row: messages.InboxRow) -> None:
        """Called for a message that its sender has taken back. Must not raise."""
        ...

    async def waiting_notice(self, row: messages.InboxRow) -> str:
        """Called when the message is queued; says that it waits for an answer in progress, empty if
        there is nothing to say."""
        ...

    async def is_known_sender(self, incoming: messages.IncomingMessage) -> bool:
        """True if the sender has access; files of others are not downloaded."""
        ...

    async def find_task(self, row: messages.InboxRow) -> str:
        """The id of the unfinished task that this message has created; empty if there is none."""
        ...

    async def handle(
        self,
        row: messages.InboxRow,
        files: tuple[str, ...],
        interrupted: Sequence[messages.InboxRow] = (),
        missing: Sequence[str] = (),
    ) -> Reply:
        """Reply to a message, and to earlier ones that it interrupted, if they can be answered
        together. May be called again after a failure or crash. `files` are relative to the data
        directory; `missing` are the names of those that could not be fetched."""
        ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Current time, timezone-aware. It may jump."""
        ...

    def elapsed(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """This machine's clock, or the one of a store that several machines share: see `adjust`."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) - self._ahead

    def adjust(self, by: timedelta) -> None:
        """From now on tell a time that is later by this much."""
        self._ahead -= by

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_for_event(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait for the event, at most `seconds` if given."""
    if event.is_set():
        return
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(event.wait(), name="event")]
    if seconds is not None:
        waits.append(asyncio.create_task(clock.sleep(seconds), name="timer"))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
