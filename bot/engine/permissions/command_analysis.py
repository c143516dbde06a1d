"""Analyzes shell commands: nested commands, destructive ones and read-only ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
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
_MAX_FOLDERS = 64
_HIDDEN_SCRIPT = build_reason("unclear.hidden_script")
_OUTSIDE_PATH = re.compile(r"(?:^|=|:|^-\w+)[/~]|(?:^|[/=:])\.\.(?:$|/)")


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


def find_folders(commands: Iterable[SimpleCommand]) -> Sequence[str]:
    """Return all folders in which a line with these commands may be, in any order of them, relative
    to where it begins."""
    folders = [""]
    for command in commands:
        if program_name(command.words) not in {"cd", "pushd"}:
            continue
        for word in command.words[1:]:
            # A glob stands for a name that is not known.
            to = UNKNOWN_TEXT if re.search(r"[*?\[]", word) else word
            folders += [posixpath.join(each, to) for each in folders]
            folders = list(dict.fromkeys(folders))
            if len(folders) > _MAX_FOLDERS:
                return ["", UNKNOWN_TEXT]
    return folders


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


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a program: letters, of which any number may stand together; letters that are
    followed by a value in the same word; whole words; and words that go on with `=` and a value."""

    letters: str = ""
    with_value: str = ""
    words: frozenset[str] = frozenset()
    named_values: frozenset[str] = frozenset()

    def allow(self, word: str) -> bool:
        if not word.startswith("-") or word in {"-", "--"}:
            return True
        if word in self.words:
            return True
        if word.startswith("--"):
            return "=" in word and word.partition("=")[0] in self.named_values
        rest = word[1:].lstrip(self.letters) if self.letters else word[1:]
        return not rest or rest[0] in self.with_value


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _options(
    letters: str = "", with_value: str = "", words: str = "", named_values: str = ""
) -> _Options:
    named = _words(named_values)
    # Their value may also be the next word.
    return _Options(letters, with_value, _words(words) | named, named)


