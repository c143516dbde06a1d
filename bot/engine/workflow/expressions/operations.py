"""Values, operators and functions of expressions, and words read as true or false; value sizes are
bounded."""

from __future__ import annotations

import json
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

_MAX_TEXT = 300
_MARKUP = " \t\r\n*_`\"'“”‘’.!。！,，;；:：()（）[]【】\ufe0f"

_TRUE = {
    "true", "yes", "y", "ok", "okay", "on", "approved", "approve", "accepted", "accept", "pass",
    "passed", "lgtm", "是", "是的", "对", "真", "通过", "已通过", "审核通过", "评审通过", "批准",
    "已批准", "同意", "可以", "✅", "✔", "☑", "👍",
}  # fmt: skip
_FALSE = {
    "false", "no", "n", "nope", "off", "not approved", "unapproved", "rejected", "reject", "denied",
    "declined", "fail", "failed", "not yet", "none", "null", "nil", "n/a", "否", "不", "不是", "假",
    "错", "无", "没有", "不通过", "未通过", "没有通过", "没通过", "不批准", "未批准", "不同意",
    "驳回", "拒绝", "不可以", "❌", "✘", "✗", "👎",
}  # fmt: skip
_UNSURE = {
    "maybe", "perhaps", "probably", "possibly", "partially", "partly", "partial", "mostly",
    "unknown", "unsure", "uncertain", "unclear", "undecided", "pending", "conditional",
    "conditionally", "mixed", "depends", "it depends", "tbd", "?", "true/false", "yes/no",
    "true|false", "yes|no", "是/否", "待定", "未定", "部分", "部分通过", "不确定", "可能", "也许",
    "有条件", "有条件通过", "基本通过", "原则上通过", "原则通过",
}  # fmt: skip

_HEDGE = re.compile(
    r"\b(?:but|if|once|provided|providing|pending|unless|assuming|subject to|after|except|although"
    r"|though|conditional(?:ly)?|conditions?|only|mostly|partial(?:ly)?|maybe|perhaps|however|until"
    r"|as long as|as soon as|when|in principle|would"
    r"|i (?:think|guess|suppose)|probably|likely|not sure)\b"
    r"|但|不过|如果|前提|除非|待|需要先|先.{0,12}再|条件|只要|然而|暂时|之后|以后|后再|原则上|基本上",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(
    r"[\s*_`\"'“”)）]*(?:or\b|/|\||或者?|还是)\s*(?:\w+\s*[:=]\s*)?[*_`\"'“”]*"
    r"(?:true|false|yes|no|是|否|不通过|通过)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.。!！;；\n](?:\s|$)|[。！；\n]")
_LEADING_FLAG = re.compile(
    r"(yes|no|nope|true|false|approved|rejected|passed|failed|lgtm|是的?|否|不通过|未通过|通过|不同意"
    r"|同意|✅|❌)[*_`\s]*((?:[,.;:!](?=\s|[\u4e00-\u9fff]|$)|[(。]|\s[-—–]\s).*)",
    re.DOTALL,
)


class Flag(Enum):
    """The meaning of a text where yes or no is expected."""

    YES = True
    NO = False
    UNSURE = None


def read_flag(text: str) -> Flag | None:
    """Read `yes`, `否`, `"false"` and the like, ignoring case and punctuation; None if the text is
    about something else. A yes with a condition attached is unsure.
    """
    if len(text) > _MAX_TEXT:
        return None
    plain = unicodedata.normalize("NFKC", text).strip(_MARKUP).casefold() or text.strip()
    for words, flag in ((_TRUE, Flag.YES), (_FALSE, Flag.NO), (_UNSURE, Flag.UNSURE)):
        if " ".join(plain.split()) in words:
            return flag
    found = _LEADING_FLAG.fullmatch(plain)
    if found is None:
        return None
    return qualify(Flag.NO if found[1] in _FALSE else Flag.YES, found[2])


def qualify(flag: Flag, rest: str) -> Flag:
    """Qualify a flag by the rest of its line: a yes with a condition attached is unsure, and so is
    either if the other is offered as well, as in `true or false`.
    """
    if _ALTERNATIVE.match(rest):
        return Flag.UNSURE
    return Flag.UNSURE if flag is Flag.YES and is_hedged(rest) else flag


def is_hedged(text: str) -> bool:
    """Whether the first sentence of the text makes a reservation."""
    end = _SENTENCE_END.search(text)
    return _HEDGE.search(text[: end.start()] if end else text) is not None


class ExpressionError(ValueError):
    """The expression has no value. `key` names the reason under `workflow.expression` in the
    catalogue, filled with `facts`; the text of the error is for logs and models.
    """

    def __init__(self, why: str, key: str = "", *, written: str = "", **facts: object) -> None:
        super().__init__(why)
        self.key = key
        self.written = written
        self.facts = facts

    def in_words(self, text: Callable[..., str]) -> str:
        """The reason in the language of this catalogue."""
        if not self.key:
            return str(self)
        facts = {"word": self.written, **self.facts}
        if "kind" in facts:
            facts["kind"] = text(f"workflow.value.{facts['kind']}")
        return text(f"workflow.expression.{self.key}", **facts)


class BadExpression(ExpressionError):
    """The expression is invalid or cannot be evaluated."""


class ExpressionSyntaxError(BadExpression):
    """The expression breaks the grammar at the character `at`, counted from 0. `key` names a text
    under `workflow.expression` in the catalogue, filled with `facts`; `written` is what the author
    wrote there, and `suggestion` what may have been meant.
    """

    def __init__(
        self,
        key: str,
        why: str,
        at: int,
        *,
        written: str = "",
        suggestion: str = "",
        **facts: object,
    ) -> None:
        super().__init__(why, key, written=written, **facts)
        self.at = at
        self.suggestion = suggestion


class UnknownExpressionName(ExpressionError):
    """The expression uses an unknown name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown name {name!r}", "unknown_name", name=name)


class UnclearAnswer(BadExpression):
    """A worker's answer does not say what the expression needs to know."""


class MissingAnswerValue(UnknownExpressionName, UnclearAnswer):
    """A worker's answer does not give the value that the expression names."""


MAX_VALUE_SIZE = 200_000
_MAX_NUMBER = 1e18
_MAX_EXACT_INT = 2**53
_TEXT_CHUNK = 64
TEXT_KEY = "_raw"
"""The key that holds the plain text of an output."""


def strictly_equal(one: Any, two: Any) -> bool:
    """Equal and of the same kind: 1 is not true, and "1" is not 1."""
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)


