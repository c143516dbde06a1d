"""Stored pictures of workflows: written once, and removed when unused."""

from __future__ import annotations

import os
from pathlib import Path

from bot.engine.workflow.presentation.pictures import UNUSED_DAYS, prune_pictures, save_drawing
from bot.engine.workflow.serialization.reader import read_workflow
from cards.catalog import catalog_for
from storage.records.people import Language

DAY = 86_400.0
NOW = 2_000_000_000.0
EN = catalog_for(Language.ENGLISH)


def save_picture(home: Path, title: str) -> Path:
    workflow = read_workflow(f'{{"name": "{title}", "nodes": [{{"id": "a", "name": "{title}"}}]}}')
    made = save_drawing(home, workflow, EN)
    (home / (made.png or "none")).unlink(missing_ok=True)
    return home / made.svg


def make_old(path: Path, days: float) -> Path:
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def prune(home: Path) -> int:
    return prune_pictures(home, now=lambda: NOW)


def test_old_pictures_go_and_newer_ones_stay(tmp_path: Path) -> None:
    old = make_old(save_picture(tmp_path, "Old"), UNUSED_DAYS + 1)
    new = make_old(save_picture(tmp_path, "New"), UNUSED_DAYS - 1)
    torn = make_old(_put(old.with_name(".x.svg.7.new")), UNUSED_DAYS + 1)
    other = make_old(_put(old.with_name("notes.txt")), UNUSED_DAYS + 1)

    assert prune(tmp_path) == 2

    assert [each.exists() for each in (old, new, torn, other)] == [False, True, False, True]


def test_a_picture_that_is_asked_for_again_is_as_new(tmp_path: Path) -> None:
    path = save_picture(tmp_path, "Old")
    os.utime(path, (DAY, DAY))

    assert save_picture(tmp_path, "Old") == path

    assert path.stat().st_mtime > DAY


def test_what_was_removed_is_drawn_again(tmp_path: Path) -> None:
    path = make_old(save_picture(tmp_path, "Old"), UNUSED_DAYS + 1)
    prune(tmp_path)

    assert save_picture(tmp_path, "Old").read_text(encoding="utf-8").startswith("<svg")
    assert path.exists()


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "workflows").symlink_to(away)
    mine = make_old(_put(away / "mine.svg"), UNUSED_DAYS + 1)

    assert prune(tmp_path) == 0
    assert mine.exists()


def _put(path: Path) -> Path:
    path.write_text("x", encoding="utf-8")
    return path
