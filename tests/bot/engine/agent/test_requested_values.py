"""The value that was to change stands in its file, and nothing else has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.request_check import RequestCheck
from bot.engine.agent.requested_values import find_value_changes, find_wrong_values, mark_files
from cards.catalog import catalog_for
from storage.records.people import Language

SETTINGS = "[server]\nhost = localhost\nport = 8080\nother = 18080\n"
ASKED = "In settings.ini change the port from 8080 to 9090"

CHANGES = {
    ASKED: ("settings.ini", "8080", "9090", True),
    f"{ASKED}.\n{ASKED}": ("settings.ini", "8080", "9090", True),
    f"{ASKED} and describe it in notes.md": ("settings.ini", "8080", "9090", False),
    f"{ASKED} and restart": ("settings.ini", "8080", "9090", False),
    f"{ASKED}. Then tell me.": ("settings.ini", "8080", "9090", False),
    "Replace 'a b' with `c` in x.ini": ("x.ini", "a b", "c", True),
    "Set the version in setup.cfg from 1.2 to 1.3": ("setup.cfg", "1.2", "1.3", True),
    "把 x.ini 的端口从 8080 改成 9090": ("x.ini", "8080", "9090", True),
    "在 x.yaml 中把 8080 改为 9090，然后提交": ("x.yaml", "8080", "9090", False),
    "Change the port in x.ini to 9090": None,
    "Update report.md with the sales from 2019 to 2020": None,
    "Change the greeting in x.ini from Hello to Good morning": None,
    "Do not change the port from 8080 to 9090 in x.ini": None,
    "Explain how to change the port from 8080 to 9090 in x.ini": None,
}


@pytest.mark.parametrize("text", CHANGES)
def test_only_a_plain_change_of_one_value_is_found(text: str) -> None:
    found = [(each.file, each.old, each.new, each.is_all) for each in find_value_changes([text])]
    wanted = CHANGES[text]
    assert found == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("after", "absent", "more_changed"),
    [
        (SETTINGS.replace(" 8080", " 9090"), False, False),
        (SETTINGS.replace(" = 8080", "=9090"), False, False),
        (SETTINGS, False, False),
        (SETTINGS.replace(" 8080", " 90"), True, False),
        (SETTINGS.replace("8080", "9090"), False, True),
        ("port = 9090\n", False, True),
        (SETTINGS.replace("18080", "9090"), False, True),
    ],
    ids=[
        "right",
        "other spaces",
        "unchanged",
        "another",
        "parts too",
        "the rest lost",
        "wrong one",
    ],
)
def test_the_new_value_stands_there_and_the_rest_is_as_before(
    tmp_path: Path, after: str, absent: bool, more_changed: bool
) -> None:
    file = tmp_path / "settings.ini"
    file.write_text(SETTINGS)
    before = mark_files(tmp_path, [ASKED])

    file.write_text(after)

    missing, more = find_wrong_values(tmp_path, [ASKED], before)
    assert missing == (["settings.ini (9090)"] if absent else [])
    assert more == (["settings.ini"] if more_changed else [])


def test_where_the_old_value_does_not_stand_nothing_is_judged(tmp_path: Path) -> None:
    (tmp_path / "settings.ini").write_text("port = 1\n")
    assert mark_files(tmp_path, [ASKED]) == {}
    assert mark_files(tmp_path, ["Change the port from 1 to 2 in ../settings.ini"]) == {}


async def test_an_answer_in_a_chat_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "settings.ini").write_text(SETTINGS)
    asked = await RequestCheck.before(tmp_path, ASKED, since=None)

    (tmp_path / "settings.ini").write_text(SETTINGS.replace(" 8080", " 8081"))

    problems = await asked.find_problems("Done.")
    (note,) = problems.describe(catalog_for(Language.ENGLISH))
    assert note == "⚠️ The new value is not in the file: settings.ini (9090)."
