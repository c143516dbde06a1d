"""A worker loads a skill exactly as it was let in, and gets no rights by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX, CallKind
from bot.engine.tools.skill_load import SKILLS_FOLDER, skill_load_tool
from tests.bot.engine.skills.builders import SkillSetup, set_up_skills, write_skill
from tests.migrated_database import open_database


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[SkillSetup]:
    async with open_database(tmp_path) as db:
        yield await set_up_skills(tmp_path, db)


async def load(shop: SkillSetup, name: str, tmp_path: Path, **facts: Any) -> str:
    async def project() -> str:
        return str(shop.project)

    how = {key: facts.pop(key) for key in ("allowed", "copies") if key in facts}
    tool = skill_load_tool(shop.library, tmp_path / "workspace", get_project=project, **how)
    return await tool.run({"name": name, **facts})


async def with_files(shop: SkillSetup) -> None:
    files = {"references/a.md": "more", "scripts/run.sh": "echo hi", "SKILL.md.bak": "old"}
    skill = write_skill(shop.user_folder / "one", "Do it well.", files=files)
    (skill / "assets").mkdir()
    (skill / "assets/logo.png").write_bytes(b"\x89PNG\0")
    await shop.enable("one")


async def test_the_body_comes_framed_and_its_files_are_put_into_the_workspace(
    shop: SkillSetup, tmp_path: Path
) -> None:
    await with_files(shop)

    text = await load(shop, "one", tmp_path)

    assert "Do it well." in text
    assert SKILLS_FOLDER in text
    place = tmp_path / "workspace" / SKILLS_FOLDER / "one"
    assert (place / "scripts/run.sh").read_text() == "echo hi"
    assert (place / "assets/logo.png").read_bytes() == b"\x89PNG\0"
    assert (tmp_path / "workspace/.shiftboss/.gitignore").read_text() == "*\n"


async def test_a_file_is_read_on_demand(shop: SkillSetup, tmp_path: Path) -> None:
    await with_files(shop)

    assert "\nmore\n" in await load(shop, "one", tmp_path, file="./references/a.md")
    assert "not a text" in await load(shop, "one", tmp_path, file="assets/logo.png")
    refused = await load(shop, "one", tmp_path, file="../../../etc/passwd")
    assert refused.startswith(ERROR_PREFIX)
    assert "references/a.md" in refused


async def test_who_only_looks_leaves_no_files_behind(shop: SkillSetup, tmp_path: Path) -> None:
    await with_files(shop)

    await load(shop, "one", tmp_path, copies=False)

    assert not (tmp_path / "workspace").exists()


async def test_a_workspace_that_leads_elsewhere_is_not_followed(
    shop: SkillSetup, tmp_path: Path
) -> None:
    await with_files(shop)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "workspace/.shiftboss").symlink_to(tmp_path / "elsewhere")

    text = await load(shop, "one", tmp_path)

    assert "could not be put" in text
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_what_nobody_has_let_in_is_refused_in_words(shop: SkillSetup, tmp_path: Path) -> None:
    write_skill(shop.user_folder / "one")
    write_skill(shop.project / "skills/two")

    for name in ("one", "two"):
        text = await load(shop, name, tmp_path)
        assert text.startswith(ERROR_PREFIX)
        assert "only an owner" in text
    assert "there is no skill" in await load(shop, "three" * 100, tmp_path)


async def test_a_persona_loads_only_its_own(shop: SkillSetup, tmp_path: Path) -> None:
    assert (await load(shop, "test", tmp_path, allowed=("code-*",))).startswith(ERROR_PREFIX)
    assert "Code review" in await load(shop, "code-review", tmp_path, allowed=("code-*",))


async def test_loading_is_only_reading(shop: SkillSetup, tmp_path: Path) -> None:
    async def project() -> str:
        return ""

    assert skill_load_tool(shop.library, tmp_path, get_project=project).kind is CallKind.READ
