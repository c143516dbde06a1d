"""What people need to see, use, let in and make skills."""

from __future__ import annotations

from typing import Protocol

from cards.model import File
from storage.records.people import Chat, Language, Person, PersonId
from storage.records.status import ModelChoice
from storage.records.workers.skills import Listed, LoadedSkill, Skill, SkillDraft, SkillShelf


class Skills(Protocol):
    """`project` is the folder whose own skills count too; empty for none. Calls about one skill
    raise SkillRefused. Who may decide is for the caller to check."""

    async def shelf(self, project: str = "") -> SkillShelf: ...

    async def reload(self, project: str = "") -> SkillShelf:
        """The same, everything read anew."""
        ...

    async def load(self, name: str, *, project: str = "", arguments: str = "") -> LoadedSkill:
        """What a worker is told when a person calls for it, exactly as it was let in."""
        ...

    async def triggered(self, text: str, *, project: str = "") -> Skill | None:
        """The skill that somebody's words call for."""
        ...

    async def whole(self, skill: Skill) -> File | None:
        """All that its files say, to be read before it is let in; None where they have changed."""
        ...

    async def enable(self, name: str, hash: str, *, by: PersonId, project: str = "") -> Listed:
        """Let in exactly these files; `hash` may be the beginning of theirs."""
        ...

    async def disable(self, name: str, *, by: PersonId, project: str = "") -> Listed: ...

    async def put_off(self, name: str, hash: str, *, by: PersonId, project: str = "") -> Listed:
        """It was looked at, and is not wanted now."""
        ...

    async def save(self, draft: SkillDraft, *, by: PersonId) -> Listed:
        """Keep a draft exactly as it was shown, enabled."""
        ...


class SkillWriter(Protocol):
    async def draft(
        self,
        text: str,
        *,
        by: Person,
        chat: Chat,
        language: Language,
        source: str,
        choice: ModelChoice,
    ) -> SkillDraft:
        """Have the model write a skill for what the text asks for; an empty `choice` is the
        chat's. BackendFailure if it cannot, SkillRefused for a draft that is none."""
        ...
