"""A permit used as a coding CLI uses it."""

from __future__ import annotations

from pathlib import Path

from bot.engine.llm.tool_calls import CallAuthorizer, CallKind, ToolCall
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import CostAccount, WorkerSpec
from storage.records.people import Language, Person
from storage.sessions import SessionRepo
from tests.bot.engine.permissions.builders import PermissionSetup
from tests.engine_harness import BOSS, CHAT


async def live_permit(here: PermissionSetup, person: Person = BOSS) -> CallAuthorizer:
    async with here.world.db.write() as tx:
        session = await SessionRepo(here.world.db).start(
            tx,
            id=f"cli-{person.id}",
            key=f"chat:c1:{person.id}",
            backend="cli",
            model="",
            now=here.world.clock(),
        )
    job = WorkerSpec(
        account=CostAccount(person=person.id, chat=CHAT.id),
        session=session,
        language=Language.ENGLISH,
        workspace=Path("/nowhere"),
    )
    return here.leaves.create_authorizer(job, Persona(name="test", title={"en": "Test"}))


def tool_call(call_id: str, command: str) -> ToolCall:
    return ToolCall(
        call_id=call_id,
        name="deploy",
        arguments={"command": command},
        kind=CallKind.EXECUTE,
        title=f"deploy {command}",
        detail=command,
    )
