"""One chat's budget is spent on what people wait for: a simulation on the real store and limits."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.transports.rate_limits import CHANNEL_LIMITS, ChannelRateLimiter
from storage.records.messages import DeliveryUrgency, MessagePlacement
from storage.records.people import Channel
from tests.migrated_database import open_database
from tests.storage.message_store import START, MessageStore, group

_TASKS = ("a", "b", "c")
_STEP = 0.5


class GroupOnTelegram:
    """The messages that a group sees, second by second, with its own clock."""

    def __init__(self, room: MessageStore) -> None:
        self.room = room
        self.shown: dict[str, tuple[str, float]] = {}
        self.sent_at: list[float] = []
        self._limiter = ChannelRateLimiter(CHANNEL_LIMITS[Channel.TELEGRAM], lambda: self.at)

    @property
    def at(self) -> float:
        return (self.room.now - START).total_seconds()

    async def pass_time(self, seconds: float) -> None:
        until = self.at + seconds
        while self.at < until:
            while await self._deliver_next():
                pass
            self.room.advance(seconds=_STEP)

    async def _deliver_next(self) -> bool:
        outbox, now = self.room.outbox, self.room.now
        for head in (await outbox.list_due(Channel.TELEGRAM, now=now)).deliveries:
            if not self._limiter.try_consume(head.external_id, head.kind, head.urgency):
                continue
            async with self.room.db.write() as tx:
                tried = await outbox.begin_attempt(tx, head.id)
            assert tried is not None
            self.shown[tried.row.key] = (str(tried.row.card["title"]), self.at)
            self.sent_at.append(self.at)
            await outbox.mark_shown(
                tried,
                MessagePlacement(message_ids=(f"m{head.id}",)),
                revision=tried.row.revision,
                now=now,
                edit_at=now + timedelta(seconds=self._limiter.edit_interval),
            )
            return True
        return False


async def test_three_tasks_of_a_group_show_their_start_and_their_end_within_three_seconds(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        await _run_three_tasks(MessageStore(db))


async def _run_three_tasks(room: MessageStore) -> None:
    chat, seen = await room.chat(group()), GroupOnTelegram(room)
    for task in _TASKS:
        await room.put(chat, "waiting", key=task, urgency=DeliveryUrgency.ANSWER)
    await seen.pass_time(1)

    changed: dict[tuple[str, str], float] = {}
    lags = {}
    for second in range(120):
        for number, task in enumerate(_TASKS):
            begins, ends = 1 + number, 90 + 4 * number
            if second in {begins, ends}:
                state = "running" if second == begins else "done"
                urgency = DeliveryUrgency.NOTICE if second == begins else DeliveryUrgency.ANSWER
                await room.put(chat, state, key=task, urgency=urgency)
                changed[task, state] = seen.at
                if second == ends:
                    await room.put(chat, "result", key=f"result of {task}")
            elif begins < second < ends:
                state = f"running {second}"
                await room.put(chat, state, key=task, urgency=DeliveryUrgency.PROGRESS)
        await seen.pass_time(1)
        for (task, state), since in changed.items():
            text, at = seen.shown[task]
            if text.startswith(state) and (task, state) not in lags:
                lags[task, state] = at - since

    assert lags.keys() == changed.keys()
    assert max(lags.values()) <= 3
    assert {task: seen.shown[task][0] for task in _TASKS} == dict.fromkeys(_TASKS, "done")
    for start in seen.sent_at:
        assert sum(start <= at < start + 60 for at in seen.sent_at) <= 20
