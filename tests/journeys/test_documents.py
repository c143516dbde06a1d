"""Results as Feishu documents: the real program, killed while it makes one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.emulators.feishu.documents import CREATE_SCOPE
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut
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
            await team.wait_for(lambda m: "Not a document: the app may not" in m.text)
            sent = await team.wait_for(lambda m: m.msg_type == "file")
            file = fs.world.files[json.loads(sent.content)["file_key"]]
            assert file.data.decode().count("EUR") == 150
            assert len(fs.drive.documents) == 1
