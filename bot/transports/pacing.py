"""How fast a platform may be spoken to: token buckets, and rests after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage.records.messages import Urgency
from storage.records.people import Channel, ChatKind

# After a refusal what is only for the eye waits this much longer: the answer goes first.
_COSMETIC_REST = 5.0
_IDLE_BUCKETS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """`burst` at once, then `per_second`."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPace:
    """All limits of a scope hold together; none means no limit."""

    private: tuple[Limit, ...] = ()
    group: tuple[Limit, ...] = ()
    overall: tuple[Limit, ...] = ()

    def of_chat(self, kind: ChatKind) -> tuple[Limit, ...]:
        return self.group if kind is ChatKind.GROUP else self.private


PACES: Mapping[Channel, ChannelPace] = {
    Channel.TELEGRAM: ChannelPace(
        private=(Limit(per_second=1, burst=3),),
        # Twenty in any minute, however they fall: a few at once, the rest spread out.
        group=(Limit(per_second=15 / 60, burst=5),),
        overall=(Limit(per_second=25, burst=5),),
    ),
    Channel.FEISHU: ChannelPace(
        private=(Limit(per_second=4, burst=1),),
        group=(Limit(per_second=4, burst=1),),
        overall=(
            Limit(per_second=40, burst=10),
            # A thousand in any minute is the platform's second limit.
            Limit(per_second=15, burst=100),
        ),
    ),
    Channel.WEB: ChannelPace(),
}


class Pace:
    """One channel's pace. `elapsed` is a clock in seconds that never jumps."""

    def __init__(self, limits: ChannelPace, elapsed: Callable[[], float]) -> None:
        self._limits = limits
        self._elapsed = elapsed
        self._overall = [_Bucket(limit, elapsed()) for limit in limits.overall]
        self._chats: dict[str, list[_Bucket]] = {}
        self._resting: dict[str, float] = {}
        self._channel_rests_until = float("-inf")

    def delay(self, chat: str, kind: ChatKind, urgency: Urgency) -> float:
        """Seconds until a message of this urgency may go there; 0 means now."""
        now = self._elapsed()
        cosmetic = urgency is Urgency.PROGRESS
        rest = self._rest_left(chat, now, extra=_COSMETIC_REST if cosmetic else 0.0)
        buckets = [*self._overall, *self._of(chat, kind)]
        return max([rest, *(each.delay(now, spare=cosmetic) for each in buckets)])

    def take(self, chat: str, kind: ChatKind, messages: int = 1) -> None:
        """Note what was sent; a bucket may go into debt for a message of many parts."""
        now = self._elapsed()
        for each in (*self._overall, *self._of(chat, kind)):
            each.take(now, messages)

    def rest(self, seconds: float, *, chat: str | None = None) -> None:
        """Send nothing for a while: to one chat, or at all."""
        until = self._elapsed() + seconds
        if chat is None:
            self._channel_rests_until = max(self._channel_rests_until, until)
        else:
            self._resting[chat] = max(self._resting.get(chat, until), until)

    def rests(self, chat: str) -> bool:
        """True while what is only for the eye must not be sent there."""
        return self._rest_left(chat, self._elapsed(), extra=_COSMETIC_REST) > 0

    def _rest_left(self, chat: str, now: float, *, extra: float) -> float:
        until = max(self._channel_rests_until, self._resting.get(chat, float("-inf"))) + extra
        if chat in self._resting and self._resting[chat] + _COSMETIC_REST <= now:
            del self._resting[chat]
        return max(0.0, until - now)

    def _of(self, chat: str, kind: ChatKind) -> list[_Bucket]:
        if chat not in self._chats:
            now = self._elapsed()
            if len(self._chats) >= _IDLE_BUCKETS:
                self._forget_full(now)
            self._chats[chat] = [_Bucket(limit, now) for limit in self._limits.of_chat(kind)]
        return self._chats[chat]

    def _forget_full(self, now: float) -> None:
        """A full bucket is as good as a new one."""
        self._chats = {
            chat: buckets
            for chat, buckets in self._chats.items()
            if not all(each.full(now) for each in buckets)
        }


class _Bucket:
    def __init__(self, limit: Limit, now: float) -> None:
        self._limit = limit
        self._level = limit.burst
        self._at = now

    def delay(self, now: float, *, spare: bool) -> float:
        """`spare` leaves one token for what is more urgent, where the bucket holds several."""
        need = 2.0 if spare and self._limit.burst > 1 else 1.0
        return max(0.0, (need - self._fill(now)) / self._limit.per_second)

    def take(self, now: float, messages: int) -> None:
        self._level = self._fill(now) - messages

    def full(self, now: float) -> bool:
        return self._fill(now) >= self._limit.burst

    def _fill(self, now: float) -> float:
        gained = (now - self._at) * self._limit.per_second
        self._level = min(self._limit.burst, self._level + gained)
        self._at = now
        return self._level
