"""Updates of CLIs are read liberally: calls are assembled, results found, money counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.acp.permission_requests import CANCELLED, exact_call_hash, select_option
from bot.engine.llm.acp.run import MissingResult, parse_result, strip_result
from bot.engine.llm.acp.updates import AcpCallTracker
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import PlanUpdated, ToolFinished, ToolStarted, ToolUpdated
from bot.engine.llm.tool_calls import CallKind

GOOD = '{"status": "done", "summary": "yes"}'


def requested_call(**told: Any) -> Any:
    return AcpCallTracker().requested_call({"toolCallId": "c", **told})


@pytest.mark.parametrize(
    ("told", "name", "detail"),
    [
        ({"kind": "execute", "rawInput": {"command": "make"}}, "exec", "make"),
        ({"kind": "execute", "rawInput": {"command": ["bash", "-lc", "a && b"]}}, "exec", "a && b"),
        ({"kind": "execute", "rawInput": {"command": ["echo", "a b"]}}, "exec", "echo 'a b'"),
        ({"kind": "execute", "rawInput": {"command": ["x", "-c", "rm"]}}, "exec", "x -c rm"),
        ({"kind": "execute", "rawInput": {"cmd": "make"}}, "exec", "make"),
        (
            {"kind": "fetch", "rawInput": {"url": "http://a"}},
            "web_fetch",
            '{\n "url": "http://a"\n}',
        ),
        ({"kind": "sorcery", "rawInput": {}}, "other", ""),
        ({"kind": None, "title": None, "rawInput": None}, "other", ""),
        ({"_meta": {"claudeCode": {"toolName": "mcp__x__y"}}, "rawInput": {}}, "mcp__x__y", ""),
    ],
)
def test_a_wish_is_named_as_our_own_tools_are(told: dict[str, Any], name: str, detail: str) -> None:
    call = requested_call(**told)

    assert (call.name, call.detail) == (name, detail)
    assert call.title


def test_a_change_is_shown_as_a_diff_from_what_it_tells() -> None:
    raw = {"file_path": "/w/a.txt", "old_string": "one", "new_string": "two"}
    by_raw = requested_call(kind="edit", rawInput=raw)
    part = {"type": "diff", "path": "/w/a.txt", "oldText": None, "newText": "two"}
    by_diff = requested_call(kind="edit", content=[part], locations=[{"path": "/w/a.txt"}])

    assert "-one" in by_raw.detail
    assert "+two" in by_raw.detail
    assert "+two" in by_diff.detail
    assert by_raw.arguments["path"] == by_diff.arguments["path"] == "/w/a.txt"


def test_two_paths_that_differ_are_none_that_a_rule_could_allow() -> None:
    call = requested_call(kind="edit", rawInput={"path": "/w/a.txt", "file_path": "/etc/passwd"})

    assert "path" not in call.arguments


def test_the_models_own_words_about_a_command_are_no_part_of_it() -> None:
    one = requested_call(kind="execute", rawInput={"command": "make", "description": "Build"})
    two = requested_call(
        kind="execute", rawInput={"command": "make", "description": "Build it again"}
    )

    assert one.arguments == two.arguments == {"command": "make"}


def test_a_call_is_pieced_together_and_ends_once() -> None:
    calls = AcpCallTracker()
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c"}
    started = list(calls.events({**update, "sessionUpdate": "tool_call", "kind": "read"}))
    more = list(calls.events({**update, "title": "Read a.txt", "rawOutput": {"stdout": "hi"}}))
    ended = list(calls.events({**update, "status": "failed"}))
    again = list(calls.events({**update, "status": "completed"}))

    assert [type(event) for event in started] == [ToolStarted]
    assert more == [ToolUpdated(call_id="c", output="hi")]
    assert ended == [ToolFinished(call_id="c", succeeded=False, summary="hi")]
    assert again == []
    assert calls.requested_call({"toolCallId": "c"}).kind is CallKind.READ


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"sessionUpdate": "new_thing"},
        {"sessionUpdate": "agent_message_chunk", "content": None},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "image"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 7}},
    ],
)
def test_what_is_not_understood_is_passed_over(update: dict[str, Any]) -> None:
    assert list(AcpCallTracker().events(update)) == []


def test_a_broken_plan_is_a_short_one() -> None:
    told = {"sessionUpdate": "plan", "entries": [None, 3, {"content": ""}, {"content": "x"}]}

    (plan,) = AcpCallTracker().events(told)

    assert isinstance(plan, PlanUpdated)
    assert [entry.text for entry in plan.entries] == ["x"]


def test_a_huge_or_wild_update_does_no_harm() -> None:
    many = [{"type": "diff", "path": "a", "oldText": "x\n" * 50_000, "newText": "y\n" * 50_000}]
    told = {"sessionUpdate": "tool_call", "toolCallId": "c", "content": many, "title": "t" * 10**6}

    started, updated = AcpCallTracker().events(told)

    assert isinstance(started, ToolStarted)
    assert isinstance(updated, ToolUpdated)
    assert len(started.title) <= 200
    assert len(updated.diff) <= 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"Fine.\n```json\n{GOOD}\n```",
        f"```json\r\n{GOOD}\r\n```\r\n",
        f"```json\n{{}}\n```\nno, this:\n```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        GOOD,
        'x\n```json\n{"status": "done", "summary": "run ```make``` twice"}\n```',
        '```json\n{"status": "done", "summary": "```\\ncode\\n```"}\n```',
        '```json\n{"status": "done", "summary": "two\nlines", // so\n "files": [],}\n```',
    ],
)
def test_the_last_block_is_the_result(text: str) -> None:
    value = parse_result(text, None, StepAnswer)

    assert isinstance(value, StepAnswer)
    assert value.status == "done"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("All done!", "no ```json block"),
        ('```json\n{"status": "great", "summary": "x"}\n```', "status"),
        ("```json\n[1]\n```", "no ```json block"),
        (f'```json\n{GOOD}\n```\n```json\n{{"status": 1}}\n```', "status"),
    ],
)
def test_anything_else_is_none_and_says_why(text: str, why: str) -> None:
    with pytest.raises(MissingResult, match=why):
        parse_result(text, None, StepAnswer)


def test_a_result_file_that_leads_outside_is_none(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(GOOD)
    folder = tmp_path / "work" / ".shiftboss"
    folder.mkdir(parents=True)
    (folder / "result.json").symlink_to(tmp_path / "outside.json")

    with pytest.raises(MissingResult):
        parse_result("", tmp_path / "work", StepAnswer)


def test_people_do_not_read_the_block() -> None:
    assert strip_result(f"Fine.\n```json\n{GOOD}\n```\n") == "Fine."
    assert strip_result("a ```b``` c") == "a ```b``` c"


def test_permission_is_given_by_kind_and_never_for_longer_than_once() -> None:
    always = {"optionId": "a", "kind": "allow_always"}
    twice = [{"optionId": "b", "kind": "allow_once"}, {"optionId": "c", "kind": "allow_once"}]
    never = {"optionId": "d", "kind": "reject_always"}

    yes = select_option([always, *twice], allow=True)
    assert yes["outcome"]["optionId"] == "b"
    assert select_option([never, *twice], allow=False)["outcome"]["optionId"] == "d"
    assert select_option([always], allow=True) == CANCELLED
    assert select_option("allow_once", allow=True) == CANCELLED
    assert select_option([None, {"kind": "allow_once"}], allow=True) == CANCELLED


SHELL = {
    "toolCallId": "c",
    "kind": "execute",
    "title": "make",
    "content": [
        {"type": "content", "content": {"type": "text", "text": "[in /a] (Builds it)"}},
    ],
}


def _content(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def test_a_command_told_in_the_title_only_is_judged_like_any_other() -> None:
    call = AcpCallTracker(command_in_title=True).requested_call(SHELL)

    assert (call.name, call.arguments["command"], call.detail) == ("exec", "make", "make")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"content": _content("[in /a] (In other words)")}, True),
        ({"title": "make clean"}, False),
        ({"content": _content("[in /b] (Builds it)")}, False),
    ],
)
def test_leave_for_a_command_told_in_the_title_is_for_that_command_and_place_only(
    other: dict[str, Any], same: bool
) -> None:
    asked, again = (
        AcpCallTracker(command_in_title=True).requested_call(told)
        for told in (SHELL, {**SHELL, **other})
    )

    assert (exact_call_hash(asked) == exact_call_hash(again)) is same


@pytest.mark.parametrize("other", [{"title": "make clean"}, {"content": _content("more")}])
def test_leave_for_a_call_without_arguments_is_for_what_was_shown_of_it_only(
    other: dict[str, Any],
) -> None:
    asked, again = (AcpCallTracker().requested_call(told) for told in (SHELL, {**SHELL, **other}))

    assert exact_call_hash(asked) == exact_call_hash(AcpCallTracker().requested_call(SHELL))
    assert exact_call_hash(asked) != exact_call_hash(again)


def test_a_change_asked_about_by_its_diff_is_no_leave_for_another() -> None:
    def change(text: str) -> dict[str, Any]:
        diff = {"type": "diff", "path": "/a.md", "oldText": "", "newText": text}
        place = [{"path": "/a.md"}]
        return {"toolCallId": "c", "kind": "edit", "content": [diff], "locations": place}

    asked, again = (
        AcpCallTracker().requested_call(change("one")),
        AcpCallTracker().requested_call(change("two")),
    )

    assert asked.arguments["path"] == "/a.md"
    assert "+one" in asked.detail
    assert exact_call_hash(asked) != exact_call_hash(again)


@pytest.mark.parametrize("status", [None, "pending"])
def test_what_is_shown_of_a_call_before_it_runs_is_no_output(status: str | None) -> None:
    told = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "rawInput": {"command": "m"}}
    calls = AcpCallTracker()
    list(calls.events({**told, "sessionUpdate": "tool_call", "content": _content("Builds it")}))

    more = calls.events({**told, "status": status, "content": _content("Builds it")})

    assert not [event for event in more if isinstance(event, ToolUpdated)]


def test_a_command_is_shown_as_soon_as_it_is_known() -> None:
    tracker = AcpCallTracker()
    call = {"toolCallId": "1", "kind": "execute", "title": "Terminal"}
    told: list[dict[str, Any]] = [
        {**call, "sessionUpdate": "tool_call", "status": "pending"},
        {**call, "sessionUpdate": "tool_call_update", "rawInput": {"command": "make  test"}},
        {**call, "sessionUpdate": "tool_call_update", "status": "completed"},
    ]

    events = [event for update in told for event in tracker.events(update)]

    started = [event.title for event in events if isinstance(event, ToolStarted)]
    assert started == ["Terminal", "make test"]
