"""What holds for all tests: the gate tries the same examples each time, at whatever speed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.journeys.program import Program
from tests.thorough import THOROUGH

# New examples are for the thorough run: a gate that finds one by luck says nothing of the change
# before it. A machine that is busy is no finding either.
settings.register_profile(
    "gate",
    derandomize=not THOROUGH,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gate")

Program.forks = not THOROUGH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins first: at the end, the others would wait for it."""
    items.sort(key=lambda item: item.path.name != "test_architecture.py")
