"""Folders of this machine: which may be a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.app.services import ProjectService
from cards.words import words_for
from handlers.services.projects import FolderRefused, WhyNot
from storage.records.people import Language


@pytest.fixture
def service(tmp_path: Path) -> ProjectService:
    async def never(_path: Path) -> bool:
        return False

    (tmp_path / "boss" / "data" / "work").mkdir(parents=True)
    return ProjectService(tmp_path / "boss" / "data", never)


async def test_a_folder_has_one_name_however_it_is_called(
    tmp_path: Path, service: ProjectService, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code" / "shop").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "code")
    monkeypatch.setenv("HOME", str(tmp_path))

    for path in ("~/code/shop", f"{tmp_path}/link/shop", f"{tmp_path}/code/./shop/"):
        assert await service.choose(path) == str(tmp_path / "code" / "shop")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("code/shop", WhyNot.RELATIVE),
        (".", WhyNot.RELATIVE),
        ("~nobody-of-that-name/code", WhyNot.MISSING),
        ("{here}/nothing", WhyNot.MISSING),
        ("{here}/file", WhyNot.MISSING),
        ("{here}/bad\0name", WhyNot.MISSING),
        ("{here}/loop", WhyNot.MISSING),
        ("/", WhyNot.TOO_WIDE),
        ("{here}", WhyNot.TOO_WIDE),
        ("{here}/boss", WhyNot.TOO_WIDE),
        ("{here}/boss/data", WhyNot.TOO_WIDE),
        ("{here}/boss/data/work", WhyNot.TOO_WIDE),
        ("{here}/way-in", WhyNot.TOO_WIDE),
    ],
)
async def test_a_folder_that_cannot_be_a_project_is_refused_with_the_reason(
    tmp_path: Path, service: ProjectService, path: str, reason: WhyNot
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "way-in").symlink_to(tmp_path / "boss" / "data")

    with pytest.raises(FolderRefused) as refused:
        await service.choose(path.format(here=tmp_path))

    assert refused.value.reason is reason


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("reason", list(WhyNot))
def test_every_reason_has_its_words(reason: WhyNot, language: Language) -> None:
    words = words_for(language)

    assert words(f"error.project_{reason}.title", path="/p")
    assert words(f"error.project_{reason}.hint", path="/p")
