"""No refusal, cut line or expired token loses a letter or shows it twice."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bot.transports.feishu.api import ERROR_KINDS, FeishuError, FeishuErrorKind, translate_error
from bot.transports.feishu.transport import FeishuTransport
from bot.transports.ports import (
    ChatUnreachable,
    ContentRefused,
    DeliveryError,
    DeliveryRateLimited,
    DeliveryUncertain,
    PlatformUnavailable,
    Transport,
)
from cards.model import Card, FileBlock, ImageBlock, TextBlock
from storage.records.people import Channel
from tests.bot.transports.feishu.builders import FeishuHarness, answer, next_revision, plain, task
from tests.emulators.feishu.refusals import (
    ConnectionCut,
    FeishuApiError,
    quota_used_up,
    rate_limited,
    scope_missing,
)
from tests.emulators.feishu.tenant import FeishuChat
from tests.fakes.inbox import FakeInbox

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
SEND = "/im/v1/messages$"


@pytest.fixture
def chat(idle: FeishuHarness) -> FeishuChat:
    return idle.fs.private_chat(idle.fs.user("Anna"))


# --- refusals -------------------------------------------------------------------------------


async def test_a_refused_card_arrives_as_text(
    idle: FeishuHarness, chat: FeishuChat, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = FeishuApiError(
        230099, "Failed to create card content, ext=ErrCode: 200621; ErrMsg: x; "
    )
    idle.fs.inject_fault("POST", SEND, error=refusal)
    calling = '<at user_id="all"></at>'
    card = Card(title="T", blocks=(TextBlock(markdown="x"),), fallback=f"T\n\nbody{calling}")

    with caplog.at_level(logging.WARNING):
        letter, delivery = await idle.post(chat, card)
    await idle.show(next_revision(letter, plain("new"), delivery.placed))

    assert [(m.msg_type, m.text) for m in chat.from_bot] == [("text", "new")]
    told = json.loads(chat.from_bot[0].history[0])["text"]
    assert told == "T\n\nbody" + calling.replace("<", "<\u200b"), "it calls nobody"
    assert delivery.degraded == ("card: refused with 200621, sent as text",)
    assert "200621" in caplog.text


async def test_a_refused_update_is_shown_as_plain_text(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, task(1))
    error = FeishuApiError(200570, "ErrCode: 200570; ErrMsg: image; ")
    idle.fs.inject_fault("PUT", "/cardkit/v1/cards/[^/]+$", error=error)

    delivery = await idle.show(next_revision(letter, task(50), delivery.placed))

    assert "50 %" in chat.from_bot[0].text
    assert delivery.degraded == ("card: refused with 200570, shown as plain text",)


async def test_text_that_may_no_longer_be_edited_is_replaced(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    refusal = FeishuApiError(230099, "ErrCode: 200621; ")
    idle.fs.inject_fault("POST", SEND, error=refusal, times=1)
    letter, delivery = await idle.post(chat, plain("one"))
    idle.fs.messages.edit_window_closed = True

    delivery = await idle.show(next_revision(letter, plain("two"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["two"]
    assert delivery.placed.message_ids == (chat.from_bot[0].message_id,)


async def test_without_the_cardkit_scope_cards_are_patched(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    idle.fs.inject_fault("POST", "/cardkit/v1/cards$", error=scope_missing("cardkit:card:write"))

    letter, delivery = await idle.post(chat, task(1))
    await idle.show(next_revision(letter, task(2), delivery.placed))
    await idle.post(chat, task(3))

    assert chat.from_bot[0].entity is None
    assert " 2%" in chat.from_bot[0].text.replace("**", " ")
    assert len(idle.fs.calls("POST", "/cardkit/v1/cards")) == 1
    assert idle.inbox.alerts[0][0] == "scope"
    assert "cardkit:card:write" in str(idle.inbox.alerts[0][1]["detail"])


@pytest.mark.parametrize(
    ("error", "expected", "seconds"),
    [
        (rate_limited(7), DeliveryRateLimited, 7.0),
        (rate_limited(3, status=400), DeliveryRateLimited, 3.0),
        (FeishuApiError(230020, "limit"), DeliveryRateLimited, 0.5),
        (FeishuApiError(11232, "limit"), DeliveryRateLimited, 1.0),
        (quota_used_up(), DeliveryRateLimited, 3600.0),
        (FeishuApiError(230002, "not in chat"), ChatUnreachable, None),
        (FeishuApiError(230013, "no availability"), ChatUnreachable, None),
        (FeishuApiError(230053, "muted"), ChatUnreachable, None),
        (FeishuApiError(232009, "dissolved"), ChatUnreachable, None),
        (FeishuApiError(99991672, "scope"), PlatformUnavailable, None),
        (FeishuApiError(1, "what", status=500), PlatformUnavailable, None),
        (FeishuApiError(123456, "what"), ContentRefused, None),
    ],
)
async def test_refusals_have_their_meaning(
    idle: FeishuHarness,
    chat: FeishuChat,
    error: FeishuApiError,
    expected: type[DeliveryError],
    seconds: float | None,
) -> None:
    idle.fs.inject_fault("POST", SEND, error=error)

    with pytest.raises(expected) as refused:
        await idle.post(chat, plain("x"))

    if isinstance(refused.value, DeliveryRateLimited):
        assert refused.value.retry_after == seconds
        assert refused.value.whole_channel == (error.code != 230020)
    assert idle.fs.app_secret not in str(refused.value)


async def test_the_quota_and_missing_scopes_reach_the_operator(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    for error in (quota_used_up(), scope_missing("im:message:send_as_bot")):
        idle.fs.inject_fault("POST", SEND, error=error)
        with pytest.raises(DeliveryError):
            await idle.post(chat, plain("x"))

    assert [key for key, _ in idle.inbox.alerts] == ["quota", "scope"]


def test_every_kind_has_a_delivery_error() -> None:
    codes = {kind: code for code, kind in ERROR_KINDS.items()} | {
        FeishuErrorKind.SERVER: 5,
        FeishuErrorKind.OTHER: 6,
    }

    assert set(codes) == set(FeishuErrorKind)
    for kind, code in codes.items():
        error = FeishuError(code, "", status=500 if kind is FeishuErrorKind.SERVER else 400)
        assert error.kind is kind
        assert isinstance(translate_error(error), DeliveryError)


async def test_trouble_is_taken_back_when_it_is_over(desk: FeishuHarness) -> None:
    chat = desk.fs.private_chat(desk.fs.user("Anna"))
    await desk.inbox.wait(lambda: desk.inbox.alerts)
    desk.fs.inject_fault("POST", SEND, error=quota_used_up())
    with pytest.raises(DeliveryRateLimited):
        await desk.post(chat, plain("x"))

    await desk.fs.long.drop_connections()
    await desk.fs.wait_until(lambda: desk.fs.long.accepted == 2)
    assert [key for key, _ in desk.inbox.alerts] == ["", "quota"]
    await desk.post(chat, plain("y"))

    assert [key for key, _ in desk.inbox.alerts] == ["", "quota", ""]


async def test_parts_that_are_out_are_not_sent_again(idle: FeishuHarness, chat: FeishuChat) -> None:
    long = "\n".join(f"line {number} " + "字" * 60 for number in range(300))
    letter = idle.letter(chat, plain(long))
    idle.fs.inject_fault("POST", SEND)  # the first part goes through
    idle.fs.inject_fault("POST", SEND, error=rate_limited(2))

    with pytest.raises(DeliveryRateLimited):
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
    idle: FeishuHarness, chat: FeishuChat, card: Card, *, restarted: bool
) -> None:
    idle.fs.inject_fault("POST", SEND, cut=ConnectionCut.AFTER)
    letter = idle.letter(chat, card)

    with pytest.raises(DeliveryUncertain):
        await idle.show(letter)
    if restarted:
        idle.transport._delivery._unsent_entities.clear()
        idle.transport._cardkit._entities.clear()
    again = replace(letter, repeat=True)
    delivery = await idle.show(again)
    await idle.show(next_revision(again, task(77), delivery.placed))

    assert len(chat.from_bot) == 1
    assert "77" in chat.from_bot[0].text


async def test_what_certainly_did_not_arrive_is_unavailable(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    idle.fs.inject_fault("POST", SEND, raw=b"<html>bad gateway", status=502)
    with pytest.raises(PlatformUnavailable):
        await idle.post(chat, plain("x"))

    letter, delivery = await idle.post(chat, plain("y"))
    idle.fs.inject_fault("PATCH", "/im/v1/messages", cut=ConnectionCut.BEFORE)
    with pytest.raises(PlatformUnavailable):
        await idle.show(next_revision(letter, plain("z"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["y"]


@pytest.mark.parametrize("path", ["/internal$", "/cardkit/v1/cards$", "/images$"])
async def test_a_cut_before_anything_was_shown_is_no_doubt(
    idle: FeishuHarness, chat: FeishuChat, path: str
) -> None:
    (idle.home / "a.png").write_bytes(PNG)
    card = replace(task(1), blocks=(*task(1).blocks, ImageBlock(path="a.png", alt="x")))
    idle.fs.inject_fault("POST", path, cut=ConnectionCut.AFTER)

    with pytest.raises(PlatformUnavailable):
        await idle.post(chat, card)
    await idle.post(chat, card)

    assert len(chat.from_bot) == 1


async def test_a_rate_limit_without_an_envelope_is_one_too(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    idle.fs.inject_fault("POST", SEND, raw=b"<html>slow down", status=429)

    with pytest.raises(DeliveryRateLimited):
        await idle.post(chat, plain("x"))


async def test_a_proxy_that_cannot_be_used_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "odd://127.0.0.1:1")

    transport = FeishuTransport(
        app_id="a",
        app_secret="b",
        domain="https://x.invalid",
        inbox=FakeInbox(Channel.FEISHU, "Paused"),
        home=tmp_path,
    )

    kept: Transport = transport
    async with AsyncExitStack() as stack:
        await kept.start(stack)


async def test_an_expired_token_is_renewed_without_anybody_noticing(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    await idle.post(chat, plain("one"))
    idle.fs.tokens.expire_all()

    await asyncio.gather(*(idle.post(chat, plain(f"two {n}")) for n in range(3)))

    assert len(chat.from_bot) == 4
    refused = [r for r in idle.fs.requests if r.code == 99991663]
    assert 1 <= len(refused) <= 3
    assert len(idle.fs.calls("POST", "/tenant_access_token/internal")) == 2


async def test_one_token_serves_all_who_wait_for_it(idle: FeishuHarness, chat: FeishuChat) -> None:
    await asyncio.gather(*(idle.post(chat, plain(str(n))) for n in range(4)))

    assert len(idle.fs.calls("POST", "/tenant_access_token/internal")) == 1


async def test_a_token_that_stays_refused_is_not_asked_for_for_ever(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    idle.fs.inject_fault("POST", SEND, error=FeishuApiError(99991663, "invalid"), times=9)

    with pytest.raises(PlatformUnavailable):
        await idle.post(chat, plain("x"))

    assert len(idle.fs.calls("POST", "/im/v1/messages")) == 2


async def test_wrong_credentials_are_told_and_nothing_is_sent(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    idle.fs.app_secret = "changed"

    with pytest.raises(PlatformUnavailable):
        await idle.post(chat, plain("x"))

    assert [key for key, _ in idle.inbox.alerts] == ["credentials"]


async def test_every_send_carries_its_own_uuid(idle: FeishuHarness, chat: FeishuChat) -> None:
    (idle.home / "a.txt").write_text("x")
    card = Card(
        blocks=(TextBlock(markdown="字" * 9000), FileBlock(path="a.txt", name="a.txt", size=1))
    )

    await idle.post(chat, card)

    uuids = [r.json["uuid"] for r in idle.fs.calls("POST", "/im/v1/messages")]
    assert len(set(uuids)) == len(uuids) == len(chat.from_bot)
    assert all(len(uuid) <= 50 for uuid in uuids)


async def test_dirty_text_does_no_harm(idle: FeishuHarness, chat: FeishuChat) -> None:
    await idle.post(chat, Card(title="a\ud800\x00", blocks=(TextBlock(markdown="b\udfff\x07"),)))

    assert chat.from_bot[0].text == "a\nb"


async def test_work_in_progress_is_shown_once_by_a_reaction(desk: FeishuHarness) -> None:
    anna = desk.fs.user("Anna")
    asked = await anna.says(desk.fs.private_chat(anna), "go")
    await desk.inbox.message()
    await desk.fs.wait_until(lambda: asked.push is not None and asked.push.acked.done())
    letter = desk.letter(desk.fs.private_chat(anna), answer("x"))

    await desk.transport.show_typing(letter.chat)
    await desk.transport.show_typing(letter.chat)

    assert [one["emoji_type"] for one in asked.reactions] == ["Get"]
