"""Which words call for a skill, and which only look like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.engine.skills.triggers import triggered
from storage.records.workers.skills import Lack, Listed, SkillState
from tests.fake_skills import a_listed


def named(text: str, *skills: Listed) -> str:
    found = triggered(text, skills)
    return found.skill.name if found else ""


@pytest.mark.parametrize(
    ("trigger", "text", "calls"),
    [
        ("/test", "/test the shop", True),
        ("/test", "/testing the shop", False),
        ("/test", "see tmp/test", False),
        ("test", "please test it", True),
        ("test", "Test!", True),
        ("test", "the latest", False),
        ("test", "contested", False),
        ("test", "请test一下", True),
        ("code review", "a code\n review, please", True),
        ("code review", "a code reviewer", False),
        ("代码审查", "帮我做代码审查吧", True),
        ("代码审查", "审查代码", False),
        ("c++", "write c++ now", True),
        ("été", "c'est l'été", True),
        ("été", "étés", False),
    ],
)
def test_words_count_whole_and_chinese_wherever_it_stands(
    trigger: str, text: str, calls: bool
) -> None:
    assert bool(named(text, a_listed("one", triggers=(trigger,)))) is calls


def test_the_longest_trigger_wins() -> None:
    short = a_listed("short", triggers=("review",))
    long = a_listed("long", triggers=("code review",))

    assert named("a code review", short, long) == "long"
    assert named("a review", short, long) == "short"


def test_only_what_can_be_used_is_proposed() -> None:
    usable = a_listed("one", triggers=("report",))
    lacking = replace(usable, skill=replace(usable.skill, lacks=(Lack(key="bins", names=("x",)),)))
    models_only = replace(usable, skill=replace(usable.skill, by_person=False))

    assert named("a report", usable) == "one"
    assert named("a report", replace(usable, state=SkillState.NEW)) == ""
    assert named("a report", replace(usable, shadowed="/elsewhere")) == ""
    assert named("a report", lacking) == ""
    assert named("a report", models_only) == ""
