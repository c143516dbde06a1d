"""Leave for a CLI's calls: chosen by kind, waited for, and given once after the process is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.engine.llm.acp.agent_config import ResumeSupport
from bot.engine.llm.backend import ToolFinished, ToolStarted, WorkerMode
from bot.engine.llm.tool_calls import CallDecision, CallKind, CallVerdict, call_fingerprint
from tests.bot.engine.llm.acp.builders import (
    ALLOW,
    DENY,
    DONE_ANSWER,
    PENDING,
    FakeCallAuthorizer,
    chat_request,
    collect_run,
    step_request,
)
from tests.emulators.acp.fake_cli import FakeCli, permission_request, result_reply
from tests.waiting import WAIT_SECONDS, let_time_pass

MADE = {
    "update": {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "call-1",
        "status": "completed",
        "rawOutput": "made it",
    }
}


def selected_options(cli: FakeCli) -> list[Any]:
    """The answer that the CLI got."""
    path = cli.home() / "received.jsonl"
    import json

    answers = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        each["result"]["outcome"].get("optionId", each["result"]["outcome"]["outcome"])
        for each in answers
        if "method" not in each
    ]


def bound_call_id(command: str, number: str = "call-1") -> str:
    """A call's number holds what it does."""
    return f"{number}:{call_fingerprint('exec', {'command': command})[:12]}"


async def test_an_allowed_call_is_allowed_once_never_always(cli: FakeCli) -> None:
    cli.script([permission_request("make", yes=[MADE]), result_reply(DONE_ANSWER)])
    permit = FakeCallAuthorizer({"make": ALLOW})

    events, _ = await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert selected_options(cli) == ["yes-once"]
    assert permit.calls[0].kind is CallKind.EXECUTE
    assert permit.calls[0].name == "exec"
    assert permit.calls[0].detail == "make"
    assert permit.outcomes == [(bound_call_id("make"), True, "made it")]
    assert [type(event) for event in events[:2]] == [ToolStarted, events[1].__class__]
    assert any(isinstance(event, ToolFinished) for event in events)


async def test_a_refused_call_is_told_why_and_the_work_goes_on(cli: FakeCli) -> None:
    cli.script([permission_request("rm x", no=[{"end": "cancelled"}])], [result_reply(DONE_ANSWER)])

    _, ended = await collect_run(
        cli.backend(), step_request(cli, permit=FakeCallAuthorizer({"rm x": DENY}))
    )

    assert selected_options(cli) == ["no-once"]
    assert "Not on a Friday." in cli.prompts()[1]
    assert ended.value is not None


async def test_a_request_without_title_or_options_for_us_is_not_allowed(cli: FakeCli) -> None:
    asked = {
        "toolCall": {"toolCallId": "c", "title": None, "rawInput": {"command": "make"}},
        "options": [{"optionId": "yes", "name": "Always", "kind": "allow_always"}],
    }
    cli.script([{"ask": asked, "no": []}, result_reply(DONE_ANSWER)])
    permit = FakeCallAuthorizer({"make": ALLOW})

    await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert selected_options(cli) == ["cancelled"]
    assert permit.calls[0].title


async def test_a_change_of_mode_is_not_its_to_make(cli: FakeCli) -> None:
    cli.script([permission_request("x", kind="switch_mode"), result_reply(DONE_ANSWER)])
    permit = FakeCallAuthorizer()

    await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert selected_options(cli) == ["no-once"]
    assert permit.calls == []


async def test_who_only_looks_may_change_nothing_even_where_nobody_judges(cli: FakeCli) -> None:
    cli.script([permission_request("rm x"), result_reply(DONE_ANSWER)])

    await collect_run(cli.backend(), step_request(cli, mode=WorkerMode.REVIEW))

    assert selected_options(cli) == ["no-once"]


