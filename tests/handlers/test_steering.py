"""Steering a task: what is said, put in, planned anew and let in."""

from __future__ import annotations

import pytest

from cards.actions import SendMessage
from handlers.work.naming import steps_in


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("check the totals", ("check the totals",)),
        ("a → b -> c", ("a", "b", "c")),
        ("配置：网络\n 测试 ", ("配置：网络", "测试")),
        ("→ \n ->", ()),
        ("\n".join(f"s{n}" for n in range(20)), tuple(f"s{n}" for n in range(10))),
    ],
)
def test_steps_are_read_as_people_write_them(text: str, titles: tuple[str, ...]) -> None:
    assert steps_in(text) == titles


def test_a_long_title_is_cut() -> None:
    assert len(steps_in("x" * 5000)[0]) == 200


def test_the_form_of_a_message_has_no_command_of_its_own() -> None:
    assert SendMessage(task_id="k").command == ""
