"""Splits what a person says into clauses, and tells which of them are plain statements about the
speaker, and since or until when they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from bot.engine.memory.said_dates import DatedSpan, find_spans
from storage.search.chinese import HAN, simplify_han

_MAX_CHARS_READ = 600
"""Longer messages are probably pasted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidClause:
    """A clause as said, and `plain`: in lower case, without opening words, times and what follows
    ("because …"). `is_unreal`: supposed, guessed, wished or in jest. `is_for_now`: for a short time
    only. `since` and `until` are the days it names."""

    text: str
    plain: str
    sentence: str
    is_asked: bool
    is_unreal: bool
    is_for_now: bool
    is_future: bool
    of_another: bool
    since: DatedSpan | None = None
    until: DatedSpan | None = None

    @property
    def holds_now(self) -> bool:
        """Whether the speaker states it, about themselves and for now and later."""
        return self.is_stated and (self.is_first_person or not self.of_another)

    @property
    def is_stated(self) -> bool:
        """Whether it is stated, of whomever, for now and later."""
        return not (self.is_asked or self.is_unreal or self.is_for_now or self.is_future)

    @property
    def is_rescheduled(self) -> bool:
        """Whether a day is moved: what is to be holds from now on."""
        return _RESCHEDULED.search(self.text) is not None and not self.is_unreal

    @property
    def is_first_person(self) -> bool:
        return _OF_SPEAKER.match(self.plain) is not None and _OF_ANOTHER.match(self.plain) is None


