"""The paths, outputs and rounds of stored node runs.

`fix#2` is the path of the second activation of `fix`, `each[3]/read` is in the fourth round of
`each`, and `@back:e7` is a note on an edge. Templates see no output keys that begin with @.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.engine.workflow.answer_values import parse_answer_values
from bot.engine.workflow.expressions.operations import TEXT_KEY
from storage.records.tasks import NodeRun, NodeStatus

_ACTIVATION = re.compile(r"^(?P<id>[^#@/\[\]]+)(?:#(?P<round>\d+))?$")
BACK_EDGE_PREFIX = "@back:"
_QUESTION_PREFIX = "@ask:"
_ITERATION_PREFIX = "@of:"
_DECISION = re.compile(r"@decide:[0-9a-f]{8}\.\d+:")

PLANNING_PATH = "@plan"
"""The run path of planning itself; no node may have it."""

VARIABLES_PATH = "@variables"
"""The path of the run that stores a workflow's variables."""

TIMED_OUT_PATH = "@late"
"""The path of the run that records when the workflow ran out of time."""

SOUND_FILES_KEY = "@sound"
"""In the output of a step that is not done: the files that could be parsed before it began."""


@dataclass(frozen=True, slots=True, order=True)
class ActivationPath:
    """One activation of a node. `scope` is empty, or ends with a slash; `round` counts from 1."""

    scope: str
    node: str
    round: int = 1

    @property
    def path(self) -> str:
        again = f"#{self.round}" if self.round > 1 else ""
        return f"{self.scope}{self.node}{again}"

    def round_scope(self, n: int) -> str:
        """The scope of its `n`-th round, counted from 0."""
        return f"{self.path}[{n}]/"

    @property
    def question_path(self) -> str:
        """The path of the question whether to continue after it."""
        return f"{self.scope}{_QUESTION_PREFIX}{self.path.removeprefix(self.scope)}"

    def decision_path(self, subject: str, rounds: int = 0) -> str:
        """The path of the question whether the subject of a condition is so, behind it or after so
        many of its rounds."""
        key = f"{zlib.crc32(subject.encode('utf-8', 'surrogatepass')):08x}.{rounds}"
        return f"{self.scope}@decide:{key}:{self.path.removeprefix(self.scope)}"

    @property
    def iteration_path(self) -> str:
        """The path of the run that stores what its rounds iterate over."""
        return f"{self.scope}{_ITERATION_PREFIX}{self.path.removeprefix(self.scope)}"


def parse_activation(path: str) -> ActivationPath | None:
    """None if the path is not that of an activation."""
    scope, _, name = path.rpartition("/")
    found = _ACTIVATION.match(name)
    if found is None:
        return None
    return ActivationPath(f"{scope}/" if scope else "", found["id"], int(found["round"] or 1))


def back_edge_path(scope: str, edge: str) -> str:
    """The path of the run that counts how often a back edge was taken."""
    return f"{scope}{BACK_EDGE_PREFIX}{edge}"


def scope_of(path: str) -> str:
    scope, slash, _ = path.rpartition("/")
    return scope + slash


def enclosing_round(scope: str) -> tuple[str, int] | None:
    """The path of the node whose round this scope is, and the round; None for the outermost."""
    found = re.fullmatch(r"(.*)\[(\d+)\]/", scope)
    return (found[1], int(found[2])) if found else None


def questioned_path(path: str) -> str | None:
    """The path that a question is about; None if the path is not that of a question."""
    scope = scope_of(path)
    name = path.removeprefix(scope)
    if name.startswith(_QUESTION_PREFIX):
        return scope + name.removeprefix(_QUESTION_PREFIX)
    found = _DECISION.match(name)
    return None if found is None else scope + name[found.end() :]


def is_condition_question(path: str) -> bool:
    """Whether the path is that of a question whether a condition holds."""
    return _DECISION.match(path.removeprefix(scope_of(path))) is not None


TAKEN_EDGES_KEY = "@took"
"""The names of the edges taken behind the node, if there was a choice."""

EXHAUSTED_EDGE_KEY = "@exhausted"
"""An edge that was wanted and has been taken as often as it may."""

VALUES_KEY = "@values"
"""The values of a step with a declared output, by name."""

