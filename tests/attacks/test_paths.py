"""A file that programs or agents obey is not written unasked, whatever name or link leads to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.workspace_files import find_file
from bot.engine.tasks import journal_updates
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from handlers.ports_workers import JournalFileMissing
from storage.records.task_logs import LogKind
from storage.records.tasks import TaskId
from tests.bot.engine.permissions.policy_cases import build_policy, tool_call
from tests.bot.engine.tasks.journal.test_task_journal import journal_world
from tests.bot.engine.workspaces.git_project import always_adopted

CONTROL_FILES = [
    ".git/config", "sub/.git/hooks/pre-commit", ".git", ".gitmodules", ".gitattributes", ".envrc",
    "AGENTS.md", "docs/AGENTS.md", "agents.MD", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md",
    "QWEN.md", ".gemini/settings.json", ".GEMINI/settings.json", ".codex/config.toml",
    ".qwen/settings.json", ".cursor/rules/a.mdc", ".cursorrules", ".windsurfrules", ".clinerules",
    ".devcontainer/devcontainer.json", ".pre-commit-config.yaml", ".npmrc", "app/.npmrc",
    ".yarnrc.yml", ".pnpmfile.cjs", "opencode.json", "opencode.jsonc", ".opencode/agent.md",
    ".mcp.json", ".vscode/tasks.json", ".idea/workspace.xml", ".husky/pre-commit",
    ".claude/settings.json", ".agents/a.md", ".github/workflows/ci.yml",
    ".github/copilot-instructions.md", ".github/actions/a/action.yml", ".gitlab-ci.yml",
    ".circleci/config.yml", "Jenkinsfile", "azure-pipelines.yml", ".cargo/config.toml",
    "mise.toml", ".tool-versions", "lefthook.yml", "sitecustomize.py", ".kiro/steering/a.md",
    "AGENT.md", ".clinerules/a.md", ".roorules-code", ".amazonq/rules/a.md", "crush.json",
    ".github/prompts/a.prompt.md", ".yarn/releases/yarn.cjs", ".mvn/extensions.xml", ".vimrc",
    ".exrc", ".dir-locals.el", "a.code-workspace", "lib/a.pth", ".bashrc", ".zshenv", ".profile",
    ".ssh/authorized_keys", ".gdbinit", ".lfsconfig", "flake.nix",
    "ＡＧＥＮＴＳ.md", "AGENTS\u200b.md", ".devcontainer.json", ".gitpod.yml", ".hg/hgrc",
    ".jj/repo/config.toml", ".mise/config.toml", "mise.local.toml", ".mise.dev.toml",
    ".config/mise/config.toml", ".config/mise.toml", ".helix/languages.toml", ".pnpmfile.mjs",
    ".ghci", ".ocamlinit", ".iex.exs", ".bazeliskrc", ".woodpecker/build.yaml", ".drone.yaml",
    "azure-pipelines.yaml", ".Cirrus.yml", "devbox.json", "lefthook-local.yml", ".builds/a.yml",
]  # fmt: skip
FREE = [
    "notes.md",
    "src/git.py",
    "agents.py",
    "yarn.lock",
    "profile.md",
    "docs/ssh.md",
    "agents/readme.txt",
    "docs/github.md",
    "claude.txt",
    ".gitignore",
    "mise.py",
    "premise.toml",
    "docs/helix/a.md",
]


def verdict(
    workspace: Path, tool: str, rules: dict[str, str] | None = None, **arguments: Any
) -> str:
    return (
        build_policy(**(rules or {}))
        .evaluate(
            tool_call(tool, **arguments),
            workspace=workspace,
            is_sandboxed=True,
            mode=WorkerMode.EXECUTE,
        )
        .verdict.value
    )


@pytest.mark.parametrize("path", CONTROL_FILES)
@pytest.mark.parametrize("tool", ["write", "edit"])
def test_a_control_file_is_not_written_without_asking(tmp_path: Path, tool: str, path: str) -> None:
    assert verdict(tmp_path, tool, path=path) == "ask"
    assert verdict(tmp_path, tool, path=f"./x/../{path}") == "ask"


@pytest.mark.parametrize("path", FREE)
def test_other_files_are_written_unasked(tmp_path: Path, path: str) -> None:
    assert verdict(tmp_path, "write", path=path) == "allow"


@pytest.mark.parametrize("path", [".claude/settings.json", "AGENTS.md", ".git/config"])
def test_a_link_to_a_control_file_counts_as_that_file(tmp_path: Path, path: str) -> None:
    target = tmp_path / path
    target.parent.mkdir(exist_ok=True)
    target.write_text("x")
    (tmp_path / "notes.md").symlink_to(path)
    (tmp_path / "dotc").symlink_to(target.parent)
    (tmp_path / "twice.md").symlink_to("notes.md")

    ways = ["notes.md", "twice.md", f"dotc/{target.name}"]
    assert {verdict(tmp_path, "write", path=way) for way in ways} == {"ask"}
    assert {verdict(tmp_path, "exec", command=f"echo x > {way}") for way in ways} == {"ask"}


@pytest.mark.parametrize("way", ["link/../settings.json", "./link/./../settings.json", "a/../up"])
def test_the_folder_above_is_the_one_above_the_target_of_a_link(tmp_path: Path, way: str) -> None:
    (tmp_path / ".claude" / "commands").mkdir(parents=True)
    (tmp_path / "link").symlink_to(".claude/commands")
    (tmp_path / "a").mkdir()
    (tmp_path / "up").symlink_to("link/../settings.json")

    assert verdict(tmp_path, "write", path=way) == "ask"
    assert verdict(tmp_path, "exec", command=f"echo x > {way}") == "ask"
    assert verdict(tmp_path, "exec", command="cd link && echo x > ../settings.json") == "ask"
    denied = {"deny": "read(.claude/*)"}
    assert verdict(tmp_path, "read", denied, path=way) == "deny"


def test_a_link_to_a_folder_that_does_not_exist_yet_counts_too(tmp_path: Path) -> None:
    (tmp_path / "later").symlink_to(".claude")

    assert verdict(tmp_path, "write", path="later/settings.json") == "ask"


def test_a_rule_about_a_file_holds_for_links_to_it(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "notes.md").symlink_to("secret.txt")

    for tool in ("write", "read"):
        denied = verdict(tmp_path, tool, {"deny": f"{tool}(secret.txt)"}, path="notes.md")
        assert denied == "deny", tool


def test_a_link_that_leads_out_is_outside(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.md").symlink_to(tmp_path / "outside.txt")
    (work / "home").symlink_to(tmp_path)

    for path in ("notes.md", "home/outside.txt"):
        assert verdict(work, "write", path=path) == "deny"
        assert verdict(work, "read", path=path) == "deny"
    assert verdict(work, "exec", command="echo x > notes.md") == "ask"


def swap_for_link(way: str, work: Path, outside: Path) -> None:
    if way == "the file":
        (work / "out" / "key").unlink()
        (work / "out" / "key").symlink_to(outside / "key")
    else:
        (work / "out").rename(work / "away")
        (work / "out").symlink_to(outside)


def with_keys(work: Path, outside: Path) -> None:
    for folder in (work / "out", outside):
        folder.mkdir(parents=True)
        (folder / "key").write_text("secret" if folder is outside else "harmless")


@pytest.mark.parametrize("way", ["the file", "its folder"])
async def test_a_result_that_becomes_a_link_is_not_what_the_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A coding CLI or an MCP server that goes on swaps it between the look and the copy."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    with_keys(work, outside)

    def look_then_swap(workspace: Path, name: str) -> Path | None:
        found = find_file(workspace, name)
        swap_for_link(way, work, outside)
        return found

    place = "bot.engine.workspaces.task_workspaces.find_file"
    monkeypatch.setattr(place, look_then_swap)
    artifacts = TaskArtifacts(tmp_path / "home", always_adopted)
    found = await artifacts.collect(TaskId("t"), work, ("out/key",))

    assert (found.copies, found.skipped) == ((), ("out/key",))
    assert not [each for each in (tmp_path / "home").rglob("key") if each.is_file()]


@pytest.mark.parametrize("way", ["the file", "its folder"])
async def test_an_attachment_that_becomes_a_link_is_not_what_the_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    async with journal_world(home) as it:
        work = home / "work" / it.task.id
        with_keys(work, outside)
        is_attachable = journal_updates._is_attachable

        def look_then_swap(source: Path) -> bool:
            if found := is_attachable(source):
                swap_for_link(way, work, outside)
            return found

        monkeypatch.setattr(journal_updates, "_is_attachable", look_then_swap)
        with pytest.raises(JournalFileMissing):
            await it.log(LogKind.RESOURCE, "key", file="out/key")

    assert not [each for each in (home / "files").rglob("*key*") if each.is_file()]
