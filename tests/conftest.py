"""Settings of all tests: repeatable examples, no deadlines, slow files spread over the run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.journeys.program import ShiftbossProcess
from tests.thoroughness import THOROUGH

# New examples are for the thorough run: a gate that finds one by luck says nothing of the change
# before it. A machine that is busy is no finding either.
settings.register_profile(
    "gate",
    derandomize=not THOROUGH,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gate")

_SLOW_FOLDERS = {"journeys", "chaos", "benchmarks"}
_SLOW_SHARE = 0.8
"""Share of the run at which the last slow file begins."""

ShiftbossProcess.use_fork_server = not THOROUGH


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, and spread the files whose tests mostly wait over the run.

    Otherwise several would wait at once, and the last ones alone at the end.
    """
    files = list(dict.fromkeys(item.path for item in items))
    slow = [path for path in files if _SLOW_FOLDERS.intersection(path.parts)]
    quick = [path for path in files if path not in set(slow)]
    position = {path: n / len(quick) for n, path in enumerate(quick)}
    position |= {path: _SLOW_SHARE * n / len(slow) for n, path in enumerate(slow)}
    position |= {path: -1.0 for path in files if path.name == "test_architecture.py"}
    items.sort(key=lambda item: position[item.path])
