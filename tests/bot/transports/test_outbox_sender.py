from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.transports.ports import (
    ChatUnreachable,
    ContentRefused,
    DeliveryRateLimited,
    DeliveryUncertain,
    FileTooLarge,
    PlatformUnavailable,
)
from bot.transports.quota import QuotaLevel
from bot.transports.rate_limits import ChannelLimits
from cards.model import Card, TextBlock
from storage.errors import StoreUnavailable
from storage.messages.outbox import OutgoingCard
from storage.records.messages import DeliveryUrgency, MessagePlacement
from storage.records.people import Channel
from tests.bot.transports.outbox_builders import FakeClock, OutboxHarness, outbox_harness, text_of
from tests.storage.message_store import place, sender
from tests.thoroughness import sampled
from tests.waiting import wait_until


async def test_a_letter_is_shown_once_and_then_changed_where_it_is(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.run()

    await post.say(chat, "one")
    await post.settled()
    await post.say(chat, "one")
    await post.say(chat, "two")
    await post.settled()

    first, second = post.telegram.letters
    assert (first.placed, first.revision, first.repeat) == (None, 1, False)
    assert second.placed == MessagePlacement(message_ids=(f"m{first.outbox_id}",))
    assert (text_of(second.card), second.revision) == ("two", 2)


async def test_only_the_newest_of_many_revisions_is_shown(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    for number in range(10):
        await post.say(chat, f"{number} %", urgency=DeliveryUrgency.PROGRESS)

    post.run()
    await post.settled()

    assert post.telegram.texts == ["9 %"]


async def test_the_most_urgent_letter_leaves_first_then_the_oldest(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, channel_limits={Channel.TELEGRAM: ChannelLimits()}) as post:
        chat = await post.room.chat()
        for urgency in (
            DeliveryUrgency.PROGRESS,
            DeliveryUrgency.NOTICE,
            DeliveryUrgency.APPROVAL,
            DeliveryUrgency.ANSWER,
        ):
            await post.say(chat, urgency.name, key=urgency.name, urgency=urgency)
        await post.say(chat, "ANSWER 2", key="a2")

        post.run()
        await post.telegram.sent(5)

        assert post.telegram.texts == ["ANSWER", "ANSWER 2", "APPROVAL", "NOTICE", "PROGRESS"]


async def test_all_answers_of_a_chat_are_out_before_any_file(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, channel_limits={Channel.TELEGRAM: ChannelLimits()}) as post:
        chat = await post.room.chat()
        results = ("one", "two", "three")
        for text in results:
            post.telegram.files_of[text] = 2
            await post.say(chat, text, key=text)

        post.run()
        for text in results:
            await post.settled(text)

    turns = [(text_of(each.card), each.files_only) for each in post.telegram.letters]
    assert turns[:3] == [(text, False) for text in results]
    assert sorted(turns[3:]) == sorted([(text, True) for text in results] * 2)


async def test_files_that_may_have_arrived_are_repeated_with_a_mark_and_the_card_is_not(
    post: OutboxHarness,
) -> None:
    post.telegram.files_of["result"] = 1
    post.telegram.script.extend([None, DeliveryUncertain("cut")])
    post.run()

    await post.say(await post.room.chat(), "result")
    await post.telegram.sent(2)
    await post.clock.someone_sleeps(2)
    post.telegram.files_of["result"] = 1
    post.clock.advance(2)
    await post.settled()

    turns = [(each.files_only, each.repeat) for each in post.telegram.letters]
    assert turns == [(False, False), (True, False), (True, True)]


async def test_one_chat_gets_one_letter_at_a_time_and_others_do_not_wait_for_it(
    post: OutboxHarness,
) -> None:
    slow, quick = await post.room.chat(), await post.room.chat(place("43"), sender("43"))
    post.telegram.gate = asyncio.Event()
    post.run()
    await post.say(slow, "slow 1", key="1")
    await post.telegram.sent(1)
    await post.say(slow, "slow 2", key="2")
    await post.say(quick, "quick", key="3")
    await post.telegram.sent(2)

    assert post.telegram.texts == ["slow 1", "quick"]
    post.telegram.gate.set()
    await post.telegram.sent(3)
    assert post.telegram.texts[-1] == "slow 2"


async def test_a_fast_talker_is_held_to_the_platforms_pace(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.run()
    for number in range(5):
        await post.say(chat, str(number), key=str(number))

    await post.telegram.sent(3)
    await post.clock.someone_sleeps(1)
    post.clock.advance(1)
    await post.telegram.sent(4)
    await post.clock.someone_sleeps(1)
    post.clock.advance(1)
    await post.telegram.sent(5)

    assert post.telegram.times == [0, 0, 0, 1, 2]
    assert post.telegram.texts == ["0", "1", "2", "3", "4"]


async def test_after_a_429_the_chat_rests_and_the_answer_still_comes(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(DeliveryRateLimited(30))
    post.run()

    await post.say(chat, "final")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(30)
    assert post.outbox_sender.is_paused(chat)
    await post.outbox_sender.show_typing(chat)
    assert post.telegram.typed == []

    post.clock.advance(30)
    await post.settled()

    assert post.telegram.times == [0, 30]
    assert post.telegram.texts == ["final", "final"]
    assert not post.telegram.letters[1].repeat


async def test_a_429_of_one_chat_leaves_the_others_alone(post: OutboxHarness) -> None:
    resting, other = await post.room.chat(), await post.room.chat(place("43"), sender("43"))
    post.telegram.script.append(DeliveryRateLimited(30))
    post.run()
    await post.say(resting, "wait", key="1")
    await post.telegram.sent(1)

    await post.say(other, "go", key="2")
    await post.settled("2")

    assert post.telegram.texts == ["wait", "go"]


async def test_a_429_of_the_whole_channel_rests_all_of_it(post: OutboxHarness) -> None:
    one, other = await post.room.chat(), await post.room.chat(place("43"), sender("43"))
    post.telegram.script.append(DeliveryRateLimited(30, whole_channel=True))
    post.run()
    await post.say(one, "1", key="1")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(30)

    await post.say(other, "2", key="2")
    await post.clock.someone_sleeps(30)

    assert post.telegram.texts == ["1"]
    post.clock.advance(30)
    await post.telegram.sent(3)
    assert sorted(post.telegram.texts[1:]) == ["1", "2"]


async def test_after_a_429_the_answer_goes_before_the_progress_that_waited(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(DeliveryRateLimited(10))
    post.run()
    await post.say(chat, "50 %", key="task", urgency=DeliveryUrgency.PROGRESS)
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(10)
    await post.say(chat, "answer", key="answer")

    post.clock.advance(10)
    await post.settled("answer")
    await post.clock.someone_sleeps(5)
    assert post.telegram.texts == ["50 %", "answer"]
    post.clock.advance(5)
    await post.settled("task")

    assert post.telegram.texts == ["50 %", "answer", "50 %"]


async def test_typing_is_shown_where_nobody_asked_for_peace(post: OutboxHarness) -> None:
    chat = await post.room.chat()

    await post.outbox_sender.show_typing(chat)

    assert post.telegram.typed == [chat]


async def test_an_unavailable_platform_is_tried_again_for_as_long_as_it_takes(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.extend(PlatformUnavailable("503") for _ in range(9))
    post.run()
    await post.say(chat, "patience")

    waits = (2, 4, 8, 16, 32, 60, 60, 60, 60)
    for number, wait in enumerate(waits, start=1):
        await post.telegram.sent(number)
        await post.clock.someone_sleeps(wait)
        post.clock.advance(wait)
    await post.settled()

    assert len(post.telegram.letters) == 10
    assert not any(letter.repeat for letter in post.telegram.letters)
    assert len({letter.idempotency_key for letter in post.telegram.letters}) == 1


async def test_a_dead_channel_is_not_hammered_by_every_waiting_letter(post: OutboxHarness) -> None:
    for number in range(20):
        chat = await post.room.chat(place(str(number)), sender(str(number)))
        await post.say(chat, "x", key=str(number))
    post.telegram.script.extend(PlatformUnavailable("down") for _ in range(100))

    post.run()
    await post.telegram.sent(3)
    await post.clock.someone_sleeps(2)

    # Those under way when the third failure came may still fail; no more are begun.
    assert len(post.telegram.letters) <= 3 + 8


async def test_what_waits_out_an_outage_leaves_when_the_platform_answers_again(
    post: OutboxHarness,
) -> None:
    chats = [await post.room.chat(place(str(n)), sender(str(n))) for n in range(5)]
    post.telegram.script.extend(PlatformUnavailable("down") for _ in range(9))
    post.run()
    for number, chat in enumerate(chats):
        await post.say(chat, f"answer {number}", key=str(number))
    await post.telegram.sent(3)
    await post.clock.someone_sleeps(2)
    # Each failure is stored, and the channel rests.
    await wait_until(lambda: post.stored_failures(len(post.telegram.letters)))
    tried = len(post.telegram.letters)
    post.telegram.script.clear()

    # Time for the channel's own pace, and less than any wait of theirs.
    post.clock.advance(1)
    assert len(post.telegram.letters) == tried
    post.outbox_sender.connected(Channel.TELEGRAM)
    for number in range(5):
        await post.settled(str(number))

    assert tried >= 3


async def test_the_end_of_an_outage_does_not_cut_short_a_rate_limit(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(DeliveryRateLimited(30))
    post.run()
    await post.say(chat, "final")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(30)

    post.outbox_sender.connected(Channel.TELEGRAM)
    other = await post.room.chat(place("43"), sender("43"))
    await post.say(other, "go", key="other")
    await post.settled("other")

    assert post.telegram.texts == ["final", "go"]


async def test_a_doubtful_first_send_is_repeated_under_the_same_name_and_marked(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(DeliveryUncertain("timed out"))
    post.run()
    await post.say(chat, "once")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(2)

    post.clock.advance(2)
    await post.settled()

    first, second = post.telegram.letters
    assert [first.repeat, second.repeat] == [False, True]
    assert first.idempotency_key == second.idempotency_key


async def test_a_doubtful_edit_is_simply_made_again(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.telegram.script.extend([None, DeliveryUncertain("timed out")])
    post.run()
    await post.say(chat, "one")
    await post.settled()
    await post.say(chat, "two")
    await post.telegram.sent(2)
    await post.clock.someone_sleeps(2)

    post.clock.advance(2)
    await post.settled()

    assert [letter.repeat for letter in post.telegram.letters] == [False, False, False]


async def test_a_platform_that_knows_names_shows_the_newest_after_a_doubtful_send(
    post: OutboxHarness,
) -> None:
    """Such a platform answers a repeated name with the old message, old text and all."""
    chat = await post.room.chat()
    post.telegram.script.append(DeliveryUncertain("timed out"))
    post.run()
    await post.say(chat, "old")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(2)
    await post.say(chat, "new")

    post.clock.advance(2)
    await post.settled()

    first, repeated, edit = post.telegram.letters
    assert (repeated.idempotency_key, repeated.repeat) == (first.idempotency_key, True)
    assert (text_of(edit.card), edit.placed is not None) == ("new", True)


async def test_a_chat_that_cannot_be_reached_is_given_up_until_there_is_something_new(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(ChatUnreachable("blocked by the user"))
    post.run()
    await post.say(chat, "one")
    await post.settled(state="dead")

    await post.say(chat, "two")
    await post.settled()

    assert post.telegram.texts == ["one", "two"]
    assert post.alerts.health()[0].alert == ""


@pytest.mark.parametrize("trouble", [ContentRefused("bad card"), FileTooLarge("too big")])
async def test_a_refused_card_is_shown_as_plain_text(
    post: OutboxHarness, trouble: Exception
) -> None:
    chat = await post.room.chat()
    post.telegram.script.append(trouble)
    post.run()
    card = Card(title="Fancy", blocks=(TextBlock(markdown="**odd**"),), fallback="Fancy: odd")

    await post.courier.send(chat.id, card, key="k", urgency=DeliveryUrgency.ANSWER)
    await post.settled()

    rich, plain = post.telegram.letters
    assert (plain.card.title, text_of(plain.card)) == ("", "Fancy: odd")
    assert plain.idempotency_key != rich.idempotency_key


async def test_what_is_refused_even_as_plain_text_is_given_up_with_an_alert(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.extend([ContentRefused("no"), ContentRefused("never")])
    post.run()

    await post.say(chat, "unspeakable")
    await post.settled(state="dead")
    await post.alerted()

    (health,) = post.alerts.health()
    assert health.alert == "letter_refused"
    assert health.facts == {"letter": "k", "reason": "never"}


async def test_a_transport_with_a_bug_delays_its_letter_and_no_other(
    post: OutboxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await post.room.chat(), await post.room.chat(place("43"), sender("43"))
    post.telegram.script.append(ZeroDivisionError("oops"))
    post.run()
    await post.say(one, "unlucky", key="1")
    await post.telegram.sent(1)
    await post.clock.someone_sleeps(2)

    await post.say(other, "fine", key="2")
    await post.settled("2")
    await post.clock.someone_sleeps(2)
    post.clock.advance(2)
    await post.settled("1")

    assert post.telegram.texts == ["unlucky", "fine", "unlucky"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_letter_that_always_breaks_the_transport_ends_as_plain_text(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.telegram.script.extend(ZeroDivisionError("oops") for _ in range(3))
    post.run()
    card = Card(title="Poison", blocks=(TextBlock(markdown="x"),), fallback="plain")
    await post.courier.send(chat.id, card, key="k", urgency=DeliveryUrgency.ANSWER)

    for number, wait in enumerate((2, 4, 8), start=1):
        await post.telegram.sent(number)
        await post.clock.someone_sleeps(wait)
        post.clock.advance(wait)
    await post.settled()

    assert [text_of(letter.card) for letter in post.telegram.letters] == ["x", "x", "x", "plain"]


async def test_a_kill_between_trying_and_showing_repeats_the_letter_marked(
    tmp_path: Path,
) -> None:
    async with outbox_harness(tmp_path) as post:
        chat = await post.room.chat()
        post.telegram.gate = asyncio.Event()
        post.run()
        await post.say(chat, "perhaps")
        await post.telegram.sent(1)
        lost = post.telegram.letters[0]
        await post.stop()

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.settled()
        await post.say(await post.room.chat(), "perhaps")

        (again,) = post.telegram.letters
    assert (again.repeat, again.idempotency_key) == (True, lost.idempotency_key)


async def test_what_is_on_its_way_at_a_polite_stop_is_not_sent_twice(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, grace_seconds=20.0) as post:
        chat = await post.room.chat()
        post.telegram.gate = asyncio.Event()
        post.run()
        await post.say(chat, "once")
        await post.telegram.sent(1)
        stopping = asyncio.create_task(post.stop())
        await asyncio.sleep(0)
        post.telegram.gate.set()
        await stopping

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.settled()
        assert post.telegram.letters == []


async def test_a_kill_after_an_edit_was_begun_just_edits_again(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path) as post:
        chat = await post.room.chat()
        post.run()
        await post.say(chat, "one")
        await post.settled()
        post.telegram.gate = asyncio.Event()
        await post.say(chat, "two")
        await post.telegram.sent(2)
        await post.stop()

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.settled()

        (again,) = post.telegram.letters
    assert (text_of(again.card), again.repeat) == ("two", False)
    assert again.placed is not None


async def test_nothing_is_sent_again_after_a_quiet_restart(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path) as post:
        chat = await post.room.chat()
        post.run()
        await post.say(chat, "one")
        await post.settled()

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.say(await post.room.chat(), "two", key="2")
        await post.settled("2")

        assert post.telegram.texts == ["two"]


async def test_channels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, Channel.TELEGRAM, Channel.WEB) as post:
        telegram = await post.room.chat()
        web = await post.room.chat(place("tab", channel=Channel.WEB), sender("local"))
        post.telegram.gate = asyncio.Event()
        post.run()

        await post.say(telegram, "stuck", key="1")
        await post.say(web, "free", key="2")
        await post.settled("2")

        assert post.transports[Channel.WEB].texts == ["free"]


async def test_letters_of_a_channel_that_is_not_configured_wait(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, Channel.WEB) as post:
        post.run()
        await post.say(await post.room.chat(), "later", key="1")
        web = await post.room.chat(place("tab", channel=Channel.WEB), sender("local"))
        await post.say(web, "now", key="2")
        await post.settled("2")

    async with outbox_harness(tmp_path, Channel.TELEGRAM) as post:
        post.run()
        await post.settled("1")

        assert post.telegram.texts == ["later"]


async def test_a_card_of_another_version_is_shown_by_its_text(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    odd = {"blocks": [{"kind": "hologram"}], "fallback": "in plain words"}
    new = OutgoingCard(key="k", chat_id=chat.id, card=odd, urgency=DeliveryUrgency.ANSWER)
    async with post.room.db.write() as tx:
        await post.room.outbox.put(tx, new, now=post.clock.now())

    post.run()
    await post.settled()

    assert post.telegram.texts == ["in plain words"]


async def test_a_full_disk_after_a_delivery_is_waited_for_and_sends_nothing_twice(
    post: OutboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await post.room.chat()
    troubles = [StoreUnavailable("disk full")]
    really = post.room.outbox.mark_shown

    async def shown(*facts: Any, **more: Any) -> None:
        if troubles:
            raise troubles.pop()
        await really(*facts, **more)

    monkeypatch.setattr(post.room.outbox, "mark_shown", shown)
    post.run()
    await post.say(chat, "once")
    await post.clock.someone_sleeps(2)
    post.clock.advance(2)
    await post.settled()

    assert post.telegram.texts == ["once"]


async def test_calls_of_a_month_are_counted_and_80_percent_is_told_once(tmp_path: Path) -> None:
    changes: list[str] = []
    async with outbox_harness(tmp_path, Channel.FEISHU, quota=10) as post:
        post.alerts.on_change = lambda: changes.append(post.alerts.health()[0].alert)
        quota = post.outbox_sender.quotas[Channel.FEISHU]
        chat = await post.room.chat(place("oc", channel=Channel.FEISHU), sender("ou"))
        post.run()
        for number in range(6):
            quota.count(2)
            await post.say(chat, str(number), key=str(number))
            await post.transports[Channel.FEISHU].sent(number + 1)
            await post.settled(str(number))
            post.clock.advance(1)

        mark = await post.room.key_values.get("feishu.calls")

    assert mark == {"month": "2026-03", "calls": 12}
    assert changes == ["quota_near"]


async def test_a_new_month_starts_counting_anew(tmp_path: Path) -> None:
    clock = FakeClock()
    async with outbox_harness(tmp_path, Channel.FEISHU, clock=clock, quota=10) as post:
        quota = post.outbox_sender.quotas[Channel.FEISHU]
        quota.count(9)
        async with post.room.db.write() as tx:
            await quota.save(tx)
        assert post.alerts.health()[0].alert == "quota_near"

        clock.advance(31 * 24 * 3600)
        quota.count(1)
        async with post.room.db.write() as tx:
            await quota.save(tx)

        assert await post.room.key_values.get("feishu.calls") == {"month": "2026-04", "calls": 1}
        assert post.alerts.health()[0].alert == ""


@pytest.mark.parametrize(
    ("calls", "level", "streams"),
    [
        (0, QuotaLevel.FULL, (True, True)),
        (50, QuotaLevel.FULL, (True, True)),
        (51, QuotaLevel.THIN, (True, False)),
        (81, QuotaLevel.SPARSE, (False, False)),
        (96, QuotaLevel.LAST, (False, False)),
        (200, QuotaLevel.LAST, (False, False)),
    ],
)
async def test_what_is_left_of_the_month_decides_what_is_streamed(
    tmp_path: Path, calls: int, level: QuotaLevel, streams: tuple[bool, bool]
) -> None:
    async with outbox_harness(tmp_path, Channel.FEISHU, quota=100) as post:
        quota = post.outbox_sender.quotas[Channel.FEISHU]
        chat = await post.room.chat(place("oc", channel=Channel.FEISHU), sender("ou"))

        quota.count(calls)
        await post.outbox_sender.show_typing(chat)

        assert quota.level is level
        assert tuple(post.outbox_sender.may_stream(chat, edits) for edits in (1, 2)) == streams
        assert bool(post.transports[Channel.FEISHU].typed) is (level is QuotaLevel.FULL)


async def test_the_last_calls_of_a_month_are_for_answers_and_not_for_progress(
    tmp_path: Path,
) -> None:
    async with outbox_harness(tmp_path, Channel.FEISHU, quota=100) as post:
        post.outbox_sender.quotas[Channel.FEISHU].count(96)
        chat = await post.room.chat(place("oc", channel=Channel.FEISHU), sender("ou"))
        feishu = post.transports[Channel.FEISHU]
        post.run()
        await post.say(chat, "50 %", key="card", urgency=DeliveryUrgency.PROGRESS)
        await post.say(chat, "approve?", key="approval", urgency=DeliveryUrgency.APPROVAL)
        await post.settled("approval")
        post.clock.advance(600)
        await post.say(chat, "done", key="card", urgency=DeliveryUrgency.ANSWER)
        await post.settled("card")

    assert feishu.texts == ["approve?", "done"]


async def test_a_restart_takes_up_the_count_of_the_month(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, Channel.FEISHU, quota=100) as post:
        quota = post.outbox_sender.quotas[Channel.FEISHU]
        quota.count(60)
        async with post.room.db.write() as tx:
            await quota.save(tx)

    async with outbox_harness(tmp_path, Channel.FEISHU, quota=100) as post:
        assert post.outbox_sender.quotas[Channel.FEISHU].level is QuotaLevel.THIN


_TROUBLE = st.lists(
    st.sampled_from([None, "429", "503", "cut", "bug", "refused", "kill"]), max_size=8
)


def _raised(name: str | None) -> Exception | None:
    trouble: dict[str | None, Any] = {
        "429": DeliveryRateLimited(3),
        "503": PlatformUnavailable("down"),
        "cut": DeliveryUncertain("cut"),
        "bug": ZeroDivisionError("oops"),
        "refused": ContentRefused("no"),
    }
    return trouble.get(name)


@settings(max_examples=sampled(20, 12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_TROUBLE)
async def test_whatever_happens_the_newest_revision_is_shown_last(
    troubles: list[str | None],
) -> None:
    """Revisions are put while the platform misbehaves and the program is killed; what was
    handed to the platform never goes back, and ends with the newest."""
    attempts: list[int] = []
    newest = 0
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        for trouble in [*troubles, None]:
            async with outbox_harness(Path(folder), clock=clock) as post:
                chat = await post.room.chat()
                if trouble == "kill":
                    post.telegram.gate = asyncio.Event()
                else:
                    post.telegram.script.append(_raised(trouble))
                newest += 1
                await post.say(chat, str(newest))
                # Nothing of what waited may still have to wait.
                clock.advance(120)
                post.run()
                await post.telegram.sent(1)
                if trouble is None:
                    await post.settled()
                attempts += [int(text) for text in post.telegram.texts]

    assert attempts == sorted(attempts)
    assert attempts[-1] == newest


async def test_what_is_out_of_a_letter_of_several_parts_outlives_a_kill(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path) as post:
        chat = await post.room.chat()
        post.telegram.gate = asyncio.Event()
        post.run()
        await post.say(chat, "a letter of two")
        await post.telegram.sent(1)
        (lost,) = post.telegram.letters
        assert lost.on_part is not None
        await lost.on_part(MessagePlacement(message_ids=("m7",), state={"half": True}))
        await post.stop()

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.settled()
        await post.say(await post.room.chat(), "a letter of two, changed")
        await post.settled()

        again, edit = post.telegram.letters
    assert again.placed == MessagePlacement(message_ids=("m7",), state={"half": True})
    assert again.repeat
    assert not edit.repeat
