"""Stored node runs: their paths, outputs and rounds; and the named values in a worker's answer."""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from bot.engine.llm.answer_schemas import repair_json
from bot.engine.workflow.expressions.operations import TEXT_KEY, Flag, is_hedged, qualify, read_flag
from storage.records.tasks import NodeRun, NodeStatus

# --- values by name, out of a worker's answer
# JSON in any fence or in none, and pairs such as `Approved: True`, `**score** = 8` or `通过：是`. A
# value that the text leaves open is left out, so that a condition which needs it can be asked
# about: `approved: true, but only if the tests pass` gives no `approved`.

_MAX_READ = 20_000
_MAX_DEPTH = 30
_MAX_OBJECTS = 50
_SCALARS = str | int | float | None
RESERVED_NAMES = frozenset({"_raw", "summary", "files", "made", "left_out", "heard", "error"})
"""Names of an output's own fields, which no answer can set."""

_FENCED = re.compile(
    # No run is read again from its middle, nor given back: that would take quadratic time.
    r"(?<![`~])(`{3,16}+|~{3,16}+)[^\S\n]*+[\w+-]*+[^\S\n]*+\n(.*?)(?:\1|\Z)",
    re.DOTALL,
)
_PLAIN_PUNCTUATION = str.maketrans("：＝（），；｜？｛｝［］“”‘’", ":=(),;|?{}[]\"\"''")
_MARKUP = re.compile(r"[*`]+|(?<!\w)_+|(?<!_)_++(?!\w)")
_FLAG_WORDS = r"true|false|yes|no|是|否|不是|不通过|未通过|通过|不同意|同意|✅|❌|✔|✘"
_PAIR = re.compile(
    r"(?P<negated>\b(?:not|isn't|never)[ ]|[未不没])?"
    r"(?P<name>\b[A-Za-z_]\w{0,40}|[\u4e00-\u9fff]{2,8})[^\S\n]*(?:[:=|?]|->|=>|→)[^\S\n]*[\"']?"
    rf"(?P<value>(?:{_FLAG_WORDS})(?![A-Za-z0-9_])|-?\d{{1,18}}(?:\.\d{{1,18}})?\b)"
    r"(?P<rest>[^\n]{0,200})",
    re.IGNORECASE,
)
_APPROVED = "approved"
_APPROVED_NAMES = {
    "approve", "is_approved", "isapproved", "是否通过", "是否批准", "是否同意", "通过", "批准",
    "审核通过", "评审通过", "审查通过", "已批准", "结论", "评审结果", "审核结果", "审查结果",
    "评审结论", "审批结果",
}  # fmt: skip


@lru_cache(maxsize=256)
def parse_answer_values(text: str) -> Mapping[str, Any]:
    """Extract named values from a text: those of its first JSON object (a lone `result` is
    unwrapped), and pairs like `approved: true` or `score = 8`, which the object overrides. Where a
    pair occurs twice the last one counts. A review that is approved or rejected in so many words
    gives `approved`. Values that are nested too deeply are dropped."""
    text = text[:_MAX_READ]
    found = {**_parse_pairs(text), **_parse_json(text)}
    values = {
        name: value
        for name, value in found.items()
        if not (value is Flag.UNSURE or (value is None and name.casefold() == _APPROVED))
        and not (name in RESERVED_NAMES or name.startswith("@") or _is_too_deep(value))
    }
    if not any(name.casefold() == _APPROVED for name in found):
        verdict = _named_approval(found) or _read_verdict(text)
        if verdict is not None and verdict is not Flag.UNSURE:
            values[_APPROVED] = verdict.value
    return MappingProxyType(values)


def _parse_pairs(text: str) -> dict[str, Any]:
    plain = _MARKUP.sub("", text.translate(_PLAIN_PUNCTUATION))
    pairs: dict[str, Any] = {}
    at = 0
    while (found := _PAIR.search(plain, at)) is not None:
        value = _parse_scalar(found["value"], found["rest"])
        # What follows on the line may be the next pair, unless that is only the other choice.
        at = found.end("rest" if value is Flag.UNSURE else "value")
        if not found["negated"]:
            pairs.pop(found["name"], None)
            pairs[found["name"]] = value
    return pairs


def _parse_scalar(text: str, rest: str) -> bool | int | float | str | Flag:
    flag = read_flag(text)
    if flag is not None:
        certain = qualify(flag, rest.lstrip("\"'"))
        if certain is Flag.UNSURE:
            return Flag.UNSURE
        return bool(flag.value) if text.lower() in {"true", "false"} else text
    return float(text) if "." in text else int(text)


