"""A Feishu app as raw as possible: the other side of the emulator, for its own tests."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.long_connection import DATA, decode, encode
from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
APP = {"AppID": "cli_emulated", "AppSecret": "emulated-secret"}


class FeishuAppClient:
    """The other side, as raw as possible."""

    def __init__(self, fs: FeishuEmulator, http: httpx.AsyncClient) -> None:
        self.fs = fs
        self.http = http
        self.token = ""

    async def login(self) -> int:
        body = {"app_id": self.fs.app_id, "app_secret": self.fs.app_secret}
        path = "/open-apis/auth/v3/tenant_access_token/internal"
        answer = (await self.http.post(path, json=body)).json()
        self.token = answer["tenant_access_token"]
        return int(answer["expire"])

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, int, Any]:
        """HTTP status, code, and data or the message."""
        headers = {"Authorization": f"Bearer {self.token}"}
        got = await self.http.request(method, f"/open-apis{path}", headers=headers, **more)
        body = got.json()
        return got.status_code, body["code"], body.get("data", body["msg"])

    async def send(
        self, chat: FeishuChat, kind: str, content: Any, **more: Any
    ) -> tuple[int, int, Any]:
        raw = json.dumps(content, ensure_ascii=False)
        body = {"receive_id": chat.chat_id, "msg_type": kind, "content": raw, **more}
        path = "/im/v1/messages?receive_id_type=chat_id"
        return await self.call("POST", path, json=body)

    async def send_message(self, chat: FeishuChat, kind: str, content: Any) -> FeishuMessage:
        _, code, data = await self.send(chat, kind, content)
        assert code == 0, data
        return self.fs.world.messages[data["message_id"]]

    async def create_card(self, card: dict[str, Any]) -> str:
        body = {"type": "card_json", "data": json.dumps(card)}
        _, code, data = await self.call("POST", "/cardkit/v1/cards", json=body)
        assert code == 0, data
        return str(data["card_id"])

    async def update_element(
        self, card_id: str, sequence: int, text: str, element: str = "t"
    ) -> int:
        path = f"/cardkit/v1/cards/{card_id}/elements/{element}/content"
        body = {"content": text, "sequence": sequence}
        return (await self.call("PUT", path, json=body))[1]

    async def connect(self) -> ClientConnection:
        answer = (await self.http.post("/callback/ws/endpoint", json=APP)).json()
        return await connect(answer["data"]["URL"], proxy=None)


def card(*elements: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {"schema": "2.0", "body": {"elements": list(elements)}, **root}


def markdown(content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"tag": "markdown", "content": content, **more}


def plain_text(content: str) -> dict[str, str]:
    return {"tag": "plain_text", "content": content}


def button(label: str, value: dict[str, Any]) -> dict[str, Any]:
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": label},
        "behaviors": [{"type": "callback", "value": value}],
    }


async def acknowledge_next(
    connection: ClientConnection, data: Any = None, code: int = 200
) -> dict[str, Any]:
    """Answer the next event; returns its body."""
    raw = await connection.recv()
    assert isinstance(raw, bytes)
    _, headers, payload = decode(raw)
    answer: dict[str, Any] = {"code": code}
    if data is not None:
        answer["data"] = base64.b64encode(json.dumps(data).encode()).decode()
    headers["biz_rt"] = "1"
    await connection.send(encode(DATA, headers, json.dumps(answer).encode()))
    event: dict[str, Any] = json.loads(payload)
    return event
