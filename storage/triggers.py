"""Stores triggers of workflows and their firings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage.autonomy_schema import trigger_firings, triggers
from storage.db import Database, Transaction, records_from
from storage.dialect import insert_or_ignore
from storage.errors import NotFound
from storage.ids import MAX_CANDIDATES, parse_id_prefix, single_match
from storage.people import current_person_id
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.triggers import NewTrigger, Trigger, TriggerFiring, TriggerKind

_T = triggers.c
_F = trigger_firings.c
_ALL = sa.select(triggers).order_by(_T.created_at, _T.id)


class TriggerRepo:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, tx: Transaction, new: NewTrigger, *, id_: str, now: datetime) -> Trigger:
        owner = await current_person_id(tx, new.owner_id)
        values = _row(replace(new, owner_id=owner))
        values |= {"id": id_, "enabled": True, "created_at": now}
        await tx.execute(sa.insert(triggers).values(**values))
        return _trigger(values)

    async def list_all(self) -> Sequence[Trigger]:
        """Oldest first."""
        return [_trigger(row._asdict()) for row in await self._db.fetch_all(_ALL)]

    async def list_enabled(
        self, kind: TriggerKind, chat: ChatId | None = None
    ) -> Sequence[Trigger]:
        query = _ALL.where(_T.kind == kind.value, _T.enabled)
        if chat is not None:
            query = query.where(_T.chat_id == chat)
        return [_trigger(row._asdict()) for row in await self._db.fetch_all(query)]

    async def get(self, trigger_id: str, *, tx: Transaction) -> Trigger | None:
        row = (await tx.execute(_ALL.where(_T.id == trigger_id))).one_or_none()
        return None if row is None else _trigger(row._asdict())

    async def find(self, prefix: str) -> Trigger:
        """Raises NotFound and AmbiguousId."""
        wanted = parse_id_prefix("trigger", prefix)
        query = _ALL.where(_T.id.startswith(wanted, autoescape=True)).limit(MAX_CANDIDATES + 1)
        found = [_trigger(row._asdict()) for row in await self._db.fetch_all(query)]
        return single_match(found, wanted, "trigger", prefix)

    async def find_by_token(self, token_hash: str) -> Trigger | None:
        """An enabled webhook."""
        found = await self._db.fetch_all(_ALL.where(_T.token_hash == token_hash, _T.enabled))
        return _trigger(found[0]._asdict()) if found else None

    async def update(self, trigger: Trigger, **changes: Any) -> Trigger:
        """Raises NotFound if it was removed."""
        async with self._db.write() as tx:
            done = await tx.execute(
                sa.update(triggers).where(_T.id == trigger.id).values(**changes)
            )
            if not done.rowcount:
                raise NotFound("trigger", trigger.id)
            found = await self.get(trigger.id, tx=tx)
        assert found is not None
        return found

    async def remove(self, trigger: Trigger) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(trigger_firings).where(_F.trigger_id == trigger.id))
            await tx.execute(sa.delete(triggers).where(_T.id == trigger.id))

    async def claim(self, tx: Transaction, trigger: Trigger, key: str, *, now: datetime) -> bool:
        """Add the firing of this event; False if it has fired already."""
        values = {"trigger_id": trigger.id, "key": key, "note": "", "fired_at": now}
        added = insert_or_ignore(tx.dialect.name, trigger_firings).values(values)
        return bool((await tx.execute(added)).rowcount)

    async def settle(
        self, tx: Transaction, trigger: Trigger, key: str, *, task: TaskId | None, note: str
    ) -> None:
        which = (_F.trigger_id == trigger.id) & (_F.key == key)
        await tx.execute(sa.update(trigger_firings).where(which).values(task_id=task, note=note))

    async def find_firing(self, trigger: Trigger, key: str) -> TriggerFiring | None:
        query = sa.select(trigger_firings).where(_F.trigger_id == trigger.id, _F.key == key)
        found = records_from(TriggerFiring, await self._db.fetch_all(query))
        return found[0] if found else None

    async def find_unfired(self, trigger: Trigger, keys: Collection[str]) -> set[str]:
        """Those of these events that have not fired."""
        query = sa.select(_F.key).where(_F.trigger_id == trigger.id, _F.key.in_(keys))
        fired = {row.key for row in await self._db.fetch_all(query)}
        return set(keys) - fired - set(trigger.seen)

    async def last_firings(self) -> Mapping[str, TriggerFiring]:
        """The newest firing of each trigger."""
        newest = (
            sa.select(_F.trigger_id, sa.func.max(_F.fired_at).label("at"))
            .group_by(_F.trigger_id)
            .subquery()
        )
        query = sa.select(trigger_firings).join(
            newest, (newest.c.trigger_id == _F.trigger_id) & (newest.c.at == _F.fired_at)
        )
        found = records_from(TriggerFiring, await self._db.fetch_all(query))
        return {each.trigger_id: each for each in found}


_COLUMNS = ("id", "kind", "workflow", "chat_id", "owner_id", "token_hash", "enabled", "created_at")


def _row(new: NewTrigger) -> dict[str, Any]:
    values = asdict(new)
    settings = {name: value for name, value in values.items() if name not in _COLUMNS}
    own = {name: value for name, value in values.items() if name in _COLUMNS}
    return own | {"kind": new.kind.value, "settings": settings | {"seen": list(new.seen)}}


def _trigger(row: Mapping[str, Any]) -> Trigger:
    settings = row["settings"]
    own = {name: row[name] for name in _COLUMNS}
    own |= {"kind": TriggerKind(row["kind"]), "seen": tuple(settings.get("seen", ()))}
    rest = {name: value for name, value in settings.items() if name != "seen"}
    return Trigger(**own, **rest)
