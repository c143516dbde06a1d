"""Draws facts out of what was said, in the background: a bounded number of calls, tried again
where they fail, and nothing written unless all of it holds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from bot.engine.llm.base import BackendDenied, BackendError, BackendUnavailable, BudgetReached
from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.drawing.admission import Preset, judged
from bot.engine.memory.writing.drawing.auditing import Audited, Auditor
from bot.engine.memory.writing.drawing.extraction import SYSTEM, Extraction, conversation
from bot.engine.memory.writing.drawing.facts import Fact, Tally, held_up
from bot.engine.memory.writing.drawing.keeping import Keeper, Kept, figures
from bot.engine.memory.writing.drawing.sense import Sense
from bot.engine.memory.writing.drawing.silent import Silent, Wish
from bot.engine.memory.writing.drawing.verdicts import (
    SYSTEM as DECIDING,
)
from bot.engine.memory.writing.drawing.verdicts import (
    Case,
    Verdict,
    Verdicts,
    by_model,
    by_rules,
    prompt,
)
from bot.engine.memory.writing.quality import DAYS, Quality
from storage.db import Database, Transaction
from storage.errors import Overtaken, StoreUnavailable
from storage.memory.cells import Cells
from storage.memory.jobs import JobRepo
from storage.records.memory.entries import Entry, MemoryKind
from storage.records.memory.jobs import Job, JobState

log = logging.getLogger(__name__)

MOST_AN_HOUR = 30
_HOUR = timedelta(hours=1)
_FIRST_PAUSE = timedelta(minutes=2)
_LONGEST_PAUSE = timedelta(hours=6)
_MOST_TRIES = 4
_MOST_UNREACHED = 12
_NO_MODEL = timedelta(minutes=10)
_LONGEST_REST = 600.0
_IDLE = timedelta(hours=6)
_LEAST = 2
"""Turns of a conversation that is over, to be worth a call."""
_STORE_REST = 5.0


class Drawer:
    """Everything that is to be done is a row: a restart loses nothing and doubles nothing."""

    name = "memory-drawer"

    def __init__(
        self,
        *,
        db: Database,
        jobs: JobRepo,
        cells: Cells,
        keeper: Keeper,
        quality: Quality,
        model: Silent,
        changed: Changed,
        mask: Callable[[str], str],
        now: Callable[[], datetime],
        most_an_hour: int = MOST_AN_HOUR,
        admission: Preset = Preset.OFF,
        sense: Sense | None = None,
        zone: tzinfo = UTC,
    ) -> None:
        """`sense` tells what facts mean; without it words have to do. In `zone` days begin and
        end."""
        self._db = db
        self._jobs = jobs
        self._cells = cells
        self._keeper = keeper
        self._quality = quality
        self._model = model
        self._changed = changed
        self._mask = mask
        self._now = now
        self._most = most_an_hour
        self._admission = admission
        self._sense = sense
        self._zone = zone
        self._auditor = Auditor(keeper.entries, cells)
        self._seal_at = datetime.min.replace(tzinfo=UTC)
        self._begun: deque[datetime] = deque()

    async def start(self, stack: AsyncExitStack) -> None:
        """What the last life was cut off at is due at once."""
        async with self._db.write() as tx:
            await self._jobs.take_up(tx, now=self._now())

    async def run(self) -> None:
        news = self._changed.listen()
        while True:
            try:
                rest = await self.turn()
            except StoreUnavailable as error:
                log.warning("facts wait for the store: %s", error)
                rest = _STORE_REST
            if rest > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest):
                        await news.wait()

    async def turn(self) -> float:
        """Do one job that is due. Seconds until there may be another."""
        now = self._now()
        await self._seal(now)
        job = await self._jobs.next()
        if job is None:
            return _LONGEST_REST
        if job.due_at > now:
            return min(_LONGEST_REST, (job.due_at - now).total_seconds())
        if (wait := self._wait(now)) > timedelta():
            return wait.total_seconds()
        if not await self._model.ready():
            async with self._db.write() as tx:
                await self._jobs.drop_old(tx, now=now)
            return _NO_MODEL.total_seconds()
        self._begun.append(now)
        await self._try(job, now)
        return 0.0

    async def _seal(self, now: datetime) -> None:
        if now < self._seal_at:
            return
        self._seal_at = now + timedelta(seconds=_LONGEST_REST)
        async with self._db.write() as tx:
            await self._jobs.seal(tx, idle_since=now - _IDLE, least=_LEAST)

    def _wait(self, now: datetime) -> timedelta:
        """Until another call may be made within the hour."""
        while self._begun and self._begun[0] <= now - _HOUR:
            self._begun.popleft()
        if len(self._begun) < self._most:
            return timedelta()
        return self._begun[0] + _HOUR - now

    async def _try(self, job: Job, now: datetime) -> None:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**job.tries)
        async with self._db.write() as tx:
            if job.tries >= _MOST_UNREACHED:
                # Each of them was cut short by a death: maybe by this very job.
                await self._jobs.end(tx, job, JobState.FAILED, now=now, why="cut short")
                return
            if not await self._jobs.begin(tx, job, again_at=now + pause):
                return
        try:
            await self._draw(job)
        except BudgetReached as error:
            await self._later(job, error, at=error.hit.until or now + _HOUR)
        except BackendDenied as error:
            await self._later(job, error, at=now + _HOUR)
        except BackendUnavailable as error:
            await self._failed(job, error, at=now + pause, most=_MOST_UNREACHED)
        except (BackendError, Overtaken) as error:
            await self._failed(job, error, at=now + pause)
        except StoreUnavailable:
            raise
        except Exception as error:
            # The boundary between one piece of conversation and all others.
            log.exception("no facts could be drawn for job %s", job.id)
            await self._failed(job, error, at=now + pause)

    async def _draw(self, job: Job) -> None:
        cells = [each for each in await self._cells.by_ids(job.cells) if _is_of(job, each)]
        if not cells:
            await self._end(job)
            return
        told = conversation(cells, self._zone)
        extraction = await self._asked(job, cells, SYSTEM, told, Extraction)
        assert isinstance(extraction, Extraction)
        tally = held_up(extraction, cells, self._mask, zone=self._zone)
        cases, audits = self._admitted(await self._cases(tally), tally)
        verdicts = await self._judged(job, cells, cases)
        facts = [case.fact for case in cases]
        await self._keep(job, tally, list(zip(facts, verdicts, strict=True)), audits)

    async def _cases(self, tally: Tally) -> Sequence[Case]:
        """The facts beside what is there; of those that mean the same only the first."""
        sensed = None if self._sense is None else await self._sense.of(tuple(tally.kept))
        if sensed is None:
            return [await self._keeper.case(fact) for fact in tally.kept]
        kept: list[Fact] = []
        for fact in tally.kept:
            if any(sensed.is_twin(each, fact) for each in kept):
                tally.filtered += 1
            else:
                kept.append(fact)
        return [await self._keeper.case(fact, sensed.near(fact)) for fact in kept]

    def _admitted(
        self, cases: Sequence[Case], tally: Tally
    ) -> tuple[Sequence[Case], Sequence[Audited]]:
        """Those that pass, and how each was judged."""
        now, kept, audits = self._now(), [], []
        for case in cases:
            talk = "\n".join(each.text for each in case.fact.cells)
            judgement = judged(self._admission, case, talk, now)
            if judgement is not None:
                audits.append(Audited(fact=case.fact, judgement=judgement))
            if judgement is None or judgement.admitted:
                kept.append(case)
        tally.filtered += len(cases) - len(kept)
        tally.refused += len(cases) - len(kept)
        return kept, audits

    async def _judged(
        self, job: Job, cells: Sequence[Entry], cases: Sequence[Case]
    ) -> Sequence[Verdict]:
        """A model is asked only about those that rules cannot tell; where it fails, they do."""
        is_open = [case for case in cases if case.is_open]
        told: dict[int, Verdict] = {}
        if is_open:
            try:
                answer = await self._asked(job, cells, DECIDING, prompt(is_open), Verdicts)
                assert isinstance(answer, Verdicts)
                decided = [
                    replace(each, merged=self._mask(each.merged))
                    for each in by_model(is_open, answer)
                ]
                told = {id(case): each for case, each in zip(is_open, decided, strict=True)}
            except BackendError as error:
                log.info("rules decide on %d facts: %s", len(is_open), error)
        return [told.get(id(case)) or by_rules(case) for case in cases]

    async def _asked(
        self,
        job: Job,
        cells: Sequence[Entry],
        system: str,
        text: str,
        form: type[Extraction | Verdicts],
    ) -> object:
        last = cells[-1]
        told = await self._model.ask(
            Wish(
                key=f"memory:{job.id}:{job.tries}:{form.__name__.lower()}",
                system=system,
                prompt=text,
                form=form,
                person=last.person,
                chat=last.chat,
            )
        )
        async with self._db.write() as tx:
            await told.book(tx)
        if not isinstance(told.value, form):
            raise BackendError("the answer is not of the form that was asked for")
        return told.value

    async def _keep(
        self,
        job: Job,
        tally: Tally,
        decided: Sequence[tuple[Fact, Verdict]],
        audits: Sequence[Audited],
    ) -> None:
        """All of it, and that it is done, in one transaction."""
        now, kept = self._now(), Kept()
        judgements = {id(each.fact): each.judgement for each in audits}
        async with self._db.write() as tx:
            for fact, verdict in decided:
                if not await self._still(tx, fact):
                    continue
                entry = await self._keeper.keep(tx, fact, verdict, kept, now=now)
                if entry is not None and id(fact) in judgements:
                    await self._auditor.note(tx, entry, judgements[id(fact)], now=now)
            for each in audits:
                if not each.judgement.admitted and await self._still(tx, each.fact):
                    await self._auditor.refuse(tx, each, now=now)
            await self._auditor.prune(tx, now=now)
            await self._count(tx, tally, kept, [fact for fact, _ in decided], now)
            await self._jobs.end(tx, job, JobState.DONE, now=now)
            await self._jobs.drop_old(tx, now=now)
        self._changed.tell(*kept.scopes)

    async def _still(self, tx: Transaction, fact: Fact) -> bool:
        """Forgotten, changed or moved while the model was asked: then nothing of it is kept."""
        held = await self._cells.by_ids([each.id for each in fact.cells], tx=tx)
        return [_said(each) for each in held] == [_said(each) for each in fact.cells]

    async def _count(
        self, tx: Transaction, tally: Tally, kept: Kept, facts: Sequence[Fact], now: datetime
    ) -> None:
        of_tasks = sum(fact.last.task is not None for fact in facts)
        counted = figures(
            kept.counts,
            facts=tally.drawn,
            filtered=tally.filtered,
            suspicious=tally.suspicious,
            refused=tally.refused,
            from_tasks=of_tasks,
            from_talk=len(facts) - of_tasks,
        )
        await self._quality.count(tx, counted, today=now.date())
        if (await self._quality.of(today=now.date(), tx=tx)).is_polluted:
            since = now - timedelta(days=DAYS)
            demoted = await self._keeper.demote(tx, now=now, since=since)
            if demoted:
                log.warning("memory is polluted: %d long-term entries are demoted", demoted)
                await self._quality.count(tx, figures({}, demoted=demoted), today=now.date())

    async def _end(self, job: Job) -> None:
        async with self._db.write() as tx:
            await self._jobs.end(tx, job, JobState.DONE, now=self._now())

    async def _later(self, job: Job, error: Exception, *, at: datetime) -> None:
        """Nobody is to blame: it is as if it had not been tried."""
        log.info("facts are drawn later: %s", error)
        async with self._db.write() as tx:
            await self._jobs.later(tx, job, at=at, why=type(error).__name__, counted=False)

    async def _failed(
        self, job: Job, error: Exception, *, at: datetime, most: int = _MOST_TRIES
    ) -> None:
        """Once more then, unless this was the last try."""
        why = type(error).__name__
        # That nobody was there before says nothing of the piece itself.
        was_away = job.why == BackendUnavailable.__name__ != why
        tries = 1 if was_away else job.tries + 1
        log.info("no facts were drawn from job %s: %s", job.id, why)
        async with self._db.write() as tx:
            if tries >= most:
                await self._jobs.end(tx, job, JobState.FAILED, now=self._now(), why=why)
            else:
                again = replace(job, tries=tries)
                await self._jobs.later(tx, again, at=at, why=why, counted=False)


def _said(cell: Entry) -> tuple[object, ...]:
    return cell.id, cell.scope, cell.text


def _is_of(job: Job, cell: Entry) -> bool:
    return cell.kind is MemoryKind.CELL and cell.scope == job.scope
