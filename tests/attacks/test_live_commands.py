"""What the running program makes of commands that pass for harmless: with all questions off, what
is not known to read is refused, and what runs changes no file that programs or agents act on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    run_call,
    script_task,
    wait_for_message,
)

COMMANDS = [
    "cd .claude && echo '{}' > settings.json",
    "cd .claude; echo '{}' > settings.json",
    "echo '{}' > commands/../settings.json",
    "cd commands && echo '{}' > ../settings.json",
    "sort * > sorted.txt",
    "sort -- * > sorted.txt; uniq * > once.txt",
    "uniq ?.txt > once.txt",
    "echo x < AGENTS.md > /dev/stdin; echo y > made.txt",
    "echo x 1< AGENTS.md > /dev/stdout; echo y > made.txt",
    "{ echo x > /dev/stdin; } < AGENTS.md; echo y > made.txt",
    "sh -c 'echo x > /dev/stdin' < AGENTS.md; echo y > made.txt",
    "python3 version",
    "node version",
    "gcc version",
    "cd fake && git status > ../status.txt",
    "git -C fake status > status.txt",
    "cd fake && git status",
    "git -C fake log -p",
    "git -C fake -c core.pager='touch ran' log",
    "test -v 'x[$(touch ran)]'",
    "find * > found.txt",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with names and repositories that a worker could have made by writing files."""
    made = tmp_path_factory.mktemp("project")
    (made / ".claude" / "commands").mkdir(parents=True)
    (made / "commands").symlink_to(".claude/commands")
    (made / "AGENTS.md").write_text("Be good.\n")
    (made / "-oAGENTS.md").write_text("x\n")
    (made / "a.txt").write_text("x\n")
    (made / "b.txt").write_text("kept\n")
    (made / "-delete").write_text("x\n")
    (made / "version").write_text("open('ran', 'w')\n")
    fake = made / "fake"
    for name in ("objects", "refs"):
        (fake / name).mkdir(parents=True)
    (fake / "HEAD").write_text("ref: refs/heads/main\n")
    (fake / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
        f"\tfsmonitor = touch {made}/ran #\n"
    )
    return made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(home, "openai", SHIFTBOSS_TOOLS_ASK="off") as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(len(COMMANDS)))
async def test_a_command_that_passes_for_harmless_harms_nothing(
    world: ModelWorld, folder: Path, number: int
) -> None:
    boss, chat = world.new_owner()
    cue = f"live-{number:02}"
    said = script_task(world.script, cue, run_call(COMMANDS[number]))

    await boss.says(chat, said.replace("/run", f"/run -d {folder}"))
    await wait_for_message(chat, f"It is done: {cue}.")

    assert dict(world.script.requests_for(f"step-{cue}", "step")[-1].tool_results)["exec"]
    assert (folder / "AGENTS.md").read_text() == "Be good.\n"
    assert (folder / "b.txt").read_text() == "kept\n"
    assert not (folder / ".claude" / "settings.json").exists()
    assert not (folder / "ran").exists()
    assert (folder / "-delete").exists()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_that_is_harmless_runs(world: ModelWorld, folder: Path) -> None:
    """Otherwise the others would show nothing."""
    boss, chat = world.new_owner()
    said = script_task(world.script, "live-ok", run_call("cat a.txt > copy.txt"))

    await boss.says(chat, said.replace("/run", f"/run -d {folder}"))
    await wait_for_message(chat, "It is done: live-ok.")

    assert (folder / "copy.txt").read_text() == "x\n"
