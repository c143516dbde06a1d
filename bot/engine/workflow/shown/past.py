"""What has been seen of how long steps take: in tasks that are finished, and in this one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from bot.engine.workflow.graph import load_workflow
from bot.engine.workflow.model.faults import BadGraph
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.routing.paths import place_of
from bot.engine.workflow.shown.eta import Past, Sample
from storage.db import Database
from storage.records.tasks import NodeRun, NodeStatus
from storage.work.durations import DurationRepo

_FRESH = timedelta(minutes=5)


class Experience:
    """Looked up again only now and then: no card is worth more than that."""

    def __init__(self, db: Database) -> None:
        self._durations = DurationRepo(db)
        self._samples: tuple[Sample, ...] = ()
        self._until: datetime | None = None
        self._turn = asyncio.Lock()

    async def so_far(self, workflow: Workflow, runs: Mapping[str, NodeRun], now: datetime) -> Past:
        """With what the task itself has done."""
        async with self._turn:
            if self._until is None or now >= self._until:
                self._samples = await self._read()
                self._until = now + _FRESH
        took = (
            (run.path, (run.ended_at - run.started_at).total_seconds())
            for run in runs.values()
            if run.status is NodeStatus.DONE and run.started_at and run.ended_at
        )
        return Past((*self._samples, *_samples(workflow.by_id, took)))

    async def _read(self) -> tuple[Sample, ...]:
        found: list[Sample] = []
        for each in await self._durations.recent():
            try:
                nodes = load_workflow(each.body).by_id
            except BadGraph:
                # A plan of an earlier release says nothing about how long steps take today.
                continue
            found += _samples(nodes, each.took)
        return tuple(found)


def _samples(nodes: Mapping[str, Node], took: Iterable[tuple[str, float]]) -> Iterator[Sample]:
    for path, seconds in took:
        place = place_of(path)
        node = nodes.get(place.node) if place is not None else None
        if node is not None and node.type == NodeType.TASK:
            yield Sample(node.title, node.type, max(0.0, seconds))
