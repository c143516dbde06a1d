"""Knows the commands that only read: exact programs with exact options, and nothing else.

An option that is not listed is one that may write, run something, or mean something else in another
version. Options are compared as they stand, so that no abbreviation passes. Where a command is run
because of this, its workspace is read-only too: see `tools.shell_exec`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.engine.permissions.rules import UNKNOWN_TEXT
from bot.engine.permissions.shell_parser import SimpleCommand

_OUTSIDE_PATH = re.compile(r"(?:^|=|:|^-\w+)[/~]|(?:^|[/=:])\.\.(?:$|/)")


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
    "file": _options("bhikLNprsz0", words="--brief --mime --mime-type --mime-encoding"),
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
_VERSION_ONLY = {"python", "python3", "node", "npm", "go", "cargo", "rustc", "java", "uv", "gcc"}


def is_read_only(command: SimpleCommand) -> bool:
    """Return True if the words show that the command only reads, within the workspace."""
    words = command.words
    if command.assignments or not words or any(UNKNOWN_TEXT in word for word in words):
        return not words and not command.assignments
    if any(_OUTSIDE_PATH.search(word) for word in words):
        return False
    return _only_reads(words[0], words[1:])


def _only_reads(name: str, rest: Sequence[str]) -> bool:
    if name in _VERSION_ONLY:
        return tuple(rest) in {("--version",), ("-V",), ("version",)}
    if name == "find":
        return all(not word.startswith("-") or word in _FIND for word in rest)
    if name == "git":
        return _git_only_reads(rest)
    if name in {"cd", "command"}:
        return rest[:1] == ("-v",) if name == "command" else len(rest) == 1 and rest[0][:1] != "-"
    options = _PLAIN.get(_SAME.get(name, name))
    if options is None or not all(map(options.allow, rest)):
        return False
    operands = [word for word in rest if not word.startswith("-")]
    # The second file of the one is written; the other sets the time that it is given.
    is_written = (name == "uniq" and len(operands) > 1) or (
        name == "date" and any(not word.startswith("+") for word in operands)
    )
    return not is_written


def _git_only_reads(rest: Sequence[str]) -> bool:
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
