"""Whom a clause or a fact is about, if not the speaker: a relative, friend or colleague. What is
said of them ends what is known of them only."""

from __future__ import annotations

import re

from bot.engine.memory.fact_terms import KIN_TERMS, canonical_terms
from storage.search.chinese import HAN, contains_han, simplify_han


def read_as_own(clause: str) -> tuple[str, str] | None:
    """The subject of a clause in lower case about another, and the clause as that person would say
    it: "my wife left Roche" is ("wife", "i left roche")."""
    found = _ANOTHER_ZH.match(clause) if contains_han(clause) else _ANOTHER_EN.match(clause)
    if found is None:
        return None
    rest = clause[found.end() :].strip()
    if contains_han(clause):
        return found["who"], f"我{rest}"
    for pattern, own in _OWN_FORMS:
        rest = pattern.sub(own, rest)
    return found["who"], f"i {rest}"


def is_about(subject: str, fact: str) -> bool:
    """Whether a fact is about this person; an empty `subject` is the speaker."""
    known = simplify_han(fact)
    found = _FACT_OF_ANOTHER.match(known)
    if not subject:
        return found is None
    if found is None:
        return False
    wanted, named = canonical_terms(subject), canonical_terms(found[0])
    if wanted & KIN_TERMS or named & KIN_TERMS:
        return wanted & KIN_TERMS == named & KIN_TERMS
    return bool(wanted) and wanted <= named


_RELATIVES = (
    r"(?:wife|husband|partner|mother|mom|mum|father|dad|parents|sister|brother|son|daughter|friend"
    r"|boss|manager|colleague|co-?worker|neighbou?r|roommate|flatmate|girlfriend|boyfriend"
    r"|fianc[eé]e?"
    r"|cousin|uncle|aunt|grandmother|grandfather|grandma|grandpa|nephew|niece|best friend)"
)
_RELATIVES_ZH = (
    r"(?:妈妈?|爸爸?|姐姐?|哥哥?|弟弟?|妹妹?|爷爷|奶奶|外公|外婆|老婆|老公|太太|先生|妻子|丈夫"
    r"|女儿|儿子|孩子"
    r"|朋友|同事|老板|同学|室友|邻居|女朋?友|男朋?友|对象|爱人|叔叔|阿姨|姑姑|舅舅|表[姐妹哥弟]"
    r"|堂[姐妹哥弟]"
    r"|领导|媳妇|父亲|母亲|爸妈|父母|闺蜜)"
)
_ANOTHER_EN = re.compile(
    rf"(?:my|our) (?:\w+ ){{0,1}}?(?P<who>{_RELATIVES})(?:,? [a-z]+,)?(?= |'s )"
)
_ANOTHER_ZH = re.compile(
    rf"(?:我们?|咱们?)?(?:家)?的?[老大小二三]?(?P<who>{_RELATIVES_ZH})(?!是我|说|的)"
)
_OWN_FORMS = (
    (re.compile(r"^(?:is|'s) "), "am "),
    (re.compile(r"^has "), "have "),
    (re.compile(r"^(?:doesn't|does not) "), "don't "),
    (re.compile(r"^(no longer \w+?[^s\W])(?:es(?<=[sxzh]es)|s)\b"), r"\1"),
    (re.compile(r"^(quit|left|lost|changed|sold) (?:her|his|their) "), r"\1 my "),
)
_FACT_OF_ANOTHER = re.compile(
    rf"(?:(?:the )?user(?:'s|’s)|my|his|her|their|boss's)? ?(?:\w+ )?{_RELATIVES}\b(?:,? [a-z]+,?)?"
    r"(?= (?:is(?! (?-i:[A-Z]))|works?|lives?|has|was|drives?|plays?|eats?|drinks?|uses?|likes?"
    r"|studies|moved|owns?"
    r"|runs?|speaks?|smokes?|teaches|attends|goes|prefers?|loves?|hates?|does|can|cannot|cooks?"
    r"|takes?)\b"
    r"(?! named| called| (?:my|the user's) ))"
    rf"|(?:用户|我)们?的?[老大小二三]?{_RELATIVES_ZH}(?!是[{HAN}]{{2,3}}$|叫)"
    rf"|{_RELATIVES_ZH}(?=在|住|是|有|用|开|吃|喝|养|做|当|学|读|对|不)",
    re.IGNORECASE,
)
