"""Politeness changes nothing of what is asked."""

from __future__ import annotations

import pytest

from bot.engine.llm.rules.forms import recognise


@pytest.mark.parametrize(
    "polite",
    [
        "please list the folder",
        "list the folder please",
        "Can you list the folder, thanks!",
        "list the folder, thank you.",
    ],
)
def test_courtesy_at_either_end_is_not_part_of_the_work(polite: str) -> None:
    assert recognise(polite) == recognise("list the folder")


def test_chinese_courtesy_is_not_part_of_the_work() -> None:
    assert recognise("请帮我列出目录，谢谢") == recognise("列出目录")
