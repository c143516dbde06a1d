"""Messages arrive once, and every open page shows the newest revision of every card."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bot.transports.ports import PressToast
from bot.transports.web.frames import PartialAnswer
from bot.transports.web.page_connections import SlowPage, WebTab, WebTabs
from bot.transports.web.ports import ShownCard
from cards.actions import PauseTask, SubmitTaskForm
from cards.catalog import catalog_for
from cards.model import ButtonsBlock, Card, CardButton, FormBlock, TextBlock
from storage.records.messages import IncomingChatOpen, OutboxId
from storage.records.people import Language
from tests.bot.transports.web.builders import CHAT, WebHarness, letter
from tests.waiting import wait_until

WORDS = catalog_for(Language.ENGLISH)


def card(text: str) -> Card:
    return Card(blocks=(TextBlock(markdown=text),))


async def test_a_message_is_stored_shown_and_confirmed(world: WebHarness) -> None:
    async with world.tab("zh-CN") as tab:
        await tab.send(type="say", id="message-1", text="hello")
        item = await tab.next("item")
        stored = await tab.next("stored")
    message = world.inbox.messages[0]
    assert (message.text, message.message_id, message.addressed) == ("hello", "message-1", True)
    assert (message.sender.external_id, message.sender.language) == ("local", "zh")
    assert (item["id"], item["text"]) == ("said-message-1", "hello")
    assert stored["id"] == "message-1"


async def test_a_message_sent_again_after_a_reconnect_is_handled_once(world: WebHarness) -> None:
    for _ in range(2):
        async with world.tab() as tab:
            await tab.send(type="say", id="message-1", text="pay the bill")
            assert (await tab.next("stored"))["id"] == "message-1"
    assert len(world.inbox.messages) == 1


async def test_two_pages_show_the_same(world: WebHarness) -> None:
    async with world.tab() as one, world.tab() as other:
        await other.next("past")
        await one.send(type="say", id="message-1", text="hello")
        assert (await other.next("item"))["text"] == "hello"
        await world.show(7, card("hi"))
        shown = [await page.next("item") for page in (one, other)]
    assert "hi" in shown[1]["html"]
    assert shown[1]["id"] == "card-7"


async def test_an_answer_is_shown_even_where_no_page_is_open(world: WebHarness) -> None:
    delivery = await world.transport.deliver(letter(7, card("hi")))
    assert delivery.placed.message_ids == ("card-7",)
    assert delivery.degraded == ()


async def test_what_cannot_be_shown_is_reported(world: WebHarness) -> None:
    unsealed = Card(
        blocks=(ButtonsBlock(items=(CardButton(label="x", action=PauseTask(task_id="t")),)),)
    )
    delivery = await world.transport.deliver(letter(7, unsealed))
    assert delivery.degraded == ("button without a token left out",)


async def test_a_page_that_connects_gets_the_conversation_in_order(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.send(type="say", id="message-1", text="first")
        await tab.next("stored")
    await world.show(1, card("old"))
    await world.show(1, card("new"), revision=2)
    async with world.tab() as tab:
        past = await tab.next("past")
    assert [item["id"] for item in past["items"]] == ["said-message-1", "card-1"]
    assert past["items"][1]["revision"] == 2
    assert "new" in past["items"][1]["html"]


async def test_older_messages_are_sent_page_by_page(world: WebHarness) -> None:
    world.hold_conversation(230)
    async with world.tab() as tab:
        page = await tab.next("past")
        pages = [page]
        while page["before"]:
            await tab.send(type="older", before=page["before"])
            page = await tab.next("older")
            pages.append(page)
        for rubbish in ("", "yesterday", "2026-01-01T00:00:00", None):
            await tab.send(type="older", before=rubbish)
            assert not (await tab.next("toast"))["good"]

    ids = [item["id"] for each in reversed(pages) for item in each["items"]]
    assert ids == [f"card-{number}" for number in range(1, 231)]
    assert [len(each["items"]) for each in pages] == [100, 100, 30]


async def test_pages_reconnect_to_a_new_program_and_see_what_they_missed(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        await world.stop()
    await world.start()
    await world.show(3, card("said meanwhile"))
    async with world.tab() as tab:
        assert "said meanwhile" in (await tab.next("past"))["items"][0]["html"]


async def test_an_older_revision_never_replaces_a_newer_one(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        await world.show(1, card("new"), revision=5)
        await world.transport.deliver(letter(1, card("old"), revision=4))
        await world.transport.stream(letter(1, card(""), revision=4), "older still")
        await world.show(2, card("last"))
        first = await tab.next("item")
        second = await tab.next("item")
    assert (first["revision"], second["id"]) == (5, "card-2")


async def test_an_answer_in_the_making_is_shown_and_then_replaced(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        await world.transport.stream(letter(1, card("")), "so **far**")
        partial = await tab.next("partial")
        await world.show(1, card("so far and done"), revision=2)
        final = await tab.next("item")
    assert (partial["id"], partial["revision"]) == ("card-1", 1)
    assert "<strong>far</strong>" in partial["html"]
    assert final["revision"] == 2


async def test_an_answer_in_the_making_is_not_replaced_by_the_card_it_grows_on(
    world: WebHarness,
) -> None:
    """What another front is writing may be told before the card's row has been read here."""
    begun = ShownCard(outbox_id=OutboxId(1), revision=1, card=card("so"), at=world.now())
    async with world.tab() as tab:
        await tab.next("past")
        await world.transport.stream(letter(1, card("")), "so far")
        world.transport.tabs.show_newer(begun)
        await world.show(2, card("last"))
        after = await tab.next("item")
        world.transport.tabs.show_newer(replace(begun, revision=2, card=card("so far and done")))
        final = await tab.next("item")
    assert after["id"] == "card-2"
    assert "and done" in final["html"]


