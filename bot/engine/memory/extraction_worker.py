"""A background worker that extracts facts with a model: limited calls, retries, and all-or-nothing
writes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo

from bot.engine.llm.backend import BackendDenied, BackendError, BackendUnavailable, BudgetExceeded
from bot.engine.memory.admission import (
    AdmissionAuditor,
    AdmissionPreset,
    AuditedFact,
    judge_admission,
)
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.consolidation import ConsolidationResult, MemoryConsolidator
from bot.engine.memory.extraction import (
    EXTRACTION_PROMPT,
    ExtractionTally,
    FactExtraction,
    MemoryFact,
    render_conversation,
    validate_facts,
)
from bot.engine.memory.fact_matching import VERDICT_PROMPT as DECIDING
from bot.engine.memory.fact_matching import (
    FactComparison,
    FactVerdict,
    ModelVerdicts,
    SemanticMatcher,
    decide_by_model,
    decide_by_rules,
    render_verdict_prompt,
)
from bot.engine.memory.noted_facts import NotedFacts
from bot.engine.memory.ports import BackgroundModel, BackgroundQuery
from bot.engine.memory.promotion import QualityCounts
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import ConcurrentUpdate, StoreUnavailable
from storage.memory.cells import CellRepo, ExtractionJobRepo
from storage.records.memory import ExtractionJob, ExtractionJobState, MemoryEntry, MemoryKind

log = logging.getLogger(__name__)

_HOUR = timedelta(hours=1)
_MIN_RETRY_PAUSE = timedelta(minutes=2)
_MAX_RETRY_PAUSE = timedelta(hours=6)
_MAX_TRIES = 4
_MAX_UNAVAILABLE_TRIES = 12
_NO_MODEL_PAUSE = timedelta(minutes=10)
_MAX_IDLE_SECONDS = 600.0
_SEAL_AFTER = timedelta(hours=6)
_MIN_TURNS = 2
"""Minimum turns of an ended conversation for a model call."""


@dataclass(slots=True, kw_only=True)
class ExtractionWorker:
    """Processes extraction jobs. All state is stored, so that a restart neither loses nor repeats
    work."""

    name = "memory extraction"

    db: Database
    jobs: ExtractionJobRepo
    cells: CellRepo
    consolidator: MemoryConsolidator
    auditor: AdmissionAuditor
    model: BackgroundModel
    feed: MemoryChangeFeed
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    max_calls_per_hour: int
    admission: AdmissionPreset
    matcher: SemanticMatcher | None
    """Without it, facts are compared by words only."""
    noted: NotedFacts
    zone: tzinfo
    _seal_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)
    _call_times: deque[datetime] = field(default_factory=deque, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Requeue jobs interrupted by a crash."""
        async with self.db.write() as tx:
            await self.jobs.requeue_interrupted(tx, now=self.now())

    async def run(self) -> None:
        news = self.feed.subscribe()
        while True:
            try:
                rest = await self.run_next_job()
            except StoreUnavailable as error:
                log.warning("facts wait for the store: %s", error)
                rest = STORE_RETRY_SECONDS
            if rest > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest):
                        await news.wait()

    async def run_next_job(self) -> float:
        """Run one due job; returns seconds until the next may be due."""
        now = self.now()
        await self._seal_idle_jobs(now)
        job = await self.jobs.find_next()
        if job is None:
            return _MAX_IDLE_SECONDS
        if job.due_at > now:
            return min(_MAX_IDLE_SECONDS, (job.due_at - now).total_seconds())
        if (wait := self._rate_limit_wait(now)) > timedelta():
            return wait.total_seconds()
        if not await self.model.ready():
            async with self.db.write() as tx:
                await self.jobs.expire_old(tx, now=now)
            return _NO_MODEL_PAUSE.total_seconds()
        self._call_times.append(now)
        await self._attempt(job, now)
        return 0.0

    async def _seal_idle_jobs(self, now: datetime) -> None:
        if now < self._seal_at:
            return
        self._seal_at = now + timedelta(seconds=_MAX_IDLE_SECONDS)
        async with self.db.write() as tx:
            await self.jobs.close_idle(tx, idle_since=now - _SEAL_AFTER, min_cells=_MIN_TURNS)

    def _rate_limit_wait(self, now: datetime) -> timedelta:
        """Time until the hourly limit allows another call."""
        while self._call_times and self._call_times[0] <= now - _HOUR:
            self._call_times.popleft()
        if len(self._call_times) < self.max_calls_per_hour:
            return timedelta()
        return self._call_times[0] + _HOUR - now

    async def _attempt(self, job: ExtractionJob, now: datetime) -> None:
        pause = min(_MAX_RETRY_PAUSE, _MIN_RETRY_PAUSE * 2**job.attempts)
        async with self.db.write() as tx:
            if job.attempts >= _MAX_UNAVAILABLE_TRIES:
                # Every try ended in a crash, possibly caused by this job.
                await self.jobs.finish(
                    tx, job, ExtractionJobState.FAILED, now=now, reason="cut short"
                )
                return
            if not await self.jobs.start_attempt(tx, job, retry_at=now + pause):
                return
        try:
            await self._extract(job)
        except BudgetExceeded as error:
            await self._postpone(job, error, at=error.cap.until or now + _HOUR)
        except BackendDenied as error:
            await self._postpone(job, error, at=now + _HOUR)
        except BackendUnavailable as error:
            await self._record_failure(job, error, at=now + pause, most=_MAX_UNAVAILABLE_TRIES)
        except (BackendError, ConcurrentUpdate) as error:
            await self._record_failure(job, error, at=now + pause)
        except StoreUnavailable:
            raise
        except Exception as error:
            # Error boundary: one job must not stop the others.
            log.exception("no facts could be extracted for job %s", job.id)
            await self._record_failure(job, error, at=now + pause)

    async def _extract(self, job: ExtractionJob) -> None:
        cells = [each for each in await self.cells.list_by_ids(job.cells) if _belongs_to(job, each)]
        if not cells:
            await self._finish(job)
            return
        told = render_conversation(cells, self.zone)
        extraction = await self._ask_model(job, cells, EXTRACTION_PROMPT, told, FactExtraction)
        assert isinstance(extraction, FactExtraction)
        tally = validate_facts(extraction, cells, self.redact, zone=self.zone)
        cases, audits = self._filter_admitted(await self._compare(tally), tally)
        verdicts = await self._decide(job, cells, cases)
        facts = [case.fact for case in cases]
        await self._store(job, tally, list(zip(facts, verdicts, strict=True)), audits)

    async def _compare(self, tally: ExtractionTally) -> Sequence[FactComparison]:
        """Compare facts with existing entries; near duplicates within the batch are dropped."""
        sensed = (
            None if self.matcher is None else await self.matcher.embed_facts(tuple(tally.facts))
        )
        if sensed is None:
            return [await self.consolidator.compare(fact) for fact in tally.facts]
        kept: list[MemoryFact] = []
        for fact in tally.facts:
            if any(sensed.are_near_duplicates(each, fact) for each in kept):
                tally.filtered += 1
            else:
                kept.append(fact)
        return [await self.consolidator.compare(fact, sensed.similar_to(fact)) for fact in kept]

    def _filter_admitted(
        self, cases: Sequence[FactComparison], tally: ExtractionTally
    ) -> tuple[Sequence[FactComparison], Sequence[AuditedFact]]:
        """The facts that pass admission, and the judgements of all."""
        now, kept, audits = self.now(), [], []
        for case in cases:
            talk = "\n".join(each.text for each in case.fact.cells)
            judgement = judge_admission(self.admission, case, talk, now)
            if judgement is not None:
                audits.append(AuditedFact(fact=case.fact, judgement=judgement))
            if judgement is None or judgement.admitted:
                kept.append(case)
        tally.filtered += len(cases) - len(kept)
        tally.refused += len(cases) - len(kept)
        return kept, audits

    async def _decide(
        self, job: ExtractionJob, cells: Sequence[MemoryEntry], cases: Sequence[FactComparison]
    ) -> Sequence[FactVerdict]:
        """Ask the model about cases that the rules cannot decide; the rules decide if it fails."""
        is_open = [case for case in cases if case.needs_model]
        told: dict[int, FactVerdict] = {}
        if is_open:
            try:
                answer = await self._ask_model(
                    job, cells, DECIDING, render_verdict_prompt(is_open), ModelVerdicts
                )
                assert isinstance(answer, ModelVerdicts)
                decided = [
                    replace(each, merged=self.redact(each.merged))
                    for each in decide_by_model(is_open, answer)
                ]
                told = {id(case): each for case, each in zip(is_open, decided, strict=True)}
            except BackendError as error:
                log.info("rules decide on %d facts: %s", len(is_open), error)
        return [told.get(id(case)) or decide_by_rules(case) for case in cases]

    async def _ask_model(
        self,
        job: ExtractionJob,
        cells: Sequence[MemoryEntry],
        system: str,
        text: str,
        form: type[FactExtraction | ModelVerdicts],
    ) -> object:
        last = cells[-1]
        told = await self.model.ask(
            BackgroundQuery(
                key=f"memory:{job.id}:{job.attempts}:{form.__name__.lower()}",
                system=system,
                prompt=text,
                answer_type=form,
                person=last.person,
                chat=last.chat,
            )
        )
        async with self.db.write() as tx:
            await told.record_usage(tx)
        if not isinstance(told.value, form):
            raise BackendError("the answer is not of the form that was asked for")
        return told.value

    async def _store(
        self,
        job: ExtractionJob,
        tally: ExtractionTally,
        decided: Sequence[tuple[MemoryFact, FactVerdict]],
        audits: Sequence[AuditedFact],
    ) -> None:
        """Store the facts and finish the job in one transaction."""
        now, kept = self.now(), ConsolidationResult()
        judgements = {id(each.fact): each.judgement for each in audits}
        async with self.db.write() as tx:
            for fact, verdict in decided:
                if not await self._is_unchanged(tx, fact):
                    continue
                entry = await self.consolidator.add_fact(tx, fact, verdict, kept, now=now)
                if entry is not None and entry.created_at == now and fact.last_cell.chat:
                    await self.noted.add(tx, fact.last_cell.chat, [entry])
                if entry is not None and id(fact) in judgements:
                    await self.auditor.record_admitted(tx, entry, judgements[id(fact)], now=now)
            for each in audits:
                if not each.judgement.admitted and await self._is_unchanged(tx, each.fact):
                    await self.auditor.record_refused(tx, each, now=now)
            await self.auditor.prune(tx, now=now)
            counts = _count_results(tally, kept, [fact for fact, _ in decided])
            await self.consolidator.promoter.count_quality(tx, counts, now=now)
            await self.jobs.finish(tx, job, ExtractionJobState.DONE, now=now)
            await self.jobs.expire_old(tx, now=now)
        self.feed.publish(*kept.scopes)

    async def _is_unchanged(self, tx: Transaction, fact: MemoryFact) -> bool:
        """Facts are dropped if a source was forgotten, changed or moved in the meantime."""
        held = await self.cells.list_by_ids([each.id for each in fact.cells], tx=tx)
        return [_cell_identity(each) for each in held] == [
            _cell_identity(each) for each in fact.cells
        ]

    async def _finish(self, job: ExtractionJob) -> None:
        async with self.db.write() as tx:
            await self.jobs.finish(tx, job, ExtractionJobState.DONE, now=self.now())

    async def _postpone(self, job: ExtractionJob, error: Exception, *, at: datetime) -> None:
        """Postpone without counting an attempt."""
        log.info("facts will be extracted later: %s", error)
        async with self.db.write() as tx:
            await self.jobs.postpone(tx, job, at=at, reason=type(error).__name__)

    async def _record_failure(
        self, job: ExtractionJob, error: Exception, *, at: datetime, most: int = _MAX_TRIES
    ) -> None:
        """Retry later unless this was the last attempt."""
        why = type(error).__name__
        # Earlier unavailability of the model is not the job's failure.
        was_away = job.reason == BackendUnavailable.__name__ != why
        tries = 1 if was_away else job.attempts + 1
        log.info("no facts were extracted from job %s: %s", job.id, why)
        async with self.db.write() as tx:
            if tries >= most:
                await self.jobs.finish(
                    tx, job, ExtractionJobState.FAILED, now=self.now(), reason=why
                )
            else:
                again = replace(job, attempts=tries)
                await self.jobs.postpone(tx, again, at=at, reason=why)


def _count_results(
    tally: ExtractionTally, kept: ConsolidationResult, facts: Sequence[MemoryFact]
) -> QualityCounts:
    of_tasks = sum(fact.last_cell.task is not None for fact in facts)
    return QualityCounts(
        facts=tally.extracted,
        filtered=tally.filtered,
        suspicious=tally.suspicious,
        refused=tally.refused,
        from_tasks=of_tasks,
        from_talk=len(facts) - of_tasks,
    ) + QualityCounts(**kept.counts)


def _cell_identity(cell: MemoryEntry) -> tuple[object, ...]:
    return cell.id, cell.scope, cell.text


def _belongs_to(job: ExtractionJob, cell: MemoryEntry) -> bool:
    return cell.kind is MemoryKind.CELL and cell.scope == job.scope
