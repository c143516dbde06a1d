"""Evaluation of expressions in conditions, values and templates, as documented in
`docs/workflows.md`.

Expressions are tokenized, parsed by our own grammar and evaluated by walking the tree. Nothing is
passed to a Python interpreter, and attributes of values are not accessible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from bot.engine.workflow.expressions.operations import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    TEXT_KEY,
    BadExpression,
    ExpressionError,
    ExpressionFunction,
    MissingAnswerValue,
    UnclearAnswer,
    UnknownExpressionName,
    as_index,
    get_item,
    is_truthy,
    materialize,
    require_bounded,
    value_as_text,
    value_size,
)
from bot.engine.workflow.expressions.parser import (
    ExpressionNode,
    ExpressionOp,
    parse_expression,
    walk_nodes,
)

_MAX_WORK = 1_000_000

NOW_NAME = "@now"
"""Reserved name for the current time in milliseconds since 1970; no expression can contain it."""

CONSTANTS = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "True": True,
    "False": False,
    "None": None,
}
_PLACEHOLDER = re.compile(
    r"\$(?P<none>\$\{\{.{1,500}?\}\}|\$\{.{1,500}?\})"
    r"|\{\{(?P<two>.{1,500}?)\}\}|\$\{(?!\{)(?P<one>.{1,500}?)\}",
    re.DOTALL,
)
_SHELL_VARIABLE = re.compile(r"\$\{.{1,500}?\}", re.DOTALL)
_MAX_TEXT = 200_000


def check_expression(text: str) -> frozenset[str]:
    """Return the names that an expression uses. Raises BadExpression if it is invalid."""
    names = {node.value for node in walk_nodes(syntax_tree(text)) if node.op is ExpressionOp.NAME}
    return frozenset(names - CONSTANTS.keys())


def references(text: str) -> frozenset[tuple[str, str | None]]:
    """Return each name that an expression uses, alone and with its literal first member, as in
    `outputs.a` and `outputs['a']`. Raises BadExpression."""
    found: set[tuple[str, str | None]] = {(name, None) for name in check_expression(text)}
    for node in walk_nodes(syntax_tree(text)):
        if node.op is ExpressionOp.MEMBER:
            whole, key = node.operands
            if whole.op is ExpressionOp.NAME and key.op is ExpressionOp.VALUE:
                found.add((str(whole.value), str(key.value)))
    return frozenset(found)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value. Raises UnknownExpressionName for unknown names and BadExpression
    otherwise."""
    node = syntax_tree(text)
    try:
        value = materialize(_evaluate_node(node, _Evaluation(names)))
        builds = {ExpressionOp.LIST, ExpressionOp.ARITHMETIC}
        is_new = any(each.op in builds for each in walk_nodes(node))
        return require_bounded(value) if is_new else value
    except ExpressionError:
        raise
    except ZeroDivisionError as error:
        raise BadExpression("it divides by zero", "divides_by_zero") from error
    except RecursionError as error:
        raise BadExpression("it is nested too deeply", "too_deep") from error
    except ArithmeticError as error:
        raise BadExpression("the number is too large", "too_large") from error
    except (TypeError, ValueError, LookupError) as error:
        raise BadExpression("it cannot be evaluated with these values", "wrong_values") from error


def names_beside_unknown(text: str, names: Mapping[str, Any]) -> Sequence[str]:
    """The names that exist where the expression uses an unknown one; empty if it uses none."""
    evaluation = _Evaluation(names)
    try:
        nodes = tuple(walk_nodes(syntax_tree(text)))
    except ExpressionError:
        return ()
    for node in nodes:
        if node.op is ExpressionOp.NAME and node.value not in {*names, *CONSTANTS}:
            return tuple(names)
        if node.op is not ExpressionOp.MEMBER:
            continue
        with suppress(ExpressionError, TypeError, ValueError, LookupError, ArithmeticError):
            whole, key = (_evaluate_node(each, evaluation) for each in node.operands)
            if isinstance(whole, Mapping) and not _has_item(whole, key):
                return tuple(str(each) for each in whole)
    return ()


def _has_item(whole: Mapping[Any, Any], key: Any) -> bool:
    try:
        get_item(whole, key)
    except (KeyError, TypeError):
        return False
    return True


