"""Every implementation of the dispatcher port, one after the other."""

from __future__ import annotations

import pytest

from tests.contracts.dispatcher_lives import DISPATCHERS, DispatcherLife


@pytest.fixture(params=list(DISPATCHERS))
def life(request: pytest.FixtureRequest) -> DispatcherLife:
    return DISPATCHERS[request.param]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies loses nothing of what the system has: only power cuts need the disk."""
    pragmas = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF", "PRAGMA foreign_keys=ON")
    monkeypatch.setattr("storage.db._PRAGMAS", pragmas)
