"""Checks commands, paths and URLs against the rules and reports the strictest finding."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from bot.engine.permissions.command_analysis import (
    CommandPart,
    ExpandedScript,
    deletes_or_rewrites,
    expand_commands,
    find_folders,
    is_destructive,
    is_fork_bomb,
    is_read_only,
    leaves_workspace,
    may_be_destructive,
    needs_read_only_view,
    program_name,
    writes_system_path,
)
from bot.engine.permissions.rules import (
    UNKNOWN_TEXT,
    PermissionRule,
    PermissionRules,
    first_match,
    first_possible_match,
    is_outside,
    named_paths,
    normalize_text,
    relative_path,
)
from bot.engine.permissions.shell_parser import ShellScript, SimpleCommand, parse_script
from bot.engine.web import WebUrl
from cards.permission_reasons import PermissionReason, build_reason


class FindingLevel(IntEnum):
    """From mild to strict; NO_RULE means that no rule applies."""

    ALLOW = 0
    NO_RULE = 1
    ASK = 2
    DENY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFinding:
    level: FindingLevel
    reason: PermissionReason


def allow(key: str, **facts: object) -> PolicyFinding:
    """This and the next functions build a finding with the reason `key`."""
    return PolicyFinding(level=FindingLevel.ALLOW, reason=build_reason(key, **facts))


def no_rule(key: str, **facts: object) -> PolicyFinding:
    return PolicyFinding(level=FindingLevel.NO_RULE, reason=build_reason(key, **facts))


def ask(key: str, **facts: object) -> PolicyFinding:
    return PolicyFinding(level=FindingLevel.ASK, reason=build_reason(key, **facts))


def deny(key: str, **facts: object) -> PolicyFinding:
    return PolicyFinding(level=FindingLevel.DENY, reason=build_reason(key, **facts))


def strictest(findings: Iterable[PolicyFinding]) -> PolicyFinding:
    """Return the first of the strictest findings; there must be at least one."""
    return max(findings, key=lambda finding: finding.level)


def find_restriction(
    rules: PermissionRules, tool: str, texts: Sequence[str]
) -> PolicyFinding | None:
    """Return the restriction by a rule, if any; `texts` are all forms of the argument."""
    if rule := first_match(rules.deny, tool, texts):
        return deny("rule_denies", rule=rule)
    if rule := first_match(rules.ask, tool, texts):
        return ask("rule_asks", rule=rule)
    if rule := first_possible_match(rules.deny + rules.ask, tool, texts):
        return ask("rule_may_hit", rule=rule)
    return None


def find_allowance(rules: PermissionRules, tool: str, texts: Sequence[str]) -> PolicyFinding | None:
    """Return the allowance by a rule, if any; `texts` are equivalent exact forms."""
    for rule in rules.allow:
        if rule.applies_to(tool) and any(map(rule.covers, texts)):
            return allow("rule_allows", rule=rule)
    return None


# Control files: programs and agents act on their contents, so a write can run code later, outside
# the sandbox. A worker must ask before it writes one.
_CONTROL_FOLDERS = {
    ".git", ".githooks", ".husky", ".vscode", ".idea", ".zed", ".devcontainer", ".direnv", ".cargo",
    ".circleci", ".buildkite", ".claude", ".agents", ".codex", ".gemini", ".qwen", ".opencode",
    ".cursor", ".continue", ".codebuddy", ".iflow", ".kiro", ".roo", ".windsurf", ".junie",
    ".augment", ".shiftboss", ".amazonq", ".clinerules", ".factory", ".kilocode", ".openhands",
    ".tabnine", ".trae", ".vs", ".yarn", ".mvn", ".bundle", ".ssh", ".gnupg", ".hg", ".jj", ".mise",
    ".helix", ".woodpecker", ".tekton", ".semaphore", ".builds", ".cline", ".goose", ".crush",
}  # fmt: skip
_CONTROL_FILES = {
    ".gitmodules", ".gitattributes", ".gitconfig", ".envrc", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".pypirc", ".netrc", "pip.conf", ".mcp.json", "mcp.json", "opencode.json",
    "opencode.jsonc", ".tool-versions", ".pre-commit-config.yaml",
    "rust-toolchain", "rust-toolchain.toml",
    "lefthook.yml", ".lefthook.yml", ".bazelrc", ".gitlab-ci.yml", ".travis.yml", ".drone.yml",
    ".woodpecker.yml", "jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml",
    "appveyor.yml", ".cursorrules", ".clinerules", ".windsurfrules", ".roorules", ".goosehints",
    ".aider.conf.yml", "copilot-instructions.md", "sitecustomize.py", "usercustomize.py",
    "crush.json", ".crush.json", ".rules", ".dir-locals.el", ".dir-locals-2.el", ".exrc", ".vimrc",
    ".nvimrc", ".nvim.lua", ".lvimrc", ".gdbinit", ".lldbinit", ".pdbrc", ".inputrc", ".profile",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".xprofile", ".xinitrc", ".tmux.conf", ".gemrc", ".irbrc", ".pryrc",
    ".rprofile", ".curlrc", ".wgetrc", ".pythonrc.py", ".lfsconfig", "devenv.nix", "flake.nix",
    "shell.nix", ".devcontainer.json", ".gitpod.yml", ".replit", ".pnpmfile.mjs", ".bazeliskrc",
    ".ghci", ".ocamlinit", ".iex.exs", ".erlang", ".perldb", ".jvmopts", ".sbtopts", ".rdbgrc",
    ".byebugrc", ".autoenv.zsh", "devbox.json", ".drone.yaml", ".drone.jsonnet", ".woodpecker.yaml",
    ".cirrus.yml", "azure-pipelines.yaml", ".appveyor.yml", ".build.yml", ".overcommit.yml",
    "lefthook.yaml", ".lefthook.yaml", "lefthook-local.yml", ".lefthook-local.yml",
}  # fmt: skip
_CONTROL_NOTES = re.compile(
    r"(?:agents?|claude|gemini|qwen|codex|crush|warp)(?:\.[a-z]+)*\.md"
    r"|\.roorules-.+|.+\.code-workspace|.+\.pth|\.?mise(?:\.[\w-]+)*\.toml"
)
_CONTROL_WORKFLOWS = (
    ".github/workflows/", ".github/actions/", ".github/instructions/", ".github/prompts/",
    ".github/chatmodes/", ".github/agents/", ".gitea/", ".forgejo/", ".config/mise/",
    ".config/lefthook",
)  # fmt: skip
_CONTROL_PARENTS = {each.partition("/")[0] for each in _CONTROL_WORKFLOWS}
# Searching a file reads it.
_READ_RULE_TOOLS = {"grep": ("grep", "read")}
_STANDARD_STREAMS = {"/dev/stdin", "/dev/stdout", "/dev/stderr"}
_HARMLESS_TARGETS = {"/dev/null", "/dev/tty", *_STANDARD_STREAMS}


def check_paths(rules: PermissionRules, tool: str, paths: Sequence[str]) -> PolicyFinding:
    if not paths:
        return no_rule("no_file")
    return strictest(check_path(rules, tool, path) for path in paths)


def check_path(rules: PermissionRules, tool: str, path: str) -> PolicyFinding:
    """Check a path in the form of `rules.relative_path`."""
    changes = tool in {"write", "edit"}
    names = ("write", "edit") if changes else _READ_RULE_TOOLS.get(tool, (tool,))
    said = [one for name in names if (one := find_restriction(rules, name, (path, f"./{path}")))]
    if changes and writes_system_path(path):
        return deny("changes_system")
    if said:
        return strictest(said)
    return find_allowance(rules, tool, (path,)) or _check_location(path, changes=changes)


def _check_location(path: str, *, changes: bool) -> PolicyFinding:
    if UNKNOWN_TEXT in path:
        return ask("file_unknown") if changes else no_rule("file_unknown")
    if is_outside(path):
        return no_rule("outside")
    if changes and _is_control_file(path):
        return no_rule("obeyed")
    return allow("in_workspace")


def check_redirect(rules: PermissionRules, path: str, *, writes: bool) -> PolicyFinding:
    if path in _HARMLESS_TARGETS:
        return allow("goes_nowhere")
    if not writes:
        return check_path(rules, "read", path)
    return strictest(check_path(rules, tool, path) for tool in ("write", "edit"))


def check_url(rules: PermissionRules, url: WebUrl | None) -> PolicyFinding:
    if url is None:
        return deny("no_url")
    place = f"{url.site}{url.path}"
    full = f"{url.scheme}://{place}"
    if said := find_restriction(rules, "web_fetch", (url.host, url.site, place, full)):
        return said
    for rule in rules.allow:
        if rule.applies_to("web_fetch") and _rule_reaches(rule, url):
            return allow("rule_allows", rule=rule)
    return no_rule("no_rule", what=url.site)


def check_sending(rules: PermissionRules, url: WebUrl | None, pattern: str) -> PolicyFinding:
    """Check a request that may change something, written as `POST https://host/path`. What must not
    be fetched gets none either; leave to fetch is no leave to send."""
    said = check_url(rules, url)
    if url is None or said.level is FindingLevel.DENY:
        return said
    if found := find_restriction(rules, "http_request", (pattern, pattern.partition(" ")[2])):
        return found
    if said.level is FindingLevel.ASK:
        return said
    return find_allowance(rules, "http_request", (pattern,)) or no_rule(
        "no_rule", what=pattern[:60]
    )


def _rule_reaches(rule: PermissionRule, url: WebUrl) -> bool:
    """Match host and path separately, so that a wildcard in the host can't match a path."""
    scheme, mark, rest = rule.pattern.rpartition("://")
    if mark and scheme.lower() != url.scheme:
        return False
    host, slash, path = rest.partition("/")
    names = (url.host, url.site)
    if host and not any(
        PermissionRule(tool="x", pattern=host.lower()).covers(name) for name in names
    ):
        return False
    return not slash or PermissionRule(tool="x", pattern=f"/{path}").covers(url.path)


