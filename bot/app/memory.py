"""Builds memory: retrieval before the model gateway, writing and the services after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property

from bot.app.backup_source import backup_source
from bot.app.lifecycle import AppService
from bot.app.memory_retrieval import build_embedding_index, build_retriever
from bot.app.parts import WorkerServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.background_calls import BackgroundModelCalls
from bot.engine.agent.memory_hooks import MemoryBriefing
from bot.engine.agent.model_gateway import ModelGateway
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
from bot.engine.memory.retriever import AssociationLinker, MemoryRetriever
from bot.engine.memory.service import MemoryService
from bot.engine.memory.withheld_files import WithheldFileEraser
from bot.engine.memory.worker_proposals import PageEditReviewer
from bot.engine.memory.writer import MemoryWriter
from bot.engine.tasks.approvals import ApprovalCardPublisher
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
from storage.shared_files import SharedFiles


class Memory:
    """The parts of memory, each built when it is first asked for. Retrieval is built before the
    model gateway, which `gateway` returns; writing and the services after it."""

    def __init__(
        self,
        settings: Settings,
        store: RepositorySet,
        clock: Clock,
        workers: WorkerServices,
        *,
        gateway: Callable[[], ModelGateway],
        publisher: ApprovalCardPublisher,
        courier: OutboxCourier,
        files: SharedFiles,
    ) -> None:
        self._files = files
        self._settings, self._store, self._clock = settings, store, clock
        self._workers, self._gateway = workers, gateway
        self._publisher, self._courier = publisher, courier
        self._db, self._memory, self._now = store.db, store.memory, clock.now
        self._zone, self._mask = settings.zone, workers.redactor.mask
        self._withheld, self._jobs = WithheldTurnRepo(store.db), ExtractionJobRepo(store.db)

    # --- retrieval

    @cached_property
    def embedding_index(self) -> EmbeddingIndex | None:
        return build_embedding_index(self._settings, self._db, self._memory)

    @cached_property
    def retriever(self) -> MemoryRetriever:
        index = self.embedding_index
        return build_retriever(self._settings, self._db, self._memory, self._clock, index)

    @cached_property
    def usage(self) -> UsageTracker:
        return UsageTracker(
            db=self._db, entries=self._memory.entries, repo=MemoryUseRepo(self._db), now=self._now
        )

    @cached_property
    def briefing(self) -> MemoryBriefing:
        entries, store = self._memory.entries, self._store

        async def project_of(task: TaskId) -> str:
            return (await store.work.tasks.get(task)).project_dir

        return MemoryBriefing(
            injection=MemoryContextBuilder(
                entries=entries,
                retriever=self.retriever,
                list_injected=self.usage.list_injected,
                now=self._now,
                budget=self._settings.memory.told_tokens,
                zone=self._zone,
                episodes=episodes.EpisodeFinder(entries=entries, now=self._now, zone=self._zone),
            ),
            uses=self.usage,
            get_chat=store.people.get_chat,
            get_project=project_of,
            # What workers are told anyway, which memories must not repeat.
            other_context=self._workers.briefing.boss_files_block,
            timeout=self._settings.memory.recall_seconds,
        )

    # --- writing

    @cached_property
    def _quality(self) -> QualityMetrics:
        return QualityMetrics(self._store.key_values)

    @cached_property
    def _noted(self) -> NotedFacts:
        return NotedFacts(
            key_values=self._store.key_values,
            entries=self._memory.entries,
            mode=NoticeMode(self._settings.memory.notice),
        )

    @cached_property
    def _consolidator(self) -> MemoryConsolidator:
        memory = self._memory
        return MemoryConsolidator(
            entries=memory.entries,
            cells=memory.cells,
            index=memory.index,
            promoter=FactPromoter(
                entries=memory.entries, cells=memory.cells, quality=self._quality
            ),
        )

    @cached_property
    def recorder(self) -> MemoryRecorder:
        chosen = self._settings.memory
        return MemoryRecorder(
            cells=self._memory.cells,
            consolidator=self._consolidator,
            jobs=self._jobs if chosen.extract else None,
            feed=self._memory.feed,
            redact=self._mask,
            zone=self._zone,
            noted=self._noted,
            extraction_delay=timedelta(seconds=chosen.extract_after_seconds),
        )

    @cached_property
    def task_recorder(self) -> FinishedTaskRecorder:
        store = self._store
        return FinishedTaskRecorder(
            db=self._db,
            ended_tasks=FinishedTaskRepo(self._db, store.key_values),
            task_of=store.work.tasks.get,
            chat_of=store.people.get_chat,
            person_of=store.people.get,
            recorder=self.recorder,
            withheld=self._withheld,
            record_outcome=self.usage.record_task_outcome,
        )

    @cached_property
    def writer(self) -> MemoryWriter:
        return MemoryWriter(
            db=self._db,
            entries=self._memory.entries,
            cells=self._memory.cells,
            consolidator=self._consolidator,
            candidate_review=self._store.candidate_review,
            feed=self._memory.feed,
            redact=self._mask,
            now=self._now,
        )

    @cached_property
    def _model(self) -> BackgroundModelCalls:
        """Calls the extraction model, otherwise the small model, otherwise the default."""
        live_models = self._workers.live_models
        models = live_models.registry

        def choose() -> ModelChoice:
            named = self._settings.memory.extract_model or live_models.get_small_model()
            return (models.resolve_choice(named) if named else None) or models.default

        return BackgroundModelCalls(self._gateway(), choose)

    def _build_extraction(self) -> ExtractionWorker:
        memory, chosen, index = self._memory, self._settings.memory, self.embedding_index
        matcher = None
        if index is not None:
            matcher = SemanticMatcher(
                embedder=index.embedder,
                vectors=index.vectors,
                sampler=VectorSamples(self._db),
                kinds=EXTRACTED_KINDS,
                now=self._now,
            )
        return ExtractionWorker(
            db=self._db,
            jobs=self._jobs,
            cells=memory.cells,
            consolidator=self._consolidator,
            auditor=AdmissionAuditor(memory.entries, memory.cells),
            model=self._model,
            feed=memory.feed,
            redact=self._mask,
            now=self._now,
            max_calls_per_hour=chosen.extract_per_hour,
            admission=AdmissionPreset(chosen.admission),
            matcher=matcher,
            noted=self._noted,
            zone=self._zone,
        )

    # --- services

    @cached_property
    def services(self) -> tuple[AppService, ...]:
        index = self.embedding_index
        return (
            self._build_markdown_sync(),
            self._build_approval_requester(),
            PageEditReviewer(
                db=self._db,
                cells=self._memory.cells,
                approvals=self._store.approvals,
                feed=self._memory.feed,
                show_approval=self._publisher.publish,
                show_settled_approvals=self._publisher.update_cards,
                sleep=self._clock.sleep,
                now=self._now,
            ),
            NotedFactNotifier(
                db=self._db,
                noted=self._noted,
                courier=self._courier,
                language_of=self._language_of,
                zone=self._zone,
                now=self._now,
            ),
            self.task_recorder,
            self._build_extraction(),
            *self._build_maintenance(),
            *(() if index is None else (index,)),
            self._build_eraser(),
        )

    async def _language_of(self, chat_id: ChatId) -> Language:
        return await self._store.chat_language(await self._store.chats.get(chat_id))

    def _build_approval_requester(self) -> CandidateApprovalRequester:
        store = self._store
        return CandidateApprovalRequester(
            db=self._db,
            entries=self._memory.entries,
            cells=self._memory.cells,
            approvals=store.approvals,
            key_values=store.key_values,
            feed=self._memory.feed,
            private_chats_of=store.chats.list_private,
            show_approval=self._publisher.publish,
            show_settled_approvals=self._publisher.update_cards,
            language_of=self._language_of,
            ids=store.ids,
            lifetime=self._settings.approval_lifetime,
            now=self._now,
        )

    def _build_maintenance(self) -> tuple[AppService, ...]:
        """Services that maintain, link and summarize what is stored."""
        db, chosen, zone = self._db, self._settings.memory, self._zone
        feed, key_values, entries = self._memory.feed, self._store.key_values, self._memory.entries
        summarizer = None
        if chosen.episodes_by_model:
            summarizer = episodes.EpisodeSummarizer(
                db=db, model=self._model, redact=self._mask, now=self._now
            )
        return (
            maintenance.MemoryMaintenance(
                db=db,
                entries=entries,
                access_stats=DecayRepo(db),
                pruning=MemoryUsePruner(db),
                feed=feed,
                now=self._now,
                sleep=asyncio.sleep,
                zone=zone,
                decay_enabled=chosen.forget,
            ),
            AssociationLinker(
                db=db,
                repo=MemoryLinkRepo(db),
                key_values=key_values,
                feed=feed,
                sleep=asyncio.sleep,
            ),
            episodes.EpisodeRecorder(
                db=db,
                entries=entries,
                talks=ChatCellRepo(db),
                key_values=key_values,
                feed=feed,
                now=self._now,
                zone=zone,
                summarizer=summarizer,
            ),
        )

    def _build_eraser(self) -> WithheldTurnEraser:
        settings = self._settings
        return WithheldTurnEraser(
            db=self._db,
            withheld=self._withheld,
            sessions=self._store.sessions,
            max_idle=timedelta(minutes=settings.memory.session_idle_minutes),
            close_session=self._gateway().close_session,
            files=self.file_eraser,
            shared=self._files,
            now=self._now,
        )

    @cached_property
    def file_eraser(self) -> WithheldFileEraser:
        settings = self._settings
        agents = AcpAgentsFile(settings.home)
        return WithheldFileEraser(
            home=settings.home,
            agents=lambda: agents.current().by_name,
            source=backup_source(settings, masker=self._workers.redactor),
            folder=settings.backup_folder,
            now=self._now,
        )

    def _build_markdown_sync(self) -> MarkdownSyncService:
        store, feed, home = self._store, self._memory.feed, self._settings.home
        names = ScopeNames(store.people, self._settings.fixed_language)
        folder, repo, bases = (
            MarkdownFolder(home),
            SyncedEntryRepo(self._db),
            FileSnapshotRepo(self._db),
        )
        pages = MemoryPageMapper(words=catalog_for(Language.ENGLISH), zone=self._zone)
        notify_owners = OwnerNoticeSender(owners=store.owner_cards(self._courier))
        importer = FileEditImporter(
            repo=repo,
            line_repo=EntryBatchWriter(self._db, store.ids, self._memory.entries),
            writer=self.writer,
            pages=pages,
            notify_owners=notify_owners,
            now=self._now,
        )
        return MarkdownSyncService(
            folder=folder,
            bases=bases,
            repo=repo,
            pages=pages,
            reconciler=FileReconciler(
                folder=folder,
                bases=bases,
                repo=repo,
                pages=pages,
                edit_importer=importer,
                notify_owners=notify_owners,
                now=self._now,
            ),
            feed=feed,
            always_scopes=names.owners,
            name_of=names.name_of,
            prepare=InitialFileImport(
                data_dir=home,
                folder=folder,
                entries=self._memory.entries,
                writer=self.writer,
                key_values=store.key_values,
                pages=pages,
                language=names.language,
                notify_owners=notify_owners,
                owners=names.owners,
            ),
            foreign_writes=ForeignWriteDetector(
                store_version=self._db.data_version, repo=repo, feed=feed
            ),
            now=self._now,
            sleep=asyncio.sleep,
        )

    # --- what people order

    @cached_property
    def port(self) -> MemoryService:
        """The handlers' memory port."""
        db, store, entries = self._db, self._store, self._memory.entries
        feed, index, home = self._memory.feed, self.embedding_index, self._settings.home
        progress, decays = CommandProgressLog(store.key_values), self._settings.memory.forget
        transfer = MemoryTransfer(
            entries=entries,
            backups=BackupRestorer(db, entries),
            members=store.people.list_members,
            writer=self.writer,
            progress_log=progress,
            data_dir=home,
        )

        async def back_up() -> str:
            return await transfer.back_up(self._now())

        async def report_quality() -> Mapping[str, float]:
            return (await self._quality.totals(today=self._now().date())).to_report()

        return MemoryService(
            entries=entries,
            figures=MemoryCounts(db),
            vectors=VectorRepo(db),
            writer=self.writer,
            retriever=self.retriever,
            usage=self.usage,
            transfer=transfer,
            restorer=MemoryRestorer(
                db=db,
                entries=entries,
                feed=feed,
                progress_log=progress,
                members=store.people.list_members,
                data_dir=home,
                now=self._now,
            ),
            cleanup=maintenance.MemoryCleanup(
                db=db,
                entries=entries,
                feed=feed,
                progress_log=progress,
                back_up=back_up,
                now=self._now,
                decay_enabled=decays,
            ),
            forget_log=ForgetCommandLog(store.key_values),
            consent=self._build_consent(),
            quality_report=report_quality,
            now=self._now,
            zone=self._zone,
            embedding_model=index.embedder.model if index is not None else "",
        )

    def _build_consent(self) -> MemoryConsent:
        return MemoryConsent(
            db=self._db,
            entries=self._memory.entries,
            cells=self._memory.cells,
            withheld=self._withheld,
            sessions=self._store.sessions,
            recorder=self.recorder,
            key_values=self._store.key_values,
            feed=self._memory.feed,
            now=self._now,
        )
