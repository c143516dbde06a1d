"""Platforms that misbehave, doors that close, and things nobody should send."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError
from tests.emulators.feishu.tenant import FeishuChat
from tests.emulators.telegram.faults import DropBeforeFault, RateLimitFault, ServerErrorFault
from tests.journeys.model_world import (
    ScriptedModel,
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.platform_world import PlatformWorld, platform_world
from tests.journeys.program_store import open_store
from tests.journeys.web_page import send_frames
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS


def script_slow_task(stage: ScriptedModel) -> tuple[asyncio.Event, asyncio.Event]:
    """`work-cue` has three steps, of which two are under way until they are let go."""
    first, second = asyncio.Event(), asyncio.Event()
    stage.script("work-cue", "plan", plan_reply("write a", "hold on", "hold on more"))
    stage.script(
        "work-cue",
        "step",
        write_call("a.txt", "a"),
        step_reply("A.", "a.txt"),
        held_reply(step_reply("Held."), first),
        held_reply(step_reply("Held more."), second),
    )
    return first, second


async def test_a_rate_limit_during_a_task_delays_messages_and_loses_none(
    tmp_path: Path,
) -> None:
    async with scripted_model() as (stage, access), platform_world(tmp_path, **access) as here:
        first, second = script_slow_task(stage)
        await here.telegram_owner.says(here.telegram_chat, "/run work-cue")
        await here.telegram_chat.wait_for(lambda m: "📍 hold on" in m.text)
        here.telegram.inject_fault("editMessageText", RateLimitFault(retry_after=3))
        first.set()
        await here.telegram.wait_for_call("editMessageText", lambda call: call.status == 429)
        here.telegram.inject_fault("sendMessage", ServerErrorFault())
        here.telegram.inject_fault("sendMessage", DropBeforeFault())
        second.set()
        await here.telegram_chat.wait_for_text("Task finished")
        await here.telegram_chat.wait_for(lambda m: bool(m.edits) and "3/3" in m.text)

        assert await here.program.stop() == 0
        here.telegram.redeliver()
        await here.program.start()
        await here.telegram_owner.says(here.telegram_chat, "/list")
        await here.telegram_chat.wait_for_text("Tasks (1)")

    assert here.telegram.violations == 0
    assert sum("Task finished" in m.text for m in here.telegram_chat.from_bot) == 1
    assert sum("▓" in m.text for m in here.telegram_chat.from_bot) == 1


@thorough_only
async def test_repeated_failures_and_redeliveries_on_feishu_show_everything_once(
    tmp_path: Path,
) -> None:
    async with scripted_model() as (stage, access), platform_world(tmp_path, **access) as here:
        first, second = script_slow_task(stage)
        first.set()
        fs = here.feishu
        fs.long.split_into = 3
        refusal = FeishuApiError(230099, "Failed to create card content, ext=ErrCode: 11310; bad")
        fs.inject_fault("POST", "/im/v1/messages", error=refusal)
        await here.ask_on_feishu("/help", expects="/run")  # a refused card comes as text
        await here.feishu_owner.says(here.feishu_chat, "/run work-cue")
        await here.feishu_chat.wait_for(lambda m: "📍 hold on more" in m.text)
        fs.tokens.expire_all()
        fs.inject_fault("POST", "/im/v1/messages", status=502, raw=b"<html>no</html>")
        fs.inject_fault("POST", "/im/v1/messages", cut=ConnectionCut.AFTER)
        await fs.long.drop_connections(abrupt=True)
        second.set()
        await here.feishu_chat.wait_for(lambda m: "Task finished" in m.text)
        await fs.wait_for_connections()
        await redeliver_all(fs)
        await here.program.kill()
        await here.program.start()
        await fs.wait_for_connections()
        await redeliver_all(fs)
        await here.feishu_owner.says(here.feishu_chat, "/list")
        await wait_for_feishu_text(here.feishu_chat, "Tasks (1)")
        await wait_for_feishu_file(here.feishu_chat)

    assert count_messages(here.feishu_chat, "Task finished") == 1
    assert count_messages(here.feishu_chat, "Tasks (1)") == 1


async def test_a_result_reaches_the_owner_when_its_chat_is_closed(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with scripted_model() as (stage, access), platform_world(tmp_path, **access) as here:
        stage.script("plum", "plan", plan_reply("pick"))
        stage.script("plum", "step", held_reply(step_reply("Picked."), go))
        await here.ask("/start")
        await here.ask_on_feishu("/start")
        team, forum = here.telegram.group("Team"), here.telegram.group("Forum", forum=True)
        floor = here.feishu.group("Floor")
        topic = here.telegram.topic(forum, "Work")
        await here.telegram_owner.says(team, "/run plum", mention=True)
        await here.telegram_owner.says(forum, "/run plum", mention=True, thread=topic)
        await here.feishu_owner.says(floor, "/run plum", mentions=["bot"])
        await team.wait_for_text("plum")
        await forum.wait_for_text("plum")
        await floor.wait_for(lambda m: "plum" in m.text)

        team.block()
        here.telegram.close_topic(forum, topic)
        await here.feishu_owner.removes_bot(floor)
        go.set()

        ended = await forum.wait_for_text("Task finished")
        assert ended.thread is None, "the topic is gone, the group is not"
        for name in ("Team", "Floor"):
            note = f"can no longer write to {name}"
            await here.telegram_chat.wait_for_text(note)
            await wait_for_feishu_text(here.feishu_chat, note)

    assert sum("Task finished" in m.text for m in here.telegram_chat.from_bot) == 2
    assert count_messages(here.feishu_chat, "Task finished") == 2


async def test_the_operator_is_told_what_is_wrong_and_where_to_fix_it(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask("/start")
        here.telegram.revoke_token()
        await here.program.wait_for_output("rejected the bot token")
        await here.ask_on_feishu("/status", expects="rejected the bot token")
        here.feishu.rates.quota = here.feishu.rates.calls
        await here.feishu_owner.says(here.feishu_chat, "/list")
        await here.program.wait_for_output("Feishu API calls are used up")
        status, said = await here.program.run_to_end("say", "/status")

    assert status == 0
    assert "rejected the bot token" in said
    assert "Feishu API calls are used up" in said
    assert "Traceback" not in here.program.printed


@thorough_only
async def test_unexpected_platform_events_harm_nothing(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await send_unexpected_events(here)
        for odd in ("\u200b", "\u202e\u202d", "  \n ", "x\x00\x07\x1b[31m", "👍", "א\u200fب", "ok"):
            assert (await here.ask_on_feishu(odd)).strip()
        frames = [
            say_frame(f"over-ws-{n}", text) for n, text in enumerate(("\ud800 half", "y" * 100_000))
        ]
        answers = await send_frames(here.program, *frames)
        assert [answer["type"] for answer in answers] == ["stored", "stored"]
        await here.ask("／LIST@shiftboss_bot   ", expects="Tasks (0)")
        await here.ask_on_feishu("/列表", expects="Tasks (0)")
        long = "write to plum.txt:\n" + "\n".join(["plums and pears"] * 1250)
        await here.telegram_owner.says(here.telegram_chat, f"/run {long}")
        await here.telegram_chat.wait_for(lambda m: m.upload is not None)
        await here.ask("/list", expects="Tasks (1)")  # one order, however many messages
        assert instructions(tmp_path) == [long]

        groups = [here.telegram.group(f"Group {n}") for n in range(15)]
        for group in groups:
            await here.telegram_owner.says(group, "/list", mention=True)
        await here.telegram.wait_until(lambda: all(group.from_bot for group in groups))

    assert [len(group.from_bot) for group in groups] == [1] * len(groups)


async def test_an_internal_error_is_logged_under_the_incident_id_on_the_card(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask("/start")
        with open_store(tmp_path) as store:
            store.execute("ALTER TABLE usage RENAME TO gone")
        shown = await here.ask("/cost")
        incident = re.search(r"\b[0-9a-f]{8}\b", shown)
        assert incident, shown
        await here.program.wait_for_output(f"incident={incident[0]}")
        await here.program.wait_for_output("Traceback")
        assert "usage" not in shown, "people are not shown the insides"
        await here.ask("/list", expects="Tasks (0)")  # the rest goes on


def instructions(home: Path) -> list[str]:
    with open_store(home) as store:
        return [text for (text,) in store.execute("SELECT instruction FROM tasks")]


async def send_unexpected_events(here: PlatformWorld) -> None:
    """Things that are no message, on both platforms."""
    sender, world = here.telegram_owner.as_json(), here.telegram_chat.as_json()
    base = {"message_id": 9000, "from": sender, "chat": world, "date": 1}
    put = here.telegram.world.updates.put
    put("message", {"message_id": 9001, "date": 5})
    put("message", {**base, "pinned_message": {**base, "text": "x"}})
    put("callback_query", {"id": "77", "from": sender, "chat_instance": "1", "data": "x"})
    here.telegram.unknown_update(business={"a": [1]})
    fs = here.feishu
    for kind in ("im.message.receive_v1", "card.action.trigger", "nobody.knows_v9"):
        push = fs.push_event(kind, {"message": 5, "action": [], "operator": None})
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await asyncio.shield(push.acked))["code"] == 200
    await fs.long.send_raw(b"\x00\xff garbage")
    await fs.long.send_raw("text where frames belong")


async def redeliver_all(fs: FeishuEmulator) -> None:
    """Everything pushed so far, once more, and taken."""
    pushes = [fs.push(push.body) for push in list(fs.pushes)]
    for push in pushes:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.shield(push.acked)


async def wait_for_feishu_text(chat: FeishuChat, text: str) -> None:
    await chat.wait_for(lambda m: text in f"{m.header}\n{m.text}")


async def wait_for_feishu_file(chat: FeishuChat) -> None:
    await chat.wait_for(lambda m: m.msg_type == "file")


def count_messages(chat: FeishuChat, text: str) -> int:
    return sum(text in f"{m.header}\n{m.text}" for m in chat.from_bot)


def say_frame(number: str, text: str) -> str:
    frame: dict[str, Any] = {"type": "say", "id": number, "text": text}
    return json.dumps(frame)
