"""What models cost: the Boss's own table first, else the published prices."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from bot.engine.llm.base import Usage

PRICES_FILE = "prices.yaml"
_FIELDS = ("input", "output", "cache_read", "cache_write")
_NEEDED = ("input", "output")
_MILLION = 1_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def of(self, usage: Usage) -> Decimal:
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        dollars = (
            self.input * max(0, plain)
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * usage.cache_write_tokens
            + self.output * usage.output_tokens
        )
        return dollars / _MILLION

    def most(self, input_tokens: int, output_tokens: int) -> Decimal:
        read = max(self.input, self.cache_read, self.cache_write)
        return (read * input_tokens + self.output * output_tokens) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """`own` prices by the model's name, or a pattern of it; `urls` say at which address each
    backend's models are served, for the published prices differ by that; `faults` are what was
    wrong with the table."""

    own: Mapping[str, Price] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def cost(self, backend: str, model: str, usage: Usage) -> Decimal | None:
        """What this cost; None where nobody knows the price."""
        own = self._own(backend, model)
        if own is not None:
            return own.of(usage)
        if not usage.guessed_input and not usage.guessed_output:
            return usage.cost
        guessed = self.most(backend, model, usage.guessed_input, usage.guessed_output)
        return usage.cost if guessed is None else (usage.cost or Decimal(0)) + guessed

    def most(
        self, backend: str, model: str, input_tokens: int, output_tokens: int
    ) -> Decimal | None:
        """The most that such a call can cost, however much of it is new to the cache."""
        own = self._own(backend, model)
        if own is not None:
            return own.most(input_tokens, output_tokens)
        return _published(backend, model, self.urls.get(backend, ""), input_tokens, output_tokens)

    def _own(self, backend: str, model: str) -> Price | None:
        """An exact name goes before a pattern, and a pattern before those further down."""
        names = (model.lower(), f"{backend}:{model}".lower())
        exact = next((self.own[name] for name in names if name in self.own), None)
        if exact is not None or not model:
            return exact
        fitting = (
            price
            for pattern, price in self.own.items()
            if any(fnmatchcase(name, pattern) for name in names)
        )
        return next(fitting, None)


def read_prices(path: Path, urls: Mapping[str, str]) -> Prices:
    """The table in the data directory. What is wrong with it is left out, told and logged."""
    own: dict[str, Price] = {}
    faults: list[str] = []
    for name, entry in _entries(path, faults).items():
        values, wrong = _checked(entry)
        if wrong:
            faults += [f"{path.name}: {name}: {each}" for each in wrong]
            continue
        plain = values["input"]
        own[name.lower()] = Price(
            input=plain,
            output=values["output"],
            cache_read=values.get("cache_read", plain),
            cache_write=values.get("cache_write", plain),
        )
    for fault in faults:
        log.warning("%s; this entry is left out", fault)
    return Prices(own=own, urls=urls, faults=tuple(faults))


def _entries(path: Path, faults: list[str]) -> Mapping[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        faults.append(f"{path.name}: cannot be read as YAML{where}")
        return {}
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        faults.append(f"{path.name}: must hold prices by model")
        return {}
    return {str(name): entry for name, entry in loaded.items()}


def _checked(entry: object) -> tuple[dict[str, Decimal], list[str]]:
    """The numbers of one entry, or what is wrong with them."""
    if not isinstance(entry, dict):
        return {}, ["must hold input and output, in US dollars for a million tokens"]
    values: dict[str, Decimal] = {}
    wrong = [f"{name} is missing" for name in _NEEDED if name not in entry]
    for name, value in entry.items():
        if name not in _FIELDS:
            wrong.append(f"{name} is unknown; there are {', '.join(_FIELDS)}")
        elif (number := _number(value)) is None:
            wrong.append(f"{name} must be US dollars for a million tokens, 0 or more")
        else:
            values[str(name)] = number
    return values, wrong


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None


def _published(
    backend: str, model: str, url: str, input_tokens: int, output_tokens: int
) -> Decimal | None:
    # A large table: only for those who really use a model, and theirs has loaded it already.
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    found: list[Decimal] = []
    for cached in (0, input_tokens):
        usage = Priced(
            input_tokens=input_tokens, cache_write_tokens=cached, output_tokens=output_tokens
        )
        with suppress(LookupError, ValueError):
            found.append(calc_price(usage, model, provider_id=backend).total_price)
        if url:
            with suppress(LookupError, ValueError):
                found.append(calc_price(usage, model, provider_api_url=url).total_price)
    return max(found, default=None)


def published_window(backend: str, model: str, url: str) -> int:
    """How many tokens it can take all together, by the same table; 0 where that is not known. An
    address of one's own serves what it likes under whatever name. Blocking."""
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    if not model:
        return 0
    with suppress(LookupError, ValueError):
        if url:
            return calc_price(Priced(), model, provider_api_url=url).model.context_window or 0
        return calc_price(Priced(), model, provider_id=backend).model.context_window or 0
    return 0
