"""Sets up the Bitable of tasks, logs and memories while the program runs: finds its tables, columns
and options, and makes those that are missing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from bot.sync import layout
from bot.sync.layout import LAYOUT, ColumnLayout
from bot.sync.ports import (
    BaseId,
    BaseSetupService,
    BaseUnreachable,
    FieldOption,
    NewTableField,
    TableBusy,
    TableField,
    TableId,
    TablePlatformUnreachable,
    TableQuotaExhausted,
    TableRef,
    TableServiceError,
    TableSummary,
)
from cards.catalog import catalog_for
from handlers.errors import UserError
from handlers.ports import PeoplePort
from handlers.ports_setup import BitablePort
from storage.bitable import BitableRepo
from storage.messages.chats import ChatRepo
from storage.records.autonomy import HealthFinding
from storage.records.bitable import (
    BitableBase,
    BitableGap,
    BitableGapKind,
    BitableReport,
    BitableState,
    BitableStatus,
    SyncedTable,
    TableRole,
)
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


_KANBAN = "kanban"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseInspection:
    """The tables as far as they exist, and what was missing."""

    tables: Mapping[TableRole, SyncedTable]
    gaps: tuple[BitableGap, ...]


@dataclass(kw_only=True, eq=False)
class BaseSetup:
    """One pass over a base. `known` are the tables as they were recorded: what people renamed is
    recognised by its ID. With `repairs`, everything missing is made; nothing is ever removed or
    renamed. Raises TableServiceError."""

    tables: BaseSetupService
    base: BaseId
    language: Language
    repairs: bool
    known: Mapping[TableRole, SyncedTable] = field(default_factory=dict)
    _gaps: list[BitableGap] = field(default_factory=list, init=False)

    async def run(self) -> BaseInspection:
        present = await self.tables.list_tables(self.base)
        found: dict[TableRole, SyncedTable] = {}
        for role in LAYOUT:
            table = self._find_table(role, present)
            if table is None:
                self._note(BitableGapKind.TABLE, role, layout.table_name(role, self.language))
                if not self.repairs:
                    continue
                table = await self._create_table(role)
            found[role] = await self._inspect_table(role, TableRef(base=self.base, table=table))
        return BaseInspection(tables=found, gaps=tuple(self._gaps))

    def _find_table(self, role: TableRole, present: Sequence[TableSummary]) -> TableId | None:
        known = self.known.get(role)
        if known is not None and any(each.id == known.table for each in present):
            return TableId(known.table)
        taken = {each.table for each in self.known.values()}
        named = (each for each in present if layout.table_role(each.name) is role)
        return next((each.id for each in named if each.id not in taken), None)

    async def _create_table(self, role: TableRole) -> TableId:
        words = catalog_for(self.language)
        table = await self.tables.create_table(
            self.base,
            layout.table_name(role, self.language),
            [self._new_field(role, each) for each in LAYOUT[role]],
            view=words("bitable.view.all"),
        )
        if role is TableRole.TASKS:
            ref = TableRef(base=self.base, table=table)
            await self.tables.create_view(ref, words("bitable.view.board"), kind=_KANBAN)
        return table

    def _new_field(self, role: TableRole, column: ColumnLayout, suffix: str = "") -> NewTableField:
        name = layout.column_name(role, column.key, self.language)
        options = tuple(
            layout.option_name(role, column.key, each, self.language) for each in column.options
        )
        return NewTableField(name=f"{name}{suffix}", type=column.type, options=options)

    async def _inspect_table(self, role: TableRole, ref: TableRef) -> SyncedTable:
        present = await self.tables.list_fields(ref)
        known = self.known.get(role)
        recorded = known.fields if known is not None and known.table == ref.table else {}
        fields: dict[str, str] = {}
        options: dict[str, Mapping[str, str]] = {}
        for column in LAYOUT[role]:
            free = [each for each in present if each.id not in fields.values()]
            field = _find_field(role, column, free, recorded)
            if field is None:
                field = await self._create_field(role, ref, column, present)
            if field is None:
                continue
            fields[column.key] = field.id
            if column.options:
                ids = known.options.get(column.key, {}) if recorded and known else {}
                options[column.key] = await self._inspect_options(role, ref, column, field, ids)
        return SyncedTable(table=ref.table, fields=fields, options=options)

    async def _create_field(
        self, role: TableRole, ref: TableRef, column: ColumnLayout, present: Sequence[TableField]
    ) -> TableField | None:
        new = self._new_field(role, column)
        is_taken = any(each.name == new.name for each in present)
        kind = BitableGapKind.COLUMN_TYPE if is_taken else BitableGapKind.COLUMN
        self._note(kind, role, new.name)
        if not self.repairs:
            return None
        if is_taken:
            new = self._new_field(role, column, suffix=" (Shiftboss)")
        return await self.tables.create_field(ref, new)

    async def _inspect_options(
        self,
        role: TableRole,
        ref: TableRef,
        column: ColumnLayout,
        field: TableField,
        recorded: Mapping[str, str],
    ) -> Mapping[str, str]:
        present = {each.id for each in field.options}
        found = {each: recorded[each] for each in column.options if recorded.get(each) in present}
        for option in field.options:
            meant = layout.option_role(role, column.key, option.name)
            if meant is not None and option.id not in found.values():
                found.setdefault(meant, option.id)
        missing = [each for each in column.options if each not in found]
        names = {each: self._option_name(role, column, each) for each in missing}
        for name in names.values():
            self._note(BitableGapKind.OPTION, role, name)
        if not missing or not self.repairs:
            return found
        more = tuple(FieldOption(name=each) for each in names.values())
        changed = await self.tables.update_field(
            ref, replace(field, options=(*field.options, *more))
        )
        made = {each.name: each.id for each in changed.options}
        return found | {each: made[name] for each, name in names.items() if name in made}

    def _option_name(self, role: TableRole, column: ColumnLayout, option: str) -> str:
        return layout.option_name(role, column.key, option, self.language)

    def _note(self, kind: BitableGapKind, table: TableRole, name: str) -> None:
        self._gaps.append(BitableGap(kind=kind, table=table, name=name))


def _find_field(
    role: TableRole,
    column: ColumnLayout,
    free: Sequence[TableField],
    recorded: Mapping[str, str],
) -> TableField | None:
    """The column recorded for this role, else one with such a name. The type must fit: a value
    that is read otherwise than it was written would be a change each time."""
    fitting = [each for each in free if each.type is column.type]
    for each in fitting:
        if each.id == recorded.get(column.key):
            return each
    others = set(recorded.values())
    for each in fitting:
        if layout.column_key(role, each.name) == column.key and each.id not in others:
            return each
    is_first = column is LAYOUT[role][0]
    # A table has one first column, whatever people call it.
    return next((each for each in fitting if is_first and each.is_primary), None)
