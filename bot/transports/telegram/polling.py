"""Receiving: store first, confirm later, and never fall silent.

Telegram takes the offset of the next getUpdates as "all before it is safe with me". So the offset
moves only when everything before it is stored; after a crash the same updates come again and the
intake knows them by their key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from telegram import CallbackQuery, Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from bot.transports.base import Intake, Menu
from bot.transports.telegram.albums import joined
from bot.transports.telegram.api import Client
from bot.transports.telegram.errors import reason, seconds
from bot.transports.telegram.incoming import Arrived, Me, read_update
from bot.transports.telegram.menu import publish
from bot.transports.telegram.presses import Presses
from storage.errors import StoreUnavailable
from storage.records.people import Channel

ALLOWED = ("message", "edited_message", "callback_query", "my_chat_member")

_ALBUM_ROUNDS = 5
_BATCH = 100
# Fewer failures in a row than this are not worth anybody's attention.
_QUIET_FAILURES = 3

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds. `stall` is how long beyond `poll` silence may last; `album_gap` how long to wait
    for further pictures of an album."""

    poll: float = 30.0
    stall: float = 30.0
    album_gap: float = 0.6
    network: tuple[float, float] = (1.0, 30.0)
    conflict: tuple[float, float] = (5.0, 60.0)
    token: tuple[float, float] = (30.0, 300.0)
    store: tuple[float, float] = (1.0, 30.0)


@dataclass(slots=True, kw_only=True)
class Poller:
    client: Client
    intake: Intake
    presses: Presses
    menu: Menu
    address: str
    pace: Pace
    sleep: Sleep
    _me: Me | None = None
    _offset: int = 0
    _failures: int = 0
    _alert: str = field(default="")

    async def run(self) -> None:
        """Receive for ever; every failure is an alert and another try."""
        async with asyncio.TaskGroup() as background:
            while True:
                await self._guarded_round(background)

    async def _guarded_round(self, background: asyncio.TaskGroup) -> None:
        try:
            await self._round(background)
        except RetryAfter as error:
            await self.sleep(seconds(error))
        except TelegramError as error:
            await self.sleep(self._complain(error))
        except TimeoutError:
            self._say("stalled", seconds=round(self.pace.poll + self.pace.stall))
            await self.client.reopen_polling()
        else:
            self._failures = 0
            self._say("")

    async def _round(self, background: asyncio.TaskGroup) -> None:
        me = self._me or await self._connect()
        # After trouble a short look first: the all-clear should not wait for a message.
        updates = await self._fetch(0 if self._failures or self._alert else self.pace.poll)
        if any(_album(update) for update in updates):
            updates = await self._await_albums(updates)
        await self._store(updates, me, background)
        # After an empty answer everything is confirmed. Starting from nothing again keeps a
        # restart of Telegram's numbering from hiding updates behind an old offset.
        self._offset = max((u.update_id + 1 for u in updates), default=0)

    async def _connect(self) -> Me:
        """Learn who we are, and make sure that polling is how updates come."""
        user = await self.client.bot.get_me()
        await self.client.bot.delete_webhook()
        self._me = Me(id=user.id, username=user.username or "")
        await publish(self.client.bot, self.menu)
        log.info("Telegram: receiving as @%s", self._me.username)
        return self._me

    async def _fetch(self, wait: float) -> Sequence[Update]:
        async with asyncio.timeout(wait + self.pace.stall):
            try:
                return await self.client.bot.get_updates(
                    offset=self._offset or None,
                    limit=_BATCH,
                    timeout=int(wait),
                    allowed_updates=ALLOWED,
                )
            except (AttributeError, KeyError, TypeError, ValueError):
                # One malformed update spoils the whole answer: read it piece by piece.
                return await self._fetch_singly()

    async def _fetch_singly(self) -> Sequence[Update]:
        raw = await self.client.bot.do_api_request(
            # Spelt unlike the method, which the library would have us call instead.
            "GetUpdates",
            {"offset": self._offset, "limit": _BATCH, "timeout": 0},
        )
        return [self._parse(one) for one in raw if isinstance(one, dict) and "update_id" in one]

    def _parse(self, raw: dict[str, object]) -> Update:
        try:
            return Update.de_json(raw, self.client.bot)
        except (AttributeError, KeyError, TypeError, ValueError):
            number = int(str(raw["update_id"]))
            log.warning("Telegram update %s cannot be read and is left out", number)
            return Update(number)

    async def _await_albums(self, updates: Sequence[Update]) -> Sequence[Update]:
        """Pieces of an album come one by one; unconfirmed, they all come again."""
        for _ in range(_ALBUM_ROUNDS):
            seen = sum(1 for update in updates if _album(update))
            await self.sleep(self.pace.album_gap)
            updates = await self._fetch(0) or updates
            if len(updates) >= _BATCH or sum(1 for u in updates if _album(u)) <= seen:
                break
        return updates

    async def _store(
        self, updates: Sequence[Update], me: Me, background: asyncio.TaskGroup
    ) -> None:
        """Hand everything in, messages in order; returns when all is stored."""
        steps = [step for update in updates if (step := self._read(update, me))]
        async with asyncio.TaskGroup() as presses:
            for step in joined(steps):
                if isinstance(step, Arrived):
                    await self._accept(step)
                else:
                    presses.create_task(self.presses.take(step, background), name="telegram press")

    def _read(self, update: Update, me: Me) -> Arrived | CallbackQuery | None:
        if update.callback_query:
            return update.callback_query
        try:
            return read_update(update, me)
        except (AttributeError, KeyError, TypeError, ValueError):
            log.exception("Telegram update %s is left out", update.update_id)
            return None

    async def _accept(self, arrived: Arrived) -> None:
        """Store one message, however long it takes: confirming it unstored would lose it."""
        attempt = 0
        while True:
            try:
                await self.intake.accept(arrived.incoming, dedupe=arrived.dedupe)
            except Exception as error:
                # The store may fail in any way (a full disk, a locked file); the message is
                # still safe with Telegram, so wait here rather than go on.
                known = isinstance(error, StoreUnavailable)
                log.warning("A message waits with Telegram: %s", error, exc_info=not known)
                self._say("store")
                await self.sleep(_wait(self.pace.store, attempt))
                attempt += 1
            else:
                return

    def _complain(self, error: TelegramError) -> float:
        """Alert the operator as the error deserves; the seconds to wait."""
        attempt, self._failures = self._failures, self._failures + 1
        if isinstance(error, InvalidToken):
            self._me = None
            wait = _wait(self.pace.token, attempt)
            self._say("token", seconds=round(wait))
            return wait
        if isinstance(error, Conflict):
            # The conflict may also be a webhook somebody set: connecting removes it.
            self._me = None
            wait = _wait(self.pace.conflict, attempt)
            self._say("conflict", seconds=round(wait))
            return wait
        if self._me is None or self._failures >= _QUIET_FAILURES:
            self._say("network", address=self.address, reason=reason(error))
        return _wait(self.pace.network, attempt)

    def _say(self, key: str, **facts: object) -> None:
        """One alert per trouble, and one all-clear."""
        if key != self._alert:
            self._alert = key
            self.intake.alert(Channel.TELEGRAM, key, **facts)


def _wait(limits: tuple[float, float], attempt: int) -> float:
    first, most = limits
    return min(most, first * float(1 << min(attempt, 16)))


def _album(update: Update) -> bool:
    return update.message is not None and update.message.media_group_id is not None
