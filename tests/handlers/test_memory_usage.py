from __future__ import annotations

from dataclasses import replace

import pytest

from cards.model import ButtonsBlock, Card, CollapsibleBlock, SelectBlock
from storage.records.memory import (
    AnswerMemories,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    UsedMemory,
)
from storage.records.people import Language
from tests.builders import NOW, make_task
from tests.fakes.memory import make_memory
from tests.handlers.router_harness import RouterHarness, text_of

TEAMS = make_memory("tt33", "Deploys happen on Fridays")
ANNS = make_memory("aa22", "Ann drinks tea", scope=MemoryScope(MemoryScopeKind.PERSON, "ann"))
LOOKED_FOR = UsedMemory(
    entry=TEAMS,
    id="tt33",
    block="similar",
    score=0.5,
    parts={"words": 0.4},
    at=NOW,
    confirmed=False,
)
STANDS = replace(LOOKED_FOR, entry=ANNS, id="aa22", block="profile", score=0.0, parts={})
GONE = replace(LOOKED_FOR, entry=None, id="gg55")
BEHIND = AnswerMemories(
    used=[STANDS, LOOKED_FOR, GONE], session="s1", turn=4, at=NOW, backend="openai"
)


@pytest.fixture
def desk() -> RouterHarness:
    made = RouterHarness()
    made.world.memory.store(ANNS, TEAMS)
    made.world.memory.behind = BEHIND
    return made


async def test_what_stood_behind_an_answer_is_told_with_its_score(desk: RouterHarness) -> None:
    desk.world.memory.behind = replace(
        BEHIND, used=[replace(LOOKED_FOR, confirmed=True), GONE], hidden_count=2
    )

    told = text_of(await desk.send_message("/memory why"))

    assert "✓ Deploys happen on Fridays" in told
    assert "similar" not in told
    assert "0.50 (words 0.40)" in told
    assert "forgotten since" in told
    assert "2 more are not shown in this chat" in told


async def test_what_was_looked_for_comes_first_and_the_handbook_is_folded_away(
    desk: RouterHarness,
) -> None:
    chapter = make_memory("hh66", "Be kind.", kind=MemoryKind.HANDBOOK)
    book = replace(STANDS, entry=chapter, id="hh66", block="handbook")
    desk.world.memory.behind = replace(BEHIND, used=[book, STANDS, LOOKED_FOR])

    reply = await desk.send_message("/memory why")

    assert "1. Deploys happen on Fridays" in text_of(reply)
    assert "2. Ann drinks tea" in text_of(reply)
    assert reply.card is not None
    [folded] = [each for each in reply.card.blocks if isinstance(each, CollapsibleBlock)]
    assert "Handbook · 1" in folded.title


async def test_a_press_says_that_what_was_looked_for_helped_that_very_answer(
    desk: RouterHarness,
) -> None:
    await desk.send_message("/memory why")
    [row] = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    desk.world.memory.behind = replace(BEHIND, session="s2", turn=9)

    pressed = await desk.press(row.items[0].token)
    again = await desk.press(row.items[0].token)

    assert desk.world.memory.calls == [("helped", "ann", "s1", "4")]
    assert pressed.in_place
    assert "✓ Deploys happen on Fridays" in text_of(pressed)
    assert "now count for more" in text_of(pressed)
    assert not [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    assert not again.good


@pytest.mark.parametrize(
    "behind",
    [
        replace(BEHIND, used=[STANDS, replace(LOOKED_FOR, block="recent")]),
        replace(BEHIND, used=[replace(LOOKED_FOR, confirmed=True)]),
        replace(BEHIND, used=[GONE]),
    ],
)
async def test_where_nothing_could_be_said_to_have_helped_nobody_is_asked(
    desk: RouterHarness, behind: AnswerMemories
) -> None:
    desk.world.memory.behind = behind
    await desk.send_message("/memory why")

    assert not [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]


async def test_one_that_is_wrong_is_opened_to_be_changed_or_forgotten(desk: RouterHarness) -> None:
    await desk.send_message("/memory why")
    [picked] = [each for each in (await shown(desk)).blocks if isinstance(each, SelectBlock)]

    opened = await desk.press(picked.token, value=picked.options[0].value)

    assert [each.label for each in picked.options] == ["1", "3"], "what is gone is not offered"
    assert "Deploys happen on Fridays" in text_of(opened)
    assert "/memory forget tt33" in text_of(opened)


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        (AnswerMemories(), "no answer here yet"),
        (
            AnswerMemories(session="s1", turn=2, at=NOW, backend="openai"),
            "No memories were used",
        ),
        (replace(BEHIND, backend="offline"), "without a model"),
    ],
)
async def test_why_there_is_nothing_to_tell_is_told(
    desk: RouterHarness, behind: AnswerMemories, told: str
) -> None:
    desk.world.memory.behind = behind

    assert told in text_of(await desk.send_message("/memory why"))


async def test_what_stood_before_a_tasks_steps_is_told_to_those_who_see_the_task() -> None:
    desk = RouterHarness(make_task("k3m9qa"))
    desk.world.memory.store(TEAMS)
    desk.world.memory.of_tasks["k3m9qa"] = replace(BEHIND, used=[LOOKED_FOR])

    seen = await desk.send_message("/memory why k3m")
    unknown = await desk.send_message("/memory why zzz")
    await desk.send_message("/memory why k3m9qa")

    assert "k3m9qa" in text_of(seen)
    assert "Deploys happen on Fridays" in text_of(seen)
    assert "Deploys" not in text_of(unknown)
    assert not [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]


async def test_it_is_told_in_chinese() -> None:
    desk = RouterHarness(language=Language.CHINESE)
    desk.world.memory.behind = BEHIND
    told = text_of(await desk.send_message("/记忆 为什么"))
    await desk.send_message("/记忆 有用")

    assert "👍 有用" in told
    assert "检索到" in told
    assert desk.world.memory.calls == [("helped", "ann", "", "0")]


async def shown(desk: RouterHarness) -> Card:
    """The last card as it was posted, with its tokens."""
    return desk.world.post.cards[desk.world.post.sent[-1][1]]
