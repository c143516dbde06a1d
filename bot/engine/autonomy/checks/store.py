"""Checks the database's pages and rows, and that files and rows fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

from bot.engine.autonomy.check import BlockingWork
from storage.records.autonomy import HealthFinding
from storage.store_check import CheckFinding, check_quickly

_POINTS = {"page": 60, "table": 60, "missing_row": 25, "missing_file": 15, "orphan": 5}


@dataclass(kw_only=True, eq=False)
class StoreHealthCheck:
    """`seconds` limit one look at the whole store. Cancelled, it ends the look: the end of the
    program waits for it."""

    name = "store"

    home: Path
    database: Path
    seconds: float = 20
    look: Callable[..., Sequence[CheckFinding]] = check_quickly
    _work: BlockingWork = field(default_factory=BlockingWork, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        stopped = Event()
        look = partial(
            self.look, self.home, self.database, seconds=self.seconds, is_stopped=stopped.is_set
        )
        try:
            found = await self._work.run(look)
            if found:
                # Files and rows change while they are compared: only what lasts is a problem.
                again = await self._work.run(look)
                found = [each for each in found if each in again]
        except TimeoutError:
            return [
                HealthFinding(text="store_unfinished", points=0, facts={"n": int(self.seconds)})
            ]
        finally:
            stopped.set()
        kinds = dict.fromkeys(each.kind for each in found if each.kind in _POINTS)
        return [_finding(kind, [each for each in found if each.kind == kind]) for kind in kinds]


def _finding(kind: str, found: Sequence[CheckFinding]) -> HealthFinding:
    return HealthFinding(
        text=f"store_{kind}",
        points=_POINTS[kind],
        facts={"n": len(found), "first": found[0].text},
    )
