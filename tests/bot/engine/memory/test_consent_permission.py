"""Tests which sentences allow remembering again, and which only look like it."""

from __future__ import annotations

import pytest

from bot.engine.memory.consent_permission import find_permission
from bot.engine.memory.consent_rules import find_consent_request


@pytest.mark.parametrize(
    "text",
    [
        "you can remember again",
        "You can remember again.",
        "ok you may keep notes again",
        "OK, you can remember things again now",
        "You may remember what I say again",
        "alright, start remembering again",
        "please resume taking notes",
        "turn memory back on",
        "Turn your memory on again please",
        "can you turn memory back on?",
        "could you please start remembering things again?",
        "switch on memory",
        "we're back on the record",
        "feel free to take notes again",
        "it's ok to remember things again",
        "you don't have to forget things anymore",
        "from now on you can remember everything again",
        "Remember things again",
        "可以继续记了",
        "恢复记忆",
        "好了，可以继续记了",
        "你可以记了",
        "可以重新開始記了",
        "继续记吧",
        "开始记录吧",
        "把记忆打开吧",
        "打开记忆",
        "重新打开记忆功能",
        "现在又可以记东西了。",
        "记忆可以恢复了",
    ],
)
def test_a_permission_is_recognised_and_says_nothing_else(text: str) -> None:
    assert find_permission(text) == ""
    assert find_consent_request(text) is None


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("You can remember again. My dog is called Rex", "My dog is called Rex"),
        ("ok you may keep notes again, what is my plan today?", "what is my plan today?"),
        ("可以继续记了，我的狗叫旺财", "我的狗叫旺财"),
    ],
)
def test_what_is_said_besides_is_told(text: str, more: str) -> None:
    assert find_permission(text) == more


@pytest.mark.parametrize(
    "text",
    [
        "can you remember again what I said?",
        "you can remember again?",
        "you can remember again, but not this",
        "you can't remember again",
        "You can remember this",
        "don't turn memory on",
        "she said you can remember again",
        "“you can remember again” is what he wrote",
        "when can you remember again",
        "you can remember the milk again",
        "you can save the file again",
        "record the podcast again",
        "save again",
        "I can remember again",
        "Remember that I can swim again",
        "how do I restore memory on my laptop",
        "restore memory of the server from backup",
        "可以继续记了吗",
        "可以继续记了吗？",
        "不可以继续记",
        "恢复记忆的方法有哪些",
        "他说可以继续记了",
        "等我说完再恢复记忆",
        "继续记账",
        "打开记忆棒里的文件",
        "记忆恢复了很多往事",
    ],
)
def test_what_only_sounds_like_a_permission_is_none(text: str) -> None:
    assert find_permission(text) is None
