"""Nothing outside the workspace can be read, written or even looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.engine.llm import workspace_files
from bot.engine.llm.workspace_files import PathRefusal, PathRefused

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a folder, a file, and links that lead out of it, beside a secret."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "beside").mkdir()
    inside = tmp_path / "work"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "a.txt").write_text("inside")
    (inside / "out").symlink_to(tmp_path)
    (inside / "secret").symlink_to(tmp_path / "secret.txt")
    (inside / "loop").symlink_to("loop")
    (inside / "near").symlink_to("sub/a.txt")
    return inside


def _refusal(error: pytest.ExceptionInfo[PathRefused]) -> PathRefusal:
    return error.value.refusal


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("../secret.txt", PathRefusal.OUTSIDE),
        ("sub/../../secret.txt", PathRefusal.OUTSIDE),
        ("out/secret.txt", PathRefusal.OUTSIDE),
        ("secret", PathRefusal.OUTSIDE),
        ("/etc/hostname", PathRefusal.OUTSIDE),
        ("~/x", PathRefusal.MISSING),
        ("", PathRefusal.NOT_A_FILE),
        (".", PathRefusal.NOT_A_FILE),
        ("sub", PathRefusal.NOT_A_FILE),
        ("none.txt", PathRefusal.MISSING),
        ("none/none.txt", PathRefusal.MISSING),
        ("near/x", PathRefusal.NOT_A_FOLDER),
        ("a\0b", PathRefusal.BAD_NAME),
        ("a\nb", PathRefusal.BAD_NAME),
        ("a\u202eb", PathRefusal.BAD_NAME),
        ("\ud800", PathRefusal.BAD_NAME),
        ("x" * 5_000, PathRefusal.BAD_NAME),
        ("x" * 300, PathRefusal.BAD_NAME),
    ],
)
def test_a_bad_path_is_refused_with_its_reason(root: Path, path: str, refusal: PathRefusal) -> None:
    with pytest.raises(PathRefused) as error:
        workspace_files.read_text(root, path, limit=1_000)

    assert _refusal(error) is refusal
    assert SECRET not in str(error.value)
    str(error.value).encode()


@pytest.mark.parametrize("path", ["../x", "out/x", "secret", "out/beside/x", "/tmp/x", "loop/x"])
def test_writing_leaves_everything_outside_untouched(root: Path, path: str) -> None:
    before = sorted(str(one) for one in root.parent.rglob("*"))

    with pytest.raises(PathRefused):
        workspace_files.write_text(root, path, "broken out")

    assert (root.parent / "secret.txt").read_text() == SECRET
    assert sorted(str(one) for one in root.parent.rglob("*")) == before


_part = st.sampled_from(
    ["..", ".", "", "out", "secret", "secret.txt", "sub", "near", "loop", "new", "a.txt"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(_part, max_size=6), st.booleans())
def test_no_path_ever_reaches_outside(root: Path, parts: list[str], absolute: bool) -> None:
    path = ("/" if absolute else "") + "/".join(parts)

    attempts: tuple[Callable[[], str], ...] = (
        lambda: workspace_files.read_text(root, path, limit=1_000),
        lambda: workspace_files.write_text(root, path, "written"),
        lambda: str(workspace_files.list_folder(root, path)),
    )
    for attempt in attempts:
        try:
            seen = attempt()
        except PathRefused:
            continue
        assert SECRET not in seen
        assert "beside" not in seen

    assert (root.parent / "secret.txt").read_text() == SECRET
    assert {one.name for one in root.parent.iterdir()} == {"secret.txt", "beside", "work"}
    assert not list((root.parent / "beside").iterdir())


def test_a_link_within_the_workspace_is_followed(root: Path) -> None:
    assert workspace_files.read_text(root, "near", limit=100) == "inside"
    assert workspace_files.write_text(root, "near", "new") == "sub/a.txt"
    assert (root / "near").is_symlink()


def test_an_absolute_path_into_the_workspace_is_good(root: Path) -> None:
    assert workspace_files.read_text(root, str(root / "sub" / "a.txt"), limit=100) == "inside"


def test_a_folder_swapped_for_a_link_after_the_check_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = workspace_files.resolve_path(root, "sub/a.txt")
    (root / "sub" / "a.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(root.parent)
    monkeypatch.setattr(workspace_files, "resolve_path", lambda *_: checked)

    with pytest.raises(PathRefused):
        workspace_files.write_text(root, "sub/a.txt", "broken out")

    assert not (root.parent / "a.txt").exists()


def test_writing_makes_folders_and_keeps_a_files_mode(root: Path) -> None:
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o755)

    assert workspace_files.write_text(root, "new/deep/a.txt", "x") == "new/deep/a.txt"
    workspace_files.write_text(root, "run.sh", "new")

    assert (root / "new" / "deep" / "a.txt").read_text() == "x"
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(PathRefused) as error:
        workspace_files.write_text(root, "sub/a.txt", "new")

    assert _refusal(error) is PathRefusal.DISK
    assert [one.name for one in (root / "sub").iterdir()] == ["a.txt"]
    assert (root / "sub" / "a.txt").read_text() == "inside"


def test_too_much_is_not_written(root: Path) -> None:
    with pytest.raises(PathRefused) as error:
        workspace_files.write_text(root, "big", "é" * workspace_files.MAX_WRITE)

    assert _refusal(error) is PathRefusal.TOO_LARGE
    assert not (root / "big").exists()


def test_a_pipe_is_refused_and_does_not_hang(root: Path) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(PathRefused) as read:
        workspace_files.read_text(root, "pipe", limit=10)
    with pytest.raises(PathRefused) as written:
        workspace_files.write_text(root, "pipe", "x")

    assert _refusal(read) is _refusal(written) is PathRefusal.NOT_A_FILE


def test_binary_and_large_files_are_no_text(root: Path) -> None:
    (root / "b").write_bytes(b"\x89PNG\0")
    (root / "l").write_text("x" * 11)

    for path, refusal in (("b", PathRefusal.BINARY), ("l", PathRefusal.TOO_LARGE)):
        with pytest.raises(PathRefused) as error:
            workspace_files.read_text(root, path, limit=10)
        assert _refusal(error) is refusal


def test_a_character_cut_at_the_end_of_a_piece_is_still_text() -> None:
    whole = "你好".encode()

    assert not any(workspace_files.is_binary(whole[:n]) for n in range(len(whole) + 1))
    assert workspace_files.is_binary(b"\xff\xfe" + whole)
    assert workspace_files.is_binary(whole[1:])


def test_a_listing_is_sorted_capped_and_follows_no_link(root: Path) -> None:
    entries, total = workspace_files.list_folder(root, ".")

    assert [one.name for one in entries] == ["loop", "near", "out", "secret", "sub"]
    assert [one.name for one in entries if one.is_folder] == ["sub"]
    assert total == 5

    many = root / "many"
    many.mkdir()
    for at in range(workspace_files.MAX_ENTRIES + 3):
        (many / f"{at:04}").touch()
    entries, total = workspace_files.list_folder(root, "many")
    assert (len(entries), total) == (workspace_files.MAX_ENTRIES, workspace_files.MAX_ENTRIES + 3)
