"""`docs/performance.md`, written from the kept results and the docstrings of the benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.figures import Figure, LeftOut, Measurement, format_bar, format_value
from benchmarks.registry import BENCHMARKS, Benchmark, Section
from benchmarks.results import BenchmarkResult

PAGE_FILE = Path(__file__).parents[1] / "docs" / "performance.md"
_INTRODUCTION = """\
# Performance

`python -m benchmarks` writes this page; do not edit it by hand. The prose of each section is the
docstring of its benchmark, and its table is the last run. `python -m benchmarks start_up` repeats
one of them, `--small` only tries whether they work and writes nothing, and `--page` writes the page
again without measuring. The ones marked *long* run only when they are named.

Everything runs on loopback, against emulated platforms and models, with `synchronous=FULL`. A
figure is held against a bar, or against a peer that is measured in the same run. The load under a
table is the machine's before the run began: with a load above 1 on two cores, do not trust times.
"""
_SECTIONS: Mapping[Section, str] = {
    Section.PROGRAM: """\
The real program as its users start it, with its own database and both channels.

What keeps it small: each platform's library is loaded only where that platform is configured,
the model libraries at the first model call, and Alembic only when there is something to migrate.
Nothing polls: dispatcher, outbox and notifier sleep on events.
""",
    Section.CORE: """\
The real store, dispatcher, runner and cards in one process, and a worker that answers at once.
A *raw commit* is one row written by plain `sqlite3` with the same pragmas, on the same disk, in the
same run.
""",
    Section.WORKERS: "Model APIs are emulated in this repository and count tokens and caches.\n",
    Section.MEMORY: "Recall and its speed. [memory.md](memory.md) says how memory works.\n",
    Section.CRASHES: "[chaos.md](chaos.md) says what is promised and how it is tried.\n",
}


def render_page(results: Mapping[str, BenchmarkResult]) -> str:
    return "\n".join(_page_parts(results))


def render_result(result: BenchmarkResult) -> str:
    """The table of one result, with what was left out and why it failed."""
    return "\n".join([*_table(result), "", _conditions(result)])


def _page_parts(results: Mapping[str, BenchmarkResult]) -> Iterator[str]:
    yield _INTRODUCTION
    for section, text in _SECTIONS.items():
        yield f"## {section}\n\n{text}"
        for benchmark in BENCHMARKS:
            if benchmark.section is section:
                yield _part(benchmark, results.get(benchmark.name))


def _part(benchmark: Benchmark, result: BenchmarkResult | None) -> str:
    title = f"### `{benchmark.name}`{' (long)' if benchmark.is_long else ''}"
    told = "Not measured yet." if result is None else render_result(result)
    return f"{title}\n\n{read_prose(benchmark)}\n\n{told}\n"


def _table(result: BenchmarkResult) -> Iterator[str]:
    yield "| figure | value | bar | met |"
    yield "|---|---|---|---|"
    if result.failure:
        yield f"| the benchmark **failed** | {_in_cell(result.failure)} | | no |"
    for measured in result.measured:
        yield _row(measured)


def _row(measured: Measurement) -> str:
    match measured:
        case Figure(name=name, value=value, unit=unit, bar=None):
            return f"| {_in_cell(name)} | {format_value(value, unit)} | | |"
        case Figure(name=name, value=value, unit=unit, bar=bar):
            assert bar is not None
            met = "yes" if measured.is_met else "**no**"
            shown = format_value(value, unit)
            return f"| {_in_cell(name)} | {shown} | {format_bar(bar, unit)} | {met} |"
        case LeftOut(name=name, reason=reason):
            return f"| {_in_cell(name)} | left out: {_in_cell(reason)} | | |"


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _conditions(result: BenchmarkResult) -> str:
    where = result.conditions
    load = f"load {where.load:g} before, {result.seconds:.0f} s"
    return f"{where.date}, commit `{where.commit}`, {where.machine}; {load}."


def read_prose(benchmark: Benchmark) -> str:
    """The docstring of the benchmark's function, read from its source without importing it."""
    module, name = benchmark.function.split(".")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text("utf-8"))
    functions = [each for each in tree.body if isinstance(each, ast.AsyncFunctionDef)]
    found = next(each for each in functions if each.name == name)
    return ast.get_docstring(found) or ""
