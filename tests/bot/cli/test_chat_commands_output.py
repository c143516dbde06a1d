"""Commands print text from anyone, so it must not control the terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from bot.cli import chat_commands

SAID = "the ferry \x1b]52;c;cm0=\x07 leaves\n\u202eat noon"


@dataclass(frozen=True)
class Answer:
    text: str
    data: Any = None
    good: bool = True
    running: bool = True


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_that_was_said_steers_the_terminal_it_is_shown_on(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat_commands, "_get_answer", lambda _said, **_: Answer(SAID))

    chat_commands.execute("/memory list", as_json=as_json)

    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert "leaves\n" in printed or json.loads(printed) == {"text": SAID}
