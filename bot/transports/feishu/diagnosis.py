"""Diagnoses the Feishu channel: credentials, bot, scopes, subscriptions and long connection."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from storage.records.autonomy import HealthFinding

if TYPE_CHECKING:
    from bot.transports.feishu.api import FeishuApi

_GRANTED = 1
# Each line is one ability; any of its scopes gives it.
_SCOPES = (
    ("im:message", "im:message:send_as_bot", "im:message:send"),
    ("im:message", "im:message.p2p_msg:readonly", "im:message.p2p_msg"),
    ("im:message", "im:message.group_at_msg:readonly", "im:message.group_at_msg"),
    ("im:resource", "im:message"),
    ("cardkit:card:write",),
)
_EVENTS = frozenset({"im.message.receive_v1"})
_TABLE_SCOPES = (("bitable:app",),)
_DOCUMENT_SCOPES = (("docx:document",), ("docx:document.block:convert",), ("drive:drive",))
_READING_SCOPES = (
    ("docx:document:readonly", "docx:document"),
    ("wiki:wiki:readonly", "wiki:wiki", "wiki:node:read"),
    ("sheets:spreadsheet:readonly", "sheets:spreadsheet"),
    ("bitable:app:readonly", "bitable:app"),
)
_TABLE_EVENTS = frozenset(
    {"drive.file.bitable_record_changed_v1", "drive.file.bitable_field_changed_v1"}
)
_CALLBACKS = frozenset({"card.action.trigger"})
_LONG_CONNECTION = "websocket"
_NO_BOT = 11205


async def _no_tables() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuDiagnosis:
    """A self-check. `quota` is the calls of this month and the number allowed, 0 if no limit is
    known. `on_call` counts the calls made here. A Bitable (`has_tables`) and results as documents
    (`makes_documents`) need more permissions.
    """

    name = "feishu"

    app_id: str
    app_secret: str
    domain: str
    quota: Callable[[], tuple[int, int]]
    on_call: Callable[[], None]
    has_tables: Callable[[], Awaitable[bool]] = _no_tables
    makes_documents: bool = False

    async def find(self) -> Sequence[HealthFinding]:
        # Loaded with the first diagnosis, since nothing else may need it.
        from bot.transports.feishu.api import (
            FeishuApi,
            FeishuConnectionError,
            FeishuError,
            FeishuErrorKind,
            build_http_client,
        )

        async with build_http_client(self.domain) as client:
            api = FeishuApi(
                client=client,
                app_id=self.app_id,
                app_secret=self.app_secret,
                now=time.monotonic,
                on_call=self.on_call,
            )
            try:
                found = await self._diagnose_bot(api)
                return [*found, *await self._diagnose_app(api), *self._diagnose_quota()]
            except FeishuConnectionError as error:
                facts = {"reason": str(error)[:200]}
                return [HealthFinding(text="feishu_unreachable", points=40, facts=facts)]
            except FeishuError as error:
                if error.kind is FeishuErrorKind.CREDENTIALS:
                    return [HealthFinding(text="feishu_credentials", points=60)]
                facts = {"reason": str(error)[:200]}
                return [HealthFinding(text="feishu_refuses", points=40, facts=facts)]

    async def _diagnose_bot(self, api: FeishuApi) -> Sequence[HealthFinding]:
        from bot.transports.feishu.api import FeishuError

        found: list[HealthFinding] = []
        try:
            await api.fetch_bot()
        except FeishuError as error:
            if error.code != _NO_BOT:
                raise
            found.append(HealthFinding(text="feishu_no_bot", points=50))
        try:
            endpoint = await api.discover_endpoint()
        except FeishuError as error:
            facts = {"reason": str(error)[:200]}
            found.append(HealthFinding(text="feishu_no_connection", points=50, facts=facts))
        else:
            text = "feishu_connects" if endpoint.get("URL") else "feishu_no_connection"
            points = 0 if endpoint.get("URL") else 50
            found.append(HealthFinding(text=text, points=points, facts={"reason": "-"}))
        return found

    async def _diagnose_app(self, api: FeishuApi) -> Sequence[HealthFinding]:
        from bot.transports.feishu.api import FeishuError

        found: list[HealthFinding] = []
        has_tables = await self.has_tables()
        scopes = (
            *_SCOPES,
            *(_TABLE_SCOPES if has_tables else ()),
            *(_DOCUMENT_SCOPES if self.makes_documents else ()),
        )
        try:
            listed = (await api.call("GET", "/application/v6/scopes")).get("data", {})
            granted = {
                each.get("scope_name")
                for each in listed.get("scopes", ())
                if each.get("grant_status") == _GRANTED
            }
            missing = [one_of[0] for one_of in scopes if not granted & set(one_of)]
            found += [
                HealthFinding(text="feishu_scope", subject=each, points=20, facts={"scope": each})
                for each in dict.fromkeys(missing)
            ]
            unread = [one_of[0] for one_of in _READING_SCOPES if not granted & set(one_of)]
            if unread:
                facts = {"scopes": ", ".join(unread)}
                found.append(HealthFinding(text="feishu_reading", points=0, facts=facts))
        except FeishuError:
            found.append(HealthFinding(text="feishu_scopes_unknown", points=0))
        try:
            params = {"lang": "en_us"}
            app = await api.call("GET", "/application/v6/applications/me", params=params)
        except FeishuError:
            return [*found, HealthFinding(text="feishu_events_unknown", points=0)]
        described = app.get("data", {}).get("app", {})
        found += _diagnose_subscriptions(described)
        if has_tables:
            events = (described.get("event") or {}).get("subscribed_events")
            found += _missing("feishu_table_event", _TABLE_EVENTS, events, points=5)
        return [*found, *_diagnose_version(described)]

    def _diagnose_quota(self) -> Sequence[HealthFinding]:
        calls, allowed = self.quota()
        if not allowed:
            return ()
        facts = {"calls": calls, "quota": allowed}
        return [HealthFinding(text="feishu_quota", points=0, facts=facts)]


def _diagnose_subscriptions(app: dict[str, Any]) -> Sequence[HealthFinding]:
    """Faults of the subscriptions; none for what the platform does not tell."""
    found: list[HealthFinding] = []
    event, callback = app.get("event") or {}, app.get("callback") or app.get("callback_info") or {}
    if event.get("subscription_type", _LONG_CONNECTION) != _LONG_CONNECTION:
        found.append(HealthFinding(text="feishu_events_mode", points=40))
    if callback.get("callback_type", _LONG_CONNECTION) != _LONG_CONNECTION:
        found.append(HealthFinding(text="feishu_callback_mode", points=40))
    events, callbacks = event.get("subscribed_events"), callback.get("subscribed_callbacks")
    found += _missing("feishu_event", _EVENTS, events)
    found += _missing("feishu_callback", _CALLBACKS, callbacks)
    return found


def _diagnose_version(app: dict[str, Any]) -> Sequence[HealthFinding]:
    """The fault that no version of the app is published, without which no setting of the console
    has an effect.
    """
    if app.get("unaudit_version_id"):
        return [HealthFinding(text="feishu_in_review", points=5)]
    if app.get("online_version_id") == "":
        return [HealthFinding(text="feishu_no_version", points=40)]
    return ()


def _missing(
    text: str, needed: frozenset[str], subscribed: Sequence[str] | None, *, points: int = 40
) -> Sequence[HealthFinding]:
    if subscribed is None:
        return ()
    return [
        HealthFinding(text=text, subject=each, points=points, facts={"name": each})
        for each in sorted(needed - set(subscribed))
    ]
