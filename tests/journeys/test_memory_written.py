"""What is said is taken down once, whatever happens in between, and changes what follows."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing

import pytest
import pytest_asyncio

from tests.emulators.models.script import Reply
from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.people import User
from tests.journeys.model_world import PATIENCE, World, fill, held, label_with, told, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = "Peanuts make me ill, so never plan a lunch with them"
FACT = "The Boss cannot eat peanuts"
NOTED = fill(
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
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    home = tmp_path_factory.mktemp("home")
    at_once = "{extract: true, extract_after_seconds: 0}"
    async with world(home, "anthropic", SHIFTBOSS_MEMORY=at_once) as made:
        yield made


def counted(place: World, query: str, *values: str) -> int:
    with closing(sqlite3.connect(place.shiftboss.home / "shiftboss.db")) as store:
        return int(store.execute(query, values).fetchone()[0])


async def until_counted(place: World, least: int, query: str, *values: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(counted, place, query, *values) < least:
            await asyncio.sleep(0.05)


def found(place: World, text: str) -> str:
    """The id of the candidate that says so."""
    query = "select id from memories where state = 'candidate' and text = ?"
    with closing(sqlite3.connect(place.shiftboss.home / "shiftboss.db")) as store:
        return str(store.execute(query, (text,)).fetchone()[0])


async def begun_anew(boss: User, chat: Chat) -> None:
    known = {message.id for message in chat.from_bot}
    await boss.says(chat, "/reset")
    await chat.wait_for(
        lambda m: m.id not in known and "A new conversation has begun" in m.text, PATIENCE
    )


async def test_a_kill_while_notes_are_taken_loses_nothing_and_doubles_nothing(
    place: World,
) -> None:
    boss, chat = place.boss()
    never = asyncio.Event()
    place.stage.on(PLAIN, "talk", Reply(text="No lunch with peanuts."))
    place.stage.on(PLAIN, "notes", held(NOTED, never))
    await boss.says(chat, f"From now on: {PLAIN}")
    await told(chat, "No lunch with peanuts.")
    await place.stage.under_way(PLAIN, "notes")

    await place.shiftboss.kill()
    place.stage.on(PLAIN, "notes", NOTED)
    never.set()
    await place.shiftboss.start()
    await until_counted(place, 1, "select count(*) from memory_jobs where state = 'done'")

    assert counted(place, "select count(*) from memories where text = ?", FACT) == 1
    assert counted(place, "select count(*) from memories where kind = 'cell'") == 1


async def test_a_correction_in_one_conversation_changes_the_next(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("Which port does the harbour desk use?", "talk", Reply(text="Port 8080."))
    await boss.says(chat, "Which port does the harbour desk use?")
    await told(chat, "Port 8080.")
    place.stage.on("should be 9191", "talk", Reply(text="Port 9191 then."))
    await boss.says(chat, "No, that's wrong, it should be 9191 for the harbour desk")
    await told(chat, "Port 9191 then.")
    corrected = "select count(*) from memories where category = 'lessons' and instr(text, '9191')"
    await until_counted(place, 1, corrected)
    await boss.says(chat, "/reset")
    await told(chat, "A new conversation has begun")

    place.stage.on("Tell me the port of the harbour desk", "talk", Reply(text="It is 9191."))
    await boss.says(chat, "Tell me the port of the harbour desk again")
    await told(chat, "It is 9191.")

    asked = place.stage.heard("Tell me the port of the harbour desk", "talk")[-1]
    assert "it should be 9191" in json.dumps(asked.body)
    assert not any("9191" in said for said in asked.said), "it is told as a memory"


async def test_what_was_said_twice_is_kept_for_long_on_one_press(place: World) -> None:
    boss, chat = place.boss()
    traits = ("Drinks green tea", "Plays chess", "Lives in Ulm")
    for time in ("first", "second"):
        cue = f"the {time} time"
        noted = fill(
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
        place.stage.on(cue, "talk", Reply(text=f"Heard {cue}."))
        place.stage.on(cue, "notes", noted)
        await boss.says(chat, f"From now on, for {cue}: green tea, chess and Ulm")
        await told(chat, f"Heard {cue}.")
        await place.stage.under_way(cue, "notes")

    card = await told(chat, "worth keeping", *traits)
    await boss.presses(card, label_with(card.buttons, "Keep"))

    person = "select person_id from chats where external_id = ? limit 1"
    kept = (
        "select count(*) from memories where kind = 'longterm' and state = 'active'"
        f" and origin = 'manual' and scope = 'person:' || ({person})"
    )
    await until_counted(place, len(traits), kept, str(chat.id))
    assert counted(place, "select count(*) from memories where state = 'candidate'") == 0


async def test_a_correction_made_to_one_skill_is_known_to_the_next_and_its_own_notes_are_not(
    place: World,
) -> None:
    boss, chat = place.boss()
    pattern = "Crane checks begin at the hook"
    wrong = "No, that's wrong, it should be 60 tons; checks of the crane begin at its hook"
    noted = fill(
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
    place.stage.on("60 tons", "talk", Reply(text="60 tons then."))
    place.stage.on("60 tons", "notes", noted)
    await boss.says(chat, f"/skill explain {wrong}")
    await told(chat, "60 tons then.", "Noted")
    proposed = "select count(*) from memories where state = 'candidate' and text = ?"
    await until_counted(place, 1, proposed, pattern)
    skills = "select count(*) from memories where scope = 'skill:explain' and text = ?"
    assert counted(place, skills, pattern) == 0, "what is said in private is nobody else's"
    await boss.says(chat, f"/candidates keep {found(place, pattern)}")
    await until_counted(place, 1, skills, pattern)
    own = "The crane and its load are painted red"
    await boss.says(chat, f"/memory add --scope skill:explain {own}")
    await until_counted(place, 1, skills, own)

    asked = {}
    for skill, question in (("code-review", "load of the crane"), ("explain", "crane checks")):
        await begun_anew(boss, chat)
        place.stage.on(question, "talk", Reply(text=f"That is the {question}."))
        await boss.says(chat, f"/skill {skill} Tell me about the {question}")
        await told(chat, f"That is the {question}.")
        asked[skill] = json.dumps(place.stage.heard(question, "talk")[-1].body)

    assert "it should be 60 tons" in asked["code-review"], "the person's, whoever works"
    assert own not in asked["code-review"], "a skill's own notes stay with it"
    assert own in asked["explain"]
    assert pattern in asked["explain"]
