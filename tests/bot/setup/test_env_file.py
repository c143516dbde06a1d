from __future__ import annotations

import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from bot.setup.settings_reload import EnvFileError, change_lines, write_env_file

BEFORE = """# Mine

export OPENAI_API_KEY="old one"  # from the shop
openai_api_key=older
SHIFTBOSS_SLOTS=2

NOTE='first
second'
"""


def test_a_changed_variable_keeps_its_place_and_everything_else_its_text() -> None:
    changed = change_lines(BEFORE, {"OPENAI_API_KEY": "sk-new", "SHIFTBOSS_MODEL": "openai:auto"})

    assert changed == (
        "# Mine\n\nOPENAI_API_KEY=sk-new\nSHIFTBOSS_SLOTS=2\n\nNOTE='first\nsecond'\n"
        "SHIFTBOSS_MODEL=openai:auto\n"
    )


def test_an_empty_value_removes_all_lines_of_the_variable() -> None:
    assert "PENAI" not in change_lines(BEFORE, {"OPENAI_API_KEY": ""}).upper()
    assert change_lines("A=1", {"B": ""}) == "A=1\n"


@given(value=st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1))
def test_every_value_of_one_line_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    path = tmp_path_factory.mktemp("env") / ".env"
    if not value.isprintable() or "${" in value:
        with pytest.raises(EnvFileError):
            write_env_file(path, {"KEY": value})
        return
    write_env_file(path, {"KEY": value, "AFTER": "1"})

    assert dotenv_values(path) == {"KEY": value, "AFTER": "1"}


@pytest.mark.parametrize("value", ["a\nEVIL=1", "a\rb", "a\0b", "${HOME}", "a\u2028b"])
def test_a_value_that_could_become_more_than_a_value_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n", encoding="utf-8")

    with pytest.raises(EnvFileError):
        write_env_file(path, {"KEY": value})

    assert path.read_text(encoding="utf-8") == "A=1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_private_and_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.env", tmp_path / ".env"
    real.write_text("A=1\n", encoding="utf-8")
    real.chmod(0o644)
    link.symlink_to(real)

    write_env_file(link, {"KEY": "k"})

    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "A=1\nKEY=k\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_draft_that_does_not_pass_changes_nothing(tmp_path: Path) -> None:
    path, seen = tmp_path / ".env", []

    def refuse(draft: Path) -> None:
        seen.append((draft.read_text(encoding="utf-8"), stat.S_IMODE(draft.stat().st_mode)))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_env_file(path, {"KEY": "k"}, check=refuse)

    assert seen == [("KEY=k\n", 0o600)]
    assert list(tmp_path.iterdir()) == []
