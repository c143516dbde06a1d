"""Runs its body once for each item of a collection, one after the other or some at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Rounds, Sight, Wait, sequence


class Foreach:
    def enter(self, node: Node, sight: Sight) -> Effect:
        config = _config(node)
        try:
            items = sequence(sight.value(config.collection))
        except ExpressionError as error:
            return Failed(key="workflow.no_value", facts={"name": node.id, "why": str(error)})
        if items is None:
            return Failed(key="workflow.no_list", facts={"name": node.title})
        if len(items) > config.max_iterations:
            facts = {"name": node.title, "n": len(items), "most": config.max_iterations}
            return Failed(key="workflow.too_many_items", facts=facts)
        return Wait(of={"items": items})

    def wake(self, node: Node, sight: Sight) -> Effect:
        return Wait()

    def names(self, node: Node, of: Mapping[str, Any], n: int) -> Mapping[str, Any]:
        config, items = _config(node), of["items"]
        return {
            "item": items[n],
            config.item_var: items[n],
            "index": n,
            config.index_var: n,
            "total": len(items),
            "loopCount": n,
        }

    def more(self, node: Node, rounds: Rounds, sight: Sight) -> Effect | None:
        config, total = _config(node), len(rounds.of["items"])
        if len(rounds.brought) == total:
            results = [rounds.brought[n] for n in range(total)]
            return Done(output={"results": results, "total": total})
        most = config.max_parallel if config.mode == "parallel" else 1
        return Wait() if rounds.opened < total and rounds.running < most else None


def _config(node: Node) -> nodes.Foreach:
    assert isinstance(node.config, nodes.Foreach)
    return node.config