def is_truthy(value: Any) -> bool:
    """Whether a value counts as true: not if it is empty, 0, or a word such as "false", "no" or 否.
    Raises UnclearAnswer for a word such as "maybe"."""
    flag = read_flag(value) if isinstance(value, str) else None
    if flag is None:
        return bool(value)
    return _certain(flag, value)


def _certain(flag: Flag | None, text: str) -> bool:
    if flag is None or flag is Flag.UNSURE:
        raise UnclearAnswer(f"{text[:60]!r} says neither true nor false")
    return bool(flag.value)


def _equal(one: Any, two: Any) -> bool:
    """Like `strictly_equal`, but a text beside true or false is read as one of them. Raises
    UnclearAnswer if it is neither."""
    for value, text in ((one, two), (two, one)):
        if isinstance(value, bool) and isinstance(text, str):
            return value is _certain(read_flag(text), text)
    return strictly_equal(one, two)


def fold_name(name: str) -> str:
    """`maxLoops`, `max_loops` and `max-loops` are the same name."""
    return name.replace("_", "").replace("-", "").casefold()


def get_item(whole: Mapping[Any, Any], key: Any) -> Any:
    """The value of this key, ignoring case and the characters `_` and `-`. Raises KeyError, and
    TypeError for a key that is no name.
    """
    if key in whole:
        return whole[key]
    if isinstance(key, str) and isinstance(whole, dict):
        folded = fold_name(key)
        alike = [each for each in whole if isinstance(each, str) and fold_name(each) == folded]
        if len(alike) == 1:
            return whole[alike[0]]
    return whole[key]


def require_number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _misfit(value, "not_a_number", "is not a number")
    return value


def normalize_number(value: Any) -> float | int:
    """Represent whole numbers as int: 4 / 2 is 2. Raises BadExpression if the number is too
    large."""
    if not math.isfinite(value) or abs(value) > _MAX_NUMBER:
        raise BadExpression("the number is too large", "too_large")
    whole = float(value).is_integer() and abs(value) < _MAX_EXACT_INT
    result: float | int = int(value) if whole else value
    return result


