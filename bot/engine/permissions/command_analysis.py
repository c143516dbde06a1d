"""Analyzes shell commands: nested commands, destructive ones and read-only ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.engine.permissions.rules import UNKNOWN_TEXT, normalize_text
from bot.engine.permissions.shell_parser import (
    RESERVED_WORDS,
    ShellScript,
    SimpleCommand,
    parse_script,
)
from cards.permission_reasons import PermissionReason, build_reason

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish"}
_TRANSPARENT_WRAPPERS = {"nohup", "time", "command", "builtin", "exec", "setsid", "nice", "env"}
_OPAQUE_WRAPPERS = {
    "sudo", "doas", "su", "pkexec", "runuser", "chroot", "unshare", "nsenter", "strace", "ltrace",
    "parallel", "watch", "find", "fd", "stdbuf", "ionice", "chrt", "taskset", "flock", "script",
    "busybox", "toybox", "ssh", "docker", "podman", "kubectl", "entr", "npx", "bwrap", "setpriv",
    "xargs", "timeout", "trap", "systemd-run", "at", "batch", "crontab", "start-stop-daemon",
}  # fmt: skip
_SOURCING_COMMANDS = {"source", ".", "alias", "enable"}
_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_C_OPTION = re.compile(r"-[eux]*c")
_XARGS_ALONE = re.compile(r"-0|-r|-t|--null|--no-run-if-empty|-[nPL]\d+|-I\S+")
_XARGS_WITH = {"-n", "-P", "-L", "-I"}
_MAX_DEPTH = 6
_MAX_WORDS = 40
_HIDDEN_SCRIPT = build_reason("unclear.hidden_script")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPart:
    """A command that may run.

    If `is_certain`, it runs as it is and must be allowed; otherwise it is a guess at a nested
    command and can only be denied. A wrapper only runs its nested command, which is checked
    instead."""

    command: SimpleCommand
    is_certain: bool = True
    is_wrapper: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedScript:
    """All commands of a script; `scripts` are the script and those nested in it."""

    parts: tuple[CommandPart, ...]
    scripts: tuple[ShellScript, ...]
    unclear_reason: PermissionReason | None


def expand_commands(script: ShellScript, depth: int = 0, *, certain: bool = True) -> ExpandedScript:
    """Return every command of a script, including nested ones."""
    parts: list[CommandPart] = []
    scripts, unclear = [script], script.unclear_reason
    for command in script.commands:
        mine = _expand(command, script, depth, certain=certain)
        parts += mine.parts
        scripts += mine.scripts
        unclear = unclear or mine.unclear_reason
    return ExpandedScript(parts=tuple(parts), scripts=tuple(scripts), unclear_reason=unclear)


def program_name(words: Sequence[str]) -> str:
    """Return a command's name without its folder."""
    return words[0].rsplit("/", 1)[-1] if words else ""


def _expand(
    command: SimpleCommand, script: ShellScript, depth: int, *, certain: bool
) -> ExpandedScript:
    name = program_name(command.words)
    if depth > _MAX_DEPTH:
        return _single(command, certain=certain, unclear=build_reason("unclear.deep"))
    if name in _SHELLS:
        return _expand_shell(command, script, depth, certain=certain)
    if name == "eval":
        return _expand_script(command, " ".join(command.words[1:]), depth, certain=certain)
    inner = _unwrap(name, command)
    if inner is not None:
        found = expand_commands(
            ShellScript(commands=[inner], stdin_texts=script.stdin_texts),
            depth + 1,
            certain=certain,
        )
        outer = CommandPart(command=command, is_certain=certain, is_wrapper=True)
        return ExpandedScript(
            parts=(outer, *found.parts),
            scripts=found.scripts[1:],
            unclear_reason=found.unclear_reason,
        )
    if name in _TRANSPARENT_WRAPPERS | _OPAQUE_WRAPPERS:
        return _guess_inner(command, depth, certain=certain)
    unclear = build_reason("unclear.brings_in", name=name) if name in _SOURCING_COMMANDS else None
    return _single(command, certain=certain, unclear=unclear)


