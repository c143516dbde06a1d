"""What is typed in a shell, as the line that says the same in a chat: one grammar, one truth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from handlers.flags import quoted


def line(command: str, *parts: str) -> str:
    """Empty parts are left out. Only the last may be text of any kind."""
    return " ".join((f"/{command}", *filter(None, parts)))


def flag(name: str, value: str | int | None) -> str:
    """A flag with its value, whatever is in it; nothing where there is none."""
    return "" if value is None or value == "" else f"{name} {quoted(str(value))}"


def run(name: str, *, told: str, priority: str, own: bool, folder: str, persona: str = "") -> str:
    """`told` is the instruction where `name` is only the title; `own` work is done by whoever
    queues it."""
    return line(
        "run",
        flag("-p", priority),
        "--self" if own else "",
        flag("-d", folder and here(folder)),
        flag("--persona", persona),
        flag("--title", name if told else ""),
        "--",
        told or name,
    )


def log(task: str, kind: str, text: str, *, stage: str, attempt: int | None, file: str) -> str:
    return line(
        "log",
        task,
        kind,
        flag("--phase", stage),
        flag("--attempt", attempt),
        flag("--file", file and here(file)),
        "--",
        text,
    )


def done(task: str, *, summary: str, tokens: int | None, force: bool) -> str:
    """`tokens` is what the session of whoever did it stands at now."""
    return line(
        "done",
        task,
        flag("--tokens-now", tokens),
        "--force" if force else "",
        "--" if summary else "",
        summary,
    )


def subtask_done(parent: str, name: str, summary: str) -> str:
    return line("subtask", "done", parent, quoted(name, always=True), flag("-s", summary))


def subtask_phase(parent: str, name: str, text: str) -> str:
    return line("subtask", "phase", parent, quoted(name, always=True), "--", text)


def steps(command: str, task: str, names: Sequence[str]) -> str:
    """One step a line."""
    return line(command, task, "\n".join(names))


def here(path: str) -> str:
    """As seen from anywhere: who carries it out may stand elsewhere."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - links stay as they are written
