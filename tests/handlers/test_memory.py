from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from bot.engine.memory.consent_rules import find_consent_request
from cards.catalog import catalog_for
from cards.memory_actions import (
    DecideMemoryCandidate,
    ForgetMemory,
    ListMemories,
    PinMemory,
    ShowMemory,
    SubmitMemoryEdit,
)
from cards.model import ButtonsBlock, Card, CollapsibleBlock, FormBlock, SelectBlock, TextBlock
from cards.views.memory import noted_card
from handlers.memory import topic_to_forget
from storage.records.memory import (
    MemoryCleanReport,
    MemoryKind,
    MemoryMatch,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
)
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language
from tests.fakes.memory import make_memory
from tests.handlers.router_harness import RouterHarness, text_of

ANNS = make_memory("aa22", "Ann drinks tea", scope=MemoryScope(MemoryScopeKind.PERSON, "ann"))
TEAMS = make_memory("tt33", "Deploys happen on Fridays")
WAITS = make_memory("ww44", "Ann likes it short", state=MemoryState.CANDIDATE)


@pytest.fixture
def desk() -> RouterHarness:
    made = RouterHarness()
    made.world.memory.store(ANNS, TEAMS, WAITS)
    return made


async def test_in_private_ones_own_memories_are_listed_and_in_a_group_they_are_not(
    desk: RouterHarness,
) -> None:
    private = await desk.send_message("/memory")
    group = await desk.send_message("/memory", chat="g1")

    assert "Ann drinks tea" in text_of(private)
    assert "Deploys" in text_of(group)
    assert "Ann drinks tea" not in text_of(group)


async def test_in_a_group_a_member_forbids_their_own_words_but_not_the_chats(
    desk: RouterHarness,
) -> None:
    all_of_it, before = "don't remember anything here", "forget what I just said"
    desk.world.memory.wishes = {
        all_of_it: ConsentWish(wanted=ConsentRequest.CHAT, says_more=False),
        before: ConsentWish(wanted=ConsentRequest.BEFORE, says_more=False),
    }

    refused = await desk.send_message(all_of_it, who="x-ann", chat="g1")
    done = await desk.send_message(before, who="x-ann", chat="g1")

    assert "Olga" in text_of(refused)
    assert not desk.world.people.chats[ChatId("g1")].settings.memory_off
    assert "I have forgotten what you said before" in text_of(done)
    wished = [call[2] for call in desk.world.memory.calls]
    assert wished == [ConsentRequest.THIS, ConsentRequest.BEFORE], "their own words go in any case"


@pytest.mark.parametrize(
    "line",
    [
        "/run {wish}",
        "/msg t1 {wish}",
        "/inject t1 {wish}",
        "/replan t1 {wish}",
        "/log t1 note {wish}",
        "/plan t1 {wish}",
        "/subtask t1 {wish}",
        "/done t1 {wish}",
        "/block t1 {wish}",
        "/interrupt t1 {wish}",
        "/phase t1 {wish}",
        "/update t1 {wish}",
        "/rerun t1 {wish}",
        "/schedule {wish}",
        "/remind {wish}",
        '/workflow run brief text="{wish}"',
        "/approve a1 {wish}",
        "/reject a1 {wish}",
        "{wish}",
    ],
)
async def test_a_wish_is_heeded_wherever_work_is_given_words(
    desk: RouterHarness, line: str
) -> None:
    memory, wish = desk.world.memory, "don't remember this: my code is egret5523"
    memory.find_consent_request = find_consent_request  # type: ignore[method-assign]

    await desk.send_message(line.format(wish=wish))

    assert ConsentRequest.THIS in [call[2] for call in memory.calls if call[0] == "withhold"]


async def test_what_a_reminder_keeps_is_not_said_to_be_deleted(desk: RouterHarness) -> None:
    desk.world.memory.find_consent_request = find_consent_request  # type: ignore[method-assign]

    await desk.send_message("/remind don't remember this: my code is egret5523")

    told = [str(card) for _, _, card, _ in desk.world.post.sent]
    assert any("keeps them" in each for each in told), told


@pytest.mark.parametrize("line", ["/model {wish}", "/list {wish}", "/persona {wish}"])
async def test_a_wish_in_what_gives_no_work_its_words_is_none(
    desk: RouterHarness, line: str
) -> None:
    memory, wish = desk.world.memory, "don't remember this: my code is egret5523"
    memory.find_consent_request = find_consent_request  # type: ignore[method-assign]

    await desk.send_message(line.format(wish=wish))

    assert not [call for call in memory.calls if call[0] == "withhold"]


