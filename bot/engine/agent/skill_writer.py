"""Drafts a skill from what a person asked for in a chat. Nothing is kept here."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from bot.engine.agent.account import Account
from bot.engine.agent.desk import Ask, Desk, Reply
from bot.engine.agent.team import Choice
from bot.engine.llm.base import BackendDenied, BackendError, CannotWork, Limits, Purpose
from bot.engine.llm.offline import NAME as OFFLINE
from bot.engine.skills.library import Library
from handlers.ports import BackendFailure
from storage.db import Database
from storage.records.people import Chat, Language, Person
from storage.records.status import ModelChoice
from storage.records.workers.skills import SkillDraft, SkillRefused, WhyNoSkill

MAX_BODY = 12_000
_GUIDE = "skill-creator"
_SYSTEM = """\
You write a skill: instructions by which workers do one kind of work, kept for later. What the Boss
says is what the skill is for. Fill in the form; do not do the work itself. {language}

{guide}"""
_LANGUAGE = {
    Language.CHINESE: "Write the skill in Simplified Chinese; its name in lower-case English.",
    Language.ENGLISH: "Write the skill in English.",
}

Trigger = Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=60)]


class DraftAnswer(BaseModel):
    """A skill: how one kind of work is to be done."""

    model_config = ConfigDict(strict=True, defer_build=True)

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64),
    ] = Field(description="Lower-case letters, digits and single hyphens: weekly-report.")
    description: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024)
    ] = Field(description="What it does and when to use it, in one to three sentences.")
    triggers: list[Trigger] = Field(
        default_factory=list,
        max_length=8,
        description="Phrases that call for it and that nobody says by chance, without commas.",
    )
    body: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_BODY)
    ] = Field(description="The instructions, in Markdown, without front matter.")


class SkillWriter:
    def __init__(self, *, db: Database, desk: Desk, library: Library) -> None:
        self._db = db
        self._desk = desk
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
        """One call of the model. Raises BackendFailure, and SkillRefused for a draft that is
        none."""
        named = choice if choice.backend or choice.model else chat.settings
        account = Account(person=by.id, chat=chat.id)
        try:
            ask = await self._ask(text, account, language)
            try:
                reply = await self._put(ask, named, source)
            except CannotWork:
                # It is known only now that another may have to stand in.
                reply = await self._put(ask, named, source)
        except BackendError as error:
            raise BackendFailure(error.hint) from error
        async with self._db.write() as tx:
            await self._desk.book(tx, reply)
        answer = reply.result.value
        if not isinstance(answer, DraftAnswer):
            raise BackendFailure("backend.bad_answer")
        return self._checked(answer)

    async def _put(self, ask: Ask, named: Choice, source: str) -> Reply:
        chosen = self._desk.choose(named.model, named.backend)
        if chosen.backend.name == OFFLINE:
            raise BackendDenied("fixed rules write no skills", hint="skill.no_model")
        session = await self._desk.session(f"skill:{source}", chosen)
        return await self._desk.ask(ask, chosen, session)

    def _checked(self, answer: DraftAnswer) -> SkillDraft:
        draft = SkillDraft(name=answer.name, text=skill_text(answer))
        if self._library.check(draft.text, draft.name).faults:
            raise SkillRefused(WhyNoSkill.DRAFT, draft.name)
        return draft

    async def _ask(self, text: str, account: Account, language: Language) -> Ask:
        try:
            guide = (await self._library.open(_GUIDE))[0].body
        except SkillRefused:
            # An owner has switched it off: then the model writes as it knows how.
            guide = ""
        return Ask(
            purpose=Purpose.HELPER,
            prompt=text,
            system=_SYSTEM.format(language=_LANGUAGE[language], guide=guide),
            language=language,
            account=account,
            facts={"text": text},
            result=DraftAnswer,
            limits=Limits(turns=3),
        )


def skill_text(answer: DraftAnswer) -> str:
    """The whole SKILL.md. Strings are written as JSON, which is YAML."""
    lines = ["---", f"name: {answer.name}", f"description: {_string(answer.description)}"]
    if answer.triggers:
        triggers = _string(", ".join(answer.triggers))
        lines += ["metadata:", "  shiftboss:", f"    triggers: {triggers}"]
    return "\n".join((*lines, "---", "", _seen(answer.body), ""))


def _string(text: str) -> str:
    return json.dumps(" ".join(_seen(text).split()), ensure_ascii=False)


def _seen(text: str) -> str:
    """Only what a person can see: what is saved is what the card shows."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")