async def test_a_page_opened_in_the_middle_of_an_answer_sees_it(world: WebHarness) -> None:
    await world.transport.stream(letter(1, card("")), "half")
    async with world.tab() as tab:
        assert "half" in (await tab.next("partial"))["html"]


async def test_a_press_is_answered_by_a_toast(world: WebHarness) -> None:
    world.inbox.toast_for = lambda press: PressToast(text=f"pressed {press.token}", good=False)
    async with world.tab() as tab:
        await tab.send(
            type="press", id="press-0001", card="card-1", token="tok", value="v", form={"a": "b"}
        )
        toast = await tab.next("toast")
    press = world.inbox.presses[0]
    assert (press.token, press.value, press.form) == ("tok", "v", {"a": "b"})
    assert press.message_id == "card-1"
    assert toast == {"type": "toast", "id": "press-0001", "text": "pressed tok", "good": False}


async def test_a_store_that_fails_is_told_and_the_page_goes_on(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        world.inbox.failures = math.inf
        await tab.send(type="say", id="message-1", text="hello")
        refused = await tab.next("refused")
        await tab.send(type="press", id="press-0001", token="tok")
        toast = await tab.next("toast")
        world.inbox.failures = 0
        await tab.send(type="say", id="message-1", text="hello")
        assert (await tab.next("stored"))["id"] == "message-1"
    assert refused["id"] == "message-1"
    assert "couldn't be saved" in refused["text"]
    assert toast["good"] is False
    assert world.inbox.alert_keys == ["not_stored", ""]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "not json",
        "[]",
        "null",
        "{}",
        '{"type": "say"}',
        '{"type": "say", "id": "short", "text": "x"}',
        '{"type": "say", "id": "../../../../x", "text": "x"}',
        '{"type": "say", "id": "message-1", "text": 5}',
        '{"type": "press", "id": "press-0001", "token": "%s"}' % ("x" * 100),
        '{"type": "press", "id": "press-0001", "token": "t", "form": {"a": {}}}',
        '{"type": "delete_everything", "id": "message-1"}',
        "[" * 50_000,
    ],
)
async def test_an_unknown_frame_is_answered_and_changes_nothing(
    world: WebHarness, raw: str
) -> None:
    async with world.tab() as tab:
        await tab.socket.send(raw)
        told = await tab.next("toast")
        await tab.send(type="say", id="message-2", text="still here")
        await tab.next("stored")
    assert told["good"] is False
    assert [message.text for message in world.inbox.messages] == ["still here"]


async def test_dirty_and_huge_text_arrives(world: WebHarness) -> None:
    text = "\x00\u202e\x1b" + "长" * 100_000
    async with world.tab() as tab:
        await tab.socket.send(
            json.dumps({"type": "say", "id": "message-1", "text": text + "\ud800"})
        )
        shown = await tab.next("item")
    assert world.inbox.messages[0].text == text + "?"
    assert shown["text"] == text + "?"


