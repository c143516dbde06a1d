"""A loop with a condition or a counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.workflow.expressions.operations import BadExpression, ExpressionError
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, variable_name_issues
from bot.engine.workflow.nodes.contract import (
    BodyConfig,
    EvaluationContext,
    LoopTypeSpec,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeQuestion,
    NodeWait,
    OnLimit,
    RoundProgress,
    UndecidedCondition,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues, max_rounds_issues

_MODES: tuple[Literal["while", "for", "until"], ...] = ("while", "for", "until")
_COUNTING = ("init", "end", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(BodyConfig):
    """Runs its body in each round. `while` checks `condition` before a round, `until` after it;
    `for` counts `var` from `init` to `end` inclusive in steps of `step`. `init`, `end` and `step`
    are expressions that are evaluated once."""

    kind: Literal["loop"] = "loop"
    mode: Literal["while", "until", "for"]
    condition: str = ""
    init: str = "0"
    end: str = "0"
    step: str = "1"
    var: str = "i"
    max_iterations: int = 100
    on_limit: OnLimit = OnLimit.FAIL


class LoopNode(LoopTypeSpec[LoopConfig]):
    """Runs its body once per round. The output holds the number of rounds and the result of the
    last one."""

    name = "loop"
    config = LoopConfig
    markdown_names = ("循环",)
    foreign_names = ("while", "until", "repeat")
    fields = (
        "mode", "init", "end", "step", "maxIterations", "loopVar", "bodyNodes", "onLimit",
    )  # fmt: skip
    # In Markdown, a line `condition` belongs to the node's incoming edge.
    inline_fields = ("condition", "body", "start", "var")
    example = """\
nodes:
  - {id: polish, type: loop, mode: until, condition: outputs.improve.ok, bodyNodes: [improve]}
  - {id: improve, name: Improve it}
"""

    def read(self, block: FieldReader) -> LoopConfig:
        guess: Literal["while", "for"] = "while" if block.has("condition") else "for"
        mode = block.one_of(_MODES, "type", "mode", default=guess)
        return LoopConfig(
            mode=mode,
            body=block.word_list("bodyNodes", "body", "nodes"),
            condition=block.expression("condition"),
            init=block.expression("init", "start", default="0"),
            end=block.expression("end", default="0"),
            step=block.expression("step", default="1"),
            var=block.word("loopVar", "var", default="i"),
            max_iterations=block.integer("maxIterations", default=100),
            on_limit=block.enum_value(OnLimit, "onLimit", default=OnLimit.FAIL),
        )

    def write(self, config: LoopConfig) -> dict[str, Any]:
        data = {"condition": config.condition} if config.condition else {}
        return data | {
            "type": config.mode,
            "init": config.init,
            "end": config.end,
            "step": config.step,
            "loopVar": config.var,
            "maxIterations": config.max_iterations,
            "onLimit": config.on_limit.value,
            "bodyNodes": list(config.body),
        }

    def check(self, config: LoopConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        yield from max_rounds_issues(config.max_iterations)
        for field, text in self.expressions(config):
            yield from expression_issues(text, field)
        yield from variable_name_issues(config.var, "loopVar")

    def expressions(self, config: LoopConfig) -> Iterable[tuple[str, str]]:
        fields = _COUNTING if config.mode == "for" else ("condition",)
        return ((field, getattr(config, field)) for field in fields)

    def deciding_expressions(self, config: LoopConfig) -> Iterable[tuple[str, str]]:
        return (("condition", config.condition),) if config.condition else ()

    def round_variables(self, config: LoopConfig) -> Iterable[str]:
        return (config.var,)

    def rewrite(
        self, config: LoopConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> LoopConfig:
        return replace(
            config,
            body=tuple(map(node, config.body)),
            condition=text(config.condition),
            init=text(config.init),
            end=text(config.end),
            step=text(config.step),
        )

    def asks_people(self, settings: LoopConfig) -> bool:
        return settings.on_limit is OnLimit.ASK

    def enter(self, node: NodeInput[LoopConfig], context: EvaluationContext) -> NodeEffect:
        if node.settings.mode != "for":
            return NodeWait(iteration={})
        try:
            of = {
                name: float(context.evaluate(text))
                for name, text in self.expressions(node.settings)
            }
        except ExpressionError as error:
            return NodeFailure(key="workflow.no_value", facts={"name": node.id, "why": error})
        except (TypeError, ValueError, OverflowError) as error:
            why = BadExpression(str(error), "wrong_values")
            return NodeFailure(key="workflow.no_value", facts={"name": node.id, "why": why})
        if not of["step"]:
            return NodeFailure(key="workflow.no_step", facts={"name": node.title})
        return NodeWait(iteration=of)

    def round_names(
        self, node: NodeInput[LoopConfig], iteration: Mapping[str, Any], index: int
    ) -> Mapping[str, Any]:
        config = node.settings
        if config.mode != "for":
            return {"loopCount": index, config.var: index}
        value = iteration["init"] + index * iteration["step"]
        return {"loopCount": index, config.var: int(value) if value.is_integer() else value}

    def next_action(
        self, node: NodeInput[LoopConfig], rounds: RoundProgress, context: EvaluationContext
    ) -> NodeEffect | NodeQuestion | None:
        if rounds.running:
            return None
        try:
            if not _continues(node.settings, rounds, context):
                return _finished(rounds)
        except UndecidedCondition as error:
            last = rounds.results.get(rounds.opened_rounds - 1)
            return NodeQuestion.about_condition(node.title, error.subject, last)
        return self._next_round(node, rounds)

    def _next_round(
        self, node: NodeInput[LoopConfig], rounds: RoundProgress
    ) -> NodeEffect | NodeQuestion:
        config = node.settings
        if rounds.opened_rounds - rounds.used_limit < config.max_iterations:
            return NodeWait()
        if rounds.ended_by_person or config.on_limit is OnLimit.CONTINUE:
            return _finished(rounds)
        facts = {"name": node.title, "n": config.max_iterations}
        if config.on_limit is OnLimit.ASK:
            return NodeQuestion(key="workflow.ask_limit", facts=facts)
        return NodeFailure(key="workflow.loop_limit", facts=facts)

    def partial_output(
        self, iteration: Mapping[str, Any], results: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        return {"rounds": len(results), "last": results[max(results)] if results else None}

    def total_rounds(self, config: LoopConfig, iteration: Mapping[str, Any]) -> int | None:
        if config.mode != "for":
            return None
        start, end, stride = (float(iteration[name]) for name in _COUNTING)
        return min(config.max_iterations, max(0, math.floor((end - start) / stride) + 1))

    def shown_limit(self, config: LoopConfig) -> int | None:
        return config.max_iterations


def _continues(config: LoopConfig, rounds: RoundProgress, context: EvaluationContext) -> bool:
    match config.mode:
        case "while":
            return context.is_true(config.condition)
        case "until":
            return not rounds.opened_rounds or not context.is_true(config.condition)
        case "for":
            of = rounds.iteration
            at = of["init"] + rounds.opened_rounds * of["step"]
            return bool(at <= of["end"] if of["step"] > 0 else at >= of["end"])


def _finished(rounds: RoundProgress) -> NodeDone:
    last = rounds.results.get(rounds.opened_rounds - 1)
    return NodeDone(output={"rounds": rounds.opened_rounds, "last": last})