async def test_words_that_allow_remembering_again_turn_on_what_is_off_and_nothing_else(
    desk: RouterHarness,
) -> None:
    memory, chats, text = desk.world.memory, desk.world.people.chats, "you can remember again"
    memory.permissions = {text: "", f"{text}. I like tea": "I like tea"}
    group = ChatId("g1")

    nothing_off = await desk.send_message(text)
    await desk.send_message("/memory off")
    turned_on = await desk.send_message(text)
    await desk.send_message("/memory off", who="x-olga", chat=group)
    refused = await desk.send_message(f"{text}. I like tea", chat=group)
    still_off = chats[group].settings.memory_off
    memory.calls.clear()
    answered = await desk.send_message(f"{text}. I like tea", who="x-olga", chat=group)
    memory.announced[ChatId("c1")] = True
    taken_back = await desk.send_message(text)

    assert "Fine." in text_of(nothing_off), "it is talk"
    assert "Memory is on again" in text_of(turned_on)
    assert "Olga" in text_of(refused)
    assert still_off
    assert "Fine." in text_of(answered)
    assert not chats[group].settings.memory_off
    assert not [call for call in memory.calls if call[0] == "withhold"]
    assert "Your next message may be remembered" in text_of(taken_back)


async def test_what_somebody_else_asked_for_in_a_forwarded_message_changes_nothing(
    desk: RouterHarness,
) -> None:
    text = "forget what I just said"
    desk.world.memory.wishes = {text: ConsentWish(wanted=ConsentRequest.BEFORE, says_more=False)}

    await desk.deliver(desk.row(replace(desk.message(text), forwarded=True)))

    assert not [call for call in desk.world.memory.calls if call[0] == "withhold"]


async def test_what_may_be_a_wish_is_not_kept_and_goes_on_to_be_answered(
    desk: RouterHarness,
) -> None:
    text = "kindly leave that unrecorded, I see a psychiatrist"
    doubt = ConsentWish(wanted=ConsentRequest.THIS, says_more=True, is_sure=False)
    desk.world.memory.wishes = {text: doubt}

    reply = await desk.send_message(text)

    withheld = [call[2] for call in desk.world.memory.calls if call[0] == "withhold"]
    assert withheld == [ConsentRequest.THIS]
    assert "Fine." in text_of(reply), "it is answered"
    assert "May I remember this message?" in text_of(reply)


async def test_only_the_author_decides_whether_a_message_in_doubt_is_kept(
    desk: RouterHarness,
) -> None:
    text = "better forgotten"
    doubt = ConsentWish(wanted=ConsentRequest.BEFORE, says_more=True, is_sure=False)
    desk.world.memory.wishes = {text: doubt}
    asked = await desk.send_message(text, who="x-ann", chat="g1")

    [buttons] = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]

    refused = await desk.press(buttons.items[0].token, who="x-olga", chat="g1")
    kept = await desk.press(buttons.items[0].token, who="x-ann", chat="g1")

    assert not refused.good
    assert "this message and the one before it" in text_of(asked)
    assert [call[0] for call in desk.world.memory.calls][-1] == "keep"
    assert "Kept" in text_of(kept)
    assert "May I remember" not in text_of(kept)


async def test_a_task_whose_words_may_ask_it_is_kept_and_asked_about(
    desk: RouterHarness,
) -> None:
    text = "build the page, purge after"
    doubt = ConsentWish(wanted=ConsentRequest.THIS, says_more=True, is_sure=False)
    desk.world.memory.wishes = {text: doubt}

    await desk.send_message(f"/run {text}")

    assert not [call for call in desk.world.memory.calls if call[0] == "withhold"]
    told = [text_of(each) for each in desk.world.post.cards.values()]
    assert any("Don't keep" in each for each in told)


async def test_something_is_remembered_and_named_by_its_id(desk: RouterHarness) -> None:
    reply = await desk.send_message("/remember I like short answers")

    assert "new3" in text_of(reply)
    assert desk.world.memory.entries["new3"].text == "I like short answers"


async def test_chinese_words_mean_the_same(desk: RouterHarness) -> None:
    await desk.send_message("/记忆 添加 喜欢简短的回答")

    assert "喜欢简短的回答" in {each.text for each in desk.world.memory.entries.values()}


