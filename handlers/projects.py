"""Handles the folders that chats and tasks work in."""

from __future__ import annotations

from dataclasses import replace

from cards import formats
from cards.views.chat import project_card
from handlers.errors import UserError
from handlers.ports import FolderRejected
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request

commands = CommandRegistry("tasks")

_NO_FOLDER_WORDS = {"none", "off", "无", "取消"}
_MAX_PATH = 100


@commands("project", aliases=("项目", "目录"), verbatim=True, immediate=True)
async def manage_project(request: Request) -> Reply:
    folder = request.chat.settings.project
    if word := request.args.strip().strip('"'):
        folder = "" if word.casefold() in _NO_FOLDER_WORDS else word
        folder = await _choose_folder(request, folder)
        settings = replace(request.chat.settings, project=folder)
        await request.services.people.update_chat_settings(request.chat, settings)
    in_git = bool(folder) and await request.services.projects.is_git_repository(folder)
    data = {"project": folder, "in_git": in_git}
    return Reply(card=project_card(folder, request.words, in_git=in_git), data=data)


async def resolve_workspace(request: Request, folder_name: str) -> tuple[str, bool]:
    """A new task's folder, empty for its own workspace, and whether it is a git project: the one
    requested, else the chat's."""
    if folder_name:
        folder = await _choose_folder(request, folder_name)
    elif folder := request.chat.settings.project:
        # It may have been removed since it was chosen.
        folder = await _check_folder(request, folder)
    return folder, bool(folder) and await request.services.projects.is_git_repository(folder)


async def _choose_folder(request: Request, path: str) -> str:
    """Choose the chat's folder; empty clears it. Owners only: write access to any folder amounts to
    all of Shiftboss's rights."""
    if not request.by_owner:
        raise UserError("project_owner")
    return await _check_folder(request, path) if path else ""


async def _check_folder(request: Request, path: str) -> str:
    try:
        return await request.services.projects.resolve_folder(path)
    except FolderRejected as error:
        short_path = formats.single_line(path, _MAX_PATH)
        raise UserError(f"project_{error.reason}", path=short_path) from error