UNFINISHED_ROUNDS_KEY = "unfinished"
"""Of a loop that a new plan has cut short, the outputs of its unfinished rounds."""

UNDECIDED_KEY = "@undecided"
"""The subject of the condition that a person has to decide before an edge can be taken."""

_UNREACHED_KEY = "@dead"


def unreached_output() -> Mapping[str, Any]:
    """The output of a node that no branch has reached."""
    return {_UNREACHED_KEY: True}


def is_unreached(run: NodeRun) -> bool:
    return bool(run.output.get(_UNREACHED_KEY))


def taken_edges(run: NodeRun) -> frozenset[str] | None:
    """None where every edge without a condition was taken."""
    names = run.output.get(TAKEN_EDGES_KEY)
    return None if names is None else frozenset(names)


def node_output(run: NodeRun) -> Mapping[str, Any]:
    """The node's own output as expressions see it: a text under `_raw` and `result`, with the
    values of the declared output, or else those parsed from the text."""
    own = {key: value for key, value in run.output.items() if not key.startswith("@")}
    if run.error and "error" not in own:
        own["error"] = run.error
    text = own.get("summary")
    if not isinstance(text, str):
        return {"result": own["_raw"], **own} if "_raw" in own else own
    values = run.output.get(VALUES_KEY)
    values = parse_answer_values(text) if values is None else values
    return {"result": text, "_raw": text, **values, **own}


def is_finished(run: NodeRun | None) -> bool:
    return run is not None and run.status in {NodeStatus.DONE, NodeStatus.SKIPPED}


def is_done(run: NodeRun | None) -> bool:
    return run is not None and run.status is NodeStatus.DONE


class StoredRuns:
    def __init__(self, runs: Mapping[str, NodeRun]) -> None:
        self.runs = runs
        self._opened_rounds: dict[str, int] = defaultdict(int)
        self._back_edge_counts: dict[str, dict[str, int]] = defaultdict(dict)
        for path, run in runs.items():
            self._index(path, run)

    def opened_rounds(self, path: str) -> int:
        """The number of rounds of a loop that have stored runs."""
        return self._opened_rounds[path]

    def back_edge_counts(self, scope: str) -> Mapping[str, int]:
        """How often each back edge of that scope was taken."""
        return self._back_edge_counts[scope]

    def previous_run(self, activation: ActivationPath) -> Mapping[str, NodeRun]:
        """The node's run in the round before, by its id."""
        return next(({activation.node: run} for run in self.earlier_runs(activation)), {})

    def earlier_runs(self, activation: ActivationPath) -> Iterator[NodeRun]:
        """Its runs in earlier rounds, latest first."""
        before = (
            ActivationPath(activation.scope, activation.node, n)
            for n in range(activation.round - 1, 0, -1)
        )
        runs = (self.runs.get(each.path) for each in before)
        return (run for run in runs if run is not None)

    def _index(self, path: str, run: NodeRun) -> None:
        scope = scope_of(path)
        if path.startswith(scope + BACK_EDGE_PREFIX):
            edge = path.removeprefix(scope + BACK_EDGE_PREFIX)
            self._back_edge_counts[scope][edge] = int(run.output.get("times", 0))
        while (above := enclosing_round(scope)) is not None:
            container, n = above
            self._opened_rounds[container] = max(self._opened_rounds[container], n + 1)
            scope = scope_of(container)


NO_STORED_RUNS = StoredRuns({})


_INTERNAL_KEYS = {"made", "left_out", "heard"}


def public_value(value: Any) -> Any:
    """A value as people see it: the text of an output, without the engine's own fields."""
    if isinstance(value, Mapping):
        if TEXT_KEY in value:
            return public_value(value[TEXT_KEY])
        if _INTERNAL_KEYS & value.keys() and "summary" in value:
            return value["summary"]
        return {
            name: public_value(each) for name, each in value.items() if not is_internal_key(name)
        }
    return [public_value(each) for each in value] if isinstance(value, list | tuple) else value


def is_internal_key(name: object) -> bool:
    """Whether an output's field is for the engine alone."""
    return name in _INTERNAL_KEYS or (isinstance(name, str) and name.startswith("@"))
