"""The program dies right after it kept what an agent outside had sent, and the agent sends it
again: it is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.agents import hook
from storage.records.memory.jobs import JobState
from tests.bot.engine.agent.mcp.serving.test_offered import shelved, use
from tests.bot.engine.death import Death


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
        death = Death(1)
        with monkeypatch.context() as mortal:
            death.on(mortal)
            await death.or_end_of(use(shelf, tool, **said))
        assert death.came.is_set()
        answer = await use(shelf, tool, **said)

        assert answer.startswith("Kept as memory:")
        assert len(await memory.all()) == 1
        jobs = await memory.jobs.count(*JobState)
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
            hook._is_first("one")
    with monkeypatch.context() as after_it_is_noted:
        after_it_is_noted.setattr(hook, "_sweep", dies)
        with pytest.raises(Died):
            hook._is_first("two")

    assert hook._is_first("one"), "nobody was asked"
    assert not hook._is_first("two"), "it may have been asked"
    assert not hook._is_first("one")