async def test_what_is_changed_says_what_it_says_now(desk: RouterHarness) -> None:
    reply = await desk.send_message("/memory edit tt33 Deploys happen on Mondays")

    assert "Mondays" in text_of(reply)
    assert desk.world.memory.entries["tt33"].text == "Deploys happen on Mondays"


async def test_what_is_forgotten_is_gone(desk: RouterHarness) -> None:
    text = desk.world.memory.entries["tt33"].text
    reply = await desk.send_message("/memory forget tt33")

    assert "tt33" not in desk.world.memory.entries
    assert "tt33" in text_of(reply)
    assert text not in text_of(reply), "what is answered is kept, and its words are to go"


async def test_an_order_to_forget_that_is_handled_again_is_answered_as_done(
    desk: RouterHarness,
) -> None:
    order = desk.row(desk.message("/memory forget tt33"))
    await desk.deliver(order)

    again = await desk.deliver(order)

    assert again.good
    assert "tt33 is forgotten permanently" in text_of(again)


@pytest.mark.parametrize("text", ["/memory show zz99", "/memory forget zz99", "/memory pin zz99"])
async def test_what_is_not_there_is_said_to_be_not_there(desk: RouterHarness, text: str) -> None:
    assert "No memory zz99" in text_of(await desk.send_message(text))


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
    desk: RouterHarness, text: str, told: str
) -> None:
    assert told in text_of(await desk.send_message(text))


async def test_a_candidate_is_kept_by_command(desk: RouterHarness) -> None:
    listed = await desk.send_message("/candidates")
    await desk.send_message("/candidates keep ww44")

    assert "ww44" in text_of(listed)
    assert desk.world.memory.entries["ww44"].state is MemoryState.ACTIVE


async def test_cleaning_is_for_owners_and_only_told_first(desk: RouterHarness) -> None:
    desk.world.memory.report = MemoryCleanReport(noise=[TEAMS], doubles=(), weak=(), done=False)

    refused = await desk.send_message("/memory clean")
    told = await desk.send_message("/memory clean", who="x-olga", chat="c0")
    done = await desk.send_message("/memory clean yes", who="x-olga", chat="c0")

    assert "would be deleted" not in text_of(refused)
    assert "1 memory would be deleted" in text_of(told)
    assert "/memory clean yes" in text_of(told)
    assert "exports/memory.jsonl" in text_of(done)


async def test_a_chapter_of_the_handbook_is_rewritten(desk: RouterHarness) -> None:
    chapter = make_memory(
        "hh66", "Be kind.", kind=MemoryKind.HANDBOOK, key="handbook:principles", label="Principles"
    )
    desk.world.memory.store(chapter)

    shown = await desk.send_message("/boss", who="x-olga", chat="c0")
    await desk.send_message("/boss principles Be brief.", who="x-olga", chat="c0")
    unknown = await desk.send_message("/boss nonsense Be loud.", who="x-olga", chat="c0")

    assert "Be kind." in text_of(shown)
    assert desk.world.memory.entries["hh66"].text == "Be brief."
    assert "no such chapter" in text_of(unknown)


@pytest.mark.parametrize(
    "action",
    [
        ListMemories(page=2, scope="skill:review"),
        ShowMemory(entry_id="tt33"),
        ForgetMemory(entry_id="tt33"),
        PinMemory(entry_id="tt33", pinned=True),
        DecideMemoryCandidate(entry_id="ww44", keep=False),
    ],
)
async def test_what_a_button_does_can_be_typed(desk: RouterHarness, action: ListMemories) -> None:
    reply = await desk.send_message(action.command)

    assert "usage" not in text_of(reply).lower()


def test_a_form_says_on_which_version_it_was_filled_in() -> None:
    assert SubmitMemoryEdit(entry_id="a", revision=3).revision == 3


async def test_one_of_a_list_is_opened_by_its_number(desk: RouterHarness) -> None:
    reply = await desk.send_message("/memory")
    assert reply.card is not None
    [picked] = [each for each in (await shown(desk)).blocks if isinstance(each, SelectBlock)]

    opened = await desk.press(picked.token, value=picked.options[1].value)

    assert "2. Deploys happen on Fridays" in text_of(reply)
    assert "Deploys happen on Fridays" in text_of(opened)
    assert not opened.in_place, "the list stays"


