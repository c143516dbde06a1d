"""A fake of the trigger port: keeps triggers in memory and starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime

from handlers.ports_autonomy import TriggerView
from storage.errors import NotFound
from storage.records.people import ChatId, Person
from storage.records.tasks import Task
from storage.records.triggers import NewTrigger, Trigger, TriggerKind


class FakeTriggers:
    def __init__(self) -> None:
        self.all: dict[str, Trigger] = {}
        self.heard: list[str] = []

    async def list(self) -> Sequence[TriggerView]:
        return [TriggerView(each, None) for each in self.all.values()]

    async def add(self, new: NewTrigger) -> tuple[Trigger, str]:
        given = {each.name: getattr(new, each.name) for each in fields(NewTrigger)}
        name = f"tr{len(self.all)}"
        at = datetime(2026, 11, 22, 8, tzinfo=UTC)
        self.all[name] = Trigger(**given, id=name, enabled=True, created_at=at)
        is_hook = new.kind is TriggerKind.WEBHOOK
        return self.all[name], f"http://test/hooks/{name}" if is_hook else ""

    async def find(self, prefix: str) -> Trigger:
        if prefix not in self.all:
            raise NotFound("trigger", prefix)
        return self.all[prefix]

    async def set_enabled(self, prefix: str, *, enabled: bool) -> Trigger:
        self.all[prefix] = replace(await self.find(prefix), enabled=enabled)
        return self.all[prefix]

    async def remove(self, prefix: str) -> Trigger:
        await self.find(prefix)
        return self.all.pop(prefix)

    async def renew_token(self, prefix: str) -> tuple[Trigger, str]:
        return await self.find(prefix), "http://test/hooks/new"

    async def on_message(self, text: str, *, chat: ChatId, by: Person, source: str) -> Task | None:
        self.heard.append(text)
        return None
