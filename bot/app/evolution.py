"""Builds versions of prompts and the search for better ones."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from bot.app.repositories import RepositorySet
from bot.app.schedule import list_owner_chats
from bot.app.workers import WorkerServices
from bot.config.settings import Settings
from bot.engine.agent.memory_hooks.background_calls import BackgroundModelCalls
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.prompt_versions import PersonaVersions
from bot.engine.autonomy.evolution.proposal import ProposalWriter
from bot.engine.autonomy.evolution.retirement import VersionRetirer
from bot.engine.autonomy.evolution.service import EvolutionLimits, EvolutionService
from bot.engine.llm.backend import RunLimits, RunPurpose
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.transports.clock import Clock
from bot.transports.outbox import OutboxCourier
from storage.evolution import EvolutionRepo
from storage.records.prompt_versions import EvolutionMode
from storage.records.tasks import TaskId
from storage.records.usage import parse_cap

_LIMITS = RunLimits(turns=2, output_tokens=6_000, seconds=120.0)


def build_version_retirer(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    courier: OutboxCourier,
    publisher: ApprovalCardPublisher,
) -> VersionRetirer:
    return VersionRetirer(
        db=store.db,
        versions=store.work.versions,
        approvals=store.approvals,
        poster=courier,
        owner_chats=partial(list_owner_chats, settings, store),
        show_request=publisher.publish,
        update_cards=publisher.update_cards,
        now=clock.now,
    )


def build_persona_versions(store: RepositorySet, retirer: VersionRetirer) -> PersonaVersions:
    async def created_at(task_id: TaskId) -> datetime:
        return (await store.work.tasks.get(task_id)).created_at

    return PersonaVersions(repo=store.work.versions, created_at=created_at, retire=retirer.retire)


def build_evolution(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    workers: WorkerServices,
    gateway: ModelGateway,
    retirer: VersionRetirer,
) -> EvolutionService:
    model = BackgroundModelCalls(
        gateway, lambda: workers.models.default, purpose=RunPurpose.EVOLVE, limits=_LIMITS
    )
    return EvolutionService(
        db=store.db,
        versions=store.work.versions,
        repo=EvolutionRepo(store.db),
        approvals=store.approvals,
        personas=workers.personas,
        writer=ProposalWriter(db=store.db, model=model, mask=workers.redactor.mask),
        retirer=retirer,
        limits=EvolutionLimits(
            mode=EvolutionMode(settings.evolve),
            share=settings.evolve_share,
            lifetime=settings.approval_lifetime,
            day_cap=parse_cap(settings.cap_self),
            zone=settings.zone,
        ),
        ids=store.ids,
        now=clock.now,
    )
