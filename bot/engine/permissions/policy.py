"""Decides on tool calls by rules, worker mode, security levels and standing permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, assert_never

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import READ_ONLY_KINDS, ToolCall
from bot.engine.permissions.call_checks import (
    FindingLevel,
    PolicyFinding,
    allow,
    ask,
    check_command,
    check_paths,
    check_sending,
    check_url,
    deny,
    find_allowance,
    find_restriction,
    is_read_only_command,
    no_rule,
    stays_in_workspace,
    strictest,
)
from bot.engine.permissions.rules import (
    OWN_TOOLS,
    CallEffect,
    CallSubject,
    PermissionRules,
    classify_call,
    is_outside,
)
from bot.engine.workers.personas import Persona
from cards.permission_reasons import APP_RIGHTS_REASON, PermissionReason, build_reason
from storage.records.approvals import (
    StandingPermission,
    StandingPermissionScope,
    bind_to_files,
)


class PolicyVerdict(StrEnum):
    """From mild to strict."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class SecurityLevel(StrEnum):
    """Which calls are possible. DENY: only reading within the workspace; ALLOWLIST: only calls that
    a rule or a person allows; FULL: all calls that no rule denies."""

    DENY = "deny"
    ALLOWLIST = "allowlist"
    FULL = "full"


class AskMode(StrEnum):
    """When a person is asked. OFF: never, the call is denied instead; ON_MISS: if no rule allows
    the call; ALWAYS: for everything except reading within the workspace."""

    OFF = "off"
    ON_MISS = "on-miss"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLevels:
    security: SecurityLevel = SecurityLevel.ALLOWLIST
    ask_mode: AskMode = AskMode.ON_MISS


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision:
    """A decision with its reason for the model, people and the audit.

    `pattern` is what a permission for the task, chat or always would cover: the exact command with
    a hash of its files, path or host. If empty, only this one call can be allowed. `files` is that
    hash, if the call may run because of a permission that is bound to it."""

    verdict: PolicyVerdict
    reason: PermissionReason
    pattern: str = ""
    files: str = ""


class PermissionPolicy(Protocol):
    """Implementations must be pure: equal arguments give equal decisions, and nothing is read or
    stored."""

    def evaluate(
        self,
        call: ToolCall,
        *,
        workspace: Path,
        grants: Sequence[StandingPermission] = (),
        mode: WorkerMode = WorkerMode.EXECUTE,
        is_sandboxed: bool = False,
        is_trusted: bool = False,
        for_owner: bool = False,
        with_app_rights: bool = False,
        persona: Persona | None = None,
        files: str = "",
    ) -> PolicyDecision:
        """Decide whether the call may run in `workspace`.

        `grants` are the permissions that apply: the task's, the chat's and permanent ones; their
        patterns are compared literally, not as globs. `files` is the hash of the files that the
        command names; see `call_effects.CallSnapshot`.
        `is_sandboxed` tells whether commands run in a sandbox, `is_trusted` whether our own
        commands that only lack a rule may run in it unasked. `for_owner`: an owner ordered the
        work. `with_app_rights`: the call is to a server that has the rights of the app."""
        ...


UNSANDBOXED_PREFIX = "[no sandbox] "
"""Prefix of patterns without a sandbox, so that permissions given for sandboxed commands don't
apply."""

_OWN_COMMAND = "exec"
"""Coding CLIs run theirs in a sandbox with a network, and some in a shell that goes on."""

_WITH_APP_RIGHTS = {"feishu_read"}
"""Tools that reach what the app may see, which can be more than who gives the task may. For others
than owners, no rule covers them, and no standing permission but that for the task, which alone is
given in knowledge of who asks."""

_LACKS_RULE = {"no_rule", "no_rule_for_it"}

