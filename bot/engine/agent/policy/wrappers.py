"""Commands that run other commands: what is inside them is judged too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.engine.agent.policy.rules import HOLE
from bot.engine.agent.policy.shell import RESERVED, Script, Simple, parse
from cards.reasons import Reason, because

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish"}
_SIMPLE = {"nohup", "time", "command", "builtin", "exec", "setsid", "nice", "env"}
_OPAQUE = {
    "sudo", "doas", "su", "pkexec", "runuser", "chroot", "unshare", "nsenter", "strace", "ltrace",
    "parallel", "watch", "find", "fd", "stdbuf", "ionice", "chrt", "taskset", "flock", "script",
    "busybox", "toybox", "ssh", "docker", "podman", "kubectl", "entr", "npx", "bwrap", "setpriv",
    "xargs", "timeout", "trap", "systemd-run", "at", "batch", "crontab", "start-stop-daemon",
}  # fmt: skip
_BRINGS_IN = {"source", ".", "alias", "enable"}
_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_C_OPTION = re.compile(r"-[eux]*c")
_XARGS_ALONE = re.compile(r"-0|-r|-t|--null|--no-run-if-empty|-[nPL]\d+|-I\S+")
_XARGS_WITH = {"-n", "-P", "-L", "-I"}
_DEEPEST = 6
_MOST_WORDS = 40
_READS_IT = because("unclear.hidden_script")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command that may run. `certain`: it runs as it stands here, so it must be allowed;
    otherwise it is only what another command may be taken to run, and can only be denied. `bare`:
    it does nothing but run what is inside it, which is judged in its place."""

    command: Simple
    certain: bool = True
    bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """All that a script runs. `scripts` are it and those within it."""

    parts: tuple[Part, ...]
    scripts: tuple[Script, ...]
    unclear: Reason | None


def all_parts(script: Script, depth: int = 0, *, certain: bool = True) -> Inside:
    """Every command of a script, and what is inside each."""
    parts: list[Part] = []
    scripts, unclear = [script], script.unclear
    for command in script.commands:
        mine = _inside(command, script, depth, certain=certain)
        parts += mine.parts
        scripts += mine.scripts
        unclear = unclear or mine.unclear
    return Inside(parts=tuple(parts), scripts=tuple(scripts), unclear=unclear)


def program(words: Sequence[str]) -> str:
    """A command's name without the folder it lies in."""
    return words[0].rsplit("/", 1)[-1] if words else ""


def _inside(command: Simple, script: Script, depth: int, *, certain: bool) -> Inside:
    name = program(command.words)
    if depth > _DEEPEST:
        return _one(command, certain=certain, unclear=because("unclear.deep"))
    if name in _SHELLS:
        return _shell(command, script, depth, certain=certain)
    if name == "eval":
        return _scripted(command, " ".join(command.words[1:]), depth, certain=certain)
    inner = _unwrapped(name, command)
    if inner is not None:
        found = all_parts(Script(commands=[inner], fed=script.fed), depth + 1, certain=certain)
        outer = Part(command=command, certain=certain, bare=True)
        return Inside(parts=(outer, *found.parts), scripts=found.scripts[1:], unclear=found.unclear)
    if name in _SIMPLE | _OPAQUE:
        return _guessed(command, depth, certain=certain)
    unclear = because("unclear.brings_in", name=name) if name in _BRINGS_IN else None
    return _one(command, certain=certain, unclear=unclear)


def _one(command: Simple, *, certain: bool, unclear: Reason | None = None) -> Inside:
    return Inside(parts=(Part(command=command, certain=certain),), scripts=(), unclear=unclear)


def _shell(command: Simple, script: Script, depth: int, *, certain: bool) -> Inside:
    words = command.words
    if len(words) > 2 and _C_OPTION.fullmatch(words[1]):  # noqa: PLR2004 - sh -c script
        return _scripted(command, words[2], depth, certain=certain)
    if all(word.startswith("-") for word in words[1:]):
        fed = "\n".join(script.fed)
        if not fed:
            return _one(command, certain=certain, unclear=_READS_IT)
        return _scripted(command, fed, depth, certain=certain)
    return _guessed(command, depth, certain=certain)


def _scripted(command: Simple, source: str, depth: int, *, certain: bool) -> Inside:
    """A command whose argument is a script."""
    outer = Part(command=command, certain=certain, bare=not command.assigned)
    if HOLE in source:
        return Inside(parts=(outer,), scripts=(), unclear=_READS_IT)
    found = all_parts(parse(source), depth + 1, certain=certain)
    return Inside(parts=(outer, *found.parts), scripts=found.scripts, unclear=found.unclear)


def _guessed(command: Simple, depth: int, *, certain: bool) -> Inside:
    """Where a command begins inside is not certain: it may begin at each word, and each word may
    be a script."""
    parts = [Part(command=command, certain=certain)]
    scripts: list[Script] = []
    for at, word in enumerate(command.words[1:_MOST_WORDS], 1):
        parts.append(Part(command=Simple(words=command.words[at:]), certain=False))
        if re.search(r"[\s;&|`$]", word) and HOLE not in word:
            found = all_parts(parse(word), depth + 1, certain=False)
            parts += found.parts
            scripts += found.scripts
    unclear = because("unclear.many_words") if len(command.words) > _MOST_WORDS else None
    return Inside(parts=tuple(parts), scripts=tuple(scripts), unclear=unclear)


def _unwrapped(name: str, command: Simple) -> Simple | None:
    """The command inside, where it is certain which it is."""
    words, assigned = list(command.words[1:]), list(command.assigned)
    if name == "timeout":
        if not words or not _DURATION.fullmatch(words.pop(0)):
            return None
    elif name == "xargs":
        words = _xargs(words)
    elif name not in _SIMPLE:
        return None
    while words and name in {"env", "time"} and _ASSIGNED.fullmatch(words[0]):
        assigned.append(words.pop(0))
    if not words or words[0].startswith("-") or HOLE in words[0] or words[0] in RESERVED:
        return None
    return Simple(words=tuple(words), assigned=tuple(assigned))


def _xargs(words: list[str]) -> list[str]:
    """What it runs, with a hole for what it reads."""
    mark = "{}"
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in _XARGS_WITH:
            value = words.pop(0) if words else ""
            mark = value if option == "-I" else mark
        elif not _XARGS_ALONE.fullmatch(option):
            return []
        elif option.startswith("-I"):
            mark = option[2:]
    return [word.replace(mark, HOLE) if mark else word for word in words] + [HOLE] if words else []
