"""What was found out about a call, from mild to strict, before the house's levels settle it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from bot.engine.agent.policy.rules import Rules, first_hit, first_possible
from cards.reasons import Reason, because


class Found(IntEnum):
    """MISS: no rule speaks of it."""

    ALLOW = 0
    MISS = 1
    ASK = 2
    DENY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    found: Found
    why: Reason


def allowed(why: Reason) -> Finding:
    return Finding(found=Found.ALLOW, why=why)


def missed(why: Reason) -> Finding:
    return Finding(found=Found.MISS, why=why)


def asked(why: Reason) -> Finding:
    return Finding(found=Found.ASK, why=why)


def denied(why: Reason) -> Finding:
    return Finding(found=Found.DENY, why=why)


def strictest(findings: Iterable[Finding]) -> Finding:
    """The first of the strictest; there must be one."""
    return max(findings, key=lambda finding: finding.found)


def forbidden(rules: Rules, tool: str, texts: Sequence[str]) -> Finding | None:
    """What the rules say against it, if anything. `texts` are all forms the argument may take."""
    if rule := first_hit(rules.deny, tool, texts):
        return denied(because("rule_denies", rule=rule))
    if rule := first_hit(rules.ask, tool, texts):
        return asked(because("rule_asks", rule=rule))
    if rule := first_possible(rules.deny + rules.ask, tool, texts):
        return asked(because("rule_may_hit", rule=rule))
    return None


def permitted(rules: Rules, tool: str, texts: Sequence[str]) -> Finding | None:
    """The rule that allows it, if any. `texts` are forms of the same, each exact."""
    for rule in rules.allow:
        if rule.is_for(tool) and any(map(rule.covers, texts)):
            return allowed(because("rule_allows", rule=rule))
    return None