_ALWAYS_AVAILABLE = {"ask_user", "propose_task"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePolicy:
    """Satisfies `PermissionPolicy`."""

    rules: PermissionRules
    levels: PolicyLevels

    def evaluate(
        self,
        call: ToolCall,
        *,
        workspace: Path,
        grants: Sequence[StandingPermission] = (),
        mode: WorkerMode = WorkerMode.EXECUTE,
        is_sandboxed: bool = False,
        is_trusted: bool = False,
        for_owner: bool = False,
        with_app_rights: bool = False,
        persona: Persona | None = None,
        files: str = "",
    ) -> PolicyDecision:
        subject = classify_call(call, workspace)
        finding = self._find(call, subject, workspace, persona)
        if (with_app_rights or subject.tool in _WITH_APP_RIGHTS) and not for_owner:
            finding = strictest((finding, ask(APP_RIGHTS_REASON)))
            grants = [each for each in grants if each.scope is StandingPermissionScope.TASK]
        pattern = subject.pattern
        if subject.effect is CallEffect.RUN and not is_sandboxed:
            finding = _require_sandbox(finding, self.levels)
            pattern = UNSANDBOXED_PREFIX + pattern if pattern else ""
        elif is_trusted and call.name == _OWN_COMMAND:
            finding = _trust_sandbox(finding, subject.command, workspace)
        if finding.level is not FindingLevel.DENY and mode is not WorkerMode.EXECUTE:
            finding = _restrict_to_mode(finding, subject, call, workspace, mode)
        bare = pattern
        pattern = bind_to_files(bare, files if subject.effect is CallEffect.RUN else "")
        scopes = {
            grant.scope
            for grant in grants
            if grant.tool == call.name
            and pattern
            and grant.pattern == (bare if grant.scope is StandingPermissionScope.TASK else pattern)
        }
        decision = _decide(finding, subject, self.levels, pattern, granted=bool(scopes))
        is_bound = scopes and StandingPermissionScope.TASK not in scopes
        return replace(decision, files=files) if is_bound else decision

    def _find(
        self, call: ToolCall, subject: CallSubject, workspace: Path, persona: Persona | None
    ) -> PolicyFinding:
        if persona is not None and not _persona_allows(persona, subject.tool, call.name):
            return deny("not_this_persona", persona=persona.name, tool=call.name[:60])
        match subject.effect:
            case CallEffect.RUN:
                keeps_folder = call.name != _OWN_COMMAND
                return check_command(
                    self.rules, subject.command, workspace, keeps_folder=keeps_folder
                )
            case CallEffect.FETCH:
                return check_url(self.rules, subject.url)
            case CallEffect.SEND:
                return check_sending(self.rules, subject.url, subject.pattern)
            case CallEffect.READ | CallEffect.CHANGE if subject.paths:
                return self._check_call_paths(call, subject)
            case CallEffect.READ | CallEffect.CHANGE | CallEffect.SPAWN | CallEffect.UNKNOWN:
                return self._check_by_name(call, subject)
            case _:
                assert_never(subject.effect)

    def _check_call_paths(self, call: ToolCall, subject: CallSubject) -> PolicyFinding:
        if call.name in OWN_TOOLS and any(map(is_outside, subject.paths)):
            return deny("outside")
        return check_paths(self.rules, subject.tool, subject.paths)

    def _check_by_name(self, call: ToolCall, subject: CallSubject) -> PolicyFinding:
        for name in (subject.tool, call.name):
            if said := find_restriction(self.rules, name, (subject.pattern,)):
                return said
        if said := find_allowance(self.rules, call.name, (subject.pattern,)):
            return said
        if (
            subject.effect is CallEffect.CHANGE
            or subject.tool not in OWN_TOOLS
            or subject.tool == "read"
        ):
            return no_rule("no_rule", what=call.name[:60])
        return allow("own_tool")


def _require_sandbox(finding: PolicyFinding, levels: PolicyLevels) -> PolicyFinding:
    """Ask for every command without a sandbox, unless security is FULL and asking is OFF."""
    if finding.level is FindingLevel.DENY:
        return finding
    if levels == PolicyLevels(security=SecurityLevel.FULL, ask_mode=AskMode.OFF):
        return finding
    return PolicyFinding(level=FindingLevel.ASK, reason=build_reason("no_sandbox"))


def _trust_sandbox(finding: PolicyFinding, command: str, workspace: Path) -> PolicyFinding:
    """Allow what only lacks a rule; what a person should see is asked about as before."""
    lacks_rule = finding.level is FindingLevel.NO_RULE and finding.reason.key in _LACKS_RULE
    if lacks_rule and stays_in_workspace(command, workspace):
        return allow("sandbox_trusted")
    return finding


def _restrict_to_mode(
    finding: PolicyFinding, subject: CallSubject, call: ToolCall, workspace: Path, mode: WorkerMode
) -> PolicyFinding:
    """Plan and review modes are read-only."""
    match subject.effect:
        case CallEffect.READ | CallEffect.FETCH:
            return finding
        case CallEffect.RUN if is_read_only_command(subject.command, workspace):
            return finding
        case CallEffect.UNKNOWN if call.kind in READ_ONLY_KINDS:
            return finding
        case _:
            return deny(f"mode_{mode.value}")


def _decide(  # noqa: PLR0911 - one per level
    finding: PolicyFinding,
    subject: CallSubject,
    levels: PolicyLevels,
    pattern: str,
    *,
    granted: bool,
) -> PolicyDecision:
    if finding.level is FindingLevel.DENY:
        return PolicyDecision(verdict=PolicyVerdict.DENY, reason=finding.reason)
    looks = subject.effect is CallEffect.READ
    if levels.security is SecurityLevel.DENY and not (
        looks and finding.level is FindingLevel.ALLOW
    ):
        return PolicyDecision(verdict=PolicyVerdict.DENY, reason=build_reason("tools_off"))
    if levels.ask_mode is AskMode.ALWAYS and not looks:
        return PolicyDecision(verdict=PolicyVerdict.ASK, reason=build_reason("always_asked"))
    if granted:
        return PolicyDecision(
            verdict=PolicyVerdict.ALLOW, reason=build_reason("person_allowed"), pattern=pattern
        )
    if finding.level is FindingLevel.ALLOW or (
        finding.level is FindingLevel.NO_RULE and levels.security is SecurityLevel.FULL
    ):
        why = (
            finding.reason if finding.level is FindingLevel.ALLOW else build_reason("security_full")
        )
        return PolicyDecision(verdict=PolicyVerdict.ALLOW, reason=why, pattern=pattern)
    if levels.ask_mode is AskMode.OFF:
        return PolicyDecision(
            verdict=PolicyVerdict.DENY, reason=replace(finding.reason, unasked=True)
        )
    return PolicyDecision(verdict=PolicyVerdict.ASK, reason=finding.reason, pattern=pattern)


def _persona_allows(persona: Persona, *names: str) -> bool:
    """Match the persona's globs against all names of the tool."""
    if set(names) & _ALWAYS_AVAILABLE:
        return True
    if any(fnmatchcase(name, pattern) for pattern in persona.denied for name in names):
        return False
    return not persona.tools or any(
        fnmatchcase(name, pattern) for pattern in persona.tools for name in names
    )