def _single(
    command: SimpleCommand, *, certain: bool, unclear: PermissionReason | None = None
) -> ExpandedScript:
    return ExpandedScript(
        parts=(CommandPart(command=command, is_certain=certain),),
        scripts=(),
        unclear_reason=unclear,
    )


def _expand_shell(
    command: SimpleCommand, script: ShellScript, depth: int, *, certain: bool
) -> ExpandedScript:
    words = command.words
    if len(words) > 2 and _C_OPTION.fullmatch(words[1]):  # noqa: PLR2004 - sh -c script
        return _expand_script(command, words[2], depth, certain=certain)
    if all(word.startswith("-") for word in words[1:]):
        fed = "\n".join(script.stdin_texts)
        if not fed:
            return _single(command, certain=certain, unclear=_HIDDEN_SCRIPT)
        return _expand_script(command, fed, depth, certain=certain)
    return _guess_inner(command, depth, certain=certain)


def _expand_script(
    command: SimpleCommand, source: str, depth: int, *, certain: bool
) -> ExpandedScript:
    """Expand a command whose argument is a script."""
    outer = CommandPart(command=command, is_certain=certain, is_wrapper=not command.assignments)
    if UNKNOWN_TEXT in source:
        return ExpandedScript(parts=(outer,), scripts=(), unclear_reason=_HIDDEN_SCRIPT)
    found = expand_commands(parse_script(source), depth + 1, certain=certain)
    return ExpandedScript(
        parts=(outer, *found.parts), scripts=found.scripts, unclear_reason=found.unclear_reason
    )


def _guess_inner(command: SimpleCommand, depth: int, *, certain: bool) -> ExpandedScript:
    """Treat each word as the possible start of a nested command, and as a possible script."""
    parts = [CommandPart(command=command, is_certain=certain)]
    scripts: list[ShellScript] = []
    for at, word in enumerate(command.words[1:_MAX_WORDS], 1):
        parts.append(CommandPart(command=SimpleCommand(words=command.words[at:]), is_certain=False))
        if re.search(r"[\s;&|`$]", word) and UNKNOWN_TEXT not in word:
            found = expand_commands(parse_script(word), depth + 1, certain=False)
            parts += found.parts
            scripts += found.scripts
    unclear = build_reason("unclear.many_words") if len(command.words) > _MAX_WORDS else None
    return ExpandedScript(parts=tuple(parts), scripts=tuple(scripts), unclear_reason=unclear)


def _unwrap(name: str, command: SimpleCommand) -> SimpleCommand | None:
    """Return the nested command if it is certain."""
    words, assigned = list(command.words[1:]), list(command.assignments)
    if name == "timeout":
        if not words or not _DURATION.fullmatch(words.pop(0)):
            return None
    elif name == "xargs":
        words = _xargs_command(words)
    elif name not in _TRANSPARENT_WRAPPERS:
        return None
    while words and name in {"env", "time"} and _ASSIGNMENT.fullmatch(words[0]):
        assigned.append(words.pop(0))
    if (
        not words
        or words[0].startswith("-")
        or UNKNOWN_TEXT in words[0]
        or words[0] in RESERVED_WORDS
    ):
        return None
    return SimpleCommand(words=tuple(words), assignments=tuple(assigned))


def _xargs_command(words: list[str]) -> list[str]:
    """Return the command that xargs runs, with a placeholder for its input."""
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
    return (
        [word.replace(mark, UNKNOWN_TEXT) if mark else word for word in words] + [UNKNOWN_TEXT]
        if words
        else []
    )


