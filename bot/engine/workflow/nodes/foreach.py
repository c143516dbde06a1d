"""A loop over the items of a collection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
    range_issues,
    variable_name_issues,
)
from bot.engine.workflow.nodes.contract import (
    BodyConfig,
    EvaluationContext,
    LoopTypeSpec,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeWait,
    RoundProgress,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues, max_rounds_issues

_MODES: tuple[Literal["sequential", "parallel"], ...] = ("sequential", "parallel")
_MAX_PARALLEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachConfig(BodyConfig):
    """Runs its body once for each item of `collection`, an expression that is evaluated once. More
    items than `max_iterations` are an error. The output lists the results in the order of the
    items."""

    kind: Literal["foreach"] = "foreach"
    collection: str
    item_var: str = "item"
    index_var: str = "index"
    mode: Literal["sequential", "parallel"] = "sequential"
    max_parallel: int = 3
    max_iterations: int = 1_000


class ForeachNode(LoopTypeSpec[ForeachConfig]):
    """Runs its body for each item, one after the other or several at a time. The output lists the
    results in the order of the items."""

    name = "foreach"
    config = ForeachConfig
    planner_hint = (
        'runs its body for each item of a list: "foreach": {"collection": "outputs.find.items", '
        '"itemVar": "item", "mode": "parallel", "bodyNodes": ["read"]}'
    )
    aliases = ("each",)
    markdown_names = ("遍历",)
    foreign_names = ("for", "map", "iterate", "split")
    fields = (
        "collection", "itemVar", "indexVar", "bodyNodes", "maxIterations", "mode", "maxParallel",
    )  # fmt: skip
    inline_fields = ("body", "items")
    telling_fields = ("collection",)
    example = """\
nodes:
  - {id: find, name: Find the papers}
  - {id: each, type: foreach, collection: outputs.find.papers, itemVar: paper, bodyNodes: [read]}
  - {id: read, name: "Read {{paper}}"}
edges:
  - {from: find, to: each}
"""

    def read(self, block: FieldReader) -> ForeachConfig:
        mode = block.one_of(_MODES, "mode", default="sequential")
        return ForeachConfig(
            collection=block.expression("collection", "items"),
            body=block.word_list("bodyNodes", "body", "nodes"),
            item_var=block.word("itemVar", default="item"),
            index_var=block.word("indexVar", default="index"),
            mode=mode,
            max_parallel=block.integer("maxParallel", default=3),
            max_iterations=block.integer("maxIterations", default=1_000),
        )

    def write(self, config: ForeachConfig) -> dict[str, Any]:
        return {
            "collection": config.collection,
            "itemVar": config.item_var,
            "indexVar": config.index_var,
            "mode": config.mode,
            "maxParallel": config.max_parallel,
            "maxIterations": config.max_iterations,
            "bodyNodes": list(config.body),
        }

    def check(self, config: ForeachConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        yield from max_rounds_issues(config.max_iterations)
        yield from expression_issues(config.collection, "collection")
        yield from variable_name_issues(config.item_var, "itemVar")
        yield from variable_name_issues(config.index_var, "indexVar")
        yield from range_issues(config.max_parallel, "maxParallel", 1, _MAX_PARALLEL)

    def expressions(self, config: ForeachConfig) -> Iterable[tuple[str, str]]:
        return (("collection", config.collection),)

    def round_variables(self, config: ForeachConfig) -> Iterable[str]:
        return ("item", "index", "total", config.item_var, config.index_var)

    def rewrite(
        self, config: ForeachConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> ForeachConfig:
        body = tuple(map(node, config.body))
        return replace(config, collection=text(config.collection), body=body)

    def enter(self, node: NodeInput[ForeachConfig], context: EvaluationContext) -> NodeEffect:
        config = node.settings
        try:
            items = _as_items(context.evaluate(config.collection))
        except ExpressionError as error:
            return NodeFailure(key="workflow.no_value", facts={"name": node.id, "why": error})
        if items is None:
            return NodeFailure(key="workflow.no_list", facts={"name": node.title})
        if len(items) > config.max_iterations:
            facts = {"name": node.title, "n": len(items), "most": config.max_iterations}
            return NodeFailure(key="workflow.too_many_items", facts=facts)
        return NodeWait(iteration={"items": items})

    def round_names(
        self, node: NodeInput[ForeachConfig], iteration: Mapping[str, Any], index: int
    ) -> Mapping[str, Any]:
        config, items = node.settings, iteration["items"]
        return {
            "item": items[index],
            config.item_var: items[index],
            "index": index,
            config.index_var: index,
            "total": len(items),
            "loopCount": index,
        }

    def next_action(
        self, node: NodeInput[ForeachConfig], rounds: RoundProgress, context: EvaluationContext
    ) -> NodeEffect | None:
        config, total = node.settings, len(rounds.iteration["items"])
        if len(rounds.results) == total:
            results = [rounds.results[n] for n in range(total)]
            return NodeDone(output={"results": results, "total": total})
        most = config.max_parallel if self.has_parallel_rounds(config) else 1
        return NodeWait() if rounds.opened_rounds < total and rounds.running < most else None

    def partial_output(
        self, iteration: Mapping[str, Any], results: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        finished = [results[n] for n in sorted(results)]
        return {"results": finished, "total": len(finished), "of": len(iteration["items"])}

    def total_rounds(self, config: ForeachConfig, iteration: Mapping[str, Any]) -> int | None:
        return len(iteration.get("items", ()))

    def has_parallel_rounds(self, settings: ForeachConfig) -> bool:
        return settings.mode == "parallel"


def _as_items(value: Any) -> Sequence[Any] | None:
    """The items of a list or the entries of a mapping; None for any other value."""
    if isinstance(value, Mapping):
        return [{"key": key, "value": each} for key, each in value.items()]
    return list(value) if isinstance(value, list | tuple) else None