async def test_the_details_of_a_fact_are_told(desk: RouterHarness) -> None:
    desk.world.memory.store(make_memory("oo77", "Likes trains", overview="Above all night trains"))
    shown = await desk.send_message("/memory show oo77")

    assert "Above all night trains" in text_of(shown)
    assert shown.data is not None
    assert shown.data["overview"] == "Above all night trains"


async def test_a_form_to_change_a_memory_begins_with_what_it_says(desk: RouterHarness) -> None:
    opened = await desk.send_message("/memory show aa22")
    assert opened.card is not None
    [form] = [each for each in opened.card.blocks if isinstance(each, FormBlock)]

    assert form.fields[0].value == "Ann drinks tea"


@pytest.mark.parametrize("text", ["What do you remember about me?", "你记得我什么？"])
async def test_what_is_known_can_be_asked_for_in_plain_words(
    desk: RouterHarness, text: str
) -> None:
    assert "Ann drinks tea" in text_of(await desk.send_message(text))


@pytest.mark.parametrize("text", ["forget what I said about tea", "忘掉关于tea的事"])
async def test_what_is_to_be_forgotten_in_plain_words_is_asked_about_and_then_gone(
    desk: RouterHarness, text: str
) -> None:
    desk.world.memory.store(make_memory("zz88", "tea is at five", scope=ANNS.scope))
    asked = await desk.send_message(text)
    before = set(desk.world.memory.entries)
    [buttons] = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    first = await desk.press(buttons.items[0].token)

    assert {"aa22", "zz88"} <= before, "nothing is forgotten before a press"
    assert "Ann drinks tea" in text_of(asked)
    assert buttons.items[0].confirm is not None
    assert "aa22" not in desk.world.memory.entries
    assert "tea is at five" in text_of(first), "what else says so can be forgotten too"


@pytest.mark.parametrize(
    "text", ["forget it", "forget what I said about zebras", "忘了带钥匙", "忘记密码怎么办"]
)
async def test_what_names_nothing_that_is_remembered_is_talk(
    desk: RouterHarness, text: str
) -> None:
    assert topic_to_forget(text) in {"", "zebras"}
    await desk.send_message(text)

    assert [each.text for each in desk.world.talk.questions] == [text]


async def test_in_a_group_it_is_said_that_ones_own_is_shown_in_private(desk: RouterHarness) -> None:
    for text in ("/memory", "/profile", "what do you remember about me?"):
        assert "in private" in text_of(await desk.send_message(text, chat="g1"))


async def test_what_somebody_wrote_is_shown_as_it_stands(desk: RouterHarness) -> None:
    desk.world.memory.store(make_memory("ll11", "[click](http://evil.example) *now* <at id=all>"))
    for text in ("/memory", "/memory show ll11", "/memory search click"):
        reply = await desk.send_message(text)
        assert "[click](http://evil.example) *now* <at id=all>" in text_of(reply)


async def test_what_only_stands_near_what_was_found_is_folded_away(desk: RouterHarness) -> None:
    desk.world.memory.found = [
        MemoryMatch(entry=ANNS, score=1.0, is_indirect=True),
        MemoryMatch(entry=TEAMS, score=0.5),
    ]
    reply = await desk.send_message("/memory search deploying")
    assert reply.card is not None
    [folded] = [each for each in reply.card.blocks if isinstance(each, CollapsibleBlock)]

    assert isinstance(reply.card.blocks[0], TextBlock)
    assert "Ann drinks tea" not in reply.card.blocks[0].markdown
    assert "Deploys" in reply.card.blocks[0].markdown
    assert isinstance(folded.blocks[0], TextBlock)
    assert "Ann drinks tea" in folded.blocks[0].markdown


async def shown(desk: RouterHarness) -> Card:
    """The last card as it was posted, with its tokens."""
    return desk.world.post.cards[desk.world.post.sent[-1][1]]


async def test_our_own_chapters_are_read_in_ones_own_language_until_they_are_rewritten() -> None:
    desk = RouterHarness(language=Language.CHINESE)
    english, chinese = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)
    ours = make_memory(
        "hh66",
        english("mirror.default.quality"),
        kind=MemoryKind.HANDBOOK,
        key="handbook:quality",
        label="Quality",
    )
    desk.world.memory.store(ours)
    before = text_of(await desk.send_message("/手册", who="x-olga", chat="c0"))
    desk.world.memory.store(replace(ours, text="Test it twice."))
    after = text_of(await desk.send_message("/手册", who="x-olga", chat="c0"))

    assert chinese("mirror.default.quality") in before
    assert chinese("mirror.chapter.quality") in after
    assert "Test it twice." in after


