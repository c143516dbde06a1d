"""Recognizes questions and wishes about memory in plain words."""

from __future__ import annotations

import re

_MAX_TOPIC_WORDS = 12


def asks_what_is_known(text: str) -> bool:
    """Recognizes questions such as “what do you remember about me?”, “你记得我什么”."""
    return any(pattern.fullmatch(text.strip()) for pattern in _ASKS_WHAT_IS_KNOWN)


def topic_to_forget(text: str) -> str:
    """The topic of “forget what I said about my cat”; empty for anything else."""
    phrase = next((hit for each in _ASKS_TO_FORGET if (hit := each.fullmatch(text.strip()))), None)
    if phrase is None or _QUESTION.search(text):
        return ""
    topic = phrase["what"].strip(" \t“”\"'‘’「」")
    if topic.casefold() in _NO_TOPIC or len(topic.split()) > _MAX_TOPIC_WORDS:
        return ""
    return topic


def _compile_all(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.IGNORECASE) for each in patterns)


_PLEASE = r"(?:(?:please|now|ok|okay|hey|so|and|can you|could you|would you)[, ]+)*"
_PUNCTUATION_END = r"[\s.!?。！？]*"
_ASKS_WHAT_IS_KNOWN = _compile_all(
    rf"{_PLEASE}what (?:do|did) you (?:still |already |actually )?"
    rf"(?:(?:remember|have noted)(?: (?:about|of|on) me)?|know about me){_PUNCTUATION_END}",
    rf"{_PLEASE}what (?:have you|did you) (?:remember|note|learn|store|save|memori[sz]e)"
    rf"(?:e?d|nt|t)?(?: (?:about|of|on) me)?{_PUNCTUATION_END}",
    rf"{_PLEASE}(?:show|tell|list)(?: me)? (?:all |everything )?(?:what |that )?you"
    rf" (?:remember|know) about me{_PUNCTUATION_END}",
    rf"{_PLEASE}(?:show|list)(?: me)?(?: all)?(?: of)? (?:my|your) memories{_PUNCTUATION_END}",
    rf"(?:请|那|现在)?你(?:都|还|现在)*(?:记得|记住了?|知道|了解)(?:了)?(?:关于)?我的?"
    rf"(?:些|哪些|什么|多少)+(?:事情|事|信息|内容)?(?:呢|呀|啊|吗)?{_PUNCTUATION_END}",
    rf"你(?:都|还)*对我(?:还)?(?:了解|知道|记得)(?:多少|哪些|些?什么)(?:呢|呀|啊)?{_PUNCTUATION_END}",
    rf"你(?:都|还|现在)*(?:记得|记住)了?(?:些|哪些|什么)+(?:事情|事|内容)?(?:呢|呀|啊)?{_PUNCTUATION_END}",
)
_ASKS_TO_FORGET = _compile_all(
    rf"{_PLEASE}(?:forget|delete|erase)(?: again)? (?:what|everything|all|anything)(?: that)?"
    r" (?:i|we|i['’]ve|you)(?: have| had)? (?:ever |just )?"
    r"(?:said|told you|mentioned|wrote|know|remember|noted)(?: to you)? (?:about|of|on)"
    rf" (?P<what>.+?){_PUNCTUATION_END}",
    rf"{_PLEASE}(?:forget|delete|erase) (?:the |your |all |any )*(?:memor(?:y|ies)|notes?)"
    rf" (?:about|of|on) (?P<what>.+?){_PUNCTUATION_END}",
    rf"{_PLEASE}forget (?:that|about) (?P<what>[^,;]+?){_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*把(?:关于)?(?P<what>[^，,。]+?)(?:的(?:事情|事|记忆|内容))?(?:都|给)*"
    rf"(?:忘掉|忘记|忘了)(?:吧|了)?{_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记|忘了)(?:我)?(?:说过|告诉过你|讲过)?(?:的)?(?:所有)?关于"
    rf"(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*删(?:除|掉)(?:所有)?关于(?P<what>[^，,。]+?)的(?:记忆|记录){_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记)(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_PUNCTUATION_END}",
)
_QUESTION = re.compile(r"吗|怎么|如何|为什么|是不是")
_NO_TOPIC = frozenset(
    word
    for words in (
        "it that this these those everything all me him her them",
        "它 这个 那个 这件 这 那 他 她 我 掉 吧 了",
    )
    for word in words.split()
)
