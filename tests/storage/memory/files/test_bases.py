from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.db import Database
from storage.memory.files.bases import DAYS, KEPT, Base, Bases, hash_of
from storage.memory.markdown.began import Began

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def base(number: int, path: str = "MEMORY.md", at: datetime = NOW) -> Base:
    return Base(
        path=path, number=number, hash=hash_of(f"body {number}"), began=began(number), at=at
    )


def began(number: int) -> Began:
    return Began(lines={"aa": f"{number}"}, titles={"aa": "原则"})


async def test_each_writing_of_a_file_is_known_by_its_number(db: Database) -> None:
    bases = Bases(db)
    for number in (1, 2, 10):
        await bases.put(base(number))
    await bases.put(base(3, "MEMORY.md.md"))

    assert await bases.latest("MEMORY.md") == base(10)
    assert await bases.numbered("MEMORY.md", 2) == began(2)
    assert await bases.numbered("MEMORY.md", 3) is None
    assert await bases.is_known("MEMORY.md", "body 1")
    assert not await bases.is_known("MEMORY.md", "body 3")
    assert await bases.latest("M_MORY.md") is None
    assert await bases.all() == {"MEMORY.md": base(10), "MEMORY.md.md": base(3, "MEMORY.md.md")}


async def test_the_oldest_are_dropped_but_never_the_last(db: Database) -> None:
    bases = Bases(db)
    for number in range(1, KEPT + 3):
        await bases.put(base(number))

    assert await bases.numbered("MEMORY.md", 2) is None
    assert await bases.numbered("MEMORY.md", 3) == began(3)
    await bases.put(base(KEPT + 3, at=NOW + timedelta(days=DAYS + 1)))
    assert await bases.numbered("MEMORY.md", KEPT) is None
    assert await bases.latest("MEMORY.md") is not None
    await bases.drop("MEMORY.md")
    assert await bases.all() == {}
