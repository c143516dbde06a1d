"""What people need to see, run, keep and throw away named workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from storage.records.people import Language
from storage.records.tasks import Task
from storage.records.workers.workflows import (
    BadWorkflow,
    Drawn,
    NamedWorkflow,
    ReadyWorkflow,
    Value,
    WorkflowShelf,
)


class Workflows(Protocol):
    """Files in the home directory, read as they are when asked. Calls about one workflow raise
    WorkflowRefused. Who may keep and delete is for the caller to check."""

    async def shelf(self) -> WorkflowShelf: ...

    async def find(self, name: str) -> NamedWorkflow: ...

    async def drawn(self, name: str, language: Language) -> Drawn:
        """The picture's own words are in that language."""
        ...

    async def ready(self, name: str, values: Mapping[str, Value]) -> ReadyWorkflow:
        """With `values` for its inputs, which the caller has checked, and defaults for the
        others."""
        ...

    async def judged(self, text: str) -> NamedWorkflow | BadWorkflow:
        """Whether this text is a workflow that can be run."""
        ...

    async def text_of(self, file: str) -> str:
        """A file that was sent; `file` is relative to the data directory."""
        ...

    async def text_of_task(self, task: Task, name: str) -> str:
        """The plan of a task as a workflow to be kept: without what it was given and what became
        of it. NO_PLAN where there is none."""
        ...

    async def save(self, name: str, text: str, *, replace: bool = False) -> NamedWorkflow:
        """Keep it whole or not at all. EXISTS where there is one of that name and `replace` is
        not said; BROKEN where it cannot be run."""
        ...

    async def delete(self, name: str) -> None:
        """A broken file goes too."""
        ...
