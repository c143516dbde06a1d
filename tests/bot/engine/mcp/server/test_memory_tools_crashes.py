"""The program dies right after it kept what an agent outside had sent, and the agent sends it
again: it is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli import agents
from storage.records.memory import ExtractionJobState
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.mcp.server.test_memory_tools import shelved, use


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("store_memory", {"content": "The crane is driven by hand"}),
        ("log_session", {"summary": "We oiled the crane"}),
        ("extract_memories", {"conversation": "The lamp was changed in May"}),
    ],
)
async def test_what_is_sent_again_after_a_death_is_kept_once(
    tool: str, said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        death = CrashAfterCommit(1)
        with monkeypatch.context() as mortal:
            death.install(mortal)
            await death.run_until_crash(use(shelf, tool, **said))
        assert death.crashed.is_set()
        answer = await use(shelf, tool, **said)

        assert answer.startswith("Kept as memory:")
        assert len(await memory.list_entries()) == 1
        jobs = await memory.jobs.count(*ExtractionJobState)
        assert jobs == (1 if tool == "extract_memories" else 0)


def test_a_session_whose_hook_died_is_asked_once_at_most_and_asked_where_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        """Nothing of the hook goes on after this."""

    def dies(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    with monkeypatch.context() as before_it_is_noted:
        before_it_is_noted.setattr(Path, "touch", dies)
        with pytest.raises(Died):
            agents._is_first_stop("one")
    with monkeypatch.context() as after_it_is_noted:
        after_it_is_noted.setattr(agents, "_delete_old_notes", dies)
        with pytest.raises(Died):
            agents._is_first_stop("two")

    assert agents._is_first_stop("one"), "nobody was asked"
    assert not agents._is_first_stop("two"), "it may have been asked"
    assert not agents._is_first_stop("one")
