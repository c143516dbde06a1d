"""Chooses the version of a persona's prompt that a worker gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from bot.engine.workers.personas import Persona
from storage.errors import ConcurrentUpdate
from storage.prompt_versions import PromptVersionRepo
from storage.records.prompt_versions import (
    ORIGINAL,
    PromptKind,
    PromptVersion,
    UsedVersion,
    VersionState,
    text_hash,
)
from storage.records.tasks import TaskId

_BUCKETS = 100


def is_in_trial(version: PromptVersion, task_id: TaskId, created_at: datetime) -> bool:
    """Whether a task tries this version. The same for the whole life of the task, so that the
    model's cache of its prompt holds."""
    if version.trial_since is None or created_at < version.trial_since:
        return False
    digest = sha256(f"{version.id}:{task_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % _BUCKETS < version.share


def choose_version(
    versions: Sequence[PromptVersion], task: tuple[TaskId, datetime] | None
) -> PromptVersion | None:
    """The version that work for a task, given by its id and time of creation, or for a chat is done
    with; None for the text as it is written."""
    for each in versions:
        if each.state is VersionState.TRIAL and task is not None and is_in_trial(each, *task):
            return each
    return next((each for each in versions if each.state is VersionState.ACTIVE), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaVersions:
    """`created_at` tells when a task was created. `retire` ends versions made from a text that
    people have changed since, and tells the owners."""

    repo: PromptVersionRepo
    created_at: Callable[[TaskId], Awaitable[datetime]]
    retire: Callable[[Sequence[PromptVersion], str], Awaitable[None]]

    async def apply(
        self, persona: Persona, task_id: TaskId | None
    ) -> tuple[Persona, tuple[UsedVersion, ...]]:
        """The persona with the prompt for this task, or for a chat if None, and the version used.
        None is listed if there is nothing but the text as it is written."""
        found = await self.repo.list_in_effect(PromptKind.PERSONA, persona.name)
        if not found:
            return persona, ()
        written = text_hash(persona.prompt)
        if outdated := [each for each in found if each.base_hash != written]:
            # Another step may have noticed first.
            with suppress(ConcurrentUpdate):
                await self.retire(outdated, "changed")
            found = [each for each in found if each.base_hash == written]
        task = None if task_id is None else (task_id, await self.created_at(task_id))
        version = choose_version(found, task)
        used = UsedVersion(
            kind=PromptKind.PERSONA,
            name=persona.name,
            number=version.number if version else ORIGINAL,
            version_id=version.id if version else None,
        )
        return (replace(persona, prompt=version.content) if version else persona), (used,)
