"""What a platform must offer, and what it may call: the two sides of every transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from cards.model import Card
from storage.records.messages import (
    EntryIn,
    InboxId,
    MessageIn,
    OutboxId,
    Placed,
    PressIn,
    RemoteFile,
    Urgency,
)
from storage.records.people import Channel, Chat, Language


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One logical message to show, newest revision only.

    `card` is sealed: every button carries its token. `placed` is None for a first send, else
    where the message is. `uuid` is stable per (message, revision): hand it to platforms that
    deduplicate. `repeat` says an earlier try of this very send may have arrived: mark the text
    so, unless the platform deduplicates. `urgency` is what pacing may hold back first. `language`
    is that of the words a transport adds itself: forms, notes, a card shown as text. `on_part` is
    to be awaited after each message of a letter of several, where the platform does not know a
    repeated one again: what is out by then is `placed` when it is tried again.
    """

    outbox_id: OutboxId
    chat: Chat
    card: Card
    revision: int
    urgency: Urgency
    uuid: str
    reply_to: str = ""
    placed: Placed | None = None
    repeat: bool = False
    language: Language = Language.ENGLISH
    on_part: Callable[[Placed], Awaitable[None]] | None = field(default=None, compare=False)


LanguageOf: TypeAlias = Callable[[Chat, Card], Awaitable[Language]]
"""The language in which a card is read in a chat. Never raises: in doubt it guesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A letter that is shown. `degraded` lists what the platform could not show, for the log."""

    placed: Placed
    degraded: tuple[str, ...] = ()


class DeliveryError(Exception):
    """Base of what a transport may raise from `deliver` and `fetch`; everything of the
    platform's own is translated into one of these."""


class RateLimited(DeliveryError):
    """Come back in `retry_after` seconds. `whole_channel` where the limit is not this chat's."""

    def __init__(self, retry_after: float, *, whole_channel: bool = False) -> None:
        self.retry_after = retry_after
        self.whole_channel = whole_channel
        super().__init__(f"rate limited for {retry_after:g} s")


class Unreachable(DeliveryError):
    """This chat will not take messages: blocked, gone, not a member. Do not try again."""


class Refused(DeliveryError):
    """The platform will not take this content in any form we know. Do not try again as it is."""


class Ambiguous(DeliveryError):
    """Nobody knows whether it arrived: a time-out or a cut connection after sending."""


class Unavailable(DeliveryError):
    """It certainly did not arrive, and may do so later: connection refused, 5xx, token trouble."""


class TooLarge(DeliveryError):
    """A file is larger than the platform, or our own limit, allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toast:
    """The small answer to a press. `good` False means refused."""

    text: str
    good: bool = True


class Intake(Protocol):
    """What a transport calls when something arrives."""

    async def accept(self, incoming: MessageIn | EntryIn, *, dedupe: str) -> InboxId | None:
        """Store it, then have it handled in the chat's order. Returns when it is stored.

        None: not for us, or seen before under the same (channel, `dedupe`) within at least
        12 hours, restarts included.
        """
        ...

    async def press(self, incoming: PressIn, *, dedupe: str, patience: float) -> Toast:
        """Store and handle a press; the answer comes within `patience` seconds, if need be a
        neutral one while the work goes on."""
        ...

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        """Tell the operator, in the log and on the status page, what is wrong with a channel
        and where to fix it: catalogue text `alert.<channel>.<key>`. An empty key says that all
        is well again."""
        ...


class Transport(Protocol):
    """One platform. `start` puts resources on the stack and fails only on programming errors:
    wrong credentials are alerts, tried again with backoff in `run`, which never returns."""

    channel: Channel

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...

    async def deliver(self, letter: Letter) -> Delivery:
        """Show the letter: send it, or change what is placed. Splits, degrades, uploads files,
        falls back to plain text; raises DeliveryError only."""
        ...

    async def stream(self, letter: Letter, markdown: str) -> None:
        """Show an answer in the making, paced by the transport, newest text wins. Best effort:
        never raises DeliveryError, never delays `deliver`."""
        ...

    async def typing(self, chat: Chat) -> None:
        """Show that work is going on, where the platform can. Best effort, never raises
        DeliveryError."""
        ...

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        """Download what a person sent into the folder and return the file's path. At most
        20 MB, else TooLarge."""
        ...


MenuEntry: TypeAlias = tuple[str, str]
"""A command's name and its one-line help."""

Menu: TypeAlias = Callable[[Language], tuple[MenuEntry, ...]]
"""The command menu in one language, for platforms that show one."""