_GIT_OPTION = re.compile(r"-[Cc]|--(?:git-dir|work-tree|namespace|exec-path|config-env)")


def check_command(
    rules: PermissionRules, source: str, workspace: Path, *, keeps_folder: bool = False
) -> PolicyFinding:
    """`keeps_folder`: the next command begins in the folder to which this one changes."""
    inside = expand_commands(parse_script(source))
    found = [*_command_findings(rules, source, inside, workspace)]
    if keeps_folder:
        commands = (_relative_to_workspace(part.command, workspace) for part in inside.parts)
        found += _check_next_folders(find_folders(commands), workspace)
    return strictest(found)


def _check_next_folders(folders: Sequence[str], workspace: Path) -> Iterator[PolicyFinding]:
    """From a folder of control files, the next command would write them by harmless names."""
    for folder in folders:
        if UNKNOWN_TEXT in folder:
            yield no_rule("file_unknown")
            continue
        for path in named_paths(workspace, folder):
            names = set(normalize_text(path).split("/"))
            if names & (_CONTROL_FOLDERS | _CONTROL_PARENTS):
                yield no_rule("obeyed")


def is_read_only_command(source: str, workspace: Path) -> bool:
    """Return True if no part of the command can change anything."""
    inside = expand_commands(parse_script(source))
    if inside.unclear_reason or _writes_files(inside):
        return False
    # A guess is about a command that has been judged as a whole.
    parts = (part for part in inside.parts if part.is_certain and not part.is_wrapper)
    return all(is_read_only(_relative_to_workspace(part.command, workspace)) for part in parts)