_NUMBERS = "0123456789"
_PLAIN: Mapping[str, _Options] = {
    **dict.fromkeys(("pwd", "true", "false", ":", "whoami", "tac", "rev", "seq"), _options()),
    "ls": _options("aAbBcCdfFghHiklLmnNopqQrRsStuUvxXZ1", "I", words=(
        "--all --almost-all --directory --human-readable --recursive --reverse --size --full-time"
        " --color --group-directories-first"
    ), named_values="--color --sort --time --time-style --ignore"),
    "cat": _options("AbeEnstTuv", words="--number --show-all --squeeze-blank"),
    "head": _options("qvz" + _NUMBERS, "nc", named_values="--lines --bytes"),
    "tail": _options("qvz" + _NUMBERS, "nc", named_values="--lines --bytes"),
    "wc": _options("clLmw", words="--lines --words --chars --bytes --max-line-length"),
    "echo": _options("neE"),
    "printf": _options(),
    "stat": _options("Lft", "c", named_values="--format --printf"),
    "du": _options("abcDhHkLlmsSx0", "dt", words="--all --summarize --human-readable --total",
        named_values="--max-depth --exclude"),
    "df": _options("ahHiklmTP"),
    "basename": _options("az", "s"),
    "dirname": _options("z"),
    "realpath": _options("emsLPz"),
    "readlink": _options("efmnqsvz"),
    "cut": _options("nsz", "bcdf", words="--complement", named_values="--delimiter --fields"),
    "tr": _options("cCdst"),
    "nl": _options("p", "bdfhilnsvw"),
    "fold": _options("bs", "w"),
    "expand": _options("i", "t"),
    "paste": _options("sz", "d"),
    "join": _options("iz", "aejotv12"),
    "comm": _options("123z"),
    "column": _options("tnx", "sc"),
    "uniq": _options("cdDiuz", "fsw", words="--count --repeated --unique"),
    "sort": _options("bcCdfghiMmnrRsuVz", "kt", words="--reverse --numeric-sort --unique --check",
        named_values="--key --field-separator"),
    "diff": _options("abBcdeEiNpqrstuwyZ", "UCWx", words="--brief --recursive --unified --color",
        named_values="--unified --exclude --color --width"),
    "cmp": _options("bls", "in"),
    "grep": _options("aAbBcCEFGhHiIlLnoPqrRsTUvVwxyzZ" + _NUMBERS, "ABCefmd", words=(
        "--ignore-case --invert-match --word-regexp --line-number --count --only-matching --quiet"
        " --recursive --files-with-matches --files-without-match --extended-regexp --null"
        " --fixed-strings --perl-regexp --text --no-filename --with-filename --color"
    ), named_values=(
        "--include --exclude --exclude-dir --max-count --context --after-context --before-context"
        " --color --regexp"
    )),
    "rg": _options("aFHIilLnNopPqsSuUvVwx0" + _NUMBERS, "ABCegmMtT", words=(
        "--files --hidden --no-ignore --ignore-case --count --line-number --no-heading --heading"
        " --files-with-matches --fixed-strings --word-regexp --only-matching --multiline --json"
        " --smart-case --type-list --stats --sort-files --no-config"
    ), named_values="--glob --type --type-not --max-count --context --max-depth --sort --color"),
    "tree": _options("aACdDfFghilNpqQrstux", "LIP", words="--dirsfirst --gitignore --noreport"),
    "date": _options("uR", "Id", words="--utc --iso-8601", named_values="--date --iso-8601"),
    "file": _options("bhikLNprs0", words="--brief --mime --mime-type --mime-encoding"),
    "md5sum": _options("bct"),
    "cksum": _options(),
    "id": _options("gGnruz"),
    "uname": _options("amnoprsv"),
    "strings": _options("af", "en"),
    "hexdump": _options("bcCdovx", "ns"),
    "od": _options("abcdfhilosxv", "AjNStw"),
    "jq": _options("ceMnRrSsj", words="--raw-output --compact-output --slurp --sort-keys"),
    "which": _options("a"),
}  # fmt: skip
_SAME: Mapping[str, str] = {
    "egrep": "grep",
    "fgrep": "grep",
    **dict.fromkeys(("sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum"), "md5sum"),
}
_WITH_HARMFUL_OPTIONS = {"sort", "find", "rg", "tree", "file"}
"""They write files or run programs, with options that are not among these."""
_FIND = _words(
    "-name -iname -path -ipath -regex -iregex -type -maxdepth -mindepth -newer -size -empty"
    " -mtime -mmin -atime -amin -ctime -cmin -perm -user -group -links -readable -writable"
    " -executable -print -print0 -prune -not -o -or -a -and -L -P -H -depth -xdev -mount"
    " -quit -true -false -ls -regextype -samefile -inum"
)
_GIT_COMMON = _options(
    "pquvzwbn" + _NUMBERS, "nUMCSGL", words=(
        "--stat --numstat --shortstat --summary --name-only --name-status --oneline --patch"
        " --no-patch --graph --all --branches --tags --decorate --no-color --color --cached"
        " --staged --raw --full-index --abbrev-commit --reverse --first-parent --merges --no-merges"
        " --follow --word-diff --ignore-all-space --ignore-space-change --ignore-blank-lines"
        " --no-ext-diff --no-textconv --no-renames --find-renames --find-copies --minimal --check"
        " --date-order --topo-order --merge-base --left-right --cherry-pick --no-pager"
    ), named_values=(
        "--since --until --after --before --author --committer --grep --format --pretty --date"
        " --max-count --skip --unified --color --abbrev --diff-filter --decorate --word-diff"
    ),
)  # fmt: skip
_GIT: Mapping[str, _Options] = {
    **dict.fromkeys(("log", "diff", "show", "shortlog", "rev-list"), _GIT_COMMON),
    "status": _options("sbuvz", words=(
        "--short --branch --porcelain --long --show-stash --ignored --no-renames --verbose"
    ), named_values="--porcelain --untracked-files --ignored"),
    "ls-files": _options("cdomistuvz", "x", words=(
        "--cached --deleted --others --modified --ignored --stage --exclude-standard --full-name"
        " --error-unmatch"
    )),
    "ls-tree": _options("drtlz", words="--name-only --name-status --long --full-tree --full-name"),
    "rev-parse": _options("q", words=(
        "--verify --short --abbrev-ref --show-toplevel --git-dir --is-inside-work-tree"
        " --show-prefix --show-cdup --symbolic --all --branches --tags --quiet"
    ), named_values="--short --abbrev-ref"),
    "blame": _options("befFlnpstw", "L", words="--porcelain --line-porcelain --show-email"),
    "describe": _options("", words="--all --tags --long --always --dirty --contains --exact-match",
        named_values="--abbrev --match"),
    "cat-file": _options("pste"),
    "merge-base": _options("a", words="--all --is-ancestor --fork-point --octopus"),
    "branch": _options("arv", words="--list --show-current --all --remotes --verbose -vv"),
    "remote": _options("v"),
}  # fmt: skip
_GIT_WITHOUT_OPERANDS = {"branch", "remote"}
# Not of those that a file of the project makes run another version: go, cargo, rustc.
# The word `version` is a subcommand of few: Python, Node, Java and GCC take a file of that name.
_VERSION_ONLY: Mapping[str, frozenset[str]] = {
    "python": _words("--version -V -VV"),
    "python3": _words("--version -V -VV"),
    "node": _words("--version -v"),
    "npm": _words("--version -v version"),
    "java": _words("--version -version"),
    "uv": _words("--version -V version"),
    "gcc": _words("--version -v"),
}


