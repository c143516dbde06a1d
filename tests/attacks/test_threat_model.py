"""The threat model names every group of attacks, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_group_of_attacks_stands_in_the_threat_model() -> None:
    told = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    groups = {path.name for path in Path(__file__).parent.glob("test_*.py")}

    assert {*re.findall(r"tests/attacks/(test_\w+\.py)", told)} == groups - {Path(__file__).name}
