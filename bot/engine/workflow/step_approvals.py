"""Approvals that a task needs before it continues: for a risky step, for a person's step, for more
budget, and for the tool calls at which a step has stopped."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar, assert_never, cast

from bot.engine.agent.budget import request_cap_extension
from bot.engine.llm.backend import ReachedCap
from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.input_fields import input_to_data
from bot.engine.workflow.node_runs import SUSPENDED_KEY, is_condition_question
from bot.engine.workflow.report_delivery import delivered_message_count
from storage.approvals import (
    NewApproval,
    add_approval,
    extend_approval_payload,
    newest_approval_of_step,
    withdraw_task_approvals,
)
from storage.db import Transaction
from storage.ids import IdGenerator
from storage.people import find_person_id, owner_ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import PersonId
from storage.records.tasks import NodeRun, Task, TaskId
from storage.tasks import SubagentReport, WorkerInput

_Call = TypeVar("_Call")
_Decision = TypeVar("_Decision")

MESSAGE_MARK = "💬"
_MAX_TALK = 300
_MESSAGE_START = re.compile(rf"(?:^|\n){MESSAGE_MARK} ")
_PUNCTUATION = frozenset(",.!?;:'\"()-，。！？、；：“”‘’（）…—~～")
_COMMAND_LIKE = re.compile(r"(?<!\S)-|\w[.:]\w|(?<!\w)[.~]\w")
"""A flag, the name of a file or a host, a port."""


STEP_APPROVAL_KINDS = (
    ApprovalKind.HUMAN,
    ApprovalKind.CONDITION,
    ApprovalKind.RISK,
    ApprovalKind.TOOL,
    ApprovalKind.QUESTION,
)
"""Kinds by which a task waits at one of its steps."""

OUTDATED_KEY = "outdated"
"""In the payload of a decision about a step that a person has ordered to run again since."""

_HUMAN = "human"
_TASK = "task"
_NONE = "-"
_OWNER = "owner"
_MAX_TITLE = 200
_MAX_INSTRUCTION = 200


@dataclass(frozen=True, slots=True)
class StepAllowed:
    """The step may start. `by` is the decision that allowed it; None if it needed no approval."""

    by: Approval | None = None


@dataclass(frozen=True, slots=True)
class StepAwaitsApproval:
    """A person must decide first. The request stays the same for as long as it waits."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class StepRefused:
    """A person rejected the step; `reason` says why. A rejection counts once; the next attempt
    makes a new request.
    """

    by: PersonId | None
    reason: str


StepDecision: TypeAlias = StepAllowed | StepAwaitsApproval | StepRefused


@dataclass(frozen=True, slots=True)
class FindNewest:
    """Asks for the newest request of that kind about a step: Approval | None."""

    kind: ApprovalKind
    path: str


@dataclass(frozen=True, slots=True)
class AddFacts:
    """Adds to the payload of a request: None."""

    approval: Approval
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WithdrawRequests:
    """Closes the requests about the task's steps that `is_over` names by their paths: None.
    `reason_key` is a key of the catalogue."""

    reason_key: str
    is_over: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Asks people about a step, which `word` makes a risk: Approval."""

    node: WorkflowNode
    kind: ApprovalKind
    word: str


ApprovalCall: TypeAlias = FindNewest | AddFacts | WithdrawRequests | CreateRequest
"""A request of a rule to the table of approvals; each names the type of its answer."""


def parse_risk_words(setting: str) -> tuple[str, ...]:
    """The comma-separated words of the setting; `-` means none."""
    words = (_normalized(each) for each in setting.split(","))
    return tuple(word for word in words if word and word != _NONE)


def find_risk_word(node: WorkflowNode, words: Sequence[str]) -> str:
    """The first of these words that the step's text contains, ignoring case; empty if there is
    none.

    A Latin word matches only at the beginning of a word: `deploy` is in “deployment”, but
    `production` is not in “reproduction”.
    """
    text = _normalized(f"{node.title}\n{node.detail}")
    return next((word for word in words if _count_word(text, _normalized(word))), "")


def command_hash(node: WorkflowNode) -> str:
    """A hash that identifies the step exactly: approval of one command does not cover another."""
    parts: list[object] = [node.type, node.title, node.detail]
    if form := node.spec.form(node.settings):
        parts.append([input_to_data(each) for each in form])
    exact = json.dumps(parts, ensure_ascii=False)
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def step_turn_key(task_id: TaskId, node: WorkflowNode) -> str:
    """The key of the step's turn; a step with other words is another turn."""
    return " ".join(("step", task_id, node.id, command_hash(node)))


