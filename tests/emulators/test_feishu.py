"""The Feishu emulator keeps the platform's promises, and its refusals: REST and cards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.emulators.feishu.app_client import PNG, FeishuAppClient, card, markdown
from tests.emulators.feishu.emulator import FeishuEmulator


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


# --- tokens and limits ----------------------------------------------------------------------


async def test_the_same_token_is_issued_until_half_an_hour_is_left(app: FeishuAppClient) -> None:
    first = app.token

    app.fs.advance(5000)
    assert await app.login() < 2300
    assert app.token == first
    app.fs.advance(600)
    assert await app.login() == 7200
    assert app.token != first


async def test_an_expired_or_missing_token_is_refused_with_400(app: FeishuAppClient) -> None:
    app.fs.tokens.expire_all()

    assert (await app.call("GET", "/bot/v3/info"))[:2] == (400, 99991663)
    bare = await app.http.get("/open-apis/bot/v3/info")
    assert (bare.status_code, bare.json()["code"]) == (400, 99991661)


async def test_the_sixth_message_within_a_second_is_one_too_many(app: FeishuAppClient) -> None:
    chat = app.fs.group("team")

    codes = [(await app.send(chat, "text", {"text": "x"}))[1] for _ in range(6)]

    assert codes == [0, 0, 0, 0, 0, 230020]
    app.fs.advance(1)
    assert (await app.send(chat, "text", {"text": "x"}))[1] == 0


async def test_after_the_monthly_quota_every_call_is_refused(app: FeishuAppClient) -> None:
    app.fs.rates.quota = 1

    await app.call("GET", "/bot/v3/info")

    assert (await app.call("GET", "/bot/v3/info"))[1] == 99991403


# --- messages -------------------------------------------------------------------------------


async def test_a_repeated_uuid_is_sent_once_an_hour(app: FeishuAppClient) -> None:
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
        ("interactive", card(markdown("x" * 31_000)), 230025),
    ],
)
async def test_bad_messages_are_refused(
    app: FeishuAppClient, kind: str, content: Any, code: int
) -> None:
    assert (await app.send(app.fs.group("team"), kind, content))[:2] == (400, code)


async def test_a_chat_without_the_bot_refuses_messages(app: FeishuAppClient) -> None:
    outside, dissolved = app.fs.group("other", bot_in=False), app.fs.group("old")
    dissolved.dissolved = True
    stranger = app.fs.private_chat(app.fs.user("Eve"))
    app.fs.world.out_of_scope.add(str(stranger.peer_id))

    codes = [(await app.send(c, "text", {"text": "x"}))[1] for c in (outside, dissolved, stranger)]

    assert codes == [230002, 232009, 230013]


async def test_a_recalled_message_cannot_be_answered_or_changed(app: FeishuAppClient) -> None:
    chat, anna = app.fs.private_chat(app.fs.user("Anna")), app.fs.user("Anna")
    asked = await anna.says(chat, "hi")
    await anna.recalls(asked)
    mine = await app.send_message(chat, "interactive", card(markdown()))
    await app.call("DELETE", f"/im/v1/messages/{mine.message_id}")
    body = {"msg_type": "text", "content": '{"text":"x"}'}

    reply = await app.call("POST", f"/im/v1/messages/{asked.message_id}/reply", json=body)
    patch = await app.call("PATCH", f"/im/v1/messages/{mine.message_id}", json={"content": "{}"})

    assert (reply[1], patch[1]) == (230011, 230011)


async def test_replies_stay_in_their_topic_and_plain_groups_have_none(app: FeishuAppClient) -> None:
    anna = app.fs.user("Anna")
    topics, plain = app.fs.group("topics", topics=True), app.fs.group("plain")
    body = {"msg_type": "text", "content": '{"text":"x"}', "reply_in_thread": True}

    for chat, expected in ((topics, 0), (plain, 230071)):
        asked = await anna.says(chat, "hi", mentions=["bot"])
        path = f"/im/v1/messages/{asked.message_id}/reply"
        assert (await app.call("POST", path, json=body))[1] == expected
    assert topics.messages[1].thread_id == topics.messages[0].thread_id


async def test_texts_can_be_edited_twenty_times(app: FeishuAppClient) -> None:
    sent = await app.send_message(app.fs.group("team"), "text", {"text": "0"})
    path = f"/im/v1/messages/{sent.message_id}"
    codes = []

    for number in range(21):
        app.fs.advance(1)
        body = {"msg_type": "text", "content": json.dumps({"text": str(number)})}
        codes.append((await app.call("PUT", path, json=body))[1])

    assert codes == [0] * 20 + [230072]
    assert sent.text == "19"


async def test_files_can_be_uploaded_and_received_ones_downloaded(app: FeishuAppClient) -> None:
    chat, anna = app.fs.private_chat(app.fs.user("Anna")), app.fs.user("Anna")
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
        (card(markdown(), config={"wide_screen_mode": True}), 200621),
        (card({"tag": "action", "actions": []}), 200861),
        (card({"tag": "note", "elements": []}), 200861),
        (card(markdown(colour="red")), 200621),
        (card(*[markdown() for _ in range(201)]), 11310),
        (card(*[{"tag": "table", "columns": [], "rows": []} for _ in range(6)]), 200621),
        (card(markdown(element_id="1x")), 300302),
        (card(markdown(element_id="a"), markdown(element_id="a")), 300301),
        (card(markdown("![x](https://example.org/x.png)")), 200570),
        (
            card({"tag": "img", "img_key": "nope", "alt": {"tag": "plain_text", "content": ""}}),
            200570,
        ),
        (card(markdown("<at id=ou_nobody></at>")), 100290),
        (card(markdown("<font color='#ff0000'>x</font>")), 200621),
        (card(markdown("\n\n".join(["|a|b|\n|-|-|\n|1|2|"] * 4))), 11310),
        ({"schema": "2.0", "elements": [], "body": {"elements": []}}, 200621),
    ],
)
async def test_bad_cards_are_refused_with_their_error_code(
    app: FeishuAppClient, bad: dict[str, Any], err_code: int
) -> None:
    status, code, msg = await app.send(app.fs.group("team"), "interactive", bad)

    assert (status, code) == (400, 230099)
    assert f"ErrCode: {err_code};" in msg


async def test_tables_and_forms_are_allowed_only_at_the_top_level(app: FeishuAppClient) -> None:
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
    panel["elements"] = [markdown()]
    assert (await app.send(chat, "interactive", card(panel)))[1] == 0
    panel["header"] = {**panel["header"], "padding": "4px 8px"}  # type: ignore[dict-item] # a dict
    assert (await app.send(chat, "interactive", card(panel)))[1] == 230099


async def test_a_card_is_patched_at_most_five_times_a_second(app: FeishuAppClient) -> None:
    sent = await app.send_message(app.fs.group("team"), "interactive", card(markdown("0")))
    path = f"/im/v1/messages/{sent.message_id}"

    codes = []
    for number in range(1, 7):
        body = {"content": json.dumps(card(markdown(str(number))))}
        codes.append((await app.call("PATCH", path, json=body))[1])

    assert codes == [0, 0, 0, 0, 0, 230020]
    assert sent.text == "5"
    assert len(sent.history) == 5


async def test_a_card_entity_streams_with_growing_sequence_numbers(app: FeishuAppClient) -> None:
    chat = app.fs.group("team")
    card_id = await app.create_card(
        card(markdown("…", element_id="t"), config={"streaming_mode": True})
    )
    sent = await app.send_message(
        chat, "interactive", {"type": "card", "data": {"card_id": card_id}}
    )

    assert await app.update_element(card_id, 1, "Hello") == 0
    assert await app.update_element(card_id, 1, "Hello again") == 300317
    assert await app.update_element(card_id, 2, "x", element="nope") == 300313
    assert await app.update_element(card_id, 5, "Hello again") == 0
    assert sent.text == "Hello again"
    off = {"settings": json.dumps({"config": {"streaming_mode": False}}), "sequence": 6}
    path = f"/cardkit/v1/cards/{card_id}/settings"
    assert (await app.call("PATCH", path, json=off))[1] == 0
    assert await app.update_element(card_id, 7, "late") == 300309


async def test_streaming_closes_by_itself_and_an_entity_is_sent_once(app: FeishuAppClient) -> None:
    chat = app.fs.group("team")
    card_id = await app.create_card(
        card(markdown("…", element_id="t"), config={"streaming_mode": True})
    )
    await app.send_message(chat, "interactive", {"type": "card", "data": {"card_id": card_id}})

    app.fs.advance(601)

    assert await app.update_element(card_id, 1, "Hello") == 200850
    twice = await app.send(chat, "interactive", {"type": "card", "data": {"card_id": card_id}})
    assert twice[1] == 230099


# --- the rest of CardKit ----------------------------------------------------------------------


async def test_elements_are_added_changed_and_removed_one_by_one(app: FeishuAppClient) -> None:
    card_id = await app.create_card(
        card(markdown("a", element_id="a"), markdown("b", element_id="b"))
    )
    sent = await app.send_message(
        app.fs.group("team"), "interactive", {"type": "card", "data": {"card_id": card_id}}
    )
    base = f"/cardkit/v1/cards/{card_id}"
    new = json.dumps([markdown("c", element_id="c")])
    actions = [
        {"action": "delete_elements", "params": {"element_ids": ["a"]}},
        {
            "action": "partial_update_element",
            "params": {"element_id": "b", "partial_element": {"content": "B"}},
        },
    ]

    codes = [
        (await app.call(method, base + path, json={**body, "sequence": number}))[1]
        for number, (method, path, body) in enumerate(
            [
                (
                    "POST",
                    "/elements",
                    {"type": "insert_after", "target_element_id": "b", "elements": new},
                ),
                ("POST", "/batch_update", {"actions": json.dumps(actions)}),
                ("PUT", "/elements/c", {"element": json.dumps(markdown("C", element_id="c"))}),
                ("PATCH", "/elements/c", {"partial_element": json.dumps({"content": "CC"})}),
                ("PATCH", "/elements/c", {"partial_element": json.dumps({"colour": "red"})}),
                ("DELETE", "/elements/b", {}),
            ],
            start=1,
        )
    ]

    assert codes == [0, 0, 0, 0, 200621, 0]
    assert sent.text == "CC"


async def test_a_sent_card_becomes_an_entity_and_can_no_longer_be_patched(
    app: FeishuAppClient,
) -> None:
    sent = await app.send_message(
        app.fs.group("team"), "interactive", card(markdown("a", element_id="a"))
    )
    body = {"message_id": sent.message_id}

    _, code, data = await app.call("POST", "/cardkit/v1/cards/id_convert", json=body)
    again = await app.call("POST", "/cardkit/v1/cards/id_convert", json=body)
    path = f"/im/v1/messages/{sent.message_id}"
    patch = await app.call("PATCH", path, json={"content": json.dumps(card(markdown("b")))})

    assert code == 0
    assert again[2] == data
    assert "200830" in patch[2]


async def test_a_card_accepts_ten_operations_a_second(app: FeishuAppClient) -> None:
    card_id = await app.create_card(
        card(markdown("a", element_id="t"), config={"streaming_mode": True})
    )

    codes = [await app.update_element(card_id, number, "x" * number) for number in range(1, 12)]

    assert codes == [0] * 10 + [99991400]
