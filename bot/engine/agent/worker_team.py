"""Assigns personas, backends and sessions to the steps of one task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.backend import BackendError, SelectedBackend
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import BackendPreference
from storage.records.workers import ModelSession

_ALWAYS_NEW = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedWorker:
    """A persona with its backend and session."""

    persona: Persona
    chosen: SelectedBackend
    session: ModelSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    persona: Persona
    chosen: SelectedBackend
    key: str


def persona_purposes(personas: Mapping[str, Persona]) -> Mapping[str, str]:
    """Return the personas that steps may name, with their purposes."""
    return {name: each.purpose for name, each in personas.items() if each.system_text}


class WorkerTeam:
    """The workers of one task.

    `preferences` take precedence over a persona's own backend and model. Workers on the same
    model API share one session; coding CLIs have one session per persona, stored in the
    persona's home."""

    _lead_assignment: _Assignment
    _current_lead: AssignedWorker

    def __init__(
        self,
        gateway: ModelGateway,
        context_builder: WorkerContextBuilder,
        *,
        key: str,
        preferences: Sequence[BackendPreference],
        max_session_tokens: int,
    ) -> None:
        """Sessions longer than `max_session_tokens` are not continued."""
        self._gateway = gateway
        self._context_builder = context_builder
        self._key = key
        self._preferences = tuple(preferences)
        self._max_session_tokens = max_session_tokens
        self._sessions: dict[str, ModelSession] = {}
        self._retired_keys: set[str] = set()
        self._lock = asyncio.Lock()

    async def assign_lead(self, name: str) -> AssignedWorker:
        """Assign the persona that plans and executes steps without a named persona; must be called
        first.

        Raises BackendDenied."""
        persona = await self._context_builder.personas.get(name)
        self._lead_assignment = _Assignment(
            persona=persona, chosen=self._select_backend(persona), key=self._key
        )
        return await self._resolve(self._lead_assignment)

    @property
    def current_lead(self) -> AssignedWorker:
        """The current lead; its backend and session may change during the task."""
        return self._current_lead

    async def get_worker(
        self, name: str, branch: str = "", *, keeps_history: bool = False
    ) -> AssignedWorker:
        """Return the worker for a step; unknown names select the lead.

        `branch` separates the sessions of steps that may run concurrently. Where it
        `keeps_history`, the step's session is not left. Raises BackendDenied."""
        persona = (
            (await self._context_builder.personas.get_all()).get(name.casefold()) if name else None
        )
        lead = self._lead_assignment
        if persona is None or persona.name == lead.persona.name:
            if lead.chosen.instead_of:  # the first of the chain may be well again
                chosen = self._select_backend(lead.persona, keeps_history=keeps_history)
                self._lead_assignment = lead = replace(lead, chosen=chosen)
            return await self._resolve(self._assignment(lead.persona, lead.chosen, branch))
        chosen = self._select_backend(persona, keeps_history=keeps_history)
        return await self._resolve(self._assignment(persona, chosen, branch))

    def _assignment(self, persona: Persona, chosen: SelectedBackend, branch: str) -> _Assignment:
        lead = self._lead_assignment
        shares = chosen.backend.name == lead.chosen.backend.name and chosen.backend.accepts_tools
        is_lead = persona.name == lead.persona.name
        key = self._key if is_lead or shares else f"{self._key}:{persona.name}"
        return _Assignment(persona=persona, chosen=chosen, key=_branch_key(key, branch))

    async def get_replacement(
        self,
        failed: AssignedWorker,
        error: BackendError,
        branch: str = "",
        *,
        path: str | None = None,
        keeps_history: bool = False,
    ) -> AssignedWorker | None:
        """Return the same persona on the next backend of its chain; None if none may continue the
        step at `path`."""
        instead = await self._gateway.select_next(
            error, failed.session, path=path, keeps_history=keeps_history
        )
        if instead is None:
            return None
        if failed.persona.name == self._lead_assignment.persona.name:
            self._lead_assignment = replace(self._lead_assignment, chosen=instead)
        return await self._resolve(self._assignment(failed.persona, instead, branch))

    def retire_session(self, session: ModelSession) -> None:
        """Start a new session for all workers that shared this one, which grew too long."""
        for key in [key for key, each in self._sessions.items() if each.id == session.id]:
            del self._sessions[key]
            self._retired_keys.add(key)

    async def _resolve(self, post: _Assignment) -> AssignedWorker:
        async with self._lock:
            # Concurrent steps may need the same session.
            known = self._sessions.get(post.key)
            if known is None or known.backend != post.chosen.backend.name:
                most = _ALWAYS_NEW if post.key in self._retired_keys else self._max_session_tokens
                self._sessions[post.key] = await self._gateway.open_session(
                    post.key, post.chosen, max_tokens=most, persona=post.persona.name
                )
                self._retired_keys.discard(post.key)
        session = self._sessions[post.key]
        worker = AssignedWorker(persona=post.persona, chosen=post.chosen, session=session)
        if post == self._lead_assignment:
            self._current_lead = worker
        return worker

    def _select_backend(self, persona: Persona, *, keeps_history: bool = False) -> SelectedBackend:
        wanted = next(
            (each for each in (*self._preferences, persona) if each.model or each.backend), None
        )
        model, backend = ("", "") if wanted is None else (wanted.model, wanted.backend)
        return self._gateway.select_backend(
            model, backend, persona.fallbacks, keeps_history=keeps_history
        )


def _branch_key(key: str, lane: str) -> str:
    return f"{key}/{lane}" if lane else key
