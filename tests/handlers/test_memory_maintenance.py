from __future__ import annotations

from cards.model import ButtonsBlock, Card, CardButton
from storage.records.memory import MemoryCleanReport, MemoryScope, MemoryScopeKind
from tests.fakes.memory import make_memory
from tests.handlers.router_harness import RouterHarness, text_of

TEAMS = make_memory("tt33", "Deploys happen on Fridays")
ANNS = MemoryScope(MemoryScopeKind.PERSON, "ann")


async def test_an_import_says_which_lines_were_not_read_and_why_and_that_it_works_on_it() -> None:
    desk = RouterHarness()

    reply = await desk.deliver(desk.row(desk.message("/memory import")), ("files/a.jsonl",))

    assert "3, 8 (no text)" in text_of(reply)
    assert "5 (not JSON)" in text_of(reply)
    assert [said for _, said in desk.world.post.streamed] == ["⏳ Importing: 100 of 200"]


async def test_what_a_cleaning_would_do_is_done_by_an_owners_press() -> None:
    desk = RouterHarness()
    desk.world.memory.report = MemoryCleanReport(noise=[TEAMS], doubles=(), weak=(), done=False)
    await desk.send_message("/memory clean", who="x-olga", chat="c0")
    [button] = buttons_of(await shown(desk))

    done = await desk.press(button.token, who="x-olga", chat="c0")

    assert button.confirm is not None
    assert "Everything is backed up" in button.confirm.text
    assert done.in_place
    assert "exports/memory.jsonl" in text_of(done)
    assert buttons_of(await shown(desk)) == []


async def test_a_press_to_forget_what_says_something_else_by_now_forgets_nothing() -> None:
    desk = RouterHarness()
    desk.world.memory.store(TEAMS)
    await desk.send_message("/memory show tt33")
    [forget] = [each for each in buttons_of(await shown(desk)) if "Forget" in each.label]
    await desk.send_message("/memory edit tt33 Deploys happen on Mondays")

    pressed = await desk.press(forget.token)

    assert not pressed.good
    assert "has changed in the meantime" in pressed.toast
    assert "tt33" in desk.world.memory.entries


async def test_of_all_that_is_to_be_forgotten_nothing_goes_that_was_not_shown() -> None:
    desk = RouterHarness()
    desk.world.memory.store(
        make_memory("aa22", "Ann drinks tea", scope=ANNS),
        make_memory("bb33", "tea is at five", scope=ANNS),
    )
    await desk.send_message("forget what I said about tea")
    [everything] = [each for each in buttons_of(await shown(desk)) if "All 2" in each.label]
    await desk.send_message("/memory edit bb33 supper is at six")

    pressed = await desk.press(everything.token)

    assert "has changed in the meantime" in pressed.toast
    assert "bb33" in desk.world.memory.entries


def buttons_of(card: Card) -> list[CardButton]:
    return [item for each in card.blocks if isinstance(each, ButtonsBlock) for item in each.items]


async def shown(desk: RouterHarness) -> Card:
    """The last card as it was posted, with its tokens."""
    return desk.world.post.cards[desk.world.post.sent[-1][1]]
