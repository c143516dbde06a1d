"""Commands that look and change nothing: allowed where a sandbox holds them in."""

from __future__ import annotations

import re

from bot.engine.agent.policy.rules import HOLE
from bot.engine.agent.policy.shell import Simple

_ANY = {
    "ls", "cat", "head", "tail", "wc", "pwd", "echo", "true", "false", "test", "[", "stat", "du",
    "df", "basename", "dirname", "realpath", "readlink", "cut", "tr", "nl", "tac", "rev", "fold",
    "expand", "paste", "join", "diff", "cmp", "comm", "column", "grep", "egrep", "fgrep", "seq",
    "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "which", "type", "whoami", "id",
    "uname", ":", "strings", "hexdump", "od", "jq",
}  # fmt: skip

# What each of these must not be given, because it would write or run something.
_EXCEPT = {
    "sort": r"-[A-Za-z]*[oTS].*|--(?:o|te|compr|fi).*",
    "find": r"-(?:exec|execdir|ok|okdir|delete|fprint|fprint0|fprintf|fls|files0-from)",
    "rg": r"--(?:pre|hostname-bin|search-zip).*|-[A-Za-z]*z.*",
    "tree": r"-[A-Za-z]*[oR].*|--output.*",
    "date": r"-[A-Za-z]*s.*|--(?:s|f).*|-[A-Za-z]*f.*",
    "file": r"-[A-Za-z]*[Cmf].*|--(?:compile|magic|files).*",
    "printf": r"-v.*",
}
_LOOKING = {
    "status", "log", "diff", "show", "ls-files", "ls-tree", "rev-parse", "blame", "describe",
    "shortlog", "rev-list", "cat-file", "merge-base",
}  # fmt: skip
_GIT_EXCEPT = re.compile(
    r"--(?:output|ext-diff|textconv|filters|open-files|upload-pack|exec|no-index|contents).*|-O.*",
    re.DOTALL,
)
_VERSIONED = {"python", "python3", "node", "npm", "go", "cargo", "rustc", "java", "uv", "gcc"}
_LISTING = {"-a", "-r", "-v", "-vv", "--list", "--show-current"}
_OUTSIDE = re.compile(r"(?:^|=|:|^-\w+)[/~]|(?:^|[/=:])\.\.(?:$|/)")


def is_harmless(command: Simple) -> bool:
    """It looks, at nothing outside the workspace, and this can be seen from its words."""
    words = command.words
    if command.assigned or not words or any(HOLE in word for word in words):
        return not words and not command.assigned
    if any(_OUTSIDE.search(word) for word in words):
        return False
    return _looks(words[0], words[1:])


def _looks(name: str, rest: tuple[str, ...]) -> bool:
    if name == "git":
        return _git_looks(rest)
    if name in _EXCEPT:
        return not any(re.fullmatch(_EXCEPT[name], word, re.DOTALL) for word in rest)
    if name == "uniq":
        return len([word for word in rest if not word.startswith("-")]) <= 1
    if name == "cd":
        return len(rest) == 1 and not rest[0].startswith("-")
    if name in _VERSIONED:
        return rest in {("--version",), ("-V",), ("version",)}
    return name in _ANY or (name == "command" and rest[:1] == ("-v",))


def _git_looks(rest: tuple[str, ...]) -> bool:
    if rest[:1] == ("--no-pager",):
        rest = rest[1:]
    if not rest or any(_GIT_EXCEPT.fullmatch(word) for word in rest):
        return rest == ("--version",)
    if rest[0] == "branch":
        return all(word in _LISTING for word in rest[1:])
    if rest[0] == "remote":
        return rest[1:] in {(), ("-v",)}
    return rest[0] in _LOOKING
