"""What the store knows of a task's runs, by where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from bot.engine.workflow.routing.paths import BACK, Place, outer, scope_of
from storage.records.tasks import NodeRun


class Stored:
    def __init__(self, runs: Mapping[str, NodeRun]) -> None:
        self.runs = runs
        self._opened: dict[str, int] = defaultdict(int)
        self._times: dict[str, dict[str, int]] = defaultdict(dict)
        for path, run in runs.items():
            self._see(path, run)

    def opened(self, path: str) -> int:
        """How many rounds of that loop or foreach have been opened, as far as they left a trace."""
        return self._opened[path]

    def times(self, scope: str) -> Mapping[str, int]:
        """How often each edge of that scope that leads back has been taken."""
        return self._times[scope]

    def past(self, place: Place) -> Mapping[str, NodeRun]:
        """What the node brought the last time before, by its id."""
        return next(({place.node: run} for run in self.earlier(place)), {})

    def earlier(self, place: Place) -> Iterator[NodeRun]:
        """Its runs in the rounds before, the last one first."""
        before = (Place(place.scope, place.node, n) for n in range(place.round - 1, 0, -1))
        runs = (self.runs.get(each.path) for each in before)
        return (run for run in runs if run is not None)

    def _see(self, path: str, run: NodeRun) -> None:
        scope = scope_of(path)
        if path.startswith(scope + BACK):
            edge = path.removeprefix(scope + BACK)
            self._times[scope][edge] = int(run.output.get("times", 0))
        while (above := outer(scope)) is not None:
            container, n = above
            self._opened[container] = max(self._opened[container], n + 1)
            scope = scope_of(container)


NOTHING = Stored({})
