from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.messages.card_actions import BUTTON_LIFETIME, ButtonRequest, PressOutcome
from storage.records.messages import InboxId
from storage.records.people import Chat, Person
from tests.migrated_database import open_database
from tests.storage.message_store import MessageStore, group, place, sender

PAUSE = ButtonRequest(action={"kind": "pause_task", "task_id": "a"}, single_use=True)
STOP = ButtonRequest(action={"kind": "stop_task", "task_id": "a"}, single_use=True)
PAGE = ButtonRequest(action={"kind": "list_tasks", "page": 2}, single_use=False)


async def seal(room: MessageStore, *wanted: ButtonRequest, key: str = "card") -> tuple[str, ...]:
    chat = await room.chat()
    async with room.db.write() as tx:
        return await room.actions.issue_tokens(
            tx, wanted, card_key=key, chat_id=chat.id, now=room.now
        )


async def claim(
    room: MessageStore, token: str, by: Person, chat: Chat | None = None, *, press: int = 1
) -> PressOutcome:
    where = chat or await room.chat()
    return await room.actions.claim_press(
        token, person=by.id, chat=where.id, inbox_id=InboxId(press), now=room.now
    )


async def test_a_button_keeps_its_token_over_revisions(room: MessageStore) -> None:
    pause, stop = await seal(room, PAUSE, STOP)

    moved = await seal(room, STOP, PAGE, PAUSE)

    assert (moved[0], moved[2]) == (stop, pause)
    assert await seal(room, STOP, PAGE, PAUSE) == moved


async def test_the_first_press_acts_and_the_second_is_told_who_was_first(
    room: MessageStore,
) -> None:
    lin, kim = await room.person("42"), await room.person("43")
    (token,) = await seal(room, PAUSE)

    assert await claim(room, token, lin, press=1) is PressOutcome.FRESH
    pressed_at = room.now
    room.advance(minutes=5)
    assert await claim(room, token, kim, press=2) is PressOutcome.USED

    row = await room.actions.get_action(token)
    assert row is not None
    assert (row.used_by, row.used_at) == (lin.id, pressed_at)
    assert row.action == PAUSE.action


async def test_a_second_press_of_the_same_person_is_a_second_press(room: MessageStore) -> None:
    lin = await room.person()
    (token,) = await seal(room, PAUSE)
    await claim(room, token, lin, press=1)

    assert await claim(room, token, lin, press=2) is PressOutcome.USED


