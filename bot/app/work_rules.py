"""Builds what limits work: spending caps, steps that need approval and the rules of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from bot.app.parts import WorkerServices, WorkRules
from bot.app.repositories import RepositorySet
from bot.config.settings import BadSettings, Settings
from bot.engine.agent.budget import SpendingCaps
from bot.engine.agent.pricing import PRICES_FILE, load_prices
from bot.engine.llm.backend import RunLimits
from bot.engine.permissions import rules
from bot.engine.permissions.policy import AskMode, PolicyLevels, RulePolicy, SecurityLevel
from bot.engine.permissions.requests import DecisionSignal
from bot.engine.permissions.service import PermissionService
from bot.engine.tasks.approvals import ApprovalCardPublisher
from bot.engine.workflow.dry_run import DryRunConditions
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.step_approvals import StepApprovalRequester, parse_risk_words
from bot.engine.workflow.step_executor import MAX_CONTEXT_TOKENS
from bot.engine.workflow.workflow_cases import DryRunService
from bot.transports.ports import Clock
from cards.catalog import catalog_for
from storage.records.approvals import Approval
from storage.records.people import Language
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
        configured=_configured_rules(settings),
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


def build_permissions(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    workers: WorkerServices,
    *,
    decision_signal: DecisionSignal,
    show_request: Callable[[Approval], Awaitable[None]],
) -> PermissionService:
    """`show_request` publishes the card of a new approval. Raises BadSettings."""
    return PermissionService(
        db=store.db,
        calls=store.tool_calls,
        grants=store.grants,
        tasks=store.work.tasks,
        requester=store.approval_requester,
        policy=build_policy(settings),
        mask=workers.redactor.mask,
        sandbox=workers.sandbox,
        servers=workers.mcp_config.list_servers,
        trusts_sandbox=settings.tools_trust_sandbox and not settings.tools_network,
        signal=decision_signal,
        show_request=show_request,
        now=clock.now,
        sleep=asyncio.sleep,
    )


def build_policy(settings: Settings) -> RulePolicy:
    """Raises BadSettings."""
    levels = PolicyLevels(
        security=SecurityLevel(settings.tools_security),
        ask_mode=AskMode(settings.tools_ask),
    )
    return RulePolicy(rules=_configured_rules(settings), levels=levels)


def _configured_rules(settings: Settings) -> rules.PermissionRules:
    return rules.PermissionRules(
        allow=_parse_rules("SHIFTBOSS_TOOLS_ALLOW", settings.tools_allow),
        ask=_parse_rules("SHIFTBOSS_TOOLS_ASK_FOR", settings.tools_ask_for),
        deny=_parse_rules("SHIFTBOSS_TOOLS_DENY", settings.tools_deny),
    )


def _parse_rules(name: str, text: str) -> tuple[rules.PermissionRule, ...]:
    try:
        return rules.parse_rules(text)
    except rules.PermissionRuleError as error:
        raise BadSettings([f"{name}: {error}"]) from error


def build_step_limits(settings: Settings) -> RunLimits:
    return RunLimits(
        turns=settings.step_turns,
        output_tokens=settings.step_tokens,
        default_seconds=settings.step_seconds,
    )


def session_limit(settings: Settings) -> int:
    """The tokens at which a worker's session is replaced: those that a model receives, with the
    surrounding text."""
    return max(MAX_CONTEXT_TOKENS, settings.memory.context_tokens * 6 // 5)


def build_dry_runs(
    settings: Settings,
    clock: Clock,
    workers: WorkerServices,
    rules: WorkRules,
    library: WorkflowLibrary,
) -> DryRunService:
    async def get_conditions(language: Language) -> DryRunConditions:
        chosen = workers.models.default
        prices = load_prices(settings.home / PRICES_FILE, workers.models.base_urls)
        return DryRunConditions(
            words=catalog_for(language),
            now=clock.now(),
            zone=settings.zone,
            max_context_tokens=session_limit(settings),
            approval_lifetime=settings.approval_lifetime,
            limits=build_step_limits(settings),
            personas=await workers.personas.get_all(),
            risk_words=rules.step_approvals.rules.words,
            model=chosen.name,
            price=partial(prices.max_cost, chosen.backend, chosen.model),
        )

    return DryRunService(library, get_conditions)
