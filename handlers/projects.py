"""Handles the folders that chats and tasks work in."""

from __future__ import annotations

import hashlib
import os

from cards import formats
from cards.model import CardTone, notice_card
from cards.views.chat import project_card
from handlers.errors import UserError
from handlers.ports import FolderRejected
from handlers.request import CommandRegistry, Reply, Request
from storage.records.messages import DeliveryUrgency
from storage.records.tasks import FolderKind

commands = CommandRegistry("tasks")

_ADOPT_WORDS = {"adopt", "采用"}
_NO_FOLDER_WORDS = {"none", "off", "无", "取消"}
_MAX_PATH = 100


@commands("project", aliases=("项目", "目录"), verbatim=True, immediate=True)
async def manage_project(request: Request) -> Reply:
    folder = request.chat.settings.project
    word = request.args.strip().strip('"')
    first, _, path = word.partition(" ")
    if first.casefold() in _ADOPT_WORDS:
        folder = await _adopt_repository(request, path.strip().strip('"') or folder)
    elif word:
        folder = "" if word.casefold() in _NO_FOLDER_WORDS else word
        folder = await _choose_folder(request, folder)
        await request.services.people.update_chat_settings(request.chat, project=folder)
    kind = await _folder_kind(request, folder)
    data = {"project": folder, "in_git": kind.in_git}
    return Reply(card=project_card(folder, request.words, kind=kind), data=data)


async def resolve_workspace(request: Request, folder_name: str) -> tuple[str, bool]:
    """A new task's folder, empty for its own workspace, and whether it is a git project: the one
    requested, else the chat's."""
    if folder_name:
        folder = await _choose_folder(request, folder_name)
    elif folder := request.chat.settings.project:
        # It may have been removed since it was chosen.
        folder = await _check_folder(request, folder)
    kind = await _folder_kind(request, folder)
    if kind is FolderKind.NOT_ADOPTED:
        await _report_once(request, folder)
    return folder, kind.in_git


async def _folder_kind(request: Request, folder: str) -> FolderKind:
    return await request.services.projects.folder_kind(folder) if folder else FolderKind.PLAIN


async def _report_once(request: Request, folder: str) -> None:
    """Tell the chat how to adopt the folder's repository. The card's key makes it one notice."""
    text = request.words("project.not_adopted", folder=folder)
    await request.services.courier.send(
        request.chat.id,
        notice_card(request.words("project.title"), text, tone=CardTone.WARN),
        key=f"adopt:{request.chat.id}:{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}",
        urgency=DeliveryUrgency.NOTICE,
    )


async def _adopt_repository(request: Request, path: str) -> str:
    """Return the folder. Owners only: git runs in it with all of Shiftboss's rights."""
    folder = await _choose_folder(request, path)
    if await _folder_kind(request, folder) is FolderKind.PLAIN:
        raise UserError("project_no_repository")
    await request.services.projects.adopt(folder)
    return folder


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
