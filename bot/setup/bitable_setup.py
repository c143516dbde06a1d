"""Sets up the Bitable of tasks, logs and memories while the program runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from bot.sync import layout
from bot.sync.base_setup import BaseSetup
from bot.sync.ports import (
    BaseId,
    BaseSetupService,
    BaseUnreachable,
    TableBusy,
    TablePlatformUnreachable,
    TableQuotaExhausted,
    TableRef,
    TableServiceError,
)
from handlers.errors import UserError
from handlers.ports import PeoplePort
from handlers.ports_setup import BitablePort
from storage.bitable import BitableRepo
from storage.messages.chats import ChatRepo
from storage.records.autonomy import HealthFinding
from storage.records.bitable import BitableBase, BitableState
from storage.records.bitable_setup import BitableReport, BitableStatus
from storage.records.people import Channel, Chat, ChatKind, Language, Person, PersonRole

_TOKEN = re.compile(r"[A-Za-z0-9]{10,64}")
_BASE_LINK = re.compile(r"https?://[^/\s]+/base/([A-Za-z0-9]{10,64})(?:[/?#]\S*)?")
_WIKI_LINK = re.compile(r"https?://[^/\s]+/wiki/([A-Za-z0-9]{10,64})(?:[/?#]\S*)?")
_MAX_REASON = 200
_UNFINISHED = "setup"
"""The reason of a base that this program has made and not finished."""


class CountingTables(BaseSetupService, Protocol):
    """`calls` counts the calls made to the platform."""

    calls: int


@dataclass(kw_only=True, eq=False)
class BitableSetupService:
    """Implements handlers.ports_setup.BitablePort. `tables` is None without a Feishu app, which
    `has_app` says without making a connection; `on_change` is called when another base, or none, is
    in use. `language_of` is the language of those who read a chat."""

    repo: BitableRepo
    people: PeoplePort
    chats: ChatRepo
    now: Callable[[], datetime]
    language_of: Callable[[Chat], Awaitable[Language]]
    has_app: Callable[[], bool]
    tables: Callable[[], CountingTables | None]
    on_change: Callable[[], None]
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def status(self) -> BitableStatus:
        base = await self.repo.get_base()
        chat = await self.chats.get(base.chat_id) if base is not None else None
        return BitableStatus(base=base, has_feishu=self.has_app(), chat=chat.title if chat else "")

    async def set_up(
        self, token: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableReport:
        async with self._working() as tables:
            calls, known = tables.calls, await self.repo.get_base()
            wanted = await _find_token(tables, token)
            if known is not None and chat.channel is Channel.FEISHU and chat.id != known.chat_id:
                raise UserError("bitable_elsewhere", base=known.name)
            if known is None or wanted not in ("", known.base):
                known = await self._begin(tables, wanted, by=by, chat=chat, language=language)
            report = await self._finish(tables, known)
            return replace(report, calls=tables.calls - calls)

    async def check(self) -> BitableReport:
        async with self._working() as tables:
            calls, known = tables.calls, await self._need_base()
            found = await self._pass(tables, known, repairs=False).run()
            return BitableReport(base=known, gaps=found.gaps, calls=tables.calls - calls)

    async def repair(self) -> BitableReport:
        async with self._working() as tables:
            calls, known = tables.calls, await self._need_base()
            report = await self._finish(tables, known)
            return replace(report, calls=tables.calls - calls)

    async def rebuild(self) -> BitableBase:
        async with self._lock:
            known = await self._need_base()
            await self.repo.require_scan(rebuild=True)
        return known

    async def disconnect(self) -> BitableBase | None:
        async with self._lock:
            known = await self.repo.get_base()
            await self.repo.forget_base()
        self.on_change()
        return known

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[CountingTables]:
        """One setup at a time; errors of the platform become refusals."""
        tables = self.tables()
        if tables is None:
            raise UserError("bitable_no_feishu")
        async with self._lock:
            try:
                yield tables
            except TableServiceError as error:
                raise UserError(_error_key(error), reason=str(error)[:_MAX_REASON]) from error

    async def _need_base(self) -> BitableBase:
        known = await self.repo.get_base()
        if known is None:
            raise UserError("bitable_none")
        return known

    async def _begin(
        self, tables: CountingTables, wanted: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableBase:
        """Record the base before it is filled: after a crash, the next setup goes on with it and
        makes no second one."""
        owner = await self._find_owner(by)
        place = chat
        if chat.channel is not Channel.FEISHU:
            place = await self._find_chat(owner)
            language = await self.language_of(place)
        found = (
            await tables.get_base(BaseId(wanted))
            if wanted
            else await tables.create_base(layout.base_name(language))
        )
        base = BitableBase(
            base=found.id,
            name=found.name,
            url=found.url,
            language=language,
            chat_id=place.id,
            owner=owner.id,
            tables={},
            state=BitableState.STOPPED,
            reason="" if wanted else _UNFINISHED,
        )
        # In a base of ours every row is an order; in another one, what is written from now on.
        now = int(self.now().timestamp() * 1000)
        await self.repo.save_base(base, since=now if wanted else 1)
        return base

    async def _finish(self, tables: CountingTables, base: BitableBase) -> BitableReport:
        found = await self._pass(tables, base, repairs=True).run()
        is_new = base.reason == _UNFINISHED
        if is_new:
            await self._delete_default_tables(
                tables, base, {t.table for t in found.tables.values()}
            )
        await self._share(tables, base)
        announces = await _subscribe(tables, base)
        base = replace(base, tables=found.tables, state=BitableState.ACTIVE, reason="")
        await self.repo.save_base(base)
        self.on_change()
        return BitableReport(
            base=base, gaps=found.gaps, is_repaired=True, is_new=is_new, announces=announces
        )

    def _pass(self, tables: CountingTables, base: BitableBase, *, repairs: bool) -> BaseSetup:
        return BaseSetup(
            tables=tables,
            base=BaseId(base.base),
            language=base.language,
            repairs=repairs,
            known=base.tables,
        )

    async def _delete_default_tables(
        self, tables: CountingTables, base: BitableBase, ours: set[str]
    ) -> None:
        """The platform gives a new base a table with blank rows. Nobody else has seen it yet."""
        for each in await tables.list_tables(BaseId(base.base)):
            if each.id not in ours:
                await tables.delete_table(TableRef(base=BaseId(base.base), table=each.id))

    async def _share(self, tables: CountingTables, base: BitableBase) -> None:
        """With the owner, and with the group whose tasks it shows. A base that others have made is
        theirs to share."""
        if base.reason != _UNFINISHED:
            return
        for member in await self.people.list_members():
            if base.owner in (member.person.id, *member.joined.values()):
                for channel, account in member.accounts:
                    if channel is Channel.FEISHU:
                        await tables.share_with(BaseId(base.base), account)
        chat = await self.chats.get(base.chat_id)
        if chat.kind is ChatKind.GROUP:
            await tables.share_with(BaseId(base.base), chat.external_id)

    async def _find_owner(self, by: Person) -> Person:
        """Who asks, if they have a Feishu account, else an owner who has."""
        members = await self.people.list_members()
        able = [
            each.person
            for each in members
            if each.person.role.allows(PersonRole.OWNER)
            and any(channel is Channel.FEISHU for channel, _ in each.accounts)
        ]
        if not able:
            raise UserError("bitable_no_owner")
        return next((each for each in able if each.id == by.id), able[0])

    async def _find_chat(self, owner: Person) -> Chat:
        for each in await self.people.private_chats(PersonRole.OWNER):
            if each.channel is Channel.FEISHU and each.person_id == owner.id:
                return each
        raise UserError("bitable_no_owner")


@dataclass(frozen=True, slots=True)
class BitableDiagnosis:
    """A self-check of the base in use; nothing without one."""

    bitable: BitablePort

    name = "bitable"

    async def find(self) -> Sequence[HealthFinding]:
        base = (await self.bitable.status()).base
        if base is None:
            return ()
        try:
            report = await self.bitable.check()
        except UserError as error:
            reason = base.reason or str(error.facts.get("reason", error.key))
            facts = {"base": base.name, "reason": reason}
            return [HealthFinding(text="bitable_refused", points=30, facts=facts)]
        if report.gaps:
            counted: dict[str, str | int] = {"base": base.name, "n": len(report.gaps)}
            return [HealthFinding(text="bitable_gaps", points=10, facts=counted)]
        return [HealthFinding(text="bitable_reached", points=0, facts={"base": base.name})]


async def _subscribe(tables: CountingTables, base: BitableBase) -> bool:
    """Without the events, the tables are read again now and then."""
    try:
        await tables.subscribe_changes(BaseId(base.base))
    except BaseUnreachable:
        return False
    return True


async def _find_token(tables: CountingTables, text: str) -> str:
    """The token of a base from a token or a link; empty for none."""
    text = text.strip().strip("<>")
    if not text or _TOKEN.fullmatch(text):
        return text
    if found := _BASE_LINK.fullmatch(text):
        return found[1]
    if not (found := _WIKI_LINK.fullmatch(text)):
        raise UserError("bitable_token")
    base = await tables.find_wiki_base(found[1])
    if base is None:
        raise UserError("bitable_wiki")
    return base


def _error_key(error: TableServiceError) -> str:
    match error:
        case BaseUnreachable():
            return "bitable_unreachable"
        case TableQuotaExhausted():
            return "bitable_quota"
        case TableBusy() | TablePlatformUnreachable():
            return "bitable_later"
        case _:
            return "bitable_failed"
