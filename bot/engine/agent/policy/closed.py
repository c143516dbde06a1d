"""Files whose contents a rule keeps from workers, for tools that meet files nobody has named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.engine.agent.policy.rules import Rule, Rules

_LOOKING = ("read", "grep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """`patterns` are those of the rules that deny or ask about looking at some files. Their names
    may be seen, their contents only by who asks for them by name."""

    patterns: Sequence[str] = ()

    def hides(self, path: str) -> bool:
        """`path` is relative to the workspace."""
        rules = (Rule(tool="read", pattern=pattern) for pattern in self.patterns)
        return any(rule.hits(path) or rule.hits(f"./{path}") for rule in rules)


def closed_by(rules: Rules) -> Closed:
    """A rule without a pattern is about a tool, not about files."""
    named = (rule for rule in rules.deny + rules.ask if rule.pattern)
    found = (rule.pattern for rule in named if any(map(rule.is_for, _LOOKING)))
    return Closed(patterns=tuple(dict.fromkeys(found)))