def said_clauses(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Iterator[SaidClause]:
    """Clauses in order. Without `today`, no days are read. Yields nothing for texts that are too
    long to be talk, or in jest as a whole."""
    read = _TITLE.sub(r"\1", simplify_han(text))
    if len(text) > _MAX_CHARS_READ or _JEST.search(read):
        return
    of_another = False
    for sentence in split_sentences(read):
        clauses = list(split_clauses(sentence))
        supposed = _SUPPOSED.search(sentence) is not None
        for at, (said, is_question) in enumerate(clauses):
            following, is_tag = clauses[at + 1] if at + 1 < len(clauses) else ("", False)
            asked = is_question or (is_tag and _TAG.fullmatch(following.strip()) is not None)
            plain, spans = _plain(said, today, month_first=month_first)
            if _OF_ANOTHER.match(plain) and not _DONE_TO_ME.match(plain):
                of_another = True
            elif _OF_SPEAKER.match(plain):
                of_another = False
            since, until = _since_and_until(spans)
            yield SaidClause(
                text=as_said(_OPENING.sub("", said).strip(), text),
                plain=plain,
                sentence=sentence,
                is_asked=asked,
                is_unreal=supposed or _UNREAL.search(said) is not None,
                is_for_now=_is_for_now(said),
                is_future=_FUTURE.search(said) is not None,
                of_another=of_another,
                since=since,
                until=until,
            )


def _is_for_now(said: str) -> bool:
    """ "Sold the car today" is over for good, "no coffee today" is not."""
    if _FINAL.search(said):
        return False
    return _FOR_NOW.search(_LASTING.sub("", _FROM_TODAY.sub("", said))) is not None


def without_authority(text: str) -> str:
    """Without "my doctor says" and the like, which leave it the speaker's own statement."""
    return re.sub(rf"\b{_CONFIRMED}", "", text, flags=re.IGNORECASE)


def names_another(text: str) -> bool:
    """Whether the text names a relative, friend or colleague."""
    return _NAMES_ANOTHER.search(simplify_han(text)) is not None


def as_said(part: str, text: str) -> str:
    """The part with the characters and capitals that it has in the text."""
    at = simplify_han(text).casefold().find(part.casefold())
    return text[at : at + len(part)] if at >= 0 else part


def split_sentences(text: str) -> Sequence[str]:
    return [each for each in _SENTENCE_END.split(text) if each.strip()]


def split_clauses(text: str) -> Iterator[tuple[str, bool]]:
    """Yields each clause and whether it is a question. A new subject ("and I …") begins one."""
    for found in _CLAUSE.finditer(_JOINTS.sub(", ", text)):
        if said := found[1].strip():
            yield said, found[2].strip() in {"?", "？"} or said.endswith(("吗", "嘛", "呢", "么"))


def without_beginning(text: str) -> str:
    """Without "as of today" and the like, which change nothing of what is said."""
    return _FROM_TODAY.sub(" ", text)


def _plain(said: str, today: date | None, *, month_first: bool) -> tuple[str, Sequence[DatedSpan]]:
    plain = _FROM_TODAY.sub(" ", said)
    spans: Sequence[DatedSpan] = ()
    if today is not None:
        ahead = _FUTURE.search(said) is not None
        spans = find_spans(plain, today, month_first=month_first, ahead=ahead)
    for each in reversed(spans):
        plain = f"{plain[: each.start]} {plain[each.end :]}"
    plain = " ".join(plain.replace("’", "'").casefold().split()).strip(" ,.!！。，~～")
    if today is None:
        plain = _TIMES.sub(" ", plain)
    before = ""
    while before != plain:
        before = plain
        plain = _OPENING.sub("", plain).strip()
        plain = _LED_IN.sub("", plain)
        plain = _TRAILING.sub("", plain).strip()
    plain = _ADVERBS.sub(r"\1 ", _LEADING.sub("", plain))
    if not plain.isascii():
        plain = _LED_IN_ZH.sub("", plain)
        plain = _ADVERBS_ZH.sub(r"\1", plain)
        plain = re.sub(rf"(?<=[{HAN}]) | (?=[{HAN}])", "", plain)
    return plain, spans


def _since_and_until(spans: Sequence[DatedSpan]) -> tuple[DatedSpan | None, DatedSpan | None]:
    until = next((each for each in spans if each.is_until), None)
    since = next((each for each in spans if not each.is_until), None)
    return since, until


_SENTENCE_END = re.compile(
    r"(?<=[。!！?？\n;；])|(?<=\.)(?<!\b[DMS][rst]\.)(?<!\b(?:Mrs|Jan|Feb|Mar|Apr|Aug|Sep|Oct|Nov"
    r"|Dec)\.)(?=\s|$)"
)
_CLAUSE = re.compile(
    r"([^，,。.!！?？；;\n—–:：]{1,300}(?:(?:\.(?=\w)"
    r"|(?<=\d)[:：](?=\d))[^，,。.!！?？；;\n—–:：]{0,200})*)"
    r"([，,。.!！?？；;\n—–:：]|$)"
)
_JOINTS = re.compile(
    rf"(?<=[{HAN}]{{3}})\s+(?=[{HAN}]{{2}})|"
    r"(?i:\s+(?:and|but|so|because|though|although)\s+(?=(?:now\s+|also\s+|actually\s+"
    r"|currently\s+|then\s+)?(?:i\b|i['’]|my\b|we\b|please\b|he\b|she\b|they\b)))"
    r"|(?:但是|但|不过|而且|并且|所以|然后|因为)(?=我|现在|已经|也|住|在|对|不吃)"
)
_TAG = re.compile(
    r"(?i:(?:do|did|am|have|was|would|don['’]?t|didn['’]?t|haven['’]?t|aren['’]?t) i(?: not)?"
    r"|right|correct|or|is it|isn['’]?t it|huh|eh"
    r"|对吗|对吧|是吧|是吗|对不对|是不是|好吗)"
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|suppose|supposing|imagine|assuming|assume|what if|as if|as though|in case"
    r"|hypothetically|dream(?:t|ed)|in my dreams?)\b"
    r"|梦见|梦到|做梦|如果|要是|假如|假设|假使|倘若|万一|若是|的话|比方说|就算|即使|哪怕",
    re.IGNORECASE,
)
_UNREAL = re.compile(
    r"\b(?:don['’]t (?:tell me|say)|maybe|perhaps|probably|possibly|might|may(?= (?:have|be|not))"
    r"|would(?! rather)|could"
    r"|should|wish"
    r"|hope|guess|i think|i thought|i believe"
    r"|not sure|whether|try(?:ing)? to|tried to|want to|wanted to|wanna|thinking (?:of|about)"
    r"|considering|almost|nearly|dream(?:t|ed)?|pretend|(?:do not|don['’]t) think|as a kid"
    r"|no way|not that|it['’]?s not that|imagine)\b"
    r"|可能|也许|或许|大概|好像|似乎|应该是|应该|差点|是不是|会不会|有没有|要不要|难道|怎么"
    r"|为什么|什么|谁(?!都)|哪|梦见|梦到|做梦"
    r"|想要不|试着|尝试|考虑|犹豫|恨不得|建议|劝|叫我|(?<!医生)(?<!大夫)让我|想(?!再)(?:不|戒|停"
    r"|搬|换|辞)|并不是说"
    r"|不是说|幸好|听说"
    r"|据说|估计|恐怕",
    re.IGNORECASE,
)
_FOR_NOW = re.compile(
    r"\b(?:today|tonight|this (?:week|weekend|\w+day|morning|evening|afternoon|time|once)"
    r"|for (?:now"
    r"|the moment|a while|a bit|the time being|lunch|dinner|breakfast|dessert|once|a week"
    r"|two weeks)"
    r"|temporarily|at the moment|right now|yet|until (?:then|later|tomorrow)|so far|on weekdays"
    r"|on mondays|lent)\b"
    r"|今天|今晚|今早|今日|这周|本周|这次|这一次|这会儿|这两天|这几天|暂时|临时|先不|一时|目前先"
    r"|等会儿?|待会|晚饭|午饭|早饭|这[顿餐杯碗瓶份盘口根支局把]|这个周末",
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"\b(?:got (?:my|the) \w+ (?:off|out|removed)|(?:got|was|been) (?:laid off|fired|let go)"
    r"|quit my|resigned|handed in|sold|broke up"
    r"|came off|gave away|signed|graduated|got engaged|got married|was stolen|moved on"
    r"|divorced|moved (?:to|out|in)|passed away|died|cancelled)\b"
    r"|(?<!外)卖[了掉]|辞职|离职|分手|离婚|退租|注销|去世|毕业|签了|拆了|送走|领证|生了|入职|搬到",
    re.IGNORECASE,
)
_FROM_TODAY = re.compile(
    r"(?i:\b(?:as of|from|starting|beginning|since)(?: from)? (?:today|now|this (?:week|month"
    r"|year))(?: on(?:wards?)?)?\b)"
    r"|(?:从|自|打)?(?:今天|今日|现在|今晚|这周|本周|这个月|本月|今年)(?:起|开始)"
)
_RESCHEDULED = re.compile(
    r"\b(?:postponed|rescheduled|pushed back|brought forward|moved to|put off)\b"
    r"|推迟|延[后期]到?|提前|改到|改在|[挪调移]到",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:days|weeks|months|years)\b.*\btoday\b|(?:周|月|年)了?.{0,4}今天", re.IGNORECASE
)
"""The day on which something has lasted so long."""
_FUTURE = re.compile(
    r"\b(?:will(?! not\b)|i['’]ll|going to(?! the\b)|gonna|plan(?:s|ning)? (?:to|on)|about to"
    r"|intend(?:ing)? to|hope to|soon|"
    r"(?:next|coming) (?:week|month|year|spring|summer|autumn|fall|winter|\w+day)|tomorrow"
    r"|in \w+ (?:days?|weeks?|months?|years?)|one day|someday|eventually)\b"
    r"|明天|后天|明年|后年|下(?:个)?(?:周|月|星期|礼拜|年|半年)|将(?!近)|打算|准备(?!好)|计划"
    r"|即将|等(?=我|以后)|马上(?:就)?要|快要|就要|以后要|迟早|总有一天|年底要|要(?=搬|换|去|离开|辞"
    r"|跳槽)"
    r"|会(?=搬|换|去|离开|辞)",
    re.IGNORECASE,
)
_JEST = re.compile(
    r"\b(?:just kidding|kidding|jk|joking|as a joke|just a joke|not really"
    r"|/s|sarcasm|april fools?)\b|开玩笑|逗你|骗你|玩笑|愚人节|闹着玩",
    re.IGNORECASE,
)
_DONE_TO_ME = re.compile(r"\w+ (?:tested|retested|checked|took|put|let|laid) me\b")
_TITLE = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St)\.(?= )")
_TIMES = re.compile(
    r"\b(?:last|this|next|past) (?:week|month|year|spring|summer|autumn|fall|winter|night)\b"
    r"|\byesterday\b|\bon (?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
)
_CONFIRMED = (
    r"(?:it turn(?:s|ed) out|(?:(?:my|the) )?(?:doc|doctor|gp|nurse|vet|dentist|specialist"
    r"|allergist|test|tests|results?)"
    r" (?:confirmed|found|shows?|showed|proved|says?|said|told me)"
    r"|i(?:'m| am) (?:happy|glad|sad|sorry|proud) to (?:say|report|announce)"
    r"|i can (?:now )?confirm)(?: that)? "
)
_OPENING = re.compile(
    rf"^{_CONFIRMED}|"
    r"^(?:(?:hi|hey|hello|btw|by the way|fyi|also|and|so|well|oh|ok|okay|yes|no(?=[,:;])|nope"
    r"|yeah|yep"
    r"|actually|sorry|please|but|then|now|today|then again|in fact|turns out|it turns out"
    r"|honestly|frankly|anyway"
    r"|update|correction|small correction|just so you know|for the record|to be clear"
    r"|to be honest|tbh|just to (?:update|let) you(?: know)?|(?:i )?(?:should|must|have to"
    r"|need to) (?:say|mention|tell you)(?: that)?"
    r"|good news|bad news|news|these days|nowadays|lately|recently|finally|sadly|unfortunately"
    r"|fortunately|thankfully|luckily|currently|meanwhile|(?:please )?(?:note|remember"
    r"|keep in mind)(?: that)?|i said it wrong"
    r"|don['’]t forget(?: that)?|what i said (?:before )?(?:is|was) wrong|that['’]s (?:wrong|old"
    r"|outdated|not right|no longer true|not true any ?more)|you(?: still)? (?:think|believe"
    r"|remember)(?: that)?|scratch that|my bad|my mistake|as you know|you should know(?: that)?"
    r"|one more thing|(?:a )?(?:little|quick|small) (?:update|note|thing))\b[:, -]*)+"
    r"|^[^，]{0,8}?(?:医生|大夫|医师|检查|复查|化验|体检|报告|结果)(?:都|也)?(?:说|告诉我|确认|证实"
    r"|显示)(?=我)|^(?:(?:请|麻烦|帮我|你要?"
    r"|一定要?|务必)*(?:记住|记一下|记下来?|记得|别忘了)|对了|其实|另外"
    r"|不对|不是|更正(?:一下)?|纠正(?:一下)?|哦|噢|啊|嗯|那个|话说|说起来|说实话|老实说|事实上"
    r"|实际上|最近|现在|目前|如今|后来|已经|终于|刚刚|刚(?!才)|最终|结果"
    r"|顺便(?:说|提)一?[下句]|跟你说(?:一下|个事)?|告诉你(?:一声|个事)?|提醒(?:你)?一下|更新一下"
    r"|说错了|我说错了|搞错了|还有|以后|今后|从此|那(?!边|里|儿|个)|但是?|不过|而且|所以|因为"
    r"|可是)[，,：: ]*(?=.)",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"(?:[ ,]+(?:after all|any ?more|any longer|these days|nowadays|now|at all|by the way|btw"
    r"|actually"
    r"|though|either|too|as well|anyway|sadly|unfortunately|thankfully|finally|for good|forever"
    r"|permanently|completely|altogether|entirely|lately|recently|you know|please|instead"
    r"|at some point|for health reasons|for good now|since then|already|just so you know|fyi)"
    r"|(?:,? )(?:because|since (?=i\b|my\b|the\b|it\b)|so (?=please|could|can|i\b|you|don't|stop"
    r"|no )|which |as (?=i\b|my\b|of\b)|although|even though|though |but |after |ever since"
    r"|along with |together with |due to|thanks to|for (?=health|my |medical|religious|ethical"
    r"|years)|when i|while i"
    r"|and (?=i\b|now|please|my|it|that)|on (?=doctor|my doctor|medical)|in favou?r of"
    r"|to (?=save|be|lose|stay|get|protect|help)|with (?=the|my|no)|where |not .*even).*)$"
    r"|[ ,]+(?:lol|haha+|hehe|xd|😊|🙂|😂|🎉|❤️?)+$"
    r"|(?:了)?(?:真的|哈+|嘿+|啊|呀|哦|喔|啦|咯|呢|嘛|吧|哟|唉)$",
    re.IGNORECASE,
)
_LEADING = re.compile(
    r"^(?:after|since|thanks to|because of|due to|on|in|for|with|following|at) (?!i\b|we\b)"
    r"[^,]{1,40}?\b(?=i\b|my\b)"
)
_LED_IN_ZH = re.compile(r"^[^，我不没]{1,8}(?:以后|之后|以来|后)(?=我)")
_LED_IN = re.compile(
    r"^(?:(?!(?:i|if|when|that|because|he|she|they|it|you|we|said|says|think|thinks|hope|wish|as"
    r"|while"
    r"|until|till|unless|before|after|than|what|where|how|why|who|which|like|and|or|not|no|my|our"
    r"|the"
    r"|a|an|since|did|do|does|am|was|were|is|are|can|could|should|would|will"
    r"|whether)\b)[a-z]+ ){1,3}"
    r"(?=i(?:'m|'ve)? )"
)
_ADVERBS = re.compile(
    r"^(i|i'm|i am|i've|i have|we|we're|we've)(?: (?:actually|really|finally|just|recently|now|also"
    r"|already|sadly|officially|totally|completely|definitely|certainly|currently|honestly|simply"
    r"|fully|truly))+ "
)
_ADVERBS_ZH = re.compile(
    r"^(我们?|咱们?)(?:最近|现在|已经|早就|目前|其实|终于|刚刚|刚(?!才)|后来|真的|也|都|就|如今"
    r"|早已|前阵子"
    r"|前段时间|已)+"
)
_OF_SPEAKER = re.compile(r"(?:i\b|i'|we\b|we'|my (?!\w+ (?:said|says|thinks|told))|我|本人|咱)")
_KIN = (
    r"(?:妈|爸|姐|哥|弟|妹|爷(?!们)|奶(?![茶粉油酪昔牛制黄])|外公|外婆|老婆|老公|太太|先生|妻子"
    r"|丈夫|女儿|儿子|孩子|朋友"
    r"|同事|老板|同学|室友|邻居|女友|男友|对象|爱人|叔|阿姨|姑(?!且)|舅|表(?=[哥姐弟妹])"
    r"|堂(?=[哥姐弟妹])|侄|客户|领导|经理|老师|媳妇"
    r"|父(?!节)|(?<!字)母(?!语|校|节)|家人|父母|闺蜜|兄弟)"
)
_KIN_EN = (
    r"(?:wife|husband|partner|mother|mom|mum|father|dad|parents?|sister|brother|son|daughter|kids?"
    r"|child(?:ren)?|friends?|boss|colleagues?|cow-?orkers?|neighbou?rs?|roommates?|flatmates?"
    r"|girlfriend|boyfriend|fianc[eé]e?|cousin|uncle|aunt|grand\w+|team|company|client|manager"
    r"|teacher|doctor|mate|buddy|pal|bestie|nephew|niece|in-laws?|guest)s?"
)
_NAMES_ANOTHER = re.compile(rf"\b{_KIN_EN}\b|{_KIN}", re.IGNORECASE)
_OF_ANOTHER = re.compile(
    r"(?:mum|mom|mummy|dad|daddy|granny|grandma|grandpa|nan|he|she|they|you|it|his|her|their|your"
    r"|everyone|someone|nobody|people|one|anyone|who)\b"
    rf"|(?:my|our|the|a) (?:\w+ )?{_KIN_EN}\b(?! is my| are my)"
    rf"|(?:我|我们|我家|咱)(?:的|家)?[老小大二三]?{_KIN}|[他她它]|你|您|大家|别人|有人|人家"
    rf"|小[\u4e00-\u9fff]|老[王李张刘陈杨赵黄周吴徐孙马朱胡郭何林罗郑梁谢宋唐许韩冯]|{_KIN}",
    re.IGNORECASE,
)
