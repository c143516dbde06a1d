"""Whom work is charged to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.records.money import Scope
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The person, chat and task behind a call; `turn` is the message it answers, where it is
    talk."""

    person: PersonId | None
    chat: ChatId | None
    task: TaskId | None = None
    turn: str = ""

    @property
    def subjects(self) -> Mapping[Scope, str]:
        """The same, by the caps that bind it."""
        named = {Scope.TASK: self.task, Scope.PERSON: self.person, Scope.CHAT: self.chat}
        return {scope: subject for scope, subject in named.items() if subject is not None}
