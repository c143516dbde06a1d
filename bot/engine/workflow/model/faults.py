"""What is wrong with a workflow: each fault with its node and field, all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`where` is the node or edge, empty for the whole; `field` a part of it. `key` is a text of
    the catalogue under `workflow.fault`, with its facts."""

    key: str
    where: str = ""
    field: str = ""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        place = ".".join(filter(None, (self.where, self.field)))
        told = ", ".join(f"{name} {value!r}" for name, value in self.facts.items())
        return " ".join(filter(None, (place + ":" if place else "", self.key, told)))


class BadGraph(ValueError):
    """The workflow cannot be run. `faults` names every reason."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))
