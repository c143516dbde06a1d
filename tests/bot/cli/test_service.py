"""The service of a user, before a systemd that notes what it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.app.running_program import save_address
from bot.cli import service
from bot.config.settings import Settings
from bot.transports.web.access_token import load_or_create_token

_SYSTEMCTL = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> asked
case "$*" in
    *ActiveState*) cat state;;
    *ExecMainPID*) echo 4711;;
    *" start "*) exit "$(cat refuses)";;
    *" stop "*) echo inactive > state;;
esac
"""
_JOURNALCTL = """#!/bin/sh
case "$*" in *_PID=4711*) echo "shiftboss: SHIFTBOSS_SLOTS must be a number";; esac
"""


@dataclass(frozen=True, slots=True)
class FakeSystemd:
    folder: Path

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    def answer(self, *, state: str, refuses: bool = False) -> None:
        (self.folder / "state").write_text(state)
        (self.folder / "refuses").write_text(str(int(refuses)))


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(service, "_SYSTEM_UNIT_FOLDER", tmp_path)
    monkeypatch.chdir(tmp_path)
    use_home(tmp_path / "home", monkeypatch)
    fake = FakeSystemd(folder)
    fake.answer(state="inactive")
    return fake


def use_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the program had run there."""
    home.mkdir()
    save_address(Settings.model_construct(home=home), "http://127.0.0.1:8321")
    load_or_create_token(home)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(home))


def test_a_service_that_is_ready_is_told_with_the_address(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    service.start()

    assert "--user start shiftboss.service" in systemd.asked
    assert "http://127.0.0.1:8321/?token=" in capsys.readouterr().out


def test_a_service_that_cannot_start_says_why(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.answer(state="inactive", refuses=True)

    with pytest.raises(SystemExit) as ended:
        service.start()

    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "SHIFTBOSS_SLOTS must be a number" in said.err
    assert "ready" not in said.out
    assert "shiftboss logs" not in said.err


def test_a_service_that_fails_in_silence_has_its_log(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.answer(state="inactive", refuses=True)
    (systemd.folder / "journalctl").write_text("#!/bin/sh\n")

    with pytest.raises(SystemExit):
        service.start()

    assert "shiftboss logs" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_a_service_that_waits_to_start_again_is_stopped(systemd: FakeSystemd, state: str) -> None:
    """No process holds the data directory then."""
    service.start()
    systemd.answer(state=state)

    service.stop()

    assert systemd.asked[-1] == "--user stop shiftboss.service"


def test_the_service_of_another_data_directory_is_left_alone(
    systemd: FakeSystemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.start()
    systemd.answer(state="active")
    use_home(tmp_path / "other", monkeypatch)
    unit = (tmp_path / "config/systemd/user/shiftboss.service").read_text()

    service.stop()
    with pytest.raises(SystemExit):
        service.start()

    assert (tmp_path / "config/systemd/user/shiftboss.service").read_text() == unit
    assert "--user stop shiftboss.service" not in systemd.asked
