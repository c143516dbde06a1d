"""Handles a CLI's permission requests: decisions, waiting, persistence and replies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.updates import AcpCallTracker
from bot.engine.llm.backend import AgentEvent, RunRequest, ToolFinished, WorkerMode
from bot.engine.llm.tool_calls import (
    CallDecision,
    CallKind,
    CallVerdict,
    ToolCall,
    call_fingerprint,
)

# Selected by kind: names and order vary, and some CLIs offer several options of a kind.
_ALLOW_KINDS = ("allow_once",)
_REJECT_KINDS = ("reject_once", "reject_always")

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}


def select_option(options: object, *, allow: bool) -> Mapping[str, Any]:
    """Return the protocol's outcome, allowing once at most.

    Without a matching option the outcome is `cancelled`."""
    listed = options if isinstance(options, list) else []
    offered = [each for each in listed if isinstance(each, dict)]
    for kind in _ALLOW_KINDS if allow else _REJECT_KINDS:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
    return CANCELLED


def is_mode_change(tool_call: Mapping[str, Any]) -> bool:
    """The CLI may not change its own permission mode."""
    return tool_call.get("kind") == "switch_mode"


_MAX_REQUESTS = 200
_UNSAFE = re.compile(r"[^\w.-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpPermissionRequest:
    """A call that needs a decision; `exact` is the call's fingerprint."""

    call_id: str
    name: str
    title: str
    detail: str
    exact: str


def exact_call_hash(call: ToolCall) -> str:
    return call_fingerprint(call.name, call.arguments)


class PermissionRequestStore:
    """Persists a session's open requests in a file before anyone is asked, so that they survive a
    crash.

    All methods block."""

    def __init__(self, folder: Path, session: str) -> None:
        self._folder = folder
        self._path = self._session_path(session)

    def adopt_session(self, session: str) -> None:
        """Take over the requests of a lost session that this one replaces."""
        if session and self._session_path(session) != self._path:
            with suppress(OSError):
                self._session_path(session).replace(self._path)

    def add(self, call: ToolCall) -> None:
        requests = self.load_all()
        requests[call.call_id] = AcpPermissionRequest(
            call_id=call.call_id,
            name=call.name,
            title=call.title,
            detail=call.detail,
            exact=exact_call_hash(call),
        )
        self._write(requests)

    def load_all(self) -> dict[str, AcpPermissionRequest]:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            loaded = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(key): AcpPermissionRequest(**value) for key, value in loaded.items()}
        return {}

    def retain(self, call_ids: Sequence[str]) -> dict[str, AcpPermissionRequest]:
        """Return these requests and delete all others."""
        requests = self.load_all()
        kept = {call_id: requests[call_id] for call_id in call_ids if call_id in requests}
        if kept != requests:
            self._write(kept)
        return kept

    def _session_path(self, session: str) -> Path:
        return self._folder / f"{_UNSAFE.sub('_', session)[:100]}.json"

    def _write(self, requests: Mapping[str, AcpPermissionRequest]) -> None:
        kept = dict(list(requests.items())[-_MAX_REQUESTS:])
        data = {
            key: {name: getattr(stored, name) for name in AcpPermissionRequest.__slots__}
            for key, stored in kept.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps(data), encoding="utf-8")
        part.replace(self._path)


_MAX_CALL_ID = 100
_HASH_LENGTH = 12
_REPEAT_SUFFIX = "/again"
_READ_ONLY_KINDS = {CallKind.READ, CallKind.SEARCH, CallKind.FETCH, CallKind.THINK}
_ALLOW_DECISION = CallDecision(verdict=CallVerdict.ALLOW)
_PENDING_DECISION = CallDecision(verdict=CallVerdict.PENDING)


