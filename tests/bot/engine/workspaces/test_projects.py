"""Folders of this machine: which may be a project."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from bot.engine.workflow.task_store import TaskStore
from bot.engine.workspaces.projects import ProjectFolderService, RepositoryAdoption
from bot.engine.workspaces.task_workspaces import TaskWorktrees
from cards.catalog import catalog_for
from handlers.ports import FolderRejected, FolderRejection
from storage.key_value import KeyValueStore
from storage.records.people import Language
from tests.bot.engine.workspaces.git_project import always_adopted
from tests.engine_harness import open_seeded_database


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ProjectFolderService, None]:
    (tmp_path / "boss" / "data" / "work").mkdir(parents=True)
    trees = TaskWorktrees(tmp_path / "boss" / "data", always_adopted)
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(tmp_path / "store.db", stack)
        adoption = RepositoryAdoption(
            tasks=TaskStore.from_database(db).tasks,
            key_values=KeyValueStore(db),
            now=lambda: datetime.now(UTC),
        )
        yield ProjectFolderService(tmp_path / "boss" / "data", trees.find_repository, adoption)


async def test_a_folder_has_one_name_however_it_is_called(
    tmp_path: Path, service: ProjectFolderService, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code" / "shop").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "code")
    monkeypatch.setenv("HOME", str(tmp_path))

    for path in ("~/code/shop", f"{tmp_path}/link/shop", f"{tmp_path}/code/./shop/"):
        assert await service.resolve_folder(path) == str(tmp_path / "code" / "shop")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("code/shop", FolderRejection.RELATIVE),
        (".", FolderRejection.RELATIVE),
        ("~nobody-of-that-name/code", FolderRejection.MISSING),
        ("{here}/nothing", FolderRejection.MISSING),
        ("{here}/file", FolderRejection.MISSING),
        ("{here}/bad\0name", FolderRejection.MISSING),
        ("{here}/loop", FolderRejection.MISSING),
        ("/", FolderRejection.TOO_WIDE),
        ("{here}", FolderRejection.TOO_WIDE),
        ("{here}/boss", FolderRejection.TOO_WIDE),
        ("{here}/boss/data", FolderRejection.TOO_WIDE),
        ("{here}/boss/data/work", FolderRejection.TOO_WIDE),
        ("{here}/way-in", FolderRejection.TOO_WIDE),
    ],
)
async def test_a_folder_that_cannot_be_a_project_is_refused_with_the_reason(
    tmp_path: Path, service: ProjectFolderService, path: str, reason: FolderRejection
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "way-in").symlink_to(tmp_path / "boss" / "data")

    with pytest.raises(FolderRejected) as refused:
        await service.resolve_folder(path.format(here=tmp_path))

    assert refused.value.reason is reason


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("reason", list(FolderRejection))
def test_every_reason_has_its_words(reason: FolderRejection, language: Language) -> None:
    words = catalog_for(language)

    assert words(f"error.project_{reason}.title", path="/p")
    assert words(f"error.project_{reason}.hint", path="/p")