def _parse_json(text: str) -> dict[str, Any]:
    for block in (*(found[2] for found in _FENCED.finditer(text)), text):
        for candidate in (block, block.translate(_PLAIN_PUNCTUATION)):
            value = next(_json_objects(candidate), None)
            if value is None:
                continue
            inner = value.get("result")
            return inner if set(value) == {"result"} and isinstance(inner, dict) else value
    return {}


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects that are not empty. If there is none, an object with small syntax
    errors.
    """
    # NaN and infinities cannot be stored.
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    at = text.find("{")
    for _ in range(_MAX_OBJECTS):
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict) and value:
                yield value
        at = text.find("{", end)
    first, last = text.find("{"), text.rfind("}")
    if 0 <= first < last:
        try:
            value = decoder.decode(repair_json(text[first : last + 1]))
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict) and value:
            yield value


def _is_too_deep(value: Any) -> bool:
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        depth += 1
        groups = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for each in groups if not isinstance(each, _SCALARS) for part in each]
    return depth > _MAX_DEPTH


def _named_approval(values: Mapping[str, Any]) -> Flag | None:
    """The verdict, if it has another name than `approved`."""
    for name, value in values.items():
        if name.casefold() in _APPROVED_NAMES:
            if isinstance(value, bool | Flag):
                return Flag(value) if isinstance(value, bool) else value
            return read_flag(value) if isinstance(value, str) else None
    return None


_MAX_LINE = 300
_BULLETS = " \t#>-+|✅❌🟢🔴👍👎🚫"
_LEAD = (
    r"(?:(?:my |the |final |overall |review )*"
    r"(?:verdict|decision|result|status|recommendation|conclusion|outcome|review)"
    r"|(?:最终|总体)?(?:评审|审核|审查|审批)?(?:结论|结果|意见|判定))?"
    r" ?(?:is\b|[:：\-—–]|为|是)? ?(?:我|i (?:would )?|we )?"
)
_END = r"(?= ?(?:$|[.,!:;()—–\-。，！；：（）✅👍🎉🚀]))"
_POSITIVE = re.compile(
    _LEAD + r"(?:(?:approved?|accept(?:ed)?|lgtm|looks good(?: to me)?|ship it|good to (?:go|merge)"
    r"|ready to (?:merge|ship)|no (?:further )?(?:changes|issues|objections))"
    r"(?: (?:to me|to merge|to ship|as[ -]is|this|it|overall|this change|the change|this pr"
    r"|the pr|by me|now|needed|found|from me|for release))*"
    r"|(?:审核|评审|审查|予以)?(?:通过|批准|同意)(?:合并|发布|了)?|可以(?:合并|发布|上线)了?"
    r"|没(?:有)?问题)" + _END,
    re.IGNORECASE,
)
_NEGATIVE = re.compile(
    _LEAD + r"(?:(?:not (?:yet )?(?:approved|accepted|ready|lgtm|good)|unapproved|disapproved"
    r"|(?:request(?:ing)?|needs?|please make) (?:more )?(?:changes|work|fixes)|changes requested"
    r"|changes (?:are )?(?:needed|required)"
    r"|(?:do not|don't|cannot|can't|won't|will not|not able to) (?:approve|accept|merge|ship))\b"
    r"|(?:reject(?:ed|ing)?|declined|nack|blocked)(?: (?:this|it|the pr|for now))*" + _END
    + r"|(?:审核|评审|审查)?(?:暂?不|未|没有|不予|不能|无法)(?:予)?(?:通过|批准|同意|合并|发布)"
    r"|驳回|打回|退回|拒绝|(?:还)?(?:需要?|请)(?:先)?(?:修改|返工|重做|改))",
    re.IGNORECASE,
)  # fmt: skip
_RESERVATION = re.compile(
    r"but\b|however|that said|still\b|except|one blocker|但|不过|然而", re.IGNORECASE
)


def _read_verdict(text: str) -> Flag | None:
    """The verdict at the beginning of a review's lines; None if there is none, or if lines
    contradict each other or make a reservation.
    """
    seen: set[Flag] = set()
    for written in re.split(r"\n+|(?<=[。！])", _MARKUP.sub("", text)):
        line = " ".join(written[:_MAX_LINE].split()).lstrip(_BULLETS)
        if _NEGATIVE.match(line):
            seen.add(Flag.NO)
        elif found := _POSITIVE.match(line):
            seen.add(Flag.UNSURE if is_hedged(line[found.end() :]) else Flag.YES)
        elif Flag.YES in seen and _RESERVATION.match(line):
            seen.add(Flag.UNSURE)
    return (seen.pop() if len(seen) == 1 else Flag.UNSURE) if seen else None


# --- paths, outputs and rounds of stored runs
# `fix#2` is the path of the second activation of `fix`, `each[3]/read` is in the fourth round of
# `each`, and `@back:e7` is a note on an edge. Templates see no output keys that begin with @.

_ACTIVATION = re.compile(r"^(?P<id>[^#@/\[\]]+)(?:#(?P<round>\d+))?$")
BACK_EDGE_PREFIX = "@back:"
_QUESTION_PREFIX = "@ask:"
_ITERATION_PREFIX = "@of:"
_FRESH_LIMIT_PREFIX = "@more:"
_COMPENSATION_PREFIX = "@undo:"
_DECISION = re.compile(r"@decide:[0-9a-f]{8}\.\d+:")

PLANNING_PATH = "@plan"
"""The run path of planning itself; no node may have it."""

VARIABLES_PATH = "@variables"
"""The path of the run that stores a workflow's variables; those of a sub-workflow are in the scope
of its round."""

ASSIGNMENT_KEY = "@assigned"
"""In the output of a run that has set variables: how many of the task's runs had done so by then,
itself included."""

TIMED_OUT_PATH = "@late"
"""The path of the run that records when the workflow ran out of time."""

FRESH_START_PATH = "@again"
"""The path of the run that records when the task was last tried again, from which on its budget
counts. Its time limits count from the run's end: that is when the task was claimed again, once it
was. `attempts` is the number after which those of its nodes count on, and `times`
how often workers have begun without the conversation before."""

ENDING_PATH = "@ending"
"""The path of the run that records, once a run ends without success and has something to undo, the
`status` and the `reason` with which it ends then. `before` are the paths of what was being undone,
or was undone, already. The time limit for undoing counts from its end, which moves by the time in
which nothing ran; its start says until when that is reckoned."""

FAILED_KEY = "@failed"
"""In the output of a step that may run again: its last attempt failed, rather than was cut off."""

REPORTED_ERROR_KEY = "@reported"
"""The error that the worker is told of after an outage of its model: that of the attempt before."""

SOUND_FILES_KEY = "@sound"
"""In the output of a step that is not done: the files that could be parsed before it began."""

VALUE_FILES_KEY = "@values"
"""The same for files in which it was to change a value: how often the values stood there, and a
digest of the rest."""


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
        """The path of the question whether the subject of a condition is true. The condition stands
        behind this activation, or behind that many of its rounds.
        """
        key = f"{zlib.crc32(subject.encode('utf-8', 'surrogatepass')):08x}.{rounds}"
        return f"{self.scope}@decide:{key}:{self.path.removeprefix(self.scope)}"

    @property
    def compensation_path(self) -> str:
        """The path of this activation's compensation."""
        return f"{self.scope}{_COMPENSATION_PREFIX}{self.path.removeprefix(self.scope)}"

    @property
    def iteration_path(self) -> str:
        """The path of the run that stores the values that its rounds iterate over."""
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


