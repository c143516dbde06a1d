"""Connects Feishu or Lark in the running program: by a code that a person scans, which makes an
app, or with the ID and the secret of an app."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bot.config.settings import Settings
from bot.setup.settings_reload import SettingsReloader
from bot.transports.quota import MonthlyQuota
from cards.catalog import TextCatalog
from cards.courier import OwnerCardSender
from cards.model import Card, CardTone, notice_card
from handlers.errors import UserError
from storage.db import finish_despite_cancel
from storage.errors import StorageError
from storage.key_value import KeyValueStore
from storage.records.autonomy import HealthFinding
from storage.records.channels import (
    FeishuApp,
    FeishuCode,
    FeishuCodeState,
    FeishuSetup,
    FeishuStep,
    FeishuStepState,
    SetupSession,
    UnsavedApp,
)
from storage.records.people import Channel

if TYPE_CHECKING:
    from bot.transports.feishu.registration import (
        FeishuRegistration,
        RegisteredApp,
        RegistrationCode,
    )

log = logging.getLogger(__name__)

_MARK = "setup.feishu"
"""Where the store says that a code is shown, and then which app it has made."""

_OWNERS = "SHIFTBOSS_OWNERS"
_CREDENTIALS = ("FEISHU_APP_ID", "FEISHU_APP_SECRET")
_APP_ID = re.compile(r"\w{1,100}", re.ASCII)
_SECRET = re.compile(r"[!-~]{1,500}")
_FEISHU = str(Settings.model_fields["feishu_domain"].default)
_STEPS: Mapping[str, FeishuStep] = {
    "feishu_credentials": FeishuStep.CREDENTIALS,
    "feishu_unreachable": FeishuStep.CREDENTIALS,
    "feishu_refuses": FeishuStep.CREDENTIALS,
    "feishu_no_bot": FeishuStep.BOT,
    "feishu_scope": FeishuStep.SCOPES,
    "feishu_scopes_unknown": FeishuStep.SCOPES,
    "feishu_no_connection": FeishuStep.EVENTS,
    "feishu_events_mode": FeishuStep.EVENTS,
    "feishu_event": FeishuStep.EVENTS,
    "feishu_events_unknown": FeishuStep.EVENTS,
    "feishu_callback_mode": FeishuStep.CALLBACKS,
    "feishu_callback": FeishuStep.CALLBACKS,
    "feishu_no_version": FeishuStep.VERSION,
    "feishu_in_review": FeishuStep.VERSION,
}
_CONSOLE_PAGES = {
    FeishuStep.CREDENTIALS: "baseinfo",
    FeishuStep.BOT: "bot",
    FeishuStep.SCOPES: "auth",
    FeishuStep.EVENTS: "event?tab=event",
    FeishuStep.CALLBACKS: "event?tab=callback",
    FeishuStep.VERSION: "version",
}


@dataclass(kw_only=True, eq=False)
class _CodeFlow:
    """One code. `app` is known only until it is saved."""

    session: SetupSession
    code: FeishuCode
    task: asyncio.Task[None] | None = None
    app: RegisteredApp | None = field(default=None, repr=False)


@dataclass(kw_only=True, eq=False)
class FeishuSetupService:
    """Implements handlers.ports.FeishuSetupPort. One code at a time; only the session that showed
    it sees it. `may_connect` says whether a session is still one of an owner.

    The secret is written to the file of settings together with the new owner, at once or not at
    all. Before that, the store knows the app's ID: if the program ends in between, it can say which
    app has no secret."""

    reloader: SettingsReloader
    quota: MonthlyQuota
    key_values: KeyValueStore
    owners: OwnerCardSender
    may_connect: Callable[[SetupSession], Awaitable[bool]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    _flow: _CodeFlow | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def _settings(self) -> Settings:
        return self.reloader.in_force

    async def get_setup(self, session: SetupSession) -> FeishuSetup:
        flow, settings = self._flow, self._settings
        is_own = flow is not None and flow.session == session and self._is_current(flow.code)
        is_waiting = flow is not None and flow.code.state is FeishuCodeState.WAITING
        return FeishuSetup(
            app_id=settings.feishu_app_id,
            domain=settings.feishu_domain,
            is_lark=settings.feishu_domain == settings.lark_domain,
            code=flow.code if flow is not None and is_own else None,
            is_shown_elsewhere=is_waiting and not is_own,
            unsaved=await self._find_unsaved() if flow is None else None,
        )

    async def show_code(self, session: SetupSession) -> FeishuSetup:
        # Later would be too late: the app's secret is given once, and could not be saved.
        if fixed := [name for name in _CREDENTIALS if os.environ.get(name)]:
            raise UserError("setup_fixed", name=fixed[0])
        async with self._lock:
            await self._end_flow()
            await self.key_values.put(_MARK, {"app_id": "", "domain": ""})
            self._flow = await self._begin(session)
            if self._flow.task is None:
                await self.key_values.put(_MARK, None)
        return await self.get_setup(session)

    async def cancel(self, session: SetupSession) -> None:
        async with self._lock:
            if self._flow is None:
                # What an earlier run has left is known to whoever has read of it.
                await self.key_values.put(_MARK, None)
            elif self._flow.session == session:
                await self._end_flow()

    async def save_again(self, session: SetupSession) -> None:
        async with self._lock:
            flow = self._flow
            if flow is not None and flow.session == session and flow.app is not None:
                await finish_despite_cancel(self._save(flow, flow.app))

    async def connect(self, new: FeishuApp) -> HealthFinding | None:
        if not _APP_ID.fullmatch(new.app_id):
            raise UserError("setup_feishu_app_id")
        if not _SECRET.fullmatch(new.app_secret):
            raise UserError("setup_feishu_secret")
        domain = self._settings.lark_domain if new.is_lark else self._feishu_domain
        found = await self._diagnose(new.app_id, new.app_secret, domain)
        refused = [each for each in found if _STEPS.get(each.text) is FeishuStep.CREDENTIALS]
        if refused:
            return refused[0]
        async with self._lock:
            await self._end_flow()
            changes = self._plan_changes(new.app_id, new.app_secret, domain)
            await finish_despite_cancel(self.reloader.store(changes))
            await self.key_values.put(_MARK, None)
        return None

    async def check(self) -> Sequence[FeishuStepState]:
        settings = self._settings
        app_id, secret = settings.feishu_app_id, settings.feishu_app_secret.get_secret_value()
        if not app_id:
            return ()
        found = await self._diagnose(app_id, secret, settings.feishu_domain)
        return _list_steps(found, f"{settings.feishu_domain}/app/{app_id}")

    async def aclose(self) -> None:
        """Stop waiting. The store keeps that a code was shown."""
        flow, self._flow = self._flow, None
        if flow is not None and flow.task is not None:
            flow.task.cancel()
            await asyncio.gather(flow.task, return_exceptions=True)

    @property
    def _feishu_domain(self) -> str:
        current = self._settings.feishu_domain
        return _FEISHU if current == self._settings.lark_domain else current

    def _is_current(self, code: FeishuCode) -> bool:
        """False once the app that it made was replaced or removed."""
        is_connected = code.state is FeishuCodeState.CONNECTED
        return not is_connected or code.app_id == self._settings.feishu_app_id

    async def _begin(self, session: SetupSession) -> _CodeFlow:
        from bot.transports.feishu.api import build_http_client
        from bot.transports.feishu.registration import FeishuRegistration, RegistrationFailed

        async with AsyncExitStack() as stack:
            client = await asyncio.to_thread(build_http_client, self._feishu_domain)
            registration = FeishuRegistration(
                client=await stack.enter_async_context(client),
                domain=self._feishu_domain,
                lark_domain=self._settings.lark_domain,
                sleep=self.sleep,
                now=time.monotonic,
            )
            try:
                shown = await registration.begin()
            except RegistrationFailed as failed:
                state = FeishuCodeState(failed.outcome)
                code = FeishuCode(state=state, reason=failed.reason)
                return _CodeFlow(session=session, code=code)
            until = self.now() + timedelta(seconds=shown.lifetime)
            code = FeishuCode(state=FeishuCodeState.WAITING, url=shown.url, expires_at=until)
            flow = _CodeFlow(session=session, code=code)
            waiting = self._wait(flow, registration, shown, stack.pop_all())
            flow.task = asyncio.create_task(waiting, name="feishu registration")
        return flow

    async def _wait(
        self,
        flow: _CodeFlow,
        registration: FeishuRegistration,
        shown: RegistrationCode,
        client: AsyncExitStack,
    ) -> None:
        from bot.transports.feishu.registration import RegistrationFailed

        try:
            async with client:
                app = flow.app = await registration.wait(shown)
            if await self.may_connect(flow.session):
                await finish_despite_cancel(self._save(flow, app))
                return
            flow.app = None
            flow.code = FeishuCode(state=FeishuCodeState.WITHDRAWN, app_id=app.app_id)
        except RegistrationFailed as failed:
            state = FeishuCodeState(failed.outcome)
            flow.code = FeishuCode(state=state, reason=failed.reason)
        except Exception as error:  # error boundary: the page would wait for ever
            log.exception("feishu: the new app is not connected")
            flow.code = _failed(flow, error)
            return
        log.info("feishu: no new app: %s", flow.code.state)
        await self._forget()

    async def _save(self, flow: _CodeFlow, app: RegisteredApp) -> None:
        owner = app.open_id
        try:
            await self.key_values.put(_MARK, {"app_id": app.app_id, "domain": app.domain})
            changes = self._plan_changes(app.app_id, app.app_secret, app.domain)
            try:
                await self.reloader.store({**changes, **self._plan_owner(owner)})
            except UserError as error:
                if error.facts.get("name") != _OWNERS:
                    raise
                # The environment says who the owners are; the app is of use without.
                owner = ""
                await self.reloader.store(changes)
        except (UserError, StorageError) as error:
            log.warning("feishu: the new app is not saved: %s", type(error).__name__)
            flow.code = _failed(flow, error)
            return
        flow.app = None
        flow.code = FeishuCode(state=FeishuCodeState.CONNECTED, app_id=app.app_id, owner=owner)
        log.info("feishu: a new app is connected")
        await self._forget()
        await self._tell_owners(app.app_id, owner)

    def _plan_changes(self, app_id: str, secret: str, domain: str) -> dict[str, str]:
        changes = dict(zip(_CREDENTIALS, (app_id, secret), strict=True))
        if domain != self._settings.feishu_domain:
            changes["FEISHU_DOMAIN"] = "" if domain == _FEISHU else domain
        return changes

    def _plan_owner(self, open_id: str) -> dict[str, str]:
        if not open_id or (Channel.FEISHU, open_id) in self._settings.owner_ids:
            return {}
        listed = self._settings.owners.rstrip(", ")
        return {_OWNERS: ",".join(filter(None, (listed, f"{Channel.FEISHU}:{open_id}")))}

    async def _tell_owners(self, app_id: str, owner: str) -> None:
        def draw(words: TextCatalog) -> Card:
            text = words("setup.feishu.told_owner" if owner else "setup.feishu.told")
            return notice_card(words("setup.feishu.told_title"), text, tone=CardTone.GOOD)

        try:
            await self.owners.notify(f"feishu-app:{app_id}", draw)
        except StorageError as error:
            log.warning("feishu: the owners cannot be told of the new app: %s", error)

    async def _end_flow(self) -> None:
        flow = self._flow
        await self.aclose()
        # A save that was under way is done by now; one that failed leaves its mark.
        if flow is not None and flow.code.state is not FeishuCodeState.UNSAVED:
            await self._forget()

    async def _forget(self) -> None:
        try:
            await self.key_values.put(_MARK, None)
        except StorageError as error:
            log.warning("feishu: the store keeps a code that is over: %s", error)

    async def _find_unsaved(self) -> UnsavedApp | None:
        mark: Any = await self.key_values.get(_MARK)
        if not isinstance(mark, dict):
            return None
        app_id, domain = str(mark["app_id"]), str(mark["domain"])
        if app_id and app_id == self._settings.feishu_app_id:
            # It was saved, and the program ended just then.
            return None
        is_lark = domain == self._settings.lark_domain
        return UnsavedApp(app_id=app_id, is_lark=is_lark, link=f"{domain}/app/{app_id}/baseinfo")

    async def _diagnose(self, app_id: str, secret: str, domain: str) -> Sequence[HealthFinding]:
        from bot.transports.feishu.diagnosis import FeishuDiagnosis

        diagnosis = FeishuDiagnosis(
            app_id=app_id,
            app_secret=secret,
            domain=domain,
            quota=lambda: (0, 0),
            on_call=self.quota.count,
        )
        return await diagnosis.find()


def _failed(flow: _CodeFlow, error: Exception) -> FeishuCode:
    if flow.app is None:
        return FeishuCode(state=FeishuCodeState.REFUSED, error=error)
    return FeishuCode(state=FeishuCodeState.UNSAVED, app_id=flow.app.app_id, error=error)


def _list_steps(found: Sequence[HealthFinding], console: str) -> Sequence[FeishuStepState]:
    from bot.transports.feishu.registration import APP_CALLBACKS, APP_EVENTS, APP_SCOPES

    needs = {
        FeishuStep.SCOPES: APP_SCOPES,
        FeishuStep.EVENTS: APP_EVENTS,
        FeishuStep.CALLBACKS: APP_CALLBACKS,
    }
    by_step = {
        step: tuple(each for each in found if _STEPS.get(each.text) is step) for step in FeishuStep
    }
    # Without credentials nothing was asked, and the events' answer tells of three steps.
    is_refused = bool(by_step[FeishuStep.CREDENTIALS])
    unknown = {each.text for each in found if not each.points}
    blind = {FeishuStep.EVENTS, FeishuStep.CALLBACKS, FeishuStep.VERSION}

    def is_done(step: FeishuStep) -> bool | None:
        if any(each.points for each in by_step[step]):
            return False
        if is_refused:
            return None
        is_blind = step in blind and "feishu_events_unknown" in unknown
        return None if is_blind or by_step[step] else True

    return [
        FeishuStepState(
            step=step,
            is_done=is_done(step),
            link=f"{console}/{_CONSOLE_PAGES[step]}",
            needs=needs.get(step, ()),
            findings=by_step[step],
        )
        for step in FeishuStep
    ]
