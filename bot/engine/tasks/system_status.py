"""Reports the status of Shiftboss, its channels, its tasks and its use of the disk."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.sandbox.spec import Sandbox
from storage.approvals import ApprovalRepo
from storage.figures import FigureRepo
from storage.file_trees import walk_folders
from storage.messages.outbox import OutboxRepo
from storage.records.people import Person, PersonRole
from storage.records.processes import ProcessSituation, WaitingHome
from storage.records.system import (
    BackupState,
    ChannelHealth,
    DiskUse,
    ModelChoice,
    SystemFigures,
    SystemStatus,
)
from storage.records.tasks import Task
from storage.tasks import TaskRepo

_MAX_RECENT = 3


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_KINDS: Mapping[str, tuple[str, ...]] = {
    "uploads": ("files/inbox",),
    "results": ("files/tasks", "files/logs", "files/workflows", "files/skills", "exports"),
    "workspaces": ("work", "workspaces", "shell"),
    "agents": ("agents",),
    "memory": ("memory",),
    "logs": ("logs",),
}
_MAX_ENTRIES = 10_000
_SIDECARS = ("", "-wal", "-shm", "-journal")


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
    slots: Callable[[], int]
    zone: ZoneInfo
    now: Callable[[], datetime]
    sandbox: Callable[[], Awaitable[Sandbox]]
    unnamed_owner: Callable[[], str]
    started_at: datetime
    figures: FigureRepo
    backup: Callable[[], Awaitable[BackupState]]
    disk: Callable[[], Awaitable[tuple[DiskUse, ...]]]
    processes: Callable[[], Awaitable[tuple[ProcessSituation, ...]]]
    waiting_homes: Callable[[], Awaitable[tuple[WaitingHome, ...]]]

    async def status(self, *, by: Person) -> SystemStatus:
        today = self.now().astimezone(self.zone)
        midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
        waiting = await self.approvals.list_waiting(by=by, chat=None)
        recent: Sequence[Task] = ()
        sandbox = await self.sandbox()
        backup, disk = None, tuple[DiskUse, ...]()
        waiting_homes: tuple[WaitingHome, ...] = ()
        processes = await self.processes()
        if by.role is PersonRole.OWNER:
            recent = await self.tasks.list_recent(_MAX_RECENT)
            backup, disk = await self.backup(), await self.disk()
            waiting_homes = await self.waiting_homes()
        return SystemStatus(
            version=version("shiftboss"),
            pid=os.getpid(),
            started_at=self.started_at,
            memory_bytes=_resident_bytes(),
            model=self.model(),
            channels=tuple(self.channels.health()),
            slots=self._count_slots(processes),
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
            processes=processes if by.role is PersonRole.OWNER else (),
            waiting_homes=waiting_homes,
        )

    async def get_figures(self) -> SystemFigures:
        processes = await self.processes()
        return SystemFigures(
            version=version("shiftboss"),
            slots=self._count_slots(processes),
            channels=tuple(self.channels.health()),
            store=await self.figures.read(now=self.now()),
            backup=await self.backup(),
            processes=processes,
        )

    def _count_slots(self, processes: Sequence[ProcessSituation]) -> int:
        """Of all processes that share the store."""
        living = [each.process for each in processes if each.process.is_alive(each.store_now)]
        return sum(each.slots for each in living) if processes else self.slots()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def measure_disk_use(home: Path, database: Path, backups: Path) -> Sequence[DiskUse]:
    """Sizes in bytes, largest first; kinds without any are left out. Blocking. Stops counting a
    kind at about ten thousand files."""
    folders = {kind: [home / each for each in names] for kind, names in _KINDS.items()}
    folders["backups"] = [backups]
    folders["replaced"] = sorted(home.glob("replaced-*"))
    found = [_measure(kind, places) for kind, places in folders.items()]
    sizes = (Path(f"{database}{each}") for each in _SIDECARS)
    size = sum(each.stat().st_size for each in sizes if each.is_file())
    found.append(DiskUse(kind="database", size=size))
    return sorted((each for each in found if each.size), key=lambda each: -each.size)


def _measure(kind: str, places: Sequence[Path]) -> DiskUse:
    size = entries = 0
    for place in places:
        for _, _, names, at in walk_folders(place):
            for name in names:
                entries += 1
                try:
                    size += os.stat(name, dir_fd=at, follow_symlinks=False).st_size
                except OSError:
                    continue
            if entries > _MAX_ENTRIES:
                return DiskUse(kind=kind, size=size, is_partial=True)
    return DiskUse(kind=kind, size=size)
