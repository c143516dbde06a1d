"""A fake of the heartbeat port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from storage.records.autonomy import (
    HeartbeatClaim,
    HeartbeatOutcome,
    HeartbeatRun,
    HeartbeatStatus,
    HeartbeatTask,
    TaskFileState,
    WakeReason,
)
from storage.records.people import ChatId
from tests.builders import NOW


def make_run(outcome: HeartbeatOutcome = HeartbeatOutcome.DID, **changes: object) -> HeartbeatRun:
    made = HeartbeatRun(
        id=1,
        reasons=(WakeReason.INTERVAL,),
        outcome=outcome,
        started_at=NOW,
        ended_at=NOW,
        session_id="",
        text="The report is written.",
        claims=(
            HeartbeatClaim(
                line=2, text="report", did="Wrote it", evidence="report.md", is_backed=True
            ),
            HeartbeatClaim(line=3, text="mail", did="Sent it", evidence="", is_backed=False),
        ),
        to_tick=(),
        note="",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


class FakeHeartbeat:
    """On, with one open line; `is_running` says that a run is in progress."""

    def __init__(self) -> None:
        self.is_on = True
        self.is_running = False
        self.tasks = ["Check the backups"]
        self.runs = [make_run()]
        self.asked: list[datetime] = []

    async def status(self) -> HeartbeatStatus:
        pending = tuple(
            HeartbeatTask(line=n, text=text, is_done=False, checkbox=True)
            for n, text in enumerate(self.tasks, start=3)
        )
        return HeartbeatStatus(
            is_on=self.is_on,
            every_minutes=30,
            hours="08:00-22:00",
            next_due=NOW + timedelta(minutes=30) if self.is_on else None,
            chat=ChatId("c1"),
            file_state=TaskFileState.READ,
            pending=pending,
            runs=tuple(self.runs),
            spent_micros=10_000,
            cap_micros=500_000,
        )

    async def switch(self, *, on: bool) -> HeartbeatStatus:
        self.is_on = on
        return await self.status()

    async def run_now(self, *, at: datetime) -> bool:
        self.asked.append(at)
        return not self.is_running

    async def add(self, text: str) -> HeartbeatStatus:
        self.tasks.append(text)
        return await self.status()

    async def log(self, limit: int) -> Sequence[HeartbeatRun]:
        return self.runs[:limit]
