"""What people say first and later, and what holds then: for the rules on retraction, correction and
replacement. `HOLDS` is what is known after the last sentence, `OVER` what is not."""

from __future__ import annotations

from typing import NamedTuple


class ChangeCase(NamedTuple):
    first: str
    then: str
    over: tuple[str, ...] = ()
    """Parts of facts that hold no more."""
    holds: tuple[str, ...] = ()
    """Parts of facts that hold."""


RETRACTED = [
    ("I'm allergic to peanuts", "I'm not allergic to peanuts any more.", "Allergic to peanuts"),
    ("I'm allergic to peanuts", "Turns out I'm not allergic to peanuts", "Allergic to peanuts"),
    ("I have a nut allergy", "I've outgrown my nut allergy", "Allergic to nut"),
    ("I'm allergic to penicillin", "My penicillin allergy is gone", "penicillin"),
    ("I'm a vegetarian", "I'm no longer vegetarian", "Diet"),
    ("I'm vegan", "I stopped being vegan", "Diet"),
    ("I'm a vegetarian", "By the way, I eat meat again", "Diet"),
    ("I don't eat pork", "I eat pork again", "Does not eat pork"),
    ("I live in Berlin", "I don't live in Berlin any more", "Lives in Berlin"),
    ("I live in Berlin", "I moved away from Berlin last month", "Lives in Berlin"),
    ("I work at Siemens", "I left Siemens in March", "Siemens"),
    ("I work at Siemens", "I quit my job", "Siemens"),
    ("I work at Siemens", "I no longer work for Siemens, please stop mentioning it", "Siemens"),
    ("I drink coffee every morning", "I gave up coffee", "Drinks coffee"),
    ("I drink coffee", "I no longer drink coffee because of my stomach", "Drinks coffee"),
    ("I like jazz", "I don't like jazz any more", "Likes jazz"),
    ("I smoke", "I quit smoking two months ago", "Smokes"),
    ("I play the guitar", "I stopped playing the guitar", "Plays"),
    ("I'm learning Spanish", "I'm not learning Spanish any more", "Spanish"),
    ("We have a dog named Rex", "Our dog died", "dog"),
    ("I'm afraid of heights", "I'm not afraid of heights any more", "heights"),
    ("I use Vim", "I don't use Vim any longer", "Uses Vim"),
    ("我对花生过敏", "我对花生不过敏了", "过敏"),
    ("我对海鲜过敏", "我的海鲜过敏已经好了", "过敏"),
    ("我吃素", "不吃素了", "吃素"),
    ("我吃素", "其实我早就不吃素了", "吃素"),
    ("我是素食者", "我又开始吃肉了", "素食"),
    ("我不吃香菜", "我现在又吃香菜了", "不吃香菜"),
    ("我住在北京", "我已经不住在北京了", "北京"),
    ("我住在北京", "我去年三月从北京搬走了", "北京"),
    ("我在腾讯工作", "我不在腾讯上班了", "腾讯"),
    ("我在腾讯工作", "我从腾讯离职了", "腾讯"),
    ("我在腾讯工作", "我上个月辞职了", "腾讯"),
    ("我喝咖啡", "我把咖啡戒了", "咖啡"),
    ("我每天喝咖啡", "我不再喝咖啡了", "喝咖啡"),
    ("我喜欢爵士乐", "我不喜欢爵士乐了", "喜欢爵士乐"),
    ("我抽烟", "我戒烟了", "抽烟"),
    ("我弹吉他", "我不弹吉他了", "吉他"),
    ("我养了一只猫", "我的猫去世了", "猫"),
    ("我怕狗", "我不怕狗了", "怕狗"),
    ("我在学日语", "我不学日语了", "日语"),
    # Across the languages.
    ("我对花生过敏", "I'm not allergic to peanuts any more", "过敏"),
    ("I live in Beijing", "我不住在北京了", "Beijing"),
    ("I'm a vegetarian", "我不吃素了", "Diet"),
]

REPLACED = [
    ("I live in Berlin", "I moved to Munich last year", "Berlin", "Munich"),
    ("I live in Berlin", "Actually, I live in Potsdam", "Berlin", "Potsdam"),
    ("I prefer dark mode", "I prefer light mode now", "dark", "light"),
    ("I prefer tea", "I prefer coffee over tea", "Prefers tea", "coffee"),
    ("I prefer tea", "I've switched from tea to coffee", "Prefers tea", "coffee"),
    ("I'm vegetarian", "I'm vegan now", "vegetarian", "vegan"),
    ("I work at Siemens", "I work for Bosch now", "Siemens", "Bosch"),
    ("My favourite colour is blue", "My favourite colour is green", "blue", "green"),
    ("My birthday is on March 3rd", "No, my birthday is March 4th", "3rd", "4th"),
    ("I love olives", "I hate olives", "Likes olives", "Dislikes olives"),
    ("我住在北京", "我搬到上海了", "北京", "上海"),
    ("我住在北京", "我现在住在上海", "北京", "上海"),
    ("我更喜欢浅色模式", "我更喜欢深色模式", "浅色", "深色"),
    ("我更喜欢喝茶", "我改喝咖啡了", "茶", "咖啡"),
    ("我在腾讯工作", "我现在在华为工作", "腾讯", "华为"),
    ("我最喜欢的颜色是蓝色", "我现在最喜欢的颜色是绿色", "蓝色", "绿色"),
    ("我喜欢香菜", "我讨厌香菜", "喜欢香菜", "不喜欢香菜"),
    ("I live in Berlin", "我搬到上海了", "Berlin", "上海"),
]

NOT_MEANT = [
    # Somebody else.
    ("I'm a vegetarian", "My sister is no longer vegetarian"),
    ("I live in Berlin", "Anna doesn't live in Berlin any more"),
    ("I drink coffee", "My wife stopped drinking coffee"),
    ("I smoke", "He finally quit smoking"),
    ("我吃素", "我妹妹不吃素了"),
    ("我住在北京", "小王搬到上海了"),
    ("我在腾讯工作", "他从腾讯离职了"),
    ("我对花生过敏", "我儿子对花生不过敏了"),
    # Supposed, asked, wished, planned, in jest, quoted.
    ("I drink coffee", "If I stopped drinking coffee, would I sleep better?"),
    ("I'm a vegetarian", "Am I not vegetarian any more?"),
    ("I drink coffee", "I don't drink coffee any more, do I?"),
    ("I smoke", "I want to quit smoking"),
    ("I smoke", "I should stop smoking"),
    ("I live in Berlin", "Maybe I no longer live in Berlin, who knows"),
    ("I'm a vegetarian", "I'm not vegetarian any more, just kidding"),
    ("I'm a vegetarian", 'Translate: "I am not vegetarian any more"'),
    ("I live in Berlin", "I will move to Tokyo next year"),
    ("I work at Siemens", "I am going to quit my job next month"),
    ("我喝咖啡", "如果我不喝咖啡了会怎么样"),
    ("我吃素", "我是不是不吃素了？"),
    ("我抽烟", "我想戒烟"),
    ("我抽烟", "我打算下个月戒烟"),
    ("我住在北京", "我明年要搬到上海"),
    ("我吃素", "我不吃素了，开玩笑的"),
    ("我吃素", "翻译：我不吃素了"),
    # For a short while.
    ("I drink coffee", "I'm not drinking coffee today"),
    ("I'm a vegetarian", "I eat meat again this week"),
    ("我喝咖啡", "我今天不喝咖啡了"),
    ("我喝咖啡", "这次不喝咖啡了"),
    # Something else.
    ("I drink coffee", "I don't drink tea any more"),
    ("I'm allergic to peanuts", "I'm not allergic to shrimp any more"),
    ("I live in Berlin", "I no longer work in Berlin"),
    ("I like tea", "I like coffee"),
    ("I'm a vegetarian", "I like the smell of steak"),
    ("我喝咖啡", "我不喝茶了"),
    ("我喜欢茶", "我喜欢咖啡"),
]

CASES = [
    *(ChangeCase(first, then, over=(over,)) for first, then, over in RETRACTED),
    *(ChangeCase(first, then, (over,), (holds,)) for first, then, over, holds in REPLACED),
    *(ChangeCase(first, then) for first, then in NOT_MEANT),
]
