"""Where workers work: what they find there, and what the rest of the program needs of it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bot.app.bench import build_bench
from bot.app.memory.history import Past, build_past
from bot.app.memory.recall import Recalling, build_recall
from bot.app.models import build_models
from bot.app.store import Store
from bot.app.workers.commands import build_masking, build_sandbox, build_shell
from bot.app.workers.guards import build_closed, build_fetcher
from bot.app.workers.helpers import Helping
from bot.app.workers.leave import build_leaves
from bot.app.workers.memory import build_memories, memory_tools
from bot.config.settings import Settings
from bot.engine.agent.context.briefing import Context
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.masking import Masking
from bot.engine.agent.mcp.servers import McpServers
from bot.engine.agent.mcp.serving.lending import Lender
from bot.engine.agent.personas.library import PersonaLibrary
from bot.engine.agent.sandbox.homes import Homes
from bot.engine.agent.sandbox.probe import SandboxHere
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.registry import Registry
from bot.engine.skills.library import Library
from bot.engine.skills.shelves import Shelves
from bot.transports.clock import Clock
from storage.agents.skills import SkillRepo
from storage.records.approvals import Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    models: Registry
    personas: PersonaLibrary
    context: Context
    skills: Library
    sandbox: SandboxHere
    homes: Homes
    masking: Masking
    servers: McpServers
    helping: Helping
    bench: Workbench
    past: Past
    memory: Recalling


Show: TypeAlias = Callable[[Approval], Awaitable[None]]
"""Puts a request for a decision before those who may take it."""


def build_place(settings: Settings, store: Store, clock: Clock, *, bell: Bell, show: Show) -> Place:
    """`bell` rings when something was decided."""
    skills = Library(
        shelves=Shelves(home=settings.home, user=Path.home()),
        repo=SkillRepo(store.db),
        now=clock.now,
    )
    personas = PersonaLibrary(settings.home)
    helping = Helping(settings, store, clock, personas)
    context = Context(settings.home, chat_of=store.people.chat, person_of=store.people.get)
    sandbox = build_sandbox(settings)
    models = build_models(settings, sandbox)
    memory = build_recall(settings, store, clock, told_anyway=context.boss)
    masking = build_masking(settings)
    fetcher = build_fetcher(settings)
    shell = build_shell(settings, sandbox, masking)

    async def sandboxed() -> bool:
        return (await sandbox()).kind.confines

    leaves = build_leaves(
        settings, store, clock, bell, show, mask=masking.mask, sandboxed=sandboxed
    )
    past = build_past(settings, store)
    bench = build_bench(
        personas=personas,
        context=context,
        library=skills,
        chat_of=store.people.chat,
        fetcher=fetcher,
        permits=leaves,
        shell=shell,
        closed=build_closed(settings),
        mask=masking.mask,
        brings_tools=models.brings_tools,
        memories=memory.remembering,
        look_back=past.tools,
        carried=past.carried,
        more=(memory_tools(build_memories(settings.home, store), memory), helping.tools),
    )
    return Place(
        models=models,
        personas=personas,
        context=context,
        skills=skills,
        sandbox=sandbox,
        homes=shell.homes,
        masking=masking,
        servers=McpServers(
            shell, masking.mask, fetcher, lender=Lender(settings.home / "lent", _new_word)
        ),
        helping=helping,
        bench=bench,
        past=past,
        memory=memory,
    )


def _new_word() -> str:
    return secrets.token_hex(16)
