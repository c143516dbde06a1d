"""What workers may look up of the past."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bot.app.memory.recall import Recalling
from bot.app.store import Store
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.remembering.lookup import Lookup
from bot.engine.agent.tools.memory_get import memory_get
from bot.engine.agent.tools.memory_search import memory_search
from bot.engine.agent.workbench import Job, ToolMaker
from bot.engine.dispatch.method.remembered import Remembered
from bot.engine.dispatch.rights import Rights
from bot.engine.llm.base import Tool
from bot.engine.memory.port import MemoriesOf


def build_memories(home: Path, store: Store) -> MemoriesOf:
    return Remembered(
        logs=store.work.logs,
        tasks=store.work.tasks,
        rights=Rights(store.people.chat),
        person_of=store.people.get,
        home=home,
    ).of


def memory_tools(logs_of: MemoriesOf, recalling: Recalling) -> ToolMaker:
    def tools(job: Job, persona: Persona) -> Sequence[Tool]:
        who = job.account
        memories = Lookup(
            recall=recalling.recall,
            entries=recalling.entries,
            reader=partial(recalling.remembering.reader, job, persona),
            besides=logs_of(who.person, who.chat, who.task),
            zone=recalling.zone,
        )
        return memory_search(memories), memory_get(memories)

    return tools
