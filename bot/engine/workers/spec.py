"""Describes a worker's job and the account it is charged to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from bot.engine.llm.backend import TokenUsage, WorkerMode
from storage.records.people import ChatId, Language, PersonId
from storage.records.tasks import TaskId
from storage.records.usage import BudgetScope, UsageRecord
from storage.records.workers import ModelSession


class BackendPreference(Protocol):
    """A model and backend chosen by a person; empty values mean no preference."""

    @property
    def model(self) -> str: ...

    @property
    def backend(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAccount:
    """The person, chat and task charged; `turn` is the chat message being answered."""

    person: PersonId | None
    chat: ChatId | None
    task: TaskId | None = None
    turn: str = ""

    @property
    def cap_subjects(self) -> Mapping[BudgetScope, str]:
        """The account's IDs by budget scope."""
        named = {
            BudgetScope.TASK: self.task,
            BudgetScope.PERSON: self.person,
            BudgetScope.CHAT: self.chat,
        }
        return {scope: subject for scope, subject in named.items() if subject is not None}

    def usage_record(
        self,
        usage: TokenUsage,
        micros: int | None,
        *,
        at: datetime,
        purpose: str,
        backend_and_model: tuple[str, str],
    ) -> UsageRecord:
        """Build the usage record of one run; `micros` is its cost in micro-dollars."""
        backend, model = backend_and_model
        return UsageRecord(
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
            estimated_tokens=usage.estimated_input + usage.estimated_output,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker's job.

    `step_path` and `attempt` are those of the task's step, empty and 0 in a chat; `depth` is 0 for
    main workers and increases for sub-agents."""

    account: CostAccount
    session: ModelSession
    language: Language
    workspace: Path
    persona: str = ""
    step_path: str = ""
    attempt: int = 0
    mode: WorkerMode = WorkerMode.EXECUTE
    depth: int = 0
    request_text: str = ""
    """The request, for selecting relevant context."""
    skill: str = ""
    """The requested skill, if any."""
    turn_key: str = ""
    """Chats only: identifies the answered message, also across retries."""
    uses_memory: bool = True
    """False for work that starts without what is remembered."""

    @property
    def is_chat(self) -> bool:
        return self.account.task is None
