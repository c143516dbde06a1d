"""Every button acts once, for those it is meant for, whoever presses it and whenever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.emulators.feishu.presses import button_action, callback_value, select_action
from tests.emulators.feishu.world import components
from tests.journeys.town import PATIENCE, Town, code_in, label, labels, token, town
from tests.thorough import long

NOT_OURS = "I do not know this button"


async def test_a_press_acts_once_also_over_a_kill(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        live = await here.live()
        pause = token(live, "Pause")

        # Five at the same instant: one acts, the others are told.
        presses = [here.boss.press(live, "", pause) for _ in range(5)]
        answers = [(await press.answer()).text for press in presses]
        assert sum("Pausing" in text for text in answers) == 1
        assert sum("You pressed this before" in text for text in answers) == 4
        await here.home.wait_until(lambda: bool(labels(live, "Resume")), timeout=PATIENCE)

        # Pressed while nobody is there: a pause holds over the kill, the press acts once, the
        # old one does not act again, and neither does all of it redelivered.
        await here.shiftboss.kill()
        resume = [here.boss.press(live, "", token(live, "Resume")) for _ in range(2)]
        late = here.boss.press(live, "", pause)
        await here.shiftboss.start()
        told = [(await press.answer(PATIENCE)).text for press in (*resume, late)]
        assert sum("Resumed" in text or "▶️" in text for text in told[:2]) == 1, told
        assert "pressed this before" in told[2]
        await here.home.wait_until(lambda: bool(labels(live, "Pause")), timeout=PATIENCE)
        shown = len(here.home.from_bot)
        here.telegram.redeliver()
        await here.ask("/list", expects="Tasks (1)")
        assert len(here.home.from_bot) == shown + 1
        assert labels(live, "Pause")

        # Stop asks first, then acts; what is finished is not stopped again.
        stop = token(live, "Stop")
        asked = await here.boss.presses(live, label(live, "Stop"))
        assert "again if you are sure" in asked.text
        await here.home.wait_until(lambda: bool(labels(live, "Sure?")), timeout=PATIENCE)
        assert labels(live, "Pause"), "one press stops nothing"
        await here.boss.presses(live, label(live, "Sure?"))
        await here.home.wait_until(lambda: bool(labels(live, "Retry")), timeout=PATIENCE)
        again = await here.boss.presses(live, "", data=stop.rstrip("?"))
        assert "pressed this before" in again.text


@long
async def test_forged_foreign_and_broken_presses_change_nothing(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.ask_chief("/start")
        live = await here.live()
        pause = token(live, "Pause")
        card = here.office.from_bot[-1]
        team = here.telegram.group("Team")
        listed = await _list_in(here, team)

        for data in (pause[:6], "", ":", f"{pause}:99", "é" * 30, "%", pause.upper()):
            answer = await here.boss.presses(live, "", data=data)
            assert answer.alert, f"{data!r} is refused aloud: {answer}"
        assert "another chat" in (await here.boss.presses(listed, "", data=pause)).text
        assert "another chat" in (await here.chief.forges(card, {"t": pause})).toast
        values: tuple[Any, ...] = (None, 5, [], {"t": {"a": 1}}, {"t": "\x00"}, "x" * 5000)
        for value in values:
            assert NOT_OURS in (await here.chief.forges(card, value)).toast
        zoe = here.telegram.user(9, "Zoe")
        assert "not met yet" in (await zoe.presses(live, "", data=pause)).text

        assert labels(live, "Pause")
        assert "Pausing" in (await here.boss.presses(live, "", data=pause)).text, "still good"


async def test_a_select_goes_on_working_whatever_is_picked(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        live = await here.live()
        for pick in ("Important", "Important", "Urgent"):
            answer = await here.boss.presses(live, label(live, pick))
            assert f"Priority is now {pick}" in answer.text

        await here.chief.says(here.office, "/model")
        models = await here.office.wait_for(lambda m: "Model" in m.header, timeout=PATIENCE)
        value = callback_value(next(components(models.card, "select_static")))
        for odd in ("nonsense", "#99", "x" * 50_000):
            picked = {"tag": "select_static", "value": value, "option": odd}
            refused = await here.feishu.presses.send(models, here.chief.open_id, picked)
            assert refused.kind == "warning", odd
        good = await here.feishu.presses.send(
            models, here.chief.open_id, select_action(models, "offline")
        )
        assert good.kind == "success"


async def test_a_form_takes_sense_once_and_nonsense_never(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.chief.says(here.office, "/run")
        form = await here.office.wait_for(lambda m: "New task" in m.header, timeout=PATIENCE)
        sent = button_action(form, label(form, "Create"), {"text": "x"})

        async def submit(values: Any) -> str:
            action = {**sent, "form_value": values}
            return (await here.feishu.presses.send(form, here.chief.open_id, action)).toast

        for values in (None, {}, {"text": ""}, {"text": " \n "}, {"text": None}, {"txet": "hi"}):
            assert "what should be done" in await submit(values)
        junk = {f"field{n}": "y" for n in range(300)}
        huge = {"text": "wait 9 minutes", "priority": "z" * 100_000, **junk}
        first, second = await asyncio.gather(submit(huge), submit(huge))
        assert sorted(("Started" in first, "Started" in second)) == [False, True]
        await here.office.wait_for(lambda m: "wait 9 minutes" in m.header, timeout=PATIENCE)
        await here.ask_chief("/list", expects="Tasks (1)")


async def test_two_people_pressing_at_once_do_it_once(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        team = here.telegram.group("Team")
        eve = here.telegram.user(8, "Eve")
        door = here.telegram.private_chat(eve)
        await eve.says(door, "hello")
        code = code_in((await door.wait_for_text("Pairing code", timeout=PATIENCE)).text)
        await here.ask(f"/pair {code}")
        await here.boss.says(team, "/run wait 10 minutes", mention=True)
        live = await team.wait_for(lambda m: bool(labels(m, "Pause")), timeout=PATIENCE)

        pause = token(live, "Pause")
        both = [who.press(live, "", pause) for who in (here.boss, eve)]
        answers = [(await press.answer()).text for press in both]

        assert sum("Pausing" in text for text in answers) == 1
        assert sum("pressed this before" in text for text in answers) == 1


async def _list_in(here: Town, team: Any) -> Any:
    await here.ask("/list", chat=team, mention=True)
    return team.last