async def test_a_press_handled_again_after_a_crash_may_act(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        lin = await room.person()
        (token,) = await seal(room, PAUSE)
        assert await claim(room, token, lin, press=7) is PressOutcome.FRESH

    async with open_database(tmp_path) as db:
        room = MessageStore(db)
        await seal(room)  # meanwhile the card lost the button
        room.advance(days=90)
        outcome = await claim(room, token, lin, press=7)

    assert outcome is PressOutcome.AGAIN


async def test_a_button_that_left_its_card_does_nothing(room: MessageStore) -> None:
    lin = await room.person()
    pause, stop = await seal(room, PAUSE, STOP)

    await seal(room, STOP)

    assert await claim(room, pause, lin) is PressOutcome.RETIRED
    assert await claim(room, stop, lin) is PressOutcome.FRESH


async def test_a_used_button_that_is_shown_again_gets_a_new_token(room: MessageStore) -> None:
    lin = await room.person()
    (used,) = await seal(room, PAUSE)
    await claim(room, used, lin, press=1)

    (fresh,) = await seal(room, PAUSE)

    assert fresh != used
    assert await claim(room, fresh, lin, press=2) is PressOutcome.FRESH
    assert await claim(room, used, lin, press=3) is PressOutcome.USED


async def test_a_button_that_comes_back_gets_a_new_token(room: MessageStore) -> None:
    lin = await room.person()
    (first,) = await seal(room, PAUSE)
    await seal(room)

    (second,) = await seal(room, PAUSE)

    assert second != first
    assert await claim(room, first, lin) is PressOutcome.RETIRED


async def test_turning_pages_never_uses_a_button_up(room: MessageStore) -> None:
    lin, kim = await room.person("42"), await room.person("43")
    (token,) = await seal(room, PAGE)

    outcomes = [await claim(room, token, who, press=n) for n, who in enumerate((lin, kim, lin))]

    assert outcomes == [PressOutcome.FRESH] * 3
    assert await seal(room, PAGE) == (token,)


async def test_an_expired_button_does_nothing_until_its_card_is_sent_again(
    room: MessageStore,
) -> None:
    lin = await room.person()
    (token,) = await seal(room, PAUSE)
    room.advance(seconds=BUTTON_LIFETIME.total_seconds())

    assert await claim(room, token, lin) is PressOutcome.EXPIRED
    assert await seal(room, PAUSE) == (token,)
    assert await claim(room, token, lin) is PressOutcome.FRESH


async def test_a_forged_token_is_unknown(room: MessageStore) -> None:
    lin = await room.person()

    assert await claim(room, "zzzzzzzzzzzz", lin) is PressOutcome.UNKNOWN
    assert await room.actions.get_action("' OR 1=1") is None


async def test_a_token_carried_to_another_chat_is_foreign(room: MessageStore) -> None:
    lin = await room.person()
    (token,) = await seal(room, PAUSE)
    elsewhere = await room.chat(group())

    assert await claim(room, token, lin, elsewhere) is PressOutcome.FOREIGN
    assert await claim(room, token, lin) is PressOutcome.FRESH


async def test_another_thread_of_the_chat_is_not_another_chat(room: MessageStore) -> None:
    lin = await room.person()
    (token,) = await seal(room, PAUSE)
    thread = await room.chat(place(thread="7"), sender())

    assert await claim(room, token, lin, thread) is PressOutcome.FRESH


async def test_only_those_named_may_press(room: MessageStore) -> None:
    lin, kim = await room.person("42"), await room.person("43")
    (token,) = await seal(
        room, ButtonRequest(action=PAUSE.action, single_use=True, allowed=(lin.id,))
    )

    assert await claim(room, token, kim) is PressOutcome.NOT_ALLOWED
    assert await claim(room, token, lin) is PressOutcome.FRESH


async def test_buttons_alike_have_tokens_of_their_own_that_stay(room: MessageStore) -> None:
    first = await seal(room, PAUSE, STOP, PAUSE)

    assert len(set(first)) == 3
    assert await seal(room, PAUSE, STOP, PAUSE) == first


async def test_cards_do_not_share_buttons(room: MessageStore) -> None:
    assert await seal(room, PAUSE, key="a") != await seal(room, PAUSE, key="b")


async def test_buttons_long_expired_are_forgotten(room: MessageStore) -> None:
    (old,) = await seal(room, PAUSE, key="a")
    room.advance(seconds=2 * BUTTON_LIFETIME.total_seconds() + 1)
    (new,) = await seal(room, PAUSE, key="b")

    assert await room.actions.prune(now=room.now) == 1
    assert await room.actions.get_action(old) is None
    assert await room.actions.get_action(new) is not None


_CARDS = st.lists(st.lists(st.sampled_from([PAUSE, STOP, PAGE]), max_size=4), max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_CARDS)
async def test_while_a_button_stays_on_its_card_so_does_its_token(
    cards: list[list[ButtonRequest]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_database(Path(folder)) as db:
            room = MessageStore(db)
            shown: dict[str, set[str]] = {}
            for wanted in cards:
                tokens = await seal(room, *wanted)
                now: dict[str, set[str]] = {}
                for each, token in zip(wanted, tokens, strict=True):
                    now.setdefault(str(each.action), set()).add(token)
                assert len(set(tokens)) == len(wanted)
                for name in shown.keys() & now.keys():
                    assert shown[name] <= now[name] or now[name] <= shown[name]
                assert await seal(room, *wanted) == tokens
                shown = now


async def test_the_cards_with_a_live_button_of_a_request_are_found(room: MessageStore) -> None:
    yes = ButtonRequest(
        action={"kind": "decide", "approval_id": "ap1", "approve": True}, single_use=True
    )
    said = ButtonRequest(action={"kind": "answer", "question_id": "ap1"}, single_use=True)
    other = ButtonRequest(action={"kind": "decide", "approval_id": "ap10"}, single_use=True)
    await seal(room, yes, said, PAUSE, key="list")
    await seal(room, said, key="question")
    await seal(room, other, PAGE, key="other")
    await seal(room, yes, key="gone")
    await seal(room, PAUSE, key="gone")
    chat = await room.chat()

    found = await room.outbox.list_approval_cards("ap1")

    assert set(found) == {("list", chat.id), ("question", chat.id)}
    assert len(found) == 2
