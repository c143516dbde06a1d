"""A coding CLI does a task on Feishu, in Chinese: its plan, its change and its question are on
cards, and an old button decides after a sudden death."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulators.acp.fake_cli import permission_request, result_reply
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage
from tests.emulators.feishu.users import FeishuUser
from tests.journeys.coding_cli_scenarios import (
    COMMAND,
    EDIT_UPDATE,
    agent_entry,
    step_done,
    write_agents_file,
)
from tests.journeys.model_world import label_with
from tests.journeys.program import ShiftbossProcess, running_program
from tests.thoroughness import thorough_only

PLAN = result_reply({"plan": "先构建，再发布。", "steps": [{"title": "构建并发布"}]})
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
class FeishuCodingWorld:
    feishu: FeishuEmulator
    shiftboss: ShiftbossProcess
    boss: FeishuUser
    chat: FeishuChat

    async def wait_for_card(self, *parts: str) -> FeishuMessage:
        def has(message: FeishuMessage) -> bool:
            whole = f"{message.header}\n{message.text}"
            return all(part in whole for part in parts)

        return await self.chat.wait_for(has)

    async def request(self) -> FeishuMessage:
        def is_it(message: FeishuMessage) -> bool:
            return any("仅此一次" in each for each in message.buttons) and COMMAND in message.text

        return await self.chat.wait_for(is_it)

    async def crash_and_restart(self) -> None:
        await self.shiftboss.kill()
        await self.shiftboss.start()
        await self.feishu.wait_for_connections()

    @property
    def times(self) -> int:
        """How often the command was really run."""
        made = list((self.shiftboss.home / "agents" / "builder").glob("*/made.txt"))
        return sum(len(each.read_text().splitlines()) for each in made)


@asynccontextmanager
async def feishu_coding_world(
    home: Path, **settings: str
) -> AsyncGenerator[FeishuCodingWorld, None]:
    again = permission_request(COMMAND, "call-2", yes=[MADE, FINISHED, step_done("发布好了。")])
    turns = [PLAN], [LIST, EDIT_UPDATE, permission_request(COMMAND, "call-1", yes=[MADE])], [again]
    write_agents_file(home, builder=agent_entry(*turns))
    async with FeishuEmulator() as feishu:
        boss = feishu.user("老板")
        chosen = {
            **feishu.settings,
            "SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}",
            "SHIFTBOSS_LANGUAGE": "zh",
            **settings,
        }
        async with running_program(home, **chosen) as shiftboss:
            await feishu.wait_for_connections()
            chat = feishu.private_chat(boss)
            yield FeishuCodingWorld(feishu=feishu, shiftboss=shiftboss, boss=boss, chat=chat)
        assert "Traceback" not in shiftboss.printed


@thorough_only
async def test_a_permission_request_open_at_a_crash_is_decided_by_its_old_button(
    tmp_path: Path,
) -> None:
    async with feishu_coding_world(tmp_path) as here:
        await here.boss.says(here.chat, "/后端 builder")
        await here.wait_for_card("builder", "本会话")
        await here.boss.says(here.chat, "/run 构建并发布")
        asked = await here.request()
        await here.wait_for_card("先看一看", "改版本号", "package.json", "+1.1")

        await here.crash_and_restart()
        assert here.times == 0
        answer = await here.boss.presses(asked, label_with(asked.buttons, "仅此一次"))

        assert answer.toast
        await here.wait_for_card("任务已完成", "发布好了。")
        await here.wait_for_card("已通过", COMMAND, "老板")
        assert here.times == 1


@thorough_only
async def test_a_cli_that_was_stopped_while_asking_is_resumed_for_exactly_that_call(
    tmp_path: Path,
) -> None:
    async with feishu_coding_world(tmp_path, SHIFTBOSS_CLI_PATIENCE_MINUTES="0") as here:
        await here.boss.says(here.chat, "@builder /run 构建并发布")
        asked = await here.request()

        await here.crash_and_restart()
        assert here.times == 0
        await here.boss.presses(asked, label_with(asked.buttons, "仅此一次"))

        await here.wait_for_card("任务已完成", "发布好了。")
        assert here.times == 1
        home = here.shiftboss.home / "agents" / "builder"
        sent = next(home.glob("*/received.jsonl")).read_text()
        assert "session/resume" in sent
        assert "Make exactly this call now" in sent
