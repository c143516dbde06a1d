from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.engine.skills.builders import SkillSetup, set_up_skills
from tests.migrated_database import open_database


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[SkillSetup]:
    async with open_database(tmp_path) as db:
        yield await set_up_skills(tmp_path, db)
