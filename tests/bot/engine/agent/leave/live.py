"""A permit used as a coding CLI uses it."""

from __future__ import annotations

from pathlib import Path

from bot.engine.agent.account import Account
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Job
from bot.engine.llm.calls import CallKind, Permit, ToolCall
from storage.records.people import Language
from storage.sessions import SessionRepo
from tests.bot.engine.agent.leave.world import Shop
from tests.engine_world import BOSS, CHAT


async def live_permit(here: Shop) -> Permit:
    async with here.world.db.write() as tx:
        session = await SessionRepo(here.world.db).begin(
            tx, id="cli", key="chat:c1", backend="cli", model="", now=here.world.clock()
        )
    job = Job(
        account=Account(person=BOSS.id, chat=CHAT.id),
        session=session,
        language=Language.ENGLISH,
        workspace=Path("/nowhere"),
    )
    return here.leaves.permit(job, Persona(name="test", title={"en": "Test"}))


def wish(call_id: str, command: str) -> ToolCall:
    return ToolCall(
        call_id=call_id,
        name="deploy",
        arguments={"command": command},
        kind=CallKind.EXECUTE,
        title=f"deploy {command}",
        detail=command,
    )
