from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.db import Database
from storage.memory.markdown.page_format import PageDigest
from storage.memory.markdown.sync_store import (
    MAX_SNAPSHOTS,
    SNAPSHOT_RETENTION_DAYS,
    FileSnapshot,
    FileSnapshotRepo,
    body_hash,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def base(number: int, path: str = "MEMORY.md", at: datetime = NOW) -> FileSnapshot:
    return FileSnapshot(
        path=path, number=number, hash=body_hash(f"body {number}"), page_digest=began(number), at=at
    )


def began(number: int) -> PageDigest:
    return PageDigest(lines={"aa": f"{number}"}, titles={"aa": "原则"})


async def test_each_writing_of_a_file_is_known_by_its_number(db: Database) -> None:
    bases = FileSnapshotRepo(db)
    for number in (1, 2, 10):
        await bases.put(base(number))
    await bases.put(base(3, "MEMORY.md.md"))

    assert await bases.find_latest("MEMORY.md") == base(10)
    assert await bases.find_page_digest("MEMORY.md", 2) == began(2)
    assert await bases.find_page_digest("MEMORY.md", 3) is None
    assert await bases.is_known("MEMORY.md", "body 1")
    assert not await bases.is_known("MEMORY.md", "body 3")
    assert await bases.find_latest("M_MORY.md") is None
    assert await bases.list_latest() == {
        "MEMORY.md": base(10),
        "MEMORY.md.md": base(3, "MEMORY.md.md"),
    }


async def test_the_oldest_are_dropped_but_never_the_last(db: Database) -> None:
    bases = FileSnapshotRepo(db)
    for number in range(1, MAX_SNAPSHOTS + 3):
        await bases.put(base(number))

    assert await bases.find_page_digest("MEMORY.md", 2) is None
    assert await bases.find_page_digest("MEMORY.md", 3) == began(3)
    await bases.put(base(MAX_SNAPSHOTS + 3, at=NOW + timedelta(days=SNAPSHOT_RETENTION_DAYS + 1)))
    assert await bases.find_page_digest("MEMORY.md", MAX_SNAPSHOTS) is None
    assert await bases.find_latest("MEMORY.md") is not None
    await bases.delete("MEMORY.md")
    assert await bases.list_latest() == {}