def evaluate_condition(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> bool:
    """Whether the condition holds. An empty one does; one that cannot be evaluated does not, and
    `warn` gets the reason. Raises UnclearAnswer if an answer is there and leaves it open."""
    if not text.strip():
        return True
    try:
        return is_truthy(evaluate_answer(text, names))
    except UnclearAnswer:
        raise
    except ExpressionError as error:
        warn(f"{text[:200]!r} is treated as false: {error}")
        return False


def evaluate_answer(text: str, names: Mapping[str, Any]) -> Any:
    """Like `evaluate`, but raises UnclearAnswer if an answer is there and has no such value."""
    try:
        return evaluate(text, names)
    except UnclearAnswer:
        raise
    except BadExpression as error:
        if _reads_outputs(text):
            raise UnclearAnswer(
                str(error), error.key, written=error.written, **error.facts
            ) from error
        raise


def _reads_outputs(text: str) -> bool:
    try:
        return "outputs" in check_expression(text)
    except BadExpression:
        return False


_COMPARED_WITH_FLAG = re.compile(
    r"(?P<name>[\w.\[\]'\"-]+)\s*(?P<sign>===?|!==?)\s*(?P<flag>true|false)", re.IGNORECASE
)
_NEGATED = re.compile(r"(?:not\s+|!\s*)(?P<name>[\w.\[\]'\"-]+)")


def split_condition(text: str) -> tuple[str, bool]:
    """The subject of a condition, and whether the condition holds if the subject is true: `not
    a.b`, `a.b == false` and `a.b` have the same subject.
    """
    plain = text.strip()
    if found := _COMPARED_WITH_FLAG.fullmatch(plain):
        equal, flag = found["sign"].startswith("="), found["flag"].casefold() == "true"
        return found["name"], equal is flag
    if found := _NEGATED.fullmatch(plain):
        return found["name"], False
    return plain, True


@lru_cache(maxsize=1_000)
def syntax_tree(text: str) -> ExpressionNode:
    """Raises BadExpression."""
    return parse_expression(text)


class _Evaluation:
    """One evaluation with a work budget, so that no expression can block others for long."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self._remaining = _MAX_WORK

    def charge(self, *values: Any) -> None:
        for value in values:
            self._remaining -= value_size(value, self._remaining)
            if self._remaining < 0:
                raise BadExpression("it takes too much work to evaluate", "too_much_work")


def _evaluate_node(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    return _EVALUATORS[node.op](node, evaluation)


def _evaluate_name(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    try:
        return evaluation.names[node.value]
    except KeyError as error:
        if node.value not in CONSTANTS:
            raise UnknownExpressionName(node.value) from error
    return CONSTANTS[node.value]


def _evaluate_list(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    return [materialize(_evaluate_node(each, evaluation)) for each in node.operands]


def _evaluate_member(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    whole, key = (_evaluate_node(each, evaluation) for each in node.operands)
    if isinstance(whole, Mapping):
        try:
            return get_item(whole, key)
        except (KeyError, TypeError) as error:
            # Only a failed step has an error.
            is_answer = TEXT_KEY in whole and key != "error"
            kind = MissingAnswerValue if is_answer else UnknownExpressionName
            raise kind(str(key)[:60]) from error
    if key == "length" and isinstance(whole, str | list):
        return len(whole)
    at = as_index(key)
    if isinstance(whole, str | list) and at is not None and -len(whole) <= at < len(whole):
        return whole[at]
    raise UnknownExpressionName(str(key)[:60])


def _evaluate_call(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    function: ExpressionFunction = node.value
    if function is FUNCTIONS["now"] and NOW_NAME in evaluation.names:
        return evaluation.names[NOW_NAME]
    values = [_evaluate_node(each, evaluation) for each in node.operands]
    if not function.is_constant_time:
        evaluation.charge(*values)
    return function.call(*values)


def _evaluate_unary(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    value = _evaluate_node(node.operands[0], evaluation)
    return not is_truthy(value) if node.value == "not" else OPERATORS[node.value](0, value)


def _evaluate_arithmetic(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    value = _evaluate_node(node.operands[0], evaluation)
    for sign, part in zip(node.value, node.operands[1:], strict=True):
        other = _evaluate_node(part, evaluation)
        evaluation.charge(value, other)
        value = OPERATORS[sign](value, other)
    return value


def _evaluate_comparison(node: ExpressionNode, evaluation: _Evaluation) -> bool:
    one = _evaluate_node(node.operands[0], evaluation)
    for sign, part in zip(node.value, node.operands[1:], strict=True):
        two = _evaluate_node(part, evaluation)
        evaluation.charge(one, two)
        if not COMPARISONS[sign](one, two):
            return False
        one = two
    return True


def _short_circuit(stop_at: bool) -> Callable[[ExpressionNode, _Evaluation], Any]:
    """Evaluate operands up to the first that decides the result."""

    def settled(node: ExpressionNode, evaluation: _Evaluation) -> Any:
        value: Any = None
        for each in node.operands:
            value = _evaluate_node(each, evaluation)
            if is_truthy(value) is stop_at:
                break
        return value

    return settled


def _evaluate_conditional(node: ExpressionNode, evaluation: _Evaluation) -> Any:
    test, yes, no = node.operands
    holds = is_truthy(_evaluate_node(test, evaluation))
    return _evaluate_node(yes if holds else no, evaluation)


_EVALUATORS: Mapping[ExpressionOp, Callable[[ExpressionNode, _Evaluation], Any]] = {
    ExpressionOp.VALUE: lambda node, _: node.value,
    ExpressionOp.NAME: _evaluate_name,
    ExpressionOp.LIST: _evaluate_list,
    ExpressionOp.MEMBER: _evaluate_member,
    ExpressionOp.CALL: _evaluate_call,
    ExpressionOp.UNARY: _evaluate_unary,
    ExpressionOp.ARITHMETIC: _evaluate_arithmetic,
    ExpressionOp.COMPARE: _evaluate_comparison,
    ExpressionOp.AND: _short_circuit(stop_at=False),
    ExpressionOp.OR: _short_circuit(stop_at=True),
    ExpressionOp.CONDITIONAL: _evaluate_conditional,
}


def find_placeholders(text: str) -> Iterator[str]:
    """Yield the expressions in a template."""
    found = (_expression_in(each) for each in _PLACEHOLDER.finditer(text))
    return (each for each in found if each is not None)


def template_expressions(**templates: str) -> Iterator[tuple[str, str]]:
    """The expressions in the templates, each with the name of its field."""
    return (
        (name, expression)
        for name, template in templates.items()
        for expression in find_placeholders(template)
    )


def without_placeholders(text: str) -> str:
    """Return the text without its placeholders."""
    return _PLACEHOLDER.sub(" ", text)


def replace_placeholders(text: str, replacement: Callable[[str, str], str]) -> str:
    """Replace each placeholder by `replacement(placeholder, expression)`."""

    def one(found: re.Match[str]) -> str:
        expression = _expression_in(found)
        return found["none"] if expression is None else replacement(found[0], expression)

    return _PLACEHOLDER.sub(one, text)


def escape_placeholders(text: str) -> str:
    """Escape `${…}`, for text that was not written as a template."""
    return _SHELL_VARIABLE.sub(r"$\g<0>", text)


def _expression_in(found: re.Match[str]) -> str | None:
    """The expression; None for an escaped placeholder."""
    return None if found["none"] else (found["two"] or found["one"]).strip()


def fill_template(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> str:
    """Fill the placeholders, with size limits per value and in total. A placeholder that cannot be
    evaluated becomes empty and is reported to `warn`. Inserted values are not expanded again."""

    pieces: list[str] = []
    at, left = 0, _MAX_TEXT
    for found in _PLACEHOLDER.finditer(text):
        for piece in (text[at : found.start()], _filled_placeholder(found, names, warn)):
            pieces.append(piece[:left])
            left -= len(pieces[-1])
        at = found.end()
        if not left:
            break
    return "".join([*pieces, text[at : at + left]])


def _filled_placeholder(
    found: re.Match[str], names: Mapping[str, Any], warn: Callable[[str], None]
) -> str:
    expression = _expression_in(found)
    if expression is None:
        return found["none"]
    try:
        return value_as_text(evaluate(expression, names))
    except ExpressionError as error:
        warn(f"{found[0][:200]} becomes empty: {error}")
        return ""
