"""Who watches spans: the collector only where one is set, and never at the program's cost."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.app.repositories import RepositorySet, build_repositories
from bot.app.tracing import build_span_services
from bot.config.settings import Settings, load_settings
from bot.transports.ports import SystemClock
from tests.migrated_database import open_database

URL = "http://127.0.0.1:4318"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RepositorySet]:
    async with open_database(tmp_path) as db:
        yield build_repositories(db, SystemClock())


def settings(monkeypatch: pytest.MonkeyPatch, home: Path, **told: str) -> Settings:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(home))
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return load_settings(())


def names(made: tuple[Any, ...]) -> list[str]:
    return [each.name for each in made]


async def test_without_a_collector_nothing_of_the_extra_is_loaded(
    store: RepositorySet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(builtins, "__import__", _refusing(builtins.__import__))

    made = build_span_services(settings(monkeypatch, tmp_path), store, SystemClock(), str)

    assert names(made) == []
    assert not caplog.records


async def test_with_a_collector_spans_are_sent(
    store: RepositorySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = settings(monkeypatch, tmp_path, SHIFTBOSS_OTLP_ENDPOINT=URL)

    assert names(build_span_services(told, store, SystemClock(), str)) == ["otlp"]


async def test_where_the_extra_is_missing_the_program_says_so_and_goes_on(
    store: RepositorySet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = settings(monkeypatch, tmp_path, SHIFTBOSS_OTLP_ENDPOINT=URL)
    monkeypatch.setattr(builtins, "__import__", _refusing(builtins.__import__))

    assert names(build_span_services(told, store, SystemClock(), str)) == []
    assert "shiftboss[otel]" in caplog.text


def test_what_a_collector_wants_to_be_told_is_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = settings(
        monkeypatch, tmp_path, SHIFTBOSS_OTLP_HEADERS="x-api-key=abc=def, x-team = blue"
    )

    assert told.otlp_header_values == {"x-api-key": "abc=def", "x-team": "blue"}
    assert "abc=def" in told.secret_values
    assert "abc" not in repr(told)


def _refusing(really: Any) -> Any:
    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("bot.engine.tracing.otlp_collector"):
            raise ImportError(name)
        return really(name, *args, **kwargs)

    return refuse
