"""docs/performance.md is what the kept results and the benchmarks' docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.figures import Figure, LeftOut, Measurement, Scale, at_least, at_most
from benchmarks.page import PAGE_FILE, render_page, render_result
from benchmarks.registry import Benchmark, Section
from benchmarks.results import (
    BenchmarkResult,
    RunConditions,
    load_results,
    run_benchmark,
    save_results,
)

HERE = RunConditions(date="2026-11-22", machine="2 cores", commit="abc1234", load=0.1)


class BrokenBenchmark(Benchmark):
    def load(self) -> object:  # type: ignore[override]  # it is broken
        raise OSError("no such\nthing")


class QuickBenchmark(Benchmark):
    def load(self) -> object:  # type: ignore[override]  # it imports nothing
        async def measure(scale: Scale) -> list[Measurement]:
            return [Figure("steps", scale.pick(300, 3))]

        return measure


def result(*measured: Measurement, failure: str = "") -> BenchmarkResult:
    return BenchmarkResult(conditions=HERE, seconds=3, measured=measured, failure=failure)


def test_the_performance_page_equals_the_rendered_results() -> None:
    assert PAGE_FILE.read_text("utf-8") == render_page(load_results()), (
        "write it again: python -m benchmarks --page"
    )


def test_a_figure_is_shown_with_its_bar_and_whether_it_is_met() -> None:
    shown = render_result(
        result(
            Figure("idle", 119.26, "MiB", at_most(110)),
            Figure("ratio", 0.512, "×", at_least(0.5)),
            Figure("calls", 12_345),
            LeftOut("landlock", "does not work | here"),
        )
    )

    assert "| idle | 119 MiB | ≤ 110 MiB | **no** |" in shown
    assert "| ratio | 0.51 × | ≥ 0.5 × | yes |" in shown
    assert "| calls | 12,345 | | |" in shown
    assert r"| landlock | left out: does not work \| here | | |" in shown
    assert shown.endswith("2026-11-22, commit `abc1234`, 2 cores; load 0.1 before, 3 s.")


def test_results_are_equal_after_saving_and_loading(tmp_path: Path) -> None:
    kept = {
        "one": result(Figure("idle", 1.5, "MiB", at_most(2)), LeftOut("two", "missing")),
        "other": result(Figure("ratio", 2, "×", at_least(1)), failure="OSError: gone"),
    }

    save_results(kept, tmp_path / "results.json")

    assert load_results(tmp_path / "results.json") == kept


def test_a_failing_benchmark_gives_a_result_with_its_error() -> None:
    broken = BrokenBenchmark(name="broken", function="", section=Section.CORE)

    failed = run_benchmark(broken, Scale.SMALL)

    assert failed.failure == "OSError: no such"
    assert "| the benchmark **failed** | OSError: no such | | no |" in render_result(failed)


def test_a_failing_benchmark_does_not_stop_the_others_and_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [
        BrokenBenchmark(name="broken", function="", section=Section.CORE),
        QuickBenchmark(name="quick", function="", section=Section.CORE),
    ]
    monkeypatch.setattr(command, "find_benchmarks", lambda _names: chosen)

    status = command.main(["--small"])

    printed = capsys.readouterr().out
    assert status == 1
    assert "| steps | 3 | | |" in printed
    assert "FAILED broken: OSError: no such" in printed
    assert "1 of 2 benchmarks ran" in printed
