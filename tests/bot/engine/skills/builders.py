"""Skills on a disk of their own, and the library that lends them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.engine.skills.skill_library import SkillLibrary
from bot.engine.skills.skill_paths import HostEnvironment, SkillPaths
from storage.db import Database
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.people import Channel, PersonId
from storage.skills import SkillRepo
from tests.builders import NOW

BARE_HOST = HostEnvironment(
    which=lambda name: f"/bin/{name}" if name == "git" else None, env={}, platform="linux"
)


def write_skill(
    folder: Path,
    body: str = "Do it well.",
    *,
    front: str = "",
    description: str = "Does it.",
    files: Mapping[str, str] | None = None,
) -> Path:
    """A folder whose name is the skill's."""
    folder.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {folder.name}\ndescription: {description}\n{front}---\n"
    (folder / "SKILL.md").write_text(f"{head}\n{body}\n", encoding="utf-8")
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class SkillSetup:
    """`home/skills` is the Boss's shelf, `project` has its own; `olga` is an owner."""

    def __init__(self, folder: Path, db: Database, olga: PersonId) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.user_folder = self.home / "skills"
        self.olga = olga
        self.paths = SkillPaths(home=self.home, user_home=folder / "user", host=BARE_HOST)
        self.library = SkillLibrary(paths=self.paths, repo=SkillRepo(db), now=lambda: NOW)

    async def enable(self, name: str, project: str = "") -> None:
        shelf = await self.library.list_skills(project)
        listed = shelf.find(name)
        assert listed is not None
        await self.library.enable(name, listed.skill.decision_hash, by=self.olga, project=project)


async def set_up_skills(folder: Path, db: Database) -> SkillSetup:
    people = PeopleRepo(db, IdGenerator(), ChatRepo(db, IdGenerator()))
    await people.ensure_owners(((Channel.TELEGRAM, "7"),), now=NOW, local_name="Olga")
    olga = await people.find_by_account(Channel.TELEGRAM, "7")
    assert olga is not None
    return SkillSetup(folder, db, olga.id)
