"""Commands without a running Shiftboss."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.cli.local_execution import answer_hook, answer_message
from bot.config.logs import NOISY_LOGGERS
from bot.config.settings import Settings

WHERE = ("project:/work/harbour", "global")


def call(tool: str, **arguments: object) -> dict[str, object]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """A command sets up logging for its process, which here is the process of all tests."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    loggers = [root, *map(logging.getLogger, NOISY_LOGGERS)]
    levels = [logger.level for logger in loggers]
    yield
    for each in root.handlers:
        if each not in handlers:
            each.close()
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_it_is_kept_and_told_without_a_program(tmp_path: Path) -> None:
    settings = Settings.model_validate({"SHIFTBOSS_HOME": tmp_path})

    kept = answer_message(
        settings, call("store_memory", content="The crane is driven by hand"), WHERE
    )
    told = answer_hook(settings, "user-prompt", "how is the crane driven?", WHERE)
    elsewhere = answer_hook(settings, "user-prompt", "how is the crane driven?", ("global",))

    assert "Kept as memory:" in kept["result"]["content"][0]["text"]
    assert "The crane is driven by hand" in told
    assert elsewhere == ""
