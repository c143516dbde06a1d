"""A better text on trial in the real program, over a death, until it is taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import ModelWorld, ask, label_with, model_world, wait_for_message
from tests.journeys.program_store import open_store

CONDITION = "inputs.count > 2"
WORKFLOW = f"""\
name: Weekly
inputs: [{{name: count, type: number}}]
nodes:
  - {{id: judge, type: condition, name: Enough}}
  - {{id: stop, type: end, name: Stop}}
edges:
  - {{from: judge, to: stop, condition: "{CONDITION}"}}
"""
CHANGED = WORKFLOW.replace(CONDITION, "inputs.count < 2")
ADDED = CHANGED.splitlines()[-1]


def fill(field: str, **value: Any) -> Callable[[ReceivedRequest], ScriptedReply]:
    """Fill in the form that has this field."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        form = next(name for name, schema in asked.tools.items() if field in schema["properties"])
        return ScriptedReply(calls=[ScriptedCall(name=form, arguments=value)])

    return reply


def answer(asked: ReceivedRequest) -> ScriptedReply:
    """Propose the change, and approve it as its reviewer."""
    if any("instructions" in schema["properties"] for schema in asked.tools.values()):
        return fill("instructions", reason="A dead end.", instructions=CHANGED)(asked)
    return fill("approved", approved=True, confidence=0.9, reason="Small.")(asked)


def ended(chat: TelegramChat) -> list[bool]:
    """Whether the tasks that are over succeeded."""
    told = [each.text for each in chat.from_bot]
    return ["finished" in each for each in told if "Task finished" in each or "Task failed" in each]


async def run_weekly(boss: TelegramUser, chat: TelegramChat, count: int) -> bool:
    """Run the workflow to its end; whether it succeeded."""
    before = len(ended(chat))
    await boss.says(chat, f"/workflow run weekly count={count}")
    await chat.wait_until(lambda: len(ended(chat)) > before)
    return ended(chat)[-1]


async def approve_trial(boss: TelegramUser, chat: TelegramChat, number: int) -> None:
    await ask(boss, chat, "/evolve", "a change is proposed")
    card = await wait_for_message(chat, f"workflow:weekly, version {number}", f"+{ADDED}")
    await boss.presses(card, label_with(card.buttons, "Yes"))


async def restart(world: ModelWorld, *changes: str, **settings: str) -> None:
    """Kill the program, change its store, and start it again."""
    await world.program.kill()
    with open_store(world.program.home) as store:
        for change in changes:
            store.execute(change)
    world.program.settings = {**world.program.settings, **settings}
    await world.program.start()


async def test_a_change_of_a_workflow_is_tried_after_an_approval_and_taken_back(
    tmp_path: Path,
) -> None:
    file = tmp_path / "workflows" / "weekly.yaml"
    file.parent.mkdir()
    file.write_text(WORKFLOW, encoding="utf-8")
    async with model_world(tmp_path, "anthropic", SHIFTBOSS_EVOLVE_SHARE="90") as world:
        boss, chat = world.new_owner()
        world.script.script("Enough", "talk", answer)
        for _ in range(3):
            assert not await run_weekly(boss, chat, 1)

        # The file itself is version 1.
        await approve_trial(boss, chat, 2)
        # The two calls for this change have used more than that.
        await restart(world, "DELETE FROM evolution_signals", SHIFTBOSS_CAP_SELF="100 tokens")
        await ask(boss, chat, "/prompt show weekly", "workflow:weekly", "on trial")
        await ask(boss, chat, "/prompt diff workflow:weekly", f"+{ADDED}")

        # Each task that tries it fails, and the others do not.
        while ended(chat).count(False) < 3 + 3:
            await run_weekly(boss, chat, 5)
        await wait_for_message(chat, "workflow:weekly: version 2 is no longer used", "0 of 3")
        assert await run_weekly(boss, chat, 5)
        await ask(boss, chat, "/prompt list", "workflow:weekly: version 1")

        calls = len(world.script.requests)
        await ask(boss, chat, "/evolve", "today's spending cap is reached")
        assert len(world.script.requests) == calls
        await restart(world, "DELETE FROM evolution_signals", SHIFTBOSS_CAP_SELF="1 USD")
        await approve_trial(boss, chat, 3)
        await ask(boss, chat, "/prompt show weekly", "on trial")
        await ask(boss, chat, "/prompt rollback weekly", "no longer on trial")
        await ask(boss, chat, "/prompt rollback weekly", "is used as it is written")
        assert await run_weekly(boss, chat, 5)
        await ask(boss, chat, "/cost today", "Better prompts", "of $1.00")
        assert file.read_text(encoding="utf-8") == WORKFLOW

    status, shown = await world.program.run_to_end("prompt", "show", "weekly")
    assert (status, "An owner rolled it back." in shown) == (0, True)
