"""Builds conversations: answers to messages, and those that go on after an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from bot.app.parts import WorkerServices
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.conversation.chat_files import ImageCaptioner
from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import (
    ConversationExpiry,
    SuspendedChatResumer,
    ToolCallSuspension,
    TurnQueue,
)
from bot.engine.agent.memory_hooks import RecordedConversation
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.memory.ingestion import MemoryRecorder
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.transports.outbox import OutboxCourier
from bot.transports.ports import Clock


def build_captioner(
    settings: Settings, store: RepositorySet, workers: WorkerServices, gateway: ModelGateway
) -> ImageCaptioner:
    blind = (each.strip().casefold() for each in settings.no_vision.split(","))
    return ImageCaptioner(
        gateway=gateway,
        db=store.db,
        ids=store.ids,
        model=workers.live_models.get_vision_model,
        text_only_models=tuple(filter(None, blind)),
    )


def build_conversations(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    workers: WorkerServices,
    gateway: ModelGateway,
    context_builder: WorkerContextBuilder,
    captioner: ImageCaptioner,
    recorder: MemoryRecorder,
    on_reset: Callable[[], None],
) -> RecordedConversation:
    memory = settings.memory
    conversations = ConversationService(
        db=store.db,
        sessions=store.sessions,
        gateway=gateway,
        data_dir=settings.home,
        context_builder=context_builder,
        now=clock.now,
        sleep=asyncio.sleep,
        ids=store.ids,
        approval_lifetime=settings.approval_lifetime,
        turn_queue=TurnQueue(settings.queue),
        auto_choice=workers.live_models.auto_choice,
        captioner=captioner,
        suspension=ToolCallSuspension(
            calls=store.tool_calls, requester=store.approval_requester, wake=on_reset
        ),
        expiry=ConversationExpiry(
            max_idle=timedelta(minutes=memory.session_idle_minutes),
            max_turns=memory.session_turns,
            max_tokens=memory.session_tokens,
        ),
    )
    return RecordedConversation(conversations, db=store.db, recorder=recorder, now=clock.now)


def build_chat_resumer(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    conversation: RecordedConversation,
    courier: OutboxCourier,
    publisher: ApprovalCardPublisher,
    changed: asyncio.Event,
) -> SuspendedChatResumer:
    return SuspendedChatResumer(
        db=store.db,
        calls=store.tool_calls,
        requester=store.approval_requester,
        people=store.people,
        conversation=conversation,
        post=courier,
        changed=changed,
        show_request=publisher.publish,
        refresh_cards=publisher.update_outdated,
        language=settings.fixed_language,
        now=clock.now,
        sleep=asyncio.sleep,
    )
