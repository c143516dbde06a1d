"""Maps each setting that can change while the program runs to the function that applies it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from bot.app.engine import Engine
from bot.app.parts import AutonomyServices
from bot.app.schedule import builtin_schedules, heartbeat_hours, parse_hours
from bot.app.work_rules import build_policy, configured_caps
from bot.app.workers import build_fetcher, build_search
from bot.config.settings import Settings
from bot.engine.timing import working_calendar
from bot.engine.workflow.step_approvals import StepApprovalRules, parse_risk_words
from bot.setup.settings_reload import SettingApplier
from bot.transports.quota import MonthlyQuota
from storage.records.tasks import ResultForm


def check_usable(settings: Settings) -> None:
    """Build the parts that check their settings, before anything changes. Raises BadSettings."""
    build_policy(settings)
    build_fetcher(settings)
    build_search(settings)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LiveSettings:
    """The parts that follow changed settings while the program runs; channels follow apart."""

    engine: Engine
    autonomy: AutonomyServices
    quota: MonthlyQuota
    set_owners: SettingApplier

    @property
    def appliers(self) -> Mapping[str, SettingApplier]:
        """By the fields of `Settings`."""
        groups: Mapping[tuple[str, ...], SettingApplier] = {
            (
                *("cap_task", "cap_person", "cap_chat", "cap_day", "cap_self", "cap_heartbeat"),
            ): self._apply_caps,
            (
                *("tools_security", "tools_ask", "tools_allow", "tools_ask_for", "tools_deny"),
            ): self._apply_rules,
            ("risk_words",): self._apply_risk_words,
            (
                *("slots", "patience_hours", "offer_after_hours", "stop_grace_seconds"),
            ): self._apply_dispatch,
            ("quiet_hours", "holidays", "heartbeat_hours"): self._apply_hours,
            ("self_check_minutes", "heartbeat_minutes"): self._apply_intervals,
            (
                *("model", "fallback", "model_small", "model_middle", "model_large"),
                *("vision_model", "openai_tools"),
                *("anthropic_api_key", "anthropic_base_url", "openai_api_key", "openai_base_url"),
            ): self.engine.workers.live_models.apply,
            ("owners",): self.set_owners,
            ("results",): self._apply_results,
            ("retention",): self._apply_retention,
            ("feishu_monthly_quota",): self._apply_quota,
            ("log_level",): self._apply_log_level,
        }
        return {field: apply for fields, apply in groups.items() for field in fields}

    async def _apply_caps(self, settings: Settings) -> None:
        self.engine.rules.caps.by_scope = configured_caps(settings)

    async def _apply_rules(self, settings: Settings) -> None:
        self.engine.rules.permissions.policy = build_policy(settings)

    async def _apply_risk_words(self, settings: Settings) -> None:
        words = parse_risk_words(settings.risk_words)
        self.engine.rules.step_approvals.rules = StepApprovalRules(tuple(words))

    async def _apply_dispatch(self, settings: Settings) -> None:
        dispatcher = self.engine.dispatcher
        if self.engine.plan.role.runs_tasks:
            dispatcher.slots = settings.slots
        dispatcher.patience = timedelta(hours=settings.patience_hours)
        dispatcher.offer_after = timedelta(hours=settings.offer_after_hours)
        dispatcher.grace = settings.stop_grace_seconds
        dispatcher.wake()

    async def _apply_hours(self, settings: Settings) -> None:
        due_times = self.engine.schedule.service.due_times
        due_times.calendar = working_calendar(settings.holidays)
        due_times.quiet_hours = parse_hours(settings, settings.quiet_hours)
        self.engine.heartbeat.hours = heartbeat_hours(settings)
        self.engine.heartbeat.hours_text = settings.heartbeat_hours

    async def _apply_intervals(self, settings: Settings) -> None:
        self.engine.heartbeat.every = timedelta(minutes=settings.heartbeat_minutes)
        await self.engine.schedule.builtin.follow(builtin_schedules(settings))

    async def _apply_results(self, settings: Settings) -> None:
        self.engine.notifier.result_form = ResultForm(settings.results)

    async def _apply_retention(self, settings: Settings) -> None:
        self.autonomy.retention.keep = settings.retention

    async def _apply_quota(self, settings: Settings) -> None:
        self.quota.quota = settings.feishu_monthly_quota

    async def _apply_log_level(self, settings: Settings) -> None:
        logging.getLogger().setLevel(settings.log_level)
