"""Rate limits of platforms: token buckets, windows, and pauses after refusals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from storage.records.messages import DeliveryUrgency
from storage.records.people import Channel, ChatKind

# Extra pause for streaming and typing indicators after a refusal, so that answers go first.
_COSMETIC_PAUSE = 5.0
# The share of a window that progress and files leave to whatever is more urgent.
_WINDOW_RESERVES = {DeliveryUrgency.PROGRESS: 0.4, DeliveryUrgency.FILES: 0.2}
_MAX_TRACKED_CHATS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """`burst` messages at once, then `per_second`."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimit:
    """At most `count` in any `seconds`."""

    count: int
    seconds: float


AnyLimit: TypeAlias = RateLimit | WindowLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """The limits of a scope, which apply together; an empty one is unlimited. `edit_interval` is
    the number of seconds between two progress edits of one card.
    """

    private: tuple[AnyLimit, ...] = ()
    group: tuple[AnyLimit, ...] = ()
    overall: tuple[AnyLimit, ...] = ()
    edit_interval: float = 0.0

    def for_chat_kind(self, kind: ChatKind) -> tuple[AnyLimit, ...]:
        return self.group if kind is ChatKind.GROUP else self.private


CHANNEL_LIMITS: Mapping[Channel, ChannelLimits] = {
    Channel.TELEGRAM: ChannelLimits(
        private=(RateLimit(per_second=1, burst=3),),
        # The platform's limit is twenty in any minute; the second over is for the way there.
        group=(RateLimit(per_second=1, burst=5), WindowLimit(count=20, seconds=61)),
        overall=(RateLimit(per_second=25, burst=5),),
        edit_interval=1.0,
    ),
    Channel.FEISHU: ChannelLimits(
        private=(RateLimit(per_second=4, burst=1),),
        group=(RateLimit(per_second=4, burst=1),),
        overall=(
            RateLimit(per_second=40, burst=10),
            # The platform's second limit is a thousand in any minute.
            RateLimit(per_second=15, burst=100),
        ),
        edit_interval=1.0,
    ),
    Channel.WEB: ChannelLimits(),
}


class ChannelRateLimiter:
    """Rate limiter of one channel. `elapsed` is monotonic, in seconds."""

    def __init__(self, limits: ChannelLimits, elapsed: Callable[[], float]) -> None:
        self._limits = limits
        self._elapsed = elapsed
        self._overall = [_meter(limit, elapsed()) for limit in limits.overall]
        self._chats: dict[str, list[_Meter]] = {}
        self._paused_until: dict[str, float] = {}
        self._channel_paused_until = float("-inf")
        self._outage_until = float("-inf")

    @property
    def edit_interval(self) -> float:
        """Seconds between two progress edits of one card."""
        return self._limits.edit_interval

    def get_delay(
        self, chat: str, kind: ChatKind, urgency: DeliveryUrgency, messages: int = 1
    ) -> float:
        """Seconds until that many messages of this urgency may be sent together; 0 means now."""
        now = self._elapsed()
        cosmetic = urgency is DeliveryUrgency.PROGRESS
        rest = self._remaining_pause(chat, now, extra=_COSMETIC_PAUSE if cosmetic else 0.0)
        buckets = [*self._overall, *self._buckets_for_chat(chat, kind)]
        return max([rest, *(each.get_delay(now, messages, urgency) for each in buckets)])

    def consume(self, chat: str, kind: ChatKind, messages: int = 1) -> None:
        """Count sent messages; the balance may become negative for a message of many parts."""
        now = self._elapsed()
        for each in (*self._overall, *self._buckets_for_chat(chat, kind)):
            each.consume(now, messages)

    def try_consume(self, chat: str, kind: ChatKind, urgency: DeliveryUrgency) -> bool:
        """Count one message if it may be sent now."""
        allowed = self.get_delay(chat, kind, urgency) <= 0
        if allowed:
            self.consume(chat, kind)
        return allowed

    def pause(self, seconds: float, *, chat: str | None = None) -> None:
        """Pause one chat, or the whole channel."""
        until = self._elapsed() + seconds
        if chat is None:
            self._channel_paused_until = max(self._channel_paused_until, until)
        else:
            self._paused_until[chat] = max(self._paused_until.get(chat, until), until)

    def pause_for_outage(self, seconds: float) -> None:
        """Pause the channel until `end_outage`, at most for this time."""
        self._outage_until = self._elapsed() + seconds

    def end_outage(self) -> None:
        self._outage_until = float("-inf")

    def is_paused(self, chat: str) -> bool:
        """True while streaming and typing indicators must pause."""
        return self._remaining_pause(chat, self._elapsed(), extra=_COSMETIC_PAUSE) > 0

    def _remaining_pause(self, chat: str, now: float, *, extra: float) -> float:
        resting = max(self._channel_paused_until, self._paused_until.get(chat, float("-inf")))
        until = max(resting, self._outage_until) + extra
        if chat in self._paused_until and self._paused_until[chat] + _COSMETIC_PAUSE <= now:
            del self._paused_until[chat]
        return max(0.0, until - now)

    def _buckets_for_chat(self, chat: str, kind: ChatKind) -> list[_Meter]:
        if chat not in self._chats:
            now = self._elapsed()
            if len(self._chats) >= _MAX_TRACKED_CHATS:
                self._drop_full_buckets(now)
            self._chats[chat] = [_meter(limit, now) for limit in self._limits.for_chat_kind(kind)]
        return self._chats[chat]

    def _drop_full_buckets(self, now: float) -> None:
        """A full bucket equals a new one."""
        self._chats = {
            chat: buckets
            for chat, buckets in self._chats.items()
            if not all(each.is_full(now) for each in buckets)
        }


