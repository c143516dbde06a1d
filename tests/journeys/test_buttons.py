"""Every button acts once, for those it is meant for, whoever presses it and whenever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.emulators.feishu.callbacks import (
    CallbackAnswer,
    button_action,
    callback_value,
    select_action,
)
from tests.emulators.feishu.tenant import components
from tests.journeys.platform_world import (
    ALREADY_PRESSED,
    STILL_WORKING,
    PlatformWorld,
    code_in,
    feishu_press_outcome,
    label,
    labels,
    platform_world,
    press_outcome,
    press_outcomes,
    token,
)
from tests.thoroughness import thorough_only

MISSING = "what should be done"
NOT_OURS = "I don't know this button"


async def test_a_press_acts_once_across_a_kill(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        live = await here.start_task()
        pause = token(live, "Pause")

        # Five at the same instant: one acts, the others are told.
        presses = [here.telegram_owner.press(live, "", pause) for _ in range(5)]
        answers = await press_outcomes(presses, "Pausing", ALREADY_PRESSED)
        assert sum("Pausing" in text for text in answers) == 1
        assert sum("You already pressed this" in text for text in answers) == 4
        await here.telegram_chat.wait_until(lambda: bool(labels(live, "Resume")))

        # Pressed while nobody is there: a pause holds over the kill, the press acts once, the
        # old one does not act again, and neither does all of it redelivered.
        await here.program.kill()
        resume = [here.telegram_owner.press(live, "", token(live, "Resume")) for _ in range(2)]
        late = here.telegram_owner.press(live, "", pause)
        await here.program.start()
        told = await press_outcomes((*resume, late), "Resumed", "▶️", ALREADY_PRESSED)
        assert sum("Resumed" in text or "▶️" in text for text in told) == 1, told
        assert sum(ALREADY_PRESSED in text for text in told) == 2, told
        await here.telegram_chat.wait_until(lambda: bool(labels(live, "Pause")))
        shown = len(here.telegram_chat.from_bot)
        here.telegram.redeliver()
        await here.ask("/list", expects="Tasks (1)")
        assert len(here.telegram_chat.from_bot) == shown + 1
        assert labels(live, "Pause")

        # Stop asks first, then acts; what is finished is not stopped again.
        stop = token(live, "Stop")
        asked = here.telegram_owner.press(live, label(live, "Stop"))
        assert "again to confirm" in await press_outcome(asked, "again to confirm")
        await here.telegram_chat.wait_until(lambda: bool(labels(live, "Sure?")))
        assert labels(live, "Pause"), "one press stops nothing"
        await here.telegram_owner.presses(live, label(live, "Sure?"))
        await here.telegram_chat.wait_until(lambda: bool(labels(live, "Retry")))
        again = here.telegram_owner.press(live, "", stop.rstrip("?"))
        assert ALREADY_PRESSED in await press_outcome(again, ALREADY_PRESSED)


@thorough_only
async def test_forged_foreign_and_broken_presses_change_nothing(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.ask_on_feishu("/start")
        live = await here.start_task()
        pause = token(live, "Pause")
        card = here.feishu_chat.from_bot[-1]
        team = here.telegram.group("Team")
        listed = await _list_in(here, team)

        for data in (pause[:6], "", ":", f"{pause}:99", "é" * 30, "%", pause.upper()):
            answer = await here.telegram_owner.presses(live, "", data=data)
            assert answer.alert, f"{data!r} is refused aloud: {answer}"
        assert "another chat" in (await here.telegram_owner.presses(listed, "", data=pause)).text
        assert "another chat" in (await here.feishu_owner.forges(card, {"t": pause})).toast
        values: tuple[Any, ...] = (None, 5, [], {"t": {"a": 1}}, {"t": "\x00"}, "x" * 5000)
        for value in values:
            assert NOT_OURS in (await here.feishu_owner.forges(card, value)).toast
        zoe = here.telegram.user(9, "Zoe")
        assert "have access yet" in (await zoe.presses(live, "", data=pause)).text

        assert labels(live, "Pause")
        assert "Pausing" in (await here.telegram_owner.presses(live, "", data=pause)).text, (
            "still good"
        )


async def test_a_select_keeps_working_after_every_choice(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        live = await here.start_task()
        for pick in ("Important", "Important", "Urgent"):
            press = here.telegram_owner.press(live, label(live, pick))
            now = f"Priority is now {pick}"
            assert now in await press_outcome(press, now)

        await here.feishu_owner.says(here.feishu_chat, "/model")
        models = await here.feishu_chat.wait_for(lambda m: "Model" in m.header)
        value = callback_value(next(components(models.card, "select_static")))

        async def choose(action: dict[str, Any], kind: str, *expected: str) -> str:
            async def press() -> CallbackAnswer:
                answer = await here.feishu.presses.send(models, here.feishu_owner.open_id, action)
                assert answer.toast.startswith(STILL_WORKING) or answer.kind == kind, answer
                return answer

            return await feishu_press_outcome(models, press(), *expected)

        for odd in ("nonsense", "#99", "x" * 50_000):
            picked = {"tag": "select_static", "value": value, "option": odd}
            refusal = await choose(picked, "warning", "No such model", "out of date")
            assert "No such model" in refusal or "out of date" in refusal, odd
        chosen = await choose(select_action(models, "offline"), "success", "now uses: offline")
        assert chosen == "✓" or "now uses: offline" in chosen


async def test_a_form_accepts_valid_input_once_and_never_invalid_input(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        await here.feishu_owner.says(here.feishu_chat, "/run")
        form = await here.feishu_chat.wait_for(lambda m: "New task" in m.header)
        sent = button_action(form, label(form, "Create"), {"text": "x"})

        async def submit(values: Any) -> CallbackAnswer:
            action = {**sent, "form_value": values}
            return await here.feishu.presses.send(form, here.feishu_owner.open_id, action)

        for values in (None, {}, {"text": ""}, {"text": " \n "}, {"text": None}, {"txet": "hi"}):
            assert MISSING in await feishu_press_outcome(form, submit(values), MISSING)
        junk = {f"field{n}": "y" for n in range(300)}
        huge = {"text": "wait 9 minutes", "priority": "z" * 100_000, **junk}
        both = [answer.toast for answer in await asyncio.gather(submit(huge), submit(huge))]
        is_late = any(toast.startswith(STILL_WORKING) for toast in both)
        assert is_late or sum("Started" in toast for toast in both) == 1, both
        await here.feishu_chat.wait_for(lambda m: "wait 9 minutes" in m.header)
        await here.ask_on_feishu("/list", expects="Tasks (1)")


async def test_two_simultaneous_presses_act_once(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        team = here.telegram.group("Team")
        eve = here.telegram.user(8, "Eve")
        door = here.telegram.private_chat(eve)
        await eve.says(door, "hello")
        code = code_in((await door.wait_for_text("Pairing code")).text)
        await here.ask(f"/pair {code}")
        await here.telegram_owner.says(team, "/run wait 10 minutes", mention=True)
        live = await team.wait_for(lambda m: bool(labels(m, "Pause")))

        pause = token(live, "Pause")
        both = [who.press(live, "", pause) for who in (here.telegram_owner, eve)]
        answers = await press_outcomes(both, "Pausing", ALREADY_PRESSED)

        assert sum("Pausing" in text for text in answers) == 1
        assert sum(ALREADY_PRESSED in text for text in answers) == 1


async def _list_in(here: PlatformWorld, team: Any) -> Any:
    await here.ask("/list", chat=team, mention=True)
    return team.last
