"""Looks for signals in the latest tasks, proposes better prompts, and settles their trials."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.autonomy.evolution.decisions import DecisionStage, request_subject
from bot.engine.autonomy.evolution.proposal import Proposal, ProposalWriter, prompt_diff
from bot.engine.autonomy.evolution.retirement import OwnerChats, VersionRetirer
from bot.engine.autonomy.evolution.signals import (
    WINDOW,
    DetectedSignal,
    cooled_down,
    find_signals,
    plateau,
)
from bot.engine.autonomy.evolution.trial import excess_is_too_high, figures_of, judge
from bot.engine.llm.backend import RunPurpose
from bot.engine.workers.personas import Persona
from cards.catalog import catalog_for
from cards.views.prompts import figures_data, version_adopted_card
from storage.approvals import ApprovalRepo, NewApproval, add_approval
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate, NotAllowed
from storage.evolution import EvolutionRepo, TaskFacts
from storage.ids import IdGenerator
from storage.prompt_versions import PromptVersionRepo
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Person, PersonRole
from storage.records.prompt_versions import (
    ORIGINAL,
    CycleOutcome,
    CycleReport,
    EvolutionAnalysis,
    EvolutionMode,
    NewPromptVersion,
    PromptInfo,
    PromptKind,
    PromptVersion,
    SignalKind,
    SignalRecord,
    TrialFigures,
    TrialVerdict,
    VersionState,
    text_hash,
)
from storage.records.tasks import Task, TaskEvent, TaskStatus
from storage.records.usage import SpendingCap

log = logging.getLogger(__name__)

AUTHOR = "evolution"
_ANALYZED = 50
_SLOW_STEPS = 5
_MEMORY = timedelta(days=7)
_JUDGED = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED}


class PersonaCatalog(Protocol):
    async def get_all(self) -> Mapping[str, Persona]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionLimits:
    """`share` is the percentage of tasks on trial; `lifetime` is how long a request waits;
    `day_cap` is what proposals may cost on one day in `zone`."""

    mode: EvolutionMode
    share: int
    lifetime: timedelta
    day_cap: SpendingCap
    zone: ZoneInfo


@dataclass(kw_only=True, eq=False)
class EvolutionService:
    """Satisfies `handlers.ports_autonomy.PromptVersionPort`. Writes nothing but rows about
    versions and signals, requests and cards; files are never written."""

    name = "evolution"

    db: Database
    versions: PromptVersionRepo
    repo: EvolutionRepo
    approvals: ApprovalRepo
    personas: PersonaCatalog
    writer: ProposalWriter
    retirer: VersionRetirer
    limits: EvolutionLimits
    ids: IdGenerator
    now: Callable[[], datetime]
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Show the requests whose card a crash may have prevented."""
        for approval in await self.approvals.list_waiting_of_kind(ApprovalKind.PROMPT):
            await self.retirer.show_request(approval)

    async def run(self) -> None:
        """The goal calls `pursue`."""
        await asyncio.Event().wait()

    async def pursue(self) -> None:
        """One run of the program's own goal."""
        await self._cycle()

    async def run_cycle(self, *, by: Person) -> CycleReport:
        _require_owner(by)
        return await self._cycle()

    async def handle_task_events(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """A trial that does harm ends with the task that shows it."""
        if events and task.status in _JUDGED and self.limits.mode is not EvolutionMode.OFF:
            await self._settle_trials()

    async def _cycle(self) -> CycleReport:
        async with self._lock:
            mode = self.limits.mode
            if mode is EvolutionMode.OFF:
                return CycleReport(mode=mode, tasks=0, succeeded=0, signals=(), settled=())
            await self._retire_unusable()
            settled = await self._settle_trials()
            tasks = await self.repo.list_recent_tasks(WINDOW)
            since = self.now() - _MEMORY
            known = [each.id for each in await self.repo.list_fired_since(since)]
            await self._act_on_signals(tasks)
            fired = await self.repo.list_fired_since(since)
            return CycleReport(
                mode=mode,
                tasks=len(tasks),
                succeeded=sum(each.succeeded for each in tasks),
                signals=[each for each in fired if each.id not in known],
                settled=settled,
            )

    async def _act_on_signals(self, tasks: Sequence[TaskFacts]) -> None:
        """Record the signals that fire, and propose at most one change."""
        now = self.now()
        fired = await self.repo.list_fired_since(now - _MEMORY)
        due = [each for each in find_signals(tasks) if cooled_down(each, fired, now)]
        if not due and plateau(tasks, fired, now):
            figures = {"window": len(tasks), "hits": sum(each.succeeded for each in tasks)}
            due = [DetectedSignal(kind=SignalKind.PLATEAU, name="", tasks=(), figures=figures)]
        has_proposed = False
        for signal in due:
            # Before anything is paid for: a death in between does not repeat it.
            async with self.db.write() as tx:
                facts = {**signal.figures, "tasks": list(signal.tasks)}
                id_ = await self.repo.add_signal(tx, signal.kind, signal.name, facts, now=now)
            obstacle = "one_at_a_time" if has_proposed else await self._obstacle(signal)
            if obstacle:
                outcome, note = CycleOutcome.NOTED, obstacle
                async with self.db.write() as tx:
                    await self.repo.set_outcome(tx, id_, outcome, note)
                continue
            has_proposed = True
            await self._propose(id_, signal)

    async def _obstacle(self, signal: DetectedSignal) -> str:
        """The reason why no change is proposed, a key under `evolve.note`; empty for none."""
        if not signal.kind.is_problem:
            return "all_well"
        if not signal.kind.concerns_prompts:
            return "not_by_words"
        return await self._persona_obstacle(signal.name) or await self._model_obstacle()

    async def _persona_obstacle(self, name: str) -> str:
        persona = (await self.personas.get_all()).get(name)
        if persona is None or not persona.prompt:
            return "no_prompt"
        versions = await self.versions.list_of(PromptKind.PERSONA, persona.name)
        return "another_open" if any(each.state.is_open for each in versions) else ""

    async def _model_obstacle(self) -> str:
        if not await self.retirer.owner_chats():
            return "no_owner"
        if not await self.writer.is_ready():
            return "no_model"
        day = self.now().astimezone(self.limits.zone).replace(hour=0, minute=0, second=0)
        spent, cap = await self.repo.sum_spent(RunPurpose.EVOLVE, day), self.limits.day_cap
        is_reached = 0 < cap.micros <= spent.micros or 0 < cap.tokens <= spent.tokens
        return "cap" if is_reached else ""

    async def _propose(self, signal_id: int, signal: DetectedSignal) -> None:
        persona = (await self.personas.get_all())[signal.name]
        info = await self._info(persona)
        proposal = await self.writer.propose(signal, info.content)
        owners = await self.retirer.owner_chats()
        approval: Approval | None = None
        async with self.db.write() as tx:
            await self.repo.set_outcome(tx, signal_id, proposal.outcome, proposal.note)
            if proposal.outcome is CycleOutcome.PROPOSED:
                version = await self._add_draft(tx, signal, info, proposal)
                approval = await self._add_request(tx, version, DecisionStage.TRIAL, owners)
        if approval is not None:
            await self.retirer.show_request(approval)

    async def _add_draft(
        self, tx: Transaction, signal: DetectedSignal, info: PromptInfo, proposal: Proposal
    ) -> PromptVersion:
        return await self.versions.add_draft(
            tx,
            NewPromptVersion(
                kind=PromptKind.PERSONA,
                name=info.name,
                content=proposal.content,
                base_hash=text_hash(info.written),
                parent=info.active.number if info.active else ORIGINAL,
                parent_content=info.content,
                author=AUTHOR,
                reason=proposal.note,
                signal={"kind": signal.kind.value, **signal.figures},
                share=self.limits.share,
            ),
            now=self.now(),
        )

    async def _add_request(
        self,
        tx: Transaction,
        version: PromptVersion,
        stage: DecisionStage,
        owners: OwnerChats,
        figures: TrialFigures | None = None,
    ) -> Approval:
        chat_id, language = owners[0]
        now = self.now()
        new = NewApproval(
            kind=ApprovalKind.PROMPT,
            chat_id=chat_id,
            title=catalog_for(language)("prompt.version", name=version.name, n=version.number),
            detail=prompt_diff(version.parent_content, version.content),
            subject=request_subject(version, stage),
            command_hash=version.hash,
            expires_at=now + self.limits.lifetime,
            payload={
                "version_id": version.id,
                "stage": stage.value,
                "reason": version.reason,
                "share": version.share,
                "signal": dict(version.signal),
                **({"figures": figures_data(figures)} if figures else {}),
            },
        )
        return await add_approval(tx, new, ids=self.ids, now=now)

    async def _settle_trials(self) -> list[tuple[PromptVersion, TrialVerdict]]:
        settled: list[tuple[PromptVersion, TrialVerdict]] = []
        for version in await self.versions.list_in_state(VersionState.TRIAL):
            try:
                verdict = await self._settle(version)
            except ConcurrentUpdate:
                # Decided or rolled back meanwhile.
                continue
            if verdict is not TrialVerdict.OPEN:
                settled.append((version, verdict))
        return settled

    async def _settle(self, version: PromptVersion) -> TrialVerdict:
        """Judge one trial, and store what follows with its cards in one transaction."""
        assert version.trial_since is not None
        owners = await self.retirer.owner_chats()
        withdrawn: Sequence[Approval] = ()
        requested: Approval | None = None
        async with self.db.write() as tx:
            current = await self.versions.get(tx, version.id)
            if current.state is not VersionState.TRIAL:
                raise ConcurrentUpdate
            figures = figures_of(version, await self.versions.list_trial_tasks(version, tx=tx))
            verdict = judge(figures, since=version.trial_since, now=self.now())
            asked = await self.retirer.list_waiting(tx, version)
            if asked and not excess_is_too_high(figures):
                # It was judged when it was asked about.
                return TrialVerdict.OPEN
            match verdict:
                case TrialVerdict.OPEN:
                    return verdict
                case TrialVerdict.WORSE | TrialVerdict.UNCLEAR:
                    await self.retirer.retire_within(tx, version, verdict.value, owners, figures)
                    withdrawn = await self.retirer.withdraw_requests(tx, version)
                case TrialVerdict.BETTER if self.limits.mode is EvolutionMode.AUTO:
                    await self.versions.activate(tx, version, now=self.now())
                    await self.retirer.tell(
                        tx,
                        owners,
                        f"prompt:{version.id}:adopted",
                        lambda words: version_adopted_card(version, figures, words),
                    )
                case TrialVerdict.BETTER:
                    if not owners:
                        return TrialVerdict.OPEN
                    requested = await self._add_request(
                        tx, version, DecisionStage.ADOPTION, owners, figures
                    )
        await self.retirer.finish(withdrawn)
        if requested is not None:
            await self.retirer.show_request(requested)
        return verdict

    async def _retire_unusable(self) -> None:
        """End versions made from a text that people have changed or removed since, and drafts that
        nobody is asked about."""
        waiting = await self.approvals.list_waiting_of_kind(ApprovalKind.PROMPT)
        asked = {each.subject.rpartition(":")[0] for each in waiting}
        personas = await self.personas.get_all()
        written = {name: text_hash(each.prompt) for name, each in personas.items()}
        used = (VersionState.DRAFT, VersionState.TRIAL, VersionState.ACTIVE)
        for version in await self.versions.list_in_state(*used):
            if written.get(version.name) != version.base_hash:
                await self.retirer.retire([version], "changed")
            elif version.state is VersionState.DRAFT and version.subject not in asked:
                # A restored backup has no open requests.
                await self.retirer.retire([version], "no_answer")

    async def list_prompts(self) -> Sequence[PromptInfo]:
        personas = await self.personas.get_all()
        found = [await self._info(each) for each in personas.values() if each.prompt]
        return sorted(found, key=lambda each: not each.versions)

    async def find_prompt(self, name: str) -> PromptInfo | None:
        persona = (await self.personas.get_all()).get(name.strip().casefold())
        return None if persona is None or not persona.prompt else await self._info(persona)

    async def _info(self, persona: Persona) -> PromptInfo:
        versions = await self.versions.list_of(PromptKind.PERSONA, persona.name)
        trial = next((each for each in versions if each.state is VersionState.TRIAL), None)
        figures = None
        if trial is not None:
            figures = figures_of(trial, await self.versions.list_trial_tasks(trial))
        return PromptInfo(
            name=persona.name, written=persona.prompt, versions=versions, figures=figures
        )

    async def roll_back(self, name: str, *, by: Person) -> PromptVersion | None:
        _require_owner(by)
        withdrawn: Sequence[Approval] = ()
        async with self.db.write() as tx:
            versions = await self.versions.list_of(PromptKind.PERSONA, name, tx=tx)
            ending = [each for each in versions if each.state.is_open]
            ending = ending or [each for each in versions if each.state is VersionState.ACTIVE]
            if not ending:
                return None
            (version,) = ending
            await self.versions.retire(tx, version, "rolled_back", now=self.now())
            withdrawn = await self.retirer.withdraw_requests(tx, version)
            if version.state is VersionState.ACTIVE:
                before = [each for each in versions if each.number == version.parent]
                for each in before:
                    if each.base_hash == version.base_hash:
                        await self.versions.activate(tx, each, now=self.now())
        await self.retirer.finish(withdrawn)
        return version

    async def analyze(self) -> EvolutionAnalysis:
        tasks = await self.repo.list_recent_tasks(_ANALYZED)
        took: dict[str, list[float]] = defaultdict(list)
        for task in tasks:
            for attempt in task.attempts:
                took[f"{task.task_id} {attempt.path}"].append(attempt.seconds)
        slow = sorted(((step, sum(each)) for step, each in took.items()), key=lambda each: -each[1])
        count = len(tasks) or 1
        return EvolutionAnalysis(
            tasks=len(tasks),
            succeeded=sum(each.succeeded for each in tasks),
            mean_micros=sum(each.micros for each in tasks) / count,
            mean_seconds=sum(each.seconds for each in tasks) / count,
            signals={each.kind.value: int(each.figures["hits"]) for each in find_signals(tasks)},
            slow_steps=slow[:_SLOW_STEPS],
        )

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        return await self.repo.list_recent(limit)


def _require_owner(person: Person) -> None:
    if person.role is not PersonRole.OWNER:
        raise NotAllowed("prompt", person.id)
