"""Two texts are one where they say the same, and never where a word turns the sense round."""

from __future__ import annotations

import pytest

from bot.engine.memory.similarity import (
    details_agree,
    is_grounded_in,
    is_near_duplicate,
    merge_lines,
    subsumes,
)

THE_SAME = [
    ("The server Juno runs the shop", "the server Juno runs the shop."),
    ("Writes reports in Helix", "He writes the reports in Helix!"),
    ("我对花生过敏", "我对花生过敏。"),
]
ANOTHER = [
    ("Deploys on Fridays are allowed", "Deploys on Fridays are not allowed"),
    ("Always deploy the shop on Fridays", "Never deploy the shop on Fridays"),
    (
        "商店的部署每周五晚上由王工在服务器朱诺上进行",
        "商店的部署每周四晚上由王工在服务器朱诺上进行",
    ),
    ("商店的生产环境在周末可以由王工直接部署上线", "商店的生产环境在周末不可以由王工直接部署上线"),
    (
        "The production database of the shop runs behind the firewall on port 5432 of host Juno",
        "The production database of the shop runs behind the firewall on port 5433 of host Juno",
    ),
    (
        "The nightly backup of the whole shop with all of its pictures goes to the cellar of Anna",
        "The nightly backup of the whole shop with all of its pictures goes to the cellar of Bert",
    ),
]


@pytest.mark.parametrize(("one", "other"), THE_SAME)
def test_the_same_in_other_letters_is_the_same(one: str, other: str) -> None:
    assert is_near_duplicate(one, other)
    assert is_near_duplicate(other, one)


@pytest.mark.parametrize(("one", "other"), ANOTHER)
def test_what_denies_or_counts_or_names_another_is_another(one: str, other: str) -> None:
    assert not is_near_duplicate(one, other)
    assert not subsumes(one, other)
    assert not subsumes(other, one)


def test_what_says_more_contains_what_says_less() -> None:
    assert subsumes("Prefers tables to prose in reports", "Prefers tables to prose")
    assert not subsumes("Prefers tables to prose", "Prefers tables to prose in reports")
    assert not subsumes("Never prefers tables to prose", "Prefers tables to prose")
    assert subsumes("喜欢喝绿茶和红茶", "喜欢喝绿茶")


def test_both_together_say_each_line_once_and_the_longer_one() -> None:
    one = "Builds with node 22\nTests run first"
    other = "tests run first!\nBuilds with node 22 on Juno\nThe cache is cleared on errors"

    assert merge_lines(one, other).splitlines() == [
        "Builds with node 22 on Juno",
        "tests run first!",
        "The cache is cleared on errors",
    ]


def test_what_stands_in_its_sources_rests_on_them() -> None:
    assert is_grounded_in(
        "Drinks green and black tea", "Drinks green tea", "black tea too", share=0.6
    )
    assert not is_grounded_in("Owns three horses", "Drinks green tea", share=0.6)
    assert not is_grounded_in("Drinks green tea, owes 500", "Drinks green tea, owes", share=0.6)
    assert not is_grounded_in("", "Drinks green tea", share=0.6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("喜欢喝绿茶和红茶", "非常喜欢喝绿茶和红茶"),
        ("早上喝绿茶和红茶", "一般早上喝绿茶和红茶"),
        ("和女儿住在别墅里", "一直和女儿住在无锡的别墅里"),
        ("开会先讲未来计划", "开会一定先讲未来计划"),
    ],
)
def test_letters_inside_other_words_deny_and_count_nothing(one: str, other: str) -> None:
    assert details_agree(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("别墅里放香薰蜡烛", "别墅里别放香薰蜡烛"),
        ("有三只猫一起住", "有两只猫一起住"),
        ("一点半开会", "两点半开会"),
    ],
)
def test_what_does_deny_or_count_beside_them_still_does(one: str, other: str) -> None:
    assert not details_agree(one, other)