async def test_a_press_on_what_is_gone_says_so_in_plain_text(desk: RouterHarness) -> None:
    await desk.send_message("/memory")
    [picked] = [each for each in (await shown(desk)).blocks if isinstance(each, SelectBlock)]
    await desk.send_message("/memory forget tt33")

    pressed = await desk.press(picked.token, value="tt33")

    assert pressed.toast == ("No memory tt33 that I can show here · /memory lists all memories.")


async def test_what_else_waits_stays_on_the_card_until_all_is_decided(desk: RouterHarness) -> None:
    desk.world.memory.store(make_memory("ww55", "Ann cycles", state=MemoryState.CANDIDATE))
    await desk.send_message("/candidates")
    rows = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    first = await desk.press(rows[0].items[0].token)
    rows = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    last = await desk.press(rows[0].items[1].token)

    assert first.in_place
    assert "Ann cycles" in text_of(first)
    assert "Saved: Ann likes it short" in text_of(first)
    assert text_of(last) == "Dropped: Ann cycles"
    assert desk.world.memory.entries["ww44"].state is MemoryState.ACTIVE
    assert desk.world.memory.entries["ww55"].state is MemoryState.REJECTED


async def test_all_that_is_about_it_is_forgotten_at_once(desk: RouterHarness) -> None:
    desk.world.memory.store(make_memory("zz88", "tea is at five", scope=ANNS.scope))
    await desk.send_message("forget what I said about tea")
    [buttons] = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]
    [everything] = [each for each in buttons.items if "All 2" in each.label]
    await desk.send_message("/memory forget aa22")

    pressed = await desk.press(everything.token)

    assert everything.confirm is not None
    assert "All 2 are forgotten" in text_of(pressed)
    assert set(desk.world.memory.entries) == {"tt33", "ww44"}


async def test_why_something_was_refused_is_seen_by_whoever_may_see_it(desk: RouterHarness) -> None:
    judged = {"admission": {"admitted": False, "why": "utility", "score": 0.41}}
    refused = replace(
        make_memory("rr55", "Ann hums", scope=MemoryScope(MemoryScopeKind.PERSON, "ann")),
        state=MemoryState.REJECTED,
        extra=judged,
    )
    turned_down = make_memory("rr66", "Ann sings", state=MemoryState.REJECTED)
    desk.world.memory.store(refused, turned_down)

    private = await desk.send_message("/memory stats")
    group = await desk.send_message("/memory stats", chat="g1")
    shown = await desk.send_message("/memory show rr55")
    listed = await desk.send_message("/memory list rejected")

    assert private.data is not None
    assert group.data is not None
    [told] = private.data["refused"]
    assert (told["id"], told["admission"]["why"]) == ("rr55", "utility")
    assert group.data["refused"] == []
    assert "of little use (score 0.41)" in text_of(shown)
    assert "Ann hums" in text_of(listed)


async def test_a_backup_is_put_back_by_owners_who_name_it(desk: RouterHarness) -> None:
    refused = await desk.send_message("/memory restore exports/a.jsonl")
    unnamed = await desk.send_message("/memory restore", who="x-olga", chat="c0")
    done = await desk.send_message("/memory restore exports/a.jsonl", who="x-olga", chat="c0")

    assert "Only an owner" in text_of(refused)
    assert "/memory restore FILE" in text_of(unnamed)
    assert "1 memory added" in text_of(done)


async def test_undo_on_the_card_of_noted_facts_leaves_the_others_on_it(desk: RouterHarness) -> None:
    words = catalog_for(Language.ENGLISH)
    card = noted_card([ANNS, TEAMS], words, zone=ZoneInfo("UTC"))
    await desk.world.post.send(
        ChatId("c1"), card, key="noted:c1:2026-11-26", urgency=DeliveryUrgency.NOTICE
    )
    [undo] = [each for each in (await shown(desk)).blocks if isinstance(each, ButtonsBlock)]

    reply = await desk.press(undo.items[0].token)

    assert ANNS.id not in desk.world.memory.entries
    assert f"{ANNS.id} is forgotten permanently" in text_of(reply).replace("`", "")
    assert TEAMS.text in text_of(reply)
    assert ANNS.text not in text_of(reply)
