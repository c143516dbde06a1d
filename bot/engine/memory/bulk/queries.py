"""Questions to memory, many at once, and what was found for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from bot.engine.memory.bulk.rows import GIVEN_ID, GivenId, lines_of, why
from storage.records.memory.shown import FoundEntry


class Query(BaseModel):
    """Lines of other programs call it otherwise, or are nothing but the words."""

    model_config = ConfigDict(coerce_numbers_to_str=True, frozen=True, populate_by_name=True)

    query: Annotated[
        str,
        StringConstraints(max_length=10_000),
        Field(validation_alias=AliasChoices("query", "question", "q", "text")),
    ]
    id: GivenId = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, line: object) -> object:
        return {"query": line} if isinstance(line, str) else line


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A line that is no query."""

    number: int
    why: str

    def plain(self) -> dict[str, Any]:
        return {"id": None, "error": f"line {self.number}: {self.why}", "results": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    query: Query
    hits: Sequence[FoundEntry]

    def plain(self, *, whole: bool = False) -> dict[str, Any]:
        """`whole` has what was found besides its ids and scores."""
        told = {} if self.query.id is None else {"id": self.query.id}
        results = [_plain(hit, whole=whole) for hit in self.hits]
        return {**told, "query": self.query.query, "results": results}


def queries_of(file: BinaryIO) -> Iterator[Query | Unreadable]:
    """Of every line that is not empty."""
    for number, line in lines_of(file):
        if not line.strip():
            continue
        try:
            yield Query.model_validate_json(line)
        except ValidationError as error:
            yield Unreadable(number=number, why=why(error))


def compact(plain: Any) -> str:
    """On one line, whatever it says."""
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(hit: FoundEntry, *, whole: bool) -> dict[str, Any]:
    entry = hit.entry
    given = entry.extra.get(GIVEN_ID)
    found = {"id": entry.id if given is None else given, "score": round(hit.score, 6)}
    if not whole:
        return found
    return {
        **found,
        "entry": entry.id,
        "scope": str(entry.scope),
        "kind": entry.kind.value,
        "text": entry.text,
        "sender": entry.sender,
        "at": entry.said_at.isoformat(),
        "thread": entry.thread,
        "parts": dict(hit.parts),
    }
