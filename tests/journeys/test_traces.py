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

from tests.emulators.models.script import Reply
from tests.emulators.otlp import OtlpEmulator, otlp_emulator
from tests.journeys.model_world import (
    World,
    done,
    held,
    scene_of,
    steps,
    told,
    world,
    writes,
)
from tests.thorough import long

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def collector() -> AsyncGenerator[OtlpEmulator, None]:
    async with otlp_emulator() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(
    tmp_path_factory: pytest.TempPathFactory, collector: OtlpEmulator
) -> AsyncGenerator[World, None]:
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_OTLP_ENDPOINT": collector.url}
    async with world(
        tmp_path_factory.mktemp("home"), "anthropic", NO_PROXY="127.0.0.1", **settings
    ) as made:
        yield made


async def exported(place: World, task: str) -> list[dict[str, Any]]:
    status, printed = await place.shiftboss.run_to_end("trace", task, "--otlp", "-")
    assert status == 0, printed
    (resource,) = json.loads(printed)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def state_of(span: dict[str, Any]) -> tuple[str, str]:
    told = {each["key"]: each["value"].get("stringValue", "") for each in span["attributes"]}
    return told["shiftboss.kind"], told["shiftboss.state"]


async def test_a_task_is_traced_while_it_runs_and_after_it_was_killed(
    place: World, collector: OtlpEmulator
) -> None:
    boss, chat = place.boss()
    go = asyncio.Event()
    place.stage.on("trace-run", "plan", steps("first-glance", "second-glance"))
    place.stage.on(
        "-glance",
        "step",
        writes("a.txt"),
        done("Written.", "a.txt"),
        held(done("Never heard."), go),
        done("Looked again."),
    )
    await boss.says(chat, "/run trace-run")
    # The first step asks twice: its file, and its end.
    await place.until(lambda: [scene_of(each) for each in place.stage.asked].count("step") == 3)

    await boss.says(chat, "/trace")
    running = await told(chat, "Trace of", "Still going on")
    found = re.search(r"Trace of (\S+)", running.text)
    assert found is not None
    task = found[1]
    assert "✓ first-glance" in running.text
    assert "✓ tool write" in running.text
    assert "▶ second-glance" in running.text

    await place.shiftboss.kill()
    go.set()
    await place.shiftboss.start()
    await told(chat, "Task finished")

    await boss.says(chat, f"/trace {task}")
    over = await told(chat, f"Trace of {task}", "second-glance, try 2")
    assert "✂ second-glance" in over.text
    assert "▶" not in over.text

    spans = await exported(place, task)
    states = Counter(map(state_of, spans))
    assert states["llm", "cut"] == 1
    assert states["llm", "done"] == 3
    assert states["tool", "done"] == 1
    assert states["workflow", "done"] == 1
    assert not any(state == "running" for _, state in states)
    ids = {span["spanId"] for span in spans}
    assert all(span.get("parentSpanId", span["spanId"]) in ids for span in spans)

    await place.until(lambda: {each.span_id.hex() for each in collector.spans} >= ids)


async def test_the_card_follows_and_what_it_cost_adds_up_to_what_was_billed(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("cost-run", "plan", steps("only-look"))
    go = asyncio.Event()
    place.stage.on("only-look", "step", held(done("Looked."), go))
    await boss.says(chat, "/run cost-run")
    await place.stage.under_way("only-look")
    await boss.says(chat, "/trace cost")
    card = await told(chat, "Trace of", "Still going on")
    go.set()
    await told(chat, "Task finished")
    # Nobody asks again: the card goes along with the task.
    await place.until(lambda: "Still going on" not in card.text)
    assert "only-look" in card.text
    found = re.search(r"Trace of (\S+)", card.text)
    assert found is not None
    _, trace = await place.shiftboss.run_to_end("trace", found[1], "--json")
    _, bill = await place.shiftboss.run_to_end("cost", found[1], "--json")

    spent = json.loads(trace)["spans"][0]["spent"]
    assert spent == json.loads(bill)["whole"]
    assert spent["calls"] == 2


async def test_on_feishu_it_is_the_same_command_in_chinese(place: World) -> None:
    place.stage.on("feishu-run", "plan", steps("feishu-look"))
    place.stage.on("feishu-look", "step", done("Looked."))
    boss, chat = place.feishu_boss, place.feishu_chat
    await boss.says(chat, "/run feishu-run")
    await place.stage.under_way("feishu-look")

    await boss.says(chat, "/追踪")

    await chat.wait_for(lambda m: "Trace of" in m.text and "feishu-look" in m.text, 60)


@long
async def test_an_answer_outside_tasks_is_traced_over_a_death(place: World) -> None:
    boss, chat = place.boss()
    go = asyncio.Event()
    place.stage.on(
        "traced-talk", "talk", held(Reply(text="Never heard."), go), Reply(text="Here I am again.")
    )
    await boss.says(chat, "traced-talk, are you there?")
    await place.stage.under_way("traced-talk", "talk")
    await place.shiftboss.kill()
    go.set()
    await place.shiftboss.start()
    await told(chat, "Here I am again.")

    await boss.says(chat, "/trace talk")
    trace = await told(chat, "Trace of the last answer")

    lines = [line.strip() for line in trace.text.splitlines()]
    assert any(line.startswith("✓ answer") for line in lines)
    assert any(line.startswith("✂ model") for line in lines)
    assert any(line.startswith("✓ model") and "$" in line for line in lines)