class _TokenBucket:
    def __init__(self, limit: RateLimit, now: float) -> None:
        self._limit = limit
        self._tokens = limit.burst
        self._refilled_at = now

    def get_delay(self, now: float, messages: int, urgency: DeliveryUrgency) -> float:
        """Seconds until the bucket allows it. Progress keeps one token for more urgent messages if
        the bucket holds several.
        """
        reserve = urgency is DeliveryUrgency.PROGRESS and self._limit.burst > 1
        need = min(messages + reserve, self._limit.burst)
        return max(0.0, (need - self._refill(now)) / self._limit.per_second)

    def consume(self, now: float, messages: int) -> None:
        self._tokens = self._refill(now) - messages

    def is_full(self, now: float) -> bool:
        return self._refill(now) >= self._limit.burst

    def _refill(self, now: float) -> float:
        gained = (now - self._refilled_at) * self._limit.per_second
        self._tokens = min(self._limit.burst, self._tokens + gained)
        self._refilled_at = now
        return self._tokens


class _Window:
    """The times of the messages in one window."""

    def __init__(self, limit: WindowLimit) -> None:
        self._limit = limit
        self._times: deque[float] = deque()

    def get_delay(self, now: float, messages: int, urgency: DeliveryUrgency) -> float:
        """Seconds until the window allows it. Progress and files keep a share of it for more urgent
        messages.
        """
        self._forget(now)
        allowed = self._limit.count
        allowed -= math.ceil(allowed * _WINDOW_RESERVES.get(urgency, 0.0))
        over = len(self._times) + min(messages, allowed) - 1 - allowed
        return 0.0 if over < 0 else self._times[over] + self._limit.seconds - now

    def consume(self, now: float, messages: int) -> None:
        self._times.extend([now] * messages)

    def is_full(self, now: float) -> bool:
        self._forget(now)
        return not self._times

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] + self._limit.seconds <= now:
            self._times.popleft()


_Meter: TypeAlias = _TokenBucket | _Window


def _meter(limit: AnyLimit, now: float) -> _Meter:
    return _Window(limit) if isinstance(limit, WindowLimit) else _TokenBucket(limit, now)
