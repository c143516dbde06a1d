"""Prices model usage by the user's price table or published prices."""

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

from bot.engine.llm.backend import TokenUsage

PRICES_FILE = "prices.yaml"
_PRICE_FIELDS = ("input", "output", "cache_read", "cache_write")
_REQUIRED_FIELDS = ("input", "output")
_MILLION = 1_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """Prices in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def cost_of(self, usage: TokenUsage) -> Decimal:
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        dollars = (
            self.input * max(0, plain)
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * usage.cache_write_tokens
            + self.output * usage.output_tokens
        )
        return dollars / _MILLION

    def max_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        read = max(self.input, self.cache_read, self.cache_write)
        return (read * input_tokens + self.output * output_tokens) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Custom prices by model name or glob.

    `base_urls` are the backends' addresses, because published prices differ by provider; `errors`
    list the problems found in the price file."""

    custom_prices: Mapping[str, ModelPrice] = field(default_factory=dict)
    base_urls: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    def cost(self, backend: str, model: str, usage: TokenUsage) -> Decimal | None:
        """Return the cost in US dollars; None if the price is unknown."""
        own = self._custom_price(backend, model)
        if own is not None:
            return own.cost_of(usage)
        if not usage.estimated_input and not usage.estimated_output:
            return usage.cost
        guessed = self.max_cost(backend, model, usage.estimated_input, usage.estimated_output)
        return usage.cost if guessed is None else (usage.cost or Decimal(0)) + guessed

    def max_cost(
        self, backend: str, model: str, input_tokens: int, output_tokens: int
    ) -> Decimal | None:
        """Return the maximum cost of such a call, whatever its cache use."""
        own = self._custom_price(backend, model)
        if own is not None:
            return own.max_cost(input_tokens, output_tokens)
        return _published_max_cost(
            backend, model, self.base_urls.get(backend, ""), input_tokens, output_tokens
        )

    def max_rates(
        self, backend: str, model: str, input_tokens: int
    ) -> tuple[Decimal, Decimal] | None:
        """Return the maximum cost of the input, in US dollars, and of a million output tokens after
        it; None if the price is unknown."""
        read = self.max_cost(backend, model, input_tokens, 0)
        whole = self.max_cost(backend, model, input_tokens, _MILLION)
        return None if read is None or whole is None else (read, whole - read)

    def _custom_price(self, backend: str, model: str) -> ModelPrice | None:
        """Exact names take precedence over globs; globs apply in file order."""
        names = (model.lower(), f"{backend}:{model}".lower())
        exact = next(
            (self.custom_prices[name] for name in names if name in self.custom_prices), None
        )
        if exact is not None or not model:
            return exact
        fitting = (
            price
            for pattern, price in self.custom_prices.items()
            if any(fnmatchcase(name, pattern) for name in names)
        )
        return next(fitting, None)


def load_prices(path: Path, base_urls: Mapping[str, str]) -> PriceTable:
    """Load the price table; log and skip invalid entries."""
    own: dict[str, ModelPrice] = {}
    faults: list[str] = []
    for name, entry in _read_entries(path, faults).items():
        values, wrong = _validate_entry(entry)
        if wrong:
            faults += [f"{path.name}: {name}: {each}" for each in wrong]
            continue
        plain = values["input"]
        own[name.lower()] = ModelPrice(
            input=plain,
            output=values["output"],
            cache_read=values.get("cache_read", plain),
            cache_write=values.get("cache_write", plain),
        )
    for fault in faults:
        log.warning("%s; entry skipped", fault)
    return PriceTable(custom_prices=own, base_urls=base_urls, errors=tuple(faults))


def _read_entries(path: Path, faults: list[str]) -> Mapping[str, Any]:
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


def _validate_entry(entry: object) -> tuple[dict[str, Decimal], list[str]]:
    """Return the prices of an entry and its errors."""
    if not isinstance(entry, dict):
        return {}, ["must hold input and output, in US dollars for a million tokens"]
    values: dict[str, Decimal] = {}
    wrong = [f"{name} is missing" for name in _REQUIRED_FIELDS if name not in entry]
    for name, value in entry.items():
        if name not in _PRICE_FIELDS:
            wrong.append(f"{name} is unknown; there are {', '.join(_PRICE_FIELDS)}")
        elif (number := _parse_price(value)) is None:
            wrong.append(f"{name} must be US dollars for a million tokens, 0 or more")
        else:
            values[str(name)] = number
    return values, wrong


def _parse_price(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None


def _published_max_cost(
    backend: str, model: str, url: str, input_tokens: int, output_tokens: int
) -> Decimal | None:
    # Importing the price table is slow; the model backends load it anyway.
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


def published_context_window(backend: str, model: str, url: str) -> int:
    """Return the model's published context window in tokens; 0 if unknown. Blocking.

    With a custom `url` only that provider's entries count."""
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    if not model:
        return 0
    with suppress(LookupError, ValueError):
        if url:
            return calc_price(Priced(), model, provider_api_url=url).model.context_window or 0
        return calc_price(Priced(), model, provider_id=backend).model.context_window or 0
    return 0
