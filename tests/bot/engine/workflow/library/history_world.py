"""A library of named workflows with its history, on a real store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.agent.prompt_versions import PromptVersions
from bot.engine.workers.personas import BUILT_IN_PERSONAS, Persona
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.workflow_bundle import WorkflowExchange
from bot.engine.workflow.workflow_history import WorkflowHistory
from storage.records.people import Person, PersonRole
from storage.records.prompt_versions import PromptKind, PromptRef
from tests.builders import make_person
from tests.engine_harness import EngineHarness

NAME = "note"
REF = PromptRef(PromptKind.WORKFLOW, NAME)


def text(word: str) -> str:
    return f"name: Note\nnodes:\n  - {{id: write, prompt: Write {word}}}\n"


@dataclass(kw_only=True)
class HistoryWorld:
    engine: EngineHarness
    home: Path
    history: WorkflowHistory
    library: WorkflowLibrary
    owner: Person

    @property
    def file(self) -> Path:
        return self.home / "workflows" / f"{NAME}.yaml"

    @property
    def exchange(self) -> WorkflowExchange:
        async def personas() -> Mapping[str, Persona]:
            return BUILT_IN_PERSONAS

        async def skills() -> list[str]:
            return ["review"]

        return WorkflowExchange(
            library=self.library, history=self.history, get_personas=personas, list_skills=skills
        )

    async def save(self, word: str, **options: Any) -> None:
        await self.history.save(NAME, text(word), by=self.owner, via="page", **options)

    async def rows(self) -> list[tuple[int, str, str, str]]:
        """Number, author, state and end of each version, oldest first."""
        found = await self.engine.store.versions.list_of(REF)
        return [(each.number, each.author, each.state.value, each.end_reason) for each in found]

    def restart(self) -> WorkflowHistory:
        self.history, self.library = build_history(self.engine, self.home)
        return self.history


def build_history(engine: EngineHarness, home: Path) -> tuple[WorkflowHistory, WorkflowLibrary]:
    async def sleep(_seconds: float) -> None:
        raise AssertionError

    async def people() -> Mapping[str, str]:
        return {"p1": "Olga"}

    async def retire(versions: Any, reason: str) -> None:
        async with engine.db.write() as tx:
            for each in versions:
                await engine.store.versions.retire(tx, each, reason, now=engine.clock())

    async def created_at(_task: Any) -> Any:
        return engine.clock()

    trials = PromptVersions(
        repo=engine.store.versions, created_at=created_at, retire=retire, roll=lambda: 99
    )
    history = WorkflowHistory(
        db=engine.db,
        repo=engine.store.versions,
        trials=trials,
        list_people=people,
        now=engine.clock,
        sleep=sleep,
    )
    library = WorkflowLibrary(home, engine.store.graphs, history)
    history.bind(library)
    return history, library


def make_world(engine: EngineHarness, home: Path) -> HistoryWorld:
    history, library = build_history(engine, home)
    (home / "workflows").mkdir(exist_ok=True)
    owner = make_person("p1", role=PersonRole.OWNER)
    return HistoryWorld(engine=engine, home=home, history=history, library=library, owner=owner)
