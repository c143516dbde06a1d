"""Several processes on one PostgreSQL: how the work grows with the workers, and how soon a task
starts."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_least, at_most
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    plan_reply,
    scene_of,
    step_reply,
    wait_for_message,
)
from tests.journeys.program import ShiftbossProcess
from tests.postgresql_server import create_database, execute
from tests.waiting import wait_until

_STEPS = 3
_WORKERS = 4
_PATIENCE_SECONDS = 300.0
_COPY = """
INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object(
  'id', '{name}' || n, 'source', 'bench {name} ' || n, 'status', 'pending', 'phase', 'queued',
  'control', 'run', 'epoch', 0, 'owner', '', 'graph_version', 0, 'ended_at', null,
  'started_at', null, 'created_at', at, 'waiting_since', at))).*
FROM tasks AS t, generate_series(1, {count}) AS n,
  (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) AS now
WHERE t.source NOT LIKE 'bench%'
"""


@dataclass
class Machines:
    """A front between emulated platforms, and workers with one slot each."""

    world: ModelWorld
    url: str
    home: Path
    owner: tuple[TelegramUser, TelegramChat]
    processes: list[ShiftbossProcess] = field(default_factory=list)
    seconds: float = 0.0

    async def start(self, *arguments: str) -> ShiftbossProcess:
        settings = self.world.program.settings
        made = ShiftbossProcess(home=self.home, settings=settings, arguments=arguments)
        self.processes.append(made)
        await made.start()
        return made

    async def run_tasks(self, name: str, count: int) -> float:
        """Queue so many tasks at once; returns the seconds until the last one is done."""
        execute(self.url, _COPY.format(name=name, count=count))
        await wait_until(lambda: self.count_done(name) == count, _PATIENCE_SECONDS)
        ((micros,),) = execute(
            self.url,
            "SELECT (max(ended_at) - min(created_at))::bigint FROM tasks"
            f" WHERE source LIKE 'bench {name} %'",
        )
        return int(str(micros)) / 1e6

    def count_done(self, name: str) -> int:
        query = "SELECT count(*) FROM tasks WHERE status = 'completed' AND source LIKE"
        ((found,),) = execute(self.url, f"{query} 'bench {name} %'")
        return int(str(found))

    def reply(self, asked: ReceivedRequest) -> ScriptedReply:
        if scene_of(asked) == "plan":
            return plan_reply(*(f"step {n}" for n in range(_STEPS)))(asked)
        made = step_reply("done")(asked)
        if not self.seconds:
            return made
        go = asyncio.Event()
        asyncio.get_running_loop().call_later(self.seconds, go.set)
        return replace(made, hold=go)


@asynccontextmanager
async def machines(url: str, **settings: str) -> AsyncGenerator[Machines, None]:
    """A front that works with the store at `url`, and one task that others are copies of."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        async with (
            model_world(home, "openai", DATABASE_URL=url, **settings) as world,
            AsyncExitStack() as stack,
        ):
            boss, chat = world.new_owner()
            made = Machines(world=world, url=url, home=home, owner=(boss, chat))
            for scene in ("plan", "step"):
                world.script.script("owl", scene, made.reply)
            await boss.says(chat, "/task the owl")
            await wait_for_message(chat, "Task finished")
            await world.program.stop()
            world.program.arguments = ("front", "--name", "f0")
            await world.program.start()

            async def end() -> None:
                for each in made.processes:
                    await each.kill_if_running()

            stack.push_async_callback(end)
            yield made


async def measure_scaling(scale: Scale) -> list[Measurement]:
    """The same tasks of three steps by one worker and by four, each with one slot, for models that
    answer after 0, 50 and 500 ms. All processes share the cores of this machine."""
    figures: list[Measurement] = []
    async with machines(create_database(migrated=False)) as made:
        taken: dict[tuple[int, float], float] = {}
        for workers in (1, _WORKERS):
            while len(made.processes) < workers:
                await made.start("worker", "--name", f"w{len(made.processes)}", "--slots", "1")
            for seconds in (0.0, 0.05, 0.5):
                made.seconds = seconds
                count = scale.pick(16, 4)
                name = f"{workers}s{seconds * 1000:.0f}x"
                taken[workers, seconds] = await made.run_tasks(name, count) / count
                if workers == 1:
                    continue
                ratio = taken[1, seconds] / taken[workers, seconds] / workers
                bar = at_least(0.8) if seconds == 0.5 else None
                about = f"{workers} workers to 1, of linear, steps of {seconds * 1000:.0f} ms"
                figures.append(Figure(about, ratio, "", bar))
                figures.append(
                    Figure(f"task, 1 worker, {seconds * 1000:.0f} ms", taken[1, seconds], "s")
                )
        made.seconds, starts = 0.0, []
        for n in range(scale.pick(40, 3)):
            await made.run_tasks(f"e{n}x", 1)
            query = "SELECT (started_at - created_at)::bigint FROM tasks WHERE source ="
            ((micros,),) = execute(made.url, f"{query} 'bench e{n}x 1'")
            starts.append(int(str(micros)) / 1000)
        starts.sort()
        figures.append(Figure("enqueue to start, median", starts[len(starts) // 2], "ms"))
        p95 = starts[int(len(starts) * 0.95)]
        figures.append(Figure("enqueue to start, p95", p95, "ms", at_most(50)))
    return figures
