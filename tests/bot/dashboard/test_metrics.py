"""`/metrics`: what a scrape sees, who may scrape, and what never becomes a label."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bot.dashboard.api.metrics import render_metrics
from bot.engine.tasks.system_status import SystemStatusService
from cards.model import CardTone, notice_card
from storage.records.messages import DeliveryUrgency
from storage.records.people import Channel
from storage.records.usage import UsageRecord
from tests.bot.dashboard.test_api import check_problem, create
from tests.bot.dashboard.world import DashboardWorld

HOSTILE_NAMES = ('x"} 1\nshiftboss_slots 9', "Ann Miller", "sk-" + "a" * 100, "", "模型", "{x}")


async def scrape(world: DashboardWorld, name: str = "") -> dict[Any, float]:
    answer = await world.program(name).get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parse(answer.text)


def parse(text: str) -> dict[Any, float]:
    """By the name, and the values of the labels in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def use(world: DashboardWorld, model: str, cost_micros: int | None = 20_000) -> None:
    store = world.core.repositories
    record = UsageRecord(
        at=world.core.clock.now(),
        purpose="chat",
        backend="openai",
        model=model,
        person_id=None,
        chat_id=None,
        task_id=None,
        requests=1,
        input_tokens=100,
        output_tokens=7,
        cache_read_tokens=60,
        cache_write_tokens=0,
        cost_micros=cost_micros,
    )
    async with store.db.write() as tx:
        await store.usage.add(tx, record)


async def test_a_scrape_sees_what_is_in_the_store(world: DashboardWorld) -> None:
    api = world.program()
    ids = [await create(api, f"secret plan {n}") for n in range(3)]
    await api.post(f"/api/v1/tasks/{ids[0]}/stop")
    await use(world, "gpt-5.2")
    await use(world, "gpt-5.2", cost_micros=None)
    world.core.alerts.report(Channel.WEB, "token")

    seen = await scrape(world, "olga")

    assert seen["shiftboss_tasks", "pending"] == 2
    assert seen["shiftboss_tasks", "running"] == 0
    assert seen["shiftboss_tasks_ended", "cancelled"] == 1
    assert seen["shiftboss_model_calls_total", "gpt-5.2"] == 2
    assert seen["shiftboss_model_cost_cents_total", "gpt-5.2"] == 2.0
    assert seen["shiftboss_model_unpriced_calls_total", "gpt-5.2"] == 1
    assert seen["shiftboss_model_tokens_total", "input", "gpt-5.2"] == 200
    assert seen["shiftboss_model_tokens_total", "cache_read", "gpt-5.2"] == 120
    assert seen["shiftboss_channel_up", "web"] == 0
    assert seen["shiftboss_approvals_waiting",] == 0
    assert {key[1] for key in seen if key[0] == "shiftboss_due_rows"} == {
        *("schedule", "schedule_retry", "task", "approval", "memory"),
    }
    assert seen["process_resident_memory_bytes",] > 1_000_000
    assert ("shiftboss_backup_age_seconds",) not in seen


async def test_what_waits_and_what_is_overdue_is_counted_with_its_age(
    world: DashboardWorld,
) -> None:
    made = await world.program("ann").post(
        "/api/v1/schedules", json={"text": "remind me every day at 9 to water the plants"}
    )
    assert made.status_code == 201, made.text
    core, later = world.core, world.core.clock.now() + timedelta(days=2)
    chat = await core.get_local_chat()
    await core.courier.send(
        chat.id,
        notice_card("", "hello", tone=CardTone.INFO),
        key="waits",
        urgency=DeliveryUrgency.NOTICE,
    )
    system = core.services.system
    assert isinstance(system, SystemStatusService)

    figures = await replace(system, now=lambda: later).get_figures()
    seen = parse(render_metrics(figures, later).decode())

    assert seen["shiftboss_due_rows", "schedule"] >= 1
    assert seen["shiftboss_outbox_waiting",] >= 1
    assert 172_700 < seen["shiftboss_outbox_oldest_seconds",] < 172_900


async def test_only_owners_may_scrape(world: DashboardWorld) -> None:
    check_problem(await world.client().get("/metrics"), 401)
    check_problem(await world.client(authorization="Bearer sbt_no").get("/metrics"), 401)
    check_problem(await world.program("ann").get("/metrics"), 403)
    assert await scrape(world)


async def test_hostile_names_of_models_never_become_labels(world: DashboardWorld) -> None:
    for name in HOSTILE_NAMES:
        await use(world, name)
    for n in range(60):
        await use(world, f"model-{n}")
    first = await scrape(world)
    await use(world, "model-59")

    second = await scrape(world)

    calls = {key[1]: n for key, n in second.items() if key[0] == "shiftboss_model_calls_total"}
    assert len(calls) <= 41
    assert calls.keys() - {"other"} <= {f"model-{n}" for n in range(60)}
    assert sum(calls.values()) == len(HOSTILE_NAMES) + 61
    assert second["shiftboss_slots",] == world.core.settings.slots
    assert all(second[key] >= first[key] for key in first if key[0].endswith("_total"))