def _writes_files(inside: ExpandedScript) -> bool:
    return not _written_files(inside.scripts) <= _HARMLESS_TARGETS


def _written_files(scripts: Sequence[ShellScript]) -> set[str]:
    """Return what redirections write. Who writes to /dev/stdin opens the file anew that stands
    there, which may be any that the line reads: `echo x < FILE > /dev/stdin`."""
    written = {path for script in scripts for path in script.written_files}
    if written.isdisjoint(_STANDARD_STREAMS):
        return written
    return written | {path for script in scripts for path in script.read_files}


def stays_in_workspace(source: str, workspace: Path) -> bool:
    """Return True if no part of the command deletes files, rewrites history, or names a path
    outside the workspace or a control file."""
    inside = expand_commands(parse_script(source))
    commands = [_relative_to_workspace(part.command, workspace) for part in inside.parts]
    return not inside.unclear_reason and not any(
        deletes_or_rewrites(each)
        or leaves_workspace(each)
        or program_name(each.words) == "git"
        or any(map(_is_delicate, each.words[1:]))
        for each in commands
    )


def _is_delicate(word: str) -> bool:
    path = word.rpartition("=")[2]
    return (
        path.startswith(("/", "~"))
        or ".." in path.split("/")
        or UNKNOWN_TEXT in path
        or _is_control_file(path)
    )


def _is_control_file(path: str) -> bool:
    """Return True if programs or agents act on a file of that name, at any depth."""
    plain = normalize_text(path)
    *folders, name = plain.split("/")
    return (
        name in _CONTROL_FILES | _CONTROL_FOLDERS
        or not _CONTROL_FOLDERS.isdisjoint(folders)
        or _CONTROL_NOTES.fullmatch(name) is not None
        or any(each in f"{plain}/" for each in _CONTROL_WORKFLOWS)
    )


def _command_findings(
    rules: PermissionRules, source: str, inside: ExpandedScript, workspace: Path
) -> Iterator[PolicyFinding]:
    if is_fork_bomb(source):
        yield deny("fork_bomb")
    if said := find_restriction(rules, "exec", (source,)):
        yield said
    if inside.unclear_reason:
        yield PolicyFinding(level=FindingLevel.ASK, reason=inside.unclear_reason)
    commands = [_relative_to_workspace(part.command, workspace) for part in inside.parts]
    folders = find_folders(commands)
    writes = _writes_files(inside)
    for part in inside.parts:
        yield _check_part(rules, part, workspace, folders, writes=writes)
    if any(map(leaves_workspace, commands)) and any(map(deletes_or_rewrites, commands)):
        yield ask("destroys_elsewhere")
    yield from _check_redirects(rules, inside.scripts, workspace, folders)
    if not inside.parts:
        yield allow("runs_nothing")


