"""What nobody means to allow: plain destruction outside the workspace."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from bot.engine.agent.policy.rules import HOLE, folded
from bot.engine.agent.policy.shell import Simple
from bot.engine.agent.policy.wrappers import program

_SYSTEM = re.compile(
    r"/(?:etc|usr|bin|sbin|lib\w*|boot|sys|proc|var|root|opt|srv)(?:/.*)?|/dev(?:/(?!null$|stdout$"
    r"|stderr$|stdin$|tty$|fd/\d+$|shm/).*)?",
    re.DOTALL,
)
_ROOTS = re.compile(
    r"(?:/|/\*|/\.\*|~\w*|~\w*/|~\w*/\*|~\w*/\.\*|/home(?:/\w*)?|/home(?:/\w*)?/\*|/[^/]*[*?\[].*|(?:\.\./)*\.\.(?:/\*?)?)"
)
_ALWAYS = {
    "mkfs", "wipefs", "fdisk", "sfdisk", "parted", "mkswap", "shutdown", "reboot", "poweroff",
    "halt", "blkdiscard", "userdel", "groupdel", "deluser",
}  # fmt: skip
_EMPTIES = {"rm", "rmdir", "shred", "unlink", "srm"}
_REWRITES = {"chmod", "chown", "chgrp", "setfacl"}
_MOVES = {"mv", "cp", "ln", "install", "tee", "truncate", "dd", "rsync", "sed"}


def is_destructive(command: Simple) -> bool:
    """It would destroy what lies outside every workspace."""
    words = tuple(folded(word) for word in command.words)
    name, rest = program(words), words[1:]
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    if name in _EMPTIES or (name == "find" and "-delete" in rest) or name in _REWRITES:
        return any(map(_is_ground, rest))
    if name in _MOVES and (name != "sed" or any(word.startswith("-i") for word in rest)):
        return any(map(writes_ground, _targets(name, rest)))
    return name == "kill" and "-1" in rest[1:]


def may_destroy(command: Simple) -> bool:
    """It destroys or overwrites something, and what it is cannot be seen."""
    name, rest = program(command.words), command.words[1:]
    harmful = name in _EMPTIES | _REWRITES | _MOVES or (name == "find" and "-delete" in rest)
    return harmful and any(HOLE in word for word in rest)


def destroys(command: Simple) -> bool:
    return program(command.words) in _EMPTIES | _REWRITES | {"find"}


def leaves(command: Simple) -> bool:
    """It goes on in another folder than the workspace."""
    words = command.words
    if program(words) not in {"cd", "pushd", "popd"}:
        return False
    to = words[-1]
    return len(words) == 1 or to.startswith(("/", "~", "-")) or HOLE in to or ".." in to.split("/")


def writes_ground(path: str) -> bool:
    """A redirect or a copy onto the system's own files or devices."""
    return bool(_SYSTEM.fullmatch(_plain(path)))


def is_fork_bomb(source: str) -> bool:
    """A function that calls itself twice at once, which no rule of commands would see."""
    return bool(re.search(r"(?<![\w:.])([\w:.]{1,99})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&", source))


def _is_ground(word: str) -> bool:
    path = _plain(word)
    return bool(_ROOTS.fullmatch(path) or _SYSTEM.fullmatch(path))


def _targets(name: str, rest: Sequence[str]) -> Iterable[str]:
    paths = [word for word in rest if not word.startswith("-")]
    match name:
        case "dd":
            return [word.removeprefix("of=") for word in rest if word.startswith("of=")]
        case "cp" | "install" | "rsync" | "ln":
            return paths[-1:]
        case _:
            return paths


def _plain(path: str) -> str:
    if HOLE in path:
        return path
    plain = posixpath.normpath(path) if path.startswith("/") else path
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain
