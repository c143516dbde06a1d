"""The folder that tasks work in: a chat's, or one task's own."""

from __future__ import annotations

from dataclasses import replace

from cards import formats
from cards.views.work.projects import project_card
from handlers.errors import UserError
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.services.projects import FolderRefused
from storage.records.people import Role

commands = Commands("tasks")

_NOWHERE = {"none", "off", "无", "取消"}
_PATH = 100


@commands("project", usage="[path|none]", aliases=("项目", "目录"), verbatim=True, immediate=True)
async def project(request: Request) -> Reply:
    """Show or choose the folder that tasks of this chat work in."""
    folder = request.chat.settings.project
    if wanted := request.args.strip().strip('"'):
        folder = "" if wanted.casefold() in _NOWHERE else wanted
        folder = await _chosen(request, folder)
        settings = replace(request.chat.settings, project=folder)
        await request.services.people.adjust(request.chat, settings)
    in_git = bool(folder) and await request.services.projects.in_git(folder)
    data = {"project": folder, "in_git": in_git}
    return Reply(card=project_card(folder, request.words, in_git=in_git), data=data)


async def workplace(request: Request, wanted: str = "") -> tuple[str, bool]:
    """The folder a new task works in, empty for one of its own, and whether it is a git project:
    the one asked for, else the chat's."""
    if wanted:
        folder = await _chosen(request, wanted)
    elif folder := request.chat.settings.project:
        # It may have gone since it was chosen.
        folder = await _checked(request, folder)
    return folder, bool(folder) and await request.services.projects.in_git(folder)


async def _chosen(request: Request, path: str) -> str:
    """Empty stays empty. Whoever may write into any folder may do all that Shiftboss may: only
    owners choose one."""
    if not request.person.role.allows(Role.OWNER):
        raise UserError("project_owner")
    return await _checked(request, path) if path else ""


async def _checked(request: Request, path: str) -> str:
    try:
        return await request.services.projects.choose(path)
    except FolderRefused as error:
        shown = formats.line(path, _PATH)
        raise UserError(f"project_{error.reason}", path=shown) from error
