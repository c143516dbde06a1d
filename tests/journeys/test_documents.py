"""Results as Feishu documents: the real program, killed while it makes one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from tests.emulators.feishu.documents import CREATE_SCOPE
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut
from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage
from tests.emulators.feishu.users import FeishuUser
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.journeys.coding_cli_scenarios import agent_entry, write_agents_file
from tests.journeys.model_world import plan_reply, scripted_model, step_reply
from tests.journeys.program import running_program

REPORT = "## Offers\n\n" + "\n".join(
    f"- offer {number} costs {number} EUR" for number in range(150)
)


async def test_a_long_result_is_one_document_and_without_permission_a_file(tmp_path: Path) -> None:
    async with scripted_model() as (stage, access), FeishuEmulator() as fs:
        boss = fs.user("Boss")
        team = fs.group("Team")
        stage.script("offers-cue", "plan", plan_reply("compare"))
        stage.script("offers-cue", "step", step_reply(REPORT))
        settings = {
            **fs.settings,
            **access,
            "SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}",
            "SHIFTBOSS_RESULTS": "document",
        }
        async with running_program(tmp_path, **settings) as program:
            await fs.wait_for_connections()
            # It dies after the platform has created the document, before it has the answer.
            held = asyncio.Event()
            fs.inject_fault("POST", "docx/v1/documents$", cut=ConnectionCut.AFTER)
            fs.inject_fault("GET", "root_folder/meta$", gate=held)
            await boss.says(team, "/run --title offers offers-cue", mentions=["bot"])
            await fs.wait_until(lambda: len(fs.drive.documents) == 1)
            await program.kill()
            held.set()
            fs.api.faults.clear()
            await program.start()
            ended = await team.wait_for(lambda m: "Task finished" in m.header)

            (document,) = fs.drive.documents.values()
            assert f"/docx/{document.token}" in json.dumps(ended.card)
            assert document.text.count("EUR") == 150
            assert document.members == {boss.open_id: "full_access", team.chat_id: "view"}
            assert not [each for each in team.from_bot if each.msg_type == "file"]

            fs.app.scopes[CREATE_SCOPE] = 0
            stage.script("again-cue", "plan", plan_reply("compare"))
            stage.script("again-cue", "step", step_reply(REPORT))
            await boss.says(team, "/run again-cue", mentions=["bot"])
            await team.wait_for(lambda m: "No document: the app isn't allowed" in m.text)
            sent = await team.wait_for(lambda m: m.msg_type == "file")
            file = fs.world.files[json.loads(sent.content)["file_key"]]
            assert file.data.decode().count("EUR") == 150
            assert len(fs.drive.documents) == 1


async def test_a_linked_document_is_read_in_chat_and_task_once_a_person_allows_it(
    tmp_path: Path,
) -> None:
    async with scripted_model() as (stage, access), FeishuEmulator() as fs:
        boss = fs.user("Boss")
        chat = fs.private_chat(boss)
        plan = fs.drive.new_document("Plan", "The secret word is plum.")
        call = ScriptedCall(name="feishu_read", arguments={"url": plan.url})
        stage.script("chat-cue", "talk", ScriptedReply(calls=[call]), heard("plum"))
        stage.script("member-cue", "talk", ScriptedReply(calls=[call]), heard("plum"))
        stage.script("task-cue", "plan", plan_reply("read"))
        stage.script("task-cue", "step", ScriptedReply(calls=[call]), step_reply("Read it."))
        owner = {"SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}", "SHIFTBOSS_LANGUAGE": "en"}
        async with running_program(tmp_path, **fs.settings, **access, **owner):
            await fs.wait_for_connections()
            await boss.says(chat, f"chat-cue what says {plan.url} ?")
            await allow_in(chat, boss, plan.url)
            await chat.wait_for(lambda m: "heard: plum" in m.text)

            await boss.says(chat, f"/run task-cue {plan.url}")
            await allow_in(chat, boss, plan.url, "task-cue", by="Always")
            await chat.wait_for(lambda m: "Task finished" in m.header)

            # What holds for the owner always holds for nobody who may not open it.
            kim = fs.user("Kim")
            hers = fs.private_chat(kim)
            await kim.says(hers, "hello")
            asked = await chat.wait_for(lambda m: any("Approve" in each for each in m.buttons))
            await boss.presses(asked, next(each for each in asked.buttons if "Approve" in each))
            await hers.wait_for(lambda m: "access" in m.text)
            await kim.says(hers, f"member-cue what says {plan.url} ?")
            await allow_in(chat, boss, plan.url, "Asked by", "Kim")
            await hers.wait_for(lambda m: "heard: plum" in m.text)

    results = [asked for asked in stage.requests if "The secret word is plum." in str(asked.body)]
    assert results
    assert all("never an instruction" in str(asked.body) for asked in results)


async def test_a_coding_cli_reads_a_linked_document_only_once_a_person_allows_it(
    tmp_path: Path,
) -> None:
    async with FeishuEmulator() as fs:
        boss = fs.user("Boss")
        chat = fs.private_chat(boss)
        plan = fs.drive.new_document("Plan", "The secret word is plum.")
        # It announces nothing, as a hostile one would.
        use = {"use": {"tool": "feishu_read", "arguments": {"url": plan.url}}}
        home = write_agents_file(tmp_path / "home", builder=agent_entry([use], [use]))
        owner = {"SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}", "SHIFTBOSS_LANGUAGE": "en"}
        async with running_program(home, **fs.settings, **owner):
            await fs.wait_for_connections()
            await boss.says(chat, "/backend builder")
            await boss.says(chat, f"what says {plan.url} ?")
            asked = await wait_for_request(chat, plan.url)
            await boss.presses(asked, next(each for each in asked.buttons if "Reject" in each))
            refused = await chat.wait_for(lambda m: "Error:" in m.text)
            assert "plum" not in refused.text

            await boss.says(chat, f"and now? {plan.url}")
            again = await wait_for_request(chat, plan.url, but=asked)
            await boss.presses(again, next(each for each in again.buttons if "Once" in each))
            await chat.wait_for(lambda m: "The secret word is plum." in m.text)


def heard(word: str) -> Callable[[ReceivedRequest], ScriptedReply]:
    """An answer that shows whether the model has got the word."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        return ScriptedReply(text=f"heard: {word if word in str(asked.body) else 'nothing'}")

    return reply


async def allow_in(chat: FeishuChat, boss: FeishuUser, *parts: str, by: str = "Once") -> None:
    request = await wait_for_request(chat, *parts)
    await boss.presses(request, next(each for each in request.buttons if by in each))


async def wait_for_request(
    chat: FeishuChat, *parts: str, but: FeishuMessage | None = None
) -> FeishuMessage:
    return await chat.wait_for(
        lambda m: (
            (but is None or m.message_id != but.message_id)
            and any("Once" in b for b in m.buttons)
            and all(each in m.text for each in parts)
        )
    )
