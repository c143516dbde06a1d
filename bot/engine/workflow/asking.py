"""What people are asked before a task goes on: leave to take a step, and more money."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from bot.engine.agent.budget import ask_for_more
from bot.engine.llm.base import CapHit
from bot.engine.workflow.graph import Node
from bot.engine.workflow.leave.additions import SAID, added, is_talk
from bot.engine.workflow.model.nodes import Human
from bot.engine.workflow.prompts import heard_by_steps
from storage.approvals import NewApproval, add_approval, approval_of_step
from storage.db import Transaction
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import PersonId
from storage.records.tasks import NodeRun, Task
from storage.work.asked import owner_ids, person_called, remark, withdraw_of_task
from storage.work.journal import Orders, Report

STEP_KINDS = (
    ApprovalKind.HUMAN,
    ApprovalKind.RISK,
    ApprovalKind.TOOL,
    ApprovalKind.QUESTION,
)
"""Kinds by which a task waits at one of its steps."""

_HUMAN = "human"
_TASK = "task"
_NONE = "-"
_OWNER = "owner"
_TITLE = 200
_SAID = 200


def _nobody(_path: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Granted:
    """Go on. `by` is the decision that allowed it, None where nobody had to be asked."""

    by: Approval | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody has to decide first; the same request for as long as it waits."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class Refused:
    """Somebody said no; `reason` says who and why. Told once: after that it is asked anew."""

    by: PersonId | None
    reason: str


Leave: TypeAlias = Granted | Asked | Refused


def risk_words(setting: str) -> tuple[str, ...]:
    """The words of the setting, which has commas between them; `-` stands for none."""
    words = (_plain(each) for each in setting.split(","))
    return tuple(word for word in words if word and word != _NONE)


def risky_word(node: Node, words: Sequence[str]) -> str:
    """The first of these words that the step's text contains, in any case; empty if none.

    A Latin word counts only from its beginning: `deploy` is in “deployment”, and `production`
    not in “reproduction”.
    """
    text = _plain(f"{node.title}\n{node.detail}")
    return next((word for word in words if _contains(text, _plain(word))), "")


def command_hash(node: Node) -> str:
    """The same for the same step only: consent to one command is none to another."""
    exact = json.dumps([node.type, node.title, node.detail], ensure_ascii=False)
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def as_heard(node: Node, orders: Orders, runs: Mapping[str, NodeRun]) -> Node:
    """The step with what people have said since and no step has done yet: its worker hears that
    too, so it is a part of what is allowed. The answer of somebody who may allow it to what this
    very step has asked is allowed by that."""
    if node.type != _TASK:
        return node
    heard = heard_by_steps(runs) if orders.said else 0
    new = [
        text
        for n, text in enumerate(orders.said)
        if n >= heard
        and not isinstance(text, Report)
        and orders.answers.get(n) != node.id
        and text not in node.title
    ]
    return replace(
        node, detail="\n".join((node.detail, *(f"{SAID} {text}" for text in new))).strip()
    )


class Asker:
    """Asked within the transaction that is about to start a step. `words` make a step risky;
    what nobody decides within `lifetime` expires."""

    def __init__(
        self, *, words: Sequence[str], lifetime: timedelta, ids: Ids, now: Callable[[], datetime]
    ) -> None:
        self._words = tuple(words)
        self._lifetime = lifetime
        self._ids = ids
        self._now = now

    async def leave(
        self, tx: Transaction, task: Task, node: Node, beside: Callable[[str], bool] = _nobody
    ) -> Leave:
        """One consent holds for the step as it is until it is done, over retries and crashes, and
        however people talk to it meanwhile. Words that could make another step of it ask anew;
        what was allowed stays exactly what was shown. `beside` says which other steps of the
        task, by their paths, may wait for a person as well."""
        word = risky_word(node, self._words) if node.type == _TASK else ""
        if node.type != _HUMAN and not word and not node.auto_wait:
            return Granted()
        kind = ApprovalKind.HUMAN if node.type == _HUMAN else ApprovalKind.RISK
        last = await approval_of_step(tx, kind, task.id, node.id, now=self._now())
        if last is not None and last.command_hash == command_hash(node):
            match last.state:
                case ApprovalState.APPROVED:
                    return Granted(last)
                case ApprovalState.WAITING:
                    return Asked(last)
                case ApprovalState.REJECTED if not last.payload.get("spent"):
                    await remark(tx, last, spent=True)
                    return Refused(last.decided_by, last.payload.get("refusal", last.reason))
                case _:
                    pass
        if last is not None and last.state is ApprovalState.APPROVED:
            talk = added(node, last.command_hash, command_hash)
            if talk is not None and is_talk(talk) and not self._riskier(node, last, talk):
                await remark(tx, last, talk=talk)
                return Granted(last)
        now = self._now()
        # What it asked at a step that is over, or before this one was changed, must not move it
        # any more.
        await withdraw_of_task(
            tx,
            task.id,
            why="approval.asked_anew",
            now=now,
            kinds=STEP_KINDS,
            but=lambda path: path != node.id and beside(path),
        )
        return Asked(await self._ask(tx, task, node, kind, word))

    def _riskier(self, node: Node, allowed: Approval, talk: str) -> bool:
        """A risk word more than was allowed, be it put together from the old words and the new."""
        before = _plain(allowed.detail.replace(SAID, " "))
        now = _plain(f"{node.title}\n{node.detail}".replace(SAID, " "))
        return any(_count(now, word) > _count(before, word) for word in self._words) or any(
            _contains(_plain(talk), word) for word in self._words
        )

    async def _ask(
        self, tx: Transaction, task: Task, node: Node, kind: ApprovalKind, word: str
    ) -> Approval:
        now = self._now()
        config = node.config if isinstance(node.config, Human) else Human()
        approvers: tuple[PersonId, ...] = ()
        named: Sequence[PersonId] = ()
        if kind is ApprovalKind.HUMAN:
            named = await _named(tx, config.assignee)
            first = named if config.assignee else (task.created_by,)
            approvers = tuple(dict.fromkeys((*first, *await owner_ids(tx))))
        lifetime = max(self._lifetime, timedelta(seconds=config.timeout or 0))
        payload: dict[str, Any] = {
            "task": task.title,
            "said": task.instruction[:_SAID],
            "word": word,
        }
        if named:
            payload["assignees"] = list(named)
        if config.timeout is not None:
            payload["closes"] = (now + timedelta(seconds=config.timeout)).isoformat()
        new = NewApproval(
            kind=kind,
            chat_id=task.chat_id,
            title=node.title[:_TITLE],
            detail=f"{node.title}\n{node.detail}".strip(),
            expires_at=now + lifetime,
            task_id=task.id,
            path=node.id,
            command_hash=command_hash(node),
            approvers=approvers,
            payload=payload,
        )
        return await add_approval(tx, new, ids=self._ids, now=now)


async def _named(tx: Transaction, wanted: Sequence[str]) -> Sequence[PersonId]:
    """Those of them that are people who have been let in; owners decide without being named."""
    names = [each for each in wanted if each.casefold() != _OWNER]
    found = [await person_called(tx, each) for each in names]
    return tuple(dict.fromkeys(each for each in found if each is not None))


class MoneyAsker:
    """Asks for more where a task has reached a cap; what nobody decides within `lifetime`
    expires."""

    def __init__(self, *, lifetime: timedelta, ids: Ids, now: Callable[[], datetime]) -> None:
        self._lifetime = lifetime
        self._ids = ids
        self._now = now

    async def __call__(self, tx: Transaction, task: Task, hit: CapHit) -> Approval:
        now = self._now()
        return await ask_for_more(
            tx,
            hit,
            task=task.id,
            chat_id=task.chat_id,
            title=task.title,
            ids=self._ids,
            now=now,
            expires_at=now + self._lifetime,
        )


def _plain(text: str) -> str:
    """Full-width letters as letters, one blank between words, no capitals, nothing unseen."""
    seen = (each for each in unicodedata.normalize("NFKC", text) if not _unseen(each))
    return " ".join("".join(seen).casefold().split())


def _unseen(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


def _contains(text: str, word: str) -> bool:
    return _count(text, word) > 0


def _count(text: str, word: str) -> int:
    if not word[:1].isascii() or not word[:1].isalnum():
        return text.count(word) if word else 0
    return len(re.findall(rf"(?<![a-z0-9]){re.escape(word)}", text))
