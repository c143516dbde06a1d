"""A coding CLI does a task on Feishu, in Chinese: its plan, its change and its question are on
cards, and an old button decides after a sudden death."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulators.acp.cli import result, wish
from tests.emulators.feishu.people import User
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat, Message
from tests.journeys.coding import COMMAND, EDIT, agent, done, furnished
from tests.journeys.model_world import PATIENCE, label_with
from tests.journeys.program import Program, program
from tests.thorough import long

PLAN = result({"plan": "先构建，再发布。", "steps": [{"title": "构建并发布"}]})
LIST = {
    "update": {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "先看一看", "status": "completed"},
            {"content": "改版本号", "status": "in_progress"},
        ],
    }
}
MADE: Mapping[str, Any] = {"append": {"path": "made.txt", "text": "made\n"}}
FINISHED = {
    "update": {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "call-2",
        "status": "completed",
    }
}


@dataclass
class Office:
    feishu: FeishuEmulator
    shiftboss: Program
    boss: User
    chat: Chat

    async def shown(self, *parts: str) -> Message:
        def has(message: Message) -> bool:
            whole = f"{message.header}\n{message.text}"
            return all(part in whole for part in parts)

        return await self.chat.wait_for(has, timeout=PATIENCE)

    async def request(self) -> Message:
        def is_it(message: Message) -> bool:
            return any("仅此一次" in each for each in message.buttons) and COMMAND in message.text

        return await self.chat.wait_for(is_it, timeout=PATIENCE)

    async def dies_and_comes_back(self) -> None:
        await self.shiftboss.kill()
        await self.shiftboss.start()
        await self.feishu.connected(timeout=PATIENCE)

    @property
    def times(self) -> int:
        """How often the command was really run."""
        made = list((self.shiftboss.home / "agents" / "builder").glob("*/made.txt"))
        return sum(len(each.read_text().splitlines()) for each in made)


@asynccontextmanager
async def office(home: Path, **settings: str) -> AsyncGenerator[Office, None]:
    again = wish(COMMAND, "call-2", yes=[MADE, FINISHED, done("发布好了。")])
    turns = [PLAN], [LIST, EDIT, wish(COMMAND, "call-1", yes=[MADE])], [again]
    furnished(home, builder=agent(*turns))
    async with FeishuEmulator() as feishu:
        boss = feishu.user("老板")
        chosen = {
            "FEISHU_APP_ID": feishu.app_id,
            "FEISHU_APP_SECRET": feishu.app_secret,
            "FEISHU_DOMAIN": feishu.domain,
            "SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}",
            "SHIFTBOSS_LANGUAGE": "zh",
            **settings,
        }
        async with program(home, **chosen) as shiftboss:
            await feishu.connected(timeout=PATIENCE)
            chat = feishu.p2p(boss)
            yield Office(feishu=feishu, shiftboss=shiftboss, boss=boss, chat=chat)
        assert "Traceback" not in shiftboss.text


@long
async def test_a_question_open_at_a_sudden_death_is_decided_by_its_old_button(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as here:
        await here.boss.says(here.chat, "/后端 builder")
        await here.shown("builder", "本会话")
        await here.boss.says(here.chat, "/run 构建并发布")
        asked = await here.request()
        await here.shown("先看一看", "改版本号", "package.json", "+1.1")

        await here.dies_and_comes_back()
        assert here.times == 0
        answer = await here.boss.presses(asked, label_with(asked.buttons, "仅此一次"))

        assert answer.toast
        await here.shown("任务完成", "发布好了。")
        await here.shown("已通过", COMMAND, "老板")
        assert here.times == 1


@long
async def test_one_whose_process_did_not_wait_is_resumed_for_exactly_that_call(
    tmp_path: Path,
) -> None:
    async with office(tmp_path, SHIFTBOSS_CLI_PATIENCE_MINUTES="0") as here:
        await here.boss.says(here.chat, "@builder /run 构建并发布")
        asked = await here.request()

        await here.dies_and_comes_back()
        assert here.times == 0
        await here.boss.presses(asked, label_with(asked.buttons, "仅此一次"))

        await here.shown("任务完成", "发布好了。")
        assert here.times == 1
        home = here.shiftboss.home / "agents" / "builder"
        sent = next(home.glob("*/received.jsonl")).read_text()
        assert "session/resume" in sent
        assert "Make exactly this call now" in sent
