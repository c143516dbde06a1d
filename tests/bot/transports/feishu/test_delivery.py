"""Letters are shown once, changed in place, and never lost to a refusal."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from bot.transports.base import (
    Ambiguous,
    DeliveryError,
    RateLimited,
    Refused,
    TooLarge,
    Unavailable,
    Unreachable,
)
from bot.transports.feishu.errors import KINDS, FeishuError, Kind, translate
from cards.model import Card, File, Image, Text
from storage.records.messages import AttachmentKind, Placed, RemoteFile
from tests.bot.transports.feishu.desk import Desk, answer, next_revision, plain, task
from tests.emulators.feishu.faults import (
    ApiError,
    Cut,
    quota_used_up,
    rate_limited,
    scope_missing,
)
from tests.emulators.feishu.world import Chat

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
SEND = "/im/v1/messages$"


@pytest.fixture
def chat(idle: Desk) -> Chat:
    return idle.fs.p2p(idle.fs.user("Anna"))


# --- showing --------------------------------------------------------------------------------


async def test_a_plain_answer_costs_one_call(idle: Desk, chat: Chat) -> None:
    _, delivery = await idle.post(chat, plain("**Hello**"))

    (message,) = chat.from_bot
    assert message.card["body"]["elements"][0]["content"] == "**Hello**"
    assert delivery.placed.message_ids == (message.message_id,)
    assert len(idle.calls) == 1


async def test_a_task_card_is_an_entity_and_changes_in_place(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, task(10))

    for percent in (50, 100):
        letter = next_revision(letter, task(percent), delivery.placed)
        delivery = await idle.show(letter)

    (message,) = chat.from_bot
    assert message.entity is not None
    assert "100%" in message.text
    assert message.summary == "Haiku 100%"
    assert [len(message.history), len(message.entity.history)] == [0, 2]


async def test_a_restarted_process_takes_the_same_card_up_again(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, task(10))
    entity = chat.from_bot[0].entity
    assert entity is not None
    entity.sequence = 300  # a stream that was never written down
    idle.transport._cardkit._entities.clear()
    idle.transport._places.clear()

    await idle.show(next_revision(letter, task(100), delivery.placed))

    assert "100%" in chat.from_bot[0].text
    assert len(chat.from_bot) == 1


async def test_a_lost_sequence_is_climbed_over(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, task(10))
    entity = chat.from_bot[0].entity
    assert entity is not None
    entity.sequence = 1200

    await idle.show(next_revision(letter, task(20), delivery.placed))

    assert "20%" in chat.from_bot[0].text


async def test_a_plain_card_is_patched(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, plain("one"))

    await idle.show(next_revision(letter, plain("two"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["two"]
    assert len(idle.fs.calls("PATCH", delivery.placed.message_ids[0])) == 1


async def test_a_long_answer_grows_and_shrinks_in_parts(idle: Desk, chat: Chat) -> None:
    long = "\n".join(f"line {number} " + "字" * 60 for number in range(300))
    letter, delivery = await idle.post(chat, plain(long))
    assert len(chat.from_bot) > 1
    idle.fs.advance(2)

    letter = next_revision(letter, plain("short"), delivery.placed)
    delivery = await idle.show(letter)
    assert [message.text for message in chat.from_bot] == ["short"]

    idle.fs.advance(2)
    await idle.show(next_revision(letter, plain(long), delivery.placed))
    assert "line 299 " in chat.from_bot[-1].text


async def test_answers_quote_what_they_answer(idle: Desk) -> None:
    anna = idle.fs.user("Anna")
    chat = idle.fs.group("topics", topics=True)
    asked = await anna.says(chat, "go")

    await idle.post(chat, plain("done"), thread=asked.message_id, reply_to=asked.message_id)
    await idle.post(chat, plain("and more"), thread=asked.message_id)

    assert [message.parent_id for message in chat.from_bot] == [asked.message_id] * 2
    assert {message.thread_id for message in chat.from_bot} == {asked.thread_id}


async def test_a_recalled_question_is_answered_all_the_same(idle: Desk, chat: Chat) -> None:
    anna = idle.fs.user("Anna")
    asked = await anna.says(chat, "go")
    await anna.recalls(asked)

    await idle.post(chat, plain("done"), reply_to=asked.message_id)

    assert [(m.text, m.parent_id) for m in chat.from_bot] == [("done", None)]


async def test_a_group_that_lost_its_topics_gets_a_plain_reply(idle: Desk) -> None:
    chat = idle.fs.group("plain")
    asked = await idle.fs.user("Anna").says(chat, "go")

    await idle.post(chat, plain("done"), thread=asked.message_id)

    assert chat.from_bot[0].parent_id == asked.message_id


async def test_a_message_that_is_gone_is_sent_anew(idle: Desk, chat: Chat) -> None:
    for card in (plain("one"), task(1)):
        letter, delivery = await idle.post(chat, card)
        chat.messages[-1].recalled = True
        idle.fs.world.entities.clear()

        delivery = await idle.show(next_revision(letter, card, delivery.placed))

        assert delivery.placed.message_ids == (chat.from_bot[-1].message_id,)
    assert len(chat.from_bot) == 2


async def test_a_placement_of_unknown_shape_is_still_a_card(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, plain("one"))
    idle.transport._places.clear()
    odd = Placed(message_ids=delivery.placed.message_ids, state={"parts": [7, {"k": "x"}]})

    await idle.show(next_revision(letter, plain("two"), odd))

    assert [message.text for message in chat.from_bot] == ["two"]


# --- pictures and files ---------------------------------------------------------------------


async def test_pictures_stand_in_the_card_and_files_behind_it(idle: Desk, chat: Chat) -> None:
    (idle.home / "a.png").write_bytes(PNG)
    (idle.home / "haiku.md").write_text("queues")
    blocks = (
        Image(path="a.png", alt="A figure"),
        File(path="haiku.md", name="haiku.md", size=6),
        File(path="../etc", name="no", size=1),
        Image(path="gone.png", alt="lost"),
    )
    card = Card(title="Result", blocks=blocks)

    letter, delivery = await idle.post(chat, card)
    again = await idle.show(next_revision(letter, card, delivery.placed))

    shown, file = chat.from_bot
    key = shown.card["body"]["elements"][0]["img_key"]
    assert idle.fs.world.images[key].data == PNG
    assert file.msg_type == "file"
    assert [blob.data for blob in idle.fs.world.files.values()] == [b"queues"]
    assert "image: cannot be read" in delivery.degraded
    assert "file: outside the data directory" in delivery.degraded
    assert again.placed.message_ids == delivery.placed.message_ids
    assert len(idle.fs.calls("POST", "/images")) == 1


async def test_what_is_too_large_to_fetch_is_said_so(
    idle: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.feishu.media.MAX_FETCH", 10)
    anna = idle.fs.user("Anna")
    sent = await anna.sends_file(idle.fs.p2p(anna), "big.bin", b"x" * 11)
    reference = {
        "message_id": sent.message_id,
        "key": sent.content.split('"')[3],
        "type": "file",
    }
    file = RemoteFile(kind=AttachmentKind.FILE, reference=reference, name="big.bin")

    with pytest.raises(TooLarge):
        await idle.transport.fetch(file, idle.home)
    wrong = replace(file, reference={**reference, "key": "file_v3_other"})
    with pytest.raises(Refused):
        await idle.transport.fetch(wrong, idle.home)
    assert list(idle.home.iterdir()) == []


# --- refusals -------------------------------------------------------------------------------


async def test_a_refused_card_arrives_as_text(
    idle: Desk, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = ApiError(230099, "Failed to create card content, ext=ErrCode: 200621; ErrMsg: x; ")
    idle.fs.misbehave("POST", SEND, error=refusal)
    card = Card(title="T", blocks=(Text(markdown="body"),), fallback="T\n\nbody")

    with caplog.at_level(logging.WARNING):
        letter, delivery = await idle.post(chat, card)
    await idle.show(next_revision(letter, plain("new"), delivery.placed))

    assert [(m.msg_type, m.text) for m in chat.from_bot] == [("text", "new")]
    assert chat.from_bot[0].history[0] == '{"text":"T\\n\\nbody"}'
    assert delivery.degraded == ("card: refused with 200621, sent as text",)
    assert "200621" in caplog.text


async def test_a_refused_update_is_shown_as_plain_text(idle: Desk, chat: Chat) -> None:
    letter, delivery = await idle.post(chat, task(1))
    error = ApiError(200570, "ErrCode: 200570; ErrMsg: image; ")
    idle.fs.misbehave("PUT", "/cardkit/v1/cards/[^/]+$", error=error)

    delivery = await idle.show(next_revision(letter, task(50), delivery.placed))

    assert "50 %" in chat.from_bot[0].text
    assert delivery.degraded == ("card: refused with 200570, shown as plain text",)


async def test_text_that_may_no_longer_be_edited_is_replaced(idle: Desk, chat: Chat) -> None:
    refusal = ApiError(230099, "ErrCode: 200621; ")
    idle.fs.misbehave("POST", SEND, error=refusal, times=1)
    letter, delivery = await idle.post(chat, plain("one"))
    idle.fs.messages.edit_window_closed = True

    delivery = await idle.show(next_revision(letter, plain("two"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["two"]
    assert delivery.placed.message_ids == (chat.from_bot[0].message_id,)


async def test_without_the_cardkit_scope_cards_are_patched(idle: Desk, chat: Chat) -> None:
    idle.fs.misbehave("POST", "/cardkit/v1/cards$", error=scope_missing("cardkit:card:write"))

    letter, delivery = await idle.post(chat, task(1))
    await idle.show(next_revision(letter, task(2), delivery.placed))
    await idle.post(chat, task(3))

    assert chat.from_bot[0].entity is None
    assert " 2%" in chat.from_bot[0].text.replace("**", " ")
    assert len(idle.fs.calls("POST", "/cardkit/v1/cards")) == 1
    assert idle.intake.alerts[0][0] == "scope"
    assert "cardkit:card:write" in str(idle.intake.alerts[0][1]["detail"])


@pytest.mark.parametrize(
    ("error", "expected", "seconds"),
    [
        (rate_limited(7), RateLimited, 7.0),
        (rate_limited(3, status=400), RateLimited, 3.0),
        (ApiError(230020, "limit"), RateLimited, 0.5),
        (ApiError(11232, "limit"), RateLimited, 1.0),
        (quota_used_up(), RateLimited, 3600.0),
        (ApiError(230002, "not in chat"), Unreachable, None),
        (ApiError(230013, "no availability"), Unreachable, None),
        (ApiError(230053, "muted"), Unreachable, None),
        (ApiError(232009, "dissolved"), Unreachable, None),
        (ApiError(99991672, "scope"), Unavailable, None),
        (ApiError(1, "what", status=500), Unavailable, None),
        (ApiError(123456, "what"), Refused, None),
    ],
)
async def test_refusals_have_their_meaning(
    idle: Desk, chat: Chat, error: ApiError, expected: type[DeliveryError], seconds: float | None
) -> None:
    idle.fs.misbehave("POST", SEND, error=error)

    with pytest.raises(expected) as refused:
        await idle.post(chat, plain("x"))

    if isinstance(refused.value, RateLimited):
        assert refused.value.retry_after == seconds
        assert refused.value.whole_channel == (error.code != 230020)
    assert idle.fs.app_secret not in str(refused.value)


async def test_the_quota_and_missing_scopes_reach_the_operator(idle: Desk, chat: Chat) -> None:
    for error in (quota_used_up(), scope_missing("im:message:send_as_bot")):
        idle.fs.misbehave("POST", SEND, error=error)
        with pytest.raises(DeliveryError):
            await idle.post(chat, plain("x"))

    assert [key for key, _ in idle.intake.alerts] == ["quota", "scope"]


def test_every_kind_has_a_delivery_error() -> None:
    codes = {kind: code for code, kind in KINDS.items()} | {Kind.SERVER: 5, Kind.OTHER: 6}

    assert set(codes) == set(Kind)
    for kind, code in codes.items():
        error = FeishuError(code, "", status=500 if kind is Kind.SERVER else 400)
        assert error.kind is kind
        assert isinstance(translate(error), DeliveryError)


async def test_trouble_is_taken_back_when_it_is_over(desk: Desk) -> None:
    chat = desk.fs.p2p(desk.fs.user("Anna"))
    await desk.intake.until(lambda: desk.intake.alerts)
    desk.fs.misbehave("POST", SEND, error=quota_used_up())
    with pytest.raises(RateLimited):
        await desk.post(chat, plain("x"))

    await desk.fs.long.drop()
    await desk.fs.until(lambda: desk.fs.long.accepted == 2)
    assert [key for key, _ in desk.intake.alerts] == ["", "quota"]
    await desk.post(chat, plain("y"))

    assert [key for key, _ in desk.intake.alerts] == ["", "quota", ""]


async def test_parts_that_are_out_are_not_sent_again(idle: Desk, chat: Chat) -> None:
    long = "\n".join(f"line {number} " + "字" * 60 for number in range(300))
    letter = idle.letter(chat, plain(long))
    idle.fs.misbehave("POST", SEND)  # the first part goes through
    idle.fs.misbehave("POST", SEND, error=rate_limited(2))

    with pytest.raises(RateLimited):
        await idle.show(letter)
    newer = next_revision(letter, plain(f"first\n{long}"), None)
    idle.fs.advance(2)
    await idle.show(newer)

    shown = [message.text for message in chat.from_bot]
    assert shown[0].startswith("first")
    assert sum(text.count("line 1 ") for text in shown) == 1
    assert "line 299 " in shown[-1]
    assert idle.quick.pauses.count(0.25) >= 2


# --- broken lines and tokens ----------------------------------------------------------------


@pytest.mark.parametrize("card", [plain("x"), task(1)], ids=["card", "entity"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_send_of_unknown_outcome_is_repeated_without_a_second_message(
    idle: Desk, chat: Chat, card: Card, *, restarted: bool
) -> None:
    idle.fs.misbehave("POST", SEND, cut=Cut.AFTER)
    letter = idle.letter(chat, card)

    with pytest.raises(Ambiguous):
        await idle.show(letter)
    if restarted:
        idle.transport._delivery._unsent.clear()
        idle.transport._cardkit._entities.clear()
    again = replace(letter, repeat=True)
    delivery = await idle.show(again)
    await idle.show(next_revision(again, task(77), delivery.placed))

    assert len(chat.from_bot) == 1
    assert "77" in chat.from_bot[0].text


async def test_what_certainly_did_not_arrive_is_unavailable(idle: Desk, chat: Chat) -> None:
    idle.fs.misbehave("POST", SEND, raw=b"<html>bad gateway", status=502)
    with pytest.raises(Unavailable):
        await idle.post(chat, plain("x"))

    letter, delivery = await idle.post(chat, plain("y"))
    idle.fs.misbehave("PATCH", "/im/v1/messages", cut=Cut.BEFORE)
    with pytest.raises(Unavailable):
        await idle.show(next_revision(letter, plain("z"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["y"]


async def test_an_expired_token_is_renewed_without_anybody_noticing(idle: Desk, chat: Chat) -> None:
    await idle.post(chat, plain("one"))
    idle.fs.tokens.expire_all()

    await asyncio.gather(*(idle.post(chat, plain(f"two {n}")) for n in range(3)))

    assert len(chat.from_bot) == 4
    refused = [r for r in idle.fs.requests if r.code == 99991663]
    assert 1 <= len(refused) <= 3
    assert len(idle.fs.calls("POST", "/tenant_access_token/internal")) == 2


async def test_one_token_serves_all_who_wait_for_it(idle: Desk, chat: Chat) -> None:
    await asyncio.gather(*(idle.post(chat, plain(str(n))) for n in range(4)))

    assert len(idle.fs.calls("POST", "/tenant_access_token/internal")) == 1


async def test_a_token_that_stays_refused_is_not_asked_for_for_ever(idle: Desk, chat: Chat) -> None:
    idle.fs.misbehave("POST", SEND, error=ApiError(99991663, "invalid"), times=9)

    with pytest.raises(Unavailable):
        await idle.post(chat, plain("x"))

    assert len(idle.fs.calls("POST", "/im/v1/messages")) == 2


async def test_wrong_credentials_are_told_and_nothing_is_sent(idle: Desk, chat: Chat) -> None:
    idle.fs.app_secret = "changed"

    with pytest.raises(Unavailable):
        await idle.post(chat, plain("x"))

    assert [key for key, _ in idle.intake.alerts] == ["credentials"]


async def test_every_send_carries_its_own_uuid(idle: Desk, chat: Chat) -> None:
    (idle.home / "a.txt").write_text("x")
    card = Card(blocks=(Text(markdown="字" * 9000), File(path="a.txt", name="a.txt", size=1)))

    await idle.post(chat, card)

    uuids = [r.json["uuid"] for r in idle.fs.calls("POST", "/im/v1/messages")]
    assert len(set(uuids)) == len(uuids) == len(chat.from_bot)
    assert all(len(uuid) <= 50 for uuid in uuids)


async def test_dirty_text_does_no_harm(idle: Desk, chat: Chat) -> None:
    await idle.post(chat, Card(title="a\ud800\x00", blocks=(Text(markdown="b\udfff\x07"),)))

    assert chat.from_bot[0].text == "a\nb"


async def test_work_in_progress_is_shown_once_by_a_reaction(desk: Desk) -> None:
    anna = desk.fs.user("Anna")
    asked = await anna.says(desk.fs.p2p(anna), "go")
    await desk.intake.message()
    await desk.fs.until(lambda: asked.push is not None and asked.push.acked.done())
    letter = desk.letter(desk.fs.p2p(anna), answer("x"))

    await desk.transport.typing(letter.chat)
    await desk.transport.typing(letter.chat)

    assert [one["emoji_type"] for one in asked.reactions] == ["Get"]
