"""What an expression's words come to: a tree of forms, each with its parts.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bot.engine.workflow.expressions.operations import FUNCTIONS, METHODS
from bot.engine.workflow.expressions.values import within
from bot.engine.workflow.expressions.words import END, Kind, Word, words_of
from bot.engine.workflow.expressions.wrong import BadExpression

_MOST_FORMS = 300
_MOST_NESTED = 30
_MOST_STEPS = 30
_NAMESPACES = {"Math", "Date"}


class Act(Enum):
    """What a form does with its parts."""

    VALUE = auto()
    NAME = auto()
    LIST = auto()
    PART = auto()
    CALL = auto()
    METHOD = auto()
    SIGN = auto()
    RECKON = auto()
    COMPARE = auto()
    BOTH = auto()
    EITHER = auto()
    CHOICE = auto()


@dataclass(frozen=True, slots=True)
class Form:
    """`told` is its value, its name, or the signs between its parts."""

    act: Act
    told: Any = None
    parts: tuple[Form, ...] = ()


def form_of(text: str) -> Form:
    """Raises BadExpression for all that is no expression, however long or deep."""
    reader = _Reader(words_of(text))
    form = reader.choice()
    reader.end()
    return form


def forms_in(form: Form) -> Iterator[Form]:
    open_ = [form]
    while open_:
        form = open_.pop()
        yield form
        open_.extend(form.parts)


class _Reader:
    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words
        self._at = 0
        self._nested = 0
        self._made = 0

    def end(self) -> None:
        if self._next is not END:
            raise self._wrong()

    def choice(self) -> Form:
        self._deeper()
        form = self._row(Act.EITHER, ("or",), self._both)
        if self._takes("?"):
            yes = self.choice()
            self._expect(":")
            form = self._form(Act.CHOICE, None, form, yes, self.choice())
        self._nested -= 1
        return form

    def _both(self) -> Form:
        return self._row(Act.BOTH, ("and",), self._equal)

    def _equal(self) -> Form:
        """From left to right: `a == b == c` compares what the first comparison gives."""
        form = self._order()
        steps = 0
        while self._next.kind is Kind.SIGN and self._next.said in {"==", "!="}:
            sign, steps = self._take().said, steps + 1
            self._short(steps)
            form = self._form(Act.COMPARE, (sign,), form, self._order())
        return form

    def _order(self) -> Form:
        """All of them have to hold: `0 < x <= 10`."""
        parts, signs = [self._sum()], list[str]()
        while (sign := self._ordering()) is not None:
            signs.append(sign)
            parts.append(self._sum())
        return self._form(Act.COMPARE, tuple(signs), *parts) if signs else parts[0]

    def _ordering(self) -> str | None:
        for sign in ("<", "<=", ">", ">=", "in"):
            if self._takes(sign):
                return sign
        if self._is("not") and self._words[self._at + 1].said == "in":
            self._at += 2
            return "not in"
        return None

    def _sum(self) -> Form:
        return self._row(Act.RECKON, ("+", "-"), self._product)

    def _product(self) -> Form:
        return self._row(Act.RECKON, ("*", "/", "%"), self._signed)

    def _signed(self) -> Form:
        for sign in ("not", "-", "+"):
            if self._takes(sign):
                self._deeper()
                form = self._form(Act.SIGN, sign, self._signed())
                self._nested -= 1
                return form
        return self._power()

    def _power(self) -> Form:
        form = self._whole()
        if not self._takes("^"):
            return form
        self._deeper()
        form = self._form(Act.RECKON, ("^",), form, self._signed())
        self._nested -= 1
        return form

    def _whole(self) -> Form:
        form, steps = self._first(), 0
        while self._is(".") or self._is("["):
            steps += 1
            self._short(steps)
            if self._takes("["):
                form = self._form(Act.PART, None, form, self.choice())
                self._expect("]")
            else:
                self._take()
                form = self._member(form)
        return form

    def _member(self, whole: Form) -> Form:
        word = self._take()
        if not word.named:
            raise BadExpression("a name is missing behind a point")
        if not self._takes("("):
            return self._form(Act.PART, None, whole, self._form(Act.VALUE, word.named))
        parts = self._items(")")
        if whole.act is Act.NAME and whole.told in _NAMESPACES:
            return self._call(word.said, parts)
        if word.said not in METHODS:
            raise BadExpression(f"there is no function {word.said!r}")
        METHODS[word.said].fits(len(parts) + 1)
        return self._form(Act.METHOD, word.said, whole, *parts)

    def _first(self) -> Form:
        word = self._take()
        match word.kind:
            case Kind.NUMBER:
                return self._form(Act.VALUE, within(float(word.said)))
            case Kind.TEXT:
                return self._form(Act.VALUE, word.said)
            case Kind.NAME if self._takes("("):
                return self._call(word.said, self._items(")"))
            case Kind.NAME:
                return self._form(Act.NAME, word.said)
            case Kind.SIGN if word.said == "[":
                return self._form(Act.LIST, None, *self._items("]"))
            case Kind.SIGN if word.said == "(":
                form = self.choice()
                self._expect(")")
                return form
            case _:
                raise self._wrong(word)

    def _call(self, name: str, parts: Sequence[Form]) -> Form:
        if name not in FUNCTIONS:
            raise BadExpression(f"there is no function {name!r}")
        FUNCTIONS[name].fits(len(parts))
        return self._form(Act.CALL, name, *parts)

    def _items(self, close: str) -> list[Form]:
        items: list[Form] = []
        while not self._takes(close):
            if items:
                self._expect(",")
            items.append(self.choice())
        return items

    def _row(self, act: Act, signs: tuple[str, ...], part: Callable[[], Form]) -> Form:
        """Parts with signs of one rank between them, which are no deeper for being many."""
        parts, between = [part()], list[str]()
        while self._next.kind is Kind.SIGN and self._next.said in signs:
            between.append(self._take().said)
            parts.append(part())
        return self._form(act, tuple(between), *parts) if between else parts[0]

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _is(self, sign: str) -> bool:
        return self._next.kind is Kind.SIGN and self._next.said == sign

    def _take(self) -> Word:
        word = self._next
        if word is END:
            raise self._wrong()
        self._at += 1
        return word

    def _takes(self, sign: str) -> bool:
        found = self._is(sign)
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise BadExpression(f"{sign!r} is missing before {self._next.said[:20]!r}")

    def _form(self, act: Act, told: Any, *parts: Form) -> Form:
        self._made += 1
        if self._made > _MOST_FORMS:
            raise BadExpression("it is too long")
        return Form(act, told, parts)

    def _deeper(self) -> None:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise BadExpression("it is nested too deeply")

    def _short(self, steps: int) -> None:
        if steps > _MOST_STEPS:
            raise BadExpression("it is too long")

    def _wrong(self, word: Word | None = None) -> BadExpression:
        return BadExpression(f"{(word or self._next).said[:20]!r} is not expected there")
