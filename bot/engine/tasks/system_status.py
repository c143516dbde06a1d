"""Reports the status of Shiftboss, its channels and its tasks."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.sandbox.spec import Sandbox
from storage.approvals import ApprovalRepo
from storage.messages.outbox import OutboxRepo
from storage.records.people import Person, PersonRole
from storage.records.system import (
    BackupState,
    ChannelHealth,
    DiskUse,
    ModelChoice,
    SystemStatus,
)
from storage.records.tasks import Task
from storage.tasks import TaskRepo

_MAX_RECENT = 3


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ChannelHealthSource(Protocol):
    def health(self) -> Sequence[ChannelHealth]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatusService:
    """Implements `handlers.ports.SystemPort`."""

    tasks: TaskRepo
    approvals: ApprovalRepo
    outbox: OutboxRepo
    channels: ChannelHealthSource
    model: Callable[[], ModelChoice]
    slots: int
    zone: ZoneInfo
    now: Callable[[], datetime]
    sandbox: Callable[[], Awaitable[Sandbox]]
    unnamed_owner: Callable[[], str]
    started_at: datetime
    store: Callable[[], Awaitable[tuple[BackupState, tuple[DiskUse, ...]]]]

    async def status(self, *, by: Person) -> SystemStatus:
        today = self.now().astimezone(self.zone)
        midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
        waiting = await self.approvals.list_waiting(by=by, chat=None)
        recent: Sequence[Task] = ()
        sandbox = await self.sandbox()
        backup, disk = None, tuple[DiskUse, ...]()
        if by.role is PersonRole.OWNER:
            recent = await self.tasks.list_recent(_MAX_RECENT)
            backup, disk = await self.store()
        return SystemStatus(
            version=version("shiftboss"),
            pid=os.getpid(),
            started_at=self.started_at,
            memory_bytes=_resident_bytes(),
            model=self.model(),
            channels=tuple(self.channels.health()),
            slots=self.slots,
            counts=await self.tasks.count_by_status(),
            today=await self.tasks.count_created_since(midnight),
            waiting_approvals=len(waiting),
            queued_messages=await self.outbox.count_queued(),
            recent=tuple(recent),
            sandbox=sandbox.kind.value,
            sandbox_program=str(sandbox.program or ""),
            limits=sandbox.limits.enforcement.value,
            command_user=None if os.geteuid() else sandbox.limits.user,
            unlisted_owner=self.unnamed_owner(),
            backup=backup,
            disk=disk,
        )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
