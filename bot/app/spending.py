"""Reads the spending caps from the settings."""

from __future__ import annotations

from bot.config.settings import Settings
from bot.engine.agent.budget import SpendingCaps
from storage.records.usage import BudgetScope, parse_cap


def configured_caps(settings: Settings) -> SpendingCaps:
    texts = {
        BudgetScope.TASK: settings.cap_task,
        BudgetScope.PERSON: settings.cap_person,
        BudgetScope.CHAT: settings.cap_chat,
        BudgetScope.HEARTBEAT: settings.cap_heartbeat,
        BudgetScope.EVOLVE: settings.cap_self,
        BudgetScope.DAY: settings.cap_day,
    }
    return SpendingCaps(
        zone=settings.zone, by_scope={scope: parse_cap(text) for scope, text in texts.items()}
    )
