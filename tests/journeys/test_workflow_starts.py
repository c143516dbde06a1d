"""Each way in which a workflow starts by itself, and a run again with another input, in chats of
Telegram and Feishu: each reports where it was asked for."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.journeys.chat_channels import Channel, feishu, telegram
from tests.journeys.model_world import ModelWorld, model_world
from tests.waiting import WAIT_SECONDS

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("place", ["telegram", "feishu"]),
]

DOUBLE = """\
name: Double
inputs:
  - {name: n, title: How many, type: number}
  - {name: file, title: File, required: false}
nodes:
  - {id: add, type: script, script: {expression: "inputs.n * 2", outputVar: twice}}
  - {id: half, type: script, script: {expression: "variables.twice / 4", outputVar: half}}
outputs:
  twice: variables.twice
  half: variables.half
"""
_CHANNELS = {"telegram": telegram, "feishu": feishu}
_TASK_ID = re.compile(r"(\w{6})`? · ")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(home, "openai", SHIFTBOSS_LANGUAGE="en") as made:
        yield made


def open_chat(world: ModelWorld, place: str, name: str) -> tuple[Channel, str]:
    """A chat, and the name of a workflow of its own."""
    own = f"{name}-{place}"
    folder = world.program.home / "workflows"
    folder.mkdir(exist_ok=True)
    text = DOUBLE.replace("Double", f"Double {own}")
    (folder / f"{own}.yaml").write_text(text, encoding="utf-8")
    return _CHANNELS[place](world), own


async def test_a_matching_message_starts_it_and_others_do_not(
    world: ModelWorld, place: str
) -> None:
    chat, own = open_chat(world, place, "message")
    await chat.say(f'/trigger add message {own} pattern="twice {{n}} {place}"')
    await chat.wait("Trigger on", own)

    await chat.say(f"twice 21 {place}")

    await chat.wait(f"Double {own}", "twice: 42", "half: 10.5")
    await chat.say("/trigger")
    listed = await chat.wait("Triggers", own)
    assert "last" in listed


async def test_a_new_file_starts_it_once(world: ModelWorld, place: str, tmp_path: Path) -> None:
    chat, own = open_chat(world, place, "file")
    await chat.say(f"/trigger add file {own} folder={tmp_path} n=4")
    await chat.wait("Trigger on", own)

    (tmp_path / "invoice.pdf").write_bytes(b"%PDF-1.4 invoice")

    await chat.wait(f"Double {own}", "twice: 8")


async def test_a_webhook_starts_it_with_its_address_and_not_with_another(
    world: ModelWorld, place: str
) -> None:
    chat, own = open_chat(world, place, "webhook")
    await chat.say(f"/trigger add webhook {own}")
    told = await chat.wait("Trigger on", own, "/hooks/")
    address = re.search(r"/hooks/[\w-]+", told)
    assert address is not None
    base = f"http://127.0.0.1:{httpx.URL(world.program.address).port}"
    async with httpx.AsyncClient(base_url=base, timeout=WAIT_SECONDS) as http:
        refused = await http.post("/hooks/nonsense", json={"n": 1})
        taken = await http.post(address[0], json={"n": 9}, headers={"Idempotency-Key": "k1"})
        again = await http.post(address[0], json={"n": 9}, headers={"Idempotency-Key": "k1"})

    assert refused.status_code in {401, 403, 404}
    assert taken.status_code < 300
    assert again.json()["task"] == taken.json()["task"]
    await chat.wait(f"Double {own}", "twice: 18")


async def test_a_schedule_starts_it_after_a_button(world: ModelWorld, place: str) -> None:
    chat, own = open_chat(world, place, "schedule")
    await chat.say(f"/schedule add --workflow {own} 0 9 * * 1 n=6")
    await chat.press("Confirm", own)
    await chat.say("/schedule")
    listed = await chat.wait("/schedule show ID", own)
    found = re.search(rf"(\w{{6}})\W+{own}", listed)
    assert found is not None
    await chat.say(f"/schedule run {found[1]}")

    await chat.wait(f"Double {own}", "twice: 12")


async def test_it_runs_again_from_a_node_with_another_input(world: ModelWorld, place: str) -> None:
    chat, own = open_chat(world, place, "again")
    await chat.say(f"/workflow run {own} n=5")
    done = await chat.wait(f"Double {own}", "twice: 10", "half: 2.5")
    found = _TASK_ID.search(done)
    assert found is not None
    task = found[1]

    await chat.say(f"/rerun {task} add n=many")
    await chat.wait("many")
    await chat.say(f"/rerun {task} add n=50")
    await chat.wait("Running again from")
    await chat.wait(f"Double {own}", "twice: 100", "half: 25")
    await chat.say(f"/rerun {task} half add.result=8")
    await chat.wait(f"Double {own}", "half:")
