"""Which model is connected, and how to connect one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from cards.views.self_checks import finding_text, next_step_text
from storage.records.people import PersonRole
from storage.records.system import ModelConnection, ModelKind

routes = ApiRoutes("setup")


class SetupModel(ApiModel):
    """`with_key`: the kinds whose key is set. `clis`: the coding CLIs that were found."""

    revision: str
    model: str
    model_problem: str
    with_key: list[ModelKind]
    base_urls: dict[ModelKind, str]
    clis: list[str]


class NewConnection(ApiModel):
    """Without `key`, the one of the same address is kept; without `model`, the service's own is
    used. `model` of a coding CLI is its name. `seen`: the revision that the change is made from."""

    kind: ModelKind
    key: Annotated[str, Field(max_length=2_000)] = ""
    base_url: Annotated[str, Field(max_length=500)] = ""
    model: Line = ""
    seen: Line = ""


class ConnectionResult(ApiModel):
    """`next_step` says what to do if nothing was changed."""

    is_connected: bool
    found: str
    next_step: str


@routes("GET", "/setup", role=PersonRole.OWNER)
async def show_setup(call: ApiCall) -> SetupModel:
    """How models are connected (owners)"""
    words, setup = call.request.words, await call.request.services.model_setup.get_setup()
    problem = setup.choice.problem
    return SetupModel(
        revision=setup.revision,
        model=setup.choice.name,
        model_problem=words.get_or_literal(problem) if problem else "",
        with_key=sorted(setup.with_key),
        base_urls=dict(setup.base_urls),
        clis=list(setup.clis),
    )


@routes("POST", "/setup/model", role=PersonRole.OWNER)
async def connect_model(call: ApiCall, body: NewConnection) -> ConnectionResult:
    """Call a model, and use it from now on if it answers (owners)"""
    words = call.request.words
    finding = await call.request.services.model_setup.connect(
        ModelConnection(**body.model_dump()), by=call.request.person
    )
    return ConnectionResult(
        is_connected=not finding.points,
        found=finding_text(finding, words),
        next_step=next_step_text(finding, words) if finding.points else "",
    )
