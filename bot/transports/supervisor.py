"""Runs the transports: restarts one that fails without affecting the others, and adds, replaces or
removes one while the others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bot.transports.alerts import ChannelAlerts
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import Transport
from storage.records.people import Channel

log = logging.getLogger(__name__)

_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


class TransportSupervisor:
    """Runs one transport; the pause grows with consecutive failures."""

    def __init__(
        self, transport: Transport, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.name = f"{transport.channel} transport"
        self._transport = transport
        self._sleep = sleep

    async def run(self) -> None:
        rest = _INITIAL_BACKOFF
        while True:
            try:
                await self._transport.run()
            except Exception:
                # Error boundary: one platform must not stop the others.
                log.exception("%s failed; restarting in %g s", self.name, rest)
            else:
                log.error("%s ended; restarting in %g s", self.name, rest)
            await self._sleep(rest)
            rest = min(rest * 2, _MAX_BACKOFF)


@dataclass(kw_only=True, eq=False)
class ChannelSupervisor:
    """A service that runs all transports. `transports` holds the initial ones and is shared with
    whatever sends and downloads.
    """

    name = "channels"

    transports: dict[Channel, Transport]
    outbox_sender: OutboxSender
    alerts: ChannelAlerts
    _stacks: dict[Channel, AsyncExitStack] = field(default_factory=dict, init=False)
    _tasks: dict[Channel, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup, init=False)
    _is_running: bool = field(default=False, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close)
        for channel, transport in self.transports.items():
            if channel not in self._stacks:
                self._stacks[channel] = await _open(transport)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            for transport in self.transports.values():
                self._run(transport)
            self._is_running = True
            await asyncio.get_running_loop().create_future()

    async def add(self, transport: Transport) -> None:
        """Run the transport of a channel that has none, like `replace`. Messages are sent as soon
        as the outbox runs.
        """
        async with self._lock:
            self._stacks[transport.channel] = await _open(transport)
            self.transports[transport.channel] = transport
            if self._is_running:
                self._run(transport)

    async def replace(self, channel: Channel, new: Transport | None) -> None:
        """Run this transport in place of the channel's current one, if any; with None the channel
        has none.

        The old transport continues if the new one cannot start. Otherwise it stops receiving,
        finishes what it is sending, and closes; then the new one sends what waits in the outbox.
        """
        async with self._lock:
            stack = None if new is None else await _open(new)
            await self._remove(channel)
            self.alerts.restart(channel, is_configured=new is not None)
            log.info("%s: %s", channel, "disconnected" if new is None else "connected anew")
            if new is None or stack is None:
                return
            self._stacks[channel], self.transports[channel] = stack, new
            if self._is_running:
                self.outbox_sender.connect(new)
                self.outbox_sender.connected(channel)
                self._run(new)

    async def _remove(self, channel: Channel) -> None:
        if (receiving := self._tasks.pop(channel, None)) is not None:
            receiving.cancel()
            await asyncio.wait([receiving])
        await self.outbox_sender.disconnect(channel)
        self.transports.pop(channel, None)
        if (stack := self._stacks.pop(channel, None)) is not None:
            await stack.aclose()

    def _run(self, transport: Transport) -> None:
        supervisor = TransportSupervisor(transport)
        task = self._group.create_task(supervisor.run(), name=supervisor.name)
        self._tasks[transport.channel] = task

    async def _close(self) -> None:
        for stack in reversed(self._stacks.values()):
            await stack.aclose()


async def _open(transport: Transport) -> AsyncExitStack:
    async with AsyncExitStack() as stack:
        await transport.start(stack)
        return stack.pop_all()
