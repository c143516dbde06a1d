"""Top-level commands: what cannot go together, or not without a running Shiftboss, is refused."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from bot.app import preflight
from bot.app.running_program import has_run_before, save_address
from bot.cli import local_execution
from bot.cli.command_line import create_cli
from bot.config.logs import LOG_FILE
from bot.config.settings import Settings
from bot.transports.web.access_token import load_or_create_token
from storage.data_directory import DataDirectoryLock


@pytest.mark.parametrize(
    "flags", [("--slow", "--cost"), ("--errors", "--all"), ("--slow", "--otlp", "-")]
)
def test_two_ways_to_look_at_once_are_refused(flags: tuple[str, ...]) -> None:
    told = CliRunner().invoke(create_cli(), ["trace", "t1", *flags])

    assert told.exit_code == 2
    assert "choose one of" in told.output


@pytest.mark.parametrize(
    "words", ["heartbeat now", "heartbeat run", "schedule run abc", "reload", "dashboard"]
)
def test_what_cannot_happen_without_a_running_program_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))

    told = CliRunner().invoke(create_cli(), words.split())

    assert told.exit_code == 1
    assert "not running" in told.output
    assert "shiftboss start" in told.output
    assert not (tmp_path / "home" / "shiftboss.db").exists()


@pytest.mark.parametrize("command", [("say", "hello"), ("pair", "ABCDEFGH")])
def test_the_token_is_not_sent_to_who_listens_where_shiftboss_did(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    (tmp_path / "web-token").write_text(
        "kxq7Vd02mRzt9LwBf4Hskxq7Vd02mRzt9LwBf4Hs", encoding="utf-8"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        address = f"http://127.0.0.1:{other.getsockname()[1]}"
        (tmp_path / "web-address").write_text(address, encoding="utf-8")

        told = CliRunner().invoke(create_cli(), command)

        with pytest.raises(BlockingIOError):
            other.accept()
    assert told.exit_code == 1
    assert "shiftboss start" in told.output


def hang_up(listener: socket.socket, asked: list[str]) -> None:
    """Note who connects, and hang up, until the listener is shut down."""
    with suppress(OSError):
        while True:
            connection, address = listener.accept()
            asked.append(str(address))
            connection.close()


@pytest.mark.parametrize("command", [("say", "hello"), ("next",)])
@pytest.mark.parametrize("is_temporary", [False, True])
def test_the_token_is_not_sent_while_shiftboss_starts_or_another_command_works(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_temporary: bool
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    for limit in ("_STARTUP_SECONDS", "_COMMAND_SECONDS"):
        monkeypatch.setattr(local_execution, limit, 0.0)
    load_or_create_token(tmp_path)
    settings = Settings.model_validate({"SHIFTBOSS_HOME": tmp_path})
    with socket.create_server(("127.0.0.1", 0)) as other:
        asked = list[str]()
        listener = Thread(target=hang_up, args=(other, asked))
        listener.start()
        save_address(settings, f"http://127.0.0.1:{other.getsockname()[1]}")
        monkeypatch.setattr(preflight, "prepare_home", lambda *_: None)
        lock = DataDirectoryLock(tmp_path, is_temporary=True)
        if not is_temporary:
            lock.close()

        with lock if is_temporary else preflight.hold_home(settings):
            told = CliRunner().invoke(create_cli(), command)

        other.shutdown(socket.SHUT_RDWR)
        listener.join()
    assert not asked
    assert told.exit_code in {1, 2}
    assert has_run_before(settings)


def test_an_empty_log_is_said_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    (tmp_path / LOG_FILE).parent.mkdir()
    (tmp_path / LOG_FILE).touch()

    told = CliRunner().invoke(create_cli(), ["logs"])

    assert (told.exit_code, "has not run yet" in told.output) == (0, True)


@pytest.mark.parametrize("command", ["start", "stop", "status"])
def test_a_full_disk_is_named_with_what_helps(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)

    told = CliRunner().invoke(create_cli(), [command])

    assert (told.exit_code, "free some space" in told.output) == (2, True)


def test_a_file_as_data_directory_is_named_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "file"))

    told = CliRunner().invoke(create_cli(), ["status"])

    assert (told.exit_code, "is a file" in told.output) == (2, True)
