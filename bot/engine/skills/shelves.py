"""Where skills lie, and what lies there now. Blocking: call it in a thread."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from bot.engine.skills.eligibility import Machine
from bot.engine.skills.folder import NAMES, Contents, Trace, read_folder, trace
from bot.engine.skills.reading import Requires, Written, read_skill
from storage.records.workers.skills import BadSkill, Skill, SkillNote, SkillSource

log = logging.getLogger(__name__)

BUILTIN = Path(__file__).parent / "builtin"
IN_PROJECT = ("skills", ".agents/skills", ".claude/skills")
MAX_SKILLS = 200
_MOST_ENTRIES = 10 * MAX_SKILLS
_REMEMBERED = 2 * MAX_SKILLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder of skills. `within` is where all that lies in it must really be, if anywhere."""

    path: Path
    source: SkillSource
    within: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies on all shelves, those that count first before the others."""

    skills: tuple[Skill, ...]
    bad: tuple[BadSkill, ...]
    left_out: int = 0


class Shelves:
    """Looks at the disk each time it is asked, and reads again only what has changed."""

    def __init__(
        self,
        *,
        home: Path,
        user: Path | None = None,
        builtin: Path = BUILTIN,
        machine: Machine | None = None,
    ) -> None:
        """`home` is the data directory, `user` the person's own home."""
        self._home = home
        self._user = user
        self._builtin = builtin
        self._machine = machine or Machine()
        self._known: OrderedDict[Path, tuple[Trace, _Reading]] = OrderedDict()
        self._turn = threading.Lock()

    @property
    def home(self) -> Path:
        return self._home

    @property
    def own(self) -> Path:
        """Where skills made here are kept."""
        return self._home / "skills"

    def look(self, project: Path | None = None) -> Found:
        folders = [(root, each) for root in self._roots(project) for each in _folders(root)]
        # What comes with the program must not be crowded out.
        kept = folders[:MAX_SKILLS] + [
            each for each in folders[MAX_SKILLS:] if each[0].source is SkillSource.BUILTIN
        ]
        with self._turn:
            found = [self._read(root, folder) for root, folder in kept]
        return Found(
            skills=tuple(each for each in found if isinstance(each, Skill)),
            bad=tuple(each for each in found if isinstance(each, BadSkill)),
            left_out=len(folders) - len(kept),
        )

    def read(self, folder: Path) -> Contents:
        """The files as they are at this moment, whatever they were when they were seen."""
        return read_folder(folder.resolve())

    def forget(self) -> None:
        with self._turn:
            self._known.clear()

    def _roots(self, project: Path | None) -> Iterator[Root]:
        if project is not None:
            for name in IN_PROJECT:
                within = project.resolve()
                yield Root(path=project / name, source=SkillSource.WORKSPACE, within=within)
        yield Root(path=self.own, source=SkillSource.USER)
        if self._user is not None:
            yield Root(path=self._user / ".agents" / "skills", source=SkillSource.USER)
        yield Root(path=self._builtin, source=SkillSource.BUILTIN)

    def _read(self, root: Root, folder: Path) -> Skill | BadSkill:
        place = folder.resolve()
        if root.within is not None and not place.is_relative_to(root.within):
            return _bad(folder, root.source, SkillNote(key="link", detail=folder.name[:120]))
        try:
            seen = trace(place)
        except OSError:
            seen = ()
        known = self._known.get(place)
        if (
            known is None
            or not seen
            or known[0] != seen
            or known[1].found.source is not root.source
        ):
            self._known[place] = known = (seen, _read_anew(root, folder.name, place))
            _log(known[1].found)
        self._known.move_to_end(place)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        # Looked at each time: what was missing may be there by now.
        return known[1].on(self._machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What a folder is, apart from what the machine has."""

    found: Skill | BadSkill
    requires: Requires = field(default_factory=Requires)

    def on(self, machine: Machine) -> Skill | BadSkill:
        if isinstance(self.found, BadSkill):
            return self.found
        return replace(self.found, lacks=machine.lacks(self.requires))


_UNREAD = frozenset(("no_skill_md", "large_skill_md", "not_utf8"))


def read_one(folder: Path) -> Skill | BadSkill:
    """One folder as a skill of its own, for who is writing it."""
    root = Root(path=folder.parent, source=SkillSource.USER)
    return _read_anew(root, folder.name, folder).on(Machine())


def _folders(root: Root) -> list[Path]:
    """Those that hold a SKILL.md, by name; a folder that cannot be looked into holds none."""
    if root.within is not None and not root.path.resolve().is_relative_to(root.within):
        return []
    try:
        with os.scandir(root.path) as entries:
            first = islice(entries, _MOST_ENTRIES)
            names = sorted(each.name for each in first if _may_be_skill(each))
    except OSError:
        return []
    return [root.path / name for name in names]


def _may_be_skill(entry: os.DirEntry[str]) -> bool:
    try:
        entry.name.encode()
        if entry.name.startswith("."):
            return False
        return entry.is_dir() and any(os.path.lexists(f"{entry.path}/{name}") for name in NAMES)
    except (OSError, UnicodeEncodeError):
        return False


def _bad(place: Path, source: SkillSource, *faults: SkillNote) -> BadSkill:
    return BadSkill(name=place.name, source=source, path=str(place), faults=faults)


def _read_anew(root: Root, name: str, place: Path) -> _Reading:
    contents = read_folder(place)
    written = read_skill(_text(contents), name)
    # A text that could not be read has no faults of its own.
    unread = any(each.key in _UNREAD for each in contents.faults)
    faults = (*contents.faults, *(() if unread else written.faults))
    if faults:
        return _Reading(found=_bad(place, root.source, *faults))
    return _Reading(found=_skill(root, place, contents, written), requires=written.requires)


def _skill(root: Root, place: Path, contents: Contents, written: Written) -> Skill:
    return Skill(
        name=written.name,
        description=written.description,
        source=root.source,
        path=str(place),
        hash=contents.hash,
        files=contents.files,
        text=_text(contents),
        body=written.body,
        triggers=written.triggers,
        argument_hint=written.argument_hint,
        emoji=written.emoji,
        license=written.license,
        compatibility=written.compatibility,
        by_model=written.by_model,
        by_person=written.by_person,
        ignored=written.ignored,
        notes=written.notes,
    )


def _text(contents: Contents) -> str:
    return contents.data.get(contents.skill_md, b"").decode("utf-8", "replace")


def _log(found: Skill | BadSkill) -> None:
    if isinstance(found, BadSkill):
        told = ", ".join(f"{each.key} {each.detail}".strip() for each in found.faults)
        log.warning("skill %s is not used: %s", found.path, told)
