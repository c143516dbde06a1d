"""Connects the dashboard and the HTTP API to the web server. They are loaded with the first request
to them: who uses neither pays for neither."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.app.container import Container
from bot.transports.web.access import VISITOR, get_bearer_token
from bot.transports.web.pages import WebPages, negotiate_language
from storage.records.people import Chat, WebVisitor


def build_dashboard_routes(core: Container, stopping: asyncio.Event) -> Sequence[BaseRoute]:
    """`stopping` is set before the server waits for open requests."""
    app = _LazyDashboard(core, stopping)
    # Routes, not mounts: with these, the application sees whole paths.
    paths = ("/dashboard", "/dashboard/{rest:path}", "/api/v1/{rest:path}")
    return [Route(path, app) for path in paths]


class _LazyDashboard:
    def __init__(self, core: Container, stopping: asyncio.Event) -> None:
        self._core = core
        self._stopping = stopping
        self._loading: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        # Shielded: it is for all requests, and this one may be cancelled.
        app = await asyncio.shield(self._loading)
        await app(scope, receive, send)

    def _load(self) -> ASGIApp:
        from bot.dashboard.app import build_app
        from bot.dashboard.request import DashboardDeps

        core, settings = self._core, self._core.settings
        return build_app(
            DashboardDeps(
                services=core.services,
                now=core.clock.now,
                zone=settings.zone,
                negotiate=negotiate_language,
                get_chat=partial(_get_chat, core),
                fixed_language=settings.fixed_language,
                version=WebPages.version(),
                new_incident=lambda: secrets.token_hex(4),
                is_welcome=partial(_is_welcome, core),
                stopping=self._stopping,
            )
        )


async def _is_welcome(core: Container, request: Request) -> bool:
    return await core.web_sessions.is_welcome(request.scope[VISITOR], get_bearer_token(request))


async def _get_chat(core: Container, visitor: WebVisitor) -> Chat:
    if visitor.is_local:
        return await core.get_local_chat()
    return await core.repositories.chats.get_private(visitor.person.id)
