"""Notifies subscribers in this process that memories have changed, including changes written by
other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

from storage.memory.markdown.sync_store import SyncedEntryRepo
from storage.records.memory import MemoryScope


class MemoryChangeFeed:
    """Publishers call `publish` after the commit; `ForeignWriteDetector` publishes commits of other
    processes."""

    def __init__(self) -> None:
        self._subscriptions: WeakSet[MemoryChangeSubscription] = WeakSet()

    def publish(self, *scopes: MemoryScope) -> None:
        for listener in self._subscriptions:
            listener.push(scopes)

    def subscribe(self) -> MemoryChangeSubscription:
        """Subscribe to all further changes until the subscription is dropped."""
        listener = MemoryChangeSubscription()
        self._subscriptions.add(listener)
        return listener


@dataclass(slots=True, kw_only=True)
class DeferredPublisher:
    """Collects the scopes that a caller's transaction changes, for after its commit."""

    feed: MemoryChangeFeed
    _changed_scopes: set[MemoryScope] = field(default_factory=set, init=False)

    def publish_changes(self) -> None:
        """Call this after the transaction is committed."""
        scopes, self._changed_scopes = self._changed_scopes, set()
        self.feed.publish(*scopes)


class MemoryChangeSubscription:
    def __init__(self) -> None:
        self._pending: set[MemoryScope] = set()
        self._event = asyncio.Event()

    def push(self, scopes: tuple[MemoryScope, ...]) -> None:
        self._pending |= set(scopes)
        self._event.set()

    async def wait(self) -> frozenset[MemoryScope]:
        """Wait for changes and return their scopes since the last call."""
        await self._event.wait()
        self._event.clear()
        heard, self._pending = frozenset(self._pending), set()
        return heard


@dataclass(slots=True, kw_only=True)
class ForeignWriteDetector:
    """Detects writes of other processes. `store_version` changes with every foreign write; it
    returns None while unknown."""

    store_version: Callable[[], Awaitable[int | None]]
    repo: SyncedEntryRepo
    feed: MemoryChangeFeed
    _seen_version: int | None = field(default=None, init=False)
    _scope_states: Mapping[MemoryScope, tuple[object, ...]] = field(
        default_factory=dict, init=False
    )

    async def reset(self) -> None:
        """Start detection here; reads after this call see all earlier writes."""
        self._seen_version = await self.store_version()

    async def publish_changes(self) -> None:
        """Publish the scopes that have changed since the last call."""
        version = await self.store_version()
        if version is None or version == self._seen_version:
            return
        states = await self.repo.get_scope_states()
        before, self._scope_states = self._scope_states, states
        self._seen_version = version
        self.feed.publish(
            *(each for each in {*before, *states} if before.get(each) != states.get(each))
        )
