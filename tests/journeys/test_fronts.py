"""Several fronts on one store: each serves the web and hears Feishu, and either may die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.models.script import ScriptedReply
from tests.journeys.model_world import (
    ModelWorld,
    held_reply,
    paused_answer,
    plan_reply,
    step_reply,
    wait_for_message,
)
from tests.journeys.program import ShiftbossProcess
from tests.journeys.test_machines import cluster
from tests.journeys.web_page import WebPageClient, open_web_page
from tests.postgresql_server import create_database, execute
from tests.thoroughness import THOROUGH
from tests.waiting import WAIT_SECONDS, wait_until

_LONG_ANSWER = (
    "The heron is here, and it has been standing there on one leg and without a move,"
    " beside the reeds and in the rain, all day."
)


async def test_each_front_serves_and_either_may_die(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with cluster(tmp_path / "home", url) as (world, start):
        second = await start("front", "--name", "f2")
        for name in ("w1", "w2"):
            await start("worker", "--name", name, "--slots", "2")
        await world.feishu.wait_for_connections(2)
        assert await leases(world.program) == ["front"]
        assert await leases(second) == []

        await pages_of_both_fronts_show_one_conversation(world, second)
        await pages_make_up_for_what_a_cut_connection_missed(world, second, url)
        await events_on_either_connection_are_answered_once(world, url)

        # What arrives while nobody leads is kept by the front that is left.
        boss, chat = world.new_owner()
        await world.program.kill()
        async with open_web_page(second) as page:
            await page.send_message("who is there, heron?")
            said = await world.feishu_owner.says(world.feishu_chat, "are you back, crane?")
            await page.next_frame("item", "heron is here")
        await wait_answers(world, "crane is back")
        assert await leases(second) == ["front"]
        await boss.says(chat, "/task the hen")
        await wait_for_message(chat, "hen", "Task finished")

        if THOROUGH:
            await world.program.start()
            await world.feishu.wait_for_connections(2)
            await second.kill()
            async with open_web_page(world.program) as page:
                await page.send_message("and who is there now, heron?")
                await page.next_frame("item", "heron is here")
        assert len(answers(world, "crane is back")) == 1, said
        await wait_until(lambda: not execute(url, "SELECT 1 FROM inbox WHERE state = 'new'"))
        await wait_until(lambda: not execute(url, "SELECT 1 FROM inbox_replies"))


async def pages_of_both_fronts_show_one_conversation(
    world: ModelWorld, second: ShiftbossProcess
) -> None:
    answer, rest = paused_answer(_LONG_ANSWER)
    world.script.script("heron", "talk", answer, *[ScriptedReply(text="The heron is here.")] * 2)
    go = asyncio.Event()
    world.script.script("the owl", "plan", plan_reply("read", "write"))
    world.script.script(
        "the owl", "step", held_reply(step_reply("read it"), go), step_reply("wrote it")
    )
    async with open_web_page(world.program) as first_page, open_web_page(second) as page:
        # The answer is shown while it is being written, also where it is not being written.
        await page.send_message("where is the heron?")
        await page.next_frame("partial", "heron is here")
        rest.set()
        await page.next_frame("item", "all day")
        await first_page.next_frame("item", "heron is here")

        # A button works once, whichever front it is pressed on, and each gets its toast; on a
        # machine that is too busy for one, the result comes as a card.
        await first_page.send_message("/run the owl")
        await world.script.wait_for_request("the owl")
        live = await page.next_frame("item", "Pause")
        toasts = [await press(each, live, "Pause") for each in (page, first_page)]
        refused = [each for each in toasts if "already pressed" in each["text"]]
        if not refused:
            await first_page.next_frame("item", "already pressed")
        assert len(refused) <= 1, toasts
        assert not any(each["good"] for each in refused)
        go.set()
        paused = await first_page.next_frame("item", "Resume")
        await press(page, paused, "Resume")
        await page.next_frame("item", "Task finished")

        # A program asks that front, and is answered there.
        told = await say(second, "/list")
        assert "the owl" in str(told["cards"])


async def pages_make_up_for_what_a_cut_connection_missed(
    world: ModelWorld, second: ShiftbossProcess, url: str
) -> None:
    answer, rest = paused_answer(_LONG_ANSWER.replace("heron", "egret"))
    world.script.script("egret", "talk", answer)
    async with open_web_page(world.program) as first_page, open_web_page(second) as page:
        await page.next_frame("past")
        cutting = asyncio.create_task(cut_listeners(url))
        await first_page.send_message("where is the egret?")
        await first_page.next_frame("partial", "egret is here")
        cutting.cancel()
        await page.next_frame("partial", "egret is here")
        rest.set()
        await page.next_frame("item", "all day")

        # As if they were signed out where nobody could tell it.
        execute(url, "DELETE FROM web_sessions")
        await first_page.wait_closed()
        await page.wait_closed()


async def cut_listeners(url: str) -> None:
    """Again and again: nobody hears anything but in moments."""
    while True:
        await asyncio.to_thread(
            execute,
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'shiftboss-listen'",
        )
        await asyncio.sleep(0.1)


async def events_on_either_connection_are_answered_once(world: ModelWorld, url: str) -> None:
    world.script.script("crane", "talk", *[ScriptedReply(text="The crane is back.")] * 3)
    world.script.script("stork", "talk", *[ScriptedReply(text="A stork, too.")] * 9)
    for front in (0, 1):
        world.feishu.long.next_on = [front]
        await world.feishu_owner.says(world.feishu_chat, f"is stork {front} there?")
        push = world.feishu.pushes[-1]
        await push.acked
        # The platform may send it again although it was acknowledged, to another front.
        world.feishu.long.next_on = [1 - front]
        await world.feishu.long.redeliver(push).acked
        await wait_answers(world, "A stork", front + 1)
    stored = "SELECT count(*) FROM inbox WHERE channel = 'feishu' AND CAST(incoming AS text) LIKE"
    assert execute(url, f"{stored} '%stork%'") == [(2,)]
    assert len(answers(world, "A stork")) == 2


async def press(page: WebPageClient, card: dict[str, Any], label: str) -> dict[str, Any]:
    """The toast."""
    await page.press(card["html"], label)
    return await page.next_frame("toast")


def answers(world: ModelWorld, part: str) -> list[FeishuMessage]:
    return [each for each in world.feishu_chat.from_bot if part in each.text]


async def wait_answers(world: ModelWorld, part: str, count: int = 1) -> None:
    await wait_until(lambda: len(answers(world, part)) >= count)


async def leases(front: ShiftbossProcess) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
        answer = await client.get(httpx.URL(front.address).join("/healthz"))
        return list(answer.json()["leases"])


async def say(front: ShiftbossProcess, text: str) -> dict[str, object]:
    where = httpx.URL(front.address)
    key = {"authorization": f"Bearer {where.params['token']}"}
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
        answer = await client.post(where.join("/api/say"), json={"text": text}, headers=key)
        return dict(answer.raise_for_status().json())