async def test_later_ends_the_process_and_leaves_the_call_open(cli: FakeCli) -> None:
    cli.script([{"say": "Now."}, permission_request("make"), {"hang": True}])
    permit = FakeCallAuthorizer({"make": PENDING})

    _, ended = await collect_run(cli.backend(approval_wait=7.0), step_request(cli, permit=permit))

    assert selected_options(cli) == ["no-once"]
    assert permit.wait_seconds == [7.0]
    assert ended.value is None
    assert [call.arguments["command"] for call in ended.suspended] == ["make"]


async def test_other_open_questions_are_left_open_with_it(cli: FakeCli) -> None:
    cli.script([permission_request("make"), {"hang": True}])
    permit = FakeCallAuthorizer({"make": PENDING})
    cli.script([permission_request("make", "call-1"), permission_request("wait", "call-2")])

    _, ended = await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert [call.call_id for call in ended.suspended] == [bound_call_id("make")]


async def test_what_was_approved_later_is_run_by_another_process_and_once_only(
    cli: FakeCli,
) -> None:
    again = permission_request("make", "call-7", yes=[{"say": "Made."}])
    cli.script(
        [permission_request("make"), {"hang": True}],
        [again, permission_request("make", "call-8"), result_reply(DONE_ANSWER)],
    )
    permit = FakeCallAuthorizer({"make": PENDING})
    _, first = await collect_run(cli.backend(), step_request(cli, permit=permit))

    later = FakeCallAuthorizer({"make": DENY}, earlier={bound_call_id("make"): ALLOW})
    _, ended = await collect_run(
        cli.backend(),
        step_request(
            cli,
            "",
            permit=later,
            external_id="session-1",
            history=first.new_history,
            answers={bound_call_id("make"): ALLOW},
        ),
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert selected_options(cli) == ["no-once", "yes-once", "no-once"]
    assert later.reused == [bound_call_id("make")]
    assert [call.call_id for call in later.calls] == [bound_call_id("make", "call-8")]
    assert ended.value is not None


async def test_what_was_approved_later_is_allowed_too_where_the_session_is_lost(
    cli: FakeCli,
) -> None:
    cli.agent = replace(cli.agent, resume=ResumeSupport.NONE)
    cli.script([permission_request("make"), {"hang": True}])
    await collect_run(
        cli.backend(), step_request(cli, permit=FakeCallAuthorizer({"make": PENDING}))
    )

    cli.script([permission_request("make", "call-7"), result_reply(DONE_ANSWER)])
    answers = {bound_call_id("make"): ALLOW}
    nobody = FakeCallAuthorizer(earlier=answers)
    await collect_run(
        cli.backend(),
        step_request(cli, "", permit=nobody, external_id="session-1", answers=answers),
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert (nobody.calls, nobody.reused) == ([], [bound_call_id("make")])


@pytest.mark.parametrize(
    "settled", [ALLOW, CallDecision(verdict=CallVerdict.ANSWER, text="It was cut off.")]
)
async def test_what_was_made_before_is_asked_about_again_also_by_its_old_number(
    cli: FakeCli, settled: CallDecision
) -> None:
    cli.script(
        [permission_request("make"), {"hang": True}],
        [permission_request("make"), permission_request("make"), result_reply(DONE_ANSWER)],
    )
    await collect_run(
        cli.backend(), step_request(cli, permit=FakeCallAuthorizer({"make": PENDING}))
    )

    answers = {bound_call_id("make"): settled}
    permit = FakeCallAuthorizer({"make": DENY}, earlier=answers)
    await collect_run(
        cli.backend(),
        step_request(cli, "", permit=permit, external_id="session-1", answers=answers),
    )

    once = settled is ALLOW
    assert selected_options(cli)[1:] == (
        ["yes-once", "no-once"] if once else ["no-once", "no-once"]
    )
    assert permit.reused == ([bound_call_id("make")] if once else [])
    assert bound_call_id("make") not in {call.call_id for call in permit.calls}


async def test_consent_to_one_command_is_none_to_another(cli: FakeCli) -> None:
    cli.script(
        [permission_request("make"), {"hang": True}],
        [permission_request("make all"), result_reply(DONE_ANSWER)],
    )
    await collect_run(
        cli.backend(), step_request(cli, permit=FakeCallAuthorizer({"make": PENDING}))
    )

    permit = FakeCallAuthorizer({"make all": DENY})
    answers = {bound_call_id("make"): ALLOW}
    await collect_run(
        cli.backend(), step_request(cli, permit=permit, external_id="session-1", answers=answers)
    )

    assert selected_options(cli)[-1] == "no-once"


async def test_what_was_not_approved_is_said_with_the_reason(cli: FakeCli) -> None:
    cli.script([permission_request("make"), {"hang": True}], [result_reply(DONE_ANSWER)])
    await collect_run(
        cli.backend(), step_request(cli, permit=FakeCallAuthorizer({"make": PENDING}))
    )

    answers = {bound_call_id("make"): CallDecision(verdict=CallVerdict.DENY, text="Use cmake.")}
    await collect_run(
        cli.backend(), step_request(cli, "", external_id="session-1", answers=answers)
    )

    assert "Not approved: Run make" in cli.prompts()[1]
    assert "Use cmake." in cli.prompts()[1]


async def test_a_question_open_at_a_sudden_end_is_known_to_the_next_process(
    cli: FakeCli,
) -> None:
    cli.script(
        [permission_request("make")],
        [permission_request("make", "call-9"), result_reply(DONE_ANSWER)],
    )
    permit = FakeCallAuthorizer()
    running = asyncio.create_task(collect_run(cli.backend(), step_request(cli, permit=permit)))
    await permit.was_asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    answers = {bound_call_id("make"): ALLOW}
    nobody = FakeCallAuthorizer(earlier=answers)
    await collect_run(
        cli.backend(),
        step_request(cli, "", permit=nobody, external_id="session-1", answers=answers),
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert nobody.reused == [bound_call_id("make")]
    assert nobody.calls == []


async def test_time_does_not_run_while_people_are_asked(cli: FakeCli) -> None:
    cli.script([permission_request("make"), {"say": "Made."}])

    class Slow(FakeCallAuthorizer):
        async def __call__(self, call: Any, *, wait_seconds: float = 0.0) -> CallDecision:
            await let_time_pass(WAIT_SECONDS + 1)
            return ALLOW

    backend = cli.backend(idle_timeout=WAIT_SECONDS)
    _, ended = await collect_run(backend, chat_request(cli, permit=Slow()))

    assert ended.text == "Made."


async def test_what_breaks_in_deciding_breaks_the_run(cli: FakeCli) -> None:
    cli.script([permission_request("make"), {"hang": True}])

    class Broken(FakeCallAuthorizer):
        async def __call__(self, call: Any, *, wait_seconds: float = 0.0) -> CallDecision:
            raise OSError("the store is away")

    with pytest.raises(OSError, match="the store is away"):
        await collect_run(cli.backend(), step_request(cli, permit=Broken()))


async def test_a_number_used_again_for_another_command_is_another_question(
    cli: FakeCli,
) -> None:
    cli.script([permission_request("make"), permission_request("rm x"), result_reply(DONE_ANSWER)])
    permit = FakeCallAuthorizer({"make": ALLOW, "rm x": DENY})

    await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert selected_options(cli) == ["yes-once", "no-once"]
    assert len({call.call_id for call in permit.calls}) == 2


async def test_a_command_asked_about_by_its_title_is_decided_like_any_other(cli: FakeCli) -> None:
    cli.agent = replace(cli.agent, command_in_title=True)
    cli.script([permission_request("make", rawInput=None, title="make"), result_reply(DONE_ANSWER)])
    permit = FakeCallAuthorizer({"make": ALLOW})

    await collect_run(cli.backend(), step_request(cli, permit=permit))

    assert [call.detail for call in permit.calls] == ["make"]
    assert selected_options(cli) == ["yes-once"]