def fresh_limit_path(scope: str, name: str) -> str:
    """The path of the run that records, when a task is tried again, how much of the limit of an
    edge or a loop was used up. That much is granted again.
    """
    return f"{scope}{_FRESH_LIMIT_PREFIX}{name}"


def noted_path(path: str) -> str | None:
    """The path of the activation that a note is about; None if the path is that of no such note."""
    scope = scope_of(path)
    name = path.removeprefix(scope)
    for prefix in (_ITERATION_PREFIX, _FRESH_LIMIT_PREFIX, _COMPENSATION_PREFIX):
        if name.startswith(prefix):
            return scope + name.removeprefix(prefix)
    return questioned_path(path)


def attempts_before(runs: Mapping[str, NodeRun]) -> int:
    """The number of attempts before the task was tried again; those of nodes without a run are
    counted from there.
    """
    again = runs.get(FRESH_START_PATH)
    return 0 if again is None else int(again.output.get("attempts", 0))


def is_claimed(fresh_start: NodeRun) -> bool:
    """Whether the task was claimed after it was tried again."""
    return fresh_start.ended_at != fresh_start.started_at


def scope_of(path: str) -> str:
    scope, slash, _ = path.rpartition("/")
    return scope + slash


def enclosing_round(scope: str) -> tuple[str, int] | None:
    """The loop's path and the number of the round; None for the outermost scope."""
    found = re.fullmatch(r"(.*)\[(\d+)\]/", scope)
    return (found[1], int(found[2])) if found else None


