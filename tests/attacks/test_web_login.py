"""The token of the web chat is not guessed: weak ones are refused, guesses are slow and told."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from bot.config.settings import BadSettings, load_settings
from bot.transports.web.access import LoginThrottle
from tests.journeys.platform_world import platform_world
from tests.journeys.program import ShiftbossProcess
from tests.waiting import WAIT_SECONDS

SHIFTBOSS = Path(sys.executable).parent / "shiftboss"
WEAK = [
    "a", "secret", "choose-one", "password", "hunter2hunter2", "a" * 64, "ab" * 40, "abc" * 30,
    "0123456789abcdef", "abcdefghijklmnopqrstuvwxyz", "0123456789" * 5, "zyxwvutsrqponmlkjihgfed",
    "correct-horse", "1234567890123456", " " * 40, "x" * 30 + "yz", "aabbccddeeffgghhiijj",
]  # fmt: skip
STRONG = [
    "5f2b9c7e1a8d4063bb17e9c20d5f8a64", "Zk3vQ8yT1nW6xR4mB9pL", "correct horse battery staple nine",
    "8Jd0-_sPq2Lx7VtYcR5mW1nK", "550e8400-e29b-41d4-a716-446655440000",
]  # fmt: skip


def load(monkeypatch: pytest.MonkeyPatch, home: Path, **settings: str) -> None:
    for name, value in {"SHIFTBOSS_HOME": str(home), **settings}.items():
        monkeypatch.setenv(name, value)
    load_settings(())


@pytest.mark.parametrize("token", WEAK)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "shiftboss.example"])
def test_a_weak_token_is_refused_where_others_can_reach_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, token: str
) -> None:
    with pytest.raises(BadSettings, match="SHIFTBOSS_WEB_TOKEN"):
        load(monkeypatch, tmp_path, SHIFTBOSS_WEB_HOST=host, SHIFTBOSS_WEB_TOKEN=token)


@pytest.mark.parametrize("token", STRONG)
def test_a_strong_token_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    load(monkeypatch, tmp_path, SHIFTBOSS_WEB_HOST="0.0.0.0", SHIFTBOSS_WEB_TOKEN=token)


def test_any_token_does_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(monkeypatch, tmp_path, SHIFTBOSS_WEB_TOKEN="a")


def test_the_program_does_not_start_with_a_weak_token_and_says_how_to_make_one(
    tmp_path: Path,
) -> None:
    weak = {"SHIFTBOSS_WEB_HOST": "0.0.0.0", "SHIFTBOSS_WEB_TOKEN": "sesame-open"}
    done = subprocess.run(
        (SHIFTBOSS, "run"),
        env=ShiftbossProcess(home=tmp_path / "home", settings=weak).environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert done.returncode == 2
    assert "openssl rand" in done.stderr
    assert "sesame" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


def throttle() -> tuple[LoginThrottle, Clock, list[str]]:
    clock, told = Clock(), list[str]()
    return LoginThrottle(now=clock, on_guessing=told.append, on_failure=lambda _: None), clock, told


def test_guesses_of_one_address_become_slow_and_stay_possible() -> None:
    guard, clock, told = throttle()
    looked_at = 0

    for _ in range(24 * 3600):
        if not guard.wait("203.0.113.9"):
            guard.fail("203.0.113.9")
            looked_at += 1
        clock.time += timedelta(seconds=1)

    assert looked_at < 3000
    assert guard.wait("203.0.113.9") <= timedelta(seconds=30)
    assert guard.wait("198.51.100.1") <= timedelta(seconds=30)
    assert told


def test_many_addresses_together_become_slow_but_not_those_of_people() -> None:
    guard, clock, _ = throttle()
    guard.succeed("198.51.100.1")

    for n in range(500):
        guard.fail(f"203.0.{n // 250}.{n % 250}")

    assert guard.wait("203.0.113.77") > timedelta()
    assert guard.wait("198.51.100.1") == timedelta()
    clock.time += timedelta(seconds=31)
    assert guard.wait("203.0.113.77") == timedelta()


def test_guesses_at_another_front_count_but_are_told_there() -> None:
    clock, told, passed_on = Clock(), list[str](), list[str]()
    guard = LoginThrottle(now=clock, on_guessing=told.append, on_failure=passed_on.append)

    for _ in range(7):
        guard.note_failure("203.0.113.9")

    assert guard.wait("203.0.113.9") > timedelta()
    assert (told, passed_on) == ([], [])
    guard.fail("203.0.113.9")
    assert (told, passed_on) == (["203.0.113.9"], ["203.0.113.9"])


def test_one_network_of_ipv6_is_one_address() -> None:
    guard, _, _ = throttle()

    for n in range(10):
        guard.fail(f"2001:db8:1:2::{n:x}")

    assert guard.wait("2001:db8:1:2:ffff::1") > timedelta()
    assert guard.wait("2001:db8:1:3::1") == timedelta()


def test_the_memory_of_addresses_is_bounded() -> None:
    guard, _, _ = throttle()

    for n in range(3000):
        guard.fail(f"10.{n // 250}.0.{n % 250}")
        guard.succeed(f"11.{n // 250}.0.{n % 250}")

    assert len(guard._failures) <= 1000
    assert len(guard._known) <= 1000


async def test_guesses_at_the_running_program_are_refused_and_told_to_owners_once(
    tmp_path: Path,
) -> None:
    async with (
        platform_world(tmp_path / "home") as here,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as browser,
    ):
        address, _, right = here.program.address.partition("?token=")
        await here.ask("hello")
        await browser.get(address, params={"token": right})
        statuses = []
        for n in range(60):
            by_url = await browser.get(address, params={"token": f"guess-{n}"})
            bearer = {"authorization": f"Bearer guess-{n}"}
            by_header = await browser.post(f"{address}api/say", headers=bearer, json={"text": "x"})
            statuses += [by_url.status_code, by_header.status_code]
        signed_in = (await browser.get(address)).status_code
        told = await here.telegram_chat.wait_for(lambda m: "guessing the token" in m.text)
        await here.ask("/status", expects="Shiftboss")
        notices = [m for m in here.telegram_chat.from_bot if "guessing the token" in m.text]

        assert statuses.count(429) > 90
        assert 303 not in statuses
        assert signed_in == 200
        assert "127.0.0.1" in told.text
        assert len(notices) == 1
        assert right not in here.program.printed.split("?token=", 1)[1][len(right) :]


@pytest.mark.parametrize(
    ("host", "listens"),
    [("localhost", True), ("evil.example", False), ("127.0.0.1.evil.example", False)],
)
async def test_a_page_under_another_name_is_not_even_asked_for_a_token(
    tmp_path: Path, host: str, listens: bool
) -> None:
    async with (
        platform_world(tmp_path / "home") as here,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as browser,
    ):
        address, _, right = here.program.address.partition("?token=")
        answer = await browser.get(
            address, params={"token": right}, headers={"host": f"{host}:{httpx.URL(address).port}"}
        )

    assert (answer.status_code == 303) is listens
