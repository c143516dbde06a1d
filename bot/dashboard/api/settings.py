"""Settings: what is in force, where it comes from, and changes that apply at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from storage.records.people import PersonRole
from storage.records.system import SettingChange, SettingSource

routes = ApiRoutes("settings")


class SettingModel(ApiModel):
    """`value` and `default` are empty for secrets. `change` says how it is changed: `here` by this
    API, `setup` by `/setup`, `restart` in a file, `environment` in the environment. `options` are
    the only values. `waits`: a file has another value, which counts after a restart."""

    name: str
    group: str
    value: str
    default: str
    is_secret: bool
    is_set: bool
    source: SettingSource
    file: str
    change: SettingChange
    options: list[str]
    waits: bool


class SettingsModel(ApiModel):
    """`faults` say why the files cannot be used as they are now."""

    revision: str
    settings: list[SettingModel]
    faults: list[str]


class SettingsPatch(ApiModel):
    """Values by name, all of them or none; an empty one goes back to what other sources say.
    `seen`: the revision that the change is made from."""

    changes: Annotated[
        dict[Line, Annotated[str, Field(max_length=4_000)]],
        Field(min_length=1, max_length=100),
    ]
    seen: Line = ""


class ChangedModel(ApiModel):
    """`applied`: the names of what is different since then."""

    applied: list[str]
    revision: str


@routes("GET", "/settings", role=PersonRole.OWNER)
async def list_settings(call: ApiCall) -> SettingsModel:
    """Every setting that is in force, and where it comes from (owners)"""
    return SettingsModel.model_validate(await call.request.services.setting_editor.list_settings())


@routes("PATCH", "/settings", role=PersonRole.OWNER)
async def change_settings(call: ApiCall, body: SettingsPatch) -> ChangedModel:
    """Change settings that apply at once (owners)"""
    editor = call.request.services.setting_editor
    reading = await editor.change(body.changes, seen=body.seen)
    listed = await editor.list_settings()
    return ChangedModel(applied=list(reading.applied), revision=listed.revision)
