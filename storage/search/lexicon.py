"""Provides word lists for search: English stems and stop words, Chinese question phrases, and
synonyms (English ones in `families.txt`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

_VOWELS = frozenset("aeiouy")
_IRREGULAR = {
    form: word
    for word, forms in {
        "be": "been",
        "become": "became",
        "begin": "began begun",
        "bite": "bit bitten",
        "blow": "blew blown",
        "break": "broke broken",
        "bring": "brought",
        "build": "built",
        "burn": "burnt",
        "buy": "bought",
        "catch": "caught",
        "child": "children",
        "choose": "chose chosen",
        "come": "came",
        "deal": "dealt",
        "dig": "dug",
        "draw": "drew drawn",
        "dream": "dreamt",
        "drink": "drank drunk",
        "drive": "drove driven",
        "eat": "ate eaten",
        "fall": "fell fallen",
        "feed": "fed",
        "feel": "felt",
        "fight": "fought",
        "find": "found",
        "fly": "flew flown",
        "foot": "feet",
        "forget": "forgot forgotten",
        "freeze": "froze frozen",
        "get": "got gotten",
        "give": "gave given",
        "go": "went gone goes going",
        "grow": "grew grown",
        "hang": "hung",
        "hear": "heard",
        "hide": "hid hidden",
        "hold": "held",
        "keep": "kept",
        "knife": "knives",
        "know": "knew known",
        "lead": "led",
        "learn": "learnt",
        "leave": "left",
        "lend": "lent",
        "life": "lives",
        "lose": "lost",
        "make": "made",
        "man": "men",
        "marry": "married marriage",
        "mean": "meant",
        "meet": "met",
        "mouse": "mice",
        "pay": "paid",
        "person": "people persons",
        "ride": "rode ridden",
        "ring": "rang rung",
        "rise": "rose risen",
        "run": "ran",
        "see": "saw seen",
        "sell": "sold",
        "send": "sent",
        "shake": "shook shaken",
        "shine": "shone",
        "shoot": "shot",
        "show": "shown",
        "sing": "sang sung",
        "sink": "sank sunk",
        "sit": "sat",
        "sleep": "slept",
        "speak": "spoke spoken",
        "spend": "spent",
        "stand": "stood",
        "steal": "stole stolen",
        "stick": "stuck",
        "swim": "swam swum",
        "take": "took taken",
        "teach": "taught",
        "tear": "tore torn",
        "think": "thought",
        "throw": "threw thrown",
        "tooth": "teeth",
        "understand": "understood",
        "wake": "woke woken",
        "wear": "wore worn",
        "wife": "wives",
        "win": "won",
        "woman": "women",
        "write": "wrote written",
        "bigger": "biggest",
        "husband": "hubby",
        "mother": "mom mum mommy mama",
        "father": "dad daddy papa",
        "kid": "kiddo kiddos",
        "photo": "photograph pic pics photography",
        "bicycle": "bike bikes",
    }.items()
    for form in forms.split()
}

_ENGLISH_FILLERS = """
a about above after again against ain all also although always am an and any are aren as at be
because been before being below between both but by can cannot cant could couldn couldnt d did
didn didnt do does doesn doesnt doing don done dont down during each either else etc ever every
few for from further had hadn has hasn hasnt have haven havent having he hed her here hers herself
hes hi him himself his how however i id if ill im in into is isn isnt it itd its itself ive just
ll m ma may me might more most much must my myself need no nor not now o of off oh ok okay on once
one only or other our ours ourselves out over own per please quite re really s said same say says
shall shan she shes should shouldn shouldnt since so some still such t tell than thanks that thats
the their theirs them themselves then there theres these they theyre theyve this those though
through to told too under until up upon us ve very was wasn wasnt we well were weren werent weve
what whats when where whether which while who whom whose why will with within without wont would
wouldn wouldnt yeah yes yet you youd youll your youre yours yourself yourselves youve
"""
ENGLISH_STOP_WORDS = frozenset(_ENGLISH_FILLERS.split())
"""Words too frequent to search for."""

_WORK_WORDS = """
change command content contents create edit file files folder line lines make number output read
report result results run step steps task tasks text use write
csv html ini json log md pdf py sh toml txt yaml yml
"""
WORK_WORDS = frozenset(_WORK_WORDS.split()) | frozenset(
    ("文件", "读取", "写入", "运行", "执行", "任务", "步骤", "内容", "结果", "输出", "创建", "修改")
)
"""Words of nearly every order, and endings of file names: that two orders share one says nothing
about their subjects."""

_QUESTION_WORDS = """
according anything certain currently describe different discuss exact exactly kind many
mention often particular recently regarding remember something sort specific thing things type types
various way ways
"""

_MIN_STEM = 3
"""Minimum letters of a stem."""


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a lower-case word. It need not be a word, only equal for all forms."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= _MIN_STEM or not word.isascii() or not word.isalpha():
        return word
    word = _strip_plural(word)
    word = _strip_tense(word)
    word = _strip_suffix(word)
    if word.endswith("e") and len(word) > _MIN_STEM:
        word = word[:-1]
    if word.endswith("i") and len(word) > _MIN_STEM:
        word = word[:-1] + "y"
    return word


def _strip_plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > _MIN_STEM + 1 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _strip_tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-3] + "y" if len(word) > _MIN_STEM + 1 else word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 3 - (ending == "ed") and not _VOWELS.isdisjoint(rest):
            return _undouble(rest)
    return word


def _undouble(rest: str) -> str:
    if len(rest) > _MIN_STEM and rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return rest[:-1]
    return rest


_ENDINGS = (
    ("fulness", "", 3),
    ("iness", "y", 3),
    ("ness", "", 3),
    ("fully", "", 3),
    ("ment", "", 4),
    ("ation", "at", 3),
    ("tion", "t", 3),
    ("ssion", "ss", 3),
    ("ity", "", 4),
    ("ily", "y", 3),
    ("ally", "", 4),
    ("ly", "", 3),
    ("ful", "", 4),
    ("er", "", 4),
    ("ist", "", 4),
)
"""An ending, its replacement, and the minimum letters that must remain."""


def _strip_suffix(word: str) -> str:
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            return _undouble(word[: -len(ending)] + instead)
    return word


QUESTION_STEMS = frozenset(stem(word) for word in _QUESTION_WORDS.split())
"""Stems that occur almost only in questions."""


_CHINESE_FILLERS = frozenset(
    "的了是我你您他她它们在吗呢吧啊呀哦嗯么什哪谁怎和与跟就都也还很到过着把被给对这那有没不个些"
    "会要能可以去来说又再从向于之其将让为或但而且因所如果并只才已经曾时候里上下中后前一"
)
CHINESE_QUESTION_PHRASES = (
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
"""Removed whole, the longest first among those with a common start."""


_CHINESE_PARTICLES = frozenset("吗呢吧啊呀的了")
"""They end a word: a pair with one of them is not a word."""


def is_chinese_filler(term: str) -> bool:
    """Whether a character or pair is too frequent to search for."""
    return _CHINESE_FILLERS.issuperset(term) or not _CHINESE_PARTICLES.isdisjoint(term)


SYNONYM_WEIGHT = 0.35
HYPONYM_WEIGHT = 0.2
"""Weight of a synonym or hyponym of a query word. Measured by `benchmarks memory`: with more,
exact matches get lost."""

SYNONYM_FILE = Path(__file__).with_name("families.txt")
_ENGLISH_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class _SynonymTable:
    """Related stems and their weights, by word and by phrase."""

    by_word: Mapping[str, Mapping[str, float]]
    phrases: Mapping[str, Mapping[str, float]]


def english_synonyms(words: Iterable[str], text: str) -> Mapping[str, float]:
    """Weighted stems that may express these English words and the text's phrases."""
    families = _load_synonyms()
    found: dict[str, float] = {}
    for word in words:
        _merge_max(found, families.by_word.get(word, {}))
    said = f" {' '.join(map(stem, _ENGLISH_WORD.findall(text.lower())))} "
    for phrase, others in families.phrases.items():
        if phrase in said:
            _merge_max(found, others)
    return found


