"""Feishu messages: send, reply, edit and delete, with images and files."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.transports import files
from bot.transports.feishu.api import (
    FeishuApi,
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    FeishuUpload,
    path_segment,
)
from bot.transports.feishu.events import parse_forwarded
from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import FileTooLarge
from cards.render.feishu.elements import compact_json
from storage.records.messages import RemoteFile
from storage.records.people import Chat

_MAX_REMEMBERED = 2000
_BAD_PARAMETER = 230001


class FeishuMessages:
    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self._own_messages = LimitedDict[str, bool](_MAX_REMEMBERED)
        self._latest_incoming = LimitedDict[str, str](_MAX_REMEMBERED)

    async def send(
        self,
        chat: Chat,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        uuid: str,
        reply_to: str = "",
    ) -> str:
        """Send a message, as a reply if possible; returns its ID. The same `uuid` sends at most
        once an hour."""
        # Limited to fifty characters; a digest keeps it unique.
        digest = hashlib.sha256(uuid.encode()).hexdigest()[:40]
        body = {"msg_type": msg_type, "content": compact_json(content), "uuid": digest}
        for target in dict.fromkeys((reply_to, chat.thread)):
            if target.startswith("om_"):
                try:
                    return self._sent_message_id(await self._reply(target, body, chat))
                except FeishuError as error:
                    # The message to reply to was recalled or is invalid; send without it.
                    if error.kind is not FeishuErrorKind.GONE and error.code != _BAD_PARAMETER:
                        raise
        kind = "open_id" if chat.is_unopened else "chat_id"
        answer = await self._api.call(
            "POST",
            "/im/v1/messages",
            params={"receive_id_type": kind},
            body={"receive_id": chat.external_id, **body},
        )
        return self._sent_message_id(answer)

    async def _reply(self, target: str, body: dict[str, Any], chat: Chat) -> dict[str, Any]:
        path = f"/im/v1/messages/{path_segment(target)}/reply"
        if chat.thread:
            try:
                return await self._api.call("POST", path, body={**body, "reply_in_thread": True})
            except FeishuError as error:
                if error.kind not in (FeishuErrorKind.NO_TOPICS, FeishuErrorKind.NO_EDIT):
                    raise
        return await self._api.call("POST", path, body=body)

    def _sent_message_id(self, answer: Mapping[str, Any]) -> str:
        message_id = str((answer.get("data") or {}).get("message_id", ""))
        if not message_id:
            raise FeishuError(-1, "sent, but the answer names no message", status=502)
        self._own_messages[message_id] = True
        return message_id

    async def patch_card(self, message_id: str, card: Mapping[str, Any]) -> None:
        path = f"/im/v1/messages/{path_segment(message_id)}"
        await self._api.call("PATCH", path, body={"content": compact_json(card)})

    async def edit_text(self, message_id: str, text: str) -> None:
        body = {"msg_type": "text", "content": compact_json({"text": text})}
        await self._api.call("PUT", f"/im/v1/messages/{path_segment(message_id)}", body=body)

    async def delete(self, message_id: str) -> None:
        """Delete a message; one already gone counts as deleted."""
        try:
            await self._api.call("DELETE", f"/im/v1/messages/{path_segment(message_id)}")
        except FeishuError as error:
            if error.kind is not FeishuErrorKind.GONE:
                raise

    async def is_own_message(self, message_id: str) -> bool:
        """Whether the bot sent the message; False if unknown."""
        if message_id not in self._own_messages:
            path = f"/im/v1/messages/{path_segment(message_id)}"
            try:
                answer = await self._api.call("GET", path)
            except (FeishuError, FeishuConnectionError):
                return False
            items = (answer.get("data") or {}).get("items") or [{}]
            sender = items[0].get("sender") or {}
            is_app = sender.get("sender_type") == "app"
            self._own_messages[message_id] = is_app and self._api.is_own_app(str(sender.get("id")))
        return self._own_messages[message_id]

    async def fetch_forwarded(self, message_id: str, bot_id: str) -> str:
        """The words of the messages that this one passes on; empty if they are not available."""
        try:
            answer = await self._api.call("GET", f"/im/v1/messages/{path_segment(message_id)}")
        except (FeishuError, FeishuConnectionError):
            return ""
        return parse_forwarded((answer.get("data") or {}).get("items"), bot_id)

    async def fetch_chat_title(self, chat_id: str) -> str:
        try:
            answer = await self._api.call("GET", f"/im/v1/chats/{path_segment(chat_id)}")
        except (FeishuError, FeishuConnectionError):
            return ""
        return str((answer.get("data") or {}).get("name") or "")

    async def fetch_person_name(self, open_id: str) -> str:
        """The name of a person. Needs an extra permission; without it, people are known by their
        IDs.
        """
        path = f"/contact/v3/users/{path_segment(open_id)}"
        try:
            answer = await self._api.call("GET", path, params={"user_id_type": "open_id"})
        except (FeishuError, FeishuConnectionError):
            return ""
        return str(((answer.get("data") or {}).get("user") or {}).get("name") or "")

    def note_incoming(self, chat_id: str, message_id: str) -> None:
        """Record the chat's latest message from a person for `react_to_latest`."""
        self._latest_incoming[chat_id] = message_id

    async def react_to_latest(self, chat_id: str) -> None:
        """Add a reaction to the latest message, once, in place of a typing indicator."""
        message_id = self._latest_incoming.pop(chat_id, "")
        if message_id:
            path = f"/im/v1/messages/{path_segment(message_id)}/reactions"
            await self._api.call("POST", path, body={"reaction_type": {"emoji_type": "Get"}})


_MAX_IMAGE_BYTES = 10 * 1024 * 1024
_MAX_FILE_BYTES = 30 * 1024 * 1024
_FILE_TYPES = {
    ".opus": "opus",
    ".mp4": "mp4",
    ".pdf": "pdf",
    ".doc": "doc",
    ".docx": "doc",
    ".xls": "xls",
    ".xlsx": "xls",
    ".ppt": "ppt",
    ".pptx": "ppt",
}


class FeishuFiles:
    def __init__(self, api: FeishuApi, home: Path) -> None:
        self._api = api
        self._home = home

    async def upload_image(self, path: str) -> str:
        """Upload an image from the data directory; returns its key."""
        data = await asyncio.to_thread(files.read_file, self._home, path, _MAX_IMAGE_BYTES)
        upload = FeishuUpload(
            fields={"image_type": "message"}, name="image", filename=Path(path).name, data=data
        )
        return await self._upload("/im/v1/images", upload, "image_key")

    async def upload_file(self, path: str, name: str) -> str:
        data = await asyncio.to_thread(files.read_file, self._home, path, _MAX_FILE_BYTES)
        kind = _FILE_TYPES.get(Path(name).suffix.lower(), "stream")
        fields = {"file_type": kind, "file_name": name}
        upload = FeishuUpload(fields=fields, name="file", filename=name, data=data)
        return await self._upload("/im/v1/files", upload, "file_key")

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        """Download a file under a safe, unused name."""
        if file.size > files.MAX_DOWNLOAD_BYTES:
            raise FileTooLarge(f"{file.size} bytes")
        reference = file.reference
        message, key = path_segment(reference["message_id"]), path_segment(reference["key"])
        found = await self._api.download(
            f"/im/v1/messages/{message}/resources/{key}",
            {"type": reference["type"]},
            files.MAX_DOWNLOAD_BYTES,
        )
        name = file.name or "file"
        if not Path(name).suffix:
            # Images have no name; the extension follows from the content's type.
            kind = found.content_type.partition(";")[0].strip()
            name += mimetypes.guess_extension(kind) or ""
        return await asyncio.to_thread(files.write_new_file, into, name, found.data)

    async def _upload(self, path: str, upload: FeishuUpload, key: str) -> str:
        answer = await self._api.call("POST", path, upload=upload, repeatable=True)
        found = str((answer.get("data") or {}).get(key, ""))
        if not found:
            raise FeishuError(-1, f"uploaded, but the answer has no {key}", status=502)
        return found
