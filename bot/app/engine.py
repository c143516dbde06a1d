"""Builds the engine: task execution, conversations, approvals and their background services."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from socket import gethostname

from bot.app.conversation_archive import (
    ConversationArchive,
    build_conversation_archive,
)
from bot.app.evolution import build_evolution
from bot.app.heartbeat import build_heartbeat
from bot.app.lifecycle import AppService, Signal
from bot.app.memory import (
    build_eraser,
    build_extraction_model,
    build_memory_retrieval,
    build_memory_services,
    build_memory_writing,
)
from bot.app.parts import (
    EngineServices,
    EvolutionServices,
    MemoryRetrieval,
    MemoryWriting,
    ScheduleServices,
    WorkerServices,
    WorkRules,
)
from bot.app.repositories import RepositorySet
from bot.app.schedule import build_schedule, heartbeat_hours
from bot.app.tracing import build_span_recorder, build_span_services, build_trace_cards
from bot.app.work_rules import build_work_rules
from bot.app.workers import build_context_builder, build_worker_services
from bot.config.settings import Settings
from bot.engine.agent.budget import SpendingBudget, SpendingCaps
from bot.engine.agent.conversation.chat_files import ImageCaptioner
from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import (
    ConversationExpiry,
    SuspendedChatResumer,
    ToolCallSuspension,
    TurnQueue,
)
from bot.engine.agent.memory_hooks import RecordedConversation
from bot.engine.agent.model_gateway import ModelGateway, ReplyRecorder
from bot.engine.agent.pricing import PRICES_FILE, load_prices
from bot.engine.agent.session_history import SessionHistory
from bot.engine.agent.subagents.service import SubagentDeps, SubagentService
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.autonomy.heartbeat.service import HeartbeatService
from bot.engine.llm.backend import RunLimits
from bot.engine.llm.stored_messages import with_present_time
from bot.engine.permissions.requests import DecisionSignal, SuspendedCalls
from bot.engine.skills.skill_library import SkillReviewNotifier
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.approvals import ApprovalCardPublisher, ApprovalExpirer
from bot.engine.tasks.dispatch import LocalDispatcher
from bot.engine.tasks.journal_updates import JournalAttachments
from bot.engine.tasks.notifier import LiveCardUpdater, QueuePositionTracker, TaskNotifier
from bot.engine.tasks.service import TaskService
from bot.engine.tasks.subagent_reports import SubagentReportDelivery
from bot.engine.tasks.task_journal import TaskJournal
from bot.engine.timing import DueTimer
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from bot.engine.workflow.runner import TaskRunner
from bot.engine.workflow.step_approvals import (
    CapExtensionRequester,
)
from bot.engine.workflow.step_executor import MAX_CONTEXT_TOKENS, RunnerDeps
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from bot.setup.live_models import LiveModels
from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock
from handlers.approvals import ApprovalCards
from storage.records.messages import InboxRow
from storage.records.tasks import Task, TaskEvent
from storage.usage import BudgetRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """Dependencies of most parts of the engine."""

    settings: Settings
    store: RepositorySet
    courier: OutboxCourier
    clock: Clock
    publisher: ApprovalCardPublisher
    workers: WorkerServices
    memory: MemoryRetrieval
    archive: ConversationArchive
    rules: WorkRules
    gateway: ModelGateway
    evolution: EvolutionServices
    context_builder: WorkerContextBuilder
    captioner: ImageCaptioner
    progress: LiveProgress
    artifacts: TaskArtifacts
    views: TaskViewLoader


def build_engine_services(
    settings: Settings,
    store: RepositorySet,
    courier: OutboxCourier,
    clock: Clock,
    approval_cards: ApprovalCards,
) -> EngineServices:
    decided, chats_changed, timer = DecisionSignal(), asyncio.Event(), DueTimer(clock.now)
    on_change, on_decided, on_spawned = Signal[[]](), Signal[[]](), Signal[[]]()
    publisher = _build_publisher(store, clock, approval_cards, timer)
    shared = _build_shared(
        settings, store, courier, clock, publisher, decided=decided, on_spawned=on_spawned
    )
    listeners = [publisher.handle_events, shared.evolution.service.handle_task_events]
    notifier = _build_notifier(shared, listeners)
    runner = TaskRunner(_runner_deps(shared, notifier.wake))
    dispatcher = _build_dispatcher(shared, runner, timer, on_change)
    tasks = _build_task_service(shared, dispatcher)
    schedule, heartbeat = _build_schedule(shared, tasks, timer, dispatcher.wake)
    listeners += [schedule.firer.handle_task_events, heartbeat.handle_task_events]
    timer.add(dispatcher, _build_expirer(shared, on_decided), schedule.firer)
    subagents, on_report = _build_subagents(shared, dispatcher.wake)
    writing = _build_memory_writing(shared)
    conversations = _build_conversations(shared, writing, chats_changed)
    traces = build_trace_cards(store, courier, clock, shared.workers.redactor.mask)
    on_spawned.connect(subagents.wake)
    on_change.connect(notifier.wake, subagents.check_needed, writing.task_recorder.wake)
    on_decided.connect(decided.notify, chats_changed.set, runner.wake, dispatcher.wake)
    on_decided.connect(store.candidate_review.publish_changes, store.page_edits.publish_changes)
    return EngineServices(
        workers=shared.workers,
        gateway=shared.gateway,
        memory=shared.memory,
        conversations=conversations,
        memory_writer=writing.writer,
        tasks=tasks,
        schedule=schedule,
        heartbeat=heartbeat,
        evolution=shared.evolution,
        journal=_build_journal(shared, dispatcher),
        dispatcher=dispatcher,
        notifier=notifier,
        traces=traces,
        rules=shared.rules,
        on_report=on_report,
        on_decided=on_decided,
        services=(
            notifier,
            dispatcher,
            subagents,
            *schedule.services,
            timer,
            _build_live_cards(shared, notifier),
            _build_resumer(shared, conversations, chats_changed),
            traces,
            *_background_services(shared, writing, heartbeat),
        ),
    )


def _build_shared(
    settings: Settings,
    store: RepositorySet,
    courier: OutboxCourier,
    clock: Clock,
    publisher: ApprovalCardPublisher,
    *,
    decided: DecisionSignal,
    on_spawned: Callable[[], None],
) -> _Shared:
    base = (settings, store, clock)
    workers = build_worker_services(settings, store, clock)
    rules = build_work_rules(*base, workers, decided=decided, publisher=publisher)
    other_context = workers.briefing.boss_files_block
    memory = build_memory_retrieval(settings, store, clock, other_context=other_context)
    archive = build_conversation_archive(*base, workers.history, workers.models.base_urls)
    gateway = _build_gateway(
        *base,
        workers=workers,
        caps=rules.caps,
        history=archive.history,
        reply_recorders=(archive.notify_growth, memory.briefing.record_usage),
    )
    progress = LiveProgress(workers.redactor.mask)
    evolution = build_evolution(
        *base,
        workers=workers,
        gateway=gateway,
        courier=courier,
        cards=publisher,
        risk_words=lambda: rules.step_approvals.rules.words,
    )
    return _Shared(
        settings=settings,
        store=store,
        courier=courier,
        clock=clock,
        publisher=publisher,
        workers=workers,
        memory=memory,
        archive=archive,
        rules=rules,
        gateway=gateway,
        evolution=evolution,
        context_builder=build_context_builder(
            *base,
            workers,
            memories=memory.briefing,
            retriever=memory.retriever,
            rules=rules,
            on_spawned=on_spawned,
            versions=evolution.versions,
        ),
        captioner=_build_captioner(settings, store, gateway, workers.live_models),
        progress=progress,
        artifacts=TaskArtifacts(settings.home, store.adoption.is_adopted),
        views=TaskViewLoader(store.work, store.usage, progress, now=clock.now),
    )


def _build_publisher(
    store: RepositorySet, clock: Clock, approval_cards: ApprovalCards, timer: DueTimer
) -> ApprovalCardPublisher:
    return ApprovalCardPublisher(
        db=store.db,
        approvals=store.approvals,
        tasks=store.work.tasks,
        approval_cards=approval_cards,
        language_of=store.task_language,
        now=clock.now,
        on_published=lambda: timer.wake(ApprovalExpirer.name),
    )


def _build_gateway(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    workers: WorkerServices,
    caps: SpendingCaps,
    history: SessionHistory,
    reply_recorders: Sequence[ReplyRecorder],
) -> ModelGateway:
    mask = workers.redactor.mask
    return ModelGateway(
        db=store.db,
        sessions=store.sessions,
        usage=store.usage,
        backends=workers.models,
        mcp_servers=workers.mcp_servers,
        now=clock.now,
        sleep=asyncio.sleep,
        new_id=lambda: secrets.token_hex(8),
        budget=SpendingBudget(
            caps=caps,
            prices=load_prices(settings.home / PRICES_FILE, workers.models.base_urls),
            usage=store.usage,
            grants=BudgetRepo(store.db),
            task_cap=store.work.tasks.get_cap,
            now=clock.now,
        ),
        suspended_calls=SuspendedCalls(store.tool_calls, clock.now),
        span_recorder=build_span_recorder(store, clock, mask),
        reply_recorders=reply_recorders,
        history=history,
        tell_time=lambda prompt: with_present_time(prompt, clock.now(), settings.zone),
    )


def _build_captioner(
    settings: Settings, store: RepositorySet, gateway: ModelGateway, live_models: LiveModels
) -> ImageCaptioner:
    blind = (each.strip().casefold() for each in settings.no_vision.split(","))
    return ImageCaptioner(
        gateway=gateway,
        db=store.db,
        ids=store.ids,
        model=live_models.get_vision_model,
        text_only_models=tuple(filter(None, blind)),
    )


def _build_notifier(
    shared: _Shared, listeners: Sequence[Callable[[Task, Sequence[TaskEvent]], Awaitable[None]]]
) -> TaskNotifier:
    store = shared.store

    async def on_events(task: Task, events: Sequence[TaskEvent]) -> None:
        for each in listeners:
            await each(task, events)

    return TaskNotifier(
        db=store.db,
        journal=store.work.events,
        views=shared.views,
        courier=shared.courier,
        language_of=store.task_language,
        home=shared.settings.home,
        zone=shared.settings.zone,
        now=shared.clock.now,
        positions=QueuePositionTracker(queue=store.work.queue, key_values=store.key_values),
        on_events=on_events,
    )


def _runner_deps(shared: _Shared, on_change: Callable[[], None]) -> RunnerDeps:
    settings, store, clock = shared.settings, shared.store, shared.clock
    return RunnerDeps(
        store=store.work,
        gateway=shared.gateway,
        artifacts=shared.artifacts,
        worker_context=shared.context_builder,
        language_of=store.task_language,
        chat_of=store.people.get_chat,
        step_approvals=shared.rules.step_approvals,
        request_cap_extension=CapExtensionRequester(
            lifetime=settings.approval_lifetime, ids=store.ids, now=clock.now
        ),
        recall=shared.workers.task_memories.list_helpful,
        now=clock.now,
        sleep=asyncio.sleep,
        on_change=on_change,
        zone=settings.zone,
        progress=shared.progress,
        tool_approvals=store.approval_requester,
        attach_images=shared.captioner.attach_pictures,
        limits=RunLimits(
            turns=settings.step_turns,
            output_tokens=settings.step_tokens,
            default_seconds=settings.step_seconds,
        ),
        # The model receives less; this limit includes the surrounding text.
        max_context_tokens=max(MAX_CONTEXT_TOKENS, settings.memory.context_tokens * 6 // 5),
    )


def _build_dispatcher(
    shared: _Shared, runner: TaskRunner, timer: DueTimer, on_change: Callable[[], None]
) -> LocalDispatcher:
    settings = shared.settings
    return LocalDispatcher(
        store=shared.store.work,
        run=runner.run,
        language_of=shared.store.task_language,
        slots=settings.slots,
        owner=f"{gethostname()}:{os.getpid()}",
        now=shared.clock.now,
        new_id=lambda: secrets.token_hex(4),
        on_change=on_change,
        patience=timedelta(hours=settings.patience_hours),
        offer_after=timedelta(hours=settings.offer_after_hours),
        grace=settings.stop_grace_seconds,
        notify_command=runner.wake,
        on_next_wake=lambda: timer.wake(LocalDispatcher.name),
    )


def _build_schedule(
    shared: _Shared, tasks: TaskService, timer: DueTimer, on_tasks: Callable[[], None]
) -> tuple[ScheduleServices, HeartbeatService]:
    base = (shared.settings, shared.store, shared.clock)
    schedule = build_schedule(
        *base,
        poster=shared.courier,
        tasks=tasks,
        workflows=shared.evolution.workflows,
        timer=timer,
        on_tasks=on_tasks,
    )
    return schedule, build_heartbeat(
        *base,
        schedule=schedule,
        gateway=shared.gateway,
        context_builder=shared.context_builder,
        caps=shared.rules.caps,
        model=shared.workers.live_models.get_small_model,
        hours=heartbeat_hours(shared.settings),
    )


def _build_live_cards(shared: _Shared, notifier: TaskNotifier) -> LiveCardUpdater:
    return LiveCardUpdater(
        progress=shared.progress, refresh_card=notifier.refresh_card, sleep=asyncio.sleep
    )


def _build_expirer(shared: _Shared, on_change: Callable[[], None]) -> ApprovalExpirer:
    return ApprovalExpirer(
        approvals=shared.store.approvals, card_publisher=shared.publisher, on_change=on_change
    )


def _build_task_service(shared: _Shared, dispatcher: LocalDispatcher) -> TaskService:
    return TaskService(
        store=shared.store.work,
        dispatcher=dispatcher,
        views=shared.views,
        access=TaskAccess(shared.store.people.get_chat),
        now=shared.clock.now,
        new_id=shared.store.ids.short_id,
    )


def _build_journal(shared: _Shared, dispatcher: LocalDispatcher) -> TaskJournal:
    return TaskJournal(
        store=shared.store.work,
        usage=shared.store.usage,
        views=shared.views,
        access=TaskAccess(shared.store.people.get_chat),
        dispatcher=dispatcher,
        attachments=JournalAttachments(shared.settings.home),
        language_of=shared.store.task_language,
        remove_worktree=shared.artifacts.remove_worktree,
        now=shared.clock.now,
    )


def _build_subagents(
    shared: _Shared, on_change: Callable[[], None]
) -> tuple[SubagentService, Signal[[InboxRow]]]:
    """Also returns what is emitted for each report."""
    settings, store, clock = shared.settings, shared.store, shared.clock
    on_report = Signal[[InboxRow]]()
    parents = SubagentReportDelivery(
        store=store.work,
        people=store.people,
        inbox=store.inbox,
        home=settings.home,
        workspace_of=shared.artifacts.workspace,
        language_of=store.task_language,
        fixed_language=settings.fixed_language,
        now=clock.now,
        on_change=on_change,
        on_report=on_report,
    )
    deps = SubagentDeps(
        db=store.db,
        repo=store.work.subagents,
        calls=store.tool_calls,
        gateway=shared.gateway,
        context_builder=shared.context_builder,
        parents=parents,
        # At least one slot, so that accepted subagents finish even if new ones are disabled.
        slots=asyncio.Semaphore(max(1, settings.helpers)),
        ended_signal=DecisionSignal(),
        closing=asyncio.Event(),
        now=clock.now,
        sleep=asyncio.sleep,
    )
    service = SubagentService(
        deps, new_incident=lambda: secrets.token_hex(4), grace=settings.stop_grace_seconds
    )
    return service, on_report


def _build_conversations(
    shared: _Shared, writing: MemoryWriting, changed: asyncio.Event
) -> RecordedConversation:
    """`changed` is set when a conversation stops for an approval."""
    settings, store, memory = shared.settings, shared.store, shared.settings.memory
    conversations = ConversationService(
        db=store.db,
        sessions=store.sessions,
        gateway=shared.gateway,
        data_dir=settings.home,
        context_builder=shared.context_builder,
        now=shared.clock.now,
        sleep=asyncio.sleep,
        ids=store.ids,
        approval_lifetime=settings.approval_lifetime,
        turn_queue=TurnQueue(settings.queue),
        auto_choice=shared.workers.live_models.auto_choice,
        captioner=shared.captioner,
        suspension=ToolCallSuspension(
            calls=store.tool_calls, requester=store.approval_requester, wake=changed.set
        ),
        expiry=ConversationExpiry(
            max_idle=timedelta(minutes=memory.session_idle_minutes),
            max_turns=memory.session_turns,
            max_tokens=memory.session_tokens,
        ),
    )
    return RecordedConversation(
        conversations, db=store.db, recorder=writing.recorder, now=shared.clock.now
    )


def _build_resumer(
    shared: _Shared,
    conversations: RecordedConversation,
    changed: asyncio.Event,
) -> SuspendedChatResumer:
    store = shared.store
    return SuspendedChatResumer(
        db=store.db,
        calls=store.tool_calls,
        requester=store.approval_requester,
        people=store.people,
        conversation=conversations,
        post=shared.courier,
        changed=changed,
        show_request=shared.publisher.publish,
        refresh_cards=shared.publisher.update_outdated,
        language=shared.settings.fixed_language,
        now=shared.clock.now,
        sleep=asyncio.sleep,
    )


def _build_skill_review(shared: _Shared) -> SkillReviewNotifier:
    store = shared.store
    return SkillReviewNotifier(
        library=shared.workers.skills,
        key_values=store.key_values,
        owners=store.owner_cards(shared.courier),
        sleep=asyncio.sleep,
    )


def _build_memory_writing(shared: _Shared) -> MemoryWriting:
    workers = shared.workers
    return build_memory_writing(
        shared.settings,
        shared.store,
        shared.clock,
        build_extraction_model(shared.settings, shared.gateway, workers.live_models),
        redact=workers.redactor.mask,
        retrieval=shared.memory,
    )


def _background_services(
    shared: _Shared, writing: MemoryWriting, heartbeat: HeartbeatService
) -> tuple[AppService, ...]:
    """Services that are independent of tasks: skills, traces and memory."""
    settings, store, clock, workers = shared.settings, shared.store, shared.clock, shared.workers
    return (
        heartbeat,
        _build_skill_review(shared),
        shared.evolution.service,
        workers.mcp_servers,
        workers.models,
        *build_span_services(settings, store, clock, workers.redactor.mask),
        shared.archive.build_compactor(shared.gateway, workers.models),
        *build_memory_services(
            settings, store, clock, writing, publisher=shared.publisher, courier=shared.courier
        ),
        build_eraser(settings, store, clock, shared.gateway, workers.redactor),
    )
