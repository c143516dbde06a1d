"""The language of conditions and values: what `docs/workflows.md` says of it, and no more.

A text is cut into words and read by a grammar of its own; the forms are then walked by hand.
Nothing is ever handed to an interpreter, and no value's own attributes can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from bot.engine.workflow.expressions.functions import Function
from bot.engine.workflow.expressions.grammar import Act, Form, form_of, forms_in
from bot.engine.workflow.expressions.operations import (
    COMPARISONS,
    FUNCTIONS,
    METHODS,
    OPERATORS,
    fair,
    index_of,
    plain,
    weight,
)
from bot.engine.workflow.expressions.wrong import BadExpression, ExpressionError, UnknownName

__all__ = [
    "NOW",
    "BadExpression",
    "ExpressionError",
    "UnknownName",
    "check",
    "evaluate",
    "references",
    "truth",
]

_MOST_WORK = 1_000_000

NOW = "@now"
"""A name nobody can write: the time that `now()` tells, in milliseconds since 1970."""

_CONSTANTS = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "True": True,
    "False": False,
    "None": None,
}


def check(text: str) -> frozenset[str]:
    """The names that an expression speaks of. Raises BadExpression where it is none."""
    names = {form.told for form in forms_in(_parsed(text)) if form.act is Act.NAME}
    return frozenset(names - _CONSTANTS.keys())


def references(text: str) -> frozenset[tuple[str, str | None]]:
    """Each name that an expression speaks of, alone and with the part of it that is written out,
    as in `outputs.a` and `outputs['a']`. Raises BadExpression."""
    found: set[tuple[str, str | None]] = {(name, None) for name in check(text)}
    for form in forms_in(_parsed(text)):
        if form.act is Act.PART:
            whole, key = form.parts
            if whole.act is Act.NAME and key.act is Act.VALUE:
                found.add((str(whole.told), str(key.told)))
    return frozenset(found)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """What it gives. Raises UnknownName for what nobody knows and BadExpression for all else."""
    form = _parsed(text)
    try:
        value = plain(_value(form, _Walk(names)))
        return fair(value) if _builds(form) else value
    except ExpressionError:
        raise
    except ZeroDivisionError as error:
        raise BadExpression("it divides by zero") from error
    except RecursionError as error:
        raise BadExpression("it is nested too deeply") from error
    except ArithmeticError as error:
        raise BadExpression("the number is too large") from error
    except (TypeError, ValueError, LookupError) as error:
        raise BadExpression("it cannot be worked out with these values") from error


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


def _builds(form: Form) -> bool:
    """Whether it may have put together what was not there before."""
    return any(each.act in {Act.LIST, Act.RECKON} for each in forms_in(form))


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> Form:
    return form_of(text)


class _Walk:
    """One walk over the forms of an expression. What it may look at is counted, so that no text,
    however it is put, keeps others waiting."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self._left = _MOST_WORK

    def looks_at(self, *values: Any) -> None:
        for value in values:
            self._left -= weight(value, self._left)
            if self._left < 0:
                raise BadExpression("there is too much to look at")


def _value(form: Form, walk: _Walk) -> Any:
    return _VALUES[form.act](form, walk)


def _named(form: Form, walk: _Walk) -> Any:
    try:
        return walk.names[form.told]
    except KeyError:
        pass
    if form.told in _CONSTANTS:
        return _CONSTANTS[form.told]
    raise UnknownName(form.told)


def _list(form: Form, walk: _Walk) -> Any:
    return [plain(_value(each, walk)) for each in form.parts]


def _part(form: Form, walk: _Walk) -> Any:
    whole, key = (_value(each, walk) for each in form.parts)
    if isinstance(whole, Mapping):
        try:
            return whole[key]
        except (KeyError, TypeError) as error:
            raise UnknownName(str(key)[:60]) from error
    if key == "length" and isinstance(whole, str | list):
        return len(whole)
    at = index_of(key)
    if isinstance(whole, str | list) and at is not None and -len(whole) <= at < len(whole):
        return whole[at]
    raise UnknownName(str(key)[:60])


def _call(form: Form, walk: _Walk) -> Any:
    if form.told == "now" and NOW in walk.names:
        return walk.names[NOW]
    return _done(FUNCTIONS[form.told], form, walk)


def _method(form: Form, walk: _Walk) -> Any:
    return _done(METHODS[form.told], form, walk)


def _done(function: Function, form: Form, walk: _Walk) -> Any:
    values = [_value(each, walk) for each in form.parts]
    if not function.is_quick:
        walk.looks_at(*values)
    return function.act(*values)


def _signed(form: Form, walk: _Walk) -> Any:
    value = _value(form.parts[0], walk)
    if form.told == "not":
        return not value
    return OPERATORS[form.told](0, value)


def _reckoned(form: Form, walk: _Walk) -> Any:
    value = _value(form.parts[0], walk)
    for sign, part in zip(form.told, form.parts[1:], strict=True):
        other = _value(part, walk)
        walk.looks_at(value, other)
        value = OPERATORS[sign](value, other)
    return value


def _compared(form: Form, walk: _Walk) -> bool:
    one = _value(form.parts[0], walk)
    for sign, part in zip(form.told, form.parts[1:], strict=True):
        two = _value(part, walk)
        walk.looks_at(one, two)
        if not COMPARISONS[sign](one, two):
            return False
        one = two
    return True


def _until(stop_at: bool) -> Callable[[Form, _Walk], Any]:
    """The first value that settles it, else the last."""

    def settled(form: Form, walk: _Walk) -> Any:
        value: Any = None
        for each in form.parts:
            value = _value(each, walk)
            if bool(value) is stop_at:
                break
        return value

    return settled


def _chosen(form: Form, walk: _Walk) -> Any:
    test, yes, no = form.parts
    return _value(yes if _value(test, walk) else no, walk)


_VALUES: Mapping[Act, Callable[[Form, _Walk], Any]] = {
    Act.VALUE: lambda form, _: form.told,
    Act.NAME: _named,
    Act.LIST: _list,
    Act.PART: _part,
    Act.CALL: _call,
    Act.METHOD: _method,
    Act.SIGN: _signed,
    Act.RECKON: _reckoned,
    Act.COMPARE: _compared,
    Act.BOTH: _until(stop_at=False),
    Act.EITHER: _until(stop_at=True),
    Act.CHOICE: _chosen,
}
