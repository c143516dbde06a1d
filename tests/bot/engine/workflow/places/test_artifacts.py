"""What was sent along lies in the task's folder under its own name."""

from __future__ import annotations

import pytest

from bot.engine.workflow.places.artifacts import names_in_workspace


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        ((), ()),
        (("files/inbox/1/a.txt",), ("a.txt",)),
        (("i/1/a.txt", "i/1/2/a.txt", "i/2/a.txt"), ("a.txt", "a-2.txt", "a-3.txt")),
        (("i/1/a-2.txt", "i/2/a.txt", "i/3/a.txt"), ("a-2.txt", "a.txt", "a-3.txt")),
    ],
)
def test_two_files_of_one_name_are_told_apart(
    sent: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert names_in_workspace(sent) == names
