"""How long it takes until others go on with what a dead machine did, as seen by the platforms and
by the service of the model."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import Bar, Figure, Measurement, Scale, at_most
from benchmarks.machines import Machines, machines
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.journeys.model_world import held_reply, plan_reply, step_reply
from tests.killable_postgresql import KillableServer, killable_server
from tests.postgresql_server import execute
from tests.waiting import wait_until

_PATIENCE_SECONDS = 120.0
_AWAY_SECONDS = (1.0, 15.0)


async def measure(scale: Scale) -> list[Measurement]:
    """A front is killed with -9, or hangs, while another one waits; a worker is killed, or hangs,
    in the middle of a step while another one is free; the database server is killed and started
    again. Taken from the signal (of the server: from its first connection on) until the platform is
    polled again, an answer is in the chat, or the model is asked again."""
    times = scale.pick(8, 1)
    with (
        tempfile.TemporaryDirectory(prefix="pg") as folder,
        killable_server(Path(folder)) as server,
    ):
        async with machines(server.create_database("machines")) as made:
            made.world.script.script("hello", "talk", _answer)
            return [
                *_figures(await _fronts(made, times), at_most(15)),
                *_figures(await _workers(made, times), at_most(15)),
                *_figures(await _server(made, server, times), None),
            ]


async def _fronts(made: Machines, times: int) -> Mapping[str, Sequence[float]]:
    """Both fronts lead by turns."""
    found: dict[str, list[float]] = {}
    leads, waits = made.world.program, await made.start("front", "--name", "f1")
    for how in (signal.SIGKILL, signal.SIGSTOP):
        named = "killed" if how is signal.SIGKILL else "hangs"
        for number in range(times):
            polls = made.world.telegram.world.updates.pollers
            os.kill(leads.pid, how)
            began = time.monotonic()
            said = asyncio.create_task(_say(made, f"{named}{number}"))
            await _until(partial(_has_polled, made, polls))
            found.setdefault(f"front {named}: Telegram is polled", []).append(_since(began))
            await said
            found.setdefault(f"front {named}: a message is answered", []).append(_since(began))
            await leads.kill_if_running()
            await leads.start()
            leads, waits = waits, leads
    await waits.kill_if_running()
    return found


async def _workers(made: Machines, times: int) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    boss, chat = made.owner
    workers = {
        name: await made.start("worker", "--name", name, "--slots", "1") for name in ("w0", "w1")
    }
    for how in (signal.SIGKILL, signal.SIGSTOP):
        named = "killed" if how is signal.SIGKILL else "hangs"
        for number in range(times):
            cue = f"hare{named}{number}"
            script = made.world.script
            script.script(cue, "plan", plan_reply(cue))
            script.script(cue, "step", held_reply(step_reply("lost"), asyncio.Event()))
            await boss.says(chat, f"/task the {cue}")
            await script.wait_for_request(cue)
            script.script(cue, "step", step_reply("went on"))
            victim = workers[_holder(made)]
            os.kill(victim.pid, how)
            began = time.monotonic()
            await script.wait_for_request(cue, count=2)
            found.setdefault(f"worker {named}: its step goes on elsewhere", []).append(
                _since(began)
            )
            await victim.kill_if_running()
            await victim.start()
    return found


async def _server(
    made: Machines, server: KillableServer, times: int
) -> Mapping[str, Sequence[float]]:
    """A step is under way, and somebody says something meanwhile."""
    found: dict[str, list[float]] = {}
    boss, chat = made.owner
    processes = "SELECT name, started_at FROM workers ORDER BY name"
    for away in _AWAY_SECONDS:
        for number in range(max(1, times // 2)):
            cue, go = f"crow{away:.0f}x{number}", asyncio.Event()
            script = made.world.script
            script.script(cue, "plan", plan_reply("first", "second"))
            script.script(cue, "step", held_reply(step_reply("first"), go), step_reply("second"))
            await boss.says(chat, f"/task the {cue}")
            await script.wait_for_request(cue)
            before = execute(made.url, processes)
            await asyncio.to_thread(server.kill)
            said = asyncio.create_task(_say(made, cue))
            await asyncio.sleep(away / 2)
            go.set()
            await asyncio.sleep(away / 2)
            await asyncio.to_thread(server.start)
            began = time.monotonic()
            what = f"database away for {away:.0f} s: "
            await script.wait_for_request(cue, count=2)
            found.setdefault(f"{what}the next step begins", []).append(_since(began))
            await said
            found.setdefault(f"{what}a message is answered", []).append(_since(began))
            assert len(script.requests_for(cue, "step")) == 2, "the first step was done again"
            gone = set(before) - set(execute(made.url, processes))
            found.setdefault(f"{what}processes taken for dead", []).append(len(gone))
    return found


async def _say(made: Machines, what: str) -> None:
    boss, chat = made.owner
    await boss.says(chat, f"hello {what}")
    await chat.wait_for_text(f"to hello {what}.", _PATIENCE_SECONDS)


def _answer(asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(text=f"to {asked.last_text.splitlines()[-1]}.")


def _has_polled(made: Machines, before: int) -> bool:
    return made.world.telegram.world.updates.pollers > before


def _holder(made: Machines) -> str:
    query = "SELECT w.name FROM workers w JOIN tasks t ON t.owner = w.id AND t.status = 'running'"
    ((name,),) = execute(made.url, query)
    return str(name)


def _figures(found: Mapping[str, Sequence[float]], bar: Bar | None) -> Iterator[Measurement]:
    for name, values in found.items():
        unit = "" if name.endswith("dead") else "s"
        yield Figure(f"{name}, median", sorted(values)[len(values) // 2], unit)
        yield Figure(f"{name}, most", max(values), unit, bar if unit else at_most(0))


async def _until(condition: Callable[[], bool]) -> None:
    await wait_until(condition, _PATIENCE_SECONDS)


def _since(began: float) -> float:
    return time.monotonic() - began
