"""The grammar of expressions, their tokens, and the parser that builds their syntax tree.

choice  = either ["?" choice ":" choice]
either  = both {"or" both}
both    = equal {"and" equal}
equal   = order {("==" | "!=") order}
order   = sum {("<" | "<=" | ">" | ">=" | "in" | "not" "in") sum}
sum     = product {("+" | "-") product}
product = signed {("*" | "/" | "%") signed}
signed  = ("not" | "-" | "+") signed | power
power   = whole ["^" signed]
whole   = first {"." name ["(" items ")"] | "[" choice "]"}
first   = number | text | name ["(" items ")"] | "(" choice ")" | "[" items "]"
items   = [choice {"," choice}]

An expression cut into its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, StrEnum, auto
from typing import Any

from bot.engine.workflow.expressions.operations import (
    FUNCTIONS,
    METHODS,
    BadExpression,
    ExpressionFunction,
    ExpressionSyntaxError,
    normalize_number,
)

_MAX_EXPRESSION = 2_000
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>===|!==|==|!=|<=|>=|&&|\|\||\*\*|[-+*/%<>!?:.,()\[\]^]))""",
    re.VERBOSE,
)
_CANONICAL_SIGNS = {"===": "==", "!==": "!=", "&&": "and", "||": "or", "!": "not", "**": "^"}
_WORD_OPERATORS = {"and", "or", "not", "in"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class TokenKind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class ExpressionToken:
    """`text` is a number as written, a string without quotes, or a sign in canonical form. `at` is
    the offset of its first character. `member_name` is set if the token may follow a dot."""

    kind: TokenKind
    text: str
    at: int
    member_name: str = ""


def tokenize(text: str) -> Sequence[ExpressionToken]:
    """Raises ExpressionSyntaxError."""
    if len(text) > _MAX_EXPRESSION:
        raise ExpressionSyntaxError("too_long", "it is too long", 0)
    words: list[ExpressionToken] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _invalid_character(text, at)
        at = found.end()
        words.append(_make_token(found))
    return [*words, ExpressionToken(TokenKind.END, "the end", end)]


def _invalid_character(text: str, at: int) -> ExpressionSyntaxError:
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at] in "\"'":
        return ExpressionSyntaxError("open_quote", "a quote is never closed", at, written=text[at])
    written = text[at : at + 10].split(maxsplit=1)[0]
    sign = {"=": "==", "&": "&&", "|": "||"}.get(written[0], "")
    why = f"{written!r} is not valid here"
    return ExpressionSyntaxError(
        "invalid_character", why, at, written=(sign and written[0]) or written, suggestion=sign
    )


def _make_token(found: re.Match[str]) -> ExpressionToken:
    if found["number"]:
        return ExpressionToken(TokenKind.NUMBER, found["number"], found.start("number"))
    if found["text"]:
        return ExpressionToken(TokenKind.TEXT, _unescape(found["text"]), found.start("text"))
    if name := found["name"]:
        kind = TokenKind.SIGN if name in _WORD_OPERATORS else TokenKind.NAME
        return ExpressionToken(kind, name, found.start("name"), name)
    sign = found["sign"]
    return ExpressionToken(TokenKind.SIGN, _CANONICAL_SIGNS.get(sign, sign), found.start("sign"))


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


_MAX_NODES = 300
_MAX_NESTING = 30
_MAX_CHAIN = 30
_NAMESPACES = {"Math", "Date"}


class ExpressionOp(Enum):
    """The operation of an expression node."""

    VALUE = auto()
    NAME = auto()
    LIST = auto()
    MEMBER = auto()
    CALL = auto()
    UNARY = auto()
    ARITHMETIC = auto()
    COMPARE = auto()
    AND = auto()
    OR = auto()
    CONDITIONAL = auto()


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """`value` is a literal, a name, a function, or the operators between the operands."""

    op: ExpressionOp
    value: Any = None
    operands: tuple[ExpressionNode, ...] = ()


def parse_expression(text: str) -> ExpressionNode:
    """Raises ExpressionSyntaxError for invalid, too long or too deeply nested text."""
    return _ExpressionParser(tokenize(text)).parse()


