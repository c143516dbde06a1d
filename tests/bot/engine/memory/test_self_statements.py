"""Tests the rules for statements about oneself and prohibitions: rather too few than wrong."""

from __future__ import annotations

from itertools import chain

import pytest

from bot.engine.memory.explicit_statements import asks_to_remember, find_explicit_statements
from storage.records.memory import MemoryCategory
from tests.case_tables import all_cases

ABOUT_ONESELF = [
    ("I'm allergic to peanuts", "profile:allergy peanuts", "Allergic to peanuts"),
    ("Hi, I am severely allergic to shellfish.", "profile:allergy shellfish", "shellfish"),
    ("By the way I'm allergic to bee stings, so no picnic", "profile:allergy bee stings", "bee"),
    ("I have a severe nut allergy", "profile:allergy nut", "Allergic to nut"),
    ("Remember that I'm allergic to penicillin", "profile:allergy penicillin", "penicillin"),
    ("I'm a vegetarian, find me a place for lunch", "profile:diet", "vegetarian"),
    ("Just so you know, I'm vegan", "profile:diet", "vegan"),
    ("I am lactose intolerant.", "profile:diet", "lactose intolerant"),
    ("I only eat halal food", "profile:diet", "halal"),
    ("I don't eat pork", "profile:not eaten pork", "Does not eat pork"),
    ("I never eat mushrooms", "profile:not eaten mushrooms", "mushrooms"),
    ("My birthday is on March 3rd", "profile:birthday", "Birthday: March 3rd"),
    ("my birthday is 14 July by the way", "profile:birthday", "14 July"),
    ("I was born on 3 May 1988", "profile:birthday", "3 May 1988"),
    ("I live in Berlin", "profile:home", "Lives in Berlin"),
    ("I live in New York with my two dogs", "profile:home", "Lives in New York"),
    ("I'm based in Kuala Lumpur now", "profile:home", "Kuala Lumpur"),
    ("I've just moved to Lyon", "profile:home", "Lyon"),
    ("Hello, I work at Siemens", "profile:work", "Works at Siemens"),
    ("I work for Blue River and need a table", "profile:work", "Blue River"),
    ("I work as a nurse", "profile:job", "Works as a nurse"),
    ("I work as a night porter at the moment of writing", "", ""),
    ("我对花生过敏", "profile:allergy 花生", "对花生过敏"),
    ("对了，我对青霉素严重过敏", "profile:allergy 青霉素", "青霉素"),
    ("帮我记住我对海鲜过敏", "profile:allergy 海鲜", "海鲜"),
    ("我是素食者", "profile:diet", "素食者"),
    ("我一直吃素，帮我选家餐厅", "profile:diet", "吃素"),
    ("我有乳糖不耐症", "profile:diet", "乳糖不耐"),
    ("我不吃香菜", "profile:not eaten 香菜", "不吃香菜"),
    ("我从来不吃羊肉", "profile:not eaten 羊肉", "羊肉"),
    ("我的生日是5月2号", "profile:birthday", "生日：5月2号"),
    ("我生日是农历八月十五", "profile:birthday", "农历八月十五"),
    ("我是1990年3月8日出生的", "profile:birthday", "1990年3月8日"),
    ("我住在杭州", "profile:home", "住在杭州"),
    ("我现在住在上海浦东", "profile:home", "上海浦东"),
    ("我家在成都，周末想去爬山", "profile:home", "成都"),
    ("我刚搬家，我搬到了深圳", "profile:home", "深圳"),
    ("我在腾讯工作", "profile:work", "在腾讯工作"),
    ("我目前在第一人民医院上班", "profile:work", "第一人民医院"),
    ("你好，我在Acme上班", "profile:work", "Acme"),
    ("我是一名产品经理", "profile:job", "产品经理"),
    ("我的职业是会计", "profile:job", "会计"),
    ("我吃素", "profile:diet", "吃素"),
    ("我姓王", "profile:surname", "姓王"),
    ("我怕狗", "profile:afraid of 狗", "怕狗"),
    ("我属马", "profile:zodiac", "属马"),
    ("I'm really scared of heights, by the way", "profile:afraid of heights", "heights"),
    ("我叫王芳", "profile:name", "称呼：王芳"),
    ("大家好，我叫小李，请多关照", "profile:name", "称呼：小李"),
    ("你好，我叫欧阳雪", "profile:name", "称呼：欧阳雪"),
    ("我叫 Max", "profile:name", "称呼：Max"),
    ("我在西门子工作", "profile:work", "在西门子工作"),
    ("我在西门子上班", "profile:work", "在西门子工作"),
    ("我在大华文具上班", "profile:work", "在大华文具工作"),
    ("我住杭州", "profile:home", "住在杭州"),
    ("我现在住上海浦东", "profile:home", "住在上海浦东"),
]

