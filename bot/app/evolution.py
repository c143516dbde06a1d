"""Builds versions of texts that steer work, and the search for better ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from random import randrange

from bot.app.parts import EvolutionServices, WorkerServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.background_calls import BackgroundModelCalls
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.prompt_versions import PERCENT, PromptVersions
from bot.engine.autonomy.evolution.proposal import ProposalWriter
from bot.engine.autonomy.evolution.retirement import VersionRetirer
from bot.engine.autonomy.evolution.service import EvolutionLimits, EvolutionService
from bot.engine.autonomy.evolution.sources import (
    BuiltInTexts,
    PersonaTexts,
    SkillTexts,
    WorkflowTexts,
)
from bot.engine.llm.backend import RunLimits, RunPurpose
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.engine.workflow.diagnostics import KnownWorkers
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.workflow_bundle import WorkflowExchange
from bot.engine.workflow.workflow_history import WorkflowHistory
from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock
from storage.prompt_versions import EvolutionRepo
from storage.records.prompt_versions import EvolutionMode, PromptKind
from storage.records.tasks import TaskId

_LIMITS = RunLimits(turns=2, output_tokens=6_000, seconds=120.0)


def build_evolution(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    workers: WorkerServices,
    gateway: ModelGateway,
    courier: OutboxCourier,
    cards: ApprovalCardPublisher,
    risk_words: Callable[[], Sequence[str]],
) -> EvolutionServices:
    retirer = VersionRetirer(
        db=store.db,
        versions=store.work.versions,
        approvals=store.approvals,
        poster=courier,
        owner_chats=store.list_owner_chats,
        show_request=cards.publish,
        update_cards=cards.update_cards,
        now=clock.now,
    )
    mode = EvolutionMode(settings.evolve)
    versions = _build_versions(store, retirer, mode)
    exchange = _build_workflows(settings, store, clock, workers, versions)
    workflows = exchange.library
    model = BackgroundModelCalls(
        gateway, lambda: workers.models.default, purpose=RunPurpose.EVOLVE, limits=_LIMITS
    )
    service = EvolutionService(
        db=store.db,
        versions=store.work.versions,
        repo=EvolutionRepo(store.db),
        approvals=store.approvals,
        sources={
            PromptKind.PERSONA: PersonaTexts(catalog=workers.personas),
            PromptKind.SKILL: SkillTexts(library=workers.skills),
            PromptKind.WORKFLOW: WorkflowTexts(library=workflows, risk_words=risk_words),
            PromptKind.BUILT_IN: BuiltInTexts(),
        },
        writer=ProposalWriter(db=store.db, model=model, mask=workers.redactor.mask),
        retirer=retirer,
        limits=EvolutionLimits(
            mode=mode,
            share=settings.evolve_share,
            lifetime=settings.approval_lifetime,
        ),
        ids=store.ids,
        now=clock.now,
    )
    return EvolutionServices(service=service, versions=versions, exchange=exchange)


async def _list_skills(workers: WorkerServices) -> Sequence[str]:
    """Names of the skills that are enabled."""
    return [each.skill.name for each in (await workers.skills.list_skills()).usable]


def _build_workflows(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    workers: WorkerServices,
    trials: PromptVersions,
) -> WorkflowExchange:
    history = WorkflowHistory(
        db=store.db,
        repo=store.work.versions,
        trials=trials,
        list_people=partial(_list_people, store),
        now=clock.now,
        sleep=asyncio.sleep,
    )
    workflows = WorkflowLibrary(
        settings.home, store.work.graphs, history, partial(_list_workers, workers)
    )
    history.bind(workflows)
    return WorkflowExchange(
        library=workflows,
        history=history,
        get_personas=workers.personas.get_all,
        list_skills=partial(_list_skills, workers),
    )


async def _list_people(store: RepositorySet) -> Mapping[str, str]:
    """Names of people with access by their ids."""
    return {each.person.id: each.person.name for each in await store.people.list_members()}


async def _list_workers(workers: WorkerServices) -> KnownWorkers:
    skills = await workers.skills.list_skills()
    return KnownWorkers(
        personas=frozenset(await workers.personas.get_all()),
        skills=frozenset(each.skill.name for each in skills.skills),
    )


def _build_versions(
    store: RepositorySet, retirer: VersionRetirer, mode: EvolutionMode
) -> PromptVersions:
    async def created_at(task_id: TaskId) -> datetime:
        return (await store.work.tasks.get(task_id)).created_at

    return PromptVersions(
        repo=store.work.versions,
        created_at=created_at,
        retire=retirer.retire,
        roll=partial(randrange, PERCENT),
        tries=mode is not EvolutionMode.OFF,
    )
