"""What a run's output says beside what the node brought. Nobody's template sees names with an @."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.workflow.nodes.task import read
from storage.records.tasks import NodeRun, NodeStatus

TOOK = "@took"
"""The names of the edges that were taken behind the node, where that was a choice."""

EXHAUSTED = "@exhausted"
"""An edge that leads back, was wanted, and has been taken as often as it may."""

UNFINISHED = "unfinished"
"""Of a loop that a new plan has cut short, what was finished in rounds that were not."""

_DEAD = "@dead"


def dead_end() -> Mapping[str, Any]:
    """The output of a node that no branch has come to."""
    return {_DEAD: True}


def is_dead(run: NodeRun) -> bool:
    return bool(run.output.get(_DEAD))


def took(run: NodeRun) -> frozenset[str] | None:
    """None where every edge without a condition was taken."""
    names = run.output.get(TOOK)
    return None if names is None else frozenset(names)


def brought(run: NodeRun) -> Mapping[str, Any]:
    """What the node itself brought, as expressions see it: a text under `_raw` and `result`, with
    all that can be read out of it."""
    own = {key: value for key, value in run.output.items() if not key.startswith("@")}
    if run.error and "error" not in own:
        own["error"] = run.error
    text = own.get("summary")
    if not isinstance(text, str):
        return {"result": own["_raw"], **own} if "_raw" in own else own
    return {"result": text, "_raw": text, **read(text), **own}


def is_over(run: NodeRun | None) -> bool:
    return run is not None and run.status in {NodeStatus.DONE, NodeStatus.SKIPPED}


def is_done(run: NodeRun | None) -> bool:
    return run is not None and run.status is NodeStatus.DONE
