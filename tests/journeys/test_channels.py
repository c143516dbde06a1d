"""Chat platforms are connected, exchanged and removed while the program runs."""

from __future__ import annotations

from pathlib import Path

from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import running_program

FIRST = "1001:first-emulated-token-not-a-secret"
SECOND = "1001:second-emulated-token-not-a-secret"


async def test_a_changed_token_is_used_at_once_and_what_waited_is_sent_by_it(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with TelegramEmulator(token=FIRST) as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)

        def write_settings(token: str) -> None:
            lines = f"TELEGRAM_BASE_URL={telegram.base_url}\nTELEGRAM_BOT_TOKEN={token}\n"
            (home / ".env").write_text(lines)

        write_settings(FIRST)
        async with running_program(
            home, SHIFTBOSS_OWNERS="telegram:7", SHIFTBOSS_LANGUAGE="en"
        ) as program:
            await boss.says(chat, '/run wait 1 second, then write "hello" to a.txt')
            await chat.wait_for(lambda m: "a.txt" in m.text and m.from_bot)
            telegram.revoke_token()
            await telegram.wait_for_call("sendMessage", lambda call: call.status == 401)
            write_settings("1001:wrong-token-not-a-secret")
            _, refused = await program.run_to_end("reload")
            telegram.world.token = SECOND
            telegram.restore_token()
            waited = not [m for m in chat.from_bot if "Task finished" in m.text]
            write_settings(SECOND)
            await chat.wait_for(lambda m: m.from_bot and "Task finished" in m.text)
            await boss.says(chat, "/status")
            await chat.wait_for(lambda m: m.from_bot and "Slots" in m.text)
            write_settings("")
            await program.wait_for_output("telegram: disconnected")
            seen = len(telegram.calls)
            status, after = await program.run_to_end("status")

    assert "Telegram refuses the token" in refused
    assert waited, "the old token is out of force, and no other is"
    assert status == 0
    assert "Telegram" not in after, "the removed channel is not shown any more"
    assert len(telegram.calls) == seen
    told = program.printed + refused
    assert not [each for each in (FIRST, SECOND, "wrong-token") if each in told]