def _check_part(
    rules: PermissionRules,
    part: CommandPart,
    workspace: Path,
    folders: Sequence[str],
    *,
    writes: bool,
) -> PolicyFinding:
    """`writes`: the line also writes a file, so that it runs where the workspace can be changed.
    `folders` are those that it may be in."""
    command = _relative_to_workspace(part.command, workspace)
    if said := _check_restrictions(rules, part.command, command, folders):
        return said
    if part.is_wrapper or not part.is_certain:
        return allow("inside_judged")
    if said := find_allowance(
        rules, "exec", (_quote_words((*part.command.assignments, *part.command.words)),)
    ):
        return said
    if not is_read_only(command) or (writes and needs_read_only_view(command)):
        name = program_name(command.words)[:60].replace(UNKNOWN_TEXT, "?")
        return no_rule("no_rule", what=name) if name else no_rule("no_rule_for_it")
    return allow("only_looks")


def _check_restrictions(
    rules: PermissionRules, said: SimpleCommand, command: SimpleCommand, folders: Sequence[str]
) -> PolicyFinding | None:
    if is_destructive(command):
        return deny("destroys_outside")
    restricted = find_restriction(rules, "exec", _rule_forms(said))
    found = [restricted, *_check_reads(rules, command, folders)]
    if may_be_destructive(command):
        found.append(ask("change_unknown"))
    return strictest(one for one in found if one) if any(found) else None


def _check_reads(
    rules: PermissionRules, command: SimpleCommand, folders: Sequence[str]
) -> Iterator[PolicyFinding | None]:
    """Rules that protect files also apply to commands; rules for a whole tool do not."""
    if not is_read_only(command):
        return
    kept = PermissionRules(
        deny=tuple(rule for rule in rules.deny if rule.pattern),
        ask=tuple(rule for rule in rules.ask if rule.pattern),
    )
    for word in command.words[1:]:
        text = re.sub(r"[*?\[]", UNKNOWN_TEXT, word).removeprefix("./")
        texts = [
            posixpath.normpath(posixpath.join(each, text)) if each else text for each in folders
        ]
        yield from (find_restriction(kept, tool, texts) for tool in ("read", "grep"))


def _check_redirects(
    rules: PermissionRules,
    scripts: Sequence[ShellScript],
    workspace: Path,
    folders: Sequence[str],
) -> Iterator[PolicyFinding]:
    for written in _written_files(scripts):
        for path in _redirect_paths(written, workspace, folders):
            yield check_redirect(rules, path, writes=True)
    for read in (path for script in scripts for path in script.read_files):
        for path in _redirect_paths(read, workspace, folders):
            yield check_redirect(rules, path, writes=False)


def _redirect_paths(path: str, workspace: Path, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        place = posixpath.join(folder, path)
        if UNKNOWN_TEXT in place or place.startswith("/dev/"):
            yield place
        else:
            yield from named_paths(workspace, place)


def _relative_to_workspace(command: SimpleCommand, workspace: Path) -> SimpleCommand:
    """Make paths within the workspace relative."""
    root = workspace.as_posix()
    words = [
        relative_path(workspace, word) if word == root or word.startswith(f"{root}/") else word
        for word in command.words
    ]
    return SimpleCommand(words=tuple(words), assignments=command.assignments)


def _rule_forms(command: SimpleCommand) -> tuple[str, ...]:
    """Return all forms that a rule may match."""
    words = (program_name(command.words).casefold(), *command.words[1:])
    forms = (
        command.words,
        words,
        (*command.assignments, *command.words),
        _without_git_options(words),
    )
    return tuple(
        dict.fromkeys(said for form in forms for said in (" ".join(form), _quote_words(form)))
    )


def _without_git_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the options before git's subcommand."""
    rest = list(words[1:])
    while words[0] == "git" and rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if _GIT_OPTION.fullmatch(option) and rest:
            rest.pop(0)
    return (words[0], *rest)


def _quote_words(words: tuple[str, ...]) -> str:
    """Quote like a shell, so that blanks within words stay distinct; placeholders and globs stay
    unquoted."""
    return " ".join(word if _needs_no_quotes(word) else shlex.quote(word) for word in words)


def _needs_no_quotes(word: str) -> bool:
    return bool(word) and all(
        one.isalnum() or one in "@%+=:,./-_*?[]{}~^" + UNKNOWN_TEXT for one in word
    )
