"""The traces that hooks of coding CLIs leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.cli import agents


def test_a_session_is_asked_once_and_its_note_does_not_stay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))

    assert [agents._is_first_stop(name) for name in ("one", "one", "two", "")] == [
        True,
        False,
        True,
        False,
    ]

    notes = list((tmp_path / "hooks").iterdir())
    assert len(notes) == 2
    for each in notes:
        os.utime(each, (0, 0))
    assert agents._is_first_stop("three")
    (left,) = (tmp_path / "hooks").iterdir()
    assert left not in notes
