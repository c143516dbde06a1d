"""Invented conversations with questions, and which of their lines answer them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "talks"
LATER = datetime(2026, 5, 1, 12, tzinfo=UTC)
_MARK = re.compile(r"\s*\{(\w+)\}$")


@dataclass(frozen=True, slots=True)
class SampleTurn:
    mark: str
    sender: str
    text: str
    thread: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """`now` is when it is asked."""

    text: str
    answers: frozenset[str]
    now: datetime


@dataclass(slots=True)
class SampleConversation:
    name: str
    turns: list[SampleTurn] = field(default_factory=list)
    questions: list[SampleQuestion] = field(default_factory=list)


def load_conversations() -> list[SampleConversation]:
    return [_read(path) for path in sorted(FOLDER.glob("*.txt"))]


def _read(path: Path) -> SampleConversation:
    talk, thread, at = SampleConversation(path.stem), "", LATER
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("=="):
            thread = line.removeprefix("==").strip()
            at = datetime.fromisoformat(thread).replace(tzinfo=UTC)
        elif line.startswith("?"):
            marks, _, text = line.removeprefix("?").partition("|")
            *asked, rest = marks.rpartition("@")
            now = datetime.fromisoformat(rest.split()[0]) if asked[1] else LATER
            answers = frozenset((asked[0] if asked[1] else rest).split())
            talk.questions.append(SampleQuestion(text.strip(), answers, now.replace(tzinfo=UTC)))
        elif not line.startswith("#"):
            mark = _MARK.search(line)
            sender, _, text = _MARK.sub("", line).partition(": ")
            name = mark[1] if mark else f"line {len(talk.turns)}"
            talk.turns.append(SampleTurn(name, sender, text.replace("／", "\n"), thread, at))
    return talk
