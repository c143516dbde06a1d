"""Leave for a CLI's calls: chosen by kind, waited for, and given once after the process is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.engine.llm.acp.table import Resume
from bot.engine.llm.base import Mode
from bot.engine.llm.calls import CallKind, Leave, Permission, exact_hash
from bot.engine.llm.events import ToolFinished, ToolStarted
from tests.bot.engine.llm.acp.world import (
    ALLOW,
    DENY,
    DONE,
    LATER,
    FakePermit,
    run_to_end,
    step,
    talk,
)
from tests.emulators.acp.cli import FakeCli, result, wish

MADE = {
    "update": {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "call-1",
        "status": "completed",
        "rawOutput": "made it",
    }
}


def chosen(cli: FakeCli) -> list[Any]:
    """What the CLI was answered."""
    path = cli.home() / "received.jsonl"
    import json

    answers = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        each["result"]["outcome"].get("optionId", each["result"]["outcome"]["outcome"])
        for each in answers
        if "method" not in each
    ]


def numbered(command: str, number: str = "call-1") -> str:
    """A call's number holds what it does."""
    return f"{number}:{exact_hash('exec', {'command': command})[:12]}"


async def test_an_allowed_call_is_allowed_once_never_always(cli: FakeCli) -> None:
    cli.will([wish("make", yes=[MADE]), result(DONE)])
    permit = FakePermit({"make": ALLOW})

    events, _ = await run_to_end(cli.backend(), step(cli, permit=permit))

    assert chosen(cli) == ["yes-once"]
    assert permit.calls[0].kind is CallKind.EXECUTE
    assert permit.calls[0].name == "exec"
    assert permit.calls[0].detail == "make"
    assert permit.outcomes == [(numbered("make"), True, "made it")]
    assert [type(event) for event in events[:2]] == [ToolStarted, events[1].__class__]
    assert any(isinstance(event, ToolFinished) for event in events)


async def test_a_refused_call_is_told_why_and_the_work_goes_on(cli: FakeCli) -> None:
    cli.will([wish("rm x", no=[{"end": "cancelled"}])], [result(DONE)])

    _, ended = await run_to_end(cli.backend(), step(cli, permit=FakePermit({"rm x": DENY})))

    assert chosen(cli) == ["no-once"]
    assert "Not on a Friday." in cli.prompts()[1]
    assert ended.value is not None


async def test_a_request_without_title_or_options_for_us_is_not_allowed(cli: FakeCli) -> None:
    asked = {
        "toolCall": {"toolCallId": "c", "title": None, "rawInput": {"command": "make"}},
        "options": [{"optionId": "yes", "name": "Always", "kind": "allow_always"}],
    }
    cli.will([{"ask": asked, "no": []}, result(DONE)])
    permit = FakePermit({"make": ALLOW})

    await run_to_end(cli.backend(), step(cli, permit=permit))

    assert chosen(cli) == ["cancelled"]
    assert permit.calls[0].title


async def test_a_change_of_mode_is_not_its_to_make(cli: FakeCli) -> None:
    cli.will([wish("x", kind="switch_mode"), result(DONE)])
    permit = FakePermit()

    await run_to_end(cli.backend(), step(cli, permit=permit))

    assert chosen(cli) == ["no-once"]
    assert permit.calls == []


async def test_who_only_looks_may_change_nothing_even_where_nobody_judges(cli: FakeCli) -> None:
    cli.will([wish("rm x"), result(DONE)])

    await run_to_end(cli.backend(), step(cli, mode=Mode.REVIEW))

    assert chosen(cli) == ["no-once"]


async def test_later_ends_the_process_and_leaves_the_call_open(cli: FakeCli) -> None:
    cli.will([{"say": "Now."}, wish("make"), {"hang": True}])
    permit = FakePermit({"make": LATER})

    _, ended = await run_to_end(cli.backend(patience=7.0), step(cli, permit=permit))

    assert chosen(cli) == ["no-once"]
    assert permit.patience == [7.0]
    assert ended.value is None
    assert [call.arguments["command"] for call in ended.suspended] == ["make"]


async def test_other_open_questions_are_left_open_with_it(cli: FakeCli) -> None:
    cli.will([wish("make"), {"hang": True}])
    permit = FakePermit({"make": LATER})
    cli.will([wish("make", "call-1"), wish("wait", "call-2")])

    _, ended = await run_to_end(cli.backend(), step(cli, permit=permit))

    assert [call.call_id for call in ended.suspended] == [numbered("make")]


