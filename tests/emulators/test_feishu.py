"""The Feishu emulator keeps the platform's promises, and its refusals: REST and cards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu_app import PNG, App, card, md


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


# --- the rest of CardKit ----------------------------------------------------------------------


async def test_elements_are_added_changed_and_removed_one_by_one(app: App) -> None:
    card_id = await app.entity(card(md("a", element_id="a"), md("b", element_id="b")))
    sent = await app.sent(
        app.fs.group("team"), "interactive", {"type": "card", "data": {"card_id": card_id}}
    )
    base = f"/cardkit/v1/cards/{card_id}"
    new = json.dumps([md("c", element_id="c")])
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
                ("PUT", "/elements/c", {"element": json.dumps(md("C", element_id="c"))}),
                ("PATCH", "/elements/c", {"partial_element": json.dumps({"content": "CC"})}),
                ("PATCH", "/elements/c", {"partial_element": json.dumps({"colour": "red"})}),
                ("DELETE", "/elements/b", {}),
            ],
            start=1,
        )
    ]

    assert codes == [0, 0, 0, 0, 200621, 0]
    assert sent.text == "CC"


async def test_a_sent_card_becomes_an_entity_and_can_no_longer_be_patched(app: App) -> None:
    sent = await app.sent(app.fs.group("team"), "interactive", card(md("a", element_id="a")))
    body = {"message_id": sent.message_id}

    _, code, data = await app.call("POST", "/cardkit/v1/cards/id_convert", json=body)
    again = await app.call("POST", "/cardkit/v1/cards/id_convert", json=body)
    path = f"/im/v1/messages/{sent.message_id}"
    patch = await app.call("PATCH", path, json={"content": json.dumps(card(md("b")))})

    assert code == 0
    assert again[2] == data
    assert "200830" in patch[2]


async def test_a_card_takes_ten_operations_a_second(app: App) -> None:
    card_id = await app.entity(card(md("a", element_id="t"), config={"streaming_mode": True}))

    codes = [await app.content(card_id, number, "x" * number) for number in range(1, 12)]

    assert codes == [0] * 10 + [99991400]
