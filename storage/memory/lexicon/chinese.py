"""Chinese words that a question is made of and that tell nothing of what is asked for."""

from __future__ import annotations

_FILLERS = frozenset(
    "的了是我你您他她它们在吗呢吧啊呀哦嗯么什哪谁怎和与跟就都也还很到过着把被给对这那有没不个些"
    "会要能可以去来说又再从向于之其将让为或但而且因所如果并只才已经曾时候里上下中后前一"
)
FRAMES = (
    "曾经",
    "还记得",
    "记不记得",
    "记得",
    "记住",
    "提到过",
    "提到",
    "提过",
    "说过",
    "讲过",
    "聊过",
    "聊到",
    "告诉过",
    "告诉",
    "问过",
    "什么时候",
    "什么",
    "哪一",
    "哪些",
    "哪个",
    "哪里",
    "哪儿",
    "怎么样",
    "怎么",
    "怎样",
    "为什么",
    "多少",
    "名字是",
    "分别是",
    "是不是",
    "有没有",
    "请问",
    "上次",
    "之前",
    "以前",
    "当时",
    "那次",
    "一下",
    "是谁",
)
"""They are taken out whole, the longest of those that begin alike first."""


_PARTICLES = frozenset("吗呢吧啊呀的了")
"""They end a word: a pair with one of them is no word."""


def is_filler(term: str) -> bool:
    """A character, or a pair of them, that stands in every other sentence."""
    return _FILLERS.issuperset(term) or not _PARTICLES.isdisjoint(term)