def with_new_messages(
    node: WorkflowNode, orders: WorkerInput, runs: Mapping[str, NodeRun]
) -> WorkflowNode:
    """The step with the messages that no finished step has received. Its worker will get them, so
    they are part of what is approved. An approver's answer to this step's own question counts as
    approved.
    """
    if node.type != _TASK:
        return node
    heard = delivered_message_count(runs) if orders.messages else 0
    new = [
        text
        for n, text in enumerate(orders.messages)
        if n >= heard
        and not isinstance(text, SubagentReport)
        and orders.answered_steps.get(n) != node.id
        and text not in node.title
    ]
    return replace(
        node, detail="\n".join((node.detail, *(f"{MESSAGE_MARK} {text}" for text in new))).strip()
    )


async def answer_calls(
    deciding: Generator[_Call, Any, _Decision], answer: Callable[[_Call], Awaitable[object]]
) -> _Decision:
    """Run a decision to its end: answer each of its calls in turn."""
    given: object = None
    while True:
        try:
            call = deciding.send(given)
        except StopIteration as ended:
            return cast("_Decision", ended.value)
        given = await answer(call)


@dataclass(frozen=True, slots=True)
class StepApprovalRules:
    """Decides which steps need approval, without a database. `words` make a step risky."""

    words: Sequence[str]

    def decide(
        self, node: WorkflowNode, may_wait_beside: Callable[[str], bool]
    ) -> Generator[ApprovalCall, Any, StepDecision]:
        """Decide whether a step may start, from the answers to its calls.

        One approval covers the unchanged step until it is done, across retries and crashes, and
        whatever people say to its worker meanwhile. Messages that could turn it into another step
        need a new request; the approved text stays exactly what was shown. `may_wait_beside` names
        the paths of the task's other steps that may wait for a person at the same time.
        """
        word = find_risk_word(node, self.words) if node.type != _HUMAN else ""
        if node.type != _HUMAN and not word and not node.auto_wait:
            return StepAllowed()
        kind = _kind_of(node)
        last: Approval | None = yield FindNewest(kind, node.id)
        if last is not None and last.payload.get(OUTDATED_KEY):
            last = None
        if last is not None and last.command_hash == command_hash(node):
            match last.state:
                case ApprovalState.APPROVED:
                    return StepAllowed(last)
                case ApprovalState.WAITING:
                    return StepAwaitsApproval(last)
                case ApprovalState.REJECTED if not last.payload.get("spent"):
                    yield AddFacts(last, {"spent": True})
                    return StepRefused(last.decided_by, last.payload.get("refusal", last.reason))
                case _:
                    pass
        if last is not None and last.state is ApprovalState.APPROVED:
            talk = _added_talk(node, last.command_hash)
            if talk is not None and _is_harmless(talk) and not self._adds_risk(node, last, talk):
                yield AddFacts(last, {"talk": talk})
                return StepAllowed(last)
        # Requests about a step that is over, or about this one before it was changed, must not
        # move it any more.
        yield WithdrawRequests(
            "approval.asked_anew", lambda path: path == node.id or not may_wait_beside(path)
        )
        asked: Approval = yield CreateRequest(node, kind, word)
        return StepAwaitsApproval(asked)

    def may_hear(self, node: WorkflowNode, talk: str, before: Sequence[str]) -> bool:
        """Whether the worker of a running step may receive this message after the messages in
        `before`: only if it contains nothing that needs approval first.
        """
        told = "\n".join((node.title, node.detail, *before))
        then, now = _normalized(told), _normalized(f"{told}\n{talk}")
        if any(_count_word(now, word) > _count_word(then, word) for word in self.words):
            return False
        is_approved = bool(find_risk_word(node, self.words) or node.auto_wait)
        return not is_approved or _is_harmless(talk)

    def _adds_risk(self, node: WorkflowNode, allowed: Approval, talk: str) -> bool:
        """Whether the text contains a risk word that was not approved, even one that is formed by
        old and new words together.
        """
        before = _normalized(allowed.detail.replace(MESSAGE_MARK, " "))
        now = _normalized(f"{node.title}\n{node.detail}".replace(MESSAGE_MARK, " "))
        return any(
            _count_word(now, word) > _count_word(before, word) for word in self.words
        ) or any(_count_word(_normalized(talk), word) for word in self.words)


def _kind_of(node: WorkflowNode) -> ApprovalKind:
    if node.type != _HUMAN:
        return ApprovalKind.RISK
    return ApprovalKind.CONDITION if is_condition_question(node.id) else ApprovalKind.HUMAN


