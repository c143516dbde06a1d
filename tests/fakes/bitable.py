"""A fake of the Bitable port."""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers.errors import UserError
from storage.records.bitable import (
    BitableBase,
    BitableGap,
    BitableReport,
    BitableStatus,
    SyncedTable,
    TableRole,
)
from storage.records.people import Chat, ChatId, Language, Person, PersonId

BASE = BitableBase(
    base="bascnFake0001",
    name="Work *plan*",
    url="https://team.feishu.cn/base/bascnFake0001",
    language=Language.ENGLISH,
    chat_id=ChatId("c0"),
    owner=PersonId("olga"),
    tables={TableRole.TASKS: SyncedTable(table="tbl1", fields={"title": "fld1"})},
)


@dataclass(kw_only=True, eq=False)
class FakeBitable:
    """`gaps` are what the next pass finds; `tokens` are those it was set up with."""

    base: BitableBase | None = None
    has_feishu: bool = True
    announces: bool = True
    gaps: tuple[BitableGap, ...] = ()
    tokens: list[str] = field(default_factory=list)
    rebuilds: int = 0

    async def status(self) -> BitableStatus:
        chat = "" if self.base is None else "team"
        return BitableStatus(base=self.base, has_feishu=self.has_feishu, chat=chat)

    async def set_up(
        self, token: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableReport:
        if not self.has_feishu:
            raise UserError("bitable_no_feishu")
        self.tokens.append(token)
        is_new, self.base = self.base is None and not token, BASE
        return self._report(is_repaired=True, is_new=is_new)

    async def check(self) -> BitableReport:
        return self._report(is_repaired=False)

    async def repair(self) -> BitableReport:
        return self._report(is_repaired=True)

    async def rebuild(self) -> BitableBase:
        if self.base is None:
            raise UserError("bitable_none")
        self.rebuilds += 1
        return self.base

    async def disconnect(self) -> BitableBase | None:
        left, self.base = self.base, None
        return left

    def _report(self, *, is_repaired: bool, is_new: bool = False) -> BitableReport:
        if self.base is None:
            raise UserError("bitable_none")
        return BitableReport(
            base=self.base,
            gaps=self.gaps,
            is_repaired=is_repaired,
            is_new=is_new,
            announces=self.announces,
        )
