"""Ports of who uses Shiftboss, and from where: linked accounts, browsers and programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from storage.records.approvals import Approval
from storage.records.memory import MemoryEntry
from storage.records.people import (
    AccountLink,
    ApiToken,
    Channel,
    Chat,
    ChatId,
    Person,
    PersonId,
    WebLink,
    WebSession,
)


class AccountLinkPort(Protocol):
    """Accounts of one person. Each change is one transaction."""

    async def create_code(self, person: Person, chat: ChatId) -> tuple[str, datetime]:
        """A code that works once, and until when. The person's earlier ones work no more."""

    async def use_code(self, code: str, person: Person, chat: ChatId) -> Approval:
        """Use up a code and ask for confirmation; who has used it gets the same request again.
        NotFound if it is unknown, used or expired. WrongState if both are one person already."""

    async def unlink(self, joined: PersonId) -> AccountLink:
        """Make a joined account a person of its own again. NotFound if it is not joined."""

    async def revoke(self, channel: Channel, external_id: str, *, session: str = "") -> AccountLink:
        """Take access from one of several accounts of a person. The web session `session` goes on.
        WrongState for the only account."""

    async def list_choices(self, person: PersonId) -> Sequence[tuple[MemoryEntry, MemoryEntry]]:
        """Pairs of memories that exclude each other since accounts were linked: the one that holds,
        and the other."""

    async def choose(self, person: PersonId, entry_id: str, *, both: bool) -> None:
        """Let one of such a pair hold, or both. NotFound if it is in none."""

    async def list_untold(self) -> Sequence[AccountLink]:
        """Those of which the two sides are not told."""

    async def mark_told(self, link: AccountLink) -> None: ...

    async def list_chats(self, link: AccountLink) -> Sequence[Chat]:
        """The private chats of both sides, without threads."""


class WebSessionPort(Protocol):
    """Who may use the web: signed-in browsers, links that work once, and API tokens of people. The
    pages of an ended session must be closed at once."""

    async def list(self) -> Sequence[WebSession]:
        """All that have not ended, the one used last first."""

    async def end(self, session_id: str) -> bool:
        """False if there is no such session, or not any more; its pages are closed anyway."""

    async def end_others(self, session_id: str) -> int:
        """End all but this one; returns how many."""

    async def create_link(
        self, person_id: PersonId, *, token_name: str = "", page: str = ""
    ) -> tuple[str, WebLink]:
        """An address that signs this person in once, or that makes an API token with this name and
        shows it. Earlier ones of the same kind work no more. `page` of the dashboard, in
        letters, is where it leads."""

    async def list_tokens(self) -> Sequence[ApiToken]:
        """Of all people, the newest first."""

    async def revoke_token(self, token_id: str) -> bool:
        """False if there is no such token, or not any more."""
