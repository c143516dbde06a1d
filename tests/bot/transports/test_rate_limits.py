from __future__ import annotations

from bot.transports.rate_limits import CHANNEL_LIMITS, ChannelLimits, ChannelRateLimiter, RateLimit
from storage.records.messages import DeliveryUrgency
from storage.records.people import Channel, ChatKind

ANSWER, PROGRESS = DeliveryUrgency.ANSWER, DeliveryUrgency.PROGRESS
PRIVATE, GROUP = ChatKind.PRIVATE, ChatKind.GROUP


class Seconds:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def pace_of(channel: Channel) -> tuple[ChannelRateLimiter, Seconds]:
    seconds = Seconds()
    return ChannelRateLimiter(CHANNEL_LIMITS[channel], seconds), seconds


def sendings(
    pace: ChannelRateLimiter,
    seconds: Seconds,
    kind: ChatKind,
    count: int,
    urgency: DeliveryUrgency = ANSWER,
) -> list[float]:
    """When so many messages to one chat leave, each as early as it may."""
    times: list[float] = []
    for _ in range(count):
        while (wait := pace.get_delay("1", kind, urgency)) > 0:
            seconds.at += wait
        pace.consume("1", kind)
        times.append(round(seconds.at, 3))
    return times


def test_a_private_telegram_chat_gets_three_at_once_then_one_a_second() -> None:
    assert sendings(*pace_of(Channel.TELEGRAM), PRIVATE, 6) == [0, 0, 0, 1, 2, 3]


def test_a_telegram_group_gets_no_more_than_twenty_in_any_minute() -> None:
    times = sendings(*pace_of(Channel.TELEGRAM), GROUP, 60)

    for start in times:
        assert sum(start <= at < start + 60 for at in times) <= 20


def test_progress_leaves_a_share_of_a_groups_minute_to_results() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)

    times = sendings(pace, seconds, GROUP, 30, PROGRESS)
    last = pace.get_delay("1", GROUP, ANSWER)

    for start in times:
        assert sum(start <= at < start + 60 for at in times) <= 12
    assert last == 0


def test_files_leave_a_share_of_a_groups_minute_to_the_results_of_others() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)

    sendings(pace, seconds, GROUP, 16, DeliveryUrgency.FILES)

    assert pace.get_delay("1", GROUP, DeliveryUrgency.FILES) > 1
    assert pace.get_delay("1", GROUP, ANSWER) <= 1


def test_an_album_waits_until_all_of_it_has_room() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)
    for _ in range(15):
        pace.consume("1", GROUP)
        seconds.at += 1

    assert pace.get_delay("1", GROUP, ANSWER, 5) == 0
    assert pace.get_delay("1", GROUP, ANSWER, 6) == 61 - 15
    assert pace.get_delay("1", GROUP, ANSWER, 6) > pace.get_delay("1", GROUP, ANSWER)


def test_an_update_that_has_no_room_is_refused_and_not_counted() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)
    while pace.try_consume("1", GROUP, PROGRESS):
        seconds.at += 2

    assert not pace.try_consume("1", GROUP, PROGRESS)
    assert pace.try_consume("1", GROUP, ANSWER)


def test_a_feishu_chat_gets_no_more_than_five_in_any_second() -> None:
    times = sendings(*pace_of(Channel.FEISHU), GROUP, 40)

    for start in times:
        assert sum(start <= at < start + 1 for at in times) <= 5


def test_all_telegram_chats_together_get_no_more_than_thirty_in_any_second() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)
    times: list[float] = []
    for chat in range(200):
        seconds.at += pace.get_delay(str(chat), PRIVATE, ANSWER)
        pace.consume(str(chat), PRIVATE)
        times.append(seconds.at)

    for start in times:
        assert sum(start <= at < start + 1 for at in times) <= 30


def test_the_web_chat_has_no_limit() -> None:
    assert sendings(*pace_of(Channel.WEB), PRIVATE, 100) == [0] * 100


def test_progress_leaves_room_for_an_answer() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)

    assert sendings(pace, seconds, PRIVATE, 3, PROGRESS) == [0, 0, 1]
    assert pace.get_delay("1", PRIVATE, ANSWER) == 0


def test_a_resting_chat_gets_nothing_and_others_do() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)
    pace.pause(30, chat="1")

    assert pace.get_delay("1", PRIVATE, ANSWER) == 30
    assert pace.get_delay("2", PRIVATE, ANSWER) == 0
    seconds.at = 30
    assert pace.get_delay("1", PRIVATE, ANSWER) == 0


def test_a_resting_channel_gets_nothing_at_all() -> None:
    pace, _ = pace_of(Channel.TELEGRAM)
    pace.pause(7)

    assert pace.get_delay("1", PRIVATE, ANSWER) == 7
    assert pace.is_paused("2")


def test_after_a_rest_the_answer_goes_before_what_is_for_the_eye() -> None:
    pace, seconds = pace_of(Channel.TELEGRAM)
    pace.pause(10, chat="1")
    seconds.at = 10

    assert pace.get_delay("1", PRIVATE, ANSWER) == 0
    assert pace.get_delay("1", PRIVATE, PROGRESS) == 5
    assert pace.is_paused("1")
    seconds.at = 15
    assert pace.get_delay("1", PRIVATE, PROGRESS) == 0
    assert not pace.is_paused("1")


def test_a_shorter_rest_does_not_end_a_longer_one() -> None:
    pace, _ = pace_of(Channel.TELEGRAM)
    pace.pause(30, chat="1")
    pace.pause(2, chat="1")

    assert pace.get_delay("1", PRIVATE, ANSWER) == 30


def test_a_message_of_many_parts_is_paid_for_afterwards() -> None:
    pace, _ = pace_of(Channel.TELEGRAM)
    pace.consume("1", PRIVATE)
    pace.consume("1", PRIVATE, 6)

    assert pace.get_delay("1", PRIVATE, ANSWER) == 5


def test_thousands_of_chats_do_not_stay_in_memory() -> None:
    seconds = Seconds()
    pace = ChannelRateLimiter(ChannelLimits(private=(RateLimit(per_second=1, burst=3),)), seconds)
    for number in range(5000):
        pace.consume(str(number), PRIVATE)
        seconds.at += 10

    assert len(pace._chats) < 1000
