"""The Feishu emulator keeps the platform's promises, and its refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.emulators.feishu.faults import Cut, rate_limited
from tests.emulators.feishu.frames import DATA, decode, encode
from tests.emulators.feishu.presses import CallbackFailed
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat, Message

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
APP = {"AppID": "cli_emulated", "AppSecret": "emulated-secret"}


@pytest.fixture
async def fs() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator() as emulator:
        yield emulator


@pytest.fixture
async def app(fs: FeishuEmulator) -> AsyncIterator[App]:
    async with httpx.AsyncClient(base_url=fs.domain) as http:
        app = App(fs, http)
        await app.login()
        yield app


class App:
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

    async def send(self, chat: Chat, kind: str, content: Any, **more: Any) -> tuple[int, int, Any]:
        raw = json.dumps(content, ensure_ascii=False)
        body = {"receive_id": chat.chat_id, "msg_type": kind, "content": raw, **more}
        path = "/im/v1/messages?receive_id_type=chat_id"
        return await self.call("POST", path, json=body)

    async def sent(self, chat: Chat, kind: str, content: Any) -> Message:
        _, code, data = await self.send(chat, kind, content)
        assert code == 0, data
        return self.fs.world.messages[data["message_id"]]

    async def entity(self, card: dict[str, Any]) -> str:
        body = {"type": "card_json", "data": json.dumps(card)}
        _, code, data = await self.call("POST", "/cardkit/v1/cards", json=body)
        assert code == 0, data
        return str(data["card_id"])

    async def content(self, card_id: str, sequence: int, text: str, element: str = "t") -> int:
        path = f"/cardkit/v1/cards/{card_id}/elements/{element}/content"
        body = {"content": text, "sequence": sequence}
        return (await self.call("PUT", path, json=body))[1]

    async def connect(self) -> ClientConnection:
        answer = (await self.http.post("/callback/ws/endpoint", json=APP)).json()
        return await connect(answer["data"]["URL"], proxy=None)


def card(*elements: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {"schema": "2.0", "body": {"elements": list(elements)}, **root}


def md(content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"tag": "markdown", "content": content, **more}


def button(label: str, value: dict[str, Any]) -> dict[str, Any]:
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": label},
        "behaviors": [{"type": "callback", "value": value}],
    }


async def ack(connection: ClientConnection, data: Any = None, code: int = 200) -> dict[str, Any]:
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


# --- tokens and limits ----------------------------------------------------------------------


async def test_the_same_token_is_issued_until_half_an_hour_is_left(app: App) -> None:
    first = app.token

    app.fs.advance(5000)
    assert await app.login() < 2300
    assert app.token == first
    app.fs.advance(600)
    assert await app.login() == 7200
    assert app.token != first


async def test_an_expired_or_missing_token_is_refused_with_400(app: App) -> None:
    app.fs.tokens.expire_all()

    assert (await app.call("GET", "/bot/v3/info"))[:2] == (400, 99991663)
    bare = await app.http.get("/open-apis/bot/v3/info")
    assert (bare.status_code, bare.json()["code"]) == (400, 99991661)


async def test_the_sixth_message_within_a_second_is_one_too_many(app: App) -> None:
    chat = app.fs.group("team")

    codes = [(await app.send(chat, "text", {"text": "x"}))[1] for _ in range(6)]

    assert codes == [0, 0, 0, 0, 0, 230020]
    app.fs.advance(1)
    assert (await app.send(chat, "text", {"text": "x"}))[1] == 0


async def test_the_monthly_quota_ends_everything(app: App) -> None:
    app.fs.rates.quota = 1

    await app.call("GET", "/bot/v3/info")

    assert (await app.call("GET", "/bot/v3/info"))[1] == 99991403


# --- messages -------------------------------------------------------------------------------


async def test_one_uuid_is_sent_once_an_hour(app: App) -> None:
    chat = app.fs.group("team")

    first = await app.send(chat, "text", {"text": "x"}, uuid="u1")
    again = await app.send(chat, "text", {"text": "y"}, uuid="u1")
    app.fs.advance(3601)
    later = await app.send(chat, "text", {"text": "z"}, uuid="u1")

    assert first == again
    assert later[2]["message_id"] != first[2]["message_id"]
    assert len(chat.messages) == 2


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        ("text", {"text": ""}, 230001),
        ("text", {"text": "x" * 160_000}, 230025),
        ("image", {"image_key": "img_unknown"}, 230055),
        ("fax", {}, 230001),
        ("interactive", card(md("x" * 31_000)), 230025),
    ],
)
async def test_bad_messages_are_refused(app: App, kind: str, content: Any, code: int) -> None:
    assert (await app.send(app.fs.group("team"), kind, content))[:2] == (400, code)


async def test_a_chat_without_the_bot_takes_nothing(app: App) -> None:
    outside, dissolved = app.fs.group("other", bot_in=False), app.fs.group("old")
    dissolved.gone = True
    stranger = app.fs.p2p(app.fs.user("Eve"))
    app.fs.world.out_of_scope.add(str(stranger.peer_id))

    codes = [(await app.send(c, "text", {"text": "x"}))[1] for c in (outside, dissolved, stranger)]

    assert codes == [230002, 232009, 230013]


async def test_a_recalled_message_cannot_be_answered_or_changed(app: App) -> None:
    chat, anna = app.fs.p2p(app.fs.user("Anna")), app.fs.user("Anna")
    asked = await anna.says(chat, "hi")
    await anna.recalls(asked)
    mine = await app.sent(chat, "interactive", card(md()))
    await app.call("DELETE", f"/im/v1/messages/{mine.message_id}")
    body = {"msg_type": "text", "content": '{"text":"x"}'}

    reply = await app.call("POST", f"/im/v1/messages/{asked.message_id}/reply", json=body)
    patch = await app.call("PATCH", f"/im/v1/messages/{mine.message_id}", json={"content": "{}"})

    assert (reply[1], patch[1]) == (230011, 230011)


async def test_topics_stay_topics_and_plain_groups_have_none(app: App) -> None:
    anna = app.fs.user("Anna")
    topics, plain = app.fs.group("topics", topics=True), app.fs.group("plain")
    body = {"msg_type": "text", "content": '{"text":"x"}', "reply_in_thread": True}

    for chat, expected in ((topics, 0), (plain, 230071)):
        asked = await anna.says(chat, "hi", mentions=["bot"])
        path = f"/im/v1/messages/{asked.message_id}/reply"
        assert (await app.call("POST", path, json=body))[1] == expected
    assert topics.messages[1].thread_id == topics.messages[0].thread_id


async def test_texts_can_be_edited_twenty_times(app: App) -> None:
    sent = await app.sent(app.fs.group("team"), "text", {"text": "0"})
    path = f"/im/v1/messages/{sent.message_id}"
    codes = []

    for number in range(21):
        app.fs.advance(1)
        body = {"msg_type": "text", "content": json.dumps({"text": str(number)})}
        codes.append((await app.call("PUT", path, json=body))[1])

    assert codes == [0] * 20 + [230072]
    assert sent.text == "19"


async def test_files_go_up_and_what_people_sent_comes_down(app: App) -> None:
    chat, anna = app.fs.p2p(app.fs.user("Anna")), app.fs.user("Anna")
    theirs = await anna.sends_file(chat, "报告.txt", b"figures")
    key = json.loads(theirs.content)["file_key"]
    headers = {"Authorization": f"Bearer {app.token}"}

    up = await app.call(
        "POST", "/im/v1/images", data={"image_type": "message"}, files={"image": ("a.png", PNG)}
    )
    empty = await app.call(
        "POST",
        "/im/v1/files",
        data={"file_type": "stream", "file_name": "a"},
        files={"file": ("a", b"")},
    )
    down = await app.http.get(
        f"/open-apis/im/v1/messages/{theirs.message_id}/resources/{key}?type=file", headers=headers
    )

    assert app.fs.world.images[up[2]["image_key"]].data == PNG
    assert empty[1] == 234010
    assert down.content == b"figures"


# --- cards ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "err_code"),
    [
        (card(md(), config={"wide_screen_mode": True}), 200621),
        (card({"tag": "action", "actions": []}), 200861),
        (card({"tag": "note", "elements": []}), 200861),
        (card(md(colour="red")), 200621),
        (card(*[md() for _ in range(201)]), 11310),
        (card(*[{"tag": "table", "columns": [], "rows": []} for _ in range(6)]), 200621),
        (card(md(element_id="1x")), 300302),
        (card(md(element_id="a"), md(element_id="a")), 300301),
        (card(md("![x](https://example.org/x.png)")), 200570),
        (
            card({"tag": "img", "img_key": "nope", "alt": {"tag": "plain_text", "content": ""}}),
            200570,
        ),
        (card(md("<at id=ou_nobody></at>")), 100290),
        (card(md("<font color='#ff0000'>x</font>")), 200621),
        (card(md("\n\n".join(["|a|b|\n|-|-|\n|1|2|"] * 4))), 11310),
        ({"schema": "2.0", "elements": [], "body": {"elements": []}}, 200621),
    ],
)
async def test_bad_cards_are_refused_by_name(app: App, bad: dict[str, Any], err_code: int) -> None:
    status, code, msg = await app.send(app.fs.group("team"), "interactive", bad)

    assert (status, code) == (400, 230099)
    assert f"ErrCode: {err_code};" in msg


async def test_tables_and_forms_stand_on_the_top_level_only(app: App) -> None:
    table = {"tag": "table", "columns": [{"name": "a", "data_type": "text"}], "rows": [{"a": "1"}]}
    panel = {
        "tag": "collapsible_panel",
        "header": {"title": {"tag": "plain_text", "content": "more"}, "padding": "8px"},
        "elements": [table],
    }
    twins = [{"tag": "input", "name": "x"}, {"tag": "input", "name": "x"}]
    form = {"tag": "form", "name": "f", "elements": twins}
    chat = app.fs.group("team")

    assert (await app.send(chat, "interactive", card(table)))[1] == 0
    assert (await app.send(chat, "interactive", card(panel)))[1] == 230099
    assert "200530" in (await app.send(chat, "interactive", card(form)))[2]
    panel["elements"] = [md()]
    assert (await app.send(chat, "interactive", card(panel)))[1] == 0
    panel["header"] = {**panel["header"], "padding": "4px 8px"}  # type: ignore[dict-item] # a dict
    assert (await app.send(chat, "interactive", card(panel)))[1] == 230099


async def test_a_card_is_patched_at_most_five_times_a_second(app: App) -> None:
    sent = await app.sent(app.fs.group("team"), "interactive", card(md("0")))
    path = f"/im/v1/messages/{sent.message_id}"

    codes = []
    for number in range(1, 7):
        body = {"content": json.dumps(card(md(str(number))))}
        codes.append((await app.call("PATCH", path, json=body))[1])

    assert codes == [0, 0, 0, 0, 0, 230020]
    assert sent.text == "5"
    assert len(sent.history) == 5


async def test_an_entity_streams_by_a_growing_sequence(app: App) -> None:
    chat = app.fs.group("team")
    card_id = await app.entity(card(md("…", element_id="t"), config={"streaming_mode": True}))
    sent = await app.sent(chat, "interactive", {"type": "card", "data": {"card_id": card_id}})

    assert await app.content(card_id, 1, "Hello") == 0
    assert await app.content(card_id, 1, "Hello again") == 300317
    assert await app.content(card_id, 2, "x", element="nope") == 300313
    assert await app.content(card_id, 5, "Hello again") == 0
    assert sent.text == "Hello again"
    off = {"settings": json.dumps({"config": {"streaming_mode": False}}), "sequence": 6}
    path = f"/cardkit/v1/cards/{card_id}/settings"
    assert (await app.call("PATCH", path, json=off))[1] == 0
    assert await app.content(card_id, 7, "late") == 300309


async def test_streaming_closes_by_itself_and_an_entity_is_sent_once(app: App) -> None:
    chat = app.fs.group("team")
    card_id = await app.entity(card(md("…", element_id="t"), config={"streaming_mode": True}))
    await app.sent(chat, "interactive", {"type": "card", "data": {"card_id": card_id}})

    app.fs.advance(601)

    assert await app.content(card_id, 1, "Hello") == 200850
    twice = await app.send(chat, "interactive", {"type": "card", "data": {"card_id": card_id}})
    assert twice[1] == 230099


# --- the long connection --------------------------------------------------------------------


async def test_an_unacknowledged_event_comes_again_by_the_schedule(app: App) -> None:
    fs = app.fs
    connection = await app.connect()
    await fs.user("Anna").says(fs.p2p(fs.user("Anna")), "hello")
    push = fs.pushes[0]

    first = await ack(connection, code=500)
    await fs.until(lambda: push.waiting)
    fs.advance(15)
    second = await ack(connection)
    await push.acked

    assert first == second
    assert json.loads(first["event"]["message"]["content"]) == {"text": "hello"}
    fs.long.redeliver(push)
    assert await ack(connection) == first
    await connection.close()


async def test_a_large_event_arrives_in_parts(app: App) -> None:
    fs = app.fs
    fs.long.split_into = 3
    connection = await app.connect()
    push = fs.push_event("im.unheard_of_v9", {"n": 1})

    parts = [decode(bytes(await connection.recv(decode=False))) for _ in range(3)]

    assert [part[1]["sum"] + part[1]["seq"] for part in parts] == ["30", "31", "32"]
    whole = b"".join(part[2] for part in parts)
    assert json.loads(whole)["header"]["event_id"] == push.event_id
    await connection.close()


async def test_discovery_and_handshake_refuse_on_demand(app: App) -> None:
    bad = {"AppID": "cli_emulated", "AppSecret": "wrong"}
    assert (await app.http.post("/callback/ws/endpoint", json=bad)).json()["code"] == 514
    app.fs.long.discovery_codes = [1000040350, 1]
    codes = [(await app.http.post("/callback/ws/endpoint", json=APP)).json()["code"] for _ in "ab"]
    assert codes == [1000040350, 1]
    app.fs.long.handshake_refusals = [{"handshake-status": "514", "handshake-msg": "no"}]

    with pytest.raises(InvalidStatus) as refusal:
        await app.connect()

    assert refusal.value.response.headers["handshake-status"] == "514"


async def test_a_press_is_answered_with_a_toast_or_fails_as_on_the_client(app: App) -> None:
    fs, anna = app.fs, app.fs.user("Anna")
    sent = await app.sent(fs.p2p(anna), "interactive", card(button("Stop", {"t": "abc"})))
    connection = await app.connect()

    pressing = asyncio.create_task(anna.presses(sent, "Stop"))
    event = await ack(connection, {"toast": {"type": "success", "content": "Stopping"}})
    answer = await pressing

    assert event["event"]["action"]["value"] == {"t": "abc"}
    assert len(event["header"]["create_time"]) == 16
    assert answer.toast == "Stopping"
    for reply, code in (({"toasts": 1}, 200672), ({"card": {"type": "raw", "data": {}}}, 200830)):
        pressing = asyncio.create_task(anna.presses(sent, "Stop"))
        await ack(connection, reply)
        with pytest.raises(CallbackFailed) as failed:
            await pressing
        assert failed.value.code == code
    await connection.close()


async def test_an_entity_is_locked_while_a_press_waits_for_its_answer(app: App) -> None:
    fs, anna = app.fs, app.fs.user("Anna")
    card_id = await app.entity(
        card(md("…", element_id="t"), button("Stop", {}), config={"streaming_mode": True})
    )
    sent = await app.sent(
        fs.p2p(anna), "interactive", {"type": "card", "data": {"card_id": card_id}}
    )
    connection = await app.connect()

    pressing = asyncio.create_task(anna.presses(sent, "Stop"))
    await fs.until(lambda: bool(sent.callbacks))
    assert await app.content(card_id, 1, "x") == 200810
    await ack(connection, {})
    answer = await pressing
    assert await app.content(card_id, 1, "x") == 0

    update = {"token": answer.token, "card": card(md("done"))}
    codes = [(await app.call("POST", "/interactive/v1/card/update", json=update))[1] for _ in "abc"]
    assert codes == [0, 0, 300040]
    await connection.close()


async def test_the_bot_hears_a_group_only_when_it_is_mentioned(app: App) -> None:
    fs = app.fs
    anna, bob, chat = fs.user("Anna"), fs.user("Bob"), fs.group("team")

    await anna.says(chat, "no one in particular")
    await anna.says(chat, "you there", mentions=[bob])
    heard = await anna.says(chat, "{0} please", mentions=["bot"])

    assert [push.body["event"]["message"]["message_id"] for push in fs.pushes] == [heard.message_id]
    assert "@_user_1 please" in heard.content


async def test_misbehaviour_is_ordered_per_path(app: App) -> None:
    chat = app.fs.group("team")
    app.fs.misbehave("POST", "/im/v1/messages", error=rate_limited(7))
    app.fs.misbehave("POST", "/im/v1/messages", raw=b"<html>", status=502)
    app.fs.misbehave("POST", "/im/v1/messages", cut=Cut.AFTER)
    headers = {"Authorization": f"Bearer {app.token}"}
    body = {"receive_id": chat.chat_id, "msg_type": "text", "content": '{"text":"x"}'}
    path = "/open-apis/im/v1/messages?receive_id_type=chat_id"

    limited = await app.http.post(path, json=body, headers=headers)
    broken = await app.http.post(path, json=body, headers=headers)
    with pytest.raises(httpx.RemoteProtocolError):
        await app.http.post(path, json=body, headers=headers)

    assert (limited.status_code, limited.headers["x-ogw-ratelimit-reset"]) == (429, "7")
    assert (broken.status_code, broken.text) == (502, "<html>")
    assert len(chat.messages) == 1


_SDK = """
import json, sys
import lark_oapi as lark
from lark_oapi.api.im.v1 import CreateMessageRequest, CreateMessageRequestBody
domain = sys.argv[1]
api = lark.Client.builder().app_id("cli_emulated").app_secret("emulated-secret").domain(domain)
api = api.build()
def heard(data):
    message = data.event.message
    body = CreateMessageRequestBody.builder().receive_id(message.chat_id).msg_type("text")
    body = body.content(json.dumps({"text": "echo " + json.loads(message.content)["text"]}))
    request = CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body.build())
    answer = api.im.v1.message.create(request.build())
    assert answer.success(), answer.msg
handler = lark.EventDispatcherHandler.builder("", "").register_p2_im_message_receive_v1(heard)
client = lark.ws.Client("cli_emulated", "emulated-secret", event_handler=handler.build(),
                        domain=domain)
client.start()
"""


async def test_the_real_sdk_is_at_home_here(fs: FeishuEmulator) -> None:
    sdk = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", _SDK, fs.domain
    )
    try:
        await fs.connected(timeout=60)
        anna = fs.user("Anna")
        await anna.says(fs.p2p(anna), "hello")
        await fs.p2p(anna).wait_for(lambda message: message.text == "echo hello", timeout=10)
        await fs.until(lambda: fs.pushes[0].codes == [200])
        await fs.until(lambda: fs.long.pings > 0)
    finally:
        sdk.kill()
        await sdk.wait()
