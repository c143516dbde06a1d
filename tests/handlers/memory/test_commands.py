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
from cards.model import Buttons, Card, Collapsible, Form, Select, Text
from cards.words import words_for
from handlers.memory.in_words import to_forget
from storage.records.memory.entries import EntryState, MemoryKind, Scope, ScopeKind
from storage.records.memory.shown import CleanReport, FoundEntry
from storage.records.people import Language
from tests.handlers.desk import Desk, text_of
from tests.memory_fake import an_entry

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
    text = desk.world.memory.known["tt33"].text
    reply = await desk.say("/memory forget tt33")

    assert "tt33" not in desk.world.memory.known
    assert "tt33" in text_of(reply)
    assert text not in text_of(reply), "what is answered is kept, and its words are to go"


async def test_an_order_to_forget_that_is_handled_again_is_answered_as_done(desk: Desk) -> None:
    order = desk.row(desk.message("/memory forget tt33"))
    await desk.deliver(order)

    again = await desk.deliver(order)

    assert again.good
    assert "tt33 is forgotten for good" in text_of(again)


@pytest.mark.parametrize("text", ["/memory show zz99", "/memory forget zz99", "/memory pin zz99"])
async def test_what_is_not_there_is_said_to_be_not_there(desk: Desk, text: str) -> None:
    assert "no memory zz99" in text_of(await desk.say(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/memory what", "/memory search what"),
        ("/memory list what", "longterm"),
        ("/memory add", "/memory add I like"),
        ("/remember", "/memory add I like"),
        ("/memory edit tt33", "/memory edit tt33 I like"),
        ("/memory move tt33", "/memory move tt33 me"),
        ("/memory show", "/memory show ID"),
        ("/memory forget", "/memory show ID"),
        ("/memory search", "/memory search WORDS"),
    ],
)
async def test_half_an_order_is_answered_with_how_to_give_the_whole(
    desk: Desk, text: str, told: str
) -> None:
    assert told in text_of(await desk.say(text))


async def test_a_candidate_is_kept_by_command(desk: Desk) -> None:
    listed = await desk.say("/candidates")
    await desk.say("/candidates keep ww44")

    assert "ww44" in text_of(listed)
    assert desk.world.memory.known["ww44"].state is EntryState.ACTIVE


async def test_cleaning_is_for_owners_and_only_told_first(desk: Desk) -> None:
    desk.world.memory.report = CleanReport(noise=[TEAMS], doubles=(), weak=(), done=False)

    refused = await desk.say("/memory clean")
    told = await desk.say("/memory clean", who="x-olga", chat="c0")
    done = await desk.say("/memory clean yes", who="x-olga", chat="c0")

    assert "would go" not in text_of(refused)
    assert "One entry would go" in text_of(told)
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


async def test_one_of_a_list_is_opened_by_its_number(desk: Desk) -> None:
    reply = await desk.say("/memory")
    assert reply.card is not None
    [picked] = [each for each in (await shown(desk)).blocks if isinstance(each, Select)]

    opened = await desk.press(picked.token, value=picked.options[1].value)

    assert "2. Deploys happen on Fridays" in text_of(reply)
    assert "Deploys happen on Fridays" in text_of(opened)
    assert not opened.in_place, "the list stays"


async def test_the_details_of_a_fact_are_told(desk: Desk) -> None:
    desk.world.memory.keep(an_entry("oo77", "Likes trains", overview="Above all night trains"))
    shown = await desk.say("/memory show oo77")

    assert "Above all night trains" in text_of(shown)
    assert shown.data is not None
    assert shown.data["overview"] == "Above all night trains"


async def test_a_form_to_change_a_memory_begins_with_what_it_says(desk: Desk) -> None:
    opened = await desk.say("/memory show aa22")
    assert opened.card is not None
    [form] = [each for each in opened.card.blocks if isinstance(each, Form)]

    assert form.fields[0].value == "Ann drinks tea"


@pytest.mark.parametrize("text", ["What do you remember about me?", "你记得我什么？"])
async def test_what_is_known_can_be_asked_for_in_plain_words(desk: Desk, text: str) -> None:
    assert "Ann drinks tea" in text_of(await desk.say(text))


@pytest.mark.parametrize("text", ["forget what I said about tea", "忘掉关于tea的事"])
async def test_what_is_to_be_forgotten_in_plain_words_is_asked_about_and_then_gone(
    desk: Desk, text: str
) -> None:
    desk.world.memory.keep(an_entry("zz88", "tea is at five", scope=ANNS.scope))
    asked = await desk.say(text)
    before = set(desk.world.memory.known)
    [buttons] = [each for each in (await shown(desk)).blocks if isinstance(each, Buttons)]
    first = await desk.press(buttons.items[0].token)

    assert {"aa22", "zz88"} <= before, "nothing is forgotten before a press"
    assert "Ann drinks tea" in text_of(asked)
    assert buttons.items[0].confirm is not None
    assert "aa22" not in desk.world.memory.known
    assert "tea is at five" in text_of(first), "what else says so can be forgotten too"


@pytest.mark.parametrize(
    "text", ["forget it", "forget what I said about zebras", "忘了带钥匙", "忘记密码怎么办"]
)
async def test_what_names_nothing_that_is_remembered_is_talk(desk: Desk, text: str) -> None:
    assert to_forget(text) in {"", "zebras"}
    await desk.say(text)

    assert [each.text for each in desk.world.talk.questions] == [text]


async def test_in_a_group_it_is_said_that_ones_own_is_shown_in_private(desk: Desk) -> None:
    for text in ("/memory", "/profile", "what do you remember about me?"):
        assert "in private" in text_of(await desk.say(text, chat="g1"))


