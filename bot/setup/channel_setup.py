"""Connects chat platforms in the running program, and makes the first person there an owner."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.settings import Settings
from bot.engine.autonomy.check import run_check
from bot.setup.live_channels import build_channel_check, is_fatal
from bot.setup.settings_reload import SettingsReloader
from bot.transports.quota import MonthlyQuota
from handlers.errors import UserError
from storage.db import Database
from storage.errors import NotFound
from storage.ids import IdGenerator, normalize_code
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.autonomy import HealthFinding
from storage.records.channels import ChannelState, OwnerCode, TelegramConnection, TelegramResult
from storage.records.messages import IncomingMessage
from storage.records.people import Channel, Chat, ChatKind, Person, PersonId, PersonRole
from storage.records.system import ChannelHealth

OWNER_CODE_LIFETIME = timedelta(minutes=15)
MAX_WRONG_OWNER_CODES = 5

_PENDING_LIFETIME = timedelta(minutes=10)
_MAX_PENDING = 20
_CHECK_SECONDS = 30.0
_MAX_PASTED = 4_000
_TOKEN = re.compile(r"(?<![\w:])\d{3,20}:[\w-]{20,100}(?![\w-])", re.ASCII)
_OWNERS = "SHIFTBOSS_OWNERS"
_CREDENTIALS: Mapping[Channel, tuple[str, ...]] = {
    Channel.TELEGRAM: ("TELEGRAM_BOT_TOKEN",),
    Channel.FEISHU: ("FEISHU_APP_ID", "FEISHU_APP_SECRET"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingToken:
    token: str = field(repr=False)
    by: PersonId
    until: datetime


@dataclass(kw_only=True, eq=False)
class ChannelSetupService:
    """Implements handlers.ports_setup.ChannelSetupPort. One change at a time."""

    reloader: SettingsReloader
    quota: MonthlyQuota
    db: Database
    key_values: KeyValueStore
    people: PeopleRepo
    chats: ChatRepo
    ids: IdGenerator
    health: Callable[[], Sequence[ChannelHealth]]
    now: Callable[[], datetime]
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _pending: dict[str, _PendingToken] = field(default_factory=dict, init=False)
    _names: dict[str, str] = field(default_factory=dict, init=False)
    """Of bots that were asked for before they have connected."""
    _findings: dict[str, tuple[HealthFinding, ...]] = field(default_factory=dict, init=False)
    """The last answer of the platform, by the revision of the channel's settings."""

    async def get_channels(self) -> Sequence[ChannelState]:
        chats = [
            chat for role in PersonRole for chat in await self.chats.list_private(role)
        ]  # owners first
        return [await self._get_state(channel, chats) for channel in CHANNEL_SETTINGS]

    async def connect_telegram(self, new: TelegramConnection, *, by: Person) -> TelegramResult:
        async with self._lock:
            self._check_change(Channel.TELEGRAM, new.seen)
            token = self._take_pending(new.pending, by) if new.pending else _find_token(new.token)
            old = self._settings.telegram_bot_token.get_secret_value()
            changes = {"TELEGRAM_BOT_TOKEN": token}
            candidate = self.reloader.with_changes(changes)
            self.reloader.learn_secrets(candidate)
            findings = await self._ask(Channel.TELEGRAM, candidate)
            for each in findings:
                if each.text == "telegram_bot":
                    self._names[_bot_of(token)] = str(each.facts["name"])
            if (fatal := next(filter(is_fatal, findings), None)) is not None:
                return TelegramResult(findings=findings, problem=fatal)
            webhook = next((each for each in findings if each.text == "telegram_webhook"), None)
            if webhook is not None and not new.delete_webhook:
                handle = self._keep_pending(token, by)
                return TelegramResult(findings=findings, problem=webhook, pending=handle)
            # Whoever connects deletes the webhook.
            await self.reloader.store(changes)
            if old == token and self.reloader.channels is not None:
                # A connection that rests after a failure begins anew.
                await self.reloader.channels.reconnect(Channel.TELEGRAM)
            self._pending.clear()
            self._keep_findings(Channel.TELEGRAM, findings)
            is_other = bool(old) and _bot_of(old) != _bot_of(token)
            return TelegramResult(findings=findings, is_other_bot=is_other)

    async def check(self, channel: Channel) -> Sequence[HealthFinding]:
        if channel not in _CREDENTIALS or not is_configured(channel, self._settings):
            raise NotFound("channel", channel.value)
        findings = await self._ask(channel, self._settings)
        self._keep_findings(channel, findings)
        return findings

    async def disconnect(self, channel: Channel, *, seen: str = "") -> None:
        if channel not in _CREDENTIALS:
            raise NotFound("channel", channel.value)
        async with self._lock:
            self._check_change(channel, seen)
            await self.reloader.store(dict.fromkeys(_CREDENTIALS[channel], ""))

    async def create_owner_code(self, channel: Channel, *, by: Person) -> OwnerCode:
        if channel not in _CREDENTIALS or not is_configured(channel, self._settings):
            raise NotFound("channel", channel.value)
        if _find_fixed([_OWNERS]):
            raise UserError("setup_channel_fixed", name=_OWNERS)
        code = self.ids.pairing_code()
        expires_at = self.now() + OWNER_CODE_LIFETIME
        stored = {
            "code": code,
            "expires_at": expires_at.isoformat(),
            "account": self._get_account(channel),
            "by": by.id,
            "wrong": 0,
        }
        await self.key_values.put(_code_key(channel), stored)
        link = self._get_link(channel, code)
        return OwnerCode(code=code, expires_at=expires_at, link=link)

    async def claim_owner_code(self, code: str, said: IncomingMessage, *, now: datetime) -> bool:
        channel, account = said.place.channel, said.sender.external_id
        if channel not in _CREDENTIALS or said.place.kind is not ChatKind.PRIVATE:
            return False
        async with self._lock:
            if not await self._take_code(code, said, now):
                return False
            entry = f"{channel}:{account}"
            owners = [f"{where}:{who}" for where, who in self._settings.owner_ids]
            if entry not in owners:
                await self.reloader.store({_OWNERS: ",".join([*owners, entry])})
            async with self.db.write() as tx:
                known = await self.key_values.read(tx, _code_key(channel))
                await self.key_values.write(tx, _code_key(channel), {**known, "is_done": True})
        return True

    async def _take_code(self, code: str, said: IncomingMessage, now: datetime) -> bool:
        """Bind the code to its first sender, who has access from then on. It stays theirs until
        they are an owner: a crash may come between."""
        place, sender = said.place, said.sender
        key = _code_key(place.channel)
        stored = await self.key_values.get(key)
        if not stored or not await self._is_open(place.channel, stored, now):
            return False
        given = normalize_code(code)
        async with self.db.write() as tx:
            stored = await self.key_values.read(tx, key)
            if not hmac.compare_digest(given.encode(), str(stored["code"]).encode()):
                await self.key_values.write(tx, key, {**stored, "wrong": stored["wrong"] + 1})
                return False
            if stored.get("claimed_by", sender.external_id) != sender.external_id:
                return False
            person = await self.people.get_or_create(
                tx,
                place.channel,
                sender.external_id,
                name=sender.name or sender.external_id,
                role=PersonRole.MEMBER,
                now=now,
            )
            await self.chats.set_partner(tx, place.channel, place.chat, person.id)
            claim = {"claimed_by": sender.external_id, "owner": person.name}
            await self.key_values.write(tx, key, {**stored, **claim})
        return True

    async def _is_open(self, channel: Channel, stored: Mapping[str, Any], now: datetime) -> bool:
        """Whether the code still works: for this bot, in time, not used, not guessed at, and made
        by somebody who is still an owner."""
        if (
            stored.get("is_done")
            or stored["wrong"] >= MAX_WRONG_OWNER_CODES
            or stored["account"] != self._get_account(channel)
            or datetime.fromisoformat(stored["expires_at"]) <= now
        ):
            return False
        try:
            maker = await self.people.get(PersonId(stored["by"]))
        except NotFound:
            return False
        return maker.role is PersonRole.OWNER and await self.people.has_access(maker.id)

    async def _get_state(self, channel: Channel, chats: Sequence[Chat]) -> ChannelState:
        health = self._get_health(channel)
        met = dict.fromkeys(each.person_id for each in chats if each.channel is channel)
        return ChannelState(
            health=health,
            revision=self._get_revision(channel),
            is_configured=is_configured(channel, self._settings),
            link=self._get_link(channel),
            fixed_by=_find_fixed(_CREDENTIALS[channel]),
            code=await self._get_code(channel),
            people=tuple([await self.people.get(each) for each in met if each is not None]),
            findings=self._findings.get(self._get_revision(channel), ()),
        )

    async def _get_code(self, channel: Channel) -> OwnerCode | None:
        """The open code, or the one that was used within its time."""
        stored, now = await self.key_values.get(_code_key(channel)), self.now()
        if not stored or datetime.fromisoformat(stored["expires_at"]) <= now:
            return None
        if not stored.get("is_done") and not await self._is_open(channel, stored, now):
            return None
        return OwnerCode(
            code="" if stored.get("claimed_by") else stored["code"],
            expires_at=datetime.fromisoformat(stored["expires_at"]),
            link=self._get_link(channel, stored["code"]),
            owner=stored["owner"] if stored.get("is_done") else "",
        )

    async def _ask(self, channel: Channel, settings: Settings) -> tuple[HealthFinding, ...]:
        groups = partial(self.chats.list_groups, channel)
        check = build_channel_check(channel, settings, self.quota, groups=groups)
        return tuple((await run_check(check, seconds=_CHECK_SECONDS)).findings)

    def _keep_findings(self, channel: Channel, findings: tuple[HealthFinding, ...]) -> None:
        # Those of this process only, and so of few bots.
        self._findings[self._get_revision(channel)] = findings

    def _check_change(self, channel: Channel, seen: str) -> None:
        if seen and seen != self._get_revision(channel):
            raise UserError("setup_changed")
        if fixed := _find_fixed(_CREDENTIALS[channel]):
            raise UserError("setup_channel_fixed", name=fixed)

    def _keep_pending(self, token: str, by: Person) -> str:
        now = self.now()
        kept = [(handle, each) for handle, each in self._pending.items() if each.until > now]
        self._pending = dict(kept[1 - _MAX_PENDING :])
        handle = secrets.token_urlsafe(16)
        self._pending[handle] = _PendingToken(token=token, by=by.id, until=now + _PENDING_LIFETIME)
        return handle

    def _take_pending(self, handle: str, by: Person) -> str:
        found = self._pending.get(handle)
        if found is None or found.by != by.id or found.until <= self.now():
            raise UserError("setup_paste_again")
        return found.token

    def _get_health(self, channel: Channel) -> ChannelHealth:
        found = (each for each in self.health() if each.channel is channel)
        return next(found, ChannelHealth(channel=channel))

    def _get_account(self, channel: Channel) -> str:
        """Names the bot, also before the platform has been asked."""
        if channel is Channel.TELEGRAM:
            return _bot_of(self._settings.telegram_bot_token.get_secret_value())
        return self._settings.feishu_app_id

    def _get_link(self, channel: Channel, code: str = "") -> str:
        if channel is not Channel.TELEGRAM:
            return ""
        name = self._get_health(channel).account or self._names.get(self._get_account(channel), "")
        if not name.startswith("@"):
            return ""
        return f"https://t.me/{name[1:]}{f'?start={code}' if code else ''}"

    def _get_revision(self, channel: Channel) -> str:
        return self.reloader.get_revision(CHANNEL_SETTINGS[channel])

    @property
    def _settings(self) -> Settings:
        return self.reloader.in_force


def _find_token(pasted: str) -> str:
    """The token in what @BotFather says."""
    found = _TOKEN.findall(pasted[:_MAX_PASTED])
    if len(found) != 1:
        raise UserError("setup_no_token")
    return str(found[0])


def _bot_of(token: str) -> str:
    return token.partition(":")[0]


def _code_key(channel: Channel) -> str:
    return f"setup.{channel}.owner_code"


def _find_fixed(names: Iterable[str]) -> str:
    """The first of these settings that the environment sets, which wins over every file."""
    present = {name.upper() for name in os.environ}
    return next((name for name in names if name in present), "")