NEVER_AGAIN = [
    "Don't use emojis in titles again",
    "Please never send me a table with more than five columns again",
    "From now on don't commit to main without tests",
    "In future, please avoid long introductions",
    "Stop adding a summary at the end of each answer",
    "Please stop apologising in every answer",
    "Stop asking me for confirmation of small edits",
    "next time do not touch the config file",
    "以后不要用表格回答",
    "以后请不要在标题里用表情",
    "今后别再改我的配置文件",
    "下次不要自作主张删文件",
    "请不要再道歉了好烦",
    "别再用英文缩写了",
    "千万不要再直接推到主分支",
    "从现在起不许加感叹号",
]

TRAPS = [
    # Asked.
    "Am I allergic to peanuts?",
    "I'm allergic to peanuts?",
    "Do I live in Berlin or in Bonn?",
    "Is my birthday on March 3rd?",
    "Can you stop adding a summary?",
    "Would you never do such a thing again?",
    "我对花生过敏吗？",
    "我是不是对花生过敏",
    "我住在哪里",
    "我的生日是5月2号吗",
    "以后不要用表格了吗？",
    # Not so, no longer, not sure.
    "I'm not allergic to anything",
    "I'm no longer allergic to peanuts",
    "I think I'm allergic to strawberries",
    "Maybe I'm allergic to cats",
    "I used to live in Berlin",
    "I lived in Rome for years",
    "I don't live in Paris",
    "I'm not a vegetarian",
    "我对花生不过敏",
    "我不是素食者",
    "我以前住在北京",
    "我可能对芒果过敏",
    "我好像对猫毛过敏",
    "我不住在上海",
    "我已经不吃素了",
    # What if.
    "If I'm allergic to peanuts, what can I eat?",
    "Suppose I live in Berlin, which tax class do I get",
    "Imagine I work at Siemens.",
    "I wish I lived in Berlin",
    "如果我对花生过敏怎么办",
    "假设我住在东京，租房多少钱",
    "要是我在腾讯工作就好了",
    # Of others.
    "My son is allergic to peanuts",
    "He is a vegetarian",
    "Anna lives in Berlin",
    "Her birthday is on March 3rd",
    "my boss says I live in Berlin too much",
    "我妈对花生过敏",
    "我儿子的生日是5月2号",
    "他在腾讯工作",
    "小王住在杭州",
    "提醒我对花生过敏的同事",
    # Quoted, played, to be worked on.
    'She said: "I live in Berlin"',
    "Translate: I'm allergic to peanuts.",
    "Translate into Chinese: I live in Berlin. I work at Siemens.",
    "Write a story. I live in Paris.",
    "Pretend to be a pirate. I don't eat fish.",
    "“我对花生过敏”用英语怎么说",
    "翻译：我住在杭州。我对花生过敏。",
    "他说，我在腾讯工作",
    "帮我写一封信。我住在北京。",
    # For now, or in jest.
    "I live in a hotel",
    "I'm vegan this week",
    "I don't eat breakfast",
    "I can't eat this",
    "I'm allergic to meetings",
    "I live in hope",
    "I live in Fear",
    "I work at night",
    "I work as a team player",
    "我对加班过敏",
    "我不吃这一套",
    "我不吃醋",
    "我这周吃素",
    "我住在酒店",
    "我住酒店",
    "我住三楼",
    "我住那边",
    "我叫外卖了",
    "我叫车去机场",
    "我叫了车",
    "我叫Uber",
    "我叫你别说",
    "我叫王芳来帮忙",
    "我叫李总过来",
    "我叫什么",
    "我叫王芳吗？",
    "翻译一下，我叫王芳",
    "我怕是来不及了",
    "我怕你忘",
    "我怕麻烦",
    "我在家上班",
    "我在咖啡馆上班",
    "我在晚上上班",
    "我在会议室工作",
    "我在认真工作",
    "我在北京上班",
    "我在收尾工作",
    "我叫钟点工",
    "我叫龙虾",
    "我叫马上走",
    "我在早班上班",
    "我在总部上班",
    "我性子急",
    "我在努力工作",
    "我在工作",
    "我是一名新用户",
    "我的生日是下周",
    "My birthday is next week",
    "I live in Visual Studio",
    "我不吃了",
    "我不能吃太多",
    "我是一名好人吧",
    "我家在装修",
    "I never eat and run",
    "I'm allergic to change",
    "I live in A",
    "I work at Midnight",
    "我不吃早餐",
    "我住在老家",
    "我的职业是保密的",
    # Not a rule for later.
    "stop making sense",
    "别再睡了快起床",
    "下次别忘了带伞",
    "以后别的再说",
    "以后不要紧",
    "Stop the server",
    "stop running",
    "Don't worry about it again",
    "Let us never do that again",
    "I don't want to see that again",
    "don't do that again",
    "try again",
    "Say it again",
    "Never mind, again the same",
    "不要再这样了",
    "别再说了",
    "别担心",
    "以后再说吧",
    "不要再见",
    "我以后不想加班",
    "老师说以后不要迟到",
    "他让我别再打电话",
]


