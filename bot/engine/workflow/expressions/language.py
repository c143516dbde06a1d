"""The language of conditions and values: what `docs/workflows.md` says of it, and no more.

A text is cut into words and rewritten as Python, of which only a short list of forms is accepted
and then walked by hand: nothing is ever handed to an interpreter.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from bot.engine.workflow.expressions.operations import FUNCTIONS, METHODS, OPERATORS, same
from bot.engine.workflow.expressions.words import python_of
from bot.engine.workflow.expressions.wrong import BadExpression, ExpressionError, UnknownName

__all__ = ["BadExpression", "ExpressionError", "UnknownName", "check", "evaluate", "truth"]

_MOST_FORMS = 300
_MOST_DEEP = 40
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": None}

_FORMS = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow, ast.Compare, ast.Eq,
    ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.IfExp, ast.Subscript,
    ast.Attribute, ast.Call, ast.Name, ast.Load, ast.Constant, ast.List,
)  # fmt: skip


def check(text: str) -> frozenset[str]:
    """The names that an expression speaks of. Raises BadExpression where it is none."""
    forms = ast.walk(_parsed(text))
    called = {id(form.func) for form in ast.walk(_parsed(text)) if isinstance(form, ast.Call)}
    names = {form.id for form in forms if isinstance(form, ast.Name) and id(form) not in called}
    return frozenset(names - _CONSTANTS.keys())


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """What it gives. Raises UnknownName for what nobody knows and BadExpression for all else."""
    tree = _parsed(text)
    try:
        return _value(tree.body, names)
    except ExpressionError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise BadExpression(str(error) or type(error).__name__) from error


def truth(text: str, names: Mapping[str, Any], warn: Callable[[str], None]) -> bool:
    """Whether it holds. A blank text does; one that cannot be worked out does not, and `warn` is
    told why."""
    if not text.strip():
        return True
    try:
        return bool(evaluate(text, names))
    except ExpressionError as error:
        warn(f"{text[:200]!r} counts as false: {error}")
        return False


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> ast.Expression:
    try:
        tree = ast.parse(python_of(text), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise BadExpression("it is not written as an expression") from error
    forms = list(ast.walk(tree))
    if len(forms) > _MOST_FORMS or _depth(tree) > _MOST_DEEP:
        raise BadExpression("it is too long")
    for form in forms:
        if not isinstance(form, _FORMS):
            raise BadExpression(f"{type(form).__name__} is not part of the language")
        _check_call(form)
    return tree


def _check_call(form: ast.AST) -> None:
    if not isinstance(form, ast.Call):
        if isinstance(form, ast.Constant) and not isinstance(form.value, str | int | float | bool):
            raise BadExpression("only texts and numbers are written down")
        return
    if form.keywords:
        raise BadExpression("functions take no named arguments")
    match form.func:
        case ast.Name(id=name) if name in FUNCTIONS:
            return
        case ast.Attribute(attr=name) if name in METHODS:
            return
        case ast.Name(id=name) | ast.Attribute(attr=name):
            raise BadExpression(f"there is no function {name!r}")
        case _:
            raise BadExpression("only functions can be called")


def _depth(tree: ast.AST) -> int:
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [child for form in level for child in ast.iter_child_nodes(form)]
    return deepest


def _value(form: ast.expr, names: Mapping[str, Any]) -> Any:
    return _VALUES[type(form)](form, names)


def _choice(form: ast.IfExp, names: Mapping[str, Any]) -> Any:
    return _value(form.body if _value(form.test, names) else form.orelse, names)


def _named(form: ast.Name, names: Mapping[str, Any]) -> Any:
    name = form.id
    if name in names:
        return names[name]
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    raise UnknownName(name)


def _part(whole: Any, key: Any) -> Any:
    if isinstance(whole, Mapping):
        if key in whole:
            return whole[key]
        raise UnknownName(str(key))
    if key == "length" and isinstance(whole, str | list):
        return len(whole)
    if isinstance(whole, str | list) and isinstance(key, int) and not isinstance(key, bool):
        return whole[key]
    raise UnknownName(str(key))


def _either(form: ast.BoolOp, names: Mapping[str, Any]) -> Any:
    stop_at = isinstance(form.op, ast.Or)
    value: Any = None
    for each in form.values:
        value = _value(each, names)
        if bool(value) is stop_at:
            break
    return value


def _sign(form: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
    value = _value(form.operand, names)
    if isinstance(form.op, ast.Not):
        return not value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadExpression("only numbers have a sign")
    return -value if isinstance(form.op, ast.USub) else value


def _compare(form: ast.Compare, names: Mapping[str, Any]) -> bool:
    one = _value(form.left, names)
    for op, other in zip(form.ops, form.comparators, strict=True):
        two = _value(other, names)
        if not _holds(op, one, two):
            return False
        one = two
    return True


def _holds(op: ast.cmpop, one: Any, two: Any) -> bool:
    match op:
        case ast.Eq():
            return same(one, two)
        case ast.NotEq():
            return not same(one, two)
        case _:
            return bool(OPERATORS[type(op)](one, two))


def _call(form: ast.Call, names: Mapping[str, Any]) -> Any:
    given = [_value(each, names) for each in form.args]
    if isinstance(form.func, ast.Name):
        return FUNCTIONS[form.func.id](*given)
    assert isinstance(form.func, ast.Attribute)
    return METHODS[form.func.attr](_value(form.func.value, names), *given)


def _operation(form: ast.BinOp, names: Mapping[str, Any]) -> Any:
    return OPERATORS[type(form.op)](_value(form.left, names), _value(form.right, names))


_VALUES: Mapping[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda form, _: form.value,
    ast.Name: _named,
    ast.List: lambda form, names: [_value(item, names) for item in form.elts],
    ast.BoolOp: _either,
    ast.UnaryOp: _sign,
    ast.BinOp: _operation,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.Subscript: lambda form, names: _part(_value(form.value, names), _value(form.slice, names)),
    ast.Call: _call,
}
