"""`python -m benchmarks [NAME …] [--small]` measures and writes docs/performance.md."""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks.figures import Scale
from benchmarks.page import PAGE_FILE, render_page, render_result
from benchmarks.registry import BENCHMARKS, find_benchmarks
from benchmarks.results import BenchmarkResult, load_results, run_benchmark, save_results


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, print their tables and write the page.

    Returns 1 if one of them failed, 0 otherwise; a missed bar is told and is no failure."""
    chosen = _parser().parse_args(arguments)
    _set_variables(chosen)
    if chosen.page:
        PAGE_FILE.write_text(render_page(load_results()), "utf-8")
        return 0
    scale = Scale.SMALL if chosen.small else Scale.FULL
    results: dict[str, BenchmarkResult] = {}
    for benchmark in find_benchmarks(chosen.names):
        print(f"== {benchmark.name}", flush=True)
        results[benchmark.name] = result = run_benchmark(benchmark, scale)
        print(render_result(result), flush=True)
        if scale is Scale.FULL:
            _publish(benchmark.name, result)
    return _summarize(results, scale)


def _publish(name: str, result: BenchmarkResult) -> None:
    """Write it to the page at once: a run that is broken off keeps what it has measured."""
    results = {**load_results(), name: result}
    save_results(results)
    PAGE_FILE.write_text(render_page(results), "utf-8")


def _summarize(results: dict[str, BenchmarkResult], scale: Scale) -> int:
    failed = [name for name, result in results.items() if result.failure]
    print(f"\n{len(results) - len(failed)} of {len(results)} benchmarks ran")
    for name in failed:
        print(f"FAILED {name}: {results[name].failure}")
    if scale is Scale.FULL:
        for name, result in results.items():
            for figure in result.missed:
                print(f"MISSED {name}: {figure.name}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    known = ", ".join(f"{each.name}*" if each.is_long else each.name for each in BENCHMARKS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog=f"{known}. Those with * run only when they are named."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", type=_known_name)
    parser.add_argument("--small", action="store_true", help="try them in seconds, write nothing")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--data", metavar="DIR", help="the folder with MemoryBank's Chinese part")
    parser.add_argument(
        "--vectors", metavar="PYTHON", help="an interpreter with the embedding packages"
    )
    return parser


def _known_name(name: str) -> str:
    try:
        find_benchmarks([name])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def _set_variables(chosen: argparse.Namespace) -> None:
    if chosen.data:
        os.environ["MEMORY_DATA"] = chosen.data
    if chosen.vectors:
        os.environ["MEMORY_VECTORS"] = chosen.vectors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
