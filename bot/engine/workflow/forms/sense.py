"""What can be run and cannot have been meant: asked of what somebody writes, not of a plan that
was changed while it ran."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from bot.engine.workflow.model.faults import Fault
from bot.engine.workflow.model.nodes import Join
from bot.engine.workflow.model.shape import Workflow

_VERSIONS = ("1", "1.0", "2", "2.0")
_LEADS_ELSEWHERE = re.compile(r"[/\\\x00-\x1f]|^\.")


def not_meant(workflow: Workflow) -> Iterator[Fault]:
    if workflow.version not in _VERSIONS:
        facts = {"given": workflow.version, "known": ", ".join(_VERSIONS)}
        yield Fault(key="not_one_of", field="version", facts=facts)
    coming = Counter(edge.target for edge in workflow.edges)
    for node in workflow.nodes:
        if isinstance(node.config, Join) and node.config.mode == "n":
            most = coming[node.id]
            if 0 < most < node.config.n:
                yield Fault(key="too_many_waited", where=node.id, field="join.n", facts={"n": most})
        if _LEADS_ELSEWHERE.search(node.persona):
            yield Fault(key="bad_persona", where=node.id, field="persona")
