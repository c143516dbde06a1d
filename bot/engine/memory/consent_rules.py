"""Recognises by rules that a person does not want something remembered, in English, Chinese and
mixed.

A clause is such a wish if it has an act (not to keep, to forget, to stay between us) that is meant
for us, and no word of another subject besides: "don't save this" is one, "don't save this file" is
not. What is quoted, in code, asked or reported is no wish."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bot.engine.memory.consent_chinese import is_chinese_aside, match_chinese, to_chinese
from bot.engine.memory.consent_doubt import is_doubtful
from bot.engine.memory.consent_english import (
    ConsentMatch,
    is_english_aside,
    match_english,
    spell_out,
)
from bot.engine.memory.consent_topics import names_forbidden_topic
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.search.chinese import HAN, contains_han, simplify_han

_MAX_CHARS_READ = 8000
_MAX_CLAUSE = 200
_SHORT_CLAUSE = 24


def find_consent_request(text: str) -> ConsentWish | None:
    """Without `says_more` the message needs no answer of a model."""
    # A wish is said at the beginning or at the end of a long message.
    ends = (text,) if len(text) <= _MAX_CHARS_READ else (text[:_MAX_CHARS_READ], text[-2000:])
    for part in ends:
        wanted, besides = _read(_normalise(part))
        if wanted is not None:
            is_sure = _is_plain(_normalise(part))
            says_more = bool(besides) or len(ends) > 1 or not is_sure
            return ConsentWish(wanted=wanted, says_more=says_more, is_sure=is_sure)
    spoken = _normalise(text[:_MAX_CHARS_READ])
    is_about_text = _CODE.search(spoken) or _ABOUT_A_TEXT.search(spoken)
    return None if is_about_text else _find_doubtful_wish(spoken)


def _is_plain(text: str) -> bool:
    """Not if the only wish may be talk: "between us, we speak Portuguese"."""
    rest = _MAY_BE_TALK.sub(" ", text)
    return rest == text or _read(rest)[0] is not None


def _find_doubtful_wish(text: str) -> ConsentWish | None:
    """A possible wish that says nothing else, or looks back, may also mean what was said before."""
    clauses = list(_clauses(text))
    doubtful = [clause for clause, asked in clauses if _may_be_wish(clause, asked=asked)]
    if not doubtful:
        return None
    others = [each for each, _ in clauses if each not in doubtful and not _FILLER.fullmatch(each)]
    announces = any(_ANNOUNCES.search(each) for each in doubtful)
    if announces and all(_ANNOUNCEMENT.fullmatch(each) for each in others):
        return ConsentWish(wanted=ConsentRequest.NEXT, says_more=True)
    looks_back = not others or any(_SAID_EARLIER.search(each) for each in doubtful)
    wanted = ConsentRequest.BEFORE if looks_back else ConsentRequest.THIS
    return ConsentWish(wanted=wanted, says_more=True, is_sure=False)


def _may_be_wish(clause: str, *, asked: bool) -> bool:
    if len(clause) > _MAX_CLAUSE:
        return False
    if _find_run_on(clause) is not None:
        return True
    if asked and not _ASKS_POLITELY.match(clause):
        return False
    if contains_han(clause):
        return is_doubtful(clause) or is_doubtful(to_chinese(clause))
    return is_doubtful(spell_out(clause))


@dataclass(slots=True)
class _Reading:
    """The wishes of a message, and the `rest` that it says besides. `wished_at` is the length of
    the rest when the last wish came; `is_of_itself`: a wish means words of its own message."""

    found: set[ConsentRequest] = field(default_factory=set)
    rest: list[str] = field(default_factory=list)
    announced: str = ""
    wished_at: int = 0
    is_of_itself: bool = False

    def names_topic_with(self, clause: str) -> bool:
        """Whether the last words and this clause forbid a topic: 关于我健康的事，一律不要记."""
        if not self.rest or not names_forbidden_topic(_spell(f"{self.rest[-1]} {clause}")):
            return False
        self.rest.pop()
        return True

    def add_wish(self, wanted: ConsentRequest, clause: str) -> None:
        self.found.add(wanted)
        self.wished_at = len(self.rest)
        # "I snore. Forget I said that": the message has what it means.
        said = [each for each in self.rest if not _SAID_EARLIER.search(each)]
        self.is_of_itself |= bool(said) and _OF_ITSELF.search(clause) is not None


def _read(text: str) -> tuple[ConsentRequest | None, str]:
    """The request, and what the message says besides."""
    reading = _read_clauses(text)
    found, rest = reading.found, reading.rest
    if reading.announced and not rest and ConsentRequest.THIS in found:
        found.add(ConsentRequest.CHAT)
    besides = " ".join((*rest, reading.announced)).strip()
    if reading.is_of_itself and found == {ConsentRequest.BEFORE}:
        return ConsentRequest.THIS, besides
    is_last = reading.wished_at == len(rest)
    if found and ConsentRequest.CHAT not in found and _announces_next(text, besides, is_last):
        return ConsentRequest.NEXT, besides
    return _widest(found, text, besides), besides or ("" if found else text)


def _read_clauses(text: str) -> _Reading:
    reading = _Reading()
    aside, names_chat = "", False
    for clause, asked in _clauses(text):
        wanted, about = _match(clause, asked=asked)
        if names_chat and wanted is ConsentRequest.THIS:
            wanted = ConsentRequest.CHAT
        if aside and wanted in {None, ConsentRequest.THIS}:
            # "That thing I mentioned earlier, don't keep it."
            joined = _match(f"{aside} {clause}", asked=asked)
            wanted, about = (wanted, about) if joined[0] is None else joined
        if wanted is ConsentRequest.THIS and reading.names_topic_with(clause):
            wanted = ConsentRequest.TOPIC
        aside = clause if wanted is None and _is_aside(clause, asked=asked) else ""
        if wanted is not None:
            reading.add_wish(wanted, clause)
        elif not asked and _NAMES_CHAT.fullmatch(clause):
            names_chat = True
            continue
        elif not asked and _ANNOUNCES_TALK.fullmatch(clause):
            reading.announced = clause
            continue
        elif aside or _FILLER.fullmatch(clause) or (not asked and _OF_CHAT.fullmatch(clause)):
            continue
        if about:
            reading.rest.append(about)
    return reading


def _widest(found: set[ConsentRequest], text: str, besides: str) -> ConsentRequest | None:
    if ConsentRequest.TOPIC in found:
        found = found - {ConsentRequest.TOPIC} or {
            ConsentRequest.THIS if besides else ConsentRequest.TOPIC
        }
    if found == {ConsentRequest.TOPIC}:
        return ConsentRequest.TOPIC
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


def _announces_next(text: str, besides: str, is_last: bool) -> bool:
    """Whether what must not be kept is still to come, in a message of its own."""
    if not is_last and not _ANNOUNCEMENT.fullmatch(besides):
        return False
    if _NEXT_MESSAGE.search(text):
        return True
    is_all = not besides or _ANNOUNCEMENT.fullmatch(besides) is not None
    return is_all and _ANNOUNCES.search(text) is not None


def _normalise(text: str) -> str:
    """Half-width, simplified characters, straight quotes, and no symbols."""
    text = simplify_han(unicodedata.normalize("NFKC", text)).translate(_QUOTES)
    text = _MENTION.sub(" ", text)
    text = _DICTATED.sub(r"\1 … ", _NO_NOTES_SIGN.sub(", don't remember this, ", text))
    for pattern, word in _CANTONESE:
        text = pattern.sub(word, text)
    return "".join(
        ", " if (kind := unicodedata.category(each)) in {"So", "Sk"} and each != "`"
        else "" if kind in {"Cf", "Mn"}
        else each
        for each in text
    )  # fmt: skip


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    for found in _CLAUSE.finditer(_NOT_SPOKEN.sub(" … ", text)):
        whole = found[1].strip(" \t-")
        asked = found[2].strip() == "?" and not _ASKS_AGREEMENT.search(whole)
        is_request = len(whole) <= _MAX_CLAUSE and _match(whole, asked=asked)[0] is not None
        *parts, last = (whole,) if is_request else _split(whole)
        yield from (
            (each.strip(), asked and not _DASH.search(whole)) for each in parts if each.strip()
        )
        if last.strip():
            yield last.strip(), asked


def _split(whole: str) -> Sequence[str]:
    """The parts of a sentence, also of one that was spoken, without punctuation."""
    parts: list[str] = []
    for each in _JOINED.split(whole):
        found = _find_run_on(each)
        if found is not None and _LEADS_IN.match(found["wish"]):
            parts += (found["before"], found["wish"], found["after"])
        else:
            parts.append(each)
    return parts


def _find_run_on(clause: str) -> re.Match[str] | None:
    """A plain wish in the middle of a clause: "I skip my pills please don't save that okay what
    helps"."""
    found = _RUN_ON_WISH.match(clause) if len(clause) > _SHORT_CLAUSE else None
    return None if found is None or _SAID_BY_OTHERS.search(found["before"]) else found