async def test_what_somebody_wrote_is_shown_as_it_stands(desk: Desk) -> None:
    desk.world.memory.keep(an_entry("ll11", "[click](http://evil.example) *now* <at id=all>"))
    for text in ("/memory", "/memory show ll11", "/memory search click"):
        reply = await desk.say(text)
        assert "[click](http://evil.example) *now* <at id=all>" in text_of(reply)


async def test_what_only_stands_near_what_was_found_is_folded_away(desk: Desk) -> None:
    desk.world.memory.found = [
        FoundEntry(entry=ANNS, score=1.0, near=True),
        FoundEntry(entry=TEAMS, score=0.5),
    ]
    reply = await desk.say("/memory search deploying")
    assert reply.card is not None
    [folded] = [each for each in reply.card.blocks if isinstance(each, Collapsible)]

    assert isinstance(reply.card.blocks[0], Text)
    assert "Ann drinks tea" not in reply.card.blocks[0].markdown
    assert "Deploys" in reply.card.blocks[0].markdown
    assert isinstance(folded.blocks[0], Text)
    assert "Ann drinks tea" in folded.blocks[0].markdown


async def shown(desk: Desk) -> Card:
    """The last card as it was posted, with its tokens."""
    return desk.world.post.cards[desk.world.post.sent[-1][1]]


async def test_our_own_chapters_are_read_in_ones_own_language_until_they_are_rewritten() -> None:
    desk = Desk(language=Language.CHINESE)
    english, chinese = words_for(Language.ENGLISH), words_for(Language.CHINESE)
    ours = an_entry(
        "hh66",
        english("mirror.default.quality"),
        kind=MemoryKind.HANDBOOK,
        key="handbook:quality",
        label="Quality",
    )
    desk.world.memory.keep(ours)
    before = text_of(await desk.say("/手册", who="x-olga", chat="c0"))
    desk.world.memory.keep(replace(ours, text="Test it twice."))
    after = text_of(await desk.say("/手册", who="x-olga", chat="c0"))

    assert chinese("mirror.default.quality") in before
    assert chinese("mirror.chapter.quality") in after
    assert "Test it twice." in after


async def test_a_press_on_what_is_gone_says_so_in_plain_text(desk: Desk) -> None:
    await desk.say("/memory")
    [picked] = [each for each in (await shown(desk)).blocks if isinstance(each, Select)]
    await desk.say("/memory forget tt33")

    pressed = await desk.press(picked.token, value="tt33")

    assert pressed.toast == ("There is no memory tt33 that may be seen here · /memory lists them.")


async def test_what_else_waits_stays_on_the_card_until_all_is_decided(desk: Desk) -> None:
    desk.world.memory.keep(an_entry("ww55", "Ann cycles", state=EntryState.CANDIDATE))
    await desk.say("/candidates")
    rows = [each for each in (await shown(desk)).blocks if isinstance(each, Buttons)]
    first = await desk.press(rows[0].items[0].token)
    rows = [each for each in (await shown(desk)).blocks if isinstance(each, Buttons)]
    last = await desk.press(rows[0].items[1].token)

    assert first.in_place
    assert "Ann cycles" in text_of(first)
    assert "Kept for good: Ann likes it short" in text_of(first)
    assert text_of(last) == "Dropped: Ann cycles"
    assert desk.world.memory.known["ww44"].state is EntryState.ACTIVE
    assert desk.world.memory.known["ww55"].state is EntryState.REJECTED


async def test_all_that_is_about_it_is_forgotten_at_once(desk: Desk) -> None:
    desk.world.memory.keep(an_entry("zz88", "tea is at five", scope=ANNS.scope))
    await desk.say("forget what I said about tea")
    [buttons] = [each for each in (await shown(desk)).blocks if isinstance(each, Buttons)]
    [everything] = [each for each in buttons.items if "All 2" in each.label]
    await desk.say("/memory forget aa22")

    pressed = await desk.press(everything.token)

    assert everything.confirm is not None
    assert "All 2 are forgotten" in text_of(pressed)
    assert set(desk.world.memory.known) == {"tt33", "ww44"}


async def test_why_something_was_refused_is_seen_by_whoever_may_see_it(desk: Desk) -> None:
    judged = {"admission": {"admitted": False, "why": "utility", "score": 0.41}}
    refused = replace(
        an_entry("rr55", "Ann hums", scope=Scope(ScopeKind.PERSON, "ann")),
        state=EntryState.REJECTED,
        extra=judged,
    )
    turned_down = an_entry("rr66", "Ann sings", state=EntryState.REJECTED)
    desk.world.memory.keep(refused, turned_down)

    private = await desk.say("/memory stats")
    group = await desk.say("/memory stats", chat="g1")
    shown = await desk.say("/memory show rr55")
    listed = await desk.say("/memory list rejected")

    assert private.data is not None
    assert group.data is not None
    [told] = private.data["refused"]
    assert (told["id"], told["admission"]["why"]) == ("rr55", "utility")
    assert group.data["refused"] == []
    assert "hardly of use (score 0.41)" in text_of(shown)
    assert "Ann hums" in text_of(listed)


async def test_a_backup_is_put_back_by_owners_who_name_it(desk: Desk) -> None:
    refused = await desk.say("/memory restore exports/a.jsonl")
    unnamed = await desk.say("/memory restore", who="x-olga", chat="c0")
    done = await desk.say("/memory restore exports/a.jsonl", who="x-olga", chat="c0")

    assert "Only an owner" in text_of(refused)
    assert "/memory restore FILE" in text_of(unnamed)
    assert "One entry added" in text_of(done)
