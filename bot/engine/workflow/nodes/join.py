"""The node where parallel branches meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.nodes.contract import NodeConfig, NodeRole, NodeShape, NodeTypeSpec

_MODES: tuple[Literal["all", "any", "n"], ...] = ("all", "any", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig(NodeConfig):
    """`all` waits for every branch that can still arrive, `any` for the first, `n` for that many.
    With `cancel_others` it then ends the branches that have not arrived."""

    kind: Literal["join"] = "join"
    mode: Literal["all", "any", "n"] = "all"
    n: int = 0
    cancel_others: bool = False


class JoinNode(NodeTypeSpec[JoinConfig]):
    """Continues when enough of the incoming branches have arrived."""

    name = "join"
    role = NodeRole.JOIN
    shape = NodeShape.BAR
    config = JoinConfig
    default = JoinConfig()
    planner_hint = "waits for all branches that lead to it"
    markdown_names = ("汇合",)
    foreign_names = ("merge", "gather", "barrier")
    shorthand = "mode"
    fields = ("mode", "n", "cancelOthers")
    inline_fields = ("count",)
    example = """\
nodes:
  - {id: fork, type: parallel}
  - {id: read, name: Read}
  - {id: ask, name: Ask}
  - {id: meet, type: join, join: any, cancelOthers: true}
edges:
  - {from: fork, to: read}
  - {from: fork, to: ask}
  - {from: read, to: meet}
  - {from: ask, to: meet}
"""

    def read(self, block: FieldReader) -> JoinConfig:
        mode = block.one_of(_MODES, "mode", "type", default="all")
        return JoinConfig(
            mode=mode,
            n=block.integer("n", "count", default=0),
            cancel_others=block.boolean("cancelOthers", default=False),
        )

    def write(self, config: JoinConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"mode": config.mode}
        if config.n:
            data["n"] = config.n
        if config.cancel_others:
            data["cancelOthers"] = True
        return data

    def check(self, config: JoinConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if config.mode == "n" and config.n < 1:
            yield ValidationIssue(key="too_few", field="n", facts={"least": 1})
        if config.mode == "all" and config.cancel_others:
            yield ValidationIssue(key="nothing_to_cancel", field="cancelOthers")

    def check_incoming(self, config: JoinConfig, incoming: int) -> Iterator[ValidationIssue]:
        if config.mode == "n" and 0 < incoming < config.n:
            yield ValidationIssue(key="too_many_waited", field="n", facts={"n": incoming})

    def needed_inputs(self, settings: JoinConfig) -> int | None:
        match settings.mode:
            case "all":
                return None
            case "any":
                return 1
            case "n":
                return settings.n

    def cancels_others(self, settings: JoinConfig) -> bool:
        return settings.cancel_others and settings.mode != "all"
