"""Load a skill that the Boss has let in: its text, and its other files on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from bot.engine.agent.skill_copies import copy_files
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind
from bot.engine.skills.framing import framed, framed_file
from storage.records.workers.skills import Skill, SkillRefused, WhyNoSkill

_MOST_SHOWN = 200
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The skill's name."},
        "file": {
            "type": "string",
            "description": "One of its other files, such as references/forms.md. Default: none.",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "The character to begin at, as told by the part before. Default 0.",
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


class Skills(Protocol):
    async def open(self, name: str, *, project: str = "") -> tuple[Skill, Mapping[str, bytes]]:
        """A usable skill and its files. Raises SkillRefused."""
        ...


def skill_load(
    skills: Skills,
    workspace: Path,
    *,
    project: Callable[[], Awaitable[str]],
    allowed: Sequence[str] = (),
    copies: bool = True,
) -> Tool:
    """`project` is the folder whose own skills count; `allowed` are globs of the names that may be
    loaded, empty for all. `copies` puts the skill's other files into the workspace, so that
    scripts are run there, by the tool for that and under its rules."""

    async def run(arguments: Mapping[str, Any]) -> str:
        name, file = (
            str(arguments["name"]).strip().casefold(),
            str(arguments.get("file", "")).strip(),
        )
        if allowed and not any(fnmatchcase(name, pattern) for pattern in allowed):
            return f"{ERROR}the skill {name[:_MOST_SHOWN]!r} is not one of yours"
        try:
            skill, data = await skills.open(name, project=await project())
        except SkillRefused as error:
            return f"{ERROR}{_REASONS[error.reason].format(name=name[:_MOST_SHOWN])}"
        others = {each: text for each, text in data.items() if each.lower() != "skill.md"}
        copied = ""
        if copies and others:
            copied = await asyncio.to_thread(_copy, workspace, skill.name, others)
        return "\n".join(filter(None, (_text(skill, data, file, arguments), copied)))

    return Tool(
        name="skill_load",
        description="Load a skill by name before doing the work it is for; or one of its files.",
        schema=_SCHEMA,
        run=run,
        kind=CallKind.READ,
    )


def _text(skill: Skill, data: Mapping[str, bytes], file: str, arguments: Mapping[str, Any]) -> str:
    offset = int(arguments.get("offset", 0))
    if not file or file.lower() == "skill.md":
        return framed(skill, offset=offset)
    file = file.removeprefix("./")
    if file not in data:
        names = ", ".join(each for each in data if each.lower() != "skill.md") or "none"
        return f"{ERROR}{skill.name} has no file {file[:_MOST_SHOWN]!r}; its files: {names[:2_000]}"
    if folder.is_binary(data[file]):
        return f"{file} is not a text; it has {len(data[file])} bytes."
    return framed_file(skill, file, data[file].decode("utf-8-sig"), offset=offset)


def _copy(workspace: Path, skill: str, files: Mapping[str, bytes]) -> str:
    """Says where they are, or why they are not."""
    try:
        place = copy_files(workspace, skill, files)
    except (folder.PathRefused, OSError) as error:
        return f"[its files could not be put into the workspace: {error}]"
    return f"[its files are in your workspace under {place}/; run its scripts from there]"


_REASONS = {
    WhyNoSkill.UNKNOWN: "there is no skill {name!r}",
    WhyNoSkill.BAD: "the skill {name!r} cannot be read: `/skill` tells the Boss what to mend",
    WhyNoSkill.NOT_ENABLED: "the skill {name!r} is not enabled: only an owner can, by"
    " `/skill show {name}`. Go on without it",
    WhyNoSkill.LACKS: "the skill {name!r} needs what this machine has not",
    WhyNoSkill.PERSON_ONLY: "the skill {name!r} is only for people to call for, by `/skill {name}`",
    WhyNoSkill.MODEL_ONLY: "the skill {name!r} cannot be called for",
    WhyNoSkill.CHANGED: "the files of the skill {name!r} have changed: an owner has to look at"
    " them first, by `/skill show {name}`. Go on without it",
    WhyNoSkill.NO_FILE: "the skill {name!r} has no such file",
    WhyNoSkill.EXISTS: "there is a skill {name!r} already",
    WhyNoSkill.DRAFT: "the skill {name!r} cannot be saved",
}