def as_index(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and int(value) == value else None


def contains(container: Any, part: Any) -> bool:
    if isinstance(container, str):
        return to_text(part) in container
    if isinstance(container, list):
        return any(strictly_equal(each, part) for each in container)
    if isinstance(container, Mapping):
        text = container.get(TEXT_KEY)
        return part in container or (isinstance(text, str) and to_text(part) in text)
    raise _misfit(container, "no_container", "cannot contain anything")


def to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        value = normalize_number(value)
    if isinstance(value, Mapping) and isinstance(value.get(TEXT_KEY), str):
        return str(value[TEXT_KEY])
    return json.dumps(materialize(require_bounded(value)), ensure_ascii=False, default=str)


def materialize(value: Any) -> Any:
    """Convert a lazy mapping into a dict that can be stored."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return require_bounded({key: value[key] for key in value})
    return value


def value_type(value: object) -> str:
    """The authors' name for the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list() | tuple():
            return "list"
        case _:
            return "object"


def require_short(value: Any) -> Any:
    if len(value) > MAX_VALUE_SIZE:
        raise BadExpression("the value is too long", "value_too_long")
    return value


def require_bounded(value: Any) -> Any:
    """Return the value, or raise BadExpression if it is too large. Shared parts count each time
    they occur, because repeated doubling would otherwise produce values that no store can hold."""
    left, open_ = MAX_VALUE_SIZE, [value]
    while open_:
        each = open_.pop()
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, Mapping):
            left -= sum(len(str(key)) for key in each)
            open_.extend(each.values())
        elif isinstance(each, list):
            left -= len(each)
            if left >= 0:
                open_.extend(each)
        left -= 1
        if left < 0:
            raise BadExpression("the value is too long", "value_too_long")
    return value


def value_size(value: Any, limit: int) -> int:
    """Approximate number of parts of the value; counting stops at `limit`."""
    parts, open_ = 0, [value]
    while open_ and parts <= limit:
        each = open_.pop()
        parts += 1
        if isinstance(each, str):
            parts += len(each) // _TEXT_CHUNK
        elif isinstance(each, list | dict):
            if len(each) > limit:
                return parts + len(each)
            open_.extend(each.values() if isinstance(each, dict) else each)
    return parts


def _misfit(value: Any, key: str, why: str) -> BadExpression:
    """The error that a value is of the wrong kind."""
    kinds = {str: "text", bool: "flag", list: "list", type(None): "nothing"}
    kinds |= {int: "number", float: "number"}
    kind = kinds.get(type(value), "group" if isinstance(value, Mapping) else "this")
    return BadExpression(f"{_KINDS[kind]} {why}", key, kind=kind)


_KINDS = {
    "text": "a text",
    "flag": "true or false",
    "list": "a list",
    "nothing": "nothing",
    "number": "a number",
    "group": "a group",
    "this": "this",
}


_MAX_DIGITS = 12


class ExpressionFunction(NamedTuple):
    """A function of the language; `most` is None for variadic functions."""

    call: Callable[..., Any]
    least: int
    most: int | None

    @property
    def is_constant_time(self) -> bool:
        """Whether the cost is independent of the size of the arguments."""
        return self.call in {_length, _get, is_truthy, _now}


def _has(whole: Any, key: Any) -> bool:
    missing = object()
    if isinstance(whole, Mapping):
        return _get(whole, key, missing) is not missing
    return contains(whole, key)


def _get(whole: Any, key: Any, other: Any = None) -> Any:
    if isinstance(whole, Mapping):
        try:
            return get_item(whole, key)
        except KeyError:
            return other
    at = as_index(key)
    if isinstance(whole, list | str) and at is not None and -len(whole) <= at < len(whole):
        return whole[at]
    return other


def _as_number(value: Any) -> float | int:
    if not isinstance(value, str):
        return int(value) if isinstance(value, bool) else require_number(value)
    try:
        number = float(require_short(value))
    except BadExpression:
        raise
    except ValueError as error:
        raise BadExpression(
            f"{value[:40]!r} is not a number", "no_number", written=value[:40]
        ) from error
    return normalize_number(number)


def _round(value: Any, digits: Any = 0) -> float | int:
    """Round halves up; Python rounds them to the even neighbour."""
    scale = 10 ** min(max(_whole(digits), 0), _MAX_DIGITS)
    return normalize_number(math.floor(_finite(value) * scale + 0.5) / scale)


def _split(text: Any, by: Any = " ") -> Any:
    whole, by = require_short(_string(text)), _string(by)
    return whole.split(by) if by else list(whole)


def _join(items: Any, by: Any = ",") -> str:
    if not isinstance(items, list):
        raise _misfit(items, "not_a_list", "is not a list")
    if len(_string(by)) * len(items) > MAX_VALUE_SIZE:
        raise BadExpression("the value is too long", "value_too_long")
    require_bounded(items)
    return str(require_short(by.join(to_text(each) for each in items)))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _misfit(value, "not_a_text", "is not a text")
    return value


def _whole(value: Any) -> int:
    at = as_index(value)
    if at is None:
        raise _misfit(value, "not_whole", "is not a whole number")
    return at


def _finite(value: Any) -> float | int:
    return normalize_number(require_number(value))


def _numbers(values: tuple[Any, ...]) -> list[float | int]:
    alone = len(values) == 1 and isinstance(values[0], list)
    found = [require_number(each) for each in (values[0] if alone else values)]
    if not found:
        raise BadExpression("the list is empty", "empty_list")
    return found


def _length(value: Any) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise _misfit(value, "no_length", "has no length")


