"""A shell command, judged by the strictest of all it may run, read and write."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from bot.engine.agent.policy.destructive import (
    destroys,
    is_destructive,
    is_fork_bomb,
    leaves,
    may_destroy,
)
from bot.engine.agent.policy.findings import (
    Finding,
    allowed,
    asked,
    denied,
    forbidden,
    missed,
    permitted,
    strictest,
)
from bot.engine.agent.policy.harmless import is_harmless
from bot.engine.agent.policy.places import judge_redirect
from bot.engine.agent.policy.rules import HOLE, Rules
from bot.engine.agent.policy.shell import Script, Simple, parse
from bot.engine.agent.policy.subjects import within
from bot.engine.agent.policy.wrappers import Inside, Part, all_parts, program
from cards.reasons import Reason, because

_GIT_OPTION = re.compile(r"-[Cc]|--(?:git-dir|work-tree|namespace|exec-path|config-env)")


def judge_command(rules: Rules, source: str, workspace: Path) -> Finding:
    inside = all_parts(parse(source))
    return strictest(_findings(rules, source, inside, workspace))


def only_looks(source: str, workspace: Path) -> bool:
    """Nothing in it can change anything."""
    inside = all_parts(parse(source))
    if inside.unclear or any(script.writes for script in inside.scripts):
        return False
    parts = (part for part in inside.parts if not part.bare)
    return all(part.certain and _is_harmless(part.command, workspace) for part in parts)


def _findings(rules: Rules, source: str, inside: Inside, workspace: Path) -> Iterator[Finding]:
    if is_fork_bomb(source):
        yield denied(because("fork_bomb"))
    if said := forbidden(rules, "exec", (source,)):
        yield said
    if inside.unclear:
        yield asked(inside.unclear)
    for part in inside.parts:
        yield _part(rules, part, workspace)
    commands = [_at_home(part.command, workspace) for part in inside.parts]
    if any(map(leaves, commands)) and any(map(destroys, commands)):
        yield asked(because("destroys_elsewhere"))
    for script in inside.scripts:
        yield from _redirects(rules, script, workspace)
    if not inside.parts:
        yield allowed(because("runs_nothing"))


def _part(rules: Rules, part: Part, workspace: Path) -> Finding:
    command = _at_home(part.command, workspace)
    if said := _against(rules, part.command, command):
        return said
    if part.bare or not part.certain:
        return allowed(because("inside_judged"))
    if said := permitted(rules, "exec", (_exact(part.command),)):
        return said
    if not is_harmless(command):
        return missed(_no_rule(command))
    return allowed(because("only_looks"))


def _no_rule(command: Simple) -> Reason:
    name = program(command.words)[:60].replace(HOLE, "?")
    return because("no_rule", what=name) if name else because("no_rule_for_it")


def _against(rules: Rules, said: Simple, command: Simple) -> Finding | None:
    if is_destructive(command):
        return denied(because("destroys_outside"))
    found = [forbidden(rules, "exec", _forms(said)), *_read(rules, command)]
    if may_destroy(command):
        found.append(asked(because("change_unknown")))
    return strictest(one for one in found if one) if any(found) else None


def _read(rules: Rules, command: Simple) -> Iterator[Finding | None]:
    """Files that must not be read are not read by a command either. A rule for the whole tool
    says nothing of commands."""
    if not is_harmless(command):
        return
    kept = Rules(
        deny=tuple(rule for rule in rules.deny if rule.pattern),
        ask=tuple(rule for rule in rules.ask if rule.pattern),
    )
    for word in command.words[1:]:
        text = re.sub(r"[*?\[]", HOLE, word).removeprefix("./")
        yield from (forbidden(kept, tool, (text,)) for tool in ("read", "grep"))


def _redirects(rules: Rules, script: Script, workspace: Path) -> Iterator[Finding]:
    for path in script.writes:
        yield judge_redirect(rules, _place(path, workspace), writes=True)
    for path in script.reads:
        yield judge_redirect(rules, _place(path, workspace), writes=False)


def _place(path: str, workspace: Path) -> str:
    return path if HOLE in path or path.startswith("/dev/") else within(workspace, path)


def _at_home(command: Simple, workspace: Path) -> Simple:
    """The workspace's own paths said as relative ones."""
    root = workspace.as_posix()
    words = [
        within(workspace, word) if word == root or word.startswith(f"{root}/") else word
        for word in command.words
    ]
    return Simple(words=tuple(words), assigned=command.assigned)


def _is_harmless(command: Simple, workspace: Path) -> bool:
    return is_harmless(_at_home(command, workspace))


def _forms(command: Simple) -> tuple[str, ...]:
    """All ways in which a rule may speak of it."""
    words = (program(command.words).casefold(), *command.words[1:])
    forms = (command.words, words, (*command.assigned, *command.words), _plain_git(words))
    return tuple(dict.fromkeys(said for form in forms for said in (" ".join(form), _quoted(form))))


def _plain_git(words: tuple[str, ...]) -> tuple[str, ...]:
    """Without what may stand before git's own command."""
    rest = list(words[1:])
    while words[0] == "git" and rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if _GIT_OPTION.fullmatch(option) and rest:
            rest.pop(0)
    return (words[0], *rest)


def _exact(command: Simple) -> str:
    return _quoted((*command.assigned, *command.words))


def _quoted(words: tuple[str, ...]) -> str:
    """Quoted as a shell would have it, so that blanks within a word are no blanks between two;
    holes and what a shell leaves alone stay as they are."""
    return " ".join(word if _is_bare(word) else shlex.quote(word) for word in words)


def _is_bare(word: str) -> bool:
    return bool(word) and all(one.isalnum() or one in "@%+=:,./-_*?[]{}~^" + HOLE for one in word)
