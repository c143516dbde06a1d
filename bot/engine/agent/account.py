"""Whom work is charged to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.engine.llm.base import Usage
from storage.records.money import Scope
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId
from storage.usage import Bill


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

    def bill(
        self, usage: Usage, micros: int | None, *, at: datetime, purpose: str, seat: tuple[str, str]
    ) -> Bill:
        """Of one run; `seat` is the backend and the model, `micros` what it cost."""
        backend, model = seat
        return Bill(
            at=at,
            purpose=purpose,
            backend=backend,
            model=model,
            person_id=self.person,
            chat_id=self.chat,
            task_id=self.task,
            requests=usage.requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_micros=micros,
        )
