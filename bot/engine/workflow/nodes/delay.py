"""A pause of fixed length."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
    duration_issues,
    parse_duration,
)
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeConfig,
    NodeDone,
    NodeEffect,
    NodeInput,
    NodeRole,
    NodeShape,
    NodeTypeSpec,
    NodeWait,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayConfig(NodeConfig):
    kind: Literal["delay"] = "delay"
    seconds: float


class DelayNode(NodeTypeSpec[DelayConfig]):
    """Waits for a fixed time. The end of the wait is stored, so a restart does not change it."""

    name = "delay"
    role = NodeRole.TIMER
    shape = NodeShape.ROUNDED
    config = DelayConfig
    aliases = ("wait",)
    markdown_names = ("延时", "等待")
    foreign_names = ("sleep", "pause", "timer")
    shorthand = "value"
    fields = ("value", "unit")
    inline_fields = ("seconds", "duration")
    example = """\
nodes:
  - {id: rest, type: delay, delay: 90m}
  - {id: look, name: Look again}
"""

    def read(self, block: FieldReader) -> DelayConfig:
        value = block.take("value", "seconds", "duration")
        unit = block.word("unit", default="s")
        seconds = parse_duration(value, unit)
        if seconds is None:
            block.add("missing" if value is None else "bad_duration", "value")
        return DelayConfig(seconds=seconds or 0.0)

    def write(self, config: DelayConfig) -> dict[str, Any]:
        return {"value": config.seconds, "unit": "s"}

    def check(self, config: DelayConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        return duration_issues(config.seconds, "value", zero=True)

    def enter(self, node: NodeInput[DelayConfig], context: EvaluationContext) -> NodeEffect:
        return NodeWait(until=context.now + timedelta(seconds=node.settings.seconds))

    def wake(self, node: NodeInput[DelayConfig], context: EvaluationContext) -> NodeEffect:
        return NodeDone()

    def expected_seconds(self, settings: DelayConfig, by_history: float) -> float | None:
        return settings.seconds
