"""Recognises by rules that a person does not want something remembered, in English, Chinese and
mixed.

A clause is such a wish if it has an act (not to keep, to forget, to stay between us) that is meant
for us, and no word of another subject besides: "don't save this" is one, "don't save this file" is
not. What is quoted, in code, asked or reported is no wish."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from bot.engine.memory.consent_chinese import is_chinese_aside, match_chinese, to_chinese
from bot.engine.memory.consent_doubt import is_doubtful
from bot.engine.memory.consent_english import (
    ConsentMatch,
    is_english_aside,
    match_english,
    spell_out,
)
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.search.chinese import HAN, contains_han, simplify_han

_MAX_CHARS_READ = 8000
_MAX_CLAUSE = 200


def find_consent_request(text: str) -> ConsentWish | None:
    """Without `says_more` the message needs no answer of a model."""
    # A wish is said at the beginning or at the end of a long message.
    ends = (text,) if len(text) <= _MAX_CHARS_READ else (text[:_MAX_CHARS_READ], text[-2000:])
    for part in ends:
        wanted, besides = _read(_normalise(part))
        if wanted is not None:
            return ConsentWish(wanted=wanted, says_more=bool(besides) or len(ends) > 1)
    spoken = _normalise(text[:_MAX_CHARS_READ])
    if not _CODE.search(spoken) and any(
        _may_be_wish(clause, asked=asked) for clause, asked in _clauses(spoken)
    ):
        return ConsentWish(wanted=ConsentRequest.THIS, says_more=True, is_sure=False)
    return None


def _may_be_wish(clause: str, *, asked: bool) -> bool:
    if asked or len(clause) > _MAX_CLAUSE:
        return False
    if contains_han(clause):
        return is_doubtful(clause) or is_doubtful(to_chinese(clause))
    return is_doubtful(spell_out(clause))


def _read(text: str) -> tuple[ConsentRequest | None, str]:
    """The request, and what the message says besides."""
    found: set[ConsentRequest] = set()
    rest: list[str] = []
    aside, announced, names_chat = "", "", False
    for clause, asked in _clauses(text):
        wanted, about = _match(clause, asked=asked)
        if names_chat and wanted is ConsentRequest.THIS:
            wanted = ConsentRequest.CHAT
        if aside and wanted in {None, ConsentRequest.THIS}:
            # "That thing I mentioned earlier, don't keep it."
            joined = _match(f"{aside} {clause}", asked=asked)
            wanted, about = (wanted, about) if joined[0] is None else joined
        aside = clause if wanted is None and _is_aside(clause, asked=asked) else ""
        if wanted is not None:
            found.add(wanted)
        elif not asked and _NAMES_CHAT.fullmatch(clause):
            names_chat = True
            continue
        elif not asked and _ANNOUNCES_TALK.fullmatch(clause):
            announced = clause
            continue
        elif aside or _FILLER.fullmatch(clause) or (not asked and _OF_CHAT.fullmatch(clause)):
            continue
        if about:
            rest.append(about)
    if announced and not rest and ConsentRequest.THIS in found:
        found.add(ConsentRequest.CHAT)
    besides = " ".join((*rest, announced)).strip()
    return _widest(found, text, besides), besides or ("" if found else text)


def _widest(found: set[ConsentRequest], text: str, besides: str) -> ConsentRequest | None:
    of_chat = found and any(_OF_CHAT.fullmatch(each) for each, asked in _clauses(text) if not asked)
    if ConsentRequest.CHAT in found or of_chat:
        return ConsentRequest.CHAT
    if found == {ConsentRequest.THIS} and _LOOKS_BACK.fullmatch(besides):
        return ConsentRequest.BEFORE
    if found == {ConsentRequest.THIS} and (besides or _NOT_SPOKEN.search(text)):
        return ConsentRequest.THIS
    # Said alone, "don't remember this" is about what was said before; and "don't remember" may be
    # short for "I don't remember".
    is_short = _I_DO_NOT.fullmatch(text)
    return ConsentRequest.BEFORE if found and not is_short else None


def _normalise(text: str) -> str:
    """Half-width, simplified characters, straight quotes, and no symbols."""
    text = simplify_han(unicodedata.normalize("NFKC", text)).translate(_QUOTES)
    return "".join(
        ", " if (kind := unicodedata.category(each)) in {"So", "Sk"} and each != "`"
        else "" if kind in {"Cf", "Mn"}
        else each
        for each in text
    )  # fmt: skip


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    for found in _CLAUSE.finditer(_NOT_SPOKEN.sub(" … ", text)):
        asked = found[2].strip() == "?"
        whole = found[1].strip(" \t-")
        is_request = len(whole) <= _MAX_CLAUSE and _match(whole, asked=asked)[0] is not None
        for clause in (whole,) if is_request else _JOINED.split(whole):
            if clause.strip():
                yield clause.strip(), asked


def _match(clause: str, *, asked: bool) -> ConsentMatch:
    if len(clause) > _MAX_CLAUSE:
        return None, clause
    if asked and (request := _WITHOUT.fullmatch(clause)) and _OF_US.match(clause):
        return ConsentRequest.THIS, request["asked"]
    if not contains_han(clause):
        return match_english(clause, asked=asked)
    found = match_chinese(clause, asked=asked)
    if found[0] is None and len(parts := _SPACED_ZH.split(clause)) > 1:
        matches = [_match(each, asked=asked) for each in parts]
        kind = next((each for each, _ in matches if each is not None), None)
        return kind, " ".join(about for _, about in matches if about)
    return found


def _is_aside(clause: str, *, asked: bool) -> bool:
    if asked and not _NAMED_FIRST.match(clause):
        return False
    return is_chinese_aside(clause) if contains_han(clause) else is_english_aside(clause)


_QUOTES = str.maketrans("‘’‛＇", "''''")
_NAMED_FIRST = re.compile(
    r"(?:that|the|those|what i|那|刚才|我刚才)(?!.*\b(?:did|do|is|was)\b)", re.IGNORECASE
)
_SPACED_ZH = re.compile(rf"(?<=[{HAN}])\s+(?=[{HAN}])")
_NOT_SPOKEN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|“[^”]*”|\"[^\"\n]*\"|「[^」]*」|『[^』]*』|《[^》]*》"
    r"|(?<!\w)'[^'\n]{3,}'(?!\w)|^[ \t]*>[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_CLAUSE = re.compile(r"([^,;:.!?，。；：！？、\n…()（）—–~～【】\[\]]{1,400})([^\w\s]?)")
_NEG_START = (
    r"(?:please |pls |plz |just |kindly )*(?:don't|do not|dont|never|forget|keep|off the record"
    r"|nothing (?:may|must|should|can|is)"
    r"|i(?:'d| would)? (?:don't|do not|dont|rather|prefer))\b"
)
_OF_US = re.compile(
    r"(?:hey |please |so |ok |and )*(?:can|could|would|will) (?:you|u)\b", re.IGNORECASE
)
_WITHOUT = re.compile(
    r"(?P<asked>(?!.*\b(?:how|what|why|whether|if)\b).+?) without (?:you )?(?:remembering|storing"
    r"|saving|recording|keeping|logging"
    r"|noting)"
    r" (?:it|this|that|any of (?:it|this))\W*",
    re.IGNORECASE,
)
_JOINED = re.compile(
    rf"\s+(?:but|and|so|though|yet|-+)\s+(?={_NEG_START}|you (?:won't|will not|will never|don't"
    rf"|shouldn't|should not|mustn't|must not|needn't|can't))"
    r"|(?<=\b(?:it|me))\s+but\s+(?=(?:what|how|can|could|is|are|should|do|does|would|why|when)\b)"
    r"|\s+(?:but|because|since|cuz|though)\s+(?=(?:i|i'm|i've|my|we|our|he|she|they|the|it)\b)"
    rf"|\s+-+\s+|(?<=[{HAN}])(?<![算说叫问是])\s+"
    r"(?=off the record|don't|dont|do not|please|forget)"
    rf"|(?<=off the record)\s+(?=[{HAN}]{{4}})",
    re.IGNORECASE,
)
_NAMES_CHAT = re.compile(
    r"this is an? \w+ (?:chat|conversation|convo|session|thread)"
    r"|(?:this|our)(?: whole| entire| very)? (?:chat|conversation|convo|session|thread|discussion)"
    r"(?: is|'s| was| will be| never| did not| didn'?t)\b.*"
    r"|(?:这|本|整)(?:一|整)*(?:次|个|场|段|轮)?(?:聊天|对话|会话|谈话)"
    r"(?:.{0,2}(?:很|是|有|涉及|属于|保密)).*"
    r"|(?:接下来|后面)的?(?:内容|话)?[都全](?:是|属于|涉及).*",
    re.IGNORECASE,
)
_ANNOUNCES_TALK = re.compile(
    r"(?:i(?:'m| am)|i(?:'ll| will)|let me|i need to)(?: just)?(?: going to| gonna| about to)?"
    r" (?:vent|rant|complain|moan|let off steam|think out loud)\b.*"
    r"|(?:今天|今晚|下面|接下来|等下|待会儿?)?我?(?:要|想|得|先|随便)?(?:吐槽|抱怨|发泄|倾诉|聊|说"
    r"|唠)"
    r"(?:[聊唠说](?=.|$)|一会儿?|一阵|半天|几句|会儿)",
    re.IGNORECASE,
)
_FILLERS = (
    r"(?:ok(?:ay)?|thanks?|thank you|please|pls|plz|hey|hi|oh|well|so|wait|sorry|actually|btw"
    r"|cheers|ta|thx|hm+|um+|uh|ugh|ah|psst|shh|by the way|for now|boss|bot|got it|just|and|but|no"
    r"|nope|yes|yep|forget it|heads[- ]up|fyi|alright|right|yeah|scratch that|undo|never ?mind"
    r"|oops|whoops"
    r"|honestly|seriously|quick question|you|ok啊?|谢谢你?|多谢|拜托了?|麻烦了?|好吗|好不好|行吗"
    r"|可以吗|哈+|啊|吧|哦|嗯+|呃+|对了|等等|等一下|那个|喂|抱歉|不好意思|算了|是的|忘了它?吧|好的?"
    r"|哎呀?|唉|诶|…|\W)"
)
_FILLER = re.compile(rf"{_FILLERS}(?:\s*{_FILLERS}){{0,4}}", re.IGNORECASE)
_CODE = re.compile(
    r"\w\(\w*\)|\w\.\w+\(|[=!]=|^\W*\d{4}-\d\d-\d\d[ T]\d|^(?:INFO|WARN|DEBUG|ERROR)\b",
    re.MULTILINE,
)
_LOOKS_BACK = re.compile(
    r"(?:i )?take back .*|i (?:was|am) (?:just )?(?:drunk|upset|angry|joking|kidding|venting|tired"
    r"|high)|"
    r"(?:you know )?what i .*(?:earlier|before)|喝多了|气话|(?:刚才?|上面|前面)那?[段条句个].*"
    r"|.*\b(?:typed|sent|wrote|posted|said) that|(?:what|everything|all) i (?:just )?(?:said|told"
    r" you|sent|wrote)\b.*|(?:我)?(?:刚才|刚刚|刚|前面|上面|之前)(?:跟你|给你)?(?:说|发|提|讲|吐槽"
    r"|聊|骂)(?:到|过)?的.*",
    re.IGNORECASE,
)
_TALK = r"(?:chat|conversation|convo|session|thread|talk|discussion|exchange|dialog(?:ue)?)"
_I_DO_NOT = re.compile(r"\W*(?:sorry\W+)?(?:do not|don'?t) remember(?:\W+sorry)?\W*", re.IGNORECASE)
_OF_CHAT = re.compile(
    rf"(?:(?:for|in|during|throughout) (?:the (?:whole|entire|rest of this) |this (?:whole |entire "
    rf")?|our ){_TALK}|from (?:now|here) on(?: out)?|henceforth|starting now"
    rf"|for the rest of this {_TALK}"
    rf"|as long as we(?:'re| are) in (?:this|the) {_TALK}"
    r"|这次(?:咱们|我们)?聊的|(?:从现在(?:起|开始)|从[这下]一?(?:句话?|条|里|儿)(?:开始|起)|(?:我们"
    r"|咱们|咱俩|我俩)?在?(?:这|本)(?:次|个|场|段)(?:聊天|对话|会话)(?:里"
    r"|中)?(?:的?(?:所有)?(?:内容|东西|话))?|以后))",
    re.IGNORECASE,
)
