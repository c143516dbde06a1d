"""The plan of a day: what is used up first, and that the simulated day agrees with it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.capacity import Costs, Plan, Site, limits, simulate

PLAN = Plan(people=10, tasks=2_000, workers=4, slots=8, messages=10)
COSTS = Costs(
    task_writes=40,
    task_leader_ms=100,
    task_worker_ms=300,
    task_database_ms=100,
    task_herd_ms=5,
    task_notifications=30,
    task_sends=4,
    task_bytes=20_000,
    message_writes=6,
    message_leader_ms=40,
    message_database_ms=10,
    message_sends=1,
    write_ms=2,
    connections=7,
)
SITE = Site(max_connections=1_000)


def test_every_task_of_the_day_ends_and_keeps_its_resources_in_use() -> None:
    day = simulate(PLAN, COSTS, SITE)

    assert len(day.delays) == sum(wait is not None for wait in day.resources["slots"].waits)
    assert abs(len(day.delays) - PLAN.tasks) < 24
    write = (COSTS.write_ms + SITE.commit_ms + SITE.round_trip_ms * SITE.statements) / 1000
    least = len(day.delays) * COSTS.task_writes * write
    assert day.resources["write lock"].busy >= least * 0.99
    assert simulate(PLAN, COSTS, SITE).delays == day.delays


def test_what_is_used_up_first_comes_first_and_holds_up_the_day() -> None:
    first = limits(PLAN, COSTS, SITE)[0]
    assert first.used < 1
    assert first.breaks_at(PLAN) > PLAN.tasks

    slow = replace(SITE, commit_ms=1_000.0)
    worst = limits(PLAN, COSTS, slow)[0]
    assert worst.name == "the write lock of the store"
    assert worst.used > 1
    assert worst.breaks_at(PLAN) < PLAN.tasks
    calm, held = simulate(PLAN, COSTS, SITE), simulate(PLAN, COSTS, slow)
    assert held.delay(0.95) > 100 * max(1.0, calm.delay(0.95))


def test_connections_are_counted_for_every_process() -> None:
    few = limits(PLAN, COSTS, replace(SITE, max_connections=40))

    (found,) = [each for each in few if each.name == "connections to the database"]
    assert found.peak == 6 * 7
    assert found.used > 1
