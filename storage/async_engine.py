"""Imports SQLAlchemy's asyncio engine without its ORM, which costs 6 MiB and is not used here.

`sqlalchemy.ext.asyncio` imports its session modules, and these import `sqlalchemy.orm`. Both are
replaced by modules whose names all stand for nothing while the package is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
else:

    class _UnusedModule(ModuleType):
        def __getattr__(self, name: str) -> None:
            if name.startswith("__"):
                raise AttributeError(name)

    _UNUSED = ("sqlalchemy.ext.asyncio.session", "sqlalchemy.ext.asyncio.scoping")
    _replaced = [name for name in _UNUSED if name not in sys.modules]
    sys.modules.update({name: _UnusedModule(name) for name in _replaced})
    try:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
    finally:
        for name in _replaced:
            del sys.modules[name]

__all__ = ["AsyncConnection", "AsyncEngine", "create_async_engine"]
