"""The house's judge: rules, then the mode, then the levels, then what people have allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import assert_never

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.commands import judge_command, only_looks
from bot.engine.agent.policy.findings import (
    Finding,
    Found,
    allowed,
    denied,
    forbidden,
    missed,
    permitted,
)
from bot.engine.agent.policy.judge import Asking, Grant, Levels, Ruling, Security, Verdict
from bot.engine.agent.policy.places import judge_paths, judge_url
from bot.engine.agent.policy.rules import Rules
from bot.engine.agent.policy.subjects import OWN, Does, Subject, is_outside, subject_of
from bot.engine.llm.base import Mode
from bot.engine.llm.calls import CallKind, ToolCall
from cards.reasons import because

UNSANDBOXED = "[no sandbox] "
"""Before a command's pattern: leave given in a sandbox is none without it."""

_ALWAYS_THERE = {"ask_user", "propose_task"}
_LOOKING_KINDS = {CallKind.READ, CallKind.SEARCH, CallKind.FETCH, CallKind.THINK, CallKind.ASK}


class Policy:
    """Satisfies `judge.Judge`."""

    def __init__(self, *, rules: Rules | None = None, levels: Levels | None = None) -> None:
        self._rules = rules or Rules()
        self._levels = levels or Levels()

    def judge(
        self,
        call: ToolCall,
        *,
        workspace: Path,
        grants: Sequence[Grant] = (),
        mode: Mode = Mode.EXECUTE,
        sandboxed: bool = False,
        persona: Persona | None = None,
    ) -> Ruling:
        subject = subject_of(call, workspace)
        finding = self._found(call, subject, workspace, persona)
        pattern = subject.pattern
        if subject.does is Does.RUN and not sandboxed:
            finding = _loose(finding, self._levels)
            pattern = UNSANDBOXED + pattern if pattern else ""
        if finding.found is not Found.DENY and mode is not Mode.EXECUTE:
            finding = _held(finding, subject, call, workspace, mode)
        granted = any(
            grant.tool == call.name and grant.pattern == pattern and pattern for grant in grants
        )
        return _settled(finding, subject, self._levels, pattern, granted=granted)

    def _found(
        self, call: ToolCall, subject: Subject, workspace: Path, persona: Persona | None
    ) -> Finding:
        if persona is not None and not _may_use(persona, subject.tool, call.name):
            return denied(because("not_this_persona", persona=persona.name, tool=call.name[:60]))
        match subject.does:
            case Does.RUN:
                return judge_command(self._rules, subject.command, workspace)
            case Does.FETCH:
                return judge_url(self._rules, subject.url)
            case Does.LOOK | Does.CHANGE if subject.paths:
                return self._paths(call, subject)
            case Does.LOOK | Does.CHANGE | Does.SPAWN | Does.ELSE:
                return self._named(call, subject)
            case _:
                assert_never(subject.does)

    def _paths(self, call: ToolCall, subject: Subject) -> Finding:
        if call.name in OWN and any(map(is_outside, subject.paths)):
            return denied(because("outside"))
        return judge_paths(self._rules, subject.tool, subject.paths)

    def _named(self, call: ToolCall, subject: Subject) -> Finding:
        for name in (subject.tool, call.name):
            if said := forbidden(self._rules, name, (subject.pattern,)):
                return said
        if said := permitted(self._rules, call.name, (subject.pattern,)):
            return said
        if subject.does is Does.CHANGE or subject.tool not in OWN or subject.tool == "read":
            return missed(because("no_rule", what=call.name[:60]))
        return allowed(because("own_tool"))


def _loose(finding: Finding, levels: Levels) -> Finding:
    """Without a sandbox every command is asked about, unless the owner wants no questions and no
    limits."""
    if finding.found is Found.DENY:
        return finding
    if levels == Levels(security=Security.FULL, asking=Asking.OFF):
        return finding
    return Finding(found=Found.ASK, why=because("no_sandbox"))


def _held(
    finding: Finding, subject: Subject, call: ToolCall, workspace: Path, mode: Mode
) -> Finding:
    """Planning and reviewing look and change nothing."""
    match subject.does:
        case Does.LOOK | Does.FETCH:
            return finding
        case Does.RUN if only_looks(subject.command, workspace):
            return finding
        case Does.ELSE if call.kind in _LOOKING_KINDS:
            return finding
        case _:
            return denied(because(f"mode_{mode.value}"))


def _settled(  # noqa: PLR0911 - one for each of the levels
    finding: Finding, subject: Subject, levels: Levels, pattern: str, *, granted: bool
) -> Ruling:
    if finding.found is Found.DENY:
        return Ruling(verdict=Verdict.DENY, why=finding.why)
    looks = subject.does is Does.LOOK
    if levels.security is Security.DENY and not (looks and finding.found is Found.ALLOW):
        return Ruling(verdict=Verdict.DENY, why=because("tools_off"))
    if levels.asking is Asking.ALWAYS and not looks:
        return Ruling(verdict=Verdict.ASK, why=because("always_asked"))
    if granted:
        return Ruling(verdict=Verdict.ALLOW, why=because("person_allowed"), pattern=pattern)
    if _passes(finding, levels):
        why = finding.why if finding.found is Found.ALLOW else because("security_full")
        return Ruling(verdict=Verdict.ALLOW, why=why, pattern=pattern)
    if levels.asking is Asking.OFF:
        return Ruling(verdict=Verdict.DENY, why=replace(finding.why, unasked=True))
    return Ruling(verdict=Verdict.ASK, why=finding.why, pattern=pattern)


def _passes(finding: Finding, levels: Levels) -> bool:
    if finding.found is Found.MISS:
        return levels.security is Security.FULL
    return finding.found is Found.ALLOW


def _may_use(persona: Persona, *names: str) -> bool:
    """By the persona's globs, whatever a coding agent calls its tools."""
    if set(names) & _ALWAYS_THERE:
        return True
    if any(fnmatchcase(name, pattern) for pattern in persona.denied for name in names):
        return False
    return not persona.tools or any(
        fnmatchcase(name, pattern) for pattern in persona.tools for name in names
    )
