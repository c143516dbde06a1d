"""What must outlive a CLI's process: what was said, for those that cannot resume, and the calls
that wait for a person."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.llm.calls import ToolCall, exact_hash

_TURN = 6_000
_ALL = 24_000
_MOST_WISHES = 200
_UNSAFE = re.compile(r"[^\w.-]")


def turn(*, prompt: str, answer: str, system: str) -> Mapping[str, Any]:
    """One entry of the session's history; `system` tells whether the same words stood first."""
    return {"cli": {"prompt": _short(prompt), "answer": _short(answer), "system": system}}


def told_again(history: Sequence[Any]) -> str:
    """For a session that is lost: what was said in it, the newest whole, the oldest left out."""
    told: list[str] = []
    for entry in reversed(history):
        said = entry.get("cli") if isinstance(entry, dict) else None
        if not isinstance(said, dict):
            continue
        told.append(f"You were asked:\n{said.get('prompt')}\n\nYou answered:\n{said.get('answer')}")
        if sum(map(len, told)) > _ALL:
            break
    if not told:
        return ""
    return "Earlier in this session:\n\n" + "\n\n---\n\n".join(reversed(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A call somebody is asked about. `exact` is the same for the same call only."""

    call_id: str
    name: str
    title: str
    detail: str
    exact: str


def exact(call: ToolCall) -> str:
    return exact_hash(call.name, call.arguments)


class WishBook:
    """The open wishes of one session, in a file: written before anybody is asked, so that they
    are known after a sudden end too. All methods block."""

    def __init__(self, folder: Path, session: str) -> None:
        self._folder = folder
        self._path = self._of(session)

    def take_over(self, session: str) -> None:
        """What is open in a session that is lost is open in this one, which stands for it."""
        if session and self._of(session) != self._path:
            with suppress(OSError):
                self._of(session).replace(self._path)

    def add(self, call: ToolCall) -> None:
        wishes = self.all()
        wishes[call.call_id] = Wish(
            call_id=call.call_id,
            name=call.name,
            title=call.title,
            detail=call.detail,
            exact=exact(call),
        )
        self._write(wishes)

    def all(self) -> dict[str, Wish]:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            loaded = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(key): Wish(**value) for key, value in loaded.items()}
        return {}

    def only(self, call_ids: Sequence[str]) -> dict[str, Wish]:
        """Those; all others are forgotten."""
        wishes = self.all()
        kept = {call_id: wishes[call_id] for call_id in call_ids if call_id in wishes}
        if kept != wishes:
            self._write(kept)
        return kept

    def _of(self, session: str) -> Path:
        return self._folder / f"{_UNSAFE.sub('_', session)[:100]}.json"

    def _write(self, wishes: Mapping[str, Wish]) -> None:
        kept = dict(list(wishes.items())[-_MOST_WISHES:])
        data = {
            key: {name: getattr(wish, name) for name in Wish.__slots__}
            for key, wish in kept.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps(data), encoding="utf-8")
        part.replace(self._path)


def _short(text: str) -> str:
    if len(text) <= _TURN:
        return text
    half = _TURN // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"