async def test_what_was_approved_later_is_run_by_another_process_and_once_only(
    cli: FakeCli,
) -> None:
    again = wish("make", "call-7", yes=[{"say": "Made."}])
    cli.will([wish("make"), {"hang": True}], [again, wish("make", "call-8"), result(DONE)])
    permit = FakePermit({"make": LATER})
    _, first = await run_to_end(cli.backend(), step(cli, permit=permit))

    later = FakePermit({"make": DENY}, earlier={numbered("make"): ALLOW})
    _, ended = await run_to_end(
        cli.backend(),
        step(
            cli,
            "",
            permit=later,
            external_id="session-1",
            history=first.new_history,
            answers={numbered("make"): ALLOW},
        ),
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert chosen(cli) == ["no-once", "yes-once", "no-once"]
    assert later.begun == [numbered("make")]
    assert [call.call_id for call in later.calls] == [numbered("make", "call-8")]
    assert ended.value is not None


async def test_what_was_approved_later_is_allowed_too_where_the_session_is_lost(
    cli: FakeCli,
) -> None:
    cli.agent = replace(cli.agent, resume=Resume.NONE)
    cli.will([wish("make"), {"hang": True}])
    await run_to_end(cli.backend(), step(cli, permit=FakePermit({"make": LATER})))

    cli.will([wish("make", "call-7"), result(DONE)])
    answers = {numbered("make"): ALLOW}
    nobody = FakePermit(earlier=answers)
    await run_to_end(
        cli.backend(), step(cli, "", permit=nobody, external_id="session-1", answers=answers)
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert (nobody.calls, nobody.begun) == ([], [numbered("make")])


@pytest.mark.parametrize("settled", [ALLOW, Permission(leave=Leave.ANSWER, text="It was cut off.")])
async def test_what_was_made_before_is_asked_about_again_also_by_its_old_number(
    cli: FakeCli, settled: Permission
) -> None:
    cli.will([wish("make"), {"hang": True}], [wish("make"), wish("make"), result(DONE)])
    await run_to_end(cli.backend(), step(cli, permit=FakePermit({"make": LATER})))

    answers = {numbered("make"): settled}
    permit = FakePermit({"make": DENY}, earlier=answers)
    await run_to_end(
        cli.backend(), step(cli, "", permit=permit, external_id="session-1", answers=answers)
    )

    once = settled is ALLOW
    assert chosen(cli)[1:] == (["yes-once", "no-once"] if once else ["no-once", "no-once"])
    assert permit.begun == ([numbered("make")] if once else [])
    assert numbered("make") not in {call.call_id for call in permit.calls}


async def test_consent_to_one_command_is_none_to_another(cli: FakeCli) -> None:
    cli.will([wish("make"), {"hang": True}], [wish("make all"), result(DONE)])
    await run_to_end(cli.backend(), step(cli, permit=FakePermit({"make": LATER})))

    permit = FakePermit({"make all": DENY})
    answers = {numbered("make"): ALLOW}
    await run_to_end(
        cli.backend(), step(cli, permit=permit, external_id="session-1", answers=answers)
    )

    assert chosen(cli)[-1] == "no-once"


async def test_what_was_not_approved_is_said_with_the_reason(cli: FakeCli) -> None:
    cli.will([wish("make"), {"hang": True}], [result(DONE)])
    await run_to_end(cli.backend(), step(cli, permit=FakePermit({"make": LATER})))

    answers = {numbered("make"): Permission(leave=Leave.DENY, text="Use cmake.")}
    await run_to_end(cli.backend(), step(cli, "", external_id="session-1", answers=answers))

    assert "Not approved: Run make" in cli.prompts()[1]
    assert "Use cmake." in cli.prompts()[1]


async def test_a_question_open_at_a_sudden_end_is_known_to_the_next_process(
    cli: FakeCli,
) -> None:
    cli.will([wish("make")], [wish("make", "call-9"), result(DONE)])
    permit = FakePermit()
    running = asyncio.create_task(run_to_end(cli.backend(), step(cli, permit=permit)))
    await permit.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    answers = {numbered("make"): ALLOW}
    nobody = FakePermit(earlier=answers)
    await run_to_end(
        cli.backend(), step(cli, "", permit=nobody, external_id="session-1", answers=answers)
    )

    assert "Approved: Run make" in cli.prompts()[1]
    assert nobody.begun == [numbered("make")]
    assert nobody.calls == []


async def test_time_does_not_run_while_people_are_asked(cli: FakeCli) -> None:
    cli.will([wish("make"), {"say": "Made."}])
    gone_by = asyncio.Event()

    class Slow(FakePermit):
        async def __call__(self, call: Any, *, patience: float = 0.0) -> Permission:
            await asyncio.sleep(0.5)
            gone_by.set()
            return ALLOW

    _, ended = await run_to_end(cli.backend(idle=0.3), talk(cli, permit=Slow()))

    assert gone_by.is_set()
    assert ended.text == "Made."


async def test_what_breaks_in_deciding_breaks_the_run(cli: FakeCli) -> None:
    cli.will([wish("make"), {"hang": True}])

    class Broken(FakePermit):
        async def __call__(self, call: Any, *, patience: float = 0.0) -> Permission:
            raise OSError("the store is away")

    with pytest.raises(OSError, match="the store is away"):
        await run_to_end(cli.backend(), step(cli, permit=Broken()))


async def test_a_number_used_again_for_another_command_is_another_question(
    cli: FakeCli,
) -> None:
    cli.will([wish("make"), wish("rm x"), result(DONE)])
    permit = FakePermit({"make": ALLOW, "rm x": DENY})

    await run_to_end(cli.backend(), step(cli, permit=permit))

    assert chosen(cli) == ["yes-once", "no-once"]
    assert len({call.call_id for call in permit.calls}) == 2


async def test_a_command_asked_about_by_its_title_is_decided_like_any_other(cli: FakeCli) -> None:
    cli.agent = replace(cli.agent, titled=True)
    cli.will([wish("make", rawInput=None, title="make"), result(DONE)])
    permit = FakePermit({"make": ALLOW})

    await run_to_end(cli.backend(), step(cli, permit=permit))

    assert [call.detail for call in permit.calls] == ["make"]
    assert chosen(cli) == ["yes-once"]
