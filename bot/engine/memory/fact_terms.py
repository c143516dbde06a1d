"""The words of a fact that tell, for comparing it with what is said: without grammar, in either
script, and with one word for the commonest things of both languages."""

from __future__ import annotations

import re
from functools import lru_cache

from storage.search.chinese import contains_han, simplify_han
from storage.search.terms import tokenize


@lru_cache(maxsize=500)
def canonical_terms(text: str) -> frozenset[str]:
    """Words without grammar; things that both languages name often are one word."""
    folded = simplify_han(text).casefold().replace("’", "'")
    named = set()
    for pattern, name in _SAME_THINGS:
        if pattern.search(folded):
            named.add(name)
            folded = pattern.sub(" ", folded)
    words = {
        term
        for term in tokenize(folded)
        if term not in _EMPTY_TERMS and (len(term) > 1 or not term.isascii())
    }
    return frozenset(named | words)


def content_terms(text: str) -> frozenset[str]:
    """Words that name a thing: without those that say how often, when or whose. Chinese counts by
    the character, as words join otherwise there."""
    return frozenset(
        each for each in canonical_terms(text) if each not in _LIGHT and _is_unit(each)
    )


def _is_unit(term: str) -> bool:
    return len(term) == 1 or not contains_han(term)


def same_words(what: str, text: str) -> bool:
    """Whether the text has all words of `what`, in either language for the most common things."""
    wanted = reduced_terms(canonical_terms(what))
    return bool(wanted) and wanted <= canonical_terms(text)


def reduced_terms(terms: frozenset[str]) -> frozenset[str]:
    """Without the characters that are in pairs: one alone is a word."""
    pairs = {each for each in terms if len(each) > 1 and not each.isascii()}
    inside = {letter for each in pairs for letter in each}
    return frozenset(each for each in terms if each not in inside)


def is_kind_of(special: str, general: str) -> bool:
    """Whether a text names a kind of what the other names: wine is alcohol."""
    read = simplify_han(special).casefold()
    return any(
        name in canonical_terms(general) and pattern.search(read) for name, pattern in _KINDS_OF
    )


_KINDS_OF = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            "=alcohol",
            (
                r"\b(?:wine|beers?|whisk(?:e)?y|gin|rum|vodka|cocktails?|cider|sake)\b"
                r"|[啤红白黄清葡]萄?酒|威士忌"
            ),
        ),
        (
            "=coffee",
            (
                r"\b(?:espresso|lattes?|cappuccinos?|americano|flat white)\b|美式|拿铁|摩卡"
                r"|卡布奇诺|浓缩"
            ),
        ),
        ("meat", r"\b(?:chicken|beef|pork|lamb|steaks?|burgers?|bacon|ham|sausages?)\b"),
        ("肉", r"[牛羊猪鸡鸭]肉|排骨|火锅"),
        ("=seafood", r"\b(?:shrimps?|prawns?|crab|lobster|oysters?|mussels?)\b|虾|蟹|贝"),
        ("dairi", r"\b(?:milk|cheese|yogh?urt|cream)\b"),
        ("gluten", r"\b(?:bread|pasta|wheat)\b"),
    )
)
_SAME_THINGS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\bpeanuts?\b|花生", "=peanut"),
        (r"\bshrimps?\b|\bprawns?\b|虾", "=shrimp"),
        (r"\bseafood\b|海鲜", "=seafood"),
        (r"\bmilk\b|牛奶", "=milk"),
        (r"\bcoffee\b|咖啡", "=coffee"),
        (r"\b(?:green )?tea\b(?! tree)|(?:绿|红)?茶", "=tea"),
        (r"\bbeer\b|啤酒", "=beer"),
        (r"\bwine\b|葡萄酒|红酒", "=wine"),
        (r"\balcohol\b|\bdrinking\b|白酒|酒精|(?<![啤红白葡萄])酒", "=alcohol"),
        (r"\beggs?\b|鸡蛋", "=egg"),
        (r"\bpork\b|猪肉", "=pork"),
        (r"\bbeef\b|牛肉", "=beef"),
        (r"\b(?:lamb|mutton)\b|羊肉", "=lamb"),
        (r"\bfish\b|鱼", "=fish"),
        (r"\bcilantro\b|\bcoriander\b|香菜", "=cilantro"),
        (r"\bmangoe?s?\b|芒果", "=mango"),
        (r"\bpenicillin\b|青霉素", "=penicillin"),
        (r"\bvegetarian\b|素食(?:者|主义者)?|吃全?素|(?<!纯)素", "=vegetarian"),
        (r"\bvegan\b|纯素(?:食者)?", "=vegan"),
        (r"\bdark(?: mode| theme)?\b|(?:深色|暗色|黑暗)(?:模式|主题)?", "=dark"),
        (r"\blight(?: mode| theme)\b|(?:浅色|亮色)(?:模式|主题)?", "=light"),
        (r"\b(?:mother|mom|mum|mommy)\b|妈妈?|母亲", "=mother"),
        (r"\b(?:father|dad|daddy)\b|爸爸?|父亲", "=father"),
        (r"\bwife\b|老婆|太太|妻子|媳妇", "=wife"),
        (r"\bhusband\b|老公|先生|丈夫", "=husband"),
        (r"\bsons?\b|儿子", "=son"),
        (r"\bdaughters?\b|女儿", "=daughter"),
        (r"\bsisters?\b|姐姐?|妹妹?", "=sister"),
        (r"\bbrothers?\b|哥哥?|弟弟?", "=brother"),
        (r"\bbeijing\b|北京", "=beijing"),
        (r"\bshanghai\b|上海", "=shanghai"),
        (r"\bshenzhen\b|深圳", "=shenzhen"),
        (r"\bhangzhou\b|杭州", "=hangzhou"),
        (r"\bberlin\b|柏林", "=berlin"),
        (r"\blondon\b|伦敦", "=london"),
        (r"\btokyo\b|东京", "=tokyo"),
        (r"\bparis\b|巴黎", "=paris"),
        (r"\bnew york\b|纽约", "=newyork"),
        (r"\bmunich\b|慕尼黑", "=munich"),
        (r"\bsingapore\b|新加坡", "=singapore"),
    )
)
KIN_TERMS = frozenset(
    {"=mother", "=father", "=wife", "=husband", "=son", "=daughter", "=sister", "=brother"}
)
_EMPTY_TERMS = frozenset(
    tokenize(
        "any anymore longer more much really ever again now still quite very so too also all"
        " just thing stuff my our your the a an of for in on at to as is are was were"
        " be been with and or"
    )
) | frozenset("的了吗呢吧啊呀我在是也都很再又不没")
_LIGHT = frozenset(
    tokenize(
        "take takes taking taken get gets got do does doing go goes going have has had be been live"
        " every each daily day week weekday month"
        " year time times often usually"
        " always since last already finally now user users thing things place one ones whole over"
        " about again current currently still job while"
        " back ago long work working by from out up off down i he she it"
    )
) | frozenset(
    "每天周月年日早晚上下个位间只条的我你他她用户家事件那这早已就都常经一在是有了过去来边面里头现目前咪跟和与子终于"
)
