"""Skills on a disk of their own, and the library that lends them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.engine.skills.eligibility import Machine
from bot.engine.skills.library import Library
from bot.engine.skills.shelves import Shelves
from storage.agents.skills import SkillRepo
from storage.db import Database
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.people import People
from storage.records.people import Channel, PersonId
from tests.samples import NOW

BARE = Machine(which=lambda name: f"/bin/{name}" if name == "git" else None, env={}, system="linux")


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


class Shop:
    """`home/skills` is the Boss's shelf, `project` has its own; `olga` is an owner."""

    def __init__(self, folder: Path, db: Database, olga: PersonId) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.own = self.home / "skills"
        self.olga = olga
        self.shelves = Shelves(home=self.home, user=folder / "user", machine=BARE)
        self.library = Library(shelves=self.shelves, repo=SkillRepo(db), now=lambda: NOW)

    async def let_in(self, name: str, project: str = "") -> None:
        shelf = await self.library.shelf(project)
        listed = shelf.find(name)
        assert listed is not None
        await self.library.enable(name, listed.skill.key, by=self.olga, project=project)


async def a_shop(folder: Path, db: Database) -> Shop:
    people = People(db, Ids(), Chats(db, Ids()))
    await people.ensure_owners(((Channel.TELEGRAM, "7"),), now=NOW, local="Olga")
    olga = await people.who(Channel.TELEGRAM, "7")
    assert olga is not None
    return Shop(folder, db, olga.id)