def chinese_synonyms(text: str) -> Iterator[str]:
    """Chinese synonyms of words in a text."""
    for group in _CHINESE_GROUPS:
        if any(word in text for word in group):
            yield from (word for word in group if word not in text)


@cache
def _load_synonyms() -> _SynonymTable:
    of: defaultdict[str, dict[str, float]] = defaultdict(dict)
    phrases: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in SYNONYM_FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        kinds, is_kind, members = line.partition(":")
        phrase, is_phrase, others = line.partition("=")
        if is_phrase:
            _merge_max(
                phrases[f" {' '.join(_stems(phrase))} "], _weighted_stems(others, SYNONYM_WEIGHT)
            )
        elif is_kind:
            for kind in _stems(kinds):
                _merge_max(of[kind], _weighted_stems(members, HYPONYM_WEIGHT))
        else:
            family = _weighted_stems(line, SYNONYM_WEIGHT)
            for word in family:
                _merge_max(of[word], family)
    return _SynonymTable(of, phrases)


def _stems(words: str) -> Iterator[str]:
    return map(stem, words.split())


def _weighted_stems(words: str, weight: float) -> Mapping[str, float]:
    return dict.fromkeys(_stems(words), weight)


def _merge_max(found: dict[str, float], more: Mapping[str, float]) -> None:
    for word, weight in more.items():
        found[word] = max(weight, found.get(word, 0.0))


_CHINESE_SYNONYMS = """
宠物 狗 猫 养
狗 柯基 金毛 泰迪 小狗
工作 上班 职业 公司 岗位
老板 领导 上司
同事 同僚
辞职 离职 换工作
住 搬 家 房子 地址
房租 租金
旅游 旅行 出游 游玩 景点
出差 差旅
电影 影片 片子
书 小说 书籍 读
音乐 歌 歌曲 听
乐器 吉他 钢琴 尤克里里 小提琴
运动 健身 锻炼 跑步 游泳
比赛 马拉松 竞赛
爱好 喜欢 兴趣
讨厌 不喜欢 反感
美食 好吃 菜 餐厅 火锅
饮料 奶茶 咖啡 茶
礼物 送 礼品
生日 过生日
过敏 疹子
生病 感冒 发烧 医院 医生
受伤 扭伤 摔 骨折
难过 伤心 不开心 烦恼
开心 高兴 快乐
压力 焦虑 紧张
睡眠 失眠 睡不着 睡
朋友 同学 好友
妈妈 母亲
爸爸 父亲
孩子 儿子 女儿
结婚 婚礼 订婚
发布 上线 发版
部署 发布
报错 错误 异常 挂了 崩溃
慢 卡 超时
数据库 PostgreSQL MySQL SQLite
缓存 Redis
推迟 延期 延后
休假 请假 度假
预算 费用 花
买 购买 下单
坏 损坏 弄坏
联系人 接口人 对接
负责 接手
版本 下一版
建议 推荐
回答 回复
"""
_CHINESE_GROUPS = [line.split() for line in _CHINESE_SYNONYMS.strip().splitlines()]
