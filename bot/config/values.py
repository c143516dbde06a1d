"""Kinds of single settings: their forms and ranges, wherever they are set."""

from __future__ import annotations

import math
import re
from datetime import time
from itertools import pairwise
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    Field,
)

from storage.records.people import Channel
from storage.records.usage import parse_cap

TURNS_RANGE = 1, 500
TOKENS_RANGE = 1_000, 2_000_000
SECONDS_RANGE = 10, 86_400

StepTurns = Annotated[int, Field(ge=TURNS_RANGE[0], le=TURNS_RANGE[1])]
StepTokens = Annotated[int, Field(ge=TOKENS_RANGE[0], le=TOKENS_RANGE[1])]
StepSeconds = Annotated[float, Field(ge=SECONDS_RANGE[0], le=SECONDS_RANGE[1])]


def check_zone(name: str) -> str:
    if name:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"there is no time zone {name!r}; try Asia/Shanghai") from error
    return name


def check_holidays(region: str) -> str:
    if region:
        # An extra, and imported only where it is set.
        try:
            from holidays import country_holidays
        except ImportError as error:
            raise ValueError("run pip install 'shiftboss[holidays]', or leave it empty") from error
        country, _, part = region.partition("-")
        try:
            country_holidays(country, subdiv=part or None)
        except NotImplementedError as error:
            raise ValueError(
                f"no holidays are known for {region!r}; name a country such as CN, US or DE, or a"
                " part of one such as DE-BY, or leave it empty"
            ) from error
    return region


_ACCOUNT_FORMATS = {
    Channel.TELEGRAM.value: re.compile(r"[1-9][0-9]*"),
    Channel.FEISHU.value: re.compile(r"ou_\w+"),
}


DATABASE_FORMS = "give sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def check_database_url(url: str) -> str:
    if url:
        # Loaded only where it is set.
        from storage.migrate import is_database_url

        if not is_database_url(url):
            # Not what is there: it may have a password.
            raise ValueError(f"leave it empty, or {DATABASE_FORMS}")
    return url


def check_owners(text: str) -> str:
    for each in filter(None, (part.strip() for part in text.split(","))):
        channel, _, external_id = (part.strip() for part in each.partition(":"))
        # A user name would silently match no account.
        form = _ACCOUNT_FORMATS.get(channel)
        if form is None or not form.fullmatch(external_id):
            raise ValueError(f"{each!r} is not of the form telegram:123 or feishu:ou_x")
    return text


def check_model(name: str) -> str:
    backend, _, model = name.partition(":")
    if (
        name
        and name not in {"offline", "auto"}
        and not (backend in {"anthropic", "openai", "acp"} and model)
    ):
        form = "anthropic:<model>, openai:<model>, acp:<name> or offline"
        raise ValueError(f"{name!r} is not of the form {form}")
    return name


def check_models(text: str) -> str:
    for name in split_list(text):
        check_model(name)
    return text


def check_folders(text: str) -> str:
    for each in split_list(text):
        if not each.startswith(("/", "~/")):
            raise ValueError(f"{each!r} is not an absolute path")
    return text


def split_list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


_MIN_TOKEN_CHARS = 16


def token_bits(token: str) -> float:
    """Estimate how hard a token is to guess, low rather than high: neither repetitions nor
    sequences such as 0123 count."""
    length = len(token)
    period = next(n for n in range(1, length + 2) if token == (token[:n] * length)[:length])
    text = token[:period]
    counted = text[:1] + "".join(b for a, b in pairwise(text) if abs(ord(a) - ord(b)) > 1)
    if len(counted) < _MIN_TOKEN_CHARS:
        return 0.0
    return len(counted) * math.log2(len(set(counted)))


def _check_url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return text.rstrip("/")


_DAY_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*[-–]\s*([01]?\d|2[0-3]):([0-5]\d)")


def parse_day_hours(text: str) -> tuple[time, time] | None:
    """Parse `23:00-08:00`; None if empty. Raises ValueError."""
    if not text.strip():
        return None
    found = _DAY_HOURS.fullmatch(text.strip())
    if found is None or found.group(1, 2) == found.group(3, 4):
        raise ValueError(f"{text!r} is not of the form 23:00-08:00")
    a, b, c, d = map(int, found.groups())
    return time(a, b), time(c, d)


def _check_day_hours(text: str) -> str:
    parse_day_hours(text)
    return text


def _check_cap(text: str) -> str:
    parse_cap(text)
    return text


Url = Annotated[str, AfterValidator(_check_url)]
DayHours = Annotated[str, AfterValidator(_check_day_hours)]
CapText = Annotated[str, AfterValidator(_check_cap)]
