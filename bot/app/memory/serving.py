"""What the program serves to agents outside: to whoever holds the key of the web chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.app.memory.history import Past
from bot.app.memory.named import CHAT, ME, UnknownName, scope_of
from bot.app.memory.recall import Recalling, searching
from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.mcp.serving import rpc
from bot.engine.agent.mcp.serving.answering import answer
from bot.engine.agent.mcp.serving.hooks import Hook, told
from bot.engine.agent.mcp.serving.offered import memory_tools
from bot.engine.agent.mcp.serving.shelf import Narrowed, Shelf, Stores
from bot.engine.llm.base import Tool
from bot.engine.memory.archive.tools import Ears, history_tools
from bot.engine.memory.telling.inject import Injection
from bot.transports.clock import Clock
from bot.transports.web.ports import PLACE, SENDER
from storage.memory.archive.hearing import Hearing
from storage.memory.jobs import JobRepo
from storage.records.memory.entries import GLOBAL, Scope, ScopeKind
from storage.records.people import Chat

MOST_SCOPES = 20
_OTHERS = frozenset({ScopeKind.PERSON, ScopeKind.CHAT})


class BadScope(Exception):
    """Nobody may be served this. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """For the local owner, and of what is somebody's own only theirs. `quick` looks things up
    without asking anybody on the network: hooks do not wait."""

    store: Store
    stores: Stores
    quick: Stores
    past: Past
    clock: Clock

    async def answer(self, message: Any, scopes: Sequence[str]) -> Any:
        """See `rpc.known`. Without scopes it is what is for everybody. Raises BadScope."""
        quick = rpc.known(message)
        if quick is not None:
            return quick
        chat = await self._chat()
        reader = Narrowed(chat=chat, person=chat.person_id, only=_named(scopes, chat))
        if message["method"] == rpc.HOOK:
            return await _hooked(message, Shelf(self.quick, reader), self.stores.mask)
        return await answer(self._tools(Shelf(self.stores, reader), reader), message)

    def _tools(self, shelf: Shelf, reader: Narrowed) -> Sequence[Tool]:
        """Old conversations are as private as what is remembered of them."""
        own = any(scope.kind is ScopeKind.PERSON for scope in reader.only)

        async def hear() -> Hearing:
            if reader.chat is None or not own:
                return Hearing(chat=None)
            return await self.past.heard_by(reader.person, reader.chat.id)

        ears = Ears(looking=self.past.looking, hear=hear, zone=self.past.settings.zone)
        tools = (*memory_tools(shelf), *history_tools(ears))
        return [_masked(tool, self.stores.mask) for tool in tools]

    async def _chat(self) -> Chat:
        known = await self.store.chats.find(PLACE)
        if known is not None:
            return known
        async with self.store.db.write() as tx:
            return await self.store.chats.meet(tx, PLACE, SENDER, self.clock.now())


def build_serving(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    writing: Writing,
    recalling: Recalling,
    past: Past,
    mask: Callable[[str], str],
) -> Serving:
    plain = settings.memory.model_copy(update={"rerank_url": ""})
    quick = searching(settings.model_copy(update={"memory": plain}), store, clock)
    stores = Stores(
        db=store.db,
        entries=writing.entries,
        cells=writing.cells,
        recall=recalling.recall,
        injection=Injection(
            entries=recalling.entries,
            recall=recalling.recall,
            heard=recalling.uses.heard,
            now=clock.now,
            budget=settings.memory.told_tokens,
            zone=settings.zone,
        ),
        changed=writing.changed,
        jobs=JobRepo(store.db) if settings.memory.extract else None,
        mask=mask,
        now=clock.now,
        zone=settings.zone,
    )
    return Serving(
        store=store,
        stores=stores,
        quick=replace(stores, recall=quick),
        past=past,
        clock=clock,
    )


def _named(names: Sequence[str], chat: Chat) -> tuple[Scope, ...]:
    if len(names) > MOST_SCOPES:
        raise BadScope(f"no more than {MOST_SCOPES} scopes")
    found = [_scope(name, chat) for name in names] or [GLOBAL]
    return tuple(dict.fromkeys(found))


def _scope(name: str, chat: Chat) -> Scope:
    name = name.strip()
    if name == ME:
        if chat.person_id is None:
            raise BadScope("nobody owns the web chat yet: start `shiftboss run` once")
        return Scope(ScopeKind.PERSON, chat.person_id)
    try:
        scope = scope_of(name)
    except UnknownName as error:
        raise BadScope(f"{error}; a scope is global, me, project:/FOLDER or any name") from error
    own = Scope(ScopeKind.PERSON, chat.person_id or "nobody")
    if name == CHAT or (scope.kind in _OTHERS and scope != own):
        raise BadScope(f"{name[:80]!r} is somebody's own; yours is `{ME}`")
    return scope


def _masked(tool: Tool, mask: Callable[[str], str]) -> Tool:
    """What it tells leaves the house."""

    async def run(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(mask, await tool.run(arguments))

    return replace(tool, run=run)


async def _hooked(message: Any, shelf: Shelf, mask: Callable[[str], str]) -> Any:
    params = message.get("params") or {}
    try:
        hook = Hook(str(params.get("hook")))
    except ValueError:
        return rpc.error(message["id"], rpc.BAD_PARAMS, "no such hook")
    said = await told(hook, shelf, str(params.get("text") or ""))
    return rpc.result(message["id"], {"text": await asyncio.to_thread(mask, said)})
