"""Levels, modes, leave and tools of other makers: what the house's judge says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.judge import Grant, GrantScope, Levels, Ruling
from bot.engine.agent.policy.policy import Policy
from bot.engine.agent.policy.rules import Rule, Rules
from bot.engine.llm.base import Mode
from bot.engine.llm.calls import CallKind
from tests.bot.engine.agent.policy.judging import (
    ALLOW,
    ASK,
    DENY,
    WORKSPACE,
    call,
    policy,
    ruling,
    verdict,
)

HOUSE = policy()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", {"path": "a.md"}, ALLOW),
        ("list", {}, ALLOW),
        ("grep", {"pattern": "x"}, ALLOW),
        ("write", {"path": "src/a.py", "content": "x"}, ALLOW),
        ("edit", {"path": f"{WORKSPACE}/src/a.py"}, ALLOW),
        ("edit", {"path": ".git/config"}, ASK),
        ("write", {"path": "sub/.GIT/hooks/x"}, ASK),
        ("write", {"path": "AGENTS.md"}, ASK),
        ("edit", {}, ASK),
        ("read", {"path": "../x"}, DENY),
        ("write", {"path": "/etc/passwd"}, DENY),
        ("write", {"path": "~/x"}, DENY),
        ("read", {"path": f"{WORKSPACE}-other/x"}, DENY),
        ("web_fetch", {"url": "https://example.com/a"}, ASK),
        ("web_fetch", {"url": "file:///etc/passwd"}, DENY),
        ("web_fetch", {"url": "https://user:pass@example.com"}, DENY),
        ("web_fetch", {"url": "https://a.com\\@b.com"}, DENY),
        ("memory_search", {"query": "x"}, ALLOW),
        # Lent to a coding CLI under the name of our server, and of another's the same.
        ("mcp__shiftboss__memory_search", {"query": "x"}, ALLOW),
        ("mcp__shiftboss__history_grep", {"pattern": "x"}, ALLOW),
        ("mcp__shiftboss__exec", {"command": "ls"}, ASK),
        ("mcp__other__memory_search", {"query": "x"}, ASK),
        ("ask_user", {"question": "x"}, ALLOW),
        ("sessions_spawn", {"task": "x"}, ALLOW),
        ("mcp_drop_tables", {"x": 1}, ASK),
        ("reаd", {"path": "a.md"}, ASK),  # with a Cyrillic letter
        ("exec", {"command": "ls"}, ALLOW),
        ("exec", {}, ASK),
    ],
)
def test_the_defaults_are_sensible(name: str, arguments: dict[str, Any], expected: str) -> None:
    assert verdict(HOUSE, name, **arguments) == expected


def test_without_a_sandbox_every_command_is_asked_about() -> None:
    open_house = policy(allow="exec", security="full")

    assert ruling(open_house, "ls", sandboxed=False).verdict == ASK
    assert ruling(HOUSE, "ls", sandboxed=False).verdict == ASK
    assert ruling(HOUSE, "rm -rf /", sandboxed=False).verdict == DENY


@pytest.mark.parametrize("mode", [Mode.PLAN, Mode.REVIEW])
def test_planning_and_reviewing_change_nothing(mode: Mode) -> None:
    judge = policy(allow="*", security="full", asking="off")

    assert verdict(judge, "write", mode, path="a") == DENY
    assert verdict(judge, "exec", mode, command="npm test") == DENY
    assert verdict(judge, "exec", mode, command="ls > a") == DENY
    assert verdict(judge, "sessions_spawn", mode, task="x") == DENY
    assert verdict(judge, "mcp_thing", mode) == DENY
    assert verdict(judge, "exec", mode, command="git log | head -5") == ALLOW
    assert verdict(judge, "read", mode, path="a") == ALLOW


_LEVELS = [
    # security, asking, and the verdicts: read, listed, unlisted, asked for
    ("deny", "off", (ALLOW, DENY, DENY, DENY)),
    ("deny", "on-miss", (ALLOW, DENY, DENY, DENY)),
    ("deny", "always", (ALLOW, DENY, DENY, DENY)),
    ("allowlist", "off", (ALLOW, ALLOW, DENY, DENY)),
    ("allowlist", "on-miss", (ALLOW, ALLOW, ASK, ASK)),
    ("allowlist", "always", (ALLOW, ASK, ASK, ASK)),
    ("full", "off", (ALLOW, ALLOW, ALLOW, DENY)),
    ("full", "on-miss", (ALLOW, ALLOW, ALLOW, ASK)),
    ("full", "always", (ALLOW, ASK, ASK, ASK)),
]


@pytest.mark.parametrize(("security", "asking", "verdicts"), _LEVELS)
def test_levels(security: str, asking: str, verdicts: tuple[str, ...]) -> None:
    judge = policy(allow="exec(make)", ask="exec(make asked)", security=security, asking=asking)
    read, listed, unlisted, asked = verdicts

    assert verdict(judge, "read", path="a") == read
    assert verdict(judge, "exec", command="make") == listed
    assert verdict(judge, "exec", command="make it") == unlisted
    assert verdict(judge, "exec", command="make asked") == asked


def test_leave_covers_the_exact_command_and_no_other() -> None:
    asked = ruling(HOUSE, "npm run *")
    grant = Grant(scope=GrantScope.ALWAYS, tool="exec", pattern=asked.pattern)

    assert asked.pattern == "npm run *"
    assert ruling(HOUSE, "npm run *", grants=[grant]).verdict == ALLOW
    assert ruling(HOUSE, "npm run evil", grants=[grant]).verdict == ASK
    assert ruling(HOUSE, "npm run *; ls", grants=[grant]).verdict == ASK
    assert ruling(HOUSE, "npm run *", grants=[grant], mode=Mode.PLAN).verdict == DENY


def test_leave_given_in_a_sandbox_is_none_without_it() -> None:
    inside = Grant(scope=GrantScope.TASK, tool="exec", pattern=ruling(HOUSE, "make").pattern)
    bare = ruling(HOUSE, "make", sandboxed=False).pattern
    outside = replace(inside, pattern=bare)

    assert ruling(HOUSE, "make", grants=[inside], sandboxed=False).verdict == ASK
    assert ruling(HOUSE, "make", grants=[outside], sandboxed=False).verdict == ALLOW


def test_leave_never_beats_a_rule_that_denies_or_a_level_that_always_asks() -> None:
    grant = Grant(scope=GrantScope.ALWAYS, tool="exec", pattern="make")

    assert ruling(policy(deny="exec(make)"), "make", grants=[grant]).verdict == DENY
    assert ruling(policy(security="deny"), "make", grants=[grant]).verdict == DENY
    always = ruling(policy(asking="always"), "make", grants=[grant])
    assert (always.verdict, always.pattern) == (ASK, "")


@pytest.mark.parametrize(
    ("name", "arguments", "pattern"),
    [
        ("edit", {"path": "./.git/../.envrc"}, ".envrc"),
        ("web_fetch", {"url": "https://Example.com:443/a?b"}, "example.com"),
        ("web_fetch", {"url": "http://example.com:8080/a"}, "example.com:8080"),
        ("mcp_thing", {"b": 1, "a": "x"}, '{"a": "x", "b": 1}'),
        ("mcp_thing", {"a": "x" * 5000}, ""),
    ],
)
def test_the_pattern_is_what_always_would_cover(
    name: str, arguments: dict[str, Any], pattern: str
) -> None:
    asked = HOUSE.judge(call(name, **arguments), workspace=WORKSPACE)

    assert (asked.verdict, asked.pattern) == (ASK, pattern)


@pytest.mark.parametrize(
    ("rule", "url", "expected"),
    [
        ("web_fetch(example.com)", "https://example.com/a/b?c", ALLOW),
        ("web_fetch(example.com)", "https://EXAMPLE.com.", ALLOW),
        ("web_fetch(example.com)", "https://example.com.evil.org", ASK),
        ("web_fetch(*.example.com)", "https://docs.example.com", ALLOW),
        ("web_fetch(*.example.com)", "https://evil.org/.example.com", ASK),
        ("web_fetch(*.example.com)", "https://evil.org/?x=.example.com", ASK),
        ("web_fetch(*.example.com/docs/*)", "https://a.example.com/docs/x", ALLOW),
        ("web_fetch(*.example.com/docs/*)", "https://evil.org/.example.com/docs/x", ASK),
        ("web_fetch(https://example.com)", "http://example.com", ASK),
    ],
)
def test_a_host_is_not_what_a_path_says_it_is(rule: str, url: str, expected: str) -> None:
    assert verdict(policy(allow=rule), "web_fetch", url=url) == expected
    denied = verdict(policy(deny=rule, security="full"), "web_fetch", url=url)
    if expected == ALLOW:
        assert denied == DENY


@pytest.mark.parametrize(
    ("name", "kind", "arguments", "expected"),
    [
        ("Bash", CallKind.EXECUTE, {"command": "ls"}, ALLOW),
        ("shell", CallKind.EXECUTE, {"command": ["bash", "-lc", "git push"]}, DENY),
        ("mcp__x__run", CallKind.EXECUTE, {"cmd": "git push"}, DENY),
        ("Bash", CallKind.READ, {"command": "git push"}, DENY),
        ("Read", CallKind.READ, {"file_path": "a"}, ALLOW),
        ("Read", CallKind.READ, {"file_path": "/usr/include/stdio.h"}, ASK),
        ("MultiEdit", CallKind.EDIT, {"file_path": "a"}, ALLOW),
        ("Delete it all", CallKind.DELETE, {}, ASK),
        ("WebFetch", CallKind.FETCH, {"url": "https://example.com"}, ASK),
        ("mcp__x__look", CallKind.READ, {"path": "a"}, ASK),
    ],
)
def test_tools_of_coding_agents_are_judged_as_what_they_do(
    name: str, kind: CallKind, arguments: dict[str, Any], expected: str
) -> None:
    judge = policy(deny="exec(git push*)")

    found = judge.judge(call(name, kind, **arguments), workspace=WORKSPACE, sandboxed=True)

    assert found.verdict == expected


def test_a_persona_is_held_to_its_tools_whatever_they_are_called() -> None:
    reader = Persona(
        name="reader", title={"en": "Reader"}, tools=("read", "list"), denied=("exec",)
    )

    def judged(name: str) -> Ruling:
        wanted = call(name, CallKind.EXECUTE, command="ls")
        return HOUSE.judge(wanted, workspace=WORKSPACE, sandboxed=True, persona=reader)

    assert judged("exec").verdict == DENY
    assert judged("Bash").verdict == DENY
    assert judged("ask_user").verdict == ALLOW


_RULES = st.sampled_from(
    ["*", "exec", "exec(ls*)", "exec(git *)", "exec(*push*)", "read", "web_fetch(*.com)", "mcp_x"]
).map(lambda text: Rule(tool=text.split("(")[0], pattern=text.partition("(")[2].removesuffix(")")))
_SETS = st.builds(
    Rules,
    deny=st.lists(_RULES, max_size=2).map(tuple),
    ask=st.lists(_RULES, max_size=2).map(tuple),
    allow=st.lists(_RULES, max_size=2).map(tuple),
)
_CALLS = st.sampled_from(
    [
        call("exec", command="ls -l"),
        call("exec", command="git push; ls"),
        call("exec", command="git $x"),
        call("read", path="a"),
        call("web_fetch", url="https://a.com/"),
        call("mcp_x", a=1),
    ]
)


def _strictness(rules: Rules, wanted: Any) -> int:
    judge = Policy(rules=rules, levels=Levels())
    return judge.judge(wanted, workspace=WORKSPACE, sandboxed=True).verdict.strictness


@given(_SETS, _RULES, _CALLS)
def test_a_rule_more_to_deny_or_ask_is_never_milder(rules: Rules, more: Rule, wanted: Any) -> None:
    before = _strictness(rules, wanted)

    assert _strictness(replace(rules, deny=(*rules.deny, more)), wanted) >= before
    assert _strictness(replace(rules, ask=(*rules.ask, more)), wanted) >= before


@given(_SETS, _RULES, _CALLS)
def test_a_rule_more_to_allow_or_ask_never_widens_what_is_denied(
    rules: Rules, more: Rule, wanted: Any
) -> None:
    denied = _strictness(rules, wanted) == 2

    assert (_strictness(replace(rules, allow=(*rules.allow, more)), wanted) == 2) is denied
    assert (_strictness(replace(rules, ask=(*rules.ask, more)), wanted) == 2) is denied


def test_who_may_not_read_a_file_may_not_search_it_by_name() -> None:
    judge = policy(deny="read(.env*)", ask="read(keys/*)")

    assert verdict(judge, "grep", pattern="x", path="./.ENV.local") == DENY
    assert verdict(judge, "grep", pattern="x", path="keys/one") == ASK
    assert verdict(judge, "grep", pattern="x", path="src") == ALLOW
    assert verdict(judge, "list", path=".env") == ALLOW, "names may be seen"
