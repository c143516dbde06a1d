"""A run of a coding CLI: its events are ours, and it succeeds only with a result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from bot.engine.llm.acp.agent_config import ResumeSupport
from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.backend import (
    BackendDenied,
    BudgetExceeded,
    ImageInput,
    InvalidAnswer,
    PlanEntry,
    PlanUpdated,
    ReachedCap,
    RunNotice,
    RunPurpose,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
    WorkerMode,
)
from tests.bot.engine.llm.acp.builders import DONE_ANSWER, chat_request, collect_run, step_request
from tests.emulators.acp.fake_cli import FakeCli, result_reply

PLAN = {
    "sessionUpdate": "plan",
    "entries": [
        {"content": "Look", "status": "completed", "priority": "high"},
        {"content": "Write", "status": "in_progress", "priority": "high"},
    ],
}
EDIT = {
    "sessionUpdate": "tool_call",
    "toolCallId": "t1",
    "title": "Edit a.txt",
    "kind": "edit",
    "status": "completed",
    "content": [{"type": "diff", "path": "a.txt", "oldText": "one\n", "newText": "two\n"}],
}


async def test_what_it_tells_becomes_our_events_and_its_last_block_the_result(
    cli: FakeCli,
) -> None:
    cli.script([{"think": "hm"}, {"update": PLAN}, {"update": EDIT}, result_reply(DONE_ANSWER)])

    events, ended = await collect_run(cli.backend(), step_request(cli))

    assert isinstance(ended.value, StepAnswer)
    assert ended.value.summary == "It is done."
    assert ended.text == "All done."
    assert events[0] == ThoughtDelta(text="hm")
    assert events[1] == PlanUpdated(
        entries=(
            PlanEntry(text="Look", status="completed"),
            PlanEntry(text="Write", status="in_progress"),
        )
    )
    started, updated, finished = events[2:5]
    assert isinstance(started, ToolStarted)
    assert (started.name, started.title) == ("edit", "Edit a.txt")
    assert isinstance(updated, ToolUpdated)
    assert "-one" in updated.diff
    assert "+two" in updated.diff
    assert finished == ToolFinished(call_id="t1", succeeded=True, summary="")


async def test_the_result_may_be_a_file_but_not_one_of_an_earlier_run(cli: FakeCli) -> None:
    request = step_request(cli)
    assert request.workspace is not None
    path = request.workspace / ".shiftboss" / "result.json"
    path.parent.mkdir()
    path.write_text('{"status": "done", "summary": "old"}')
    text = '{"status": "blocked", "summary": "new"}'
    cli.script([{"say": "See the file."}, {"write": {"path": str(path), "text": text}}])

    _, ended = await collect_run(cli.backend(), request)

    assert isinstance(ended.value, StepAnswer)
    assert ended.value.status == "blocked"


async def test_an_end_without_a_result_is_asked_about_once(cli: FakeCli) -> None:
    cli.script([{"say": "All done, trust me."}], [result_reply(DONE_ANSWER)])

    _, ended = await collect_run(cli.backend(), step_request(cli))

    assert isinstance(ended.value, StepAnswer)
    assert "could not be read" in cli.prompts()[1]
    assert ended.usage.requests == 2


async def test_without_a_result_it_has_not_succeeded_whatever_it_says(cli: FakeCli) -> None:
    cli.script([{"say": 'Done! ```json\n{"status": "fine"}\n```'}])

    with pytest.raises(InvalidAnswer) as caught:
        await collect_run(cli.backend(), step_request(cli))

    assert caught.value.hint == "backend.cli_no_result"
    assert len(cli.prompts()) == 2


async def test_talk_is_its_words(cli: FakeCli) -> None:
    cli.script([{"say": "Hello "}, {"update": EDIT}, {"say": "there."}])

    events, ended = await collect_run(cli.backend(), chat_request(cli))

    assert ended.text == "Hello \n\nthere."
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == ended.text


async def test_its_session_is_stored_before_the_first_prompt(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)])
    named: list[tuple[str, int]] = []

    async def on_external(id: str) -> None:
        named.append((id, len(cli.prompts())))

    await collect_run(cli.backend(), step_request(cli, on_external=on_external))

    assert named == [("session-1", 0)]


async def test_another_process_goes_on_and_what_is_replayed_is_not_told_again(
    cli: FakeCli,
) -> None:
    cli.script([{"say": "First."}], [{"say": "Second."}], without=["session/resume"])
    first = await collect_run(cli.backend(), chat_request(cli))

    events, ended = await collect_run(
        cli.backend(),
        chat_request(cli, "And now?", external_id="session-1", history=first[1].new_history),
    )

    assert events == [TextDelta(text="Second.")]
    assert ended.text == "Second."
    assert cli.prompts()[1] == "And now?"  # the system's words are known there


async def test_a_lost_session_is_begun_afresh_and_told_what_was_said(cli: FakeCli) -> None:
    cli.script([{"say": "I am here."}])
    _, before = await collect_run(cli.backend(), chat_request(cli, "Where are you?"))
    named: list[str] = []

    async def on_external(id: str) -> None:
        named.append(id)

    events, _ = await collect_run(
        cli.backend(),
        chat_request(
            cli,
            "And now?",
            external_id="session-9",
            history=before.new_history,
            on_external=on_external,
        ),
    )

    assert events[0] == RunNotice(key="backend.cli_afresh", facts={"name": "fake"})
    assert named == ["session-2"]
    assert "Where are you?" in cli.prompts()[1]
    assert "I am here." in cli.prompts()[1]


async def test_one_that_cannot_go_on_is_never_asked_to(cli: FakeCli) -> None:
    cli.script([{"say": "New."}])
    cli.agent = replace(cli.agent, resume=ResumeSupport.NONE)

    events, _ = await collect_run(cli.backend(), chat_request(cli, external_id="session-1"))

    assert cli.received("session/resume") == []
    assert cli.received("session/load") == []
    assert events == [TextDelta(text="New.")], "that is its way, and no loss to tell of"


async def test_the_mode_is_always_set_and_a_plan_is_made_in_the_mode_for_it(
    cli: FakeCli,
) -> None:
    cli.script([result_reply({"plan": "", "steps": [], "answer": "4"})])

    await collect_run(cli.backend(), step_request(cli, purpose=RunPurpose.PLAN, result=PlanAnswer))
    cli.script([result_reply(DONE_ANSWER)])
    await collect_run(cli.backend(), step_request(cli, mode=WorkerMode.EXECUTE))

    assert [each["modeId"] for each in cli.received("session/set_mode")] == ["plan", "default"]


async def test_a_cli_without_the_mode_is_not_let_loose(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)], modes=["yolo"])

    with pytest.raises(BackendDenied) as caught:
        await collect_run(cli.backend(), step_request(cli))

    assert caught.value.hint == "backend.cli_mode"
    assert cli.prompts() == []


async def test_modes_and_models_may_be_options(cli: FakeCli) -> None:
    options = [
        {"id": "mode", "type": "select", "options": [{"value": "default", "name": "Default"}]},
        {
            "id": "m",
            "category": "model",
            "type": "select",
            "options": [{"group": "g", "name": "G", "options": [{"value": "big", "name": "Big"}]}],
        },
    ]
    cli.script([result_reply(DONE_ANSWER)], modes=[], options=options)

    _, ended = await collect_run(cli.backend(), step_request(cli, model="big"))

    sent = cli.received("session/set_config_option")
    assert [(each["configId"], each["value"]) for each in sent] == [
        ("mode", "default"),
        ("m", "big"),
    ]
    assert ended.model == "big"


async def test_an_unknown_model_is_refused_before_anything_is_asked(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)])

    with pytest.raises(BackendDenied) as caught:
        await collect_run(cli.backend(), step_request(cli, model="huge"))

    assert caught.value.hint == "backend.no_model"
    assert cli.prompts() == []


async def test_tokens_and_money_are_counted_where_it_tells_of_them(cli: FakeCli) -> None:
    def used(amount: float) -> dict[str, object]:
        cost = {"amount": amount, "currency": "USD"}
        return {"update": {"sessionUpdate": "usage_update", "used": 900, "size": 9, "cost": cost}}

    tokens = {"totalTokens": 17, "inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 10}
    cli.script([used(0.01), result_reply(DONE_ANSWER), used(0.25)], usage=tokens)

    _, ended = await collect_run(cli.backend(), step_request(cli))

    assert ended.usage == TokenUsage(
        requests=1, input_tokens=15, output_tokens=2, cache_read_tokens=10, cost=Decimal("0.25")
    )
    assert ended.context_tokens == 900


async def test_where_nothing_is_told_the_cost_is_unknown_and_tokens_are_estimated(
    cli: FakeCli,
) -> None:
    cli.script([result_reply(DONE_ANSWER)])

    _, ended = await collect_run(cli.backend(), step_request(cli))

    used = ended.usage
    assert (used.requests, used.cost) == (1, None)
    assert used.estimated_input == used.input_tokens >= len(cli.prompts()[0]) // 4
    assert used.estimated_output == used.output_tokens > 10


async def test_a_cap_is_asked_before_each_prompt(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)])
    hit = ReachedCap(
        scope="day",
        subject="",
        day="",
        cap_micros=1,
        cap_tokens=0,
        spent_micros=1,
        spent_tokens=0,
        until=None,
    )

    async def gate(model: str, input_tokens: int, spent: TokenUsage) -> int:
        raise BudgetExceeded(hit)

    with pytest.raises(BudgetExceeded):
        await collect_run(cli.backend(), step_request(cli, gate=gate))

    assert cli.prompts() == []


async def test_each_persona_has_a_home_of_its_own(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)])
    cli.agent = replace(cli.agent, files={".config/it.json": "{}"})

    for persona in ("architect", "../critic"):
        await collect_run(cli.backend(), step_request(cli, persona=persona))

    homes = sorted(p.name for p in (cli.root / "agents" / "fake").iterdir() if p.is_dir())
    assert homes == ["___critic", "architect"]
    assert (cli.home("architect") / ".config" / "it.json").read_text() == "{}"


async def test_a_cli_that_takes_no_pictures_is_told_that_there_is_one(
    cli: FakeCli, tmp_path: Path
) -> None:
    cli.script([{"say": "Nice."}])
    (tmp_path / "cat.png").write_bytes(b"png")

    picture = ImageInput(path=tmp_path / "cat.png", mime="image/png")
    await collect_run(cli.backend(), chat_request(cli, pictures=(picture,)))

    assert "cat.png" in cli.prompts()[0]


async def test_no_more_live_at_once_than_there_are_slots(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)])
    slots = asyncio.Semaphore(1)
    await slots.acquire()
    backend = cli.backend(slots=slots)

    async with backend.run(step_request(cli)) as run:
        first = await anext(aiter(run.events))
        waiting = asyncio.ensure_future(anext(aiter(run.events)))
        await asyncio.sleep(0)
        assert cli.received("initialize") == []
        slots.release()
        await waiting
        assert [event async for event in run.events] == []
        assert run.result.value is not None

    assert first == RunNotice(key="backend.cli_queue", facts={"name": "fake"})
    assert not slots.locked()
