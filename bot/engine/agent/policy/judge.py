"""What a judge of calls is asked, and what it answers: allow, ask or deny, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bot.engine.agent.personas.persona import Persona
from bot.engine.llm.base import Mode
from bot.engine.llm.calls import ToolCall
from cards.reasons import Reason


class Verdict(StrEnum):
    """From mild to strict."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        return tuple(Verdict).index(self)


class Security(StrEnum):
    """What may be used at all. DENY: only looking within the workspace; ALLOWLIST: what a rule
    or a person allows; FULL: whatever no rule forbids."""

    DENY = "deny"
    ALLOWLIST = "allowlist"
    FULL = "full"


class Asking(StrEnum):
    """When a person is asked. OFF: never, and what would be asked about is denied; ON_MISS: about
    what no rule allows; ALWAYS: about everything but looking within the workspace."""

    OFF = "off"
    ON_MISS = "on-miss"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """How strict the house is."""

    security: Security = Security.ALLOWLIST
    asking: Asking = Asking.ON_MISS


class GrantScope(StrEnum):
    """How far a person's leave reaches beyond the one call."""

    TASK = "task"
    CHAT = "chat"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A person's leave for more than one call. `tool` is the call's own name; `pattern` is a
    `Ruling.pattern` as it was then, compared letter by letter: it is no glob."""

    scope: GrantScope
    tool: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """`why` is told to the model, to people and to the audit. `pattern` is what an
    "always" or "this task" would cover: the exact command, the path, the host. Empty means that
    no more than this one call can be allowed: offer only once, or not."""

    verdict: Verdict
    why: Reason
    pattern: str = ""


class Judge(Protocol):
    """Pure: the same question has the same answer, and nothing is read or remembered."""

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
        """Whether the call may be made in `workspace`. `grants` are those that bind here: of this
        task, of this chat, and for always. `sandboxed` is whether commands are held in."""
        ...
