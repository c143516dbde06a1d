"""A real git project in a folder, and tasks that work on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storage.records.tasks import Task, TaskId
from tests.builders import make_task

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "LC_ALL": "C",
}


async def always_adopted(_folder: Path, _repository: Sequence[Path]) -> bool:
    return True


class GitProject:
    """The Boss's own changes."""

    def __init__(self, path: Path, *, name: str = "Boss") -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        if name:
            self.git("config", "user.name", name)
            self.git("config", "user.email", "boss@example.com")
        self.commit("readme.md", "hello\n")

    def git(self, *args: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ("git", *args),
            cwd=at or self.path,
            env=_ENVIRONMENT,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def commit(self, name: str, text: str) -> str:
        self.write(name, text)
        self.git("add", "-A")
        who = ("-c", "user.name=Boss", "-c", "user.email=boss@example.com")
        self.git(*who, "commit", "-q", "-m", f"write {name}")
        return self.git("rev-parse", "HEAD")

    def task(self, id: str = "k3m9qa", *, folder: str = "", files: tuple[str, ...] = ()) -> Task:
        return replace(
            make_task(),
            id=TaskId(id),
            project_dir=str(self.path / folder),
            branch=f"shiftboss/{id}",
            files=files,
        )

    @property
    def checkout_state(self) -> tuple[str, str, str]:
        """The checked-out commit, every branch, and the uncommitted changes."""
        branches = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
        return self.git("rev-parse", "HEAD"), branches, self.git("status", "--porcelain")

    @property
    def worktree_count(self) -> int:
        """How many worktrees git knows, the Boss's own included."""
        return self.git("worktree", "list", "--porcelain").count("worktree ")