class PermissionBroker:
    """Decides on the permission requests of one run.

    `emit` receives events, or None to signal a state change."""

    def __init__(
        self,
        request: RunRequest,
        mode: WorkerMode,
        call_tracker: AcpCallTracker,
        *,
        approval_wait: float,
        emit: Callable[[AgentEvent | None], Awaitable[None]],
    ) -> None:
        self._request = request
        self._mode = mode
        self._call_tracker = call_tracker
        self._approval_wait = approval_wait
        self._emit = emit
        self._store: PermissionRequestStore | None = None
        self._reusable_approvals: dict[str, str] = {}
        self._decided_ids = {
            call_id
            for call_id, decision in request.answers.items()
            if decision.verdict is not CallVerdict.DENY
        }
        self._allowed_calls: dict[str, str] = {}
        self._suspending = asyncio.Event()
        self.pending_count = 0
        self.suspended: list[ToolCall] = []
        self.denied: list[tuple[ToolCall, str]] = []
        self.error: BaseException | None = None

    async def start(
        self, store: PermissionRequestStore
    ) -> list[tuple[AcpPermissionRequest | None, str, CallDecision]]:
        """Set the session's store and return decisions on calls of earlier runs.

        Allowed calls may be repeated once, unchanged, under their earlier IDs."""
        self._store = store
        known = await asyncio.to_thread(store.retain, tuple(self._request.answers))
        decided = [
            (known.get(call_id), call_id, decision)
            for call_id, decision in self._request.answers.items()
        ]
        for stored, call_id, decision in decided:
            if stored is not None and decision.verdict is CallVerdict.ALLOW:
                self._reusable_approvals[stored.exact] = call_id
        return decided

    async def handle_request(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the protocol's answer to a permission request."""
        tool_call = params.get("toolCall")
        tool_call = tool_call if isinstance(tool_call, dict) else {}
        options = params.get("options")
        if is_mode_change(tool_call):
            return select_option(options, allow=False)
        call = self._call_tracker.requested_call(tool_call)
        for event in self._call_tracker.announce(call):
            await self._emit(event)
        decision = await self._request_decision(
            call.call_id, self._with_earlier_id(_bind_to_content(call))
        )
        return select_option(options, allow=decision.verdict is CallVerdict.ALLOW)

    async def record_outcome(self, event: ToolFinished) -> None:
        """Record the outcome of an allowed call in the audit log."""
        call_id = self._allowed_calls.pop(event.call_id, None)
        if call_id is not None and self._request.permit is not None:
            size = len(event.summary.encode("utf-8", "replace"))
            await self._request.permit.record_outcome(
                call_id, succeeded=event.succeeded, outcome=event.summary, size=size
            )

    def _with_earlier_id(self, call: ToolCall) -> ToolCall:
        """Reuse the ID of an earlier approval for exactly this call, once; a repeated call gets a
        new ID."""
        if call_id := self._reusable_approvals.pop(exact_call_hash(call), ""):
            return replace(call, call_id=call_id)
        if call.call_id in self._decided_ids:
            return replace(call, call_id=f"{call.call_id}{_REPEAT_SUFFIX}")
        return call

    async def _request_decision(self, number: str, call: ToolCall) -> CallDecision:
        """`number` is the CLI's own call ID."""
        if self._request.permit is None:
            looks = self._mode is WorkerMode.EXECUTE or call.kind in _READ_ONLY_KINDS
            return _ALLOW_DECISION if looks else CallDecision(verdict=CallVerdict.DENY)
        self.pending_count += 1
        await self._emit(None)
        try:
            decision = await self._wait_for_decision(call)
        finally:
            self.pending_count -= 1
        if decision.verdict is CallVerdict.ALLOW:
            self._allowed_calls[number] = call.call_id
        elif decision.verdict is not CallVerdict.PENDING:
            self.denied.append((call, decision.text))
        await self._emit(None)
        return decision

    async def _wait_for_decision(self, call: ToolCall) -> CallDecision:
        """Wait for the decision.

        Returns PENDING also if another call of this run is suspended: the process ends, and this
        call stays open."""
        permit = self._request.permit
        assert permit is not None
        if self._store is not None:
            await asyncio.to_thread(self._store.add, call)
        asked = asyncio.ensure_future(permit(call, wait_seconds=self._approval_wait))
        over = asyncio.ensure_future(self._suspending.wait())
        try:
            await asyncio.wait({asked, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            if not asked.done():
                asked.cancel()
        decision = self._decision_of(asked)
        if decision.verdict is CallVerdict.PENDING:
            self.suspended.append(call)
            self._suspending.set()
        return decision

    def _decision_of(self, asked: asyncio.Future[CallDecision]) -> CallDecision:
        if not asked.done() or asked.cancelled():
            return _PENDING_DECISION
        if (broken := asked.exception()) is not None:
            self.error = self.error or broken
            return CallDecision(verdict=CallVerdict.DENY)
        return asked.result()


def _bind_to_content(call: ToolCall) -> ToolCall:
    """Include the call's fingerprint in its ID, because CLIs may reuse IDs for other calls."""
    return replace(
        call, call_id=f"{call.call_id[:_MAX_CALL_ID]}:{exact_call_hash(call)[:_HASH_LENGTH]}"
    )