def loops_around(place: ActivationPath) -> Iterator[ActivationPath]:
    """The activations in whose rounds it is, from the inside out."""
    scope = place.scope
    while (above := enclosing_round(scope)) is not None:
        loop = parse_activation(above[0])
        assert loop is not None
        yield loop
        scope = loop.scope


def questioned_path(path: str) -> str | None:
    """The path that a question is about; None if the path is not that of a question."""
    scope = scope_of(path)
    name = path.removeprefix(scope)
    if name.startswith(_QUESTION_PREFIX):
        return scope + name.removeprefix(_QUESTION_PREFIX)
    found = _DECISION.match(name)
    return None if found is None else scope + name[found.end() :]


def compensated_path(path: str) -> str | None:
    """The path of the activation that this compensation undoes; None if the path is not a
    compensation's.
    """
    scope = scope_of(path)
    name = path.removeprefix(scope)
    is_one = name.startswith(_COMPENSATION_PREFIX)
    return scope + name.removeprefix(_COMPENSATION_PREFIX) if is_one else None


def is_condition_question(path: str) -> bool:
    """Whether the path is that of a question about a condition."""
    return _DECISION.match(path.removeprefix(scope_of(path))) is not None


TAKEN_EDGES_KEY = "@took"
"""The names of the edges taken behind the node, if there was a choice."""

EXHAUSTED_EDGE_KEY = "@exhausted"
"""An edge that was wanted and has been taken as often as it may."""

VALUES_KEY = "@values"
"""The values of a step with a declared output, by name."""

UNFINISHED_ROUNDS_KEY = "unfinished"
"""Of a loop that a new plan has cut short, the outputs of its unfinished rounds."""

SUSPENDED_KEY = "asked"
"""In the output of a step that stopped at tool calls: the hash of that step."""

CHOICE_FIELD = "choice"
"""The field in which a person chooses one of several answers about an undecided condition."""


def decision_of(run: NodeRun) -> bool | str:
    """A person's answer to a question: yes, no, or the choice."""
    is_yes = bool(run.output.get(_APPROVED))
    chosen = (run.output.get(VALUES_KEY) or {}).get(CHOICE_FIELD)
    return str(chosen) if is_yes and chosen is not None else is_yes


UNDECIDED_KEY = "@undecided"
"""The subject of the condition that a person has to decide before an edge can be taken."""

_UNREACHED_KEY = "@dead"


def unreached_output() -> Mapping[str, Any]:
    """The output of a node that no branch has reached."""
    return {_UNREACHED_KEY: True}


def is_unreached(run: NodeRun) -> bool:
    return bool(run.output.get(_UNREACHED_KEY))


def is_left_out(run: NodeRun) -> bool:
    """Whether no branch has reached the node, or its branch was cancelled."""
    return is_unreached(run) or run.status is NodeStatus.CANCELLED


def taken_edges(run: NodeRun) -> frozenset[str] | None:
    """The recorded choice of edges; None if every edge without a condition was taken."""
    if run.status is NodeStatus.CANCELLED:
        return frozenset()
    names = run.output.get(TAKEN_EDGES_KEY)
    return None if names is None else frozenset(names)


def node_output(run: NodeRun) -> Mapping[str, Any]:
    """The output of the node as expressions see it. A text is available as `_raw` and `result`,
    beside the values of the declared output, or else the values parsed from the text.
    """
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
    return run is not None and run.status.is_settled


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

    def used_limit(self, scope: str, name: str) -> int:
        """How much of a limit was used before the task was tried again."""
        run = self.runs.get(fresh_limit_path(scope, name))
        return 0 if run is None else int(run.output.get("used", 0))

    def previous_run(self, activation: ActivationPath) -> Mapping[str, NodeRun]:
        """The node's run in the round before, by its id."""
        return next(({activation.node: run} for run in self.earlier_runs(activation)), {})

    def earlier_runs(self, activation: ActivationPath) -> Iterator[NodeRun]:
        """The node's runs in earlier rounds, latest first."""
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
    """Whether a field of an output is for the engine only."""
    return name in _INTERNAL_KEYS or (isinstance(name, str) and name.startswith("@"))