async def test_the_first_visit_is_an_entry_and_later_ones_are_not(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        await tab.send(type="say", id="message-1", text="hello")
        await tab.next("stored")
    async with world.tab() as tab:
        await tab.next("past")
    entries = [entry for entry in world.inbox.accepted if isinstance(entry, IncomingChatOpen)]
    assert len(entries) == 1


async def test_work_going_on_is_shown(world: WebHarness) -> None:
    async with world.tab() as tab:
        await tab.next("past")
        await world.transport.show_typing(CHAT)
        await tab.next("working")


async def test_what_is_wrong_with_other_channels_is_shown_and_taken_away(world: WebHarness) -> None:
    world.alerts.current = ["the token is wrong"]
    async with world.tab("zh") as tab:
        assert (await tab.next("alerts"))["lines"] == ["zh: the token is wrong"]
        world.alerts.current = []
        world.transport.refresh_alerts()
        assert (await tab.next("alerts"))["lines"] == []


async def test_the_language_that_a_page_shows_counts_more_than_its_handshakes_header(
    world: WebHarness,
) -> None:
    world.alerts.current = ["the token is wrong"]
    async with world.tab("en", shown="zh") as chinese, world.tab("zh", shown="xx") as unknown:
        assert (await chinese.next("alerts"))["lines"] == ["zh: the token is wrong"]
        assert (await unknown.next("alerts"))["lines"] == ["zh: the token is wrong"]
        await wait_until(lambda: len(world.languages) == 2)
    assert world.languages == [Language.CHINESE] * 2


async def test_the_page_speaks_the_readers_language(world: WebHarness) -> None:
    async with world.browser() as browser:
        chinese = await browser.get("/", headers={"accept-language": "zh-TW,zh;q=0.9,en;q=0.8"})
        english = await browser.get("/", headers={"accept-language": "fr,en;q=0.8,zh;q=0.7"})
        odd = await browser.get("/", headers={"accept-language": ";;q=x,*"})
        browser.cookies.set("shiftboss_lang", "en")
        switched = await browser.get("/", headers={"accept-language": "zh"})
    assert 'lang="zh"' in chinese.text
    assert "开始一个任务" in chinese.text
    assert ["Start a task" in page.text for page in (english, odd, switched)] == [True] * 3


async def test_the_menu_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    world = WebHarness(tmp_path)
    world.settings["menu"] = lambda _language: (("x", "</script><script>alert(1)</script>"),)
    await world.start()
    async with world.browser() as browser:
        page = (await browser.get("/")).text
    await world.stop()
    assert "<script>alert" not in page


async def test_updates_in_quick_order_are_sent_as_one() -> None:
    rested = asyncio.Event()
    going = asyncio.Event()

    async def rest(_seconds: float) -> None:
        rested.set()
        await going.wait()

    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    tabs, tab = WebTabs(), WebTab(WORDS, rest)
    tabs.add(tab)
    feeding = asyncio.create_task(tab.feed(send))
    now = WebHarness(Path()).now()

    def show(revision: int) -> None:
        tabs.show(
            ShownCard(outbox_id=OutboxId(1), revision=revision, card=card(f"r{revision}"), at=now)
        )

    show(1)
    await rested.wait()
    rested.clear()
    for revision in (2, 3, 4):
        show(revision)
    going.set()
    await rested.wait()
    feeding.cancel()
    await asyncio.wait([feeding])

    assert [json.loads(text)["revision"] for text in sent] == [1, 4]


async def test_a_page_that_stopped_reading_is_cut_off() -> None:
    tabs, tab = WebTabs(), WebTab(WORDS, asyncio.sleep)
    tabs.add(tab)
    now = WebHarness(Path()).now()
    for number in range(1_001):
        tabs.show_partial(
            PartialAnswer(outbox_id=OutboxId(number), revision=1, markdown="", at=now)
        )

    async def send(text: str) -> None:
        raise AssertionError(text)

    with pytest.raises(SlowPage):
        await tab.feed(send)


async def test_a_form_on_a_card_reaches_the_page(world: WebHarness) -> None:
    form = FormBlock(fields=(), submit="Go", action=SubmitTaskForm(), token="tokentokento")
    async with world.tab() as tab:
        await tab.next("past")
        await world.show(1, Card(blocks=(form,)))
        assert 'data-token="tokentokento"' in (await tab.next("item"))["html"]
