"""Declares the ports for people's identities: linked accounts, web sessions and API tokens."""

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
        """Create a single-use code and return it with its expiry. The person's earlier codes stop
        working."""

    async def use_code(self, code: str, person: Person, chat: ChatId) -> Approval:
        """Use up a code and create a request for confirmation. Whoever has used the code gets the
        same request again. Raises NotFound if it is unknown, used or expired, and WrongState if
        both accounts belong to one person already."""

    async def unlink(self, joined: PersonId) -> AccountLink:
        """Make a joined account a person of its own again. NotFound if it is not joined."""

    async def revoke(self, channel: Channel, external_id: str, *, session: str = "") -> AccountLink:
        """Revoke the access of one of a person's several accounts. The web session `session`
        continues. Raises WrongState for the only account."""

    async def list_choices(self, person: PersonId) -> Sequence[tuple[MemoryEntry, MemoryEntry]]:
        """Pairs of memories that exclude each other since accounts were linked: the one that holds,
        then the other."""

    async def choose(self, person: PersonId, entry_id: str, *, both: bool) -> None:
        """Let one of such a pair hold, or both. NotFound if it is in none."""

    async def list_untold(self) -> Sequence[AccountLink]:
        """Links and separations whose two sides have not been notified."""

    async def mark_told(self, link: AccountLink) -> None: ...

    async def list_chats(self, link: AccountLink) -> Sequence[Chat]:
        """The private chats of both sides, without threads."""


class WebSessionPort(Protocol):
    """Who may use the web: signed-in browsers, links that work once, and API tokens of people. The
    pages of an ended session must be closed at once."""

    async def list(self) -> Sequence[WebSession]:
        """All sessions that have not ended, the most recently used first."""

    async def end(self, session_id: str) -> bool:
        """End a session and close its pages. False if there is no such session any more; its pages
        are closed anyway."""

    async def end_others(self, session_id: str) -> int:
        """End all sessions but this one; return how many."""

    async def create_link(
        self, person_id: PersonId, *, token_name: str = "", page: str = ""
    ) -> tuple[str, WebLink]:
        """Create an address that signs this person in once, or that creates an API token with this
        name and shows it. Earlier links of the same kind stop working. `page` is the dashboard page
        to open, in letters."""

    async def list_tokens(self) -> Sequence[ApiToken]:
        """The API tokens of all people, newest first."""

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token. False if there is no such token any more."""
