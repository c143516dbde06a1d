from __future__ import annotations

from cards.model import Button, Buttons, Card
from storage.records.memory.entries import Scope, ScopeKind
from storage.records.memory.shown import CleanReport
from tests.handlers.desk import Desk, text_of
from tests.memory_fake import an_entry

TEAMS = an_entry("tt33", "Deploys happen on Fridays")
ANNS = Scope(ScopeKind.PERSON, "ann")


async def test_an_import_says_which_lines_were_not_read_and_why_and_that_it_works_on_it() -> None:
    desk = Desk()

    reply = await desk.deliver(desk.row(desk.message("/memory import")), ("files/a.jsonl",))

    assert "3, 8 (no text)" in text_of(reply)
    assert "5 (not JSON)" in text_of(reply)
    assert [said for _, said in desk.world.post.streamed] == ["⏳ Reading it in: 100 of 200"]


async def test_what_a_cleaning_would_do_is_done_by_an_owners_press() -> None:
    desk = Desk()
    desk.world.memory.report = CleanReport(noise=[TEAMS], doubles=(), weak=(), done=False)
    await desk.say("/memory clean", who="x-olga", chat="c0")
    [button] = buttons_of(await shown(desk))

    done = await desk.press(button.token, who="x-olga", chat="c0")

    assert button.confirm is not None
    assert "backup of everything" in button.confirm.text
    assert done.in_place
    assert "exports/memory.jsonl" in text_of(done)
    assert buttons_of(await shown(desk)) == []


async def test_a_press_to_forget_what_says_something_else_by_now_forgets_nothing() -> None:
    desk = Desk()
    desk.world.memory.keep(TEAMS)
    await desk.say("/memory show tt33")
    [forget] = [each for each in buttons_of(await shown(desk)) if "Forget" in each.label]
    await desk.say("/memory edit tt33 Deploys happen on Mondays")

    pressed = await desk.press(forget.token)

    assert not pressed.good
    assert "was changed meanwhile" in pressed.toast
    assert "tt33" in desk.world.memory.known


async def test_of_all_that_is_to_be_forgotten_nothing_goes_that_was_not_shown() -> None:
    desk = Desk()
    desk.world.memory.keep(
        an_entry("aa22", "Ann drinks tea", scope=ANNS),
        an_entry("bb33", "tea is at five", scope=ANNS),
    )
    await desk.say("forget what I said about tea")
    [everything] = [each for each in buttons_of(await shown(desk)) if "All 2" in each.label]
    await desk.say("/memory edit bb33 supper is at six")

    pressed = await desk.press(everything.token)

    assert "was changed meanwhile" in pressed.toast
    assert "bb33" in desk.world.memory.known


def buttons_of(card: Card) -> list[Button]:
    return [item for each in card.blocks if isinstance(each, Buttons) for item in each.items]


async def shown(desk: Desk) -> Card:
    """The last card as it was posted, with its tokens."""
    return desk.world.post.cards[desk.world.post.sent[-1][1]]
