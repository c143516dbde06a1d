"""Settings: what is in force, where it comes from, changes, and the restart that some need."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from storage.records.people import PersonRole
from storage.records.system import SettingChange, SettingSource

routes = ApiRoutes("settings")


class SettingModel(ApiModel):
    """`value`, `stored` and `default` are empty for secrets. `change` says how it is changed:
    `here` by this API at once, `restart` by this API for the next start, `setup` by `/setup`,
    `file` only in a file, `environment` in the environment. `options` are the only values.
    `stored` is the value after a restart, and `waits` if that is another one."""

    name: str
    group: str
    value: str
    stored: str
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
    """`applied`: the names of what is different since then, `waiting`: of what will be after a
    restart."""

    applied: list[str]
    waiting: list[str]
    revision: str


@routes("GET", "/settings", role=PersonRole.OWNER)
async def list_settings(call: ApiCall) -> SettingsModel:
    """Every setting that is in force, and where it comes from (owners)"""
    return SettingsModel.model_validate(await call.request.services.setting_editor.list_settings())


@routes("PATCH", "/settings", role=PersonRole.OWNER)
async def change_settings(call: ApiCall, body: SettingsPatch) -> ChangedModel:
    """Change settings; those that need a restart wait for it (owners)"""
    editor = call.request.services.setting_editor
    reading = await editor.change(body.changes, seen=body.seen)
    listed = await editor.list_settings()
    return ChangedModel(
        applied=list(reading.applied), waiting=list(reading.waiting), revision=listed.revision
    )


class RestartModel(ApiModel):
    """`revision` of the settings before; another one is told after the restart."""

    revision: str


@routes("POST", "/settings/restart", status=202, role=PersonRole.OWNER)
async def restart(call: ApiCall) -> RestartModel:
    """Restart Shiftboss with the stored settings (owners)"""
    editor = call.request.services.setting_editor
    listed = await editor.list_settings()
    await editor.restart()
    return RestartModel(revision=listed.revision)
