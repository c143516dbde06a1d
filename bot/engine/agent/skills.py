"""Lists skills in a worker's prompt, provides the tool to load them and drafts new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import ContextBlock, ToolFactory, is_tool_allowed
from bot.engine.llm.backend import OFFLINE_NAME as OFFLINE
from bot.engine.llm.backend import BackendDenied, BackendError, RunLimits, RunPurpose, WorkerMode
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.llm.workspace_files import PathRefused
from bot.engine.skills.skill_library import SkillLibrary, render_catalogue
from bot.engine.tools.skill_load import SKILLS_FOLDER, copy_skill_files, skill_load_tool
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import BackendPreference, CostAccount, WorkerSpec
from handlers.errors import BackendFailure
from storage.db import Database
from storage.records.people import Chat, Language, Person
from storage.records.skills import Skill, SkillDraft, SkillListing, SkillRefusalReason, SkillRefused
from storage.records.system import ModelChoice

SpecProjectLookup: TypeAlias = Callable[[WorkerSpec], Awaitable[str]]
"""Returns the project folder whose skills a worker may use; empty if none."""


class SkillVersions(Protocol):
    async def apply_to_skill(
        self, spec: WorkerSpec, skill: Skill, files: Mapping[str, bytes], *, is_loaded: bool
    ) -> tuple[Skill, Mapping[str, bytes]]:
        """Return the skill and its files in the version for this worker."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSkills:
    """The skills of one worker; satisfies `tools.skill_load.SkillLoader`. Without `versions`,
    skills are used as they are written."""

    library: SkillLibrary
    versions: SkillVersions | None
    spec: WorkerSpec
    is_loaded: bool = True

    async def open(self, name: str, *, project: str = "") -> tuple[Skill, Mapping[str, bytes]]:
        skill, files = await self.library.open(name, project=project)
        if self.versions is None:
            return skill, files
        return await self.versions.apply_to_skill(self.spec, skill, files, is_loaded=self.is_loaded)


def skill_catalogue_block(
    library: SkillLibrary,
    get_project: SpecProjectLookup,
    has_own_tools: Callable[[str], bool] = lambda _: False,
    versions: SkillVersions | None = None,
) -> ContextBlock:
    """Build the prompt block that lists skills; sub-agents get none.

    Backends for which `has_own_tools` is True get skills as files in the workspace."""

    async def brief(spec: WorkerSpec, persona: Persona) -> str:
        if spec.depth or not is_tool_allowed(persona, "skill_load"):
            return ""
        project = await get_project(spec)
        catalog = await library.list_skills(project)
        seen = [each for each in catalog.usable if _is_visible(persona, each.skill.name)]
        if not has_own_tools(spec.session.backend):
            return render_catalogue(seen)
        if spec.mode is not WorkerMode.EXECUTE:
            return ""
        skills = WorkerSkills(library=library, versions=versions, spec=spec, is_loaded=False)
        return render_catalogue(
            await _copy_to_workspace(skills, seen, project), folder=SKILLS_FOLDER
        )

    return brief


async def _copy_to_workspace(
    skills: WorkerSkills, seen: Sequence[SkillListing], project: str
) -> Sequence[SkillListing]:
    """Copy the skills' approved files to the workspace; return those copied."""
    there: list[SkillListing] = []
    for each in seen:
        if each.skill.model_may_load:
            with suppress(SkillRefused, PathRefused, OSError):
                skill, files = await skills.open(each.skill.name, project=project)
                place = skills.spec.workspace
                await asyncio.to_thread(copy_skill_files, place, skill.name, files)
                there.append(each)
    return there


def skill_tool_factory(
    library: SkillLibrary, get_project: SpecProjectLookup, versions: SkillVersions | None = None
) -> ToolFactory:
    def make(spec: WorkerSpec, persona: Persona) -> Sequence[AgentTool]:
        return (
            skill_load_tool(
                WorkerSkills(library=library, versions=versions, spec=spec),
                spec.workspace,
                get_project=partial(get_project, spec),
                allowed=persona.skills,
                copies=spec.mode is WorkerMode.EXECUTE,
            ),
        )

    return make


def _is_visible(persona: Persona, skill: str) -> bool:
    return not persona.skills or any(fnmatchcase(skill, pattern) for pattern in persona.skills)


