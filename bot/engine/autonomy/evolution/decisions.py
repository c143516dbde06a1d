"""Applies owners' decisions on versions of prompts, in the deciding transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.db import Transaction
from storage.errors import ConcurrentUpdate
from storage.prompt_versions import PromptVersionRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.prompt_versions import PromptVersion, VersionState


class DecisionStage(StrEnum):
    """The change that a request asks for."""

    TRIAL = "trial"
    ADOPTION = "adoption"

    @property
    def expected(self) -> VersionState:
        """The state of a version that this can be decided about."""
        return VersionState.DRAFT if self is DecisionStage.TRIAL else VersionState.TRIAL


def request_subject(version: PromptVersion, stage: DecisionStage) -> str:
    return f"{version.subject}:{stage}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDecisions:
    versions: PromptVersionRepo
    now: Callable[[], datetime]

    async def apply(self, tx: Transaction, approval: Approval) -> None:
        """A yes starts the trial or adopts the version; a no, and no answer, retire it.

        Raises ConcurrentUpdate if the version's text is not the one that was asked about. A
        version that has moved on meanwhile stays as it is."""
        stage = DecisionStage(approval.payload["stage"])
        version = await self.versions.get(tx, int(approval.payload["version_id"]))
        if version.state is not stage.expected:
            return
        if version.hash != approval.command_hash:
            raise ConcurrentUpdate
        if approval.state is not ApprovalState.APPROVED:
            reason = "declined" if approval.state is ApprovalState.REJECTED else "no_answer"
            await self.versions.retire(tx, version, reason, now=self.now())
        elif stage is DecisionStage.TRIAL:
            await self.versions.start_trial(tx, version, now=self.now())
        else:
            await self.versions.activate(tx, version, now=self.now())
