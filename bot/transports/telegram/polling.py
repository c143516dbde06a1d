"""Receives Telegram updates by long polling.

getUpdates confirms all updates before its offset. The offset therefore advances only after they are
stored; updates repeated after a crash are dropped by their dedupe key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from telegram import CallbackQuery, Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from bot.transports.ports import CommandMenu, InboxPort
from bot.transports.telegram.api import (
    TelegramClient,
    describe_failure,
    publish_command_menu,
    retry_after_seconds,
)
from bot.transports.telegram.incoming import (
    TelegramArrival,
    TelegramBotIdentity,
    TelegramPressHandler,
    merge_albums,
    parse_update,
)
from storage.errors import StoreUnavailable
from storage.records.people import Channel

ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")

_MAX_ALBUM_ROUNDS = 5
_BATCH_SIZE = 100
# Fewer consecutive failures cause no alert.
_QUIET_FAILURES = 3

log = logging.getLogger(__name__)

AsyncSleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramPollPace:
    """Intervals in seconds. `stall` is the permitted silence beyond `poll`; `album_gap` is the wait
    for further parts of an album."""

    poll: float = 30.0
    stall: float = 30.0
    album_gap: float = 0.6
    network: tuple[float, float] = (1.0, 30.0)
    conflict: tuple[float, float] = (5.0, 60.0)
    token: tuple[float, float] = (30.0, 300.0)
    store: tuple[float, float] = (1.0, 30.0)


@dataclass(slots=True, kw_only=True)
class TelegramPoller:
    client: TelegramClient
    inbox: InboxPort
    press_handler: TelegramPressHandler
    menu: CommandMenu
    address: str
    pace: TelegramPollPace
    sleep: AsyncSleep
    _identity: TelegramBotIdentity | None = None
    _offset: int = 0
    _failures: int = 0
    _is_new: bool = True
    _active_alert: str = field(default="")

    async def run(self) -> None:
        """Receive updates forever; failures are reported and retried."""
        async with asyncio.TaskGroup() as background:
            while True:
                await self._poll_safely(background)

    async def _poll_safely(self, background: asyncio.TaskGroup) -> None:
        try:
            await self._poll_once(background)
        except RetryAfter as error:
            await self.sleep(retry_after_seconds(error))
        except TelegramError as error:
            await self.sleep(self._handle_error(error))
        except TimeoutError:
            self._alert_on_change("stalled", seconds=round(self.pace.poll + self.pace.stall))
            await self.client.reopen_polling()
        else:
            if self._is_brief:
                self.inbox.connected(Channel.TELEGRAM, self._account)
            self._is_new = False
            self._failures = 0
            self._alert_on_change("")

    async def _poll_once(self, background: asyncio.TaskGroup) -> None:
        me = self._identity or await self._connect()
        updates = await self._fetch(0 if self._is_brief else self.pace.poll)
        if any(_is_album_part(update) for update in updates):
            updates = await self._await_albums(updates)
        await self._store(updates, me, background)
        # After an empty response everything is confirmed. Resetting the offset ensures that a
        # renumbering by Telegram does not hide updates.
        self._offset = max((u.update_id + 1 for u in updates), default=0)

    @property
    def _is_brief(self) -> bool:
        """At first and after a failure: to report the connection without waiting for a message."""
        return self._is_new or bool(self._failures or self._active_alert)

    @property
    def _account(self) -> str:
        return f"@{self._identity.username}" if self._identity else ""

    async def _connect(self) -> TelegramBotIdentity:
        """Load the bot's identity and remove any webhook."""
        user = await self.client.bot.get_me()
        await self.client.bot.delete_webhook()
        self._identity = TelegramBotIdentity(id=user.id, username=user.username or "")
        await publish_command_menu(self.client.bot, self.menu)
        log.info("Telegram: receiving as @%s", self._identity.username)
        return self._identity

    async def _fetch(self, wait: float) -> Sequence[Update]:
        async with asyncio.timeout(wait + self.pace.stall):
            try:
                return await self.client.bot.get_updates(
                    offset=self._offset or None,
                    limit=_BATCH_SIZE,
                    timeout=int(wait),
                    allowed_updates=ALLOWED_UPDATES,
                )
            except (AttributeError, KeyError, TypeError, ValueError):
                # One malformed update invalidates the whole response, so updates are parsed one by
                # one.
                return await self._fetch_singly()

    async def _fetch_singly(self) -> Sequence[Update]:
        raw = await self.client.bot.do_api_request(
            # Spelled differently from the method so that the library does not call it.
            "GetUpdates",
            {"offset": self._offset, "limit": _BATCH_SIZE, "timeout": 0},
        )
        return [self._parse_raw(one) for one in raw if isinstance(one, dict) and "update_id" in one]

    def _parse_raw(self, raw: dict[str, object]) -> Update:
        try:
            return Update.de_json(raw, self.client.bot)
        except (AttributeError, KeyError, TypeError, ValueError):
            number = int(str(raw["update_id"]))
            log.warning("Telegram update %s cannot be read; skipped", number)
            return Update(number)

    async def _await_albums(self, updates: Sequence[Update]) -> Sequence[Update]:
        """Wait for further parts of an album; unconfirmed updates are returned again."""
        for _ in range(_MAX_ALBUM_ROUNDS):
            seen = sum(1 for update in updates if _is_album_part(update))
            await self.sleep(self.pace.album_gap)
            updates = await self._fetch(0) or updates
            if len(updates) >= _BATCH_SIZE or sum(1 for u in updates if _is_album_part(u)) <= seen:
                break
        return updates

    async def _store(
        self,
        updates: Sequence[Update],
        identity: TelegramBotIdentity,
        background: asyncio.TaskGroup,
    ) -> None:
        """Store all updates, messages in order."""
        steps = [step for update in updates if (step := self._parse_update(update, identity))]
        async with asyncio.TaskGroup() as presses:
            for step in merge_albums(steps):
                if isinstance(step, TelegramArrival):
                    await self._accept(step)
                else:
                    presses.create_task(
                        self.press_handler.handle(step, background), name="telegram press"
                    )

    def _parse_update(
        self, update: Update, identity: TelegramBotIdentity
    ) -> TelegramArrival | CallbackQuery | None:
        if update.callback_query:
            return update.callback_query
        try:
            return parse_update(update, identity)
        except (AttributeError, KeyError, TypeError, ValueError):
            log.exception("Telegram update %s is skipped", update.update_id)
            return None

    async def _accept(self, arrived: TelegramArrival) -> None:
        """Retry until the message is stored: confirming it earlier would lose it."""
        attempt = 0
        while True:
            try:
                await self.inbox.accept(arrived.incoming, dedupe=arrived.dedupe)
            except Exception as error:
                # The store may fail in any way (full disk, locked file). Telegram still holds the
                # message, so retrying is safe.
                known = isinstance(error, StoreUnavailable)
                log.warning("Telegram keeps a message for now: %s", error, exc_info=not known)
                self._alert_on_change("store")
                await self.sleep(_backoff(self.pace.store, attempt))
                attempt += 1
            else:
                return

    def _handle_error(self, error: TelegramError) -> float:
        """Report the error; returns the seconds to wait."""
        attempt, self._failures = self._failures, self._failures + 1
        if isinstance(error, InvalidToken | Conflict):
            # A conflict may be caused by a webhook, which connecting removes.
            self._identity = None
            bad_token = isinstance(error, InvalidToken)
            wait = _backoff(self.pace.token if bad_token else self.pace.conflict, attempt)
            self._alert_on_change("token" if bad_token else "conflict", seconds=round(wait))
            return wait
        if self._identity is None or self._failures >= _QUIET_FAILURES:
            self._alert_on_change("network", address=self.address, reason=describe_failure(error))
        return _backoff(self.pace.network, attempt)

    def _alert_on_change(self, key: str, **facts: object) -> None:
        """Report each problem and its end once."""
        if key != self._active_alert:
            self._active_alert = key
            self.inbox.alert(Channel.TELEGRAM, key, **facts)


def _backoff(limits: tuple[float, float], attempt: int) -> float:
    first, most = limits
    return min(most, first * float(1 << min(attempt, 16)))


def _is_album_part(update: Update) -> bool:
    return update.message is not None and update.message.media_group_id is not None
