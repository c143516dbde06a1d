"""Recognises clauses that forbid remembering a whole topic, whenever it comes up: "nothing about my
health in your memory", 凡是跟我工资有关的都别记."""

from __future__ import annotations

import re

from storage.search.chinese import contains_han


def names_forbidden_topic(clause: str) -> bool:
    """Whether a clause, spelled out and in lower case, forbids a topic rather than what was said.
    In Chinese its spaces must be gone."""
    if contains_han(clause):
        return _ZH.search(clause) is not None and _ZH_SAID.search(clause) is None
    return _EN.fullmatch(clause) is not None and _EN_SAID.search(clause) is None


_MEMORY = r"(?:(?:your|the|any|ur) )?(?:memory|memories|notes?|records?|profile|files?)"
_TOPIC = (
    r"(?:my|our|me and my) (?!last\b|previous\b|next\b|latest\b|messages?\b|chats?\b"
    r"|conversations?\b"
    r"|talks?\b|sessions?\b|discussions?\b|words\b|part\b)[a-z]+"
    r"(?:[ '-](?!has\b|have\b|is\b|was\b|are\b|were\b|had\b|goes\b|should\b|to\b|in\b"
    r"|into\b)[a-z]+){0,5}?"
    r"|where (?:i|we) (?:live|work|go to school)"
)
_ABOUT = r"(?:about|on|of|regarding|concerning|related to|relating to|to do with|involving)"
_KEEPING = (
    r"(?:(?:keep|stor|sav|remember|record|retain|not|tak|mak|memori[sz]|log|writ|jot)(?:e|ing)?"
    r"(?: down)?)"
)
_ALWAYS = (
    r"(?: (?:ever|please|at all|again|from now on|in future|thanks|ok|okay|any more|anymore))*"
)
_START = r"(?:(?:and|also|so|please|ok|okay|just|kindly|hey|oh|by the way) )*"
_EN = re.compile(
    rf"{_START}(?:i would (?:like|prefer|rather)(?: you)?(?: to)? "
    rf"|i (?:do not )?want you(?: to)? )?"
    rf"(?:do not|never|no need to|stop|avoid)(?: ever| please)? {_KEEPING}"
    r"(?: (?:any|a|the|down|track))?(?: (?:notes?|records?|anything|things|stuff|details|info"
    rf"|information|memories|memory|facts))? {_ABOUT} (?:{_TOPIC}){_ALWAYS}"
    rf"|{_START}(?:do not|never|please never) (?:ever )?(?:remember|store|save|record|keep)"
    rf" where (?:i|we) (?:live|work|go to school){_ALWAYS}(?<!not remember where i live)"
    r"(?<!not remember where i work)"
    rf"|{_START}(?:nothing|no (?:notes|memories|records)) {_ABOUT} (?:{_TOPIC})(?: (?:goes"
    rf"|should go"
    rf"|should be|is to be|may be|must be|gets|stays|kept|saved|stored|remembered|recorded))*"
    rf"(?: (?:in|into|to|on) {_MEMORY}|(?<=remembered)|(?<=stored)|(?<=saved)|(?<=kept)"
    rf"|(?<=recorded)"
    rf"|(?<=noted)){_ALWAYS}"
    rf"|{_START}(?:keep|leave) (?:anything (?:{_ABOUT}) )?(?:{_TOPIC})(?: stuff| things| matters)?"
    rf" (?:out of|off|away from) {_MEMORY}{_ALWAYS}"
)
_EN_SAID = re.compile(r"\b(?:said|told|mentioned|wrote|typed|sent|asked|just|earlier|this|that)\b")
_ZH_NOT = (
    r"(?:别再?|不要再?|不用|不必|不需要|无需|不许|不准|请勿|勿|莫|甭|不能|不可以?|不得|不想(?:让|要)?你"
    r"|不希望你|禁止|不予?)"
)
_ZH_KEEP = r"(?:记(?![得性号仇恨账错])|存|留|保存|保留|记录|写(?:下来|进|入)|入库|收录)"
_ZH_EACH = r"(?:一律|永远|以后|今后|往后|统统|通通|一概|从今以后|任何时候)"
_ZH = re.compile(
    rf"凡是?.{{2,20}}(?:都|一律|统统|一概|就)?.{{0,3}}{_ZH_NOT}.{{0,3}}{_ZH_KEEP}"
    rf"|{_ZH_NOT}{_ZH_KEEP}.{{0,3}}(?:任何|一切|所有|有关|关于|跟|和).{{0,3}}我.{{1,14}}"
    r"(?:有关|相关|事|信息|东西|内容|情况|话题|$)"
    rf"|(?:关于|有关|涉及|跟|和)我.{{1,14}}?{_ZH_EACH}.{{0,3}}{_ZH_NOT}.{{0,3}}{_ZH_KEEP}"
    rf"|我.{{1,12}}的?(?:信息|事情?|情况|话题|内容).{{0,3}}{_ZH_EACH}.{{0,3}}{_ZH_NOT}.{{0,3}}{_ZH_KEEP}"
)
_ZH_SAID = re.compile(
    r"刚|之前|上面|前面|上一|说过|说的|讲的|提到的|提过|这[条句段件]|那[条句段件]|[他她]说"
)
