"""Has the databases of all tests in one process share their compiled SQL statements."""

from __future__ import annotations

from typing import Any

from storage import db
from storage.async_engine import AsyncEngine


def share_compiled_statements() -> None:
    """Let every engine find what another one has compiled.

    A program has one database and compiles each statement once; each test opens a database of its
    own, and compiling was a fifth of the CPU of all tests of the engine. The dialect is part of a
    compiled statement's key.
    """
    compiled: dict[Any, Any] = {}
    dialects: dict[str, Any] = {}
    create = db._create_sqlite_engine

    def create_sharing(*args: Any, **how: Any) -> AsyncEngine:
        made = create(*args, **how)
        engine = made.sync_engine
        engine.dialect = dialects.setdefault(engine.dialect.name, engine.dialect)
        engine.update_execution_options(compiled_cache=compiled)
        return made

    db._create_sqlite_engine = create_sharing
