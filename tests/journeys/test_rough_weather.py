"""Platforms that misbehave, doors that close, and things nobody should send."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.emulators.feishu.faults import ApiError, Cut
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat as FeishuChat
from tests.emulators.telegram.mischief import DropBefore, RateLimit, ServerError
from tests.journeys.model_world import Stage, done, held, staged, steps, writes
from tests.journeys.town import PATIENCE, Town, over_the_socket, town
from tests.thorough import long

LONG = 60.0


def slow_work(stage: Stage) -> tuple[asyncio.Event, asyncio.Event]:
    """`work-cue` has three steps, of which two are under way until they are let go."""
    first, second = asyncio.Event(), asyncio.Event()
    stage.on("work-cue", "plan", steps("write a", "hold on", "hold on more"))
    stage.on(
        "work-cue",
        "step",
        writes("a.txt", "a"),
        done("A.", "a.txt"),
        held(done("Held."), first),
        held(done("Held more."), second),
    )
    return first, second


async def test_a_flood_limit_in_the_middle_delays_the_answer_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async with staged() as (stage, access), town(tmp_path, **access) as here:
        first, second = slow_work(stage)
        await here.boss.says(here.home, "/run work-cue")
        await here.home.wait_for(lambda m: "📍 hold on" in m.text, timeout=PATIENCE)
        here.telegram.misbehave("editMessageText", RateLimit(retry_after=3))
        first.set()
        await here.telegram.wait_for_call(
            "editMessageText", lambda call: call.status == 429, timeout=PATIENCE
        )
        here.telegram.misbehave("sendMessage", ServerError())
        here.telegram.misbehave("sendMessage", DropBefore())
        second.set()
        await here.home.wait_for_text("Task finished", timeout=LONG)
        await here.home.wait_for(lambda m: bool(m.edits) and "3/3" in m.text, timeout=LONG)

        assert await here.shiftboss.stop() == 0
        here.telegram.redeliver()
        await here.shiftboss.start()
        await here.boss.says(here.home, "/list")
        await here.home.wait_for_text("Tasks (1)", timeout=LONG)

    assert here.telegram.violations == 0
    assert sum("Task finished" in m.text for m in here.home.from_bot) == 1
    assert sum("▓" in m.text for m in here.home.from_bot) == 1


@long
async def test_a_storm_on_feishu_shows_everything_once(tmp_path: Path) -> None:
    async with staged() as (stage, access), town(tmp_path, **access) as here:
        first, second = slow_work(stage)
        first.set()
        fs = here.feishu
        fs.long.split_into = 3
        refusal = ApiError(230099, "Failed to create card content, ext=ErrCode: 11310; bad")
        fs.misbehave("POST", "/im/v1/messages", error=refusal)
        await here.ask_chief("/help", expects="/run")  # a refused card comes as text
        await here.chief.says(here.office, "/run work-cue")
        await here.office.wait_for(lambda m: "📍 hold on more" in m.text, timeout=PATIENCE)
        fs.tokens.expire_all()
        fs.misbehave("POST", "/im/v1/messages", status=502, raw=b"<html>no</html>")
        fs.misbehave("POST", "/im/v1/messages", cut=Cut.AFTER)
        await fs.long.drop(abrupt=True)
        second.set()
        await here.office.wait_for(lambda m: "Task finished" in m.text, timeout=LONG)
        await fs.connected(timeout=LONG)
        await again(fs)
        await here.shiftboss.kill()
        await here.shiftboss.start()
        await fs.connected(timeout=LONG)
        await again(fs)
        await here.chief.says(here.office, "/list")
        await heard(here.office, "Tasks (1)")
        await heard_file(here.office)

    assert told(here.office, "Task finished") == 1
    assert told(here.office, "Tasks (1)") == 1


async def test_a_result_reaches_the_owner_where_its_chat_has_closed(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with staged() as (stage, access), town(tmp_path, **access) as here:
        stage.on("plum", "plan", steps("pick"))
        stage.on("plum", "step", held(done("Picked."), go))
        await here.ask("/start")
        await here.ask_chief("/start")
        team, forum = here.telegram.group("Team"), here.telegram.group("Forum", forum=True)
        floor = here.feishu.group("Floor")
        topic = here.telegram.topic(forum, "Work")
        await here.boss.says(team, "/run plum", mention=True)
        await here.boss.says(forum, "/run plum", mention=True, thread=topic)
        await here.chief.says(floor, "/run plum", mentions=["bot"])
        await team.wait_for_text("plum", timeout=PATIENCE)
        await forum.wait_for_text("plum", timeout=PATIENCE)
        await floor.wait_for(lambda m: "plum" in m.text, timeout=PATIENCE)

        team.block()
        here.telegram.close_topic(forum, topic)
        await here.chief.removes_bot(floor)
        go.set()

        ended = await forum.wait_for_text("Task finished", timeout=LONG)
        assert ended.thread is None, "the topic is gone, the group is not"
        for name in ("Team", "Floor"):
            note = f"can no longer write to {name}"
            await here.home.wait_for_text(note, timeout=LONG)
            await heard(here.office, note)

    assert sum("Task finished" in m.text for m in here.home.from_bot) == 2
    assert told(here.office, "Task finished") == 2


async def test_whoever_runs_it_is_told_what_is_wrong_and_where_to_mend_it(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.ask("/start")
        here.telegram.revoke_token()
        await here.shiftboss.says("TELEGRAM_BOT_TOKEN")
        await here.ask_chief("/status", expects="TELEGRAM_BOT_TOKEN")
        here.feishu.rates.quota = here.feishu.rates.calls
        await here.chief.says(here.office, "/list")
        await here.shiftboss.says("Feishu API calls are used up")
        status, said = await here.shiftboss.run_to_end("say", "/status")

    assert status == 0
    assert "TELEGRAM_BOT_TOKEN" in said
    assert "Feishu API calls are used up" in said
    assert "Traceback" not in here.shiftboss.text


@long
async def test_what_nobody_should_send_harms_nobody(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await odd_events(here)
        for odd in ("\u200b", "\u202e\u202d", "  \n ", "x\x00\x07\x1b[31m", "👍", "א\u200fب", "ok"):
            assert (await here.ask_chief(odd)).strip()
        frames = [
            say(f"over-ws-{n}", text) for n, text in enumerate(("\ud800 half", "y" * 100_000))
        ]
        answers = await over_the_socket(here.shiftboss, *frames)
        assert [answer["type"] for answer in answers] == ["stored", "stored"]
        await here.ask("／LIST@shiftboss_bot   ", expects="Tasks (0)")
        await here.ask_chief("/列表", expects="Tasks (0)")
        long = "write to plum.txt:\n" + "\n".join(["plums and pears"] * 1250)
        await here.boss.says(here.home, f"/run {long}")
        await here.home.wait_for(lambda m: m.upload is not None, timeout=PATIENCE)
        await here.ask("/list", expects="Tasks (1)")  # one order, however many messages
        assert instructions(tmp_path) == [long]

        groups = [here.telegram.group(f"Group {n}") for n in range(15)]
        for group in groups:
            await here.boss.says(group, "/list", mention=True)
        await here.telegram.wait_until(
            lambda: all(group.from_bot for group in groups), timeout=PATIENCE
        )

    assert [len(group.from_bot) for group in groups] == [1] * len(groups)


async def test_what_breaks_is_in_the_log_under_the_id_that_is_shown(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.ask("/start")
        with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as store:
            store.execute("ALTER TABLE usage RENAME TO gone")
            store.commit()
        shown = await here.ask("/cost")
        incident = re.search(r"\b[0-9a-f]{8}\b", shown)
        assert incident, shown
        await here.shiftboss.says(f"incident={incident[0]}")
        await here.shiftboss.says("Traceback")
        assert "usage" not in shown, "people are not shown the insides"
        await here.ask("/list", expects="Tasks (0)")  # the rest goes on


def instructions(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "shiftboss.db")) as store:
        return [text for (text,) in store.execute("SELECT instruction FROM tasks")]


async def odd_events(here: Town) -> None:
    """Things that are no message, on both platforms."""
    sender, place = here.boss.as_json(), here.home.as_json()
    base = {"message_id": 9000, "from": sender, "chat": place, "date": 1}
    put = here.telegram.world.updates.put
    put("message", {"message_id": 9001, "date": 5})
    put("message", {**base, "pinned_message": {**base, "text": "x"}})
    put("callback_query", {"id": "77", "from": sender, "chat_instance": "1", "data": "x"})
    here.telegram.unknown_update(business={"a": [1]})
    fs = here.feishu
    for kind in ("im.message.receive_v1", "card.action.trigger", "nobody.knows_v9"):
        push = fs.push_event(kind, {"message": 5, "action": [], "operator": None})
        async with asyncio.timeout(PATIENCE):
            assert (await asyncio.shield(push.acked))["code"] == 200
    await fs.long.send_raw(b"\x00\xff garbage")
    await fs.long.send_raw("text where frames belong")


async def again(fs: FeishuEmulator) -> None:
    """Everything pushed so far, once more, and taken."""
    pushes = [fs.push(push.body) for push in list(fs.pushes)]
    for push in pushes:
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(push.acked)


async def heard(chat: FeishuChat, text: str) -> None:
    await chat.wait_for(lambda m: text in f"{m.header}\n{m.text}", timeout=LONG)


async def heard_file(chat: FeishuChat) -> None:
    await chat.wait_for(lambda m: m.msg_type == "file", timeout=LONG)


def told(chat: FeishuChat, text: str) -> int:
    return sum(text in f"{m.header}\n{m.text}" for m in chat.from_bot)


def say(number: str, text: str) -> str:
    frame: dict[str, Any] = {"type": "say", "id": number, "text": text}
    return json.dumps(frame)
