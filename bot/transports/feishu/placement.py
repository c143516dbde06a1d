"""What is remembered with a placed letter, in a form that survives a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from storage.records.messages import Placed


class PartKind(StrEnum):
    """How a part can be changed: through CardKit, by PATCH, or as edited text."""

    ENTITY = "entity"
    CARD = "card"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    kind: PartKind
    message_id: str
    card_id: str = ""
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class Placement:
    """`files` and `images` map paths to what they became on the platform."""

    parts: list[Part] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)

    def placed(self) -> Placed:
        ids = [part.message_id for part in self.parts] + list(self.files.values())
        return Placed(
            message_ids=tuple(ids),
            state={
                "parts": [
                    {"k": p.kind.value, "m": p.message_id, "c": p.card_id, "s": p.sequence}
                    for p in self.parts
                ],
                "files": dict(self.files),
                "images": dict(self.images),
            },
        )


def read_placement(placed: Placed | None) -> Placement:
    """As much of a stored placement as still makes sense; plain cards where it is lost."""
    if placed is None:
        return Placement()
    files = _texts(placed.state.get("files"))
    stored = placed.state.get("parts")
    parts = [_part(one) for one in stored] if isinstance(stored, list) else []
    good = [part for part in parts if part is not None]
    if not good:
        sent = set(files.values())
        ids = [one for one in placed.message_ids if one not in sent]
        good = [Part(kind=PartKind.CARD, message_id=one) for one in ids]
    return Placement(parts=good, files=files, images=_texts(placed.state.get("images")))


def _part(stored: Any) -> Part | None:
    if not isinstance(stored, Mapping) or not stored.get("m"):
        return None
    kinds = {kind.value: kind for kind in PartKind}
    sequence = stored.get("s")
    return Part(
        kind=kinds.get(str(stored.get("k")), PartKind.CARD),
        message_id=str(stored["m"]),
        card_id=str(stored.get("c") or ""),
        sequence=sequence if isinstance(sequence, int) else 0,
    )


def _texts(stored: Any) -> dict[str, str]:
    if not isinstance(stored, Mapping):
        return {}
    return {str(key): str(value) for key, value in stored.items()}
