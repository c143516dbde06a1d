"""Connects models in the running program: tests, stores and uses new settings, or changes
nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never
from urllib.parse import urlsplit

from bot.config.settings import (
    Settings,
)
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.autonomy.check import run_check
from bot.engine.autonomy.doctor import CodingCliProbe, ModelCallProbe, mask_facts
from bot.engine.llm.backend import OFFLINE_NAME
from bot.engine.llm.backend_registry import MODEL_NAME, BackendRegistry
from bot.engine.workers.spec import CostAccount
from bot.setup.live_models import LiveModels
from bot.setup.settings_reload import SettingsReloader
from handlers.errors import UserError
from storage.db import Database
from storage.records.autonomy import HealthFinding
from storage.records.people import Person
from storage.records.system import ModelConnection, ModelKind, ModelSetup

_MAX_KEY = 2_000
_MAX_URL = 500
_MAX_NAME = 60
_TEST_SECONDS = 60.0
_REFUSALS = {"unavailable", "denied", "bad_answer", "bad_key", "no_model", "no_credit"}
"""Reasons with a text of their own under `setup.refused`."""
_FIELDS = (
    *("anthropic_api_key", "anthropic_base_url", "openai_api_key", "openai_base_url"),
    "model",
)
"""The settings that are changed here."""


class ModelSetupService:
    """Implements handlers.ports_setup.ModelSetupPort. One change at a time."""

    def __init__(
        self,
        reloader: SettingsReloader,
        db: Database,
        *,
        models: LiveModels,
        gateway: ModelGateway,
        mask: Callable[[str], str],
    ) -> None:
        self._reloader = reloader
        self._db = db
        self._models = models
        self._gateway = gateway
        self._mask = mask
        self._lock = asyncio.Lock()

    @property
    def _settings(self) -> Settings:
        return self._reloader.in_force

    @property
    def _revision(self) -> str:
        return self._reloader.get_revision(_FIELDS)

    async def get_setup(self) -> ModelSetup:
        models, current = self._models.registry, self._settings
        has_openai_key = bool(current.openai_api_key.get_secret_value())
        kind = ModelKind.LOCAL if current.openai_base_url else ModelKind.OPENAI
        keys = {
            ModelKind.ANTHROPIC: bool(current.anthropic_api_key.get_secret_value()),
            kind: has_openai_key,
        }
        return ModelSetup(
            revision=self._revision,
            choice=models.default,
            kind={"anthropic": ModelKind.ANTHROPIC, "openai": kind, OFFLINE_NAME: None}.get(
                models.default.backend, ModelKind.CLI
            ),
            with_key=frozenset(each for each, is_set in keys.items() if is_set),
            base_urls={
                ModelKind.ANTHROPIC: current.anthropic_base_url,
                ModelKind.LOCAL: current.openai_base_url,
            },
            clis=tuple(
                dict.fromkeys(
                    each.backend
                    for each in models.list_choices()
                    if models.has_own_tools(each.backend) and not each.problem
                )
            ),
        )

    async def connect(self, new: ModelConnection, *, by: Person) -> HealthFinding:
        async with self._lock:
            if new.seen and new.seen != self._revision:
                raise UserError("setup_changed")
            if new.kind is ModelKind.CLI and new.model not in (await self.get_setup()).clis:
                raise UserError("setup_no_cli", name=new.model[:_MAX_NAME])
            changes = self._plan_changes(new)
            candidate = self._reloader.with_changes(changes)
            self._reloader.learn_secrets(candidate)
            prepared = self._models.prepare(candidate)
            try:
                finding = await self._test(prepared, new, by)
            finally:
                await prepared.aclose()
            if not finding.points:
                await self._reloader.store(changes)
            return finding

    def _plan_changes(self, new: ModelConnection) -> Mapping[str, str]:
        key, url = new.key.strip(), new.base_url.strip().rstrip("/")
        _check_key(key)
        _check_base_url(url)
        if new.model and not MODEL_NAME.fullmatch(new.model):
            raise UserError("setup_model_name")
        old = self._settings
        match new.kind:
            case ModelKind.ANTHROPIC:
                kept = old.anthropic_api_key.get_secret_value()
                key = key or (kept if url == old.anthropic_base_url else "")
                if not key:
                    raise UserError("setup_no_key")
                named = {"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url}
                return {**named, "SHIFTBOSS_MODEL": f"anthropic:{new.model or 'auto'}"}
            case ModelKind.OPENAI | ModelKind.LOCAL:
                # A key is never sent to another address than the one it was given for.
                kept = old.openai_api_key.get_secret_value()
                key = key or (kept if url == old.openai_base_url else "")
                if new.kind is ModelKind.OPENAI and not key:
                    raise UserError("setup_no_key")
                if new.kind is ModelKind.LOCAL and not url:
                    raise UserError("setup_no_url")
                named = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url}
                return {**named, "SHIFTBOSS_MODEL": f"openai:{new.model or 'auto'}"}
            case ModelKind.CLI:
                return {"SHIFTBOSS_MODEL": f"acp:{new.model}"}
            case ModelKind.OFFLINE:
                return {"SHIFTBOSS_MODEL": "offline"}
            case _:
                assert_never(new.kind)

    async def _test(
        self, prepared: BackendRegistry, new: ModelConnection, by: Person
    ) -> HealthFinding:
        if new.kind is ModelKind.OFFLINE:
            return HealthFinding(text="model_none", points=0)
        probe = (
            ModelCallProbe(
                gateway=self._gateway.with_backends(prepared),
                db=self._db,
                choices=lambda: [prepared.default],
                account=CostAccount(person=by.id, chat=None),
                is_api=lambda _: True,
            )
            if new.kind.is_api
            else CodingCliProbe(report=prepared.report, in_use=lambda: [new.model])
        )
        result = await run_check(probe, seconds=_TEST_SECONDS)
        return mask_facts(_reword(result.findings[0]), self._mask)


def _reword(finding: HealthFinding) -> HealthFinding:
    """Whoever is connecting a model corrects what was typed; commands of the chat do not help."""
    reason = str(finding.facts.get("reason_key", ""))
    name = reason.removeprefix("backend.")
    if name not in _REFUSALS:
        return finding
    return replace(finding, facts={**finding.facts, "reason_key": f"setup.refused.{name}"})


def _check_key(key: str) -> None:
    if len(key) > _MAX_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError("setup_bad_key")


def _check_base_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname)
        has_more = bool(parts.username or parts.query or parts.fragment or parts.port == 0)
    except ValueError:
        is_good, has_more = False, True
    signs = url.isascii() and url.isprintable() and " " not in url
    if url and (len(url) > _MAX_URL or not is_good or has_more or not signs):
        raise UserError("setup_bad_url")
