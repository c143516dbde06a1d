"""Files and hosts: what may be read, changed and fetched."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from bot.engine.agent.policy.destructive import writes_ground
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
from bot.engine.agent.policy.rules import HOLE, Rule, Rules, folded
from bot.engine.agent.policy.subjects import is_outside
from bot.engine.agent.web.urls import Url
from cards.reasons import because

# Programs and agents obey these: whoever writes them writes what runs later, outside a sandbox.
OBEYED = (
    ".git/*", "*/.git/*", ".gitmodules", "*/.gitmodules", ".envrc", "*/.envrc", ".vscode/*",
    "*/.vscode/*", ".idea/*", "*/.idea/*", ".husky/*", "*/.husky/*", ".claude/*", "*/.claude/*",
    ".agents/*", "*/.agents/*", ".mcp.json", "*/.mcp.json", ".git", ".github/workflows/*",
    "agents.md", "*/agents.md", "claude.md", "*/claude.md",
)  # fmt: skip
# Whoever searches a file reads it.
_READ_BY = {"grep": ("grep", "read")}
_NOWHERE = {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"}


def judge_paths(rules: Rules, tool: str, paths: Sequence[str]) -> Finding:
    if not paths:
        return missed(because("no_file"))
    return strictest(judge_path(rules, tool, path) for path in paths)


def judge_path(rules: Rules, tool: str, path: str) -> Finding:
    """`path` as `subjects.within` gives it."""
    changes = tool in {"write", "edit"}
    names = ("write", "edit") if changes else _READ_BY.get(tool, (tool,))
    said = [one for name in names if (one := forbidden(rules, name, (path, f"./{path}")))]
    if changes and writes_ground(path):
        return denied(because("changes_system"))
    if said:
        return strictest(said)
    return permitted(rules, tool, (path,)) or _by_itself(path, changes=changes)


def _by_itself(path: str, *, changes: bool) -> Finding:
    if HOLE in path:
        why = because("file_unknown")
        return asked(why) if changes else missed(why)
    if is_outside(path):
        return missed(because("outside"))
    if changes and any(fnmatchcase(folded(path), pattern) for pattern in OBEYED):
        return missed(because("obeyed"))
    return allowed(because("in_workspace"))


def judge_redirect(rules: Rules, path: str, *, writes: bool) -> Finding:
    if path in _NOWHERE:
        return allowed(because("goes_nowhere"))
    if not writes:
        return judge_path(rules, "read", path)
    return strictest(judge_path(rules, tool, path) for tool in ("write", "edit"))


def judge_url(rules: Rules, url: Url | None) -> Finding:
    if url is None:
        return denied(because("no_url"))
    place = f"{url.site}{url.path}"
    full = f"{url.scheme}://{place}"
    if said := forbidden(rules, "web_fetch", (url.host, url.site, place, full)):
        return said
    for rule in rules.allow:
        if rule.is_for("web_fetch") and _reaches(rule, url):
            return allowed(because("rule_allows", rule=rule))
    return missed(because("no_rule", what=url.site))


def _reaches(rule: Rule, url: Url) -> bool:
    """A star for the host never reaches into the path: a host is not what a path says it is."""
    scheme, mark, rest = rule.pattern.rpartition("://")
    if mark and scheme.lower() != url.scheme:
        return False
    host, slash, path = rest.partition("/")
    names = (url.host, url.site)
    if host and not any(Rule(tool="x", pattern=host.lower()).covers(name) for name in names):
        return False
    return not slash or Rule(tool="x", pattern=f"/{path}").covers(url.path)
