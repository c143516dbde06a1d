"""`/metrics` in the text format of Prometheus: figures of the store and of this process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from storage.records.processes import ProcessSituation
from storage.records.system import SystemFigures
from storage.records.tasks import TaskStatus, UsageTotals

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,59}", re.ASCII)
_OTHER = "other"
_MAX_MODELS = 40
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def render_metrics(figures: SystemFigures, now: datetime) -> bytes:
    """Blocking: reads files of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_FigureCollector(figures, now))
    return generate_latest(registry)


class _FigureCollector:
    def __init__(self, figures: SystemFigures, now: datetime) -> None:
        self._figures = figures
        self._now = now

    def collect(self) -> Iterable[Metric]:
        figures, store = self._figures, self._figures.store
        yield _gauge(
            "build", "Always 1; the version is its label.", {figures.version: 1}, "version"
        )
        yield _gauge("slots", "Tasks that may run at once.", figures.slots)
        tasks = {each.value: store.tasks.get(each, 0) for each in TaskStatus if not each.is_final}
        yield _gauge("tasks", "Tasks that have not ended, by state.", tasks, "state")
        ended = {each.value: store.tasks.get(each, 0) for each in TaskStatus if each.is_final}
        yield _gauge("tasks_ended", "Tasks that have ended and are kept.", ended, "result")
        yield from _model_counters(store.models)
        yield _gauge("approvals_waiting", "Requests to decide.", store.waiting_approvals)
        yield _gauge("outbox_waiting", "Messages to send.", store.queued_messages)
        oldest = _age(store.outbox_since, self._now)
        yield _gauge("outbox_oldest_seconds", "How long the oldest of them has waited.", oldest)
        channels = {each.channel.value: int(not each.alert) for each in figures.channels}
        yield _gauge("channel_up", "1 while nothing is wrong with it.", channels, "channel")
        yield _gauge("due_rows", "Work whose time has come, by kind.", store.due, "kind")
        yield from _process_gauges(figures.processes)
        if figures.backup.last_at is not None:
            age = _age(figures.backup.last_at, self._now)
            yield _gauge("backup_age_seconds", "Since the newest backup; absent without one.", age)


def _process_gauges(processes: Sequence[ProcessSituation]) -> Iterator[Metric]:
    """Of those that share the store, this one included."""
    names = [each.process.name for each in processes]
    named = [
        (each, name if names.count(name) == 1 else f"{name}:{each.process.pid}")
        for each, name in zip(processes, names, strict=True)
    ]
    seen = {name: _age(each.process.seen_at, each.store_now) for each, name in named}
    yield _gauge("process_silent_seconds", "Since its last heartbeat.", seen, "process")
    slots = {name: each.process.slots for each, name in named}
    yield _gauge("process_slots", "Tasks that it may run at once.", slots, "process")
    busy = {name: len(each.tasks) for each, name in named}
    yield _gauge("process_tasks", "Tasks that it runs.", busy, "process")
    leases = GaugeMetricFamily(
        "shiftboss_process_lease",
        "1 for what one process does for all, and which.",
        labels=["process", "lease"],
    )
    for each, name in named:
        for service in each.services:
            leases.add_metric([name, service], 1)
    yield leases


def _gauge(
    name: str, about: str, value: float | Mapping[str, float], label: str = ""
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"shiftboss_{name}", about, labels=[label] if label else [])
    for key, each in (value if isinstance(value, Mapping) else {"": value}).items():
        family.add_metric([key] if label else [], each)
    return family


def _model_counters(models: Sequence[tuple[str, UsageTotals]]) -> Iterator[Metric]:
    """The models that were used first keep their own label, so that no counter goes back."""
    sums: dict[str, UsageTotals] = {}
    for model, spent in models:
        is_new = model not in sums and len(sums) >= _MAX_MODELS
        name = _OTHER if is_new or not _PLAIN_NAME.fullmatch(model) else model
        sums[name] = sums.get(name, UsageTotals()) + spent
    calls = CounterMetricFamily("shiftboss_model_calls", "Calls of models.", labels=["model"])
    unpriced = CounterMetricFamily(
        "shiftboss_model_unpriced_calls", "Calls of models without a known price.", labels=["model"]
    )
    cost = CounterMetricFamily("shiftboss_model_cost_cents", "US cents.", labels=["model"])
    tokens = CounterMetricFamily(
        "shiftboss_model_tokens", "`input` includes the cache's.", labels=["model", "kind"]
    )
    for name, spent in sums.items():
        calls.add_metric([name], spent.calls)
        unpriced.add_metric([name], spent.unpriced)
        cost.add_metric([name], spent.cost_micros / 10_000)
        for kind in _TOKENS:
            tokens.add_metric([name, kind.removesuffix("_tokens")], getattr(spent, kind))
    yield from (calls, unpriced, cost, tokens)


def _age(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since else 0.0
