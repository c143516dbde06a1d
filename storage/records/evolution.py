"""Defines what people see of versions of prompts and of the search for better ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from storage.records.prompt_versions import PromptVersion, SignalRecord


class EvolutionMode(StrEnum):
    """OFF changes nothing; ASK asks owners for each trial and each adoption; AUTO adopts what a
    trial has proved without asking again."""

    OFF = "off"
    ASK = "ask"
    AUTO = "auto"


class TrialVerdict(StrEnum):
    OPEN = "open"
    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialArm:
    """The tasks of one side of a trial that ended or are blocked: the cost of each in
    micro-dollars, and its seconds at work."""

    failures: int
    micros: Sequence[int]
    seconds: Sequence[float]

    @property
    def tasks(self) -> int:
        return len(self.micros)

    @property
    def successes(self) -> int:
        return self.tasks - self.failures

    @property
    def mean_micros(self) -> float:
        return sum(self.micros) / self.tasks if self.tasks else 0.0

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / self.tasks if self.tasks else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """The side that tries a version, and the one that does not."""

    trial: TrialArm
    control: TrialArm


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInfo:
    """A persona's prompt: as it is `written`, with all its versions, oldest first. `figures` are
    those of the trial that is on."""

    name: str
    written: str
    versions: Sequence[PromptVersion]
    figures: TrialFigures | None = None

    @property
    def active(self) -> PromptVersion | None:
        return next((each for each in self.versions if each.state == "active"), None)

    @property
    def open(self) -> PromptVersion | None:
        """The draft or trial."""
        return next((each for each in self.versions if each.state.is_open), None)

    @property
    def content(self) -> str:
        """The text in effect outside a trial."""
        return self.active.content if self.active else self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionAnalysis:
    """The latest tasks in figures. `signals` counts the tasks behind each problem that is there
    now; `slow_steps` are the slowest with their seconds."""

    tasks: int
    succeeded: int
    mean_micros: float
    mean_seconds: float
    signals: Mapping[str, int]
    slow_steps: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """The findings and actions of one run. `settled` are the trials that ended with it."""

    mode: EvolutionMode
    tasks: int
    succeeded: int
    signals: Sequence[SignalRecord]
    settled: Sequence[tuple[PromptVersion, TrialVerdict]]
