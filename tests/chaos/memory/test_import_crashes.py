"""An import, killed at each of its commits and simply repeated, is whole and has nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.inspection import read_points, rows, witness_file
from tests.chaos.memory.invariants import MEMORY_INVARIANTS
from tests.thoroughness import thorough_only

LAUNCHER = Path(__file__).parents[1] / "crash_launcher.py"
ROWS = [
    {
        "id": f"r{n}",
        "text": f"In the year {1500 + n} ship{n} brought {n % 17} barrels of rice{n % 29}",
        "sender": ("Ann", "Ben")[n % 2],
        "thread": f"t{n % 3}",
        "at": f"2023-{n % 12 + 1:02}-{n % 28 + 1:02}T10:00:00Z",
    }
    for n in range(1_000)
]
"""Three transactions."""
QUERIES = [{"query": each} for each in ("ship77", "rice3 barrels", "Ann 2023-05", "year 1999")]


class ImportShell:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.home.mkdir()
        self.rows, self.queries = home / "rows.jsonl", home / "queries.jsonl"
        self.rows.write_text("\n".join(map(json.dumps, ROWS)))
        self.queries.write_text("\n".join(map(json.dumps, QUERIES)))

    def imports(self, points: str = "") -> tuple[int, str]:
        return self._run("memory", "import", str(self.rows), "--scope", "sea", points=points)

    def finds(self) -> Sequence[Mapping[str, object]]:
        status, said = self._run(
            "memory", "search", "--batch", str(self.queries), "--scope", "sea", "--limit", "20"
        )
        assert status == 0, said
        return [json.loads(line) for line in said.splitlines()]

    def _run(self, *args: str, points: str = "") -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(LAUNCHER), *args],
            env={
                **{
                    name: os.environ[name]
                    for name in ("PATH", "HOME", "PYTHONPATH")
                    if name in os.environ
                },
                "SHIFTBOSS_HOME": str(self.home),
                "DEADLY_POINTS": points,
                "DEADLY_WITNESS": str(witness_file(self.home)),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, done.stdout.decode()


@thorough_only
def test_an_import_killed_at_each_commit_ends_like_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    calm, killed = ImportShell(tmp_path / "calm"), ImportShell(tmp_path / "killed")
    assert calm.imports()[0] == 0
    deaths = [
        f"memory_bulk.import_memory_rows:{when}:{n}"
        for n in (1, 2, 3)
        for when in ("before", "after")
    ]

    for point in ("statement:before:20", *deaths):
        assert killed.imports(point)[0] == -9, point
    status, said = killed.imports()

    assert (status, said.split(",")[0]) == (0, "0 imported")
    assert sum(line.startswith("died") for line in read_points(killed.home)) == len(deaths) + 1
    assert rows(killed.home, "SELECT count(*) FROM memories") == [(len(ROWS),)]
    assert [
        e for check in MEMORY_INVARIANTS for e in check(lambda sql: rows(killed.home, sql))
    ] == []
    assert killed.finds() == calm.finds()
