"""Access to the web: browser sessions, links that sign in once, and API tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cards import formats
from storage.errors import StorageError
from storage.ids import IdGenerator
from storage.records.people import (
    ApiToken,
    PersonId,
    WebKeyKind,
    WebLink,
    WebSession,
    WebVisitor,
)
from storage.web_sessions import WebSessionRepo

SIGN_IN_PATH = "/sign-in"
LINK_LIFETIME = timedelta(minutes=10)
SESSION_LIFETIME = timedelta(days=180)
SEEN_INTERVAL = timedelta(minutes=5)
_MAX_USER_AGENT = 200
_MARK_DIGITS = 4
_TOKEN_PREFIX = "sbt_"  # noqa: S105 - the beginning of every token
_LOCAL_OWNER = PersonId("")

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class WebSessionService:
    """Implements handlers.ports_people.WebSessionPort. `on_end` is called with the ids of sessions
    that have ended, so that their open pages are closed. Links begin with `address`.
    """

    repo: WebSessionRepo
    ids: IdGenerator
    now: Callable[[], datetime]
    address: str = ""
    on_end: Callable[[Collection[str]], None] = lambda _ended: None
    _token: str = field(default="", repr=False)

    async def use_token(self, token: str) -> None:
        """Sign in with this token from now on, and end the sessions of every other token."""
        self._token = token
        self.on_end(await self.repo.end_of_other_tokens(self._token_mark()))

    async def open(self, user_agent: str, *, replaced: str = "") -> str:
        """Create a session of the local owner and return its cookie. The session of the cookie
        `replaced` ends, if there is one.
        """
        return await self._open(user_agent, replaced, _LOCAL_OWNER)

    async def find_by_cookie(self, cookie: str) -> WebVisitor | None:
        """The person of a cookie; None if it is not valid."""
        return await self._see(self._hash(cookie)) if cookie else None

    async def find_by_token(self, token: str) -> WebVisitor | None:
        """The person of an API token; None if it is not valid."""
        if not token.startswith(_TOKEN_PREFIX):
            return None
        known, visitor = await self.repo.find_token(_hash_secret(token))
        if known is not None:
            await self._note_use(known.seen_at, lambda at: self.repo.touch_token(known.id, now=at))
        return visitor

    async def is_welcome(self, visitor: WebVisitor, token: str) -> bool:
        """Whether a visitor still has their access. `token` is that of a program."""
        if visitor.session_id:
            now = await self._see(visitor.session_id)
        elif visitor.is_local and hmac.compare_digest(token.encode(), self._token.encode()):
            now = await self.get_local_visitor()
        else:
            now = await self.find_by_token(token)
        # Accounts may have been linked or unlinked since.
        was = visitor.person
        return now is not None and (now.person.id, now.person.role) == (was.id, was.role)

    async def get_local_visitor(self) -> WebVisitor:
        return await self.repo.get_local_visitor()

    async def is_live(self, session_id: str) -> bool:
        return await self._see(session_id) is not None

    async def list(self) -> Sequence[WebSession]:
        return await self.repo.list(now=self.now())

    async def end(self, session_id: str) -> bool:
        """Revoke one session and close its pages. False if it had ended."""
        ended = await self.repo.end(session_id)
        # Also if somebody else has ended it: its pages may be open.
        self.on_end([session_id])
        return bool(ended)

    async def end_others(self, session_id: str) -> int:
        """End all sessions but this one; return how many."""
        ended = await self.repo.end_others(session_id)
        self.on_end(ended)
        return len(ended)

    async def create_link(
        self, person_id: PersonId, *, token_name: str = "", page: str = ""
    ) -> tuple[str, WebLink]:
        # Without characters that mean something in Markdown: the link is sent in chats.
        secret, now = secrets.token_hex(32), self.now()
        link = WebLink(
            id=self.ids.token(),
            kind=WebKeyKind.NEW_TOKEN if token_name else WebKeyKind.SIGN_IN,
            person_id=person_id,
            name=token_name,
            created_at=now,
            expires_at=now + LINK_LIFETIME,
        )
        await self.repo.add_link(link, secret_hash=_hash_secret(secret))
        where = f"?to={page}" if page else ""
        return f"{self.address.rstrip('/')}{SIGN_IN_PATH}/{secret}{where}", link

    async def find_link(self, secret: str) -> WebLink | None:
        """The link; None if it was used or has expired."""
        return await self.repo.find_link(_hash_secret(secret), now=self.now())

    async def sign_in(self, link: WebLink, user_agent: str, *, replaced: str = "") -> str:
        """Like `open`, for the link's person. Raises NotFound if it was used."""
        return await self._open(user_agent, replaced, link.person_id, link=link.id)

    async def create_token(self, person_id: PersonId, name: str, *, link: str = "") -> str:
        """The new token, which is known only now. Raises NotFound if it was used."""
        secret = _TOKEN_PREFIX + secrets.token_urlsafe(32)
        token = ApiToken(id=self.ids.token(), person_id=person_id, name=name, created_at=self.now())
        await self.repo.add_token(token, secret_hash=_hash_secret(secret), link=link)
        return secret

    async def list_tokens(self) -> Sequence[ApiToken]:
        return await self.repo.list_tokens()

    async def revoke_token(self, token_id: str) -> bool:
        return await self.repo.revoke_token(token_id)

    async def _open(
        self, user_agent: str, replaced: str, person_id: PersonId, *, link: str = ""
    ) -> str:
        cookie, now = secrets.token_urlsafe(32), self.now()
        session = WebSession(
            id=self.ids.token(),
            person_id=person_id,
            created_at=now,
            seen_at=now,
            expires_at=now + SESSION_LIFETIME,
            user_agent=formats.truncate(formats.clean_line(user_agent), _MAX_USER_AGENT),
        )
        ended = await self.repo.add(
            session,
            cookie_hash=self._hash(cookie),
            token_mark=self._token_mark(),
            replaced=self._hash(replaced),
            link=link,
        )
        self.on_end(ended)
        return cookie

    async def _see(self, which: str) -> WebVisitor | None:
        session, visitor = await self.repo.find(which, now=self.now())
        if session is not None:
            await self._note_use(session.seen_at, lambda at: self.repo.touch(session.id, now=at))
        return visitor

    async def _note_use(
        self, seen_at: datetime | None, touch: Callable[[datetime], Awaitable[None]]
    ) -> None:
        now = self.now()
        if seen_at is None or now - seen_at >= SEEN_INTERVAL:
            try:
                await touch(now)
            except StorageError as error:
                # A full disk must not lock anybody out.
                _log.warning("cannot note that a web session or token is in use: %s", error)

    def _hash(self, cookie: str) -> str:
        """A hash keyed with the token, so that a cookie of an earlier token is not valid."""
        return self._digest(f"cookie {cookie}")

    def _token_mark(self) -> str:
        """A mark that tells tokens apart, too short to find out a token from a copy of the
        database.
        """
        return self._digest("token")[:_MARK_DIGITS]

    def _digest(self, text: str) -> str:
        key = self._token.encode("utf-8", "replace")
        message = f"shiftboss web {text}".encode("utf-8", "replace")
        return hmac.new(key, message, hashlib.sha256).hexdigest()


def _hash_secret(secret: str) -> str:
    """A plain hash, which is enough for secrets that are random. Not keyed with the token, because
    commands of the shell may run without it.
    """
    return hashlib.sha256(f"shiftboss web {secret}".encode("utf-8", "replace")).hexdigest()
