"""Ends versions of prompts together with the requests about them, tells the owners, and applies
their decisions in the deciding transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bot.engine.agent.conversation.turn_taking import CardPoster
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card
from cards.views.prompts import version_retired_card
from storage.approvals import ApprovalRepo, withdraw_approval
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate
from storage.prompt_versions import PromptVersionRepo
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language
from storage.records.prompt_versions import PromptVersion, TrialFigures, VersionState

OwnerChats = Sequence[tuple[ChatId, Language]]
"""Private chats of the owners with their languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRetirer:
    """`show_request` publishes the card of a request, `update_cards` redraws those of withdrawn
    ones."""

    db: Database
    versions: PromptVersionRepo
    approvals: ApprovalRepo
    poster: CardPoster
    owner_chats: Callable[[], Awaitable[OwnerChats]]
    show_request: Callable[[Approval], Awaitable[None]]
    update_cards: Callable[[Sequence[Approval]], Awaitable[None]]
    now: Callable[[], datetime]

    async def retire(self, versions: Sequence[PromptVersion], reason: str) -> None:
        """Raises ConcurrentUpdate if one of them has ended already."""
        owners = await self.owner_chats()
        withdrawn: list[Approval] = []
        async with self.db.write() as tx:
            for version in versions:
                await self.retire_within(tx, version, reason, owners)
                withdrawn += await self.withdraw_requests(tx, version)
        await self.finish(withdrawn)

    async def retire_within(
        self,
        tx: Transaction,
        version: PromptVersion,
        reason: str,
        owners: OwnerChats,
        figures: TrialFigures | None = None,
    ) -> None:
        """`reason` is a key under `prompt.end`. Call `finish` after the commit."""
        await self.versions.retire(tx, version, reason, now=self.now())
        await self.tell(
            tx,
            owners,
            f"prompt:{version.id}:retired",
            lambda words: version_retired_card(version, reason, figures, words),
        )

    async def tell(
        self, tx: Transaction, owners: OwnerChats, key: str, draw: Callable[[TextCatalog], Card]
    ) -> None:
        for chat_id, language in owners:
            await self.poster.post(
                tx,
                chat_id,
                draw(catalog_for(language)),
                key=f"{key}:{chat_id}",
                urgency=DeliveryUrgency.NOTICE,
            )

    async def list_waiting(self, tx: Transaction, version: PromptVersion) -> Sequence[Approval]:
        """The requests about this version that nobody has decided."""
        subjects = {request_subject(version, stage) for stage in DecisionStage}
        waiting = await self.approvals.list_waiting_of_kind(ApprovalKind.PROMPT, tx=tx)
        return [each for each in waiting if each.subject in subjects]

    async def withdraw_requests(
        self, tx: Transaction, version: PromptVersion
    ) -> Sequence[Approval]:
        found = await self.list_waiting(tx, version)
        for each in found:
            await withdraw_approval(tx, each.id, reason_key="prompt.withdrawn", now=self.now())
        return found

    async def finish(self, withdrawn: Sequence[Approval]) -> None:
        """After the commit: send the cards, and redraw those of withdrawn requests."""
        self.poster.wake()
        if withdrawn:
            await self.update_cards([await self.approvals.get(each.id) for each in withdrawn])


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
