"""All routes of the API, joined by hand, and how they are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib.metadata import version
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route

from bot.dashboard.api import (
    approvals,
    costs,
    events,
    health,
    memory,
    people,
    schedules,
    settings,
    setup,
    tasks,
    triggers,
    workflows,
)
from bot.dashboard.api.openapi import build_document
from bot.dashboard.api.routing import ApiProblem, ApiRoute, call_route, problem_response
from bot.dashboard.problems import as_told, kind_of, status_of, without_commands
from bot.dashboard.request import DashboardDeps, DashboardRequest, find_words, read_request
from handlers.middleware import explain_error
from storage.records.people import PersonRole

log = logging.getLogger(__name__)

_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Endpoint = Callable[[HttpRequest], Awaitable[Response]]

ROUTES: tuple[ApiRoute, ...] = (
    *tasks.routes.all,
    *events.routes.all,
    *approvals.routes.all,
    *memory.routes.all,
    *schedules.routes.all,
    *triggers.routes.all,
    *workflows.routes.all,
    *people.routes.all,
    *costs.routes.all,
    *health.routes.all,
    *setup.routes.all,
    *settings.routes.all,
)


@cache
def document() -> dict[str, Any]:
    return build_document(ROUTES, version("shiftboss"))


def build_api(deps: DashboardDeps) -> list[BaseRoute]:
    own = [Route(each.path, _endpoint(deps, each), methods=[each.method]) for each in ROUTES]
    return [
        Route("/api/v1/openapi.json", _show_document, methods=["GET"]),
        *own,
        Route("/metrics", _guard(deps, PersonRole.OWNER, _show_metrics), methods=["GET"]),
        Route("/api/v1/{rest:path}", _refuse_unknown(deps, own), methods=_ALL_METHODS),
    ]


def _endpoint(deps: DashboardDeps, route: ApiRoute) -> Endpoint:
    return _guard(deps, route.role, partial(call_route, route))


def _guard(
    deps: DashboardDeps,
    role: PersonRole,
    answer: Callable[[DashboardRequest], Awaitable[Response]],
) -> Endpoint:
    async def endpoint(http: HttpRequest) -> Response:
        try:
            return await answer(await read_request(deps, http, needs=role))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - one call's failure must end with an answer to that call
            return _explain(deps, http, error)

    return endpoint


def _refuse_unknown(deps: DashboardDeps, own: list[Route]) -> Endpoint:
    async def endpoint(http: HttpRequest) -> Response:
        # What Starlette does for a wrong method is no problem document.
        partial = [each for each in own if each.matches(http.scope)[0] is Match.PARTIAL]
        if not partial:
            return _explain(deps, http, ApiProblem(404, "no_route"))
        allowed = ", ".join(sorted(set().union(*(each.methods or () for each in partial))))
        refused = _explain(deps, http, ApiProblem(405, "wrong_method", allowed=allowed))
        refused.headers["allow"] = allowed
        return refused

    return endpoint


async def _show_metrics(request: DashboardRequest) -> Response:
    figures = await request.services.system.get_figures()

    def render() -> bytes:
        # Loaded here: who does not scrape does not pay for it.
        from bot.dashboard.api.metrics import render_metrics

        return render_metrics(figures, request.now)

    text = await asyncio.to_thread(render)
    headers = {"cache-control": "no-store", "content-type": _METRICS_TYPE}
    return Response(text, headers=headers)


async def _show_document(_http: HttpRequest) -> Response:
    return JSONResponse(document())


def _explain(deps: DashboardDeps, http: HttpRequest, error: Exception) -> Response:
    words = find_words(deps, http)
    if isinstance(error, ApiProblem):
        title = words(f"api.{error.key}.title", **error.facts)
        detail = words(f"api.{error.key}.hint", **error.facts)
        return problem_response(error.status, error.key, title, detail, fields=error.fields)
    error = as_told(error, words)
    explained = explain_error(error, words, deps.new_incident())
    detail = without_commands(explained.hint, words)
    return problem_response(status_of(error), kind_of(error), explained.title, detail)
