"""Tests that extracted facts rest on words that were said: paraphrases pass, inventions do not."""

from __future__ import annotations

from datetime import UTC

from bot.engine.memory.fact_grounding import check_grounding
from storage.records.memory import USER_TEXT_LENGTH_KEY, MemoryCategory, MemoryKind
from tests.bot.engine.memory.entry_builders import build_entry

PREFERENCES, PROFILE, ENTITIES = (
    MemoryCategory.PREFERENCES,
    MemoryCategory.PROFILE,
    MemoryCategory.ENTITIES,
)

GROUNDED = [
    ("Use tabs in Go code", "Uses tabs in Go code"),
    ("Needs glasses for driving", "Needs glasses for driving"),
    ("From now on: item0 has shelf0 of hall0", "item0 has shelf0 of hall0"),
    ("the backups go from web01 to nas2", "Backups go from web01 to nas2"),
    ("I run 15km every Sunday", "Runs 15 km on Sundays"),
    ("I always drink green tea in the morning, never coffee.", "Drinks green tea in the morning"),
    ("I always drink green tea in the morning.", "The user prefers green tea in the mornings"),
    ("My sister Anna moved to Lisbon last year", "Anna, the user's sister, lives in Lisbon"),
    ("We deploy with Kubernetes on Thursdays", "The team deploys on Thursdays with Kubernetes"),
    ("Our son was born yesterday!", "The user's son was born on 2026-02-28"),
    ("Peanuts make me ill, so never plan a lunch with them", "Cannot eat peanuts"),
    ("I can't stand olives", "Dislikes olives"),
    ("I don't eat pork for religious reasons", "Does not eat pork, for religious reasons"),
    ("I've been running marathons for ten years", "Has run marathons for 10 years"),
    ("My dog is called Biscuit and he is a beagle", "Has a beagle named Biscuit"),
    ("Invoices go to billing, room 12, before the 5th", "Invoices go to billing in room 12"),
    ("I'm a nurse at Charité and work nights", "Works nights as a nurse at Charité"),
    ("Vim is my editor, and I use the gruvbox theme", "Uses Vim with the gruvbox theme"),
    ("i moved to munich in may", "Lives in Munich since May"),
    ("I quit smoking in January", "Quit smoking in January"),
    ("我每天早上喝绿茶，不喝咖啡", "每天早上喝绿茶"),
    ("我姐姐在里斯本当老师", "用户的姐姐在里斯本当老师"),
    ("我们每周四用 Kubernetes 部署", "团队每周四用 Kubernetes 部署"),
    ("我讨厌香菜", "不喜欢香菜"),
    ("我对花生过敏，很严重", "用户对花生严重过敏"),
    ("我家的狗叫豆豆，是只柯基", "养了一只叫豆豆的柯基"),
    ("我跑了十年马拉松", "跑马拉松10年"),
    ("我打算明年考注会", "用户计划明年考注会"),
    ("发票寄到财务室12号，5号以前", "发票要在5号以前寄到财务室12号"),
    ("我对花生过敏", "Allergic to peanuts"),
    ("我在慕尼黑住了三年", "Lives in Munich"),
]

