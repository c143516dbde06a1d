"""Skills without a disk: what is listed is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cards.model import FileBlock
from storage.records.people import PersonId
from storage.records.skills import (
    InvalidSkill,
    LoadedSkill,
    Skill,
    SkillCatalog,
    SkillDraft,
    SkillFile,
    SkillListing,
    SkillRefusalReason,
    SkillRefused,
    SkillSource,
    SkillState,
)


def make_listed_skill(
    name: str = "weekly-report", state: SkillState = SkillState.ENABLED, **facts: Any
) -> SkillListing:
    script = SkillFile(name="scripts/run.sh", size=9, digest="d" * 64, script=True)
    skill = Skill(
        name=name,
        description="Writes the weekly report.",
        source=SkillSource.USER,
        path=f"/home/boss/.shiftboss/skills/{name}",
        hash="abcdef0123456789" * 4,
        files=(SkillFile(name="SKILL.md", size=40, digest="a" * 64), script),
        text=f"---\nname: {name}\n---\nList what was done.",
        body="List what was done.",
        **facts,
    )
    return SkillListing(skill=skill, state=state)


class FakeSkills:
    """Keeps what it is given; `decided` records who let in or refused what."""

    def __init__(self, *listed: SkillListing) -> None:
        self.listed = list(listed)
        self.bad: list[InvalidSkill] = []
        self.decisions: list[tuple[str, str, bool]] = []
        self.saved: list[SkillDraft] = []
        self.triggers: dict[str, str] = {}
        self.drafted: list[str] = []

    async def list_skills(self, project: str = "") -> SkillCatalog:
        return SkillCatalog(skills=tuple(self.listed), invalid=tuple(self.bad))

    async def reload(self, project: str = "") -> SkillCatalog:
        return await self.list_skills(project)

    async def load(self, name: str, *, project: str = "", arguments: str = "") -> LoadedSkill:
        listed = (await self.list_skills()).find(name)
        if listed is None:
            raise SkillRefused(SkillRefusalReason.UNKNOWN, name)
        if not listed.usable:
            raise SkillRefused(SkillRefusalReason.NOT_ENABLED, name)
        return LoadedSkill(name=name, text=f"<{name}>{listed.skill.body}</{name}>")

    async def find_triggered(self, text: str, *, project: str = "") -> Skill | None:
        return next(
            (each.skill for each in self.listed if each.skill.name == self.triggers.get(text)), None
        )

    async def bundle_files(self, skill: Skill) -> FileBlock | None:
        return FileBlock(path=f"files/skills/{skill.name}.md", name=f"{skill.name}.md", size=1)

    async def enable(
        self, name: str, hash: str, *, by: PersonId, project: str = ""
    ) -> SkillListing:
        return self._decide(name, hash, enabled=True)

    async def disable(self, name: str, *, by: PersonId, project: str = "") -> SkillListing:
        return self._decide(name, "", enabled=False)

    async def postpone(
        self, name: str, hash: str, *, by: PersonId, project: str = ""
    ) -> SkillListing:
        return self._decide(name, hash, enabled=False)

    async def save(self, draft: SkillDraft, *, by: PersonId) -> SkillListing:
        self.saved.append(draft)
        return make_listed_skill(draft.name)

    async def draft(self, text: str, **facts: Any) -> SkillDraft:
        self.drafted.append(text)
        return SkillDraft(name="weekly-report", text="---\nname: weekly-report\n---\nDo.")

    def _decide(self, name: str, hash: str, *, enabled: bool) -> SkillListing:
        for index, each in enumerate(self.listed):
            if each.skill.name == name and each.skill.hash.startswith(hash):
                state = SkillState.ENABLED if enabled else SkillState.DISABLED
                self.listed[index] = replace(each, state=state)
                self.decisions.append((name, each.skill.hash, enabled))
                return self.listed[index]
        raise SkillRefused(SkillRefusalReason.CHANGED, name)
