"""Every benchmark there is, in the order in which the page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

from benchmarks.figures import MeasureFunction


class Section(StrEnum):
    """A heading of the page."""

    PROGRAM = "The whole program"
    CORE = "The execution core"
    WORKERS = "Chats and workers"
    MEMORY = "Memory"
    CRASHES = "Crashes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A measurement by name. `function` is `module.function` in this package: it is imported when
    it runs, so that no benchmark carries the modules of another. `is_long` ones run only when they
    are named. `minutes` is the time after which a run counts as failed."""

    name: str
    function: str
    section: Section
    is_long: bool = False
    minutes: float = 15

    def load(self) -> MeasureFunction:
        module, name = self.function.split(".")
        measure: MeasureFunction = getattr(import_module(f"benchmarks.{module}"), name)
        return measure


BENCHMARKS = (
    Benchmark(name="start_up", function="start_up.measure", section=Section.PROGRAM),
    Benchmark(name="newcomer", function="newcomer.measure", section=Section.PROGRAM),
    Benchmark(name="idle_memory", function="idle_memory.measure", section=Section.PROGRAM),
    Benchmark(name="installed_size", function="installed_size.measure", section=Section.PROGRAM),
    Benchmark(name="reply_overhead", function="reply_overhead.measure", section=Section.PROGRAM),
    Benchmark(
        name="sustained_load",
        function="sustained_load.measure",
        section=Section.PROGRAM,
        is_long=True,
        minutes=30,
    ),
    Benchmark(name="dashboard_pages", function="dashboard_pages.measure", section=Section.PROGRAM),
    Benchmark(name="files_entered", function="files_entered.measure", section=Section.PROGRAM),
    Benchmark(
        name="enqueue_to_start", function="starts.measure_enqueue_to_start", section=Section.CORE
    ),
    Benchmark(name="urgent_start", function="starts.measure_urgent_start", section=Section.CORE),
    Benchmark(name="schedules", function="schedules.measure", section=Section.CORE),
    Benchmark(name="durable_steps", function="durable_steps.measure", section=Section.CORE),
    Benchmark(name="workflow_nodes", function="workflow_nodes.measure", section=Section.CORE),
    Benchmark(name="queue_depth", function="queue_depth.measure", section=Section.CORE),
    Benchmark(name="waiting_thousand", function="waiting_thousand.measure", section=Section.CORE),
    Benchmark(
        name="machines",
        function="machines.measure_scaling",
        section=Section.CORE,
        is_long=True,
        minutes=30,
    ),
    Benchmark(
        name="capacity",
        function="capacity.measure",
        section=Section.CORE,
        is_long=True,
        minutes=30,
    ),
    Benchmark(
        name="machine_deaths",
        function="machine_deaths.measure",
        section=Section.CRASHES,
        is_long=True,
        minutes=60,
    ),
    Benchmark(
        name="machine_takeovers",
        function="machine_takeovers.measure",
        section=Section.CRASHES,
        is_long=True,
        minutes=15,
    ),
    Benchmark(name="durable_turns", function="durable_turns.measure", section=Section.WORKERS),
    Benchmark(name="shared_session", function="shared_session.measure", section=Section.WORKERS),
    Benchmark(name="prompts", function="prompts.measure", section=Section.WORKERS),
    Benchmark(name="streamed_turn", function="streamed_turn.measure", section=Section.WORKERS),
    Benchmark(name="live_chats", function="live_chats.measure", section=Section.WORKERS),
    Benchmark(name="group_cards", function="accurate_cards.measure_group", section=Section.WORKERS),
    Benchmark(
        name="feishu_calls",
        function="accurate_cards.measure_feishu_calls",
        section=Section.WORKERS,
    ),
    Benchmark(name="bitable_calls", function="bitable.measure_calls", section=Section.WORKERS),
    Benchmark(
        name="bitable_equality",
        function="bitable.measure_equality",
        section=Section.CRASHES,
        is_long=True,
        minutes=60,
    ),
    Benchmark(
        name="cli_start", function="cli_start.measure", section=Section.WORKERS, is_long=True
    ),
    Benchmark(name="sandbox", function="sandbox.measure", section=Section.WORKERS),
    Benchmark(name="compaction", function="compaction.measure", section=Section.MEMORY),
    Benchmark(name="memory", function="memory.measure", section=Section.MEMORY, minutes=30),
    Benchmark(
        name="memory_100k",
        function="memory.measure_100k",
        section=Section.MEMORY,
        is_long=True,
        minutes=120,
    ),
    Benchmark(
        name="memory_vectors",
        function="memory_vectors.measure",
        section=Section.MEMORY,
        is_long=True,
        minutes=120,
    ),
    Benchmark(
        name="chaos",
        function="chaos.measure",
        section=Section.CRASHES,
        is_long=True,
        minutes=24 * 60,
    ),
)


def find_benchmarks(names: list[str]) -> list[Benchmark]:
    """The named ones, in the order given; without names, all that do not take long.

    Raises ValueError for a name that no benchmark has."""
    known = {each.name: each for each in BENCHMARKS}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or [each for each in BENCHMARKS if not each.is_long]
