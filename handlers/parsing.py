"""From what somebody typed to what they mean. Pure, and it never raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from handlers.registry import Command, Commands
from storage.records.status import ModelChoice
from storage.records.tasks import Priority

Pick: TypeAlias = Callable[[str], ModelChoice | None]
"""What a name of a model or backend means, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What one message chooses for itself; empty is the chat's choice."""

    model: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A command with what follows it."""

    command: Command
    args: str
    directives: Directives


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Anything else. `text` is without directives, and never emptied by them."""

    text: str
    directives: Directives


Meaning: TypeAlias = Ordered | Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An approval word that was the whole message. `target` may name the request; `reason`
    follows a refusal."""

    approve: bool
    target: str = ""
    reason: str = ""


# What Feishu leaves where somebody was mentioned.
_PLACEHOLDER = re.compile(r"(?<!\S)@_(?:user_\d+|all)(?!\S)")
_MENTION = re.compile(r"(?<!\S)@\S+")
_SLASH = re.compile(r"(?:@\S+\s+)*[/／]([^\s@/／:：]+)(?:@\S*)?(?:[:：]|\s+|$)")
_DIRECTIVE = re.compile(
    r"(?:@(?P<at>\S+)|[/／](?:backend[:：]|use\s+)(?P<use>\S+))(?:\s+|$)", re.IGNORECASE
)
_BARE_MODEL = re.compile(r"(?P<bare>opus|sonnet|haiku)(?:\s+|$)", re.IGNORECASE)
_PRIORITY = re.compile(r"[-–—]{1,2}(?:p|priority)(?:\s+|=)(?P<word>\S+)(?:\s+|$)", re.IGNORECASE)

_YES = frozenset(("通过", "approve", "批准", "ok", "yes"))
_NO = frozenset(("拒绝", "reject", "no", "否"))
_YES_TO = frozenset(("通过", "approve", "批准"))
_NO_BECAUSE = frozenset(("拒绝", "reject"))

_DIRECTIVES_AT_MOST = 4


def parse(text: str, commands: Commands, pick: Pick, *, mentions: bool = True) -> Meaning:
    """What a message means, with mentions and directives taken off. `mentions` False says that
    it comes from where nobody can be mentioned: then an @ belongs to the text."""
    cleaned = (_PLACEHOLDER.sub("", text) if mentions else text).strip()
    rest, directives = directives_of(cleaned, pick)
    found = _SLASH.match(rest)
    command = commands.find(found.group(1)) if found else None
    if found is None or command is None:
        return Said(text=rest or cleaned, directives=directives)
    args = rest[found.end() :].strip()
    kept = without_mentions(args) if mentions and not command.verbatim else args
    return Ordered(command=command, args=kept, directives=directives)


def directives_of(text: str, pick: Pick, *, bare: bool = True) -> tuple[str, Directives]:
    """The text without the directives it begins with, and what they choose. The last wins.
    `bare` allows a model's short name without its @."""
    chosen = Directives()
    for _ in range(_DIRECTIVES_AT_MOST):
        found = _DIRECTIVE.match(text) or (_BARE_MODEL.match(text) if bare else None)
        if found is None:
            break
        name = next(part for part in found.groupdict().values() if part)
        choice = pick(name)
        alone = found.end() == len(text)
        if choice is None or (alone and _is_backend(name, choice)):
            break
        chosen = chosen_by(name, choice)
        text = text[found.end() :].lstrip()
    return text, chosen


def chosen_by(name: str, choice: ModelChoice) -> Directives:
    """A backend's own name leaves the model to it; anything else names the model too."""
    model = "" if _is_backend(name, choice) else choice.model
    return Directives(model=model, backend=choice.backend)


def verdict_of(text: str) -> Verdict | None:
    """The approval grammar: whole messages only. `ok let us start` is talk."""
    said = without_mentions(text)
    word, rest = [*said.split(maxsplit=1), "", ""][:2]
    match (word.casefold(), rest.strip()):
        case (yes, "") if yes in _YES:
            return Verdict(approve=True)
        case (no, "") if no in _NO:
            return Verdict(approve=False)
        case (yes, target) if yes in _YES_TO and len(target.split()) == 1:
            return Verdict(approve=True, target=target)
        case (no, reason) if no in _NO_BECAUSE:
            return Verdict(approve=False, reason=reason)
    return None


def priority_of(args: str) -> tuple[str, str]:
    """The word after a leading `-p`, empty without one, and the text after it."""
    found = _PRIORITY.match(args)
    return (found["word"], args[found.end() :].strip()) if found else ("", args)


def priority_in(words: str) -> tuple[Priority | None, str]:
    """The one word of `words` that names a priority, wherever it stands, and the others."""
    rest = words.split()
    for index in reversed(range(len(rest))):
        if named := Priority.named(rest[index]):
            return named, " ".join(rest[:index] + rest[index + 1 :])
    return None, words.strip()


def without_mentions(text: str) -> str:
    return _MENTION.sub("", text).strip()


def _is_backend(name: str, choice: ModelChoice) -> bool:
    return name.casefold() == choice.backend.casefold()
