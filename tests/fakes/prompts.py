"""A fake of the port of versions: it keeps some and records what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storage.records.people import Person
from storage.records.prompt_versions import (
    CycleOutcome,
    CycleReport,
    EvolutionAnalysis,
    EvolutionMode,
    PromptInfo,
    PromptKind,
    PromptRef,
    PromptVersion,
    SignalKind,
    SignalRecord,
    TrialArm,
    TrialFigures,
    TrialVerdict,
    VersionState,
    text_hash,
)
from tests.builders import NOW

REVIEWER = PromptRef(PromptKind.PERSONA, "reviewer")
WRITTEN = "You work as a reviewer.\nNever change anything."
CHANGED = "You work as a reviewer.\nRead the whole change first.\nNever change anything."


def make_version(**changes: object) -> PromptVersion:
    version = PromptVersion(
        id=1,
        kind=PromptKind.PERSONA,
        name="reviewer",
        number=1,
        content=CHANGED,
        hash=text_hash(CHANGED),
        base_hash=text_hash(WRITTEN),
        parent=0,
        parent_content=WRITTEN,
        author="evolution",
        reason="It misses parts of the change.",
        signal={"kind": "retries", "hits": 4, "window": 20},
        state=VersionState.ACTIVE,
        share=50,
        end_reason="",
        created_at=NOW,
        trial_since=NOW,
        active_since=None,
        ended_at=None,
    )
    return replace(version, **changes)  # type: ignore[arg-type]


def make_figures() -> TrialFigures:
    return TrialFigures(
        trial=TrialArm(failures=1, micros=[20_000] * 10, seconds=[60.0] * 10),
        control=TrialArm(failures=4, micros=[30_000] * 11, seconds=[90.0] * 11),
    )


def make_signal(**changes: object) -> SignalRecord:
    signal = SignalRecord(
        id=1,
        kind=SignalKind.RETRIES,
        name="reviewer",
        figures={"hits": 4, "window": 20},
        outcome=CycleOutcome.NOTED,
        note="another_open",
        fired_at=NOW,
    )
    return replace(signal, **changes)  # type: ignore[arg-type]


class FakePrompts:
    """Two prompts; the reviewer's may have versions."""

    def __init__(self, *versions: PromptVersion) -> None:
        self.reviewer = PromptInfo(ref=REVIEWER, written=WRITTEN, versions=versions)
        self.rolled_back: list[str] = []
        self.cycles = 0
        self.mode = EvolutionMode.ASK
        self.signals: list[SignalRecord] = [make_signal()]

    async def list_prompts(self) -> Sequence[PromptInfo]:
        others = [
            PromptInfo(ref=PromptRef(kind, name), written="You work.", versions=())
            for kind, name in (
                (PromptKind.PERSONA, "pragmatist"),
                (PromptKind.SKILL, "weekly"),
                (PromptKind.WORKFLOW, "weekly"),
            )
        ]
        return [self.reviewer, *others]

    async def find_prompts(self, name: str) -> Sequence[PromptInfo]:
        prompts = await self.list_prompts()
        return [each for each in prompts if name in {each.label, each.ref.name}]

    async def roll_back(self, ref: PromptRef, *, by: Person) -> PromptVersion | None:
        if ref != REVIEWER:
            return None
        self.rolled_back.append(ref.label)
        return self.reviewer.open or self.reviewer.active

    async def run_cycle(self, *, by: Person) -> CycleReport:
        self.cycles += 1
        version = make_version(state=VersionState.TRIAL)
        return CycleReport(
            mode=self.mode,
            tasks=20,
            succeeded=14,
            signals=self.signals,
            settled=[(version, TrialVerdict.WORSE)],
        )

    async def analyze(self) -> EvolutionAnalysis:
        return EvolutionAnalysis(
            tasks=20,
            succeeded=14,
            mean_micros=25_000.0,
            mean_seconds=80.0,
            signals={"retries": 4},
            slow_steps=[("k3m9qa build", 300.0)],
        )

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        return self.signals[:limit]
