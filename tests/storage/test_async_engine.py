"""`storage.async_engine`: SQLAlchemy's asyncio engine without its ORM."""

from __future__ import annotations

import subprocess
import sys

_IMPORTS_NO_ORM = """
import sys
import storage.db
loaded = [name for name in sys.modules if name.startswith("sqlalchemy.orm")]
assert not loaded, loaded
"""
_LEAVES_THE_ORM_USABLE = """
import storage.db
from sqlalchemy.orm import Session
from sqlalchemy.ext.asyncio.session import AsyncSession
assert AsyncSession.sync_session_class is Session
"""


def test_the_store_does_not_load_the_orm() -> None:
    _run(_IMPORTS_NO_ORM)


def test_the_orm_can_still_be_imported_by_others() -> None:
    _run(_LEAVES_THE_ORM_USABLE)


def _run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
