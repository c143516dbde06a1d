"""The texts that may have versions, as people wrote them, and the rules for changes of each kind.
Nothing here writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bot.engine.autonomy.evolution.change_check import find_objection, keeps_code
from bot.engine.skills.skill_library import SkillLibrary
from bot.engine.workers.personas import Persona
from bot.engine.workflow.definition import Workflow, WorkflowNode, may_ask_people
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.named_workflows import WorkflowLibrary, parse_workflow_text
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.prompts import BUILT_IN_PROMPTS
from bot.engine.workflow.step_approvals import find_risk_word
from bot.engine.workflow.workflow_files import UnreadableWorkflowFile
from storage.records.skills import SkillSource

_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)


class PromptSource(Protocol):
    """`subject` describes the text to a model, with the parts of it that may change."""

    @property
    def subject(self) -> str: ...

    async def list_texts(self) -> Mapping[str, str]:
        """The texts by name that are valid and in use."""
        ...

    async def find_objection(self, old: str, new: str) -> str:
        """The reason why `new` may not replace `old`, a catalogue key under `evolve.note`; empty
        if nothing speaks against it."""
        ...


class PersonaCatalog(Protocol):
    async def get_all(self) -> Mapping[str, Persona]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaTexts:
    """Prompts, without front matter: tools, access and model are no part of them."""

    catalog: PersonaCatalog
    subject = "the instructions of one worker of an automated team"

    async def list_texts(self) -> Mapping[str, str]:
        personas = await self.catalog.get_all()
        return {each.name: each.prompt for each in personas.values() if each.prompt}

    async def find_objection(self, old: str, new: str) -> str:
        return await asyncio.to_thread(_find_objection, old, new)


_ANSWER_WORDS = re.compile(r"\b(?:steps?|done|error|blocked|detail|repeatable)\b|\"\w+\"|`\w+`")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInTexts:
    """The program's own prompts for planning and for steps. Words that the program reads out of the
    answers may not get lost."""

    subject = (
        "the program's own instructions for all its workers or for its planner. Names in backticks"
        " or quotes and the words step, done, error, blocked, detail and repeatable must stay"
    )

    async def list_texts(self) -> Mapping[str, str]:
        return BUILT_IN_PROMPTS

    async def find_objection(self, old: str, new: str) -> str:
        if objection := await asyncio.to_thread(_find_objection, old, new):
            return objection
        before, after = (set(_ANSWER_WORDS.findall(text)) for text in (old, new))
        return "" if before <= after else "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTexts:
    """Instructions of enabled skills, without front matter and other files. Skills of projects are
    left out: another project may have another of the name."""

    library: SkillLibrary
    subject = "a skill: the instructions by which workers of an automated team do one kind of work"

    async def list_texts(self) -> Mapping[str, str]:
        usable = [each.skill for each in (await self.library.list_skills()).usable]
        shared = [each for each in usable if each.source is not SkillSource.WORKSPACE]
        return {each.name: each.body for each in shared if each.body.strip()}

    async def find_objection(self, old: str, new: str) -> str:
        if objection := await asyncio.to_thread(_find_objection, old, new):
            return objection
        whole = f"---\nname: checked\ndescription: Checked.\n---\n\n{new}\n"
        return "invalid" if self.library.check(whole, "checked").faults else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTexts:
    """Files of named workflows. A change may touch the prompts of steps for workers, and conditions
    of edges where no step waits for a person: a condition could lead around it. Steps with one of
    `risk_words` stay as they are, because these make them wait for an approval."""

    library: WorkflowLibrary
    risk_words: Callable[[], Sequence[str]]
    subject = (
        "the file of a workflow of an automated team. Only the prompts of its steps for workers and"
        " the conditions of its edges may change; its ids, titles, types, personas, edges, inputs"
        " and all else stay as they are, letter by letter"
    )

    async def list_texts(self) -> Mapping[str, str]:
        return await self.library.list_texts()

    async def find_objection(self, old: str, new: str) -> str:
        return await asyncio.to_thread(self._find_objection, old, new)

    def _find_objection(self, old: str, new: str) -> str:
        if objection := find_objection(old, new):
            return objection
        try:
            before, after = parse_workflow_text(old), parse_workflow_text(new)
        except (UnreadableWorkflowFile, InvalidGraph):
            return "invalid"
        if self._fixed_part(before, before) != self._fixed_part(after, before):
            return "structure"
        steps = zip(before.nodes, after.nodes, strict=True)
        if not all(keeps_code(_words_of(one), _words_of(other)) for one, other in steps):
            return "code"
        return "no_change" if before == after else ""

    def _fixed_part(self, workflow: Workflow, written: Workflow) -> Workflow:
        """A workflow without what may change in the `written` one."""
        waits = may_ask_people(written) or any(map(self._waits_for_approval, written.nodes))
        open_steps = {
            each.id
            for each in written.nodes
            if each.type == NodeType.TASK and not self._waits_for_approval(each)
        }
        nodes = [
            replace(each, detail="") if each.id in open_steps else each for each in workflow.nodes
        ]
        edges = [each if waits else replace(each, condition="") for each in workflow.edges]
        return replace(workflow, nodes=tuple(nodes), edges=tuple(edges))

    def _waits_for_approval(self, node: WorkflowNode) -> bool:
        return node.auto_wait or bool(find_risk_word(node, self.risk_words()))


def _find_objection(old: str, new: str) -> str:
    """For texts that are instructions as a whole. Blocking."""
    return find_objection(old, new) or ("" if keeps_code(old, new) else "code")


def _words_of(node: WorkflowNode) -> str:
    """A step's prompt without its expressions, which validation checks."""
    return _EXPRESSION.sub(" ", node.detail)
