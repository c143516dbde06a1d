"""A fake CLI for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.acp.fake_cli import FakeCli


@pytest.fixture
def cli(tmp_path: Path) -> FakeCli:
    return FakeCli(tmp_path)