INVENTED = [
    ("the backups go from web01 to nas2", "Backups go from web02 to nas2"),
    # Nothing of it, or only a part, was said.
    ("Can you sort this list for me?", "Prefers dark chocolate"),
    ("I drink tea", "Drinks tea and plays the violin in an orchestra"),
    ("I have a dog", "Has a dog named Rex"),
    ("I live in Munich", "Lives in Munich with Anna"),
    ("I work in a hospital", "Works as a surgeon in a hospital in Zurich"),
    ("I have two children", "Has three children"),
    ("My birthday is in March", "Birthday: March 14"),
    ("The budget is 5,000 euros", "The budget is 50,000 euros"),
    ("My flight is at 9", "The flight is at 9 with Lufthansa"),
    ("Thanks, that helped a lot", "The user is grateful and works in finance"),
    ("I like hiking", "Enjoys hiking and owns a mountain cabin in Tyrol"),
    ("我有一只猫", "养了一只叫咪咪的猫和两只狗"),
    ("帮我写一份周报", "用户在金融公司担任经理"),
    ("我住在北京", "住在上海浦东"),
    ("我有两个孩子", "有3个孩子"),
    ("预算是5000元", "预算是50000元"),
    ("我用 Vim", "用 Vim 和 Emacs"),
    ("今天天气真好", "喜欢晴天去海边游泳"),
    # The opposite was said.
    ("I don't like olives", "Likes olives"),
    ("I'm not allergic to peanuts", "Allergic to peanuts"),
    ("我不喜欢香菜", "喜欢香菜"),
    ("我对花生不过敏", "对花生过敏"),
    # Asked, supposed, in jest, of another.
    ("Am I allergic to peanuts?", "Allergic to peanuts"),
    ("If I lived in Lisbon, what would the rent be?", "Lives in Lisbon"),
    ("Maybe I should become a vegetarian", "Is a vegetarian"),
    ("My brother is allergic to peanuts", "Allergic to peanuts"),
    ("He drinks green tea every morning", "Drinks green tea every morning"),
    ("我对花生过敏吗？", "对花生过敏"),
    ("如果我住在里斯本会怎么样", "住在里斯本"),
    ("我弟弟对花生过敏", "对花生过敏"),
    # Negations, numbers and persons that a model changed, and words of others.
    ("I'm not allergic to nuts, just don't like them", "Allergic to nuts"),
    ("我没有孩子", "有孩子"),
    ("我从来没抽过烟", "抽烟"),
    ("We won't renew the Figma contract", "Renews the Figma contract"),
    ("I can't swim", "Can swim"),
    ("My rent is 900 euros", "Rent is 950 euros"),
    ("会议在三点", "会议在四点"),
    ("我有两个女儿", "有三个女儿"),
    ("The release is on May 12", "The release is on May 21"),
    ("预算是20万", "预算是200万"),
    ("My wife is allergic to cats", "Allergic to cats"),
    ("我妈妈在银行工作", "在银行工作"),
    ("我同事喜欢爬山", "喜欢爬山"),
    ("Anna prefers tea, I prefer coffee", "Prefers tea"),
    ('My boss asked: "do you live in Paris?"', "Lives in Paris"),
    ('He said "I hate olives"', "Dislikes olives"),
    ("她说：“我在谷歌上班”", "在谷歌上班"),
    ("If I had a boat I'd sail to Malta", "Has a boat"),
    ("我要是有钱就买特斯拉", "有特斯拉"),
    ("I might switch to Rust", "Uses Rust"),
    ("I work with Kubernetes", "Works at Kubernetes with Anna"),
    ("> I live in Hamburg and love sailing", "Lives in Hamburg"),
    ("> 我在北京工作，对花生过敏", "对花生过敏"),
    ("I have a cat. My neighbour's dog is called Rocky", "Has a cat called Rocky"),
]


def _check(said: str, fact: str) -> str | None:
    cell = build_entry(
        text=f"{said}\n\nNoted.",
        kind=MemoryKind.CELL,
        sender="Boss",
        extra={USER_TEXT_LENGTH_KEY: len(said)},
    )
    named = fact.startswith(("Anna", "The team", "用户的姐姐", "The user's son", "Invoices"))
    category = ENTITIES if named else PROFILE
    return check_grounding(fact, category, [cell], UTC, of_work=False).doubt


def test_of_what_was_said_98_in_100_pass_and_of_inventions_none() -> None:
    refused = [(each, doubt) for each in GROUNDED if (doubt := _check(*each)) is not None]
    believed = [each for each in INVENTED if _check(*each) is None]

    assert len(refused) + len(believed) <= 0.02 * len(GROUNDED + INVENTED), (refused, believed)