def _match(clause: str, *, asked: bool) -> ConsentMatch:
    if len(clause) > _MAX_CLAUSE:
        return None, clause
    if not asked and names_forbidden_topic(_spell(clause)):
        return ConsentRequest.TOPIC, ""
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


def _spell(clause: str) -> str:
    return to_chinese(clause) if contains_han(clause) else spell_out(clause)


def _is_aside(clause: str, *, asked: bool) -> bool:
    if asked and not _NAMED_FIRST.match(clause):
        return False
    return is_chinese_aside(clause) if contains_han(clause) else is_english_aside(clause)


# The words that somebody is to be sent.
_DICTATED = re.compile(
    r"((?:^|[.!?。！？\n])\s*(?:(?:please|now|then|and|ok|can you|could you|help me|请"
    r"|帮我|麻烦|那)\s*)*"
    r"(?:add an? (?:test|line|note|comment)|(?:write|tell|reply|answer|text|email|mail|message"
    r"|send|say"
    r"|post|forward|add an? (?:test|line|note|comment))\b(?! (?:me|us|this|that|it|and|but|then"
    r"|without|only)\b)"
    r"(?: (?!and\b|but\b|then\b|without\b)[\w'@.]+){1,6}?"
    r"|(?:回复|回(?=[他她它])|告诉|转告|发给|写给|跟|给|提醒)(?!我|你)[^,，:：。！？\n]{1,12}?)\s*[:：])"
    r"[^\n.!?。！？]*",
    re.IGNORECASE,
)
_MENTION = re.compile(r"(?<!\S)@[\w.-]+")
_NO_NOTES_SIGN = re.compile("🚫\\s*(?:📝|💾|✍|🧠|🗒|📓|⏺|📹|🗃|🔖)\ufe0f?")
_CANTONESE = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        ("唔好", "不要"),
        ("唔使", "不用"),
        ("唔准", "不准"),
        ("唔记得", "不记得"),
        ("记低", "记下"),
        ("嗰", "那"),
        ("呢(?=[个条句件段啲])", "这"),
        ("啲", "些"),
        ("嘅", "的"),
        ("咗", "了"),
        ("冇", "没"),
        ("我哋", "我们"),
    )
)
# "Between us" may say what people share: it is asked about, and no wish at all where they count.
_BETWEEN_US = r"(?:just )?between (?:us|you and (?:me|i)|(?:just )?the two of us)\b"
_MAY_BE_TALK = re.compile(
    rf"\b{_BETWEEN_US}\W+(?:who|which|how|we|we've|we're|our|my \w+ and (?:i|me)|me and my)\b"
    r"|(?:不用|不必|无需)(?:保存|存|记录|记)了?[,，]\s*(?:直接|我)"
    r"|^\W*no (?:notes|recording)(?: today| now| here)?, just\b",
    re.IGNORECASE,
)
_KEEP_VERB = r"(?:remember|memori[sz]e|save|store|record|keep|log|note|retain|write down)"
_RUN_ON_WISH = re.compile(
    rf"(?P<before>.*?\S)\s+(?P<wish>(?:(?:and|but|so|also|just|ok|okay) )*(?:please |pls |plz "
    rf"|kindly )?"
    rf"(?:just )?(?:don'?t|do not|never) (?:ever )?(?:{_KEEP_VERB}|keep an?y? (?:record|note)s? of"
    r"|make an?y? (?:record|note)s? of|write)"
    r" (?:this|that|it|any of (?:this|that|it))(?: (?:down|one|message|bit|part|please|pls|ok"
    r"|okay|right"
    r"|anywhere|though|tho|thanks))*)(?P<after>$|\s+(?:and|but|so|what|how|can|could|is|are"
    r"|should|do"
    r"|does|would|why|when|where|which|who|i|i'm|my|he|she|we|just|also|now|then)\b.*)",
    re.IGNORECASE,
)
_LEADS_IN = re.compile(r"(?:and|but|so|also|just|ok|okay|please|pls|plz|kindly)\b", re.IGNORECASE)
_SAID_BY_OTHERS = re.compile(
    r"\b(?:say|said|says|saying|write|wrote|writes|written|reads|titled|called|named|means?|phrase"
    r"|sentence|text|told|tells|asked|asks|translate)\b|\b(?:i|we|you|they|he|she|it|who|that"
    r"|which|to"
    r"|people|users|will|would|should|must|can|did|do|does|if|when|why|how)$",
    re.IGNORECASE,
)
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
    r"(?:hey |please |so |ok |and )*(?:can|could|would|will|may|shall) (?:you|u|i|we)\b",
    re.IGNORECASE,
)
_WITHOUT = re.compile(
    r"(?P<asked>(?!.*\b(?:how|what|why|whether|if)\b).+?) without (?:you )?(?:remembering|storing"
    r"|saving|recording|keeping|logging"
    r"|noting)"
    r" (?:it|this|that|any of (?:it|this))\W*",
    re.IGNORECASE,
)
_ASKS_AGREEMENT = re.compile(r"\b(?:ok|okay|alright|deal|yeah|right|please|pls)$", re.IGNORECASE)
_DASH = re.compile(r"\s-+\s")
_ASKS_POLITELY = re.compile(
    r"(?:hey|please|so|ok|and|oh|ugh|uh|hm+|, )*\s*(?:can|could|would|will|may) (?:you|u|i|this"
    r"|that|it"
    r"|we)\b|.*(?:能不能|可不可以|可否|能否|可以|行不行|行吗|好吗|好不好)",
    re.IGNORECASE,
)
_ABOUT_A_TEXT = re.compile(
    r"\b(?:translate|translation|proofread|rephrase|rewrite|paraphrase|what does .{1,60} mean)\b"
    r"|翻译|改写|润色|什么意思|怎么说",
    re.IGNORECASE,
)
_JOINED = re.compile(
    rf"\s+(?:but|and|so|though|yet|-+)\s+(?={_NEG_START}|you (?:won't|will not|will never|don't"
    rf"|shouldn't|should not|mustn't|must not|needn't|can't))"
    r"|(?<=\b(?:it|me))\s+but\s+(?=(?:what|how|can|could|is|are|should|do|does|would|why|when)\b)"
    r"|\s+(?:but|because|since|cuz|though)\s+(?=(?:i|i'm|i've|im|ive|my|we|our|he|she|they|the"
    r"|it)\b)"
    rf"|\s+-+\s+|(?<=[{HAN}])(?<![算说叫问是])\s+"
    r"(?=off the record|don't|dont|do not|please|forget)"
    rf"|(?<=off the record)\s+(?=[{HAN}]{{4}})",
    re.IGNORECASE,
)
_NAMES_CHAT = re.compile(
    r"this is an? \w+ (?:chat|conversation|convo|session|thread)"
    r"|(?:this|our)(?: whole| entire| very)? (?:chat|conversation|convo|session|thread|discussion)"
    r"(?: is|'s| was| will be| stays| remains| never| did not| didn'?t)\b.*"
    r"|(?:这|本|整)(?:一|整)*(?:次|个|场|段|轮)?(?:聊天|对话|会话|谈话)"
    r"(?:.{0,2}(?:很|是|有|涉及|属于|保密)).*"
    r"|(?:接下来|后面)(?:我|我们|要)*[说聊讲发]?的?(?:内容|话)?[都全](?:是|属于|涉及).*",
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
    r"|cheers|ta|thx|hm+|um+|uh|ugh|ah|psst|shh|by the way|for now|boss|bot|got it|just|and|but"
    r"|no|ever|always|at all"
    r"|nope|yes|yep|forget it|heads[- ]up|fyi|alright|right|yeah|scratch that|undo|never ?mind"
    r"|oops|whoops"
    r"|(?:delete|erase|wipe|remove|drop|scrap|undo) (?:that|it|this)|make (?:it|this|that) go away"
    r"|(?:i )?regret (?:typing|sending|saying|telling you|sharing) (?:that|this|it)"
    r"|honestly|seriously|quick question|you|ok啊?|谢谢你?|多谢|拜托了?|麻烦了?|好吗|好不好|行吗"
    r"|可以吗|哈+|啊|吧|哦|嗯+|呃+|对了|等等|等一下|那个|喂|抱歉|不好意思|算了|是的|忘了它?吧"
    r"|好的?|(?:删了)+"
    r"|哎呀?|唉|诶|…|\W)"
)
_FILLER = re.compile(rf"{_FILLERS}(?:\s*{_FILLERS}){{0,4}}", re.IGNORECASE)
_CODE = re.compile(
    r"\w\(\w*\)|\w\.\w+\(|[=!]=|^\W*\d{4}-\d\d-\d\d[ T]\d|^(?:INFO|WARN|DEBUG|ERROR)\b",
    re.MULTILINE,
)
_LOOKS_BACK = re.compile(
    r"(?:诶|哎|唉)?当我(?:放屁|瞎说|胡说|乱说|喝多了?)|(?:(?:it|that|this)(?:'s| is| was| is not"
    r"|'s not)(?: very| too| so| a bit"
    r"| all| still| just)* (?:private|personal|confidential|secret|sensitive|embarrassing|final"
    r"|public"
    r"|official|decided|certain|a (?:secret|joke|mistake|slip))|that i (?:told|said|sent|wrote"
    r"|mentioned)"
    r"(?: to)?(?: you)?(?: (?:this|that|it))?|i (?:told|said|sent|wrote|mentioned)(?: to)?(?: you)?"
    r" (?:this|that|it))"
    r"|(?:这|那|还|也|都|事情|目前|我)*(?:没|不|未)(?:定|确定|公开|官宣|一定|方便|合适|想好|谈好"
    r"|说过).{0,3}"
    r"|(?:i )?take back .*|i (?:was|am) (?:just )?(?:drunk|upset|angry|joking|kidding|venting|tired"
    r"|high)|"
    r"(?:you know )?what i .*(?:earlier|before)|喝多了|气话"
    r"|那[段条句](?:消息|话).*|(?:刚才?|上面|前面)那?[段条句个].*"
    r"|.*\b(?:typed|sent|wrote|posted|said) that|(?:what|everything|all) i (?:just )?(?:said|told"
    r" you|sent|wrote)\b.*|(?:我)?(?:刚才|刚刚|刚|前面|上面|之前)(?:跟你|给你)?(?:说|发|提|讲|吐槽"
    r"|聊|骂)(?:到|过)?的.*",
    re.IGNORECASE,
)
_NEXT_MESSAGE = re.compile(
    r"\b(?:my|the|this|that) next (?:message|msg|one|text|line|thing|sentence|bit|part|post)\b"
    r"|下一?(?:[条句则](?:消息|信息|讯息|话)?|个(?:消息|信息|讯息))",
    re.IGNORECASE,
)
_TELLS_SOMETHING = (
    r"(?:tell|say|share|confess|confide|admit|reveal|let you in on|get)(?: to)?(?: you)?(?: with"
    r" you)?(?: in on)? (?:something|sth|smth|a thing|one thing|a secret|this)"
)
_ANNOUNCES = re.compile(
    rf"{_NEXT_MESSAGE.pattern}"
    r"|\bwhat(?:ever)? (?:i'm|im|i am|i'll|i will|i) (?:just )?(?:about to|going to|gonna|will)?"
    r" ?(?:say|tell|share|write|type|send|confess|admit)(?: to)?(?: you)?\b(?! (?:you )?earlier"
    r"|.*\b(?:before|ago)\b)"
    r"|\bthe following\b|\bwhat (?:follows|comes next|comes now)\b"
    rf"|\b(?:i'll|i will|i'm (?:about|going) to|i am (?:about|going) to|i'm gonna|gonna|let me|i"
    rf" (?:want|need|have|would like)"
    rf" to|i'd like to|i must|i wanna|can i|may i|could i|shall i|can we|could we|may we|let us"
    rf"|let's)"
    rf" (?:{_TELLS_SOMETHING}|(?:talk|chat|discuss|speak)(?: about)? something)\b"
    r"|(?:接下来|下面|以下)(?:的?这|那)?一?[句条段]话?|(?:接下来|下面|以下|待会儿?|等下|等会儿?"
    r"|一会儿?|马上|现在)(?:我|要|想|会|准备|再)*(?:说|讲"
    r"|告诉|发|聊|提|交代|分享)|(?:以下|接下来|下面)的?(?:内容|话|消息|信息|部分)"
    r"|我(?:来|想|要)?(?:说|讲)(?:一?[件个点句桩])(?:小?秘密|事儿?|事情|话)"
    r"|有(?:一?[个件些])?(?:小?秘密|事儿?|事情|话)我?(?:要|想|得)?(?:跟|和|给|对)你(?:说|讲|坦白"
    r"|交代)"
    r"|(?:我)?(?:要|想|得|打算|准备|来)?(?:跟|和|给|向|对)你(?:说|讲|坦白|透露|交代|分享)"
    r"(?:一?[件个点句桩]|个)?(?:小?秘密|事儿?|事情|东西|话)"
    r"|有(?:一?[个件些])?(?:小?秘密|事儿?|事情|话)告诉你"
    r"|我?(?:要|想|得)?告诉你(?:一?[件个点句]|个)(?:小?秘密|事儿?|事情|话)?",
    re.IGNORECASE,
)
_ANNOUNCEMENT = re.compile(
    rf"(?:{_FILLERS}\W*){{0,3}}我?(?:{_ANNOUNCES.pattern})的?(?:(?:事情?|话|内容|东西|这些"
    rf"|这个))?(?: (?:is |will be |are )?(?:very |rather |a bit |strictly )?(?:sensitive|private"
    rf"|personal|secret|embarrassing|confidential))?"
    rf"\W*(?:now|ok|okay|first|real quick|哈|啊|吧"
    rf"|了|先)?\W*",
    re.IGNORECASE,
)
_SAID_EARLIER = re.compile(
    r"\b(?:said|told|mentioned|wrote|sent|typed|earlier|before|just now|last|previous|above)\b"
    r"|刚|之前|前面|上一|上条|上面|那句|那条|说过|说的",
    re.IGNORECASE,
)
_OF_ITSELF = re.compile(
    r"^(?!.*\b(?:just|before|earlier|last|previous|ago|above|yesterday|prior)\b)"
    r".*(?<!what )\b(?:i|ever)"
    r" (?:ever )?(?:said|told you|mentioned|wrote|brought up|typed)"
    r"(?: (?:that|this|it|so|any of (?:that|this|it)|anything))?\b"
    r"|^(?!.*(?:刚|前|上)).*(?:当|假装).{0,4}没(?:有)?(?:说|讲|提|听|看)",
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