@all_cases(("text", "key", "told"), ABOUT_ONESELF)
def test_what_somebody_says_of_themselves_is_taken_down(text: str, key: str, told: str) -> None:
    found = find_explicit_statements(text)

    assert [each.key for each in found] == ([key] if key else [])
    assert all(told in each.text for each in found)
    assert all(each.category is MemoryCategory.PROFILE for each in found)


@pytest.mark.parametrize("text", NEVER_AGAIN)
def test_what_is_never_to_be_done_again_is_taken_down_as_it_was_said(text: str) -> None:
    [found] = find_explicit_statements(text)

    assert found.category is MemoryCategory.LESSONS
    assert found.text in text
    assert asks_to_remember(text)


@all_cases("text", TRAPS)
def test_questions_quotes_guesses_and_others_are_none_of_it(text: str) -> None:
    assert find_explicit_statements(text) == ()


def test_each_language_has_its_share_and_half_of_all_are_traps() -> None:
    kept = [each[0] for each in ABOUT_ONESELF if each[1]] + NEVER_AGAIN
    han = [text for text in chain(kept, TRAPS) if not text.isascii()]

    assert len(kept) + len(TRAPS) >= 120
    assert len(TRAPS) >= len(kept)
    assert 50 <= len(han) <= len(kept) + len(TRAPS) - 50


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Remember that my car is blue", "Remember that my car is red"),
        ("记住我的工号是 1024", "记住我的工号是 2048"),
    ],
)
def test_what_is_told_anew_of_the_same_thing_has_its_key(first: str, second: str) -> None:
    [one], [other] = find_explicit_statements(first), find_explicit_statements(second)

    assert one.key == other.key != ""
    assert one.text != other.text


def test_only_what_is_to_be_remembered_outlives_that_it_was_forgotten() -> None:
    [told], [asked] = (
        find_explicit_statements("I live in Berlin"),
        find_explicit_statements("Remember I live in Berlin"),
    )

    assert not told.is_request
    assert asked.is_request


@pytest.mark.parametrize("text", ["I live in " * 60, "我对" * 290, "don't " * 90, "A a " * 140])
def test_nothing_of_it_takes_long(text: str) -> None:
    find_explicit_statements(text)