def is_read_only(command: SimpleCommand) -> bool:
    """Return True if the words show that the command only reads, within the workspace."""
    words = command.words
    if command.assignments or not words or any(UNKNOWN_TEXT in word for word in words):
        return not words and not command.assignments
    if any(_OUTSIDE_PATH.search(word) for word in words):
        return False
    return _only_reads(words[0], words[1:])


def needs_read_only_view(command: SimpleCommand) -> bool:
    """Return True for a program that only reads, but runs what the project's settings name, or does
    what the name of a file says: `*` may stand for `-oAGENTS.md`."""
    name = program_name(command.words)
    if name == "uniq":
        # The second file is written.
        return any(re.search(r"[*?\[]", word) for word in command.words)
    if name in _WITH_HARMFUL_OPTIONS:
        globs = (word for word in command.words[1:] if word[:1] in {"*", "?", "["})
        # No option of find has a dot.
        return any(name != "find" or "." not in re.split(r"[*?\]]", word)[-1] for word in globs)
    return name == "git" or name in _VERSION_ONLY


def _only_reads(name: str, rest: Sequence[str]) -> bool:
    if name in _VERSION_ONLY:
        return len(rest) == 1 and rest[0] in _VERSION_ONLY[name]
    if name == "find":
        return all(not word.startswith("-") or word in _FIND for word in rest)
    if name == "git":
        return _git_only_reads(rest)
    if name in {"cd", "command"}:
        return rest[:1] == ("-v",) if name == "command" else len(rest) == 1 and rest[0][:1] != "-"
    options = _PLAIN.get(_SAME.get(name, name))
    if options is None or not all(map(options.allow, rest)):
        return False
    end = rest.index("--") if "--" in rest else len(rest)
    operands = [word for word in rest[:end] if word == "-" or not word.startswith("-")]
    operands += rest[end + 1 :]
    # The second file of the one is written; the other sets the time that it is given. Behind @ is a
    # file of options.
    is_written = (
        any(word.startswith("@") for word in operands)
        or (name == "uniq" and len(operands) > 1)
        or (name == "date" and any(not word.startswith("+") for word in operands))
    )
    return not is_written


def _git_only_reads(rest: Sequence[str]) -> bool:
    if rest[:1] == ("-C",) and len(rest) > 1 and not rest[1].startswith("-"):
        rest = rest[2:]
    if rest[:1] == ("--no-pager",):
        rest = rest[1:]
    if tuple(rest) == ("--version",):
        return True
    options = _GIT.get(rest[0]) if rest else None
    if any("%G" in word for word in rest):
        return False  # a format that runs the signing program
    if options is None or not all(map(options.allow, rest[1:])):
        return False
    return rest[0] not in _GIT_WITHOUT_OPERANDS or all(word.startswith("-") for word in rest[1:])
