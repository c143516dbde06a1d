"""A model that cannot call tools or fill in forms works, and is believed only what it has done."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.emulators.models.script import ScriptedReply
from tests.journeys.model_world import ModelWorld, model_world, wait_for_message

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = (
    "<think>A file is needed.</think>\n<tool_call>\n<function=write>\n<parameter=path>\ncats.txt\n"
    "</parameter>\n<parameter=content>\nCats purr.\n</parameter>\n</function>\n</tool_call>"
)
MARKS = ("<tool_call", "<function", "<parameter", '"status"')


def report(summary: str, *files: str) -> str:
    value = {"status": "done", "summary": summary, "files": list(files)}
    return f"Here is my report:\n```json\n{json.dumps(value)}\n```"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), "openai") as made:
        yield made


async def test_a_plan_in_markdown_and_tools_in_xml_make_a_file(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    script, cue = world.script, "weak-cats"
    script.script(
        cue, "plan", ScriptedReply(text="My plan:\n1. **Write**: the poem\n2. Look at it")
    )
    script.script(
        cue,
        "step",
        ScriptedReply(text=WRITE),
        ScriptedReply(text=WRITE.replace("purr.", "purr softly.")),
        ScriptedReply(text=report("Written.", "cats.txt")),
    )
    # From then on it is asked to write its calls: no tools are offered.
    script.script(cue, "talk", ScriptedReply(text=report("It purrs.")))
    await boss.says(chat, f"/run {cue}: write a poem into cats.txt")

    ending = await wait_for_message(chat, "Task finished", "2/2")
    file = await chat.wait_for(lambda m: m.upload is not None)

    assert "It purrs." in ending.text
    assert file.upload is not None
    assert file.upload.name == "cats.txt"
    assert not any(mark in message.text for message in chat.from_bot for mark in MARKS)
    assert len(script.requests_for(cue, "plan")) == 1
    (written,) = script.requests_for(cue, "talk")
    assert written.tools == {}
    assert written.schema is not None


async def test_a_file_that_is_only_claimed_is_no_success(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    claim, cue = ScriptedReply(text=report("I wrote it into dogs.txt.")), "weak-dogs"
    world.script.script(cue, "plan", ScriptedReply(text="1. Write the poem"))
    world.script.script(cue, "step", claim, claim)
    world.script.script(cue, "talk", ScriptedReply(text="1. Write the poem"), claim, claim)
    await boss.says(chat, f"/run {cue}: write a poem into dogs.txt")

    ending = await wait_for_message(chat, "Task blocked")

    assert "these files are missing: dogs.txt" in ending.text
    told = [asked for asked in world.script.requests_for(cue) if "missing: dogs" in asked.last_text]
    assert len(told) == 1
    assert all("You have not called a tool in this step" in asked.last_text for asked in told)


async def test_a_report_without_the_number_that_was_asked_for_is_sent_back(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    cue, plan = "weak-larks", ScriptedReply(text="1. Count the larks")
    silent, told = (
        ScriptedReply(text=report("I counted.")),
        ScriptedReply(text=report("There are 7.")),
    )
    world.script.script(cue, "plan", plan)
    world.script.script(cue, "step", silent, told)
    world.script.script(cue, "talk", plan, silent, told)
    await boss.says(chat, f"/run {cue}: count the larks and report the number of larks")

    ending = await wait_for_message(chat, "Task finished")

    assert "There are 7." in ending.text
    back = [
        each
        for each in world.script.requests_for(cue)
        if "The summary has no number" in each.last_text
    ]
    assert len(back) == 1
    assert "Your last attempt at this step failed" not in back[0].last_text


async def test_who_gave_up_without_a_call_is_not_told_its_own_words_again(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    cue, plan = "weak-owls", ScriptedReply(text="1. Count the owls")
    gave_up = ScriptedReply(text=report("All owls fled.").replace('"done"', '"blocked"'))
    counted = ScriptedReply(text=report("Three owls."))
    world.script.script(cue, "plan", plan)
    world.script.script(cue, "step", gave_up, counted)
    world.script.script(cue, "talk", plan, gave_up, counted)
    await boss.says(chat, f"/run {cue}: count the owls")

    await wait_for_message(chat, "Task finished")

    again = world.script.requests_for(cue)[-1].last_text
    assert "You have not called a tool in this step, so nothing of it is done yet" in again
    assert "All owls fled." not in again


async def test_a_call_written_in_a_chat_is_made_and_never_shown(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    arguments = {"title": "Count the cats", "task": "Count the cats"}
    call = json.dumps({"name": "propose_task", "arguments": arguments})
    reply = ScriptedReply(text=f"<tool_call>\n{call}\n</tool_call>")
    world.script.script("weak-talk", "talk", reply, ScriptedReply(text="As you like."))
    await boss.says(chat, "how many cats are there, weak-talk?")

    await wait_for_message(chat, "Count the cats")

    assert not any(mark in message.text for message in chat.from_bot for mark in MARKS)
