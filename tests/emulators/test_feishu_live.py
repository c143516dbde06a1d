"""The Feishu emulator's long connection: pushes, presses, misbehaviour, and the real SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.emulators.feishu.app_client import (
    APP,
    FeishuAppClient,
    acknowledge_next,
    button,
    card,
    markdown,
    plain_text,
)
from tests.emulators.feishu.callbacks import CallbackFailed
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.long_connection import decode
from tests.emulators.feishu.refusals import ConnectionCut, rate_limited


@pytest.fixture
async def fs() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator() as emulator:
        yield emulator


@pytest.fixture
async def app(fs: FeishuEmulator) -> AsyncIterator[FeishuAppClient]:
    async with httpx.AsyncClient(base_url=fs.domain) as http:
        app = FeishuAppClient(fs, http)
        await app.login()
        yield app


# --- the long connection --------------------------------------------------------------------


async def test_an_unacknowledged_event_is_redelivered_on_schedule(app: FeishuAppClient) -> None:
    fs = app.fs
    connection = await app.connect()
    await fs.user("Anna").says(fs.private_chat(fs.user("Anna")), "hello")
    push = fs.pushes[0]

    first = await acknowledge_next(connection, code=500)
    await fs.wait_until(lambda: push.waiting)
    fs.advance(15)
    second = await acknowledge_next(connection)
    await push.acked

    assert first == second
    assert json.loads(first["event"]["message"]["content"]) == {"text": "hello"}
    fs.long.redeliver(push)
    assert await acknowledge_next(connection) == first
    await connection.close()


async def test_a_large_event_arrives_in_parts(app: FeishuAppClient) -> None:
    fs = app.fs
    fs.long.split_into = 3
    connection = await app.connect()
    push = fs.push_event("im.unheard_of_v9", {"n": 1})

    parts = [decode(bytes(await connection.recv(decode=False))) for _ in range(3)]

    assert [part[1]["sum"] + part[1]["seq"] for part in parts] == ["30", "31", "32"]
    whole = b"".join(part[2] for part in parts)
    assert json.loads(whole)["header"]["event_id"] == push.event_id
    await connection.close()


async def test_discovery_and_handshake_can_be_made_to_fail(app: FeishuAppClient) -> None:
    bad = {"AppID": "cli_emulated", "AppSecret": "wrong"}
    assert (await app.http.post("/callback/ws/endpoint", json=bad)).json()["code"] == 514
    app.fs.long.discovery_codes = [1000040350, 1]
    codes = [(await app.http.post("/callback/ws/endpoint", json=APP)).json()["code"] for _ in "ab"]
    assert codes == [1000040350, 1]
    app.fs.long.handshake_refusals = [{"handshake-status": "514", "handshake-msg": "no"}]

    with pytest.raises(InvalidStatus) as refusal:
        await app.connect()

    assert refusal.value.response.headers["handshake-status"] == "514"


async def test_a_press_is_answered_with_a_toast_or_fails_as_on_the_client(
    app: FeishuAppClient,
) -> None:
    fs, anna = app.fs, app.fs.user("Anna")
    sent = await app.send_message(
        fs.private_chat(anna), "interactive", card(button("Stop", {"t": "abc"}))
    )
    connection = await app.connect()

    pressing = asyncio.create_task(anna.presses(sent, "Stop"))
    event = await acknowledge_next(
        connection, {"toast": {"type": "success", "content": "Stopping"}}
    )
    answer = await pressing

    assert event["event"]["action"]["value"] == {"t": "abc"}
    assert len(event["header"]["create_time"]) == 16
    assert answer.toast == "Stopping"
    for reply, code in (({"toasts": 1}, 200672), ({"card": {"type": "raw", "data": {}}}, 200830)):
        pressing = asyncio.create_task(anna.presses(sent, "Stop"))
        await acknowledge_next(connection, reply)
        with pytest.raises(CallbackFailed) as failed:
            await pressing
        assert failed.value.code == code
    await connection.close()


async def test_an_entity_is_locked_while_a_press_waits_for_its_answer(app: FeishuAppClient) -> None:
    fs, anna = app.fs, app.fs.user("Anna")
    card_id = await app.create_card(
        card(markdown("…", element_id="t"), button("Stop", {}), config={"streaming_mode": True})
    )
    sent = await app.send_message(
        fs.private_chat(anna), "interactive", {"type": "card", "data": {"card_id": card_id}}
    )
    connection = await app.connect()

    pressing = asyncio.create_task(anna.presses(sent, "Stop"))
    await fs.wait_until(lambda: bool(sent.callbacks))
    assert await app.update_element(card_id, 1, "x") == 200810
    await acknowledge_next(connection, {})
    answer = await pressing
    assert await app.update_element(card_id, 1, "x") == 0

    update = {"token": answer.token, "card": card(markdown("done"))}
    codes = [(await app.call("POST", "/interactive/v1/card/update", json=update))[1] for _ in "abc"]
    assert codes == [0, 0, 300040]
    await connection.close()


async def test_the_bot_receives_group_messages_only_when_mentioned(app: FeishuAppClient) -> None:
    fs = app.fs
    anna, bob, chat = fs.user("Anna"), fs.user("Bob"), fs.group("team")

    await anna.says(chat, "no one in particular")
    await anna.says(chat, "you there", mentions=[bob])
    heard = await anna.says(chat, "{0} please", mentions=["bot"])

    assert [push.body["event"]["message"]["message_id"] for push in fs.pushes] == [heard.message_id]
    assert "@_user_1 please" in heard.content


async def test_faults_are_injected_per_path(app: FeishuAppClient) -> None:
    chat = app.fs.group("team")
    app.fs.inject_fault("POST", "/im/v1/messages", error=rate_limited(7))
    app.fs.inject_fault("POST", "/im/v1/messages", raw=b"<html>", status=502)
    app.fs.inject_fault("POST", "/im/v1/messages", cut=ConnectionCut.AFTER)
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


async def test_the_real_sdk_works_against_the_emulator(fs: FeishuEmulator) -> None:
    sdk = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", _SDK, fs.domain
    )
    try:
        await fs.wait_for_connections()
        anna = fs.user("Anna")
        await anna.says(fs.private_chat(anna), "hello")
        await fs.private_chat(anna).wait_for(lambda message: message.text == "echo hello")
        await fs.wait_until(lambda: fs.pushes[0].codes == [200])
        await fs.wait_until(lambda: fs.long.pings > 0)
    finally:
        sdk.kill()
        await sdk.wait()


async def test_an_unanswered_press_times_out_on_the_client(
    app: FeishuAppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.emulators.feishu.callbacks.CALLBACK_SECONDS", 0.05)
    fs, anna = app.fs, app.fs.user("Anna")
    sent = await app.send_message(
        fs.private_chat(anna), "interactive", card(button("Stop", {"t": "abc"}))
    )
    connection = await app.connect()

    with pytest.raises(CallbackFailed) as failed:
        await anna.presses(sent, "Stop")

    assert failed.value.code == 200341
    assert sent.callbacks == 0
    await connection.close()


async def test_a_form_sends_its_values_and_insists_on_required_fields(
    app: FeishuAppClient,
) -> None:
    fs, anna = app.fs, app.fs.user("Anna")
    submit = {**button("Send", {"t": "abc"}), "name": "ok", "form_action_type": "submit"}
    fast = {"text": plain_text("Fast"), "value": "f"}
    fields = [
        {"tag": "input", "name": "text", "required": True},
        {
            "tag": "select_static",
            "name": "pace",
            "options": [fast],
        },
        submit,
    ]
    form = card({"tag": "form", "name": "f", "elements": fields})
    sent = await app.send_message(fs.private_chat(anna), "interactive", form)
    connection = await app.connect()

    with pytest.raises(AssertionError, match="text is required"):
        await anna.presses(sent, "Send", pace="f")
    pressing = asyncio.create_task(anna.presses(sent, "Send", text="hello", pace="f"))
    event = await acknowledge_next(connection, {})
    await pressing

    action = event["event"]["action"]
    assert action["form_value"] == {"text": "hello", "pace": "f"}
    assert (action["name"], action["value"]) == ("ok", {"t": "abc"})
    await connection.close()
