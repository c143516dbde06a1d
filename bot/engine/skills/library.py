"""Skills in use: what lies on the shelves, joined with what owners have decided."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bot.engine.skills.folder import MAX_SKILL_MD, Contents
from bot.engine.skills.framing import framed
from bot.engine.skills.reading import Written, read_skill
from bot.engine.skills.shelves import Found, Shelves
from bot.engine.skills.triggers import triggered
from bot.engine.skills.whole import written_out
from cards.model import File
from storage.agents.skills import SkillRepo
from storage.records.people import PersonId
from storage.records.workers.skills import (
    Change,
    Listed,
    LoadedSkill,
    SeenSkill,
    Skill,
    SkillDecision,
    SkillDraft,
    SkillRefused,
    SkillShelf,
    SkillSource,
    SkillState,
    WhyNoSkill,
)

log = logging.getLogger(__name__)

_MOST_DIFF = 200


class Library:
    """A `project` is a folder that may have skills of its own; empty for none."""

    def __init__(self, *, shelves: Shelves, repo: SkillRepo, now: Callable[[], datetime]) -> None:
        self._shelves = shelves
        self._repo = repo
        self._now = now

    async def shelf(self, project: str = "") -> SkillShelf:
        """As everything stands at this moment."""
        found = await asyncio.to_thread(self._look, project)
        decided = await self._repo.decisions()
        listed = [Listed(skill=each, state=_state(each, decided)) for each in found.skills]
        ordered = _by_name(listed)
        return SkillShelf(
            skills=tuple([await self._with_change(each, decided) for each in ordered]),
            bad=found.bad,
            left_out=found.left_out,
        )

    async def reload(self, project: str = "") -> SkillShelf:
        self._shelves.forget()
        return await self.shelf(project)

    async def load(self, name: str, *, project: str = "", arguments: str = "") -> LoadedSkill:
        """A person calls for it. Raises SkillRefused."""
        skill, _ = await self.open(name, project=project, by_model=False)
        return LoadedSkill(name=skill.name, text=framed(skill, arguments=arguments))

    async def open(
        self, name: str, *, project: str = "", by_model: bool = True
    ) -> tuple[Skill, Mapping[str, bytes]]:
        """The usable skill of that name, with its files exactly as they were let in."""
        shelf = await self.shelf(project)
        listed = shelf.find(name)
        if listed is None:
            bad = next(
                (each for each in shelf.bad if each.name.casefold() == name.casefold()), None
            )
            raise SkillRefused(WhyNoSkill.BAD if bad else WhyNoSkill.UNKNOWN, name)
        skill = listed.skill
        if listed.state is not SkillState.ENABLED:
            raise SkillRefused(WhyNoSkill.NOT_ENABLED, skill.name)
        if skill.lacks:
            missing = ", ".join(each for lack in skill.lacks for each in lack.names)
            raise SkillRefused(WhyNoSkill.LACKS, skill.name, missing)
        if by_model and not skill.by_model:
            raise SkillRefused(WhyNoSkill.PERSON_ONLY, skill.name)
        if not by_model and not skill.by_person:
            raise SkillRefused(WhyNoSkill.MODEL_ONLY, skill.name)
        contents = await asyncio.to_thread(self._shelves.read, Path(skill.path))
        if contents.faults or contents.hash != skill.hash:
            raise SkillRefused(WhyNoSkill.CHANGED, skill.name)
        return skill, contents.data

    async def triggered(self, text: str, *, project: str = "") -> Skill | None:
        """What the words call for: to be proposed, not used."""
        found = triggered(text, (await self.shelf(project)).skills)
        return None if found is None else found.skill

    async def enable(self, name: str, hash: str, *, by: PersonId, project: str = "") -> Listed:
        """Let in exactly these files; `hash` may be its beginning. Raises SkillRefused."""
        return await self._decide(name, hash, by=by, project=project, enabled=True)

    async def disable(self, name: str, *, by: PersonId, project: str = "") -> Listed:
        return await self._decide(name, "", by=by, project=project, enabled=False)

    async def put_off(self, name: str, hash: str, *, by: PersonId, project: str = "") -> Listed:
        """An owner has looked at it, and does not want it now."""
        return await self._decide(name, hash, by=by, project=project, enabled=False)

    async def save(self, draft: SkillDraft, *, by: PersonId) -> Listed:
        """Keep it under the data directory. Whoever saves it has seen all of it: it is enabled.
        Saved again it changes nothing; another skill of that name is never written over."""
        folder = self._shelves.own / draft.name
        contents = await asyncio.to_thread(self._write, folder, draft)
        return await self.enable(draft.name, contents.hash, by=by)

    async def whole(self, skill: Skill) -> File | None:
        """All that its files say, exactly as they would be let in, in one file of the data
        directory; None where they have changed meanwhile, or it cannot be written."""
        contents = await asyncio.to_thread(self._shelves.read, Path(skill.path))
        if contents.faults or contents.hash != skill.hash:
            return None
        try:
            return await asyncio.to_thread(written_out, self._shelves.home, skill, contents)
        except OSError as error:
            log.warning("skill %s cannot be shown whole: %s", skill.name, error)
            return None

    def check(self, text: str, name: str) -> Written:
        """What a SKILL.md that is still to be saved says."""
        return read_skill(text, name)

    def _look(self, project: str) -> Found:
        return self._shelves.look(Path(project) if project else None)

    async def _with_change(self, listed: Listed, decided: Sequence[SkillDecision]) -> Listed:
        if listed.state is not SkillState.CHANGED:
            return listed
        before = _enabled_before(listed.skill, decided)
        seen = await self._repo.seen(before[-1].hash) if before else None
        return replace(listed, change=None if seen is None else _change(seen, listed.skill))

    async def _decide(
        self, name: str, hash: str, *, by: PersonId, project: str, enabled: bool
    ) -> Listed:
        shelf = await self.shelf(project)
        same = shelf.named(name)
        chosen = [each for each in same if each.skill.key.startswith(hash)] if hash else same
        if not chosen:
            raise SkillRefused(WhyNoSkill.CHANGED if same else WhyNoSkill.UNKNOWN, name)
        skill = chosen[0].skill
        decision = SkillDecision(
            name=skill.name,
            hash=skill.key,
            source=skill.path,
            enabled=enabled,
            decided_by=by,
            decided_at=self._now(),
        )
        await self._repo.decide(decision, _seen(skill) if enabled else None)
        return Listed(skill=skill, state=SkillState.ENABLED if enabled else SkillState.DISABLED)

    def _write(self, folder: Path, draft: SkillDraft) -> Contents:
        data = draft.text.encode("utf-8", "replace")
        written = self.check(draft.text, draft.name)
        if len(data) > MAX_SKILL_MD or written.faults or written.name != draft.name:
            raise SkillRefused(WhyNoSkill.DRAFT, draft.name)
        if not (folder / "SKILL.md").exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
            temporary.mkdir()
            (temporary / "SKILL.md").write_bytes(data)
            try:
                # Whole or not at all; a folder that is there and not empty stays as it is.
                temporary.rename(folder)
            except OSError as error:
                (temporary / "SKILL.md").unlink()
                temporary.rmdir()
                raise SkillRefused(WhyNoSkill.EXISTS, draft.name) from error
        contents = self._shelves.read(folder)
        if contents.faults or dict(contents.data) != {"SKILL.md": data}:
            raise SkillRefused(WhyNoSkill.EXISTS, draft.name)
        return contents


def _by_name(listed: Sequence[Listed]) -> list[Listed]:
    """By name; of those with the same name the first that is enabled counts, else the first: what
    nobody has let in cannot put another one out of use."""
    groups: dict[str, list[Listed]] = {}
    for each in listed:
        groups.setdefault(each.skill.name, []).append(each)
    ordered: list[Listed] = []
    for name in sorted(groups):
        same = groups[name]
        counts = next((each for each in same if each.state is SkillState.ENABLED), same[0])
        ordered.append(counts)
        ordered += [
            replace(each, shadowed=counts.skill.path) for each in same if each is not counts
        ]
    return ordered


def _state(skill: Skill, decided: Sequence[SkillDecision]) -> SkillState:
    for each in decided:
        if (each.name, each.hash) == (skill.name, skill.key):
            return SkillState.ENABLED if each.enabled else SkillState.DISABLED
    if skill.source is SkillSource.BUILTIN:
        return SkillState.ENABLED
    return SkillState.CHANGED if _enabled_before(skill, decided) else SkillState.NEW


def _enabled_before(skill: Skill, decided: Sequence[SkillDecision]) -> list[SkillDecision]:
    """What was enabled of this name in this place, newest last."""
    return [
        each
        for each in decided
        if each.enabled and (each.name, each.source) == (skill.name, skill.path)
    ]


def _seen(skill: Skill) -> SeenSkill:
    return SeenSkill(files={each.name: each.digest for each in skill.files}, text=skill.text)


def _change(seen: SeenSkill, skill: Skill) -> Change:
    now = {each.name: each.digest for each in skill.files}
    both = seen.files.keys() & now.keys()
    diff = difflib.unified_diff(
        seen.text.splitlines(), skill.text.splitlines(), "before", "now", lineterm="", n=2
    )
    return Change(
        added=tuple(sorted(now.keys() - seen.files.keys())),
        gone=tuple(sorted(seen.files.keys() - now.keys())),
        altered=tuple(sorted(name for name in both if now[name] != seen.files[name])),
        diff="\n".join(list(diff)[:_MOST_DIFF]),
    )
