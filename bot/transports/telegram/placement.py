"""Where the messages of a letter are: what the outbox keeps for us between two deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.messages import Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One message on the platform. `digest` is of what it shows, empty when unknown. Message ids
    count per chat: in the supergroup a group became, the same id is somebody else's message."""

    message_id: str
    chat: int
    digest: str = ""
    kind: str = "text"

    @property
    def is_text(self) -> bool:
        return self.kind == "text"


def as_placed(shown: Sequence[Shown]) -> Placed:
    return Placed(
        message_ids=tuple(one.message_id for one in shown),
        state={"shown": [[one.kind, one.digest, one.chat] for one in shown]},
    )


def read_placed(placed: Placed | None, chat: int) -> tuple[Shown, ...]:
    """What was placed; from a state nobody understands at least the messages, taken to be in
    `chat`."""
    if placed is None:
        return ()
    ids = [one for one in placed.message_ids if one.isdecimal()]
    rows = placed.state.get("shown")
    if not isinstance(rows, list) or len(rows) != len(ids) or not all(map(_is_row, rows)):
        rows = [["text", "", chat]] * len(ids)
    return tuple(
        Shown(message_id=one, kind=str(kind), digest=str(digest), chat=int(where))
        for one, (kind, digest, where) in zip(ids, rows, strict=True)
    )


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) and [type(cell) for cell in row] == [str, str, int]
