"""Tests that turns are stored once, also after crashes, and influence later answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.emulators.models.script import ScriptedReply
from tests.journeys.model_world import (
    ModelWorld,
    fill_form,
    held_reply,
    label_with,
    model_world,
    start_new_conversation,
    wait_for_message,
)
from tests.journeys.program_store import open_store
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = "Peanuts make me ill, so never plan a lunch with them"
FACT = "The Boss cannot eat peanuts"
NOTED = fill_form(
    conversation_register="real",
    memories=[
        {
            "category": "profile",
            "topic": "allergy",
            "text": FACT,
            "confidence": 0.95,
            "turns": [1],
        }
    ],
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    at_once = "{extract: true, extract_after_seconds: 0}"
    async with model_world(home, "anthropic", SHIFTBOSS_MEMORY=at_once) as made:
        yield made


def count_rows(world: ModelWorld, query: str, *values: str) -> int:
    with open_store(world.program.home) as store:
        return int(store.execute(query, values).fetchone()[0])


async def wait_for_count(world: ModelWorld, least: int, query: str, *values: str) -> None:
    async def is_reached() -> bool:
        return await asyncio.to_thread(count_rows, world, query, *values) >= least

    await wait_until(is_reached)


def candidate_id(world: ModelWorld, text: str) -> str:
    """The id of the candidate that says so."""
    query = "select id from memories where state = 'candidate' and text = ?"
    with open_store(world.program.home) as store:
        return str(store.execute(query, (text,)).fetchone()[0])


async def test_a_kill_during_extraction_loses_and_duplicates_no_memory(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    never = asyncio.Event()
    world.script.script(PLAIN, "talk", ScriptedReply(text="No lunch with peanuts."))
    world.script.script(PLAIN, "notes", held_reply(NOTED, never))
    await boss.says(chat, f"From now on: {PLAIN}")
    await wait_for_message(chat, "No lunch with peanuts.")
    await world.script.wait_for_request(PLAIN, "notes")

    await world.program.kill()
    world.script.script(PLAIN, "notes", NOTED)
    never.set()
    await world.program.start()
    await wait_for_count(world, 1, "select count(*) from memory_jobs where state = 'done'")

    assert count_rows(world, "select count(*) from memories where text = ?", FACT) == 1
    assert count_rows(world, "select count(*) from memories where kind = 'cell'") == 1


async def test_a_correction_in_one_conversation_changes_the_next(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    world.script.script(
        "Which port does the harbour desk use?", "talk", ScriptedReply(text="Port 8080.")
    )
    await boss.says(chat, "Which port does the harbour desk use?")
    await wait_for_message(chat, "Port 8080.")
    world.script.script("should be 9191", "talk", ScriptedReply(text="Port 9191 then."))
    await boss.says(chat, "No, that's wrong, it should be 9191 for the harbour desk")
    await wait_for_message(chat, "Port 9191 then.")
    corrected = "select count(*) from memories where category = 'lessons' and text like '%9191%'"
    await wait_for_count(world, 1, corrected)
    await boss.says(chat, "/reset")
    await wait_for_message(chat, "Started a new conversation")

    world.script.script(
        "Tell me the port of the harbour desk", "talk", ScriptedReply(text="It is 9191.")
    )
    await boss.says(chat, "Tell me the port of the harbour desk again")
    await wait_for_message(chat, "It is 9191.")

    asked = world.script.requests_for("Tell me the port of the harbour desk", "talk")[-1]
    assert "it should be 9191" in json.dumps(asked.body)
    assert not any("9191" in said for said in asked.user_texts), "it is told as a memory"


async def test_a_fact_said_twice_becomes_permanent_with_one_press(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    traits = ("Drinks green tea", "Plays chess", "Lives in Ulm")
    for time in ("first", "second"):
        cue = f"the {time} time"
        noted = fill_form(
            conversation_register="real",
            memories=[
                {
                    "category": "preferences",
                    "topic": trait,
                    "text": trait,
                    "confidence": 0.85,
                    "turns": [1],
                }
                for trait in traits
            ],
        )
        world.script.script(cue, "talk", ScriptedReply(text=f"Heard {cue}."))
        world.script.script(cue, "notes", noted)
        await boss.says(chat, f"From now on, for {cue}: green tea, chess and Ulm")
        await wait_for_message(chat, f"Heard {cue}.")
        await world.script.wait_for_request(cue, "notes")

    card = await wait_for_message(chat, "worth remembering", *traits)
    await boss.presses(card, label_with(card.buttons, "Keep"))

    person = "select person_id from chats where external_id = ? limit 1"
    kept = (
        "select count(*) from memories where kind = 'longterm' and state = 'active'"
        f" and origin = 'manual' and scope = 'person:' || ({person})"
    )
    await wait_for_count(world, len(traits), kept, str(chat.id))
    assert count_rows(world, "select count(*) from memories where state = 'candidate'") == 0


async def test_a_correction_given_during_one_skill_applies_to_the_next_and_the_skills_notes_do_not(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    pattern = "Crane checks begin at the hook"
    wrong = "No, that's wrong, it should be 60 tons; checks of the crane begin at its hook"
    noted = fill_form(
        conversation_register="real",
        memories=[
            {
                "category": "patterns",
                "topic": "crane checks",
                "text": pattern,
                "confidence": 0.95,
                "turns": [1],
            }
        ],
    )
    world.script.script("60 tons", "talk", ScriptedReply(text="60 tons then."))
    world.script.script("60 tons", "notes", noted)
    await boss.says(chat, f"/skill explain {wrong}")
    await wait_for_message(chat, "60 tons then.", "Noted")
    proposed = "select count(*) from memories where state = 'candidate' and text = ?"
    await wait_for_count(world, 1, proposed, pattern)
    skills = "select count(*) from memories where scope = 'skill:explain' and text = ?"
    assert count_rows(world, skills, pattern) == 0, "what is said in private is nobody else's"
    await boss.says(chat, f"/candidates keep {candidate_id(world, pattern)}")
    await wait_for_count(world, 1, skills, pattern)
    own = "The crane and its load are painted red"
    await boss.says(chat, f"/memory add --scope skill:explain {own}")
    await wait_for_count(world, 1, skills, own)

    asked = {}
    for skill, question in (("code-review", "load of the crane"), ("explain", "crane checks")):
        await start_new_conversation(boss, chat)
        world.script.script(question, "talk", ScriptedReply(text=f"That is the {question}."))
        await boss.says(chat, f"/skill {skill} Tell me about the {question}")
        await wait_for_message(chat, f"That is the {question}.")
        asked[skill] = json.dumps(world.script.requests_for(question, "talk")[-1].body)

    assert "it should be 60 tons" in asked["code-review"], "the person's, whoever works"
    assert own not in asked["code-review"], "a skill's own notes stay with it"
    assert own in asked["explain"]
    assert pattern in asked["explain"]
