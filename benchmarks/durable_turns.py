"""The cost of storing each reply of a model and each tool result when it arrives."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias, TypeVar

from benchmarks.engine_runs import RawCommits, RealClock
from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import p95
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import PartialTurn, RunPurpose, RunRequest, RunResult, TokenUsage
from bot.engine.llm.tool_calls import CallKind, ToolCall
from storage.db import Database, Transaction
from storage.records.tasks import TaskStatus
from storage.sessions import SessionRepo
from tests.agent_builders import make_context_builder
from tests.bot.engine.permissions.builders import build_permission_service
from tests.engine_harness import EngineHarness, FakeBackend, run_engine, run_result

_TURNS = 400
_BYTES = 1_500
_STREAMS = 8
_MODEL = "claude-sonnet-5-5"
_T = TypeVar("_T")
_Work: TypeAlias = Callable[[Transaction], Awaitable[None]]


@dataclass
class _Cost:
    """Milliseconds of the clock and of the processor, one of each a call."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def of(self, call: Callable[[], Awaitable[_T]]) -> _T:
        wall, cpu = time.perf_counter(), time.process_time()
        result = await call()
        self.wall.append(1_000 * (time.perf_counter() - wall))
        self.cpu.append(1_000 * (time.process_time() - cpu))
        return result


@dataclass
class _TurningBackend(FakeBackend):
    """Makes so many turns of one step as a model API does: a call that is announced, a reply, and a
    tool call with its result. Before each a raw commit of the same size."""

    turns: int = 0
    raw: Any = None
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    announced: _Cost = field(default_factory=_Cost)
    replies: _Cost = field(default_factory=_Cost)
    calls: _Cost = field(default_factory=_Cost)
    results: _Cost = field(default_factory=_Cost)
    raw_times: list[float] = field(default_factory=list)

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is not RunPurpose.STEP:
            return await super().respond(request)
        assert request.gate is not None
        assert request.on_reply is not None
        assert request.permit is not None
        gate, on_reply, permit = request.gate, request.on_reply, request.permit
        spent = TokenUsage()
        for n in range(self.turns):
            self.raw_times += self.raw.times(1, _BYTES)
            await self.announced.of(partial(gate, _MODEL, 1_000, spent))
            turn = _reply(n)
            await self.replies.of(partial(on_reply, turn))
            spent += turn.usage
            call = ToolCall(
                call_id=f"c{n}",
                name="look",
                arguments={"command": f"the attic {n}"},
                kind=CallKind.READ,
                title="look",
            )
            await self.calls.of(partial(permit, call))
            record = partial(permit.record_outcome, succeeded=True, outcome="x" * _BYTES)
            await self.results.of(partial(record, f"c{n}"))
        self.is_done.set()
        return run_result(StepAnswer(status="done", summary="It is tidy."))


def _reply(n: int) -> PartialTurn:
    part = {
        "part_kind": "tool-call",
        "tool_name": "look",
        "tool_call_id": f"c{n}",
        "args": {"command": "x" * _BYTES},
    }
    usage = TokenUsage(requests=1, input_tokens=1_000, output_tokens=200)
    message = {"kind": "response", "parts": [part]}
    return PartialTurn(messages=(message,), usage=usage, model=_MODEL, context_tokens=1_200)


async def measure(scale: Scale) -> list[Measurement]:
    """One step of 400 turns, each with one tool call; what is written for a reply or a result is
    some 1,500 bytes. A *reply* is its transaction: the messages, the bill, and the end of the call
    that was announced. A *result* is that of a tool call. Both are compared with a raw commit of
    that size on the same disk, made just before.

    *At once* are rows of that size from eight writers that never rest, committed in groups and each
    by itself."""
    backend = _TurningBackend(turns=scale.pick(_TURNS, 5), steps=("tidy",))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        backend.raw = RawCommits(home)
        async with run_engine(
            home,
            backend,
            clock=RealClock(),
            context_builder=lambda db, clock: make_context_builder(
                authorizer_factory=build_permission_service(db, clock, [])
            ),
        ) as world:
            task = await world.create_task("Tidy up")
            await backend.is_done.wait()  # whoever looks meanwhile is measured too
            view = await world.until(task)
            together, alone = [
                await _write_at_once(world, way, scale.pick(_TURNS, 5))
                for way in (world.db.write_together, partial(_write_alone, world.db))
            ]
        assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
    raw = mean(backend.raw_times)
    parts = {
        "a reply": (backend.replies, at_most(1.5)),
        "a tool result": (backend.results, at_most(1.5)),
        "announcing a model call": (backend.announced, None),
        "recording a tool call": (backend.calls, None),
    }
    figures: list[Measurement] = []
    for name, (cost, bar) in parts.items():
        figures += [
            Figure(f"{name}: CPU", mean(cost.cpu), "ms", bar),
            Figure(f"{name}: p95", p95(cost.wall), "ms"),
            Figure(f"{name}: against a raw commit", mean(cost.wall) / raw, "×"),
        ]
    for name, (waits, cpu) in {"in groups": together, "each by itself": alone}.items():
        figures += [
            Figure(f"eight at once, {name}: CPU", cpu, "ms"),
            Figure(f"eight at once, {name}: p95", p95(waits), "ms"),
        ]
    return [*figures, Figure("raw commit", raw, "ms")]


async def _write_alone(db: Database, work: _Work) -> None:
    async with db.write() as tx:
        await work(tx)


async def _write_at_once(
    world: EngineHarness, write: Callable[[_Work], Awaitable[None]], turns: int
) -> tuple[list[float], float]:
    """Milliseconds of the clock for each write, and of the processor for one."""
    sessions, waits = SessionRepo(world.db), list[float]()
    chosen = world.gateway.select_backend("", "")
    keys = [f"stream {n}" for n in range(_STREAMS)]
    opened = [await world.gateway.open_session(key, chosen) for key in keys]

    async def stream(session_id: str) -> None:
        append = partial(
            sessions.append_messages,
            session_id=session_id,
            messages=_reply(0).messages,
            tokens=1_200,
            now=world.clock(),
        )
        for _ in range(turns):
            began = time.perf_counter()
            await write(append)
            waits.append(1_000 * (time.perf_counter() - began))

    cpu = time.process_time()
    await asyncio.gather(*(stream(each.id) for each in opened))
    return waits, 1_000 * (time.process_time() - cpu) / len(waits)