MAX_BODY = 12_000
_GUIDE_SKILL = "skill-creator"
_SYSTEM = """\
You write a skill: instructions by which workers do one kind of work, kept for later. What the Boss
says is what the skill is for. Fill in the form; do not do the work itself. {language}

{guide}"""
_LANGUAGE = {
    Language.CHINESE: "Write the skill in Simplified Chinese; its name in lower-case English.",
    Language.ENGLISH: "Write the skill in English.",
}

TriggerPhrase = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=2, max_length=60)
]


class SkillDraftAnswer(BaseModel):
    """A skill: how one kind of work is to be done."""

    model_config = ConfigDict(strict=True, defer_build=True)

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64),
    ] = Field(description="Lower-case letters, digits and single hyphens: weekly-report.")
    description: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024)
    ] = Field(description="What it does and when to use it, in one to three sentences.")
    triggers: list[TriggerPhrase] = Field(
        default_factory=list,
        max_length=8,
        description="Phrases that call for it and that nobody says by chance, without commas.",
    )
    body: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_BODY)
    ] = Field(description="The instructions, in Markdown, without front matter.")


class SkillDrafter:
    def __init__(self, *, db: Database, gateway: ModelGateway, library: SkillLibrary) -> None:
        self._db = db
        self._gateway = gateway
        self._library = library

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
        """Draft a skill from `text` without saving it. Raises BackendFailure, or SkillRefused if
        the draft is invalid."""
        named = choice if choice.backend or choice.model else chat.settings
        account = CostAccount(person=by.id, chat=chat.id)
        try:
            request = await self._build_request(text, account, language)
            reply = await self._call_model(request, named, source)
        except BackendError as error:
            raise BackendFailure(error.hint) from error
        async with self._db.write() as tx:
            await self._gateway.record_reply(tx, reply)
        answer = reply.result.value
        if not isinstance(answer, SkillDraftAnswer):
            raise BackendFailure("backend.bad_answer")
        return self._validate(answer)

    async def _call_model(
        self, request: ModelRequest, named: BackendPreference, source: str
    ) -> ModelReply:
        chosen = self._gateway.select_backend(named.model, named.backend)
        while True:
            if chosen.backend.name == OFFLINE:
                raise BackendDenied("fixed rules write no skills", hint="skill.no_model")
            session = await self._gateway.open_session(f"skill:{source}", chosen)
            try:
                return await self._gateway.call_model(request, chosen, session)
            except BackendError as error:
                instead = await self._gateway.select_next(error, session)
                if instead is None:
                    raise
            chosen = instead

    def _validate(self, answer: SkillDraftAnswer) -> SkillDraft:
        draft = SkillDraft(name=answer.name, text=render_skill_file(answer))
        if self._library.check(draft.text, draft.name).faults:
            raise SkillRefused(SkillRefusalReason.DRAFT, draft.name)
        return draft

    async def _build_request(
        self, text: str, account: CostAccount, language: Language
    ) -> ModelRequest:
        try:
            guide = (await self._library.open(_GUIDE_SKILL))[0].body
        except SkillRefused:
            # Disabled by an owner.
            guide = ""
        return ModelRequest(
            purpose=RunPurpose.HELPER,
            prompt=text,
            system_prompt=_SYSTEM.format(language=_LANGUAGE[language], guide=guide),
            language=language,
            account=account,
            facts={"text": text},
            result_type=SkillDraftAnswer,
            limits=RunLimits(turns=3),
        )


def render_skill_file(answer: SkillDraftAnswer) -> str:
    """Render SKILL.md; strings are written as JSON, which is valid YAML."""
    lines = ["---", f"name: {answer.name}", f"description: {_json_string(answer.description)}"]
    if answer.triggers:
        triggers = _json_string(", ".join(answer.triggers))
        lines += ["metadata:", "  shiftboss:", f"    triggers: {triggers}"]
    return "\n".join((*lines, "---", "", _printable(answer.body), ""))


def _json_string(text: str) -> str:
    return json.dumps(" ".join(_printable(text).split()), ensure_ascii=False)


def _printable(text: str) -> str:
    """Drop invisible characters, so that the saved text equals the text on the card."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")