def _slice(value: Any, start: Any = 0, end: Any = None) -> Any:
    if not isinstance(value, str | list):
        raise _misfit(value, "no_parts", "has no parts")
    return value[_whole(start) : None if end is None else _whole(end)]


def _now() -> int:
    """Milliseconds since 1970, used if the context gives no time."""
    return int(datetime.now(UTC).timestamp() * 1_000)


def _on_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *texts: function(*map(_string, texts))


FUNCTIONS: Mapping[str, ExpressionFunction] = {
    "len": ExpressionFunction(_length, 1, 1),
    "has": ExpressionFunction(_has, 2, 2),
    "get": ExpressionFunction(_get, 2, 3),
    "str": ExpressionFunction(to_text, 1, 1),
    "num": ExpressionFunction(_as_number, 1, 1),
    "bool": ExpressionFunction(is_truthy, 1, 1),
    "now": ExpressionFunction(_now, 0, 0),
    "floor": ExpressionFunction(lambda value: math.floor(_finite(value)), 1, 1),
    "ceil": ExpressionFunction(lambda value: math.ceil(_finite(value)), 1, 1),
    "round": ExpressionFunction(_round, 1, 2),
    "min": ExpressionFunction(lambda *values: min(_numbers(values)), 1, None),
    "max": ExpressionFunction(lambda *values: max(_numbers(values)), 1, None),
    "abs": ExpressionFunction(lambda value: abs(require_number(value)), 1, 1),
    "includes": ExpressionFunction(contains, 2, 2),
    "startsWith": ExpressionFunction(_on_texts(str.startswith), 2, 2),
    "endsWith": ExpressionFunction(_on_texts(str.endswith), 2, 2),
    "lower": ExpressionFunction(_on_texts(str.lower), 1, 1),
    "upper": ExpressionFunction(_on_texts(str.upper), 1, 1),
    "trim": ExpressionFunction(_on_texts(str.strip), 1, 1),
    "split": ExpressionFunction(_split, 1, 2),
    "join": ExpressionFunction(_join, 1, 2),
    "slice": ExpressionFunction(_slice, 1, 3),
}

_METHOD_NAMES = (
    "includes", "startsWith", "endsWith", "lower", "upper", "trim", "split", "join", "slice",
)  # fmt: skip
METHODS: Mapping[str, ExpressionFunction] = {
    **{name: FUNCTIONS[name] for name in _METHOD_NAMES},
    "toLowerCase": FUNCTIONS["lower"],
    "toUpperCase": FUNCTIONS["upper"],
    "toString": FUNCTIONS["str"],
}


_MAX_POWER = 64


def _numeric(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, two: normalize_number(function(require_number(one), require_number(two)))


def _add(one: Any, two: Any) -> Any:
    if isinstance(one, str) or isinstance(two, str):
        texts = to_text(one), to_text(two)
        return require_short("".join(map(require_short, texts)))
    if isinstance(one, list) and isinstance(two, list):
        return require_short(require_short(one) + require_short(two))
    return normalize_number(require_number(one) + require_number(two))


def _remainder(one: Any, two: Any) -> Any:
    """The result has the sign of the dividend, as in JavaScript; in Python it has that of the
    divisor."""
    rest = abs(one) % abs(two)
    return -rest if one < 0 else rest


def _power(one: Any, two: Any) -> Any:
    if abs(require_number(two)) > _MAX_POWER:
        raise BadExpression("the exponent is too large", "large_exponent")
    result = float(require_number(one)) ** two
    if isinstance(result, complex):
        raise BadExpression("it has no real value", "no_real_value")
    return normalize_number(result)


def _ordering(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, two: Any) -> bool:
        if isinstance(one, str) and isinstance(two, str):
            return function(one, two)
        return function(require_number(one), require_number(two))

    return compare


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _numeric(operator.sub),
    "*": _numeric(operator.mul),
    "/": _numeric(operator.truediv),
    "%": _numeric(_remainder),
    "^": _power,
}

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda one, two: not _equal(one, two),
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
    "in": lambda one, two: contains(two, one),
    "not in": lambda one, two: not contains(two, one),
}


_MAX_VALUE = 20_000


_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def value_as_text(value: Any) -> str:
    """A value as text: an output as its own text, a list or mapping as JSON."""
    if isinstance(value, Mapping):
        value = value.get(TEXT_KEY, dict(value))
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_MAX_VALUE]
    return _as_json(value)


def _as_json(value: Any) -> str:
    """Encodes only as much as the size limit allows."""
    pieces: list[str] = []
    left = _MAX_VALUE
    try:
        for piece in _JSON.iterencode(value):
            pieces.append(piece[:left])
            left -= len(pieces[-1])
            if not left:
                break
    except (ValueError, RecursionError):
        pieces.append("…")
    return "".join(pieces)
