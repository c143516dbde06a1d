"""Sessions of the web chat: one for each browser that has signed in with the token."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cards import formats
from storage.errors import StorageError
from storage.ids import IdGenerator
from storage.records.people import WebSession
from storage.web_sessions import WebSessionRepo

SESSION_LIFETIME = timedelta(days=180)
SEEN_INTERVAL = timedelta(minutes=5)
_MAX_USER_AGENT = 200
_MARK_DIGITS = 4

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class WebSessionService:
    """Implements handlers.ports.WebSessionPort. `on_end` is called with the ids of sessions once
    they have ended, so that their open pages are closed."""

    repo: WebSessionRepo
    ids: IdGenerator
    now: Callable[[], datetime]
    on_end: Callable[[Collection[str]], None] = lambda _ended: None
    _token: str = field(default="", repr=False)

    async def use_token(self, token: str) -> None:
        """Sign in with this token from now on, and end the sessions of every other one."""
        self._token = token
        self.on_end(await self.repo.end_of_other_tokens(self._token_mark()))

    async def open(self, user_agent: str, *, replaced: str = "") -> str:
        """A new cookie. The session of the cookie `replaced` ends, if there is one."""
        cookie, now = secrets.token_urlsafe(32), self.now()
        session = WebSession(
            id=self.ids.token(),
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
        )
        self.on_end(ended)
        return cookie

    async def find_by_cookie(self, cookie: str) -> str:
        """The id of the session; empty for a cookie that is worth nothing."""
        return await self._see(self._hash(cookie)) if cookie else ""

    async def is_live(self, session_id: str) -> bool:
        return bool(await self._see(session_id))

    async def list(self) -> Sequence[WebSession]:
        return await self.repo.list(now=self.now())

    async def end(self, session_id: str) -> bool:
        ended = await self.repo.end(session_id)
        self.on_end(ended)
        return bool(ended)

    async def end_others(self, session_id: str) -> int:
        ended = await self.repo.end_others(session_id)
        self.on_end(ended)
        return len(ended)

    async def _see(self, which: str) -> str:
        now = self.now()
        session = await self.repo.find(which, now=now)
        if session is None:
            return ""
        if now - session.seen_at >= SEEN_INTERVAL:
            try:
                await self.repo.touch(session.id, now=now)
            except StorageError as error:
                # A full disk must not lock anybody out.
                _log.warning("cannot note that a web session is in use: %s", error)
        return session.id

    def _hash(self, cookie: str) -> str:
        """Keyed with the token, so that a cookie of an earlier token is worth nothing."""
        return self._digest(f"cookie {cookie}")

    def _token_mark(self) -> str:
        """Tells tokens apart. Too short for finding out a token from a copy of the database."""
        return self._digest("token")[:_MARK_DIGITS]

    def _digest(self, text: str) -> str:
        key = self._token.encode("utf-8", "replace")
        message = f"shiftboss web {text}".encode("utf-8", "replace")
        return hmac.new(key, message, hashlib.sha256).hexdigest()
