"""Builds memory: retrieval before the model gateway, writing and the services after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from bot.app.backup_source import backup_source
from bot.app.lifecycle import AppService
from bot.app.memory_retrieval import build_embedding_index, build_retriever
from bot.app.parts import MemoryRetrieval, MemoryWriting
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.background_calls import BackgroundModelCalls
from bot.engine.agent.memory_hooks import MemoryBriefing
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import ContextBlock
from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.memory import episodes, maintenance
from bot.engine.memory.admission import AdmissionAuditor, AdmissionPreset
from bot.engine.memory.candidate_review import CandidateApprovalRequester
from bot.engine.memory.change_feed import ForeignWriteDetector
from bot.engine.memory.consent import MemoryConsent, WithheldTurnEraser
from bot.engine.memory.consolidation import EXTRACTED_KINDS, MemoryConsolidator
from bot.engine.memory.context_builder import MemoryContextBuilder
from bot.engine.memory.decay import UsageTracker
from bot.engine.memory.embeddings import EmbeddingIndex
from bot.engine.memory.export_import import MemoryRestorer, MemoryTransfer
from bot.engine.memory.extraction_worker import ExtractionWorker
from bot.engine.memory.fact_matching import SemanticMatcher
from bot.engine.memory.ingestion import FinishedTaskRecorder, MemoryRecorder
from bot.engine.memory.maintenance import CommandProgressLog, ForgetCommandLog
from bot.engine.memory.markdown_sync.edit_import import FileEditImporter
from bot.engine.memory.markdown_sync.layout import MemoryPageMapper, OwnerNoticeSender
from bot.engine.memory.markdown_sync.reconciler import FileReconciler
from bot.engine.memory.markdown_sync.sync_service import (
    InitialFileImport,
    MarkdownSyncService,
    ScopeNames,
)
from bot.engine.memory.noted_facts import NotedFactNotifier, NotedFacts, NoticeMode
from bot.engine.memory.promotion import FactPromoter, QualityMetrics
from bot.engine.memory.retriever import (
    AssociationLinker,
)
from bot.engine.memory.service import MemoryService
from bot.engine.memory.withheld_files import WithheldFileEraser
from bot.engine.memory.worker_proposals import PageEditReviewer
from bot.engine.memory.writer import MemoryWriter
from bot.engine.redaction import SecretMasker
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.setup.live_models import LiveModels
from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock
from cards.catalog import catalog_for
from storage.memory.access_stats import DecayRepo, MemoryCounts, MemoryUsePruner, MemoryUseRepo
from storage.memory.bulk_import import BackupRestorer, EntryBatchWriter
from storage.memory.cells import ChatCellRepo, ExtractionJobRepo, FinishedTaskRepo
from storage.memory.entries import MemoryLinkRepo
from storage.memory.markdown.folder import MarkdownFolder
from storage.memory.markdown.sync_store import FileSnapshotRepo, SyncedEntryRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.people import ChatId, Language
from storage.records.system import ModelChoice
from storage.records.tasks import TaskId
from storage.search.vectors import VectorRepo, VectorSamples

log = logging.getLogger(__name__)


def build_memory_retrieval(
    settings: Settings, store: RepositorySet, clock: Clock, *, other_context: ContextBlock
) -> MemoryRetrieval:
    """`other_context` is further context of workers, which memories must not repeat."""
    entries, chosen = store.memory.entries, settings.memory
    index = build_embedding_index(settings, store.db, store.memory)
    retriever = build_retriever(settings, store.db, store.memory, clock, index)
    usage = UsageTracker(db=store.db, entries=entries, repo=MemoryUseRepo(store.db), now=clock.now)
    builder = MemoryContextBuilder(
        entries=entries,
        retriever=retriever,
        list_injected=usage.list_injected,
        now=clock.now,
        budget=chosen.told_tokens,
        zone=settings.zone,
        episodes=episodes.EpisodeFinder(entries=entries, now=clock.now, zone=settings.zone),
    )

    async def project_of(task: TaskId) -> str:
        return (await store.work.tasks.get(task)).project_dir

    return MemoryRetrieval(
        retriever=retriever,
        usage=usage,
        embedding_index=index,
        briefing=MemoryBriefing(
            injection=builder,
            uses=usage,
            get_chat=store.people.get_chat,
            get_project=project_of,
            other_context=other_context,
            timeout=chosen.recall_seconds,
        ),
    )


def build_extraction_model(
    settings: Settings, gateway: ModelGateway, live_models: LiveModels
) -> BackgroundModelCalls:
    """Calls the extraction model, otherwise the small model, otherwise the default."""
    models = live_models.registry

    def choose() -> ModelChoice:
        named = settings.memory.extract_model or live_models.get_small_model()
        return (models.resolve_choice(named) if named else None) or models.default

    return BackgroundModelCalls(gateway, choose)


def build_memory_writing(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    model: BackgroundModelCalls,
    *,
    redact: Callable[[str], str],
    retrieval: MemoryRetrieval,
) -> MemoryWriting:
    memory, chosen = store.memory, settings.memory
    consolidator = MemoryConsolidator(
        entries=memory.entries,
        cells=memory.cells,
        index=memory.index,
        promoter=FactPromoter(
            entries=memory.entries, cells=memory.cells, quality=QualityMetrics(store.key_values)
        ),
    )
    recorder = MemoryRecorder(
        cells=memory.cells,
        consolidator=consolidator,
        jobs=ExtractionJobRepo(store.db) if chosen.extract else None,
        feed=memory.feed,
        redact=redact,
        zone=settings.zone,
        noted=_build_noted(settings, store),
        extraction_delay=timedelta(seconds=chosen.extract_after_seconds),
    )
    task_recorder = FinishedTaskRecorder(
        db=store.db,
        ended_tasks=FinishedTaskRepo(store.db, store.key_values),
        task_of=store.work.tasks.get,
        chat_of=store.people.get_chat,
        person_of=store.people.get,
        recorder=recorder,
        withheld=WithheldTurnRepo(store.db),
        record_outcome=retrieval.usage.record_task_outcome,
    )
    index = retrieval.embedding_index
    services = (
        task_recorder,
        _build_extraction(
            settings,
            store,
            clock,
            model=model,
            consolidator=consolidator,
            redact=redact,
            index=index,
        ),
        *_build_background(settings, store, clock, model, redact),
        *(() if index is None else (index,)),
    )
    return MemoryWriting(
        writer=_build_writer(store, clock, consolidator, redact),
        recorder=recorder,
        task_recorder=task_recorder,
        services=services,
    )


def _build_writer(
    store: RepositorySet,
    clock: Clock,
    consolidator: MemoryConsolidator,
    redact: Callable[[str], str],
) -> MemoryWriter:
    return MemoryWriter(
        db=store.db,
        entries=store.memory.entries,
        cells=store.memory.cells,
        consolidator=consolidator,
        candidate_review=store.candidate_review,
        feed=store.memory.feed,
        redact=redact,
        now=clock.now,
    )


def _build_noted(settings: Settings, store: RepositorySet) -> NotedFacts:
    return NotedFacts(
        key_values=store.key_values,
        entries=store.memory.entries,
        mode=NoticeMode(settings.memory.notice),
    )


def _build_extraction(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    model: BackgroundModelCalls,
    consolidator: MemoryConsolidator,
    redact: Callable[[str], str],
    index: EmbeddingIndex | None,
) -> ExtractionWorker:
    matcher = None
    if index is not None:
        matcher = SemanticMatcher(
            embedder=index.embedder,
            vectors=index.vectors,
            sampler=VectorSamples(store.db),
            kinds=EXTRACTED_KINDS,
            now=clock.now,
        )
    return ExtractionWorker(
        db=store.db,
        jobs=ExtractionJobRepo(store.db),
        cells=store.memory.cells,
        consolidator=consolidator,
        auditor=AdmissionAuditor(store.memory.entries, store.memory.cells),
        model=model,
        feed=store.memory.feed,
        redact=redact,
        now=clock.now,
        max_calls_per_hour=settings.memory.extract_per_hour,
        admission=AdmissionPreset(settings.memory.admission),
        matcher=matcher,
        noted=_build_noted(settings, store),
        zone=settings.zone,
    )


def _build_background(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    model: BackgroundModelCalls,
    redact: Callable[[str], str],
) -> tuple[AppService, ...]:
    """Services that maintain, link and summarize what is stored."""
    summarizer = None
    if settings.memory.episodes_by_model:
        summarizer = episodes.EpisodeSummarizer(
            db=store.db, model=model, redact=redact, now=clock.now
        )
    feed, key_values, entries = store.memory.feed, store.key_values, store.memory.entries
    return (
        maintenance.MemoryMaintenance(
            db=store.db,
            entries=entries,
            access_stats=DecayRepo(store.db),
            pruning=MemoryUsePruner(store.db),
            feed=feed,
            now=clock.now,
            sleep=asyncio.sleep,
            zone=settings.zone,
            decay_enabled=settings.memory.forget,
        ),
        AssociationLinker(
            db=store.db,
            repo=MemoryLinkRepo(store.db),
            key_values=key_values,
            feed=feed,
            sleep=asyncio.sleep,
        ),
        episodes.EpisodeRecorder(
            db=store.db,
            entries=entries,
            talks=ChatCellRepo(store.db),
            key_values=key_values,
            feed=feed,
            now=clock.now,
            zone=settings.zone,
            summarizer=summarizer,
        ),
    )


def build_memory_services(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    writing: MemoryWriting,
    *,
    publisher: ApprovalCardPublisher,
    courier: OutboxCourier,
) -> tuple[AppService, ...]:
    """All background services of memory."""
    language = settings.fixed_language

    async def language_of(chat_id: ChatId) -> Language:
        return await store.chat_language(await store.chats.get(chat_id))

    requester = CandidateApprovalRequester(
        db=store.db,
        entries=store.memory.entries,
        cells=store.memory.cells,
        approvals=store.approvals,
        key_values=store.key_values,
        feed=store.memory.feed,
        private_chats_of=store.chats.list_private,
        show_approval=publisher.publish,
        show_settled_approvals=publisher.update_cards,
        language_of=language_of,
        ids=store.ids,
        lifetime=settings.approval_lifetime,
        now=clock.now,
    )
    page_edits = PageEditReviewer(
        db=store.db,
        cells=store.memory.cells,
        approvals=store.approvals,
        feed=store.memory.feed,
        show_approval=publisher.publish,
        show_settled_approvals=publisher.update_cards,
        sleep=clock.sleep,
        now=clock.now,
    )
    sync = _build_markdown_sync(
        settings, store, clock, writer=writing.writer, courier=courier, language=language
    )
    notifier = NotedFactNotifier(
        db=store.db,
        noted=_build_noted(settings, store),
        courier=courier,
        language_of=language_of,
        zone=settings.zone,
        now=clock.now,
    )
    return sync, requester, page_edits, notifier, *writing.services


def build_eraser(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    gateway: ModelGateway,
    masker: SecretMasker,
) -> WithheldTurnEraser:
    agents = AcpAgentsFile(settings.home)
    return WithheldTurnEraser(
        db=store.db,
        withheld=WithheldTurnRepo(store.db),
        sessions=store.sessions,
        max_idle=timedelta(minutes=settings.memory.session_idle_minutes),
        close_session=gateway.close_session,
        files=WithheldFileEraser(
            home=settings.home,
            agents=lambda: agents.current().by_name,
            source=backup_source(settings, masker=masker),
            folder=settings.backup_folder,
            now=clock.now,
        ),
        now=clock.now,
    )


def _build_markdown_sync(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    writer: MemoryWriter,
    courier: OutboxCourier,
    language: Language | None,
) -> MarkdownSyncService:
    names, feed = ScopeNames(store.people, language), store.memory.feed
    folder, repo = MarkdownFolder(settings.home), SyncedEntryRepo(store.db)
    pages = MemoryPageMapper(words=catalog_for(Language.ENGLISH), zone=settings.zone)
    notify_owners = OwnerNoticeSender(owners=store.owner_cards(courier))
    return MarkdownSyncService(
        folder=folder,
        bases=FileSnapshotRepo(store.db),
        repo=repo,
        pages=pages,
        reconciler=_build_reconciler(
            store, clock, folder=folder, pages=pages, writer=writer, notify_owners=notify_owners
        ),
        feed=feed,
        always_scopes=names.owners,
        name_of=names.name_of,
        prepare=InitialFileImport(
            data_dir=settings.home,
            folder=folder,
            entries=store.memory.entries,
            writer=writer,
            key_values=store.key_values,
            pages=pages,
            language=names.language,
            notify_owners=notify_owners,
            owners=names.owners,
        ),
        foreign_writes=ForeignWriteDetector(
            store_version=store.db.data_version, repo=repo, feed=feed
        ),
        now=clock.now,
        sleep=asyncio.sleep,
    )


def _build_reconciler(
    store: RepositorySet,
    clock: Clock,
    *,
    folder: MarkdownFolder,
    pages: MemoryPageMapper,
    writer: MemoryWriter,
    notify_owners: OwnerNoticeSender,
) -> FileReconciler:
    repo = SyncedEntryRepo(store.db)
    return FileReconciler(
        folder=folder,
        bases=FileSnapshotRepo(store.db),
        repo=repo,
        pages=pages,
        edit_importer=FileEditImporter(
            repo=repo,
            line_repo=EntryBatchWriter(store.db, store.ids, store.memory.entries),
            writer=writer,
            pages=pages,
            notify_owners=notify_owners,
            now=clock.now,
        ),
        notify_owners=notify_owners,
        now=clock.now,
    )


def build_memory_port(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    writer: MemoryWriter,
    retrieval: MemoryRetrieval,
) -> MemoryService:
    """The handlers' memory port."""
    db, entries, index = store.db, store.memory.entries, retrieval.embedding_index
    progress, quality = CommandProgressLog(store.key_values), QualityMetrics(store.key_values)
    transfer = MemoryTransfer(
        entries=entries,
        backups=BackupRestorer(db, entries),
        members=store.people.list_members,
        writer=writer,
        progress_log=progress,
        data_dir=settings.home,
    )

    async def back_up() -> str:
        return await transfer.back_up(clock.now())

    async def report_quality() -> Mapping[str, float]:
        return (await quality.totals(today=clock.now().date())).to_report()

    return MemoryService(
        entries=entries,
        figures=MemoryCounts(db),
        vectors=VectorRepo(db),
        writer=writer,
        retriever=retrieval.retriever,
        usage=retrieval.usage,
        transfer=transfer,
        restorer=MemoryRestorer(
            db=db,
            entries=entries,
            feed=store.memory.feed,
            progress_log=progress,
            members=store.people.list_members,
            data_dir=settings.home,
            now=clock.now,
        ),
        cleanup=maintenance.MemoryCleanup(
            db=db,
            entries=entries,
            feed=store.memory.feed,
            progress_log=progress,
            back_up=back_up,
            now=clock.now,
            decay_enabled=settings.memory.forget,
        ),
        forget_log=ForgetCommandLog(store.key_values),
        consent=_build_consent(store, clock),
        quality_report=report_quality,
        now=clock.now,
        zone=settings.zone,
        embedding_model=index.embedder.model if index is not None else "",
    )


def _build_consent(store: RepositorySet, clock: Clock) -> MemoryConsent:
    return MemoryConsent(
        db=store.db,
        entries=store.memory.entries,
        cells=store.memory.cells,
        withheld=WithheldTurnRepo(store.db),
        sessions=store.sessions,
        feed=store.memory.feed,
        now=clock.now,
    )
