from __future__ import annotations

from dataclasses import replace

import pytest

from cards.memory_actions import (
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    PinMemory,
    ShowMemory,
)
from storage.records.memory.entries import EntryState, MemoryKind, Scope, ScopeKind
from storage.records.memory.shown import CleanReport, UsedEntry
from tests.handlers.desk import Desk, text_of
from tests.memory_fake import an_entry
from tests.samples import NOW

ANNS = an_entry("aa22", "Ann drinks tea", scope=Scope(ScopeKind.PERSON, "ann"))
TEAMS = an_entry("tt33", "Deploys happen on Fridays")
WAITS = an_entry("ww44", "Ann likes it short", state=EntryState.CANDIDATE)


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.world.memory.keep(ANNS, TEAMS, WAITS)
    return made


async def test_in_private_ones_own_memories_are_listed_and_in_a_group_they_are_not(
    desk: Desk,
) -> None:
    private = await desk.say("/memory")
    group = await desk.say("/memory", chat="g1")

    assert "Ann drinks tea" in text_of(private)
    assert "Deploys" in text_of(group)
    assert "Ann drinks tea" not in text_of(group)


async def test_something_is_remembered_and_named_by_its_id(desk: Desk) -> None:
    reply = await desk.say("/remember I like short answers")

    assert "new3" in text_of(reply)
    assert desk.world.memory.known["new3"].text == "I like short answers"


async def test_chinese_words_mean_the_same(desk: Desk) -> None:
    await desk.say("/记忆 添加 喜欢简短的回答")

    assert "喜欢简短的回答" in {each.text for each in desk.world.memory.known.values()}


async def test_what_is_changed_says_what_it_says_now(desk: Desk) -> None:
    reply = await desk.say("/memory edit tt33 Deploys happen on Mondays")

    assert "Mondays" in text_of(reply)
    assert desk.world.memory.known["tt33"].text == "Deploys happen on Mondays"


async def test_what_is_forgotten_is_gone(desk: Desk) -> None:
    await desk.say("/memory forget tt33")

    assert "tt33" not in desk.world.memory.known


@pytest.mark.parametrize("text", ["/memory show zz99", "/memory forget zz99", "/memory pin zz99"])
async def test_what_is_not_there_is_said_to_be_not_there(desk: Desk, text: str) -> None:
    assert "no memory zz99" in text_of(await desk.say(text))


@pytest.mark.parametrize(
    "text", ["/memory what", "/memory add", "/memory edit tt33", "/memory show"]
)
async def test_half_an_order_is_answered_with_how_to_give_it(desk: Desk, text: str) -> None:
    assert "/help" in text_of(await desk.say(text)) or "usage" in text_of(await desk.say(text))


async def test_a_candidate_is_kept_by_command(desk: Desk) -> None:
    listed = await desk.say("/candidates")
    await desk.say("/candidates keep ww44")

    assert "ww44" in text_of(listed)
    assert desk.world.memory.known["ww44"].state is EntryState.ACTIVE


async def test_what_stood_behind_an_answer_is_told_with_its_score(desk: Desk) -> None:
    used = UsedEntry(
        entry=TEAMS,
        id="tt33",
        block="similar",
        score=0.5,
        parts={"words": 0.4},
        at=NOW,
        confirmed=True,
    )
    gone = replace(used, entry=None, id="gg55", confirmed=False)
    desk.world.memory.used = [used, gone]

    told = text_of(await desk.say("/memory why"))

    assert "✓ tt33 Deploys happen on Fridays" in told
    assert "forgotten since" in told


async def test_cleaning_is_for_owners_and_only_told_first(desk: Desk) -> None:
    desk.world.memory.report = CleanReport(noise=[TEAMS], doubles=(), weak=(), done=False)

    refused = await desk.say("/memory clean")
    told = await desk.say("/memory clean", who="x-olga", chat="c0")
    done = await desk.say("/memory clean yes", who="x-olga", chat="c0")

    assert "1 entries" not in text_of(refused)
    assert "/memory clean yes" in text_of(told)
    assert "exports/memory.jsonl" in text_of(done)


async def test_a_chapter_of_the_handbook_is_rewritten(desk: Desk) -> None:
    chapter = an_entry(
        "hh66", "Be kind.", kind=MemoryKind.HANDBOOK, key="handbook:principles", label="Principles"
    )
    desk.world.memory.keep(chapter)

    shown = await desk.say("/boss", who="x-olga", chat="c0")
    await desk.say("/boss principles Be brief.", who="x-olga", chat="c0")
    unknown = await desk.say("/boss nonsense Be loud.", who="x-olga", chat="c0")

    assert "Be kind." in text_of(shown)
    assert desk.world.memory.known["hh66"].text == "Be brief."
    assert "no such chapter" in text_of(unknown)


@pytest.mark.parametrize(
    "action",
    [
        ListMemories(page=2, scope="skill:review"),
        ShowMemory(entry_id="tt33"),
        ForgetMemory(entry_id="tt33"),
        PinMemory(entry_id="tt33", pinned=True),
        DecideMemory(entry_id="ww44", keep=False),
    ],
)
async def test_what_a_button_does_can_be_typed(desk: Desk, action: ListMemories) -> None:
    reply = await desk.say(action.command)

    assert "usage" not in text_of(reply).lower()


def test_a_form_says_on_which_version_it_was_filled_in() -> None:
    assert EditMemory(entry_id="a", revision=3).revision == 3