_SYSTEM_PATHS = re.compile(
    r"/(?:etc|usr|bin|sbin|lib\w*|boot|sys|proc|var|root|opt|srv)(?:/.*)?|/dev(?:/(?!null$|stdout$"
    r"|stderr$|stdin$|tty$|fd/\d+$|shm/).*)?",
    re.DOTALL,
)
_ROOT_PATHS = re.compile(
    r"(?:/|/\*|/\.\*|~\w*|~\w*/|~\w*/\*|~\w*/\.\*|/home(?:/\w*)?|/home(?:/\w*)?/\*|/[^/]*[*?\[].*|(?:\.\./)*\.\.(?:/\*?)?)"
)
_ALWAYS_DESTRUCTIVE = {
    "mkfs", "wipefs", "fdisk", "sfdisk", "parted", "mkswap", "shutdown", "reboot", "poweroff",
    "halt", "blkdiscard", "userdel", "groupdel", "deluser",
}  # fmt: skip
_DELETERS = {"rm", "rmdir", "shred", "unlink", "srm"}
_MODE_CHANGERS = {"chmod", "chown", "chgrp", "setfacl"}
_WRITERS = {"mv", "cp", "ln", "install", "tee", "truncate", "dd", "rsync", "sed"}


def is_destructive(command: SimpleCommand) -> bool:
    """Return True if the command would destroy data outside all workspaces."""
    words = tuple(normalize_text(word) for word in command.words)
    name, rest = program_name(words), words[1:]
    if name in _ALWAYS_DESTRUCTIVE or name.startswith("mkfs."):
        return True
    if name in _DELETERS or (name == "find" and "-delete" in rest) or name in _MODE_CHANGERS:
        return any(map(_is_system_path, rest))
    if name in _WRITERS and (name != "sed" or any(word.startswith("-i") for word in rest)):
        return any(map(writes_system_path, _written_paths(name, rest)))
    return name == "kill" and "-1" in rest[1:]


def may_be_destructive(command: SimpleCommand) -> bool:
    """Return True if the command destroys or overwrites unknown targets."""
    name, rest = program_name(command.words), command.words[1:]
    harmful = name in _DELETERS | _MODE_CHANGERS | _WRITERS or (
        name == "find" and "-delete" in rest
    )
    return harmful and any(UNKNOWN_TEXT in word for word in rest)


def deletes_or_rewrites(command: SimpleCommand) -> bool:
    return program_name(command.words) in _DELETERS | _MODE_CHANGERS | {"find"}


def leaves_workspace(command: SimpleCommand) -> bool:
    """Return True if the command changes to a folder outside the workspace."""
    words = command.words
    if program_name(words) not in {"cd", "pushd", "popd"}:
        return False
    to = words[-1]
    return (
        len(words) == 1
        or to.startswith(("/", "~", "-"))
        or UNKNOWN_TEXT in to
        or ".." in to.split("/")
    )


def writes_system_path(path: str) -> bool:
    """Return True for system files and devices."""
    return bool(_SYSTEM_PATHS.fullmatch(_normal_path(path)))


def is_fork_bomb(source: str) -> bool:
    """Return True for a function that pipes into itself, which rules for commands can't match."""
    return bool(re.search(r"(?<![\w:.])([\w:.]{1,99})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&", source))


def _is_system_path(word: str) -> bool:
    path = _normal_path(word)
    return bool(_ROOT_PATHS.fullmatch(path) or _SYSTEM_PATHS.fullmatch(path))


def _written_paths(name: str, rest: Sequence[str]) -> Iterable[str]:
    paths = [word for word in rest if not word.startswith("-")]
    match name:
        case "dd":
            return [word.removeprefix("of=") for word in rest if word.startswith("of=")]
        case "cp" | "install" | "rsync" | "ln":
            return paths[-1:]
        case _:
            return paths


def _normal_path(path: str) -> str:
    if UNKNOWN_TEXT in path:
        return path
    plain = posixpath.normpath(path) if path.startswith("/") else path
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain
