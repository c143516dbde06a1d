"""Builds the engine: task execution, conversations, approvals and their background services."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from bot.app.conversations import build_captioner, build_chat_resumer, build_conversations
from bot.app.evolution import build_evolution
from bot.app.lifecycle import AppService, Signal
from bot.app.memory import Memory
from bot.app.parts import (
    EvolutionServices,
    ProcessPlan,
    ScheduleServices,
    WorkerServices,
    WorkRules,
)
from bot.app.repositories import RepositorySet
from bot.app.schedule import build_heartbeat, build_schedule, heartbeat_hours
from bot.app.tracing import build_span_recorder, build_span_services, build_trace_cards
from bot.app.work_rules import build_dry_runs, build_step_limits, build_work_rules, session_limit
from bot.app.workers import (
    ConversationArchive,
    build_context_builder,
    build_conversation_archive,
    build_worker_services,
)
from bot.config.settings import Settings
from bot.engine.agent.budget import SpendingBudget
from bot.engine.agent.conversation.chat_files import ImageCaptioner
from bot.engine.agent.cost_report import CostReportService
from bot.engine.agent.memory_hooks import RecordedConversation
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.pricing import PRICES_FILE, load_prices
from bot.engine.agent.subagents.service import SubagentDeps, SubagentService
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.autonomy.heartbeat.service import HeartbeatService
from bot.engine.llm.stored_messages import with_present_time
from bot.engine.permissions.requests import DecisionSignal, SuspendedCalls
from bot.engine.permissions.rules import protected_by
from bot.engine.skills.skill_library import SkillReviewNotifier
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.approvals import ApprovalCardPublisher, ApprovalExpirer
from bot.engine.tasks.dispatch import LocalDispatcher
from bot.engine.tasks.journal_updates import JournalAttachments
from bot.engine.tasks.notifier import LiveCardUpdater, QueuePositionTracker, TaskNotifier
from bot.engine.tasks.reruns import TaskRerunner
from bot.engine.tasks.service import TaskService
from bot.engine.tasks.subagent_reports import SubagentReportDelivery
from bot.engine.tasks.task_journal import TaskJournal
from bot.engine.timing import DueTimer
from bot.engine.tools.linked_documents import DocumentReader
from bot.engine.tracing.trace_card import TraceCardUpdater
from bot.engine.workflow.call_steps import CallSteps
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from bot.engine.workflow.runner import TaskRunner
from bot.engine.workflow.step_approvals import CapExtensionRequester
from bot.engine.workflow.step_executor import RunnerDeps
from bot.engine.workflow.workflow_cases import DryRunService
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock
from handlers.approval_cards import ApprovalCards
from storage.heartbeat import HeartbeatRepo
from storage.records.messages import InboxRow
from storage.records.tasks import ResultForm, Task, TaskEvent, TaskId, TaskStatus
from storage.records.workers import Subagent
from storage.shared_files import SharedFiles
from storage.usage import BudgetRepo
from storage.worker_processes import WorkerProcessRepo


class Engine:
    """The engine's parts. Each is built when it is first asked for; `__init__` then connects what
    one tells another. `services` run in their order. `on_report` must get a listener that handles
    the stored reports of subagents, `on_decided` must be called after a decision."""

    def __init__(
        self,
        settings: Settings,
        store: RepositorySet,
        courier: OutboxCourier,
        clock: Clock,
        approval_cards: ApprovalCards,
        *,
        documents: Callable[[], DocumentReader | None],
        files: SharedFiles,
        plan: ProcessPlan,
    ) -> None:
        """`documents` returns the reader of linked documents, if there is one now. Raises
        BadSettings."""
        self.plan, self.files = plan, files
        self.settings, self.store, self.courier, self.clock = settings, store, courier, clock
        self.process_id = secrets.token_hex(8)
        self._approval_cards, self._documents = approval_cards, documents
        self._subagents_ended = DecisionSignal()
        self._decided, self._chats_changed = DecisionSignal(), asyncio.Event()
        self._timer = DueTimer(clock.now)
        self._on_change, self._on_spawned = Signal[[]](), Signal[[]]()
        self.on_decided, self.on_report = Signal[[]](), Signal[[InboxRow]]()
        expirer = ApprovalExpirer(
            approvals=store.approvals, card_publisher=self.publisher, on_change=self.on_decided
        )
        self._timer.add(self.dispatcher, expirer, self.schedule.firer)
        self._on_spawned.connect(self._subagents.wake)
        self._on_change.connect(
            self.notifier.wake,
            self._subagents.check_needed,
            self.memory.task_recorder.wake,
        )
        self.on_decided.connect(
            self._decided.notify, self._chats_changed.set, self._runner.wake, self.dispatcher.wake
        )
        self.on_decided.connect(
            store.candidate_review.publish_changes, store.page_edits.publish_changes
        )

    @property
    def _base(self) -> tuple[Settings, RepositorySet, Clock]:
        return self.settings, self.store, self.clock

    @cached_property
    def workers(self) -> WorkerServices:
        return build_worker_services(*self._base, self.courier)

    @cached_property
    def publisher(self) -> ApprovalCardPublisher:
        store = self.store
        return ApprovalCardPublisher(
            db=store.db,
            approvals=store.approvals,
            tasks=store.work.tasks,
            approval_cards=self._approval_cards,
            language_of=store.task_language,
            now=self.clock.now,
            on_published=lambda: self._timer.wake(ApprovalExpirer.name),
        )

    @cached_property
    def rules(self) -> WorkRules:
        return build_work_rules(
            *self._base, self.workers, decided=self._decided, publisher=self.publisher
        )

    @cached_property
    def memory(self) -> Memory:
        return Memory(
            *self._base,
            self.workers,
            gateway=lambda: self.gateway,
            publisher=self.publisher,
            courier=self.courier,
            files=self.files,
        )

    @cached_property
    def _archive(self) -> ConversationArchive:
        workers = self.workers
        return build_conversation_archive(*self._base, workers.history, workers.models.base_urls)

    @cached_property
    def budget(self) -> SpendingBudget:
        settings, store, clock = self._base
        return SpendingBudget(
            db=store.db,
            holder=self.process_id,
            caps=self.rules.caps,
            prices=load_prices(settings.home / PRICES_FILE, self.workers.models.base_urls),
            usage=store.usage,
            grants=BudgetRepo(store.db),
            task_cap=store.work.tasks.get_cap,
            task_since=store.work.tasks.get_budget_start,
            now=clock.now,
        )

    @cached_property
    def gateway(self) -> ModelGateway:
        settings, store, clock = self._base
        workers = self.workers
        return ModelGateway(
            db=store.db,
            sessions=store.sessions,
            usage=store.usage,
            backends=workers.models,
            mcp_servers=workers.mcp_servers,
            now=clock.now,
            sleep=asyncio.sleep,
            new_id=lambda: secrets.token_hex(8),
            budget=self.budget,
            suspended_calls=SuspendedCalls(store.tool_calls, clock.now),
            span_recorder=build_span_recorder(store, clock, workers.redactor.mask),
            reply_recorders=(self._archive.notify_growth, self.memory.briefing.record_usage),
            history=self._archive.history,
            tell_time=lambda prompt: with_present_time(prompt, clock.now(), settings.zone),
        )

    @cached_property
    def evolution(self) -> EvolutionServices:
        return build_evolution(
            *self._base,
            workers=self.workers,
            gateway=self.gateway,
            courier=self.courier,
            cards=self.publisher,
            risk_words=lambda: self.rules.step_approvals.rules.words,
        )

    @cached_property
    def _context_builder(self) -> WorkerContextBuilder:
        return build_context_builder(
            *self._base,
            self.workers,
            memories=self.memory.briefing,
            retriever=self.memory.retriever,
            rules=self.rules,
            on_spawned=self._on_spawned,
            versions=self.evolution.versions,
            documents=self._documents,
        )

    @cached_property
    def _captioner(self) -> ImageCaptioner:
        return build_captioner(self.settings, self.store, self.workers, self.gateway)

    @cached_property
    def _progress(self) -> LiveProgress:
        return LiveProgress(self.workers.redactor.mask)

    @cached_property
    def _artifacts(self) -> TaskArtifacts:
        return TaskArtifacts(self.settings.home, self.store.adoption.is_adopted, self.files)

    @cached_property
    def _views(self) -> TaskViewLoader:
        return TaskViewLoader(self.store.work, self.store.usage, self._progress, now=self.clock.now)

    @cached_property
    def notifier(self) -> TaskNotifier:
        settings, store, clock = self._base

        async def on_events(task: Task, events: Sequence[TaskEvent]) -> None:
            await self.publisher.handle_events(task, events)
            await self.evolution.service.handle_task_events(task, events)
            await self.schedule.firer.handle_task_events(task, events)
            await self.heartbeat.handle_task_events(task, events)

        async def account_of(task: Task) -> str:
            chat = await store.people.get_chat(task.chat_id)
            return await store.people.find_account(task.created_by, chat.channel)

        return TaskNotifier(
            db=store.db,
            journal=store.work.events,
            views=self._views,
            courier=self.courier,
            language_of=store.task_language,
            home=settings.home,
            zone=settings.zone,
            now=clock.now,
            positions=QueuePositionTracker(queue=store.work.queue, key_values=store.key_values),
            on_events=on_events,
            result_form=ResultForm(settings.results),
            account_of=account_of,
            mask=self.workers.redactor.mask,
            files=self.files,
        )

    @cached_property
    def _runner(self) -> TaskRunner:
        settings, store, clock = self._base
        deps = RunnerDeps(
            store=store.work,
            gateway=self.gateway,
            artifacts=self._artifacts,
            worker_context=self._context_builder,
            language_of=store.task_language,
            chat_of=store.people.get_chat,
            step_approvals=self.rules.step_approvals,
            request_cap_extension=CapExtensionRequester(
                lifetime=settings.approval_lifetime, ids=store.ids, now=clock.now
            ),
            recall=self.workers.task_memories.list_helpful,
            now=clock.now,
            sleep=asyncio.sleep,
            on_change=self.notifier.wake,
            zone=settings.zone,
            progress=self._progress,
            tool_approvals=store.approval_requester,
            call_steps=CallSteps(
                personas=self.workers.personas,
                authorizers=self.rules.permissions,
                shell=self.workers.shell,
                fetcher=self.workers.fetcher,
                protected=protected_by(self.rules.configured),
                calls=store.tool_calls,
                mask=self.workers.redactor.mask,
            ),
            attach_images=self._captioner.attach_pictures,
            limits=build_step_limits(settings),
            max_context_tokens=session_limit(settings),
        )
        return TaskRunner(deps)

    @cached_property
    def processes(self) -> WorkerProcessRepo:
        return WorkerProcessRepo(self.store.db)

    @property
    def slots(self) -> int:
        """How many tasks this process may run at once."""
        if not self.plan.role.runs_tasks:
            return 0
        return self.settings.slots if self.plan.slots is None else self.plan.slots

    @cached_property
    def dry_runs(self) -> DryRunService:
        return build_dry_runs(
            self.settings, self.clock, self.workers, self.rules, self.evolution.workflows
        )

    @cached_property
    def dispatcher(self) -> LocalDispatcher:
        settings, runner = self.settings, self._runner
        kind: Callable[..., LocalDispatcher] = LocalDispatcher
        if self.store.db.dialect != "sqlite":
            kind = self._shared_dispatcher()
        return kind(
            store=self.store.work,
            run=runner.run,
            language_of=self.store.task_language,
            slots=self.slots,
            owner=self.process_id,
            now=self.clock.now,
            new_id=lambda: secrets.token_hex(4),
            on_change=self._on_change,
            patience=timedelta(hours=settings.patience_hours),
            offer_after=timedelta(hours=settings.offer_after_hours),
            grace=settings.stop_grace_seconds,
            notify_command=runner.wake,
            on_next_wake=lambda: self._timer.wake(LocalDispatcher.name),
        )

    def _shared_dispatcher(self) -> Callable[..., LocalDispatcher]:
        """Loaded only where processes share the store."""
        shared: dict[str, Any] = {
            "processes": self.processes,
            "projects": self.plan.projects,
            "has_folder": os.path.isdir,
        }
        if self.settings.dispatcher == "procrastinate":
            from bot.engine.tasks.procrastinate_dispatch import ProcrastinateDispatcher

            return partial(ProcrastinateDispatcher, url=self.settings.database, **shared)
        from bot.engine.tasks.shared_dispatch import SharedDispatcher

        return partial(SharedDispatcher, **shared)

    def on_store_change(self, table: str, about: str) -> None:
        """Another process may have written to this table."""
        match table:
            case "tasks":
                task, _, status = about.partition(" ")
                self._runner.wake(TaskId(task))
                self.dispatcher.notice_status(TaskId(task), TaskStatus(status))
            case "commands":
                self._runner.wake(TaskId(about))
                self.dispatcher.wake()
                self.dispatcher.check_running(TaskId(about))
            case "events":
                self._on_change()
            case "approvals":
                self._timer.wake(ApprovalExpirer.name)
                self.on_decided()

    def on_unknown_change(self) -> None:
        """Other processes may have written anything."""
        self.on_decided()
        self.dispatcher.check_all_running()
        self._subagents.wake()
        self._subagents_ended.notify()
        for source in (LocalDispatcher.name, ApprovalExpirer.name, self.schedule.firer.name):
            self._timer.wake(source)

    @cached_property
    def tasks(self) -> TaskService:
        return TaskService(
            store=self.store.work,
            dispatcher=self.dispatcher,
            views=self._views,
            access=TaskAccess(self.store.people.get_chat),
            reruns=TaskRerunner(store=self.store.work, zone=self.settings.zone, now=self.clock.now),
            undoing=self.store.undoing,
            now=self.clock.now,
            new_id=self.store.ids.short_id,
        )

    @cached_property
    def schedule(self) -> ScheduleServices:
        return build_schedule(
            *self._base,
            poster=self.courier,
            tasks=self.tasks,
            workflows=self.evolution.workflows,
            timer=self._timer,
            on_tasks=self.dispatcher.wake,
            files=self.files,
        )

    @cached_property
    def heartbeat(self) -> HeartbeatService:
        return build_heartbeat(
            *self._base,
            schedule=self.schedule,
            gateway=self.gateway,
            context_builder=self._context_builder,
            caps=self.rules.caps,
            model=self.workers.live_models.get_small_model,
            hours=heartbeat_hours(self.settings),
        )

    @cached_property
    def journal(self) -> TaskJournal:
        store = self.store
        return TaskJournal(
            store=store.work,
            usage=store.usage,
            views=self._views,
            access=TaskAccess(store.people.get_chat),
            dispatcher=self.dispatcher,
            attachments=JournalAttachments(self.settings.home),
            language_of=store.task_language,
            remove_worktree=self._artifacts.remove_worktree,
            now=self.clock.now,
        )

    @cached_property
    def _subagents(self) -> SubagentService:
        settings, store, clock = self._base
        parents = SubagentReportDelivery(
            store=store.work,
            people=store.people,
            inbox=store.inbox,
            home=settings.home,
            workspace_of=self._artifacts.workspace,
            language_of=store.task_language,
            fixed_language=settings.fixed_language,
            now=clock.now,
            on_change=self.dispatcher.wake,
            on_report=self.on_report,
        )
        deps = SubagentDeps(
            db=store.db,
            repo=store.work.subagents,
            calls=store.tool_calls,
            gateway=self.gateway,
            context_builder=self._context_builder,
            parents=parents,
            # At least one slot, so that accepted subagents finish even if new ones are disabled.
            slots=asyncio.Semaphore(max(1, settings.helpers)),
            ended_signal=self._subagents_ended,
            closing=asyncio.Event(),
            now=clock.now,
            sleep=asyncio.sleep,
            claim=self._claim_subagent,
        )
        return SubagentService(
            deps, new_incident=lambda: secrets.token_hex(4), grace=settings.stop_grace_seconds
        )

    async def _claim_subagent(self, helper: Subagent) -> bool:
        """Those of chats run where the chats are, those of tasks where tasks run."""
        role, repo = self.plan.role, self.store.work.subagents
        if not (role.has_channels if helper.task_id is None else role.runs_tasks):
            return False
        if self.store.db.dialect == "sqlite":
            return True
        async with self.store.db.write() as tx:
            return await repo.claim(tx, helper.id, self.process_id)

    @property
    def costs(self) -> CostReportService:
        store = self.store
        return CostReportService(
            store.usage,
            BudgetRepo(store.db),
            self.rules.caps,
            self.clock.now,
            heartbeat_runs=HeartbeatRepo(store.db),
            task_since=self.store.work.tasks.get_budget_start,
        )

    @cached_property
    def conversations(self) -> RecordedConversation:
        return build_conversations(
            *self._base,
            workers=self.workers,
            gateway=self.gateway,
            context_builder=self._context_builder,
            captioner=self._captioner,
            recorder=self.memory.recorder,
            on_reset=self._chats_changed.set,
        )

    @cached_property
    def traces(self) -> TraceCardUpdater:
        return build_trace_cards(self.store, self.courier, self.clock, self.workers.redactor.mask)

    @cached_property
    def task_services(self) -> tuple[AppService, ...]:
        """The services of a process that only runs tasks."""
        return (
            self.dispatcher,
            self._subagents,
            self._live_cards,
            self.workers.mcp_servers,
            self.workers.models,
        )

    @cached_property
    def _live_cards(self) -> LiveCardUpdater:
        return LiveCardUpdater(
            progress=self._progress,
            refresh_card=self.notifier.refresh_card,
            sleep=asyncio.sleep,
        )

    @cached_property
    def services(self) -> tuple[AppService, ...]:
        store, workers = self.store, self.workers
        return (
            self.notifier,
            self.dispatcher,
            self._subagents,
            *self.schedule.services,
            self._timer,
            self._live_cards,
            build_chat_resumer(
                *self._base,
                conversation=self.conversations,
                courier=self.courier,
                publisher=self.publisher,
                changed=self._chats_changed,
            ),
            self.traces,
            # Independent of tasks: skills, traces and memory.
            self.heartbeat,
            SkillReviewNotifier(
                library=workers.skills,
                key_values=store.key_values,
                owners=store.owner_cards(self.courier),
                sleep=asyncio.sleep,
            ),
            self.evolution.service,
            self.evolution.history,
            workers.mcp_servers,
            workers.models,
            *build_span_services(*self._base, workers.redactor.mask),
            self._archive.build_compactor(self.gateway, workers.models),
            *self.memory.services,
        )
