"""Tool that loads a skill's text and copies its files to the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from bot.engine.llm import workspace_files as folder
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, int_field, object_schema
from bot.engine.skills.skill_library import render_skill, render_skill_file
from bot.engine.skills.skill_paths import MAX_FILE
from storage.records.skills import Skill, SkillRefusalReason, SkillRefused

PROGRAM_FOLDER = ".shiftboss"
SKILLS_FOLDER = f"{PROGRAM_FOLDER}/skills"


def copy_skill_files(workspace: Path, skill: str, files: Mapping[str, bytes]) -> str:
    """Copy the files; returns their folder relative to the workspace. Blocking.

    Raises PathRefused and OSError."""
    workspace.mkdir(parents=True, exist_ok=True)
    # Keep the copies out of git.
    _write_if_changed(workspace, f"{PROGRAM_FOLDER}/.gitignore", b"*\n")
    for name, content in files.items():
        _write_if_changed(workspace, f"{SKILLS_FOLDER}/{skill}/{name}", content)
    return f"{SKILLS_FOLDER}/{skill}"


def _write_if_changed(workspace: Path, path: str, content: bytes) -> None:
    with suppress(folder.PathRefused):
        data, size = folder.read_bytes(workspace, path, limit=len(content) + 1)
        if (data, size) == (content, len(content)):
            return
    folder.write_bytes(workspace, path, content, limit=MAX_FILE)


_MAX_NAME_CHARS = 200
_SCHEMA = object_schema(
    "name",
    name="",
    file="One of its other files, such as references/forms.md. Default: none.",
    offset=int_field("The first character, as stated by the part before. Default 0.", minimum=0),
)


class SkillLoader(Protocol):
    async def open(self, name: str, *, project: str = "") -> tuple[Skill, Mapping[str, bytes]]:
        """Return a usable skill and its files. Raises SkillRefused."""
        ...


def skill_load_tool(
    skills: SkillLoader,
    workspace: Path,
    *,
    get_project: Callable[[], Awaitable[str]],
    allowed: Sequence[str] = (),
    copies: bool = True,
) -> AgentTool:
    """Build the tool.

    `get_project` returns the folder with the project's own skills; `allowed` are globs of loadable
    names, empty for all. `copies` puts the skill's files into the workspace, where scripts run
    under the rules of the exec tool."""

    async def run(arguments: Mapping[str, Any]) -> str:
        name, file = (
            str(arguments["name"]).strip().casefold(),
            str(arguments.get("file", "")).strip(),
        )
        if allowed and not any(fnmatchcase(name, pattern) for pattern in allowed):
            return f"{ERROR_PREFIX}the skill {name[:_MAX_NAME_CHARS]!r} is not one of yours"
        try:
            skill, data = await skills.open(name, project=await get_project())
        except SkillRefused as error:
            return (
                f"{ERROR_PREFIX}{_REFUSAL_TEXTS[error.reason].format(name=name[:_MAX_NAME_CHARS])}"
            )
        others = {each: text for each, text in data.items() if each.lower() != "skill.md"}
        copied = ""
        if copies and others:
            copied = await asyncio.to_thread(_copy_note, workspace, skill.name, others)
        return "\n".join(filter(None, (_render(skill, data, file, arguments), copied)))

    return AgentTool(
        name="skill_load",
        description="Load a skill by name before doing the work it is for; or one of its files.",
        schema=_SCHEMA,
        run=run,
        kind=CallKind.READ,
    )


def _render(
    skill: Skill, data: Mapping[str, bytes], file: str, arguments: Mapping[str, Any]
) -> str:
    offset = int(arguments.get("offset", 0))
    if not file or file.lower() == "skill.md":
        return render_skill(skill, offset=offset)
    file = file.removeprefix("./")
    if file not in data:
        names = ", ".join(each for each in data if each.lower() != "skill.md") or "none"
        shown = file[:_MAX_NAME_CHARS]
        return f"{ERROR_PREFIX}{skill.name} has no file {shown!r}; its files: {names[:2_000]}"
    if folder.is_binary(data[file]):
        return f"{file} is not a text; it has {len(data[file])} bytes."
    return render_skill_file(skill, file, data[file].decode("utf-8-sig"), offset=offset)


def _copy_note(workspace: Path, skill: str, files: Mapping[str, bytes]) -> str:
    """Return where the files are, or why they could not be copied."""
    try:
        place = copy_skill_files(workspace, skill, files)
    except (folder.PathRefused, OSError) as error:
        return f"[its files could not be put into the workspace: {error}]"
    return f"[its files are in your workspace under {place}/; run its scripts from there]"


_REFUSAL_TEXTS = {
    SkillRefusalReason.UNKNOWN: "there is no skill {name!r}",
    SkillRefusalReason.BAD: "the skill {name!r} cannot be read: `/skill` tells the Boss what to"
    " fix",
    SkillRefusalReason.NOT_ENABLED: "the skill {name!r} is not enabled: only an owner can, by"
    " `/skill show {name}`. Go on without it",
    SkillRefusalReason.LACKS: "the skill {name!r} needs what this machine has not",
    SkillRefusalReason.PERSON_ONLY: "the skill {name!r} is only for people to call for, by"
    " `/skill {name}`",
    SkillRefusalReason.MODEL_ONLY: "the skill {name!r} cannot be called for",
    SkillRefusalReason.CHANGED: "the files of the skill {name!r} have changed: an owner has to look"
    " at them first, by `/skill show {name}`. Go on without it",
    SkillRefusalReason.NO_FILE: "the skill {name!r} has no such file",
    SkillRefusalReason.EXISTS: "there is a skill {name!r} already",
    SkillRefusalReason.DRAFT: "the skill {name!r} cannot be saved",
}
