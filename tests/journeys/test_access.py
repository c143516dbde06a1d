"""Who may do what: strangers, members and owners on both platforms, and what groups read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage
from tests.journeys.platform_world import (
    ask_on_feishu_as,
    ask_on_telegram_as,
    code_in,
    label,
    labels,
    platform_world,
    press_outcome,
    token,
)
from tests.thoroughness import thorough_only


async def test_a_stranger_is_admitted_by_one_owners_decision(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask("/start")
        await here.ask_on_feishu("/start")
        eve, kim = here.telegram.user(8, "**Eve** [pay](http://x.y)"), here.feishu.user("Kim")
        door, gate = here.telegram.private_chat(eve), here.feishu.private_chat(kim)

        # Whatever strangers send, all they get is a code, once; nothing of theirs is fetched.
        await eve.sends_document(door, "evil.txt", b"boo", caption="/run rm -rf")
        for text in ("/pair AAAA2222", "/help", "通过"):
            await eve.says(door, text)
        code = code_in((await door.wait_for_text("Pairing code")).text)
        other = code_in(await ask_on_feishu_as(kim, gate, "hello, let me in"))
        request = await here.telegram_chat.wait_for(lambda m: "Eve" in m.text)
        card = await here.feishu_chat.wait_for(lambda m: code in m.text)
        assert (len(door.from_bot), len(gate.from_bot)) == (1, 1)
        assert here.telegram.calls_of("getFile") == []
        assert not request.texts_of_entity("text_link"), "a name is not markup"

        # Two owners decide at the same moment: one of them did.
        yes, no = await asyncio.gather(
            here.telegram_owner.presses(request, label(request, "Approve")),
            here.feishu_owner.presses(card, label(card, "Reject")),
        )
        assert (yes.text, no.toast) != ("✅ Approved", "❌ Rejected")
        await here.telegram.wait_until(lambda: len(door.from_bot) == 2)
        await here.telegram_chat.wait_until(lambda: not request.buttons)
        await here.feishu_chat.wait_for(lambda m: m is card and not m.buttons)
        decided = [word for word in ("Approved", "Rejected") if word in request.text]
        assert len(decided) == 1
        assert decided[0] in f"{card.header} {card.text}"
        await here.ask(f"/pair {code}", expects="No such pairing code")  # a code works once

        # Codes may be typed as people type them.
        typed = f"{other[:4].lower()} - {other[4:].lower()}"
        await here.ask_on_feishu(f"/pair {typed}", expects="Kim now has access")
        await gate.wait_for(lambda m: "You have access" in m.header)


async def test_members_see_and_control_only_their_own_tasks(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        eve, zoe = here.telegram.user(8, "Eve"), here.telegram.user(9, "Zoe")
        hers, door = here.telegram.private_chat(eve), here.telegram.private_chat(zoe)
        await here.ask(f"/pair {code_in(await ask_on_telegram_as(eve, hers, 'hello'))}")
        await hers.wait_for_text("You have access")
        knock = code_in(await ask_on_telegram_as(zoe, door, "hello"))
        live = await here.start_task("/run wait 9 minutes")
        private = next(line for line in live.text.splitlines() if "·" in line).split()[0].strip("`")
        asks = await here.telegram_chat.wait_for(lambda m: "Zoe" in m.text)
        request = asks.text.partition("/approve ")[2][:6]

        for order in (f"get {private[:4]}", f"stop {private}", f"priority {private} urgent"):
            await ask_on_telegram_as(eve, hers, f"/{order}", expects="No such task")
        for order in (f"/pair {knock}", f"/approve {request}"):
            await ask_on_telegram_as(eve, hers, order, expects="You can't do that")
        assert "wait 9 minutes" not in await ask_on_telegram_as(eve, hers, "/status")
        await ask_on_telegram_as(eve, hers, "/list", expects="Tasks (0)")
        press = eve.press(hers.last, "", token(live, "Pause"))

        assert "another chat" in await press_outcome(press, "another chat")
        assert labels(live, "Pause"), "it runs on"
        await here.ask_on_feishu("/list", expects="wait 9 minutes")  # owners see all, in private


async def test_a_group_sees_nothing_of_a_private_chat(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        team = here.telegram.group("Team")
        floor = here.feishu.group("Floor")
        live = await here.start_task('/run wait 8 minutes, then write "plum" to secret.txt')
        private = next(line for line in live.text.splitlines() if "·" in line).split()[0].strip("`")
        zoe = here.telegram.user(9, "Zoe")
        code = code_in(await ask_on_telegram_as(zoe, here.telegram.private_chat(zoe), "hello"))

        orders = ("/list", "/status", "/approvals", "/pair", f"/get {private}")
        read = [await here.ask_on_feishu(order, chat=floor, mentions=["bot"]) for order in orders]
        read.append(await here.ask("/list", chat=team, mention=True))
        assert not [text for text in read if "secret" in text or "Zoe" in text or code in text]

        # Strangers in it are told where to begin, once, whatever they forward or press.
        yan = here.telegram.user(10, "Yan")
        await yan.says(team, "/list", mention=True, forwarded=True)
        await yan.says(team, "/stop", mention=True)
        told = await team.wait_for_text("private chat to get")
        pressed = yan.press(told, "", token(live, "Pause"))
        assert "have access yet" in await press_outcome(pressed, "have access yet")
        assert "wait 7 minutes" in await here.ask(
            "/run wait 7 minutes", chat=team, mention=True, expects="wait 7 minutes"
        ), "the group has its own tasks"
        listed = await here.ask("/list", chat=team, mention=True)
        assert "wait 7 minutes" in listed
        assert "wait 8 minutes" not in listed


@thorough_only
async def test_many_pairing_requests_do_not_flood_the_owner(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask_on_feishu("/start")
        crowd = [here.telegram.user(1000 + n, f"S{n}") for n in range(40)]
        doors = [here.telegram.private_chat(one) for one in crowd]
        for one, door in zip(crowd, doors, strict=True):
            await one.says(door, "let me in")
            await one.says(door, "hello?")
        await here.telegram_owner.says(here.telegram_chat, "/status")
        await here.telegram_chat.wait_for_text("Shiftboss status")
        await here.telegram.wait_until(lambda: all(door.from_bot for door in doors))
        await here.feishu_chat.wait_for(lambda m: "more pairing requests" in m.text)
        await here.feishu_chat.wait_for(lambda _: len(cards(here.feishu_chat)) == 10)
        shown = [code for door in doors if (code := code_in(door.last.text))]
        await here.ask_on_feishu("/pair", expects="Pairing requests (40)")

    assert len(set(shown)) == len(crowd), "everybody has a code of their own"
    assert [len(door.from_bot) for door in doors] == [1] * len(crowd)
    assert len(cards(here.feishu_chat)) == 10


def cards(chat: FeishuChat) -> list[FeishuMessage]:
    return [message for message in chat.from_bot if "asks for access" in message.text]