def walk_nodes(node: ExpressionNode) -> Iterator[ExpressionNode]:
    open_ = [node]
    while open_:
        node = open_.pop()
        yield node
        open_.extend(node.operands)


class _ExpressionParser:
    def __init__(self, tokens: Sequence[ExpressionToken]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._node_count = 0

    def parse(self) -> ExpressionNode:
        node = self._parse_conditional()
        if self._current.kind is not TokenKind.END:
            raise self._unexpected(self._current)
        return node

    def _parse_conditional(self) -> ExpressionNode:
        with self._nesting():
            node = self._parse_chain(ExpressionOp.OR, ("or",), self._parse_and)
            if self._take_if("?"):
                yes = self._parse_conditional()
                self._expect(":")
                no = self._parse_conditional()
                node = self._make_node(ExpressionOp.CONDITIONAL, None, node, yes, no)
            return node

    def _parse_and(self) -> ExpressionNode:
        return self._parse_chain(ExpressionOp.AND, ("and",), self._parse_equality)

    def _parse_equality(self) -> ExpressionNode:
        """Left-associative: `a == b == c` compares the result of the first comparison."""
        node, steps = self._parse_comparison(), 0
        while sign := self._take_if("==", "!="):
            self._check_chain(steps := steps + 1)
            node = self._make_node(ExpressionOp.COMPARE, (sign,), node, self._parse_comparison())
        return node

    def _parse_comparison(self) -> ExpressionNode:
        """Chained comparisons must all hold: `0 < x <= 10`."""
        parts, signs = [self._parse_sum()], list[str]()
        while sign := self._take_comparison_sign():
            signs.append(sign)
            parts.append(self._parse_sum())
        return self._make_node(ExpressionOp.COMPARE, tuple(signs), *parts) if signs else parts[0]

    def _take_comparison_sign(self) -> str:
        if self._is_sign("not") and self._tokens[self._position + 1].text == "in":
            self._position += 2
            return "not in"
        return self._take_if("<", "<=", ">", ">=", "in")

    def _parse_sum(self) -> ExpressionNode:
        return self._parse_chain(ExpressionOp.ARITHMETIC, ("+", "-"), self._parse_product)

    def _parse_product(self) -> ExpressionNode:
        return self._parse_chain(ExpressionOp.ARITHMETIC, ("*", "/", "%"), self._parse_unary)

    def _parse_unary(self) -> ExpressionNode:
        if sign := self._take_if("not", "-", "+"):
            with self._nesting():
                return self._make_node(ExpressionOp.UNARY, sign, self._parse_unary())
        node = self._parse_postfix()
        if not self._take_if("^"):
            return node
        with self._nesting():
            return self._make_node(ExpressionOp.ARITHMETIC, ("^",), node, self._parse_unary())

    def _parse_postfix(self) -> ExpressionNode:
        node, steps = self._parse_primary(), 0
        while sign := self._take_if(".", "["):
            self._check_chain(steps := steps + 1)
            if sign == ".":
                node = self._parse_member(node)
            else:
                node = self._make_node(ExpressionOp.MEMBER, None, node, self._parse_conditional())
                self._expect("]")
        return node

    def _parse_member(self, whole: ExpressionNode) -> ExpressionNode:
        word = self._take()
        if not word.member_name:
            why = "a name is missing after a dot"
            raise ExpressionSyntaxError("no_member", why, word.at, written=word.text)
        if not self._take_if("("):
            key = self._make_node(ExpressionOp.VALUE, word.member_name)
            return self._make_node(ExpressionOp.MEMBER, None, whole, key)
        parts = self._parse_items(")")
        if whole.op is ExpressionOp.NAME and whole.value in _NAMESPACES:
            return self._make_call(FUNCTIONS, word, parts)
        return self._make_call(METHODS, word, [whole, *parts])

    def _parse_primary(self) -> ExpressionNode:
        word = self._take()
        match word.kind:
            case TokenKind.NUMBER:
                return self._make_node(ExpressionOp.VALUE, _number(word))
            case TokenKind.TEXT:
                return self._make_node(ExpressionOp.VALUE, word.text)
            case TokenKind.NAME if self._take_if("("):
                return self._make_call(FUNCTIONS, word, self._parse_items(")"))
            case TokenKind.NAME:
                return self._make_node(ExpressionOp.NAME, word.text)
            case TokenKind.SIGN if word.text == "[":
                return self._make_node(ExpressionOp.LIST, None, *self._parse_items("]"))
            case TokenKind.SIGN if word.text == "(":
                node = self._parse_conditional()
                self._expect(")")
                return node
            case _:
                raise self._unexpected(word)

    def _make_call(
        self,
        known: Mapping[str, ExpressionFunction],
        word: ExpressionToken,
        parts: Sequence[ExpressionNode],
    ) -> ExpressionNode:
        name = word.text
        function = known.get(name)
        if function is None:
            why = f"there is no function {name!r}"
            alike = next(iter(get_close_matches(name, known, n=1)), "")
            raise ExpressionSyntaxError(
                "no_function", why, word.at, written=name[:40], suggestion=alike
            )
        most = len(parts) if function.most is None else function.most
        if not function.least <= len(parts) <= most:
            why = f"{name}() does not take that many values"
            raise ExpressionSyntaxError("wrong_number", why, word.at, written=name)
        return self._make_node(ExpressionOp.CALL, function, *parts)

    def _parse_items(self, close: str) -> list[ExpressionNode]:
        items: list[ExpressionNode] = []
        while not self._take_if(close):
            if items:
                self._expect(",")
            items.append(self._parse_conditional())
        return items

    def _parse_chain(
        self, op: ExpressionOp, signs: tuple[str, ...], part: Callable[[], ExpressionNode]
    ) -> ExpressionNode:
        """Operands separated by operators of one rank; a long chain is one node, so it adds no
        depth."""
        parts, between = [part()], list[str]()
        while sign := self._take_if(*signs):
            between.append(sign)
            parts.append(part())
        return self._make_node(op, tuple(between), *parts) if between else parts[0]

    @property
    def _current(self) -> ExpressionToken:
        return self._tokens[self._position]

    def _is_sign(self, sign: str) -> bool:
        return self._current.kind is TokenKind.SIGN and self._current.text == sign

    def _take(self) -> ExpressionToken:
        word = self._current
        if word.kind is TokenKind.END:
            raise self._unexpected(word)
        self._position += 1
        return word

    def _take_if(self, *signs: str) -> str:
        """Take the next token if it is one of these signs; empty if it is not."""
        return self._take().text if any(map(self._is_sign, signs)) else ""

    def _expect(self, sign: str) -> None:
        if not self._take_if(sign):
            word = self._current
            why = f"{sign!r} is missing before {word.text[:20]!r}"
            raise ExpressionSyntaxError("sign_missing", why, word.at, sign=sign)

    def _make_node(self, op: ExpressionOp, value: Any, *parts: ExpressionNode) -> ExpressionNode:
        self._node_count += 1
        if self._node_count > _MAX_NODES:
            raise self._at_current("too_long", "it is too long")
        return ExpressionNode(op, value, parts)

    @contextmanager
    def _nesting(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise self._at_current("too_deep", "it is nested too deeply")
        yield
        self._depth -= 1

    def _check_chain(self, steps: int) -> None:
        if steps > _MAX_CHAIN:
            raise self._at_current("too_long", "it is too long")

    def _at_current(self, key: str, why: str) -> ExpressionSyntaxError:
        return ExpressionSyntaxError(key, why, self._current.at)

    def _unexpected(self, word: ExpressionToken) -> ExpressionSyntaxError:
        if word.kind is TokenKind.END:
            return ExpressionSyntaxError("unfinished", f"{word.text!r} is unexpected", word.at)
        shown = word.text[:20]
        return ExpressionSyntaxError(
            "unexpected", f"{shown!r} is unexpected", word.at, written=shown
        )


def _number(word: ExpressionToken) -> float | int:
    try:
        return normalize_number(float(word.text))
    except BadExpression as error:
        raise ExpressionSyntaxError(
            "too_large", str(error), word.at, written=word.text[:20]
        ) from error
