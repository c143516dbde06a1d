"""Chooses the version of a text that work is done with: a persona's prompt, a skill, a named
workflow or a built-in prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec
from storage.errors import ConcurrentUpdate
from storage.prompt_versions import PromptVersionRepo
from storage.records.prompt_versions import (
    ORIGINAL,
    PromptKind,
    PromptRef,
    PromptVersion,
    UsedVersion,
    VersionState,
    text_hash,
)
from storage.records.skills import Skill, SkillSource
from storage.records.tasks import TaskId

PERCENT = 100


def is_in_trial(version: PromptVersion, task_id: TaskId, created_at: datetime) -> bool:
    """Whether a task tries this version. The same for the whole life of the task, so that the
    model's cache of its prompt holds."""
    if version.trial_since is None or created_at < version.trial_since:
        return False
    digest = sha256(f"{version.id}:{task_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % PERCENT < version.share


def choose_version(
    versions: Sequence[PromptVersion], tries: Callable[[PromptVersion], bool]
) -> PromptVersion | None:
    """The version in effect; one on trial only if `tries` says so. None for the text as it is
    written."""
    for each in versions:
        if each.state is VersionState.TRIAL and tries(each):
            return each
    return next((each for each in versions if each.state is VersionState.ACTIVE), None)


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt of a task's step, for which a version is chosen. Without a task, a chat's turn."""

    task: TaskId | None
    path: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersions:
    """`created_at` tells when a task was created. `retire` ends versions made from a text that
    people have changed since, and tells the owners. `roll` returns a random number below PERCENT.
    Without `tries`, as nobody would judge a trial, only adopted versions are used."""

    repo: PromptVersionRepo
    created_at: Callable[[TaskId], Awaitable[datetime]]
    retire: Callable[[Sequence[PromptVersion], str], Awaitable[None]]
    roll: Callable[[], int]
    tries: bool = True

    async def apply_to_persona(self, spec: WorkerSpec, persona: Persona) -> Persona:
        """The persona with the prompt for this worker. Stores what was used, if it has versions."""
        ref = PromptRef(PromptKind.PERSONA, persona.name)
        content = await self._choose(_attempt_of(spec), ref, persona.prompt, stores_always=False)
        return persona if content is None else replace(persona, prompt=content)

    async def apply_to_skill(
        self, spec: WorkerSpec, skill: Skill, files: Mapping[str, bytes], *, is_loaded: bool
    ) -> tuple[Skill, Mapping[str, bytes]]:
        """The skill with the instructions for this worker, and its files with them. Stores what was
        used; for a skill that is not loaded but only within reach, only if it has versions. Skills
        of projects have none."""
        if skill.source is SkillSource.WORKSPACE:
            return skill, files
        ref = PromptRef(PromptKind.SKILL, skill.name)
        content = await self._choose(_attempt_of(spec), ref, skill.body, stores_always=is_loaded)
        return (skill, files) if content is None else _with_body(skill, files, content)

    async def apply_to_workflow(self, name: str, text: str) -> tuple[str, UsedVersion]:
        """The text of a named workflow for a task that is about to be created, and its version."""
        ref = PromptRef(PromptKind.WORKFLOW, name)
        found = await self._list_in_effect(ref, text)
        version = choose_version(found, lambda each: self.roll() < each.share)
        return (version.content if version else text), _used(ref, version)

    async def workflow_text(self, name: str, number: int) -> str | None:
        """The text of that version of a named workflow; None if there is none."""
        found = await self.repo.list_of(PromptRef(PromptKind.WORKFLOW, name))
        return next((each.content for each in found if each.number == number), None)

    async def get_built_in(self, name: str, written: str, attempt: TaskAttempt) -> str:
        """The built-in prompt of this name for an attempt. Stores what was used, if it has
        versions."""
        ref = PromptRef(PromptKind.BUILT_IN, name)
        content = await self._choose(attempt, ref, written, stores_always=False)
        return written if content is None else content

    async def _choose(
        self, attempt: TaskAttempt, ref: PromptRef, written: str, *, stores_always: bool
    ) -> str | None:
        """The text for this worker, None for the one that is written."""
        found = await self._list_in_effect(ref, written)
        task = attempt.task
        version = choose_version(found, await self._tries_of(task)) if found else None
        if task is not None and (stores_always or found):
            used = (_used(ref, version),)
            await self.repo.record_attempt(task, attempt.path, attempt.number, used)
        return None if version is None else version.content

    async def _list_in_effect(self, ref: PromptRef, written: str) -> Sequence[PromptVersion]:
        """The versions made from the text as it is written now; ends all others."""
        found = await self.repo.list_in_effect(ref)
        if not found:
            return ()
        base = text_hash(written)
        if outdated := [each for each in found if each.base_hash != base]:
            # Another step may have noticed first.
            with suppress(ConcurrentUpdate):
                await self.retire(outdated, "changed")
        return [
            each
            for each in found
            if each.base_hash == base and (self.tries or each.state is VersionState.ACTIVE)
        ]

    async def _tries_of(self, task_id: TaskId | None) -> Callable[[PromptVersion], bool]:
        if task_id is None:
            return lambda _version: False
        created_at = await self.created_at(task_id)
        return lambda version: is_in_trial(version, task_id, created_at)


async def get_adopted_skill(repo: PromptVersionRepo, skill: Skill) -> Skill:
    """A skill that a person calls for, in the version that was adopted: which task it is for is not
    known yet."""
    if skill.source is SkillSource.WORKSPACE:
        return skill
    base = text_hash(skill.body)
    found = await repo.list_in_effect(PromptRef(PromptKind.SKILL, skill.name))
    version = choose_version([each for each in found if each.base_hash == base], lambda _: False)
    return skill if version is None else _with_body(skill, {}, version.content)[0]


def _attempt_of(spec: WorkerSpec) -> TaskAttempt:
    return TaskAttempt(spec.account.task, spec.step_path, spec.attempt)


def _used(ref: PromptRef, version: PromptVersion | None) -> UsedVersion:
    return UsedVersion(
        kind=ref.kind,
        name=ref.name,
        number=version.number if version else ORIGINAL,
        version_id=version.id if version else None,
    )


def _with_body(
    skill: Skill, files: Mapping[str, bytes], body: str
) -> tuple[Skill, Mapping[str, bytes]]:
    """Other instructions below the same front matter."""
    text = skill.text.replace("\r\n", "\n").replace("\r", "\n")
    front, _, end = text.rpartition(skill.body)
    text = f"{front}{body}{end}"
    changed = {
        name: text.encode() if name.lower() == "skill.md" else content
        for name, content in files.items()
    }
    return replace(skill, text=text, body=body), changed
