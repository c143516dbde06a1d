"""Calls to be judged, said shortly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bot.engine.agent.policy.judge import Asking, Grant, Levels, Ruling, Security
from bot.engine.agent.policy.policy import Policy
from bot.engine.agent.policy.rules import Rules, parse_rules
from bot.engine.llm.base import Mode
from bot.engine.llm.calls import CallKind, ToolCall

WORKSPACE = Path("/home/boss/.shiftboss/workspaces/T1")
ALLOW, ASK, DENY = "allow", "ask", "deny"

KINDS = {"exec": CallKind.EXECUTE, "edit": CallKind.EDIT, "write": CallKind.EDIT}


def call(name: str, kind: CallKind | None = None, **arguments: Any) -> ToolCall:
    kind = kind or KINDS.get(name, CallKind.OTHER)
    return ToolCall(call_id="c1", name=name, arguments=arguments, kind=kind, title=name)


def policy(
    *, allow: str = "", ask: str = "", deny: str = "", security: str = "", asking: str = ""
) -> Policy:
    rules = Rules(allow=parse_rules(allow), ask=parse_rules(ask), deny=parse_rules(deny))
    levels = Levels(security=Security(security or "allowlist"), asking=Asking(asking or "on-miss"))
    return Policy(rules=rules, levels=levels)


def ruling(
    judge: Policy,
    command: str,
    *,
    sandboxed: bool = True,
    mode: Mode = Mode.EXECUTE,
    grants: Sequence[Grant] = (),
) -> Ruling:
    return judge.judge(
        call("exec", command=command),
        workspace=WORKSPACE,
        sandboxed=sandboxed,
        mode=mode,
        grants=grants,
    )


def verdict(judge: Policy, name: str, mode: Mode = Mode.EXECUTE, **arguments: Any) -> str:
    found = judge.judge(call(name, **arguments), workspace=WORKSPACE, sandboxed=True, mode=mode)
    return found.verdict.value
