"""Defines versions of texts that steer work and their trials, and what people see of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any

from storage.records.tasks import TaskId, TaskStatus

ORIGINAL = 0
"""Number of the text that people wrote, or that came with the program. What people write in the
files of workflows has numbers of its own."""

FILE_AUTHOR = "file"
"""Author of a change that somebody made with an editor."""


class PromptKind(StrEnum):
    """A PERSONA's prompt, a SKILL's instructions without their front matter, the whole file of a
    named WORKFLOW, or a BUILT_IN prompt of the program."""

    PERSONA = "persona"
    SKILL = "skill"
    WORKFLOW = "workflow"
    BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Names a text that may have versions."""

    kind: PromptKind
    name: str

    @property
    def label(self) -> str:
        """As people see and type it: a persona by its name alone."""
        return self.name if self.kind is PromptKind.PERSONA else f"{self.kind}:{self.name}"


class VersionState(StrEnum):
    """A DRAFT waits for a decision about its trial. A version on TRIAL is used for a share of the
    new tasks, the ACTIVE one for all others. The WRITTEN one is the file of a workflow as it is
    now, used where no other is; a SAVING one is about to be written to it. RETIRED ones are kept,
    not used."""

    DRAFT = "draft"
    TRIAL = "trial"
    ACTIVE = "active"
    SAVING = "saving"
    WRITTEN = "written"
    RETIRED = "retired"

    @property
    def is_open(self) -> bool:
        """Whether it was not adopted or given up yet."""
        return self in {VersionState.DRAFT, VersionState.TRIAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    """A replacement for one text.

    `number` counts from 1 for each text. `base_hash` is that of the text that people wrote: once
    that changes, no version made from it is used. `parent` is the version it was made from, or
    ORIGINAL, and `parent_content` the text of that, empty for what people wrote. `share` is the
    percentage of new tasks that try it. `author` is `evolution`, FILE_AUTHOR or the id of a person.
    `reason` says why it was made, `end_reason` why it is no longer used, both for people or as a
    catalogue key under `prompt.end`. `signal` holds the figures that led to it; for what people
    wrote, the place it came from as `via`, and as `restored` the version that it brings back."""

    id: int
    kind: PromptKind
    name: str
    number: int
    content: str
    hash: str
    base_hash: str
    parent: int
    parent_content: str
    author: str
    reason: str
    signal: Mapping[str, Any]
    state: VersionState
    share: int
    end_reason: str
    created_at: datetime
    trial_since: datetime | None
    active_since: datetime | None
    ended_at: datetime | None

    @property
    def ref(self) -> PromptRef:
        return PromptRef(self.kind, self.name)

    @property
    def subject(self) -> str:
        """Identifies it for approvals."""
        return f"{self.kind}:{self.name}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPromptVersion:
    """A version to store as a draft. `PromptVersion` describes the fields."""

    kind: PromptKind
    name: str
    content: str
    base_hash: str
    parent: int
    parent_content: str
    author: str
    reason: str
    signal: Mapping[str, Any]
    share: int

    @property
    def ref(self) -> PromptRef:
        return PromptRef(self.kind, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedVersion:
    """The version that work was done with, ORIGINAL for the text as it is written. `version_id` is
    None then."""

    kind: PromptKind
    name: str
    number: int
    version_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTask:
    """A task that used the subject during a trial, with all versions of it that its attempts
    used. `micros` is its cost in micro-dollars."""

    task_id: TaskId
    status: TaskStatus
    numbers: Sequence[int]
    micros: int
    seconds: float


class SignalKind(StrEnum):
    """A pattern in the latest tasks. `is_problem` is False for one that asks for no change."""

    EXPRESSION_FAILURE = "expression_failure"
    DEAD_END = "dead_end"
    NODE_TIMEOUT = "node_timeout"
    BACKEND_ERROR = "backend_error"
    COSTLY = "costly"
    SLOW = "slow"
    RETRIES = "retries"
    BOTTLENECK = "bottleneck"
    PLATEAU = "plateau"

    @property
    def is_problem(self) -> bool:
        return self is not SignalKind.PLATEAU

    @property
    def remedies(self) -> frozenset[PromptKind]:
        """The kinds of texts in which other words may help. Backends fail whatever a text says, and
        expressions and ways on stand in workflows."""
        match self:
            case SignalKind.BACKEND_ERROR | SignalKind.PLATEAU:
                return frozenset()
            case SignalKind.EXPRESSION_FAILURE | SignalKind.DEAD_END:
                return frozenset({PromptKind.WORKFLOW})
            case _:
                return frozenset(PromptKind)


class CycleOutcome(StrEnum):
    """The outcome of a signal. STARTED remains if the program died in between."""

    STARTED = "started"
    NOTED = "noted"
    NO_MODEL = "no_model"
    REFUSED = "refused"
    REJECTED = "rejected"
    PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRecord:
    """A signal that fired. `name` is the label of the text it is about, empty for none; `figures`
    are its numbers; `note` is a catalogue key under `evolve.note`, or a text, that explains the
    outcome."""

    id: int
    kind: SignalKind
    name: str
    figures: Mapping[str, Any]
    outcome: CycleOutcome
    note: str
    fired_at: datetime


def text_hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
    """A text as it is `written`, with all its versions, oldest first. `figures` are those of the
    trial that is on."""

    ref: PromptRef
    written: str
    versions: Sequence[PromptVersion]
    figures: TrialFigures | None = None

    @property
    def label(self) -> str:
        return self.ref.label

    @property
    def active(self) -> PromptVersion | None:
        return next((each for each in self.versions if each.state == "active"), None)

    @property
    def number(self) -> int:
        """The version in effect outside a trial."""
        written = (each for each in self.versions if each.state is VersionState.WRITTEN)
        used = self.active or next(written, None)
        return used.number if used else ORIGINAL

    @property
    def open(self) -> PromptVersion | None:
        """The draft or trial."""
        return next((each for each in self.versions if each.state.is_open), None)

    @property
    def content(self) -> str:
        """The text in effect outside a trial."""
        return self.active.content if self.active else self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersions:
    """All versions of a named workflow that are kept, newest first. `in_use` is the number that a
    new run takes outside a trial, None if the workflow was deleted; `authors` are names by the
    authors of versions, as far as they are people with access."""

    name: str
    versions: Sequence[PromptVersion]
    in_use: int | None
    authors: Mapping[str, str]

    def find(self, number: int) -> PromptVersion | None:
        return next((each for each in self.versions if each.number == number), None)


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
