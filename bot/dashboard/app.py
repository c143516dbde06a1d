"""Joins all pages to one application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bot.dashboard.api.table import build_api
from bot.dashboard.pages import (
    approvals,
    costs,
    health,
    home,
    memory,
    people,
    schedules,
    settings,
    setup,
    setup_bitable,
    setup_feishu,
    setup_telegram,
    tasks,
    triggers,
    workflow_exchange,
    workflows,
)
from bot.dashboard.pages.layout import (
    STATIC_TYPES,
    Page,
    PageHandler,
    preload,
    render_problem,
    static_file,
)
from bot.dashboard.problems import as_told, status_of
from bot.dashboard.request import DashboardDeps, find_words, read_request
from handlers.middleware import explain_error
from storage.errors import NotFound

ROOT = "/dashboard"
_CACHE_FOREVER = "public, max-age=31536000, immutable"

PAGES = (
    Page(path=ROOT, name="home", show=home.show_home),
    Page(path=f"{ROOT}/tasks", name="tasks", show=tasks.show_tasks, post=tasks.create_task),
    Page(
        path=f"{ROOT}/tasks/{{task_id}}",
        name="task",
        show=tasks.show_task,
        post=tasks.steer_task,
        in_menu=False,
    ),
    Page(
        path=f"{ROOT}/tasks/{{task_id}}/plan.svg",
        name="plan",
        show=tasks.show_plan_picture,
        in_menu=False,
    ),
    Page(
        path=f"{ROOT}/tasks/{{task_id}}/files/{{path:path}}",
        name="file",
        show=tasks.send_file,
        in_menu=False,
    ),
    Page(path=approvals.PATH, name="approvals", show=approvals.show_approvals),
    Page(
        path=f"{approvals.PATH}/{{approval_id}}",
        name="approval",
        show=approvals.show_approval,
        post=approvals.decide,
        in_menu=False,
    ),
    Page(
        path=schedules.PATH,
        name="schedules",
        show=schedules.show_schedules,
        post=schedules.add_schedule,
    ),
    Page(
        path=f"{schedules.PATH}/{{schedule_id}}",
        name="schedule",
        show=schedules.show_schedule,
        post=schedules.steer_schedule,
        in_menu=False,
    ),
    Page(path=workflows.PATH, name="workflows", show=workflows.show_workflows),
    Page(
        path=workflow_exchange.GALLERY,
        name="workflow_gallery",
        show=workflow_exchange.show_gallery,
        post=workflow_exchange.install_from_gallery,
        in_menu=False,
    ),
    Page(
        path=workflow_exchange.IMPORT,
        name="workflow_import",
        show=workflow_exchange.show_import,
        post=workflow_exchange.run_import,
        in_menu=False,
    ),
    Page(
        path=triggers.PATH,
        name="triggers",
        show=triggers.show_triggers,
        post=triggers.change_triggers,
        in_menu=False,
    ),
    Page(
        path=f"{workflows.PATH}/{{name}}/export",
        name="workflow_export",
        show=workflow_exchange.send_export,
        in_menu=False,
    ),
    Page(
        path=f"{workflows.PATH}/{{name}}",
        name="workflow",
        show=workflows.show_workflow,
        post=workflows.change_workflow,
        in_menu=False,
    ),
    Page(
        path=f"{workflows.PATH}/{{name}}/versions",
        name="workflow_versions",
        show=workflows.show_versions,
        post=workflows.restore_from_page,
        in_menu=False,
    ),
    Page(
        path=f"{workflows.PATH}/{{name}}/edit",
        name="workflow_editor",
        show=workflows.show_editor,
        post=workflows.save_from_editor,
        in_menu=False,
    ),
    Page(path=memory.PATH, name="memories", show=memory.show_memories, post=memory.add_memory),
    Page(
        path=f"{memory.PATH}/{{entry_id}}",
        name="memory",
        show=memory.show_memory,
        post=memory.change_memory,
        in_menu=False,
    ),
    Page(path=f"{ROOT}/costs", name="costs", show=costs.show_costs),
    Page(
        path=f"{ROOT}/people",
        name="people",
        show=people.show_people,
        post=people.change_people,
    ),
    Page(
        path=f"{ROOT}/health",
        name="health",
        show=health.show_health,
        post=health.act_on_health,
    ),
    Page(path=f"{ROOT}/setup", name="setup", show=setup.show_setup, post=setup.connect_model),
    Page(
        path=setup_telegram.PATH,
        name="setup_telegram",
        show=setup_telegram.show_telegram,
        post=setup_telegram.change_telegram,
        in_menu=False,
    ),
    Page(
        path=settings.PATH,
        name="settings",
        show=settings.show_settings,
        post=settings.save_settings,
    ),
    Page(
        path=setup_feishu.PATH,
        name="setup_feishu",
        show=setup_feishu.show_feishu,
        post=setup_feishu.change_feishu,
        in_menu=False,
    ),
    Page(
        path=setup_bitable.PATH,
        name="setup_bitable",
        show=setup_bitable.show_bitable,
        post=setup_bitable.change_bitable,
        in_menu=False,
    ),
)
"""In the order of the menu."""


def build_app(deps: DashboardDeps) -> Starlette:
    """Expects a WebVisitor in each scope. Paths are whole ones, beginning with /dashboard or
    /api/v1, or /metrics. Blocking."""
    preload()
    routes: list[BaseRoute] = [Route(f"{ROOT}/static/{{name}}", _show_static)]
    for page in PAGES:
        routes.append(Route(page.path, _endpoint(deps, page, page.show), methods=["GET"]))
        if page.post is not None:
            routes.append(Route(page.path, _endpoint(deps, page, page.post), methods=["POST"]))
    routes += build_api(deps)
    routes.append(Route("/{rest:path}", _not_found(deps)))
    app = Starlette(routes=routes)
    app.state.menu = [page for page in PAGES if page.in_menu]
    return app


def _endpoint(
    deps: DashboardDeps, page: Page, handler: PageHandler
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(http: Request) -> Response:
        try:
            request = await read_request(deps, http, needs=page.role)
            if http.method == "GET":
                # Before anything is read: the page's stream of events begins here.
                http.state.newest_event = await deps.services.tasks.newest_event_id()
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - one page's failure must end with a page that says so
            return _problem_page(deps, http, error)

    return endpoint


def _not_found(deps: DashboardDeps) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(http: Request) -> Response:
        return _problem_page(deps, http, NotFound("page", http.url.path[:80]))

    return endpoint


def _problem_page(deps: DashboardDeps, http: Request, error: Exception) -> Response:
    words = find_words(deps, http)
    error = as_told(error, words)
    explanation = explain_error(error, words, deps.new_incident())
    return render_problem(deps, http, explanation, status_of(error))


async def _show_static(http: Request) -> Response:
    name = http.path_params["name"]
    if name not in STATIC_TYPES:
        return Response(status_code=404)
    headers = {"cache-control": _CACHE_FOREVER if "v" in http.query_params else "no-cache"}
    return Response(static_file(name), media_type=STATIC_TYPES[name], headers=headers)