class StepApprovalRequester:
    """Answers the calls of the rules within a transaction that has locked the task. An undecided
    request expires after `lifetime`.
    """

    def __init__(
        self,
        *,
        words: Sequence[str],
        lifetime: timedelta,
        ids: IdGenerator,
        now: Callable[[], datetime],
    ) -> None:
        self.rules = StepApprovalRules(tuple(words))
        self._lifetime = lifetime
        self._ids = ids
        self._now = now

    async def answer(self, tx: Transaction, task: Task, call: ApprovalCall) -> Approval | None:
        match call:
            case FindNewest(kind=kind, path=path):
                return await newest_approval_of_step(tx, kind, task.id, path, now=self._now())
            case AddFacts(approval=approval, facts=facts):
                await extend_approval_payload(tx, approval, **facts)
            case WithdrawRequests(reason_key=key, is_over=is_over):
                await withdraw_task_approvals(
                    tx,
                    task.id,
                    reason_key=key,
                    now=self._now(),
                    kinds=STEP_APPROVAL_KINDS,
                    keeps_step=lambda path: not is_over(path),
                )
            case CreateRequest(node=node, kind=kind, word=word):
                return await self._create_request(tx, task, node, kind, word)
            case never:
                assert_never(never)
        return None

    async def _create_request(
        self, tx: Transaction, task: Task, node: WorkflowNode, kind: ApprovalKind, word: str
    ) -> Approval:
        now = self._now()
        assignees = node.spec.assignees(node.settings)
        timeout = node.spec.answer_timeout(node.settings)
        approvers: tuple[PersonId, ...] = ()
        named: Sequence[PersonId] = ()
        if kind in {ApprovalKind.HUMAN, ApprovalKind.CONDITION}:
            named = await _resolve_assignees(tx, assignees)
            first = named if assignees else (task.created_by,)
            approvers = tuple(dict.fromkeys((*first, *await owner_ids(tx))))
        lifetime = max(self._lifetime, timedelta(seconds=timeout or 0))
        payload: dict[str, Any] = {
            "task": task.title,
            "said": task.instruction[:_MAX_INSTRUCTION],
            "word": word,
        }
        if form := node.spec.form(node.settings):
            payload["form"] = [input_to_data(each) for each in form]
        if named:
            payload["assignees"] = list(named)
        if timeout is not None:
            payload["closes"] = (now + timedelta(seconds=timeout)).isoformat()
        new = NewApproval(
            kind=kind,
            chat_id=task.chat_id,
            title=node.title[:_MAX_TITLE],
            detail=f"{node.title}\n{node.detail}".strip(),
            expires_at=now + lifetime,
            task_id=task.id,
            path=node.id,
            command_hash=command_hash(node),
            approvers=approvers,
            payload=payload,
        )
        return await add_approval(tx, new, ids=self._ids, now=now)


async def _resolve_assignees(tx: Transaction, wanted: Sequence[str]) -> Sequence[PersonId]:
    """The assignees who are known people. Owners may decide without being named."""
    names = [each for each in wanted if each.casefold() != _OWNER]
    found = [await find_person_id(tx, each) for each in names]
    return tuple(dict.fromkeys(each for each in found if each is not None))


class CapExtensionRequester:
    """Asks people to extend a cap that a task has reached; the request expires after
    `lifetime`."""

    def __init__(
        self, *, lifetime: timedelta, ids: IdGenerator, now: Callable[[], datetime]
    ) -> None:
        self._lifetime = lifetime
        self._ids = ids
        self._now = now

    async def __call__(self, tx: Transaction, task: Task, hit: ReachedCap) -> Approval:
        now = self._now()
        return await request_cap_extension(
            tx,
            hit,
            task=task.id,
            chat_id=task.chat_id,
            title=task.title,
            ids=self._ids,
            now=now,
            expires_at=now + self._lifetime,
        )


def _added_talk(node: WorkflowNode, approved_hash: str) -> str | None:
    """The messages that this step has gained since the version with this hash was approved; None if
    anything else has changed.
    """
    for begin in _MESSAGE_START.finditer(node.detail):
        before = replace(node, detail=node.detail[: begin.start()])
        if command_hash(before) == approved_hash:
            return node.detail[begin.start() :].replace(MESSAGE_MARK, " ").strip()
    return None


def _is_harmless(talk: str) -> bool:
    """Whether the text cannot be part of a command: it has only words and sentence punctuation."""
    return (
        len(talk) <= _MAX_TALK
        and not _COMMAND_LIKE.search(talk)
        and all(
            (kind := unicodedata.category(each))[0] in "LMN"
            or kind in {"Zs", "So"}
            or each == "\n"
            or each in _PUNCTUATION
            for each in talk
        )
    )


def _normalized(text: str) -> str:
    """The text in lower case with plain Latin letters, single spaces and no invisible
    characters.
    """
    letters = unicodedata.normalize("NFKC", text)
    visible = "".join(each for each in letters if unicodedata.category(each) != "Cf")
    return " ".join(visible.casefold().split())


def _count_word(text: str, word: str) -> int:
    if not word[:1].isascii() or not word[:1].isalnum():
        return text.count(word) if word else 0
    return len(re.findall(rf"(?<![a-z0-9]){re.escape(word)}", text))


def is_suspended(node: WorkflowNode, runs: Mapping[str, NodeRun]) -> bool:
    """Whether this step has stopped at tool calls. A step that has changed since then
    starts over.
    """
    run = runs.get(node.id)
    return run is not None and run.output.get(SUSPENDED_KEY) == command_hash(node)


RequestCapExtension: TypeAlias = Callable[[Transaction, Task, ReachedCap], Awaitable[Approval]]
