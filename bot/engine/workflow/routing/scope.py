"""What expressions and templates at one place of a workflow may speak of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.marks import brought, is_over
from storage.records.tasks import NodeRun, NodeStatus


@dataclass(frozen=True, slots=True)
class Outputs(Mapping[str, Any]):
    """What nodes have brought, by id, seen from inside a round outwards; `latest` is for those
    that are elsewhere, by what they brought last. An id with dashes is also known with
    underscores."""

    frames: Sequence[Frame]
    latest: Mapping[str, NodeRun]
    aliases: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        run = self._run(self.aliases.get(name, name))
        if run is None:
            raise KeyError(name)
        return brought(run)

    def __iter__(self) -> Iterator[str]:
        return iter(self.latest)

    def __len__(self) -> int:
        return len(self.latest)

    def _run(self, node: str) -> NodeRun | None:
        for frame in self.frames:
            run = frame.runs.get(node)
            if run is not None and (is_over(run) or run.status is NodeStatus.FAILED):
                return run
            if node in frame.past:
                return frame.past[node]
        return self.latest.get(node)


@dataclass(frozen=True, slots=True)
class States(Mapping[str, str]):
    """How nodes stand, by id, of which one with dashes is also known with underscores."""

    frames: Sequence[Frame]
    aliases: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        name = self.aliases.get(name, name)
        for frame in self.frames:
            if name in frame.ring.nodes:
                run = frame.runs.get(name)
                return run.status.value if run is not None else NodeStatus.PENDING.value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for frame in self.frames for name in frame.ring.nodes)

    def __len__(self) -> int:
        return sum(len(frame.ring.nodes) for frame in self.frames)
