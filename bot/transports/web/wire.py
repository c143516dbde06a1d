"""What a page may send: parsed once, here."""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

LONGEST_TEXT = 400_000
MOST_FILES = 10

_Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]
_Short: TypeAlias = Annotated[str, Field(max_length=64)]


class _Frame(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class SayFrame(_Frame):
    """`id` is the page's own: the same id again is the same message, sent twice."""

    type: Literal["say"]
    id: _Id
    text: str = Field(default="", max_length=LONGEST_TEXT)
    files: tuple[_Id, ...] = Field(default=(), max_length=MOST_FILES)


class PressFrame(_Frame):
    """`card` is the id of the item the button stands on."""

    type: Literal["press"]
    id: _Id
    card: _Short = ""
    token: _Short
    value: str = Field(default="", max_length=2_000)
    form: dict[_Short, Annotated[str, Field(max_length=LONGEST_TEXT)]] = Field(
        default_factory=dict, max_length=20
    )


PageFrame: TypeAlias = SayFrame | PressFrame

_FRAMES: TypeAdapter[PageFrame] = TypeAdapter(
    Annotated[SayFrame | PressFrame, Field(discriminator="type")]
)


class BadFrame(Exception):
    """Not something our page sends. The text names what is wrong and quotes nothing."""


def parse(raw: str) -> PageFrame:
    """Lone surrogates, which JSON can spell and nothing can store, become `?`."""
    try:
        whole = json.dumps(json.loads(raw), ensure_ascii=False).encode("utf-8", "replace")
        return _FRAMES.validate_json(whole)
    except ValidationError as problem:
        places = sorted({".".join(map(str, error["loc"])) for error in problem.errors()})
        raise BadFrame(f"wrong at {', '.join(places) or 'the top'}") from problem
    except (ValueError, RecursionError) as problem:
        raise BadFrame("not JSON") from problem
