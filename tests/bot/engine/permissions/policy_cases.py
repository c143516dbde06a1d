"""Calls to be judged, said shortly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import CallKind, ToolCall
from bot.engine.permissions.policy import (
    AskMode,
    PolicyDecision,
    PolicyLevels,
    PolicyVerdict,
    RulePolicy,
    SecurityLevel,
)
from bot.engine.permissions.rules import PermissionRules, parse_rules
from storage.records.approvals import StandingPermission, StandingPermissionScope
from storage.records.people import PersonId

WORKSPACE = Path("/home/boss/.shiftboss/workspaces/T1")
ALLOW, ASK, DENY = "allow", "ask", "deny"

KINDS = {"exec": CallKind.EXECUTE, "edit": CallKind.EDIT, "write": CallKind.EDIT}


def tool_call(name: str, kind: CallKind | None = None, **arguments: Any) -> ToolCall:
    kind = kind or KINDS.get(name, CallKind.OTHER)
    return ToolCall(call_id="c1", name=name, arguments=arguments, kind=kind, title=name)


def build_policy(
    *, allow: str = "", ask: str = "", deny: str = "", security: str = "", asking: str = ""
) -> RulePolicy:
    rules = PermissionRules(allow=parse_rules(allow), ask=parse_rules(ask), deny=parse_rules(deny))
    levels = PolicyLevels(
        security=SecurityLevel(security or "allowlist"), ask_mode=AskMode(asking or "on-miss")
    )
    return RulePolicy(rules=rules, levels=levels)


def make_grant(
    pattern: str, scope: StandingPermissionScope = StandingPermissionScope.ALWAYS
) -> StandingPermission:
    return StandingPermission(
        id=1,
        scope=scope,
        subject="",
        tool="exec",
        pattern=pattern,
        approval_id="a",
        granted_by=PersonId("p"),
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def strictness(decision: PolicyDecision) -> int:
    return tuple(PolicyVerdict).index(decision.verdict)


def decide(
    judge: RulePolicy,
    command: str,
    *,
    sandboxed: bool = True,
    mode: WorkerMode = WorkerMode.EXECUTE,
    grants: Sequence[StandingPermission] = (),
) -> PolicyDecision:
    return judge.evaluate(
        tool_call("exec", command=command),
        workspace=WORKSPACE,
        is_sandboxed=sandboxed,
        mode=mode,
        grants=grants,
    )


def decide_verdict(
    judge: RulePolicy, name: str, mode: WorkerMode = WorkerMode.EXECUTE, **arguments: Any
) -> str:
    found = judge.evaluate(
        tool_call(name, **arguments), workspace=WORKSPACE, is_sandboxed=True, mode=mode
    )
    return found.verdict.value
