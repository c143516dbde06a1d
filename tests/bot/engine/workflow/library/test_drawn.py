"""Pictures of workflows under the data directory: made once, and removed when they are old."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.engine.workflow.forms.reading import read
from bot.engine.workflow.library.drawn import UNUSED_DAYS, Drawings, draw
from cards.words import words_for
from storage.records.people import Language

DAY = 86_400.0
NOW = 2_000_000_000.0
EN = words_for(Language.ENGLISH)


def drawn(home: Path, title: str) -> Path:
    workflow = read(f'{{"name": "{title}", "nodes": [{{"id": "a", "name": "{title}"}}]}}')
    return home / draw(home, workflow, EN).svg


def aged(path: Path, days: float) -> Path:
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def drawings(home: Path) -> Drawings:
    return Drawings(home=home, now=lambda: NOW)


def test_old_pictures_go_and_newer_ones_stay(tmp_path: Path) -> None:
    old = aged(drawn(tmp_path, "Old"), UNUSED_DAYS + 1)
    new = aged(drawn(tmp_path, "New"), UNUSED_DAYS - 1)
    torn = aged(_put(old.with_name(".x.svg.7.new")), UNUSED_DAYS + 1)
    other = aged(_put(old.with_name("notes.txt")), UNUSED_DAYS + 1)

    assert drawings(tmp_path).prune() == 2

    assert [each.exists() for each in (old, new, torn, other)] == [False, True, False, True]


def test_a_picture_that_is_asked_for_again_is_as_new(tmp_path: Path) -> None:
    path = drawn(tmp_path, "Old")
    os.utime(path, (DAY, DAY))

    assert drawn(tmp_path, "Old") == path

    assert path.stat().st_mtime > DAY


def test_what_was_removed_is_drawn_again(tmp_path: Path) -> None:
    path = aged(drawn(tmp_path, "Old"), UNUSED_DAYS + 1)
    drawings(tmp_path).prune()

    assert drawn(tmp_path, "Old").read_text(encoding="utf-8").startswith("<svg")
    assert path.exists()


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "workflows").symlink_to(away)
    mine = aged(_put(away / "mine.svg"), UNUSED_DAYS + 1)

    assert drawings(tmp_path).prune() == 0
    assert mine.exists()


async def test_it_looks_at_the_start_and_every_day(tmp_path: Path) -> None:
    path = aged(drawn(tmp_path, "Old"), UNUSED_DAYS + 1)
    rests: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        raise Enough

    with pytest.raises(Enough):
        await Drawings(home=tmp_path, now=lambda: NOW, sleep=sleep).run()

    assert rests == [DAY]
    assert not path.exists()


def _put(path: Path) -> Path:
    path.write_text("x", encoding="utf-8")
    return path
