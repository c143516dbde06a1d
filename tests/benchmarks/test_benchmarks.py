"""Every benchmark works. Nothing here is timed: the figures of a small run mean nothing."""

from __future__ import annotations

import math

import pytest

from benchmarks import memory_vectors
from benchmarks.figures import Figure, LeftOut, Scale
from benchmarks.page import read_prose
from benchmarks.registry import BENCHMARKS, Benchmark, find_benchmarks
from tests.journeys.program import ShiftbossProcess


@pytest.mark.parametrize("each", BENCHMARKS, ids=[each.name for each in BENCHMARKS])
async def test_a_benchmark_yields_finite_figures_at_a_small_scale(each: Benchmark) -> None:
    forks = ShiftbossProcess.use_fork_server

    measured = await each.load()(Scale.SMALL)

    figures = [one for one in measured if isinstance(one, Figure)]
    assert figures
    assert [one for one in figures if not math.isfinite(one.value)] == []
    names = [one.name for one in measured]
    assert len(set(names)) == len(names)
    # The tests after it begin their programs as those before it: anew costs 2 s CPU a program.
    assert ShiftbossProcess.use_fork_server is forks


def test_every_benchmark_has_a_unique_name_and_a_description() -> None:
    names = [each.name for each in BENCHMARKS]

    assert len(set(names)) == len(names)
    assert [each.name for each in BENCHMARKS if not read_prose(each)] == []


def test_without_names_only_the_quick_benchmarks_run() -> None:
    chosen = {each.name for each in find_benchmarks([])}

    assert chosen == {each.name for each in BENCHMARKS if not each.is_long}


def test_an_unknown_benchmark_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match="no benchmark nonsense; there are start_up"):
        find_benchmarks(["start_up", "nonsense"])


async def test_vectors_that_did_not_come_in_time_give_no_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.engine.memory.embeddings._QUERY_TIMEOUT", 0)

    measured = await memory_vectors.measure(Scale.SMALL)

    assert [type(each) for each in measured] == [LeftOut]
    assert "questions got no vector in time" in str(measured[0])
