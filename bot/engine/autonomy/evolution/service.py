"""Looks for signals in the latest tasks, proposes better texts, and settles their trials."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import comb
from statistics import median

from bot.engine.autonomy.evolution.change_check import MAX_PROMPT
from bot.engine.autonomy.evolution.proposal import Proposal, ProposalWriter, prompt_diff
from bot.engine.autonomy.evolution.retirement import (
    DecisionStage,
    OwnerChats,
    VersionRetirer,
    request_subject,
)
from bot.engine.autonomy.evolution.signals import (
    WINDOW,
    DetectedSignal,
    cooled_down,
    find_signals,
    plateau,
)
from bot.engine.autonomy.evolution.sources import PromptSource
from cards.catalog import catalog_for
from cards.views.prompts import figures_data, version_adopted_card
from storage.approvals import ApprovalRepo, NewApproval, add_approval
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate, NotAllowed
from storage.ids import IdGenerator
from storage.prompt_versions import EvolutionRepo, PromptVersionRepo, TaskFacts
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Person, PersonRole
from storage.records.prompt_versions import (
    CycleOutcome,
    CycleReport,
    EvolutionAnalysis,
    EvolutionMode,
    NewPromptVersion,
    PromptInfo,
    PromptKind,
    PromptRef,
    PromptVersion,
    SignalKind,
    SignalRecord,
    TrialArm,
    TrialFigures,
    TrialTask,
    TrialVerdict,
    VersionState,
    text_hash,
)
from storage.records.tasks import Task, TaskEvent, TaskStatus

log = logging.getLogger(__name__)

AUTHOR = "evolution"
_ANALYZED = 50
_SLOW_STEPS = 5
_MEMORY = timedelta(days=7)
_JUDGED = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionLimits:
    """`share` is the percentage of tasks on trial; `lifetime` is how long a request waits."""

    mode: EvolutionMode
    share: int
    lifetime: timedelta


@dataclass(kw_only=True, eq=False)
class EvolutionService:
    """Satisfies `handlers.ports_autonomy.PromptVersionPort`. Writes nothing but rows about
    versions and signals, requests and cards; files are never written."""

    name = "evolution"

    db: Database
    versions: PromptVersionRepo
    repo: EvolutionRepo
    approvals: ApprovalRepo
    sources: Mapping[PromptKind, PromptSource]
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
        """Does nothing: the goal calls `pursue`."""
        await asyncio.Event().wait()

    async def pursue(self) -> None:
        """One run of the program's own goal."""
        await self._cycle()

    async def run_cycle(self, *, by: Person) -> CycleReport:
        _require_owner(by)
        return await self._cycle()

    async def handle_task_events(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """End a trial with the first task that shows it does harm."""
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
            due = [DetectedSignal(kind=SignalKind.PLATEAU, texts=(), tasks=(), figures=figures)]
        has_proposed = False
        for signal in due:
            found = "one_at_a_time" if has_proposed else await self._choose_text(signal)
            facts = {**signal.figures, "tasks": list(signal.tasks)}
            label = next((each.label for each in signal.texts), "")
            # Before anything is paid for: a death in between does not repeat it.
            async with self.db.write() as tx:
                if isinstance(found, str):
                    id_ = await self.repo.add_signal(tx, signal.kind, label, facts, now=now)
                    await self.repo.set_outcome(tx, id_, CycleOutcome.NOTED, found)
                    continue
                id_ = await self.repo.add_signal(tx, signal.kind, found.label, facts, now=now)
            has_proposed = True
            await self._propose(id_, signal, found)

    async def _choose_text(self, signal: DetectedSignal) -> PromptInfo | str:
        """The narrowest text that may be changed now, or the reason why none is, a key under
        `evolve.note`."""
        if not signal.texts:
            return "not_by_words" if signal.kind.is_problem else "all_well"
        if not await self.retirer.owner_chats():
            return "no_owner"
        if not await self.writer.is_ready():
            return "no_model"
        obstacles: list[str] = []
        for ref in signal.texts:
            info = await self._find(ref)
            if info is None:
                obstacles.append("no_prompt")
            elif info.open is not None:
                obstacles.append("another_open")
            elif len(info.content) > MAX_PROMPT:
                obstacles.append("too_long")
            else:
                return info
        return obstacles[0]

    async def _propose(self, signal_id: int, signal: DetectedSignal, info: PromptInfo) -> None:
        proposal = await self.writer.propose(signal, self.sources[info.ref.kind], info.content)
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
                kind=info.ref.kind,
                name=info.ref.name,
                content=proposal.content,
                base_hash=text_hash(info.written),
                parent=info.number,
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
            title=catalog_for(language)("prompt.version", name=version.ref.label, n=version.number),
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
        """Decide one trial, and store the outcome with its cards in one transaction."""
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
        written = await self._list_written()
        used = (VersionState.DRAFT, VersionState.TRIAL, VersionState.ACTIVE)
        for version in await self.versions.list_in_state(*used):
            text = written.get(version.ref)
            reason = ""
            if text is None or text_hash(text) != version.base_hash:
                reason = "changed"
            elif version.state is VersionState.DRAFT and version.subject not in asked:
                # A restored backup has no open requests.
                reason = "no_answer"
            if reason:
                # Decided or rolled back meanwhile.
                with suppress(ConcurrentUpdate):
                    await self.retirer.retire([version], reason)

    async def list_prompts(self) -> Sequence[PromptInfo]:
        versions: dict[PromptRef, list[PromptVersion]] = defaultdict(list)
        for each in await self.versions.list_all():
            versions[each.ref].append(each)
        found = [
            PromptInfo(ref=ref, written=text, versions=versions.get(ref, ()))
            for ref, text in (await self._list_written()).items()
        ]
        return sorted(found, key=lambda each: not each.versions)

    async def find_prompts(self, name: str) -> Sequence[PromptInfo]:
        wanted = name.strip().casefold()
        written = await self._list_written()
        named = [each for each in written if each.label.casefold() == wanted]
        named = named or [each for each in written if each.name.casefold() == wanted]
        return [await self._info(each, written[each]) for each in named]

    async def _list_written(self) -> Mapping[PromptRef, str]:
        """All texts that may have versions, as people wrote them."""
        return {
            PromptRef(kind, name): text
            for kind, source in self.sources.items()
            for name, text in (await source.list_texts()).items()
        }

    async def _find(self, ref: PromptRef) -> PromptInfo | None:
        text = (await self.sources[ref.kind].list_texts()).get(ref.name)
        return None if text is None else await self._info(ref, text)

    async def _info(self, ref: PromptRef, written: str) -> PromptInfo:
        versions = await self.versions.list_of(ref)
        trial = next((each for each in versions if each.state is VersionState.TRIAL), None)
        figures = None
        if trial is not None:
            figures = figures_of(trial, await self.versions.list_trial_tasks(trial))
        return PromptInfo(ref=ref, written=written, versions=versions, figures=figures)

    async def roll_back(self, ref: PromptRef, *, by: Person) -> PromptVersion | None:
        _require_owner(by)
        withdrawn: Sequence[Approval] = ()
        async with self.db.write() as tx:
            versions = await self.versions.list_of(ref, tx=tx)
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
                    # What people wrote is used without being active.
                    if each.base_hash == version.base_hash and each.trial_since is not None:
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


MIN_TASKS = 10
"""Tasks that each side needs."""
MAX_TRIAL = timedelta(days=14)
MORE_FAILURES = 3
"""So many failures more than the others end a trial at once."""
_SIGNIFICANCE = 0.05
"""A gain that chance would bring more often is none."""
_MAX_INCREASE = 1.2


def figures_of(version: PromptVersion, tasks: Sequence[TrialTask]) -> TrialFigures:
    """Figures for each version of a prompt. Tasks that used more than one version count for none of
    them."""
    mine = [each for each in tasks if list(each.numbers) == [version.number]]
    others = [each for each in tasks if list(each.numbers) == [version.parent]]
    return TrialFigures(trial=_arm(mine), control=_arm(others))


def judge(figures: TrialFigures, *, since: datetime, now: datetime) -> TrialVerdict:
    """WORSE as soon as the version fails clearly more often; the rest when both sides have enough
    tasks or the time is over.

    BETTER needs a success rate at least as high, neither costs nor time more than 20 % higher on
    average, and a gain in one of the three that an exact test does not put down to chance."""
    trial, control = figures.trial, figures.control
    if excess_is_too_high(figures):
        return TrialVerdict.WORSE
    enough = min(trial.tasks, control.tasks) >= MIN_TASKS
    if not enough:
        return TrialVerdict.UNCLEAR if now - since >= MAX_TRIAL else TrialVerdict.OPEN
    if trial.successes * control.tasks < control.successes * trial.tasks:
        return TrialVerdict.WORSE
    means = (
        (trial.mean_micros, control.mean_micros),
        (trial.mean_seconds, control.mean_seconds),
    )
    if any(value > usual * _MAX_INCREASE > 0 for value, usual in means):
        return TrialVerdict.WORSE
    gains = (
        fisher_p(trial.successes, trial.failures, control.successes, control.failures),
        _chance_of_less(trial.micros, control.micros),
        _chance_of_less(trial.seconds, control.seconds),
    )
    return TrialVerdict.BETTER if min(gains) <= _SIGNIFICANCE else TrialVerdict.UNCLEAR


def fisher_p(a: int, b: int, c: int, d: int) -> float:
    """The chance of at least `a` successes in the first of two rows (a successes, b failures; c, d)
    if both are alike."""
    row, successes, total = a + b, a + c, a + b + c + d
    if not total:
        return 1.0
    most = min(row, successes)
    ways = sum(
        comb(successes, k) * comb(total - successes, row - k)
        for k in range(a, most + 1)
        if row - k <= total - successes
    )
    return ways / comb(total, row)


def excess_is_too_high(figures: TrialFigures) -> bool:
    """Whether the version has clearly more failures than the other side would have had with as many
    tasks."""
    trial, control = figures.trial, figures.control
    expected = control.failures * trial.tasks / control.tasks if control.tasks else 0.0
    return trial.failures - expected >= MORE_FAILURES


def _chance_of_less(values: Sequence[float], usual: Sequence[float]) -> float:
    """The chance that at least so many of `values` are below the median of all if both are
    alike."""
    middle = median([*values, *usual])
    low, low_usual = (sum(each < middle for each in some) for some in (values, usual))
    return fisher_p(low, len(values) - low, low_usual, len(usual) - low_usual)


def _arm(tasks: Iterable[TrialTask]) -> TrialArm:
    judged = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED}
    ended = [each for each in tasks if each.status in judged]
    return TrialArm(
        failures=sum(each.status is not TaskStatus.COMPLETED for each in ended),
        micros=[each.micros for each in ended],
        seconds=[each.seconds for each in ended],
    )
