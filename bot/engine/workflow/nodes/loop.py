"""Runs its body again and again: while or until a condition holds, or counting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.nodes import OnLimit
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Ask, Done, Effect, Failed, Rounds, Sight, Wait


class Loop:
    def enter(self, node: Node, sight: Sight) -> Effect:
        config = _config(node)
        if config.mode != "for":
            return Wait(of={})
        try:
            texts = {"init": config.init, "end": config.end, "step": config.step}
            of = {name: float(sight.value(text)) for name, text in texts.items()}
        except (ExpressionError, TypeError, ValueError, OverflowError) as error:
            return Failed(key="workflow.no_value", facts={"name": node.id, "why": str(error)})
        if not of["step"]:
            return Failed(key="workflow.no_step", facts={"name": node.title})
        return Wait(of=of)

    def wake(self, node: Node, sight: Sight) -> Effect:
        return Wait()

    def names(self, node: Node, of: Mapping[str, Any], n: int) -> Mapping[str, Any]:
        config = _config(node)
        if config.mode != "for":
            return {"loopCount": n, config.var: n}
        return {"loopCount": n, config.var: _plain(of["init"] + n * of["step"])}

    def more(self, node: Node, rounds: Rounds, sight: Sight) -> Effect | Ask | None:
        if rounds.running:
            return None
        config = _config(node)
        if not _goes_on(config, rounds, sight):
            return _over(rounds)
        if rounds.opened < config.max_iterations:
            return Wait()
        if rounds.let_go or config.on_limit is OnLimit.CONTINUE:
            return _over(rounds)
        facts = {"name": node.title, "n": config.max_iterations}
        if config.on_limit is OnLimit.ASK:
            return Ask(key="workflow.ask_limit", facts=facts)
        return Failed(key="workflow.loop_limit", facts=facts)


def _goes_on(config: nodes.Loop, rounds: Rounds, sight: Sight) -> bool:
    match config.mode:
        case "while":
            return sight.holds(config.condition)
        case "until":
            return not rounds.opened or not sight.holds(config.condition)
        case "for":
            of = rounds.of
            at = of["init"] + rounds.opened * of["step"]
            return bool(at <= of["end"] if of["step"] > 0 else at >= of["end"])


def _over(rounds: Rounds) -> Done:
    last = rounds.brought.get(rounds.opened - 1)
    return Done(output={"rounds": rounds.opened, "last": last})


def _plain(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _config(node: Node) -> nodes.Loop:
    assert isinstance(node.config, nodes.Loop)
    return node.config
