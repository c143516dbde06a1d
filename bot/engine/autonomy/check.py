"""Defines what a self-check is, and runs and repairs one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from storage.records.autonomy import CheckResult, HealthFinding, RepairOutcome

log = logging.getLogger(__name__)

_SLOW_POINTS = 5
_RAISED_POINTS = 25

_T = TypeVar("_T")


class SelfCheck(Protocol):
    """One check of the program's health. It changes nothing, calls no model, and may be cancelled.

    Whatever it raises is reported as a problem of its own."""

    name: str

    async def find(self) -> Sequence[HealthFinding]: ...


@runtime_checkable
class RepairingCheck(Protocol):
    """A check that can repair some of what it finds, safely and as often as it is asked."""

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        """Make the repair that these findings name; returns how many things it put right."""
        ...


class BlockingWork:
    """Runs blocking work beside the loop. Work that outlives its caller's patience goes on, but
    never beside a second one."""

    def __init__(self) -> None:
        self._running: asyncio.Task[object] | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Raises TimeoutError if earlier work is not over."""
        if self._running is not None and not self._running.done():
            raise TimeoutError
        task = asyncio.create_task(asyncio.to_thread(work))
        task.add_done_callback(_forget_error)
        self._running = task
        return await asyncio.shield(task)


async def run_check(check: SelfCheck, *, seconds: float) -> CheckResult:
    """The findings of the check. One that takes longer than `seconds` or raises is a problem of its
    own, and its result incomplete."""
    try:
        async with asyncio.timeout(seconds):
            found = await check.find()
    except TimeoutError:
        log.warning("the check %s took longer than %g s", check.name, seconds)
        slow = HealthFinding(
            text="check_slow", points=_SLOW_POINTS, facts={"seconds": int(seconds)}
        )
        return CheckResult(name=check.name, findings=(slow,), is_complete=False)
    except Exception as error:
        # Error boundary: one check must not stop the others.
        log.exception("the check %s failed", check.name)
        raised = HealthFinding(
            text="check_raised",
            points=_RAISED_POINTS,
            facts={"detail": str(error)[:200] or type(error).__name__},
            asks_task=True,
        )
        return CheckResult(name=check.name, findings=(raised,), is_complete=False)
    return CheckResult(name=check.name, findings=tuple(found))


def _forget_error(done: asyncio.Task[object]) -> None:
    """Nobody waits any more for what outlived its caller; whoever waits gets the error too."""
    if not done.cancelled():
        done.exception()


async def repair_findings(
    check: SelfCheck, result: CheckResult, *, seconds: float
) -> tuple[CheckResult, Sequence[RepairOutcome]]:
    """The result after the repairs that the check can make, and those that have helped. Each repair
    may take `seconds`."""
    wanted = dict.fromkeys(each.repair for each in result.findings if each.repair)
    if not wanted or not isinstance(check, RepairingCheck):
        return result, ()
    made: list[RepairOutcome] = []
    for repair in wanted:
        findings = [each for each in result.findings if each.repair == repair]
        try:
            async with asyncio.timeout(seconds):
                made.append(
                    RepairOutcome(repair=repair, count=await check.repair(repair, findings))
                )
        except Exception:
            # Error boundary: what cannot be repaired stays a problem that is told.
            log.exception("the repair %s failed", repair)
    after = await run_check(check, seconds=seconds)
    helped = [each for each in made if each.count and _has_helped(each.repair, result, after)]
    for each in helped:
        log.info("repaired: %s (%d)", each.repair, each.count)
    return after, helped


def _has_helped(repair: str, before: CheckResult, after: CheckResult) -> bool:
    """Whether something that named this repair is gone or has become less."""
    left = {(each.text, each.subject): each.facts.get("n") for each in after.findings}
    for each in before.findings:
        if each.repair != repair:
            continue
        key, n = (each.text, each.subject), each.facts.get("n")
        if key not in left:
            return after.is_complete
        rest = left[key]
        if isinstance(n, int) and isinstance(rest, int) and rest < n:
            return True
    return False
