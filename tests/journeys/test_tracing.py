"""A task is traced while it runs, after it was killed, and as a file and a stream for others."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.models.script import ScriptedReply
from tests.emulators.otlp import OtlpEmulator, otlp_emulator
from tests.journeys.model_world import (
    ModelWorld,
    held_reply,
    model_world,
    plan_reply,
    scene_of,
    step_reply,
    wait_for_message,
    write_call,
)
from tests.thoroughness import thorough_only

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def collector() -> AsyncGenerator[OtlpEmulator, None]:
    async with otlp_emulator() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(
    tmp_path_factory: pytest.TempPathFactory, collector: OtlpEmulator
) -> AsyncGenerator[ModelWorld, None]:
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_OTLP_ENDPOINT": collector.url}
    async with model_world(
        tmp_path_factory.mktemp("home"), "anthropic", NO_PROXY="127.0.0.1", **settings
    ) as made:
        yield made


async def exported(world: ModelWorld, task: str) -> list[dict[str, Any]]:
    status, printed = await world.program.run_to_end("trace", task, "--otlp", "-")
    assert status == 0, printed
    (resource,) = json.loads(printed)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def state_of(span: dict[str, Any]) -> tuple[str, str]:
    told = {each["key"]: each["value"].get("stringValue", "") for each in span["attributes"]}
    return told["shiftboss.kind"], told["shiftboss.state"]


async def test_a_task_is_traced_while_it_runs_and_after_it_was_killed(
    world: ModelWorld, collector: OtlpEmulator
) -> None:
    boss, chat = world.new_owner()
    go = asyncio.Event()
    world.script.script("trace-run", "plan", plan_reply("first-glance", "second-glance"))
    world.script.script(
        "-glance",
        "step",
        write_call("a.txt"),
        step_reply("Written.", "a.txt"),
        held_reply(step_reply("Never heard."), go),
        step_reply("Looked again."),
    )
    await boss.says(chat, "/run trace-run")
    # The first step asks twice: its file, and its end.
    await world.wait_until(
        lambda: [scene_of(each) for each in world.script.requests].count("step") == 3
    )

    await boss.says(chat, "/trace")
    running = await wait_for_message(chat, "Trace of", "Still running")
    found = re.search(r"Trace of (\S+)", running.text)
    assert found is not None
    task = found[1]
    assert "✓ first-glance" in running.text
    assert "✓ tool write" in running.text
    assert "▶ second-glance" in running.text

    await world.program.kill()
    go.set()
    await world.program.start()
    await wait_for_message(chat, "Task finished")

    await boss.says(chat, f"/trace {task}")
    over = await wait_for_message(chat, f"Trace of {task}", "second-glance, attempt 2")
    assert "✂ second-glance" in over.text
    assert "▶" not in over.text

    spans = await exported(world, task)
    states = Counter(map(state_of, spans))
    assert states["llm", "cut"] == 1
    assert states["llm", "done"] == 3
    assert states["tool", "done"] == 1
    assert states["workflow", "done"] == 1
    assert not any(state == "running" for _, state in states)
    ids = {span["spanId"] for span in spans}
    assert all(span.get("parentSpanId", span["spanId"]) in ids for span in spans)

    await world.wait_until(lambda: {each.span_id.hex() for each in collector.spans} >= ids)


async def test_the_trace_card_updates_and_its_costs_add_up_to_the_bill(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script("cost-run", "plan", plan_reply("only-look"))
    go = asyncio.Event()
    world.script.script("only-look", "step", held_reply(step_reply("Looked."), go))
    await boss.says(chat, "/run cost-run")
    await world.script.wait_for_request("only-look")
    await boss.says(chat, "/trace cost")
    card = await wait_for_message(chat, "Trace of", "Still running")
    go.set()
    await wait_for_message(chat, "Task finished")
    # Nobody asks again: the card goes along with the task.
    await world.wait_until(lambda: "Still running" not in card.text)
    assert "only-look" in card.text
    found = re.search(r"Trace of (\S+)", card.text)
    assert found is not None
    _, trace = await world.program.run_to_end("trace", found[1], "--json")
    _, bill = await world.program.run_to_end("cost", found[1], "--json")

    spent = json.loads(trace)["spans"][0]["spent"]
    assert spent == json.loads(bill)["whole"]
    assert spent["calls"] == 2


async def test_the_trace_command_works_in_chinese_on_feishu(world: ModelWorld) -> None:
    world.script.script("feishu-run", "plan", plan_reply("feishu-look"))
    world.script.script("feishu-look", "step", step_reply("Looked."))
    boss, chat = world.feishu_owner, world.feishu_chat
    await boss.says(chat, "/run feishu-run")
    await world.script.wait_for_request("feishu-look")

    await boss.says(chat, "/追踪")

    await chat.wait_for(lambda m: "Trace of" in m.text and "feishu-look" in m.text)


@thorough_only
async def test_an_answer_outside_tasks_is_traced_across_a_crash(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    go = asyncio.Event()
    world.script.script(
        "traced-talk",
        "talk",
        held_reply(ScriptedReply(text="Never heard."), go),
        ScriptedReply(text="Here I am again."),
    )
    await boss.says(chat, "traced-talk, are you there?")
    await world.script.wait_for_request("traced-talk", "talk")
    await world.program.kill()
    go.set()
    await world.program.start()
    await wait_for_message(chat, "Here I am again.")

    await boss.says(chat, "/trace talk")
    trace = await wait_for_message(chat, "Trace of the last answer")

    lines = [line.strip() for line in trace.text.splitlines()]
    assert any(line.startswith("✓ answer") for line in lines)
    assert any(line.startswith("✂ model") for line in lines)
    assert any(line.startswith("✓ model") and "$" in line for line in lines)
