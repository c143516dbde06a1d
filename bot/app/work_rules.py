"""Builds what limits work: spending caps, steps that need approval and the rules of tools."""

from __future__ import annotations

from collections.abc import Mapping

from bot.app.parts import WorkerServices, WorkRules
from bot.app.repositories import RepositorySet
from bot.app.workers import build_permissions
from bot.config.settings import Settings
from bot.engine.agent.budget import SpendingCaps
from bot.engine.permissions.requests import DecisionSignal
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.engine.workflow.step_approvals import StepApprovalRequester, parse_risk_words
from bot.transports.ports import Clock
from storage.records.usage import BudgetScope, SpendingCap, parse_cap


def build_work_rules(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    workers: WorkerServices,
    *,
    decided: DecisionSignal,
    publisher: ApprovalCardPublisher,
) -> WorkRules:
    return WorkRules(
        caps=SpendingCaps(zone=settings.zone, by_scope=configured_caps(settings)),
        permissions=build_permissions(
            settings, store, clock, workers, decision_signal=decided, show_request=publisher.publish
        ),
        step_approvals=build_step_approvals(settings, store, clock),
    )


def configured_caps(settings: Settings) -> Mapping[BudgetScope, SpendingCap]:
    texts = {
        BudgetScope.TASK: settings.cap_task,
        BudgetScope.PERSON: settings.cap_person,
        BudgetScope.CHAT: settings.cap_chat,
        BudgetScope.HEARTBEAT: settings.cap_heartbeat,
        BudgetScope.EVOLVE: settings.cap_self,
        BudgetScope.DAY: settings.cap_day,
    }
    return {scope: parse_cap(text) for scope, text in texts.items()}


def build_step_approvals(
    settings: Settings, store: RepositorySet, clock: Clock
) -> StepApprovalRequester:
    """Decides which steps need approval."""
    return StepApprovalRequester(
        words=parse_risk_words(settings.risk_words),
        lifetime=settings.approval_lifetime,
        ids=store.ids,
        now=clock.now,
    )
