"""Kinds of things of which people use, drive or prefer one at a time, by the names that such things
have, and when a new one takes the place of another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from storage.search.chinese import HAN, simplify_han


def preferred_slot(text: str) -> str:
    """The kind of thing that a text prefers one of, empty if unknown or if it names several."""
    return named_slot(text) if _PREFERS.search(text.casefold()) else ""


def named_slot(text: str) -> str:
    """The kind of thing that a text names one of."""
    apart = _SCRIPT_EDGE.sub(" ", text.casefold())
    named = {slot for slot, pattern in KINDS if pattern.search(apart)}
    return named.pop() if len(named) == 1 else ""


def names_new_thing(said: str) -> bool:
    """Whether the words tell that a thing was exchanged for another."""
    return _EXCHANGED.search(said) is not None and _BESIDE.search(said) is None


def has_other_thing(said: str, fact: str) -> bool:
    """Whether the words tell that the thing of the fact was exchanged: for one of its kind by name,
    or for "a new phone"."""
    told, given = _apart(said), _things_in(said)
    for kind, held in _things_in(fact).items():
        if kind in _TASTES:
            continue
        now = given.get(kind)
        if now is None:
            class_word = _CLASS_WORDS.get(kind)
            if class_word and re.search(
                rf"\bnew (?:\w+ )?{class_word[0]}|(?:新|换了?[^，]{{0,3}}){class_word[1]}"
                rf"|{class_word[1]}[^，]{{0,3}}换了",
                told,
            ):
                return True
            continue
        if any(_is_part(each, now) for each in held) and any(
            _BECAME.search(told[: at.start()])
            for each in held
            for at in re.finditer(re.escape(each), told)
        ):
            return False
        if any(not _is_part(each, held) for each in now):
            return True
    return False


def things_named(text: str) -> frozenset[str]:
    """Kinds of things that a fact names one of."""
    return frozenset(_things_in(text))


def things_asked_for(question: str) -> frozenset[str]:
    """Kinds of things that a question names by their kind: "what phone"."""
    apart = _apart(question)
    return frozenset(
        kind
        for kind, words in _CLASS_WORDS.items()
        if any(re.search(each, apart) for each in words)
    )


def _apart(text: str) -> str:
    return _SCRIPT_EDGE.sub(" ", simplify_han(text).casefold())


@lru_cache(maxsize=500)
def _things_in(text: str) -> Mapping[str, frozenset[str]]:
    """By their kind, the names of things without spaces."""
    apart = _apart(text)
    named = {
        kind: frozenset(each[0].replace(" ", "") for each in pattern.finditer(apart))
        for kind, pattern in KINDS
    }
    return {kind: found for kind, found in named.items() if found}


def _is_part(name: str, among: frozenset[str]) -> bool:
    return any(name.startswith(each) or each.startswith(name) for each in among)


_TASTES = frozenset(
    {
        "hot drink",
        "units",
        "clock",
        "seat",
        "part of the day",
        "pet",
        "travel",
        "channel",
        "water",
        "taste",
        "format",
        "theme",
        "indentation",
        "language of code",
    }
)
"""Kinds of which people have more than one, if they do not prefer one of them."""
_CLASS_WORDS = {
    "phone": (r"(?:phone|mobile|handset)\b", "手机"),
    "car": (r"(?:car|ride|suv)\b", "车"),
    "laptop": (r"(?:laptop|notebook)\b", "(?:笔记本|电脑)"),
    "editor": (r"(?:editor|ide)\b", "编辑器"),
    "browser": (r"browser\b", "浏览器"),
    "notes": (r"notes?\b", "笔记"),
    "mail": (r"(?:e-?mail|mailbox)\b", "邮箱"),
    "passwords": (r"passwords?\b", "密码"),
    "tickets": (r"(?:tickets?|tasks?|to-?dos?|issues?)\b", "(?:任务|待办)"),
    "music": (r"music\b", "音乐"),
    "cloud": (r"(?:cloud|hosting)\b", "云服务"),
    "carrier": (r"(?:carrier|provider)\b", "运营商"),
}
_EXCHANGED = re.compile(
    r"\b(?:new|upgraded|downgraded|switched|replaced|traded|swapped|moved|migrated|changed"
    r"|went with|now"
    r"|instead|ditched|converted|back (?:on|to)|these days|nowadays|from now on)\b|换|改用|升级"
    r"|现在|新|入手|转[到用向]|迁",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:another|second|also|too|as well|in addition|besides|for my|for work|work (?:phone"
    r"|laptop|car)"
    r"|loaner|rental|borrowed|test(?:ing|ed)?|try(?:ing)?)\b|另外|备用|第二|也[用买开]|还[有买用]"
    r"|给.{1,6}[买换]|同时|租了?|借|试[用驾]",
    re.IGNORECASE,
)
_BECAME = re.compile(
    r"(?:\bto|\bback on|\bnow|\buse|\bdrive|\bgot|\bwith|换成了?|换回了?|现在用|现在开|改用"
    r"|回到)[ 的是an]*(?:my |the |new )*$"
)

_PREFERS = re.compile(r"\b(?:prefer\w*|favou?rite)\b|更?喜欢|偏好|偏爱|习惯|最爱")
_SCRIPT_EDGE = re.compile(rf"(?<=[{HAN}])(?=[a-z0-9])|(?<=[a-z0-9])(?=[{HAN}])")
_PHONES = (
    r"\biphones?(?: ?(?:\d{1,2}|se|x[rs]?)(?: ?(?:pro|max|plus|mini))*)?\b"
    r"|\bpixel(?: ?\d\w?(?: ?(?:pro|xl))*)?\b"
    r"|\bgalaxy(?: ?\w\d+\w*)?\b|\b(?:fairphone|oneplus|nothing phone|xperia|redmi|oppo|vivo|nokia"
    r"|motorola|android phone)(?: ?\d+)?\b|(?:小米|华为|荣耀|红米|一加|三星|魅族"
    r"|苹果)(?: ?(?:\d{1,2}|mate|p\d+|手机)"
    r"(?: ?(?:pro|ultra|max))*)?"
)
_CARS = (
    r"\b(?:vw|volkswagen|golf|passat|polo|tesla|model [3ysx]|bmw|audi|mercedes|benz|toyota"
    r"|corolla|yaris|prius"
    r"|camry|honda|civic|ford|fiesta|focus|mondeo|opel|corsa|astra|skoda|octavia|fabia|seat ibiza"
    r"|volvo"
    r"|renault|clio|zoe|peugeot|citro[eë]n|fiat|panda|kia|hyundai|mazda|nissan|leaf|subaru|suzuki"
    r"|dacia|jeep"
    r"|porsche|saab|mini cooper|byd|polestar|lexus)\b|特斯拉|比亚迪|大众|高尔夫|帕萨特|丰田"
    r"|卡罗拉|凯美瑞|本田|雅阁|思域"
    r"|奥迪|宝马|奔驰|沃尔沃|理想|蔚来|小鹏|吉利|长安|哈弗|五菱|日产|轩逸|别克|福特|马自达|起亚"
    r"|现代汽车|问界|极氪"
)
_LAPTOPS = (
    r"\b(?:macbook(?: (?:air|pro))?|thinkpad(?: ?\w\d+\w*)?|xps(?: ?\d+)?|surface(?: (?:pro"
    r"|laptop))?|zenbook"
    r"|framework(?: ?\d+)?|ideapad|matebook|latitude|elitebook|chromebook)\b"
)
KINDS = tuple(
    (slot, re.compile(pattern))
    for slot, pattern in (
        ("theme", r"\b(?:dark|light)(?: mode| theme)?\b|[深浅暗亮]色|黑暗模式|夜间模式|日间模式"),
        ("hot drink", r"\b(?:tea|coffee|espresso|cappuccino|latte|matcha)\b|咖啡|茶|拿铁|美式"),
        ("indentation", r"\b(?:tabs?|spaces)\b|空格|制表符"),
        (
            "editor",
            r"\b(?:vim|neovim|emacs|vs ?code|intellij|pycharm|sublime(?: text)?|nano|helix|zed)\b",
        ),
        ("system", r"\b(?:mac(?:os)?|linux|windows|ubuntu|debian|arch|fedora)\b"),
        ("browser", r"\b(?:chrome|firefox|safari|edge|brave|arc|opera)\b"),
        (
            "units",
            (
                r"\b(?:metric|imperial|celsius|fahrenheit|kilomet(?:er|re)s|miles)\b|摄氏|华氏|公制"
                r"|英制"
            ),
        ),
        ("clock", r"\b(?:12|24)[- ]?hour\b|(?:12|24|十二|二十四)小时制"),
        ("seat", r"\b(?:window|aisle)(?: seats?)?\b|靠窗|靠过道|过道位"),
        ("part of the day", r"\b(?:mornings?|afternoons?|evenings?)\b|上午|下午|早上|晚上"),
        ("pet", r"\b(?:cats?|dogs?)\b|猫|狗"),
        ("travel", r"\b(?:trains?|planes?|flying|driving|cars?)\b|高铁|火车|飞机|自驾"),
        (
            "language of code",
            r"\b(?:python|javascript|typescript|java|rust|golang|go|kotlin|ruby|c\+\+)(?![\w+])",
        ),
        ("shell", r"\b(?:bash|zsh|fish shell|powershell)\b"),
        (
            "channel",
            (
                r"\b(?:e-?mails?|phone calls?|calls|chat|slack|text messages|video calls?)\b|电话"
                r"|邮件|微信|短信|飞书"
            ),
        ),
        ("package manager", r"\b(?:npm|pnpm|yarn|bun|pip|poetry|uv)\b"),
        ("water", r"\b(?:still|sparkling) water\b|气泡水|矿泉水"),
        ("taste", r"\b(?:sweet|salty|spicy|mild)\b|甜|咸|辣|清淡"),
        ("format", r"\b(?:tables?|lists?|bullet points|prose)\b|表格|列表|段落"),
        ("phone", _PHONES),
        ("car", _CARS),
        ("laptop", _LAPTOPS),
        (
            "notes",
            (
                r"\b(?:notion|obsidian|evernote|onenote|logseq|roam|joplin|bear|apple notes"
                r"|google keep|standard notes)\b|印象笔记|有道云笔记|语雀|备忘录|幕布"
            ),
        ),
        (
            "mail",
            (
                r"\b(?:gmail|outlook|proton ?mail|fastmail|thunderbird|yahoo mail|qq mail)\b"
                r"|qq ?邮箱"
                r"|163 ?邮箱|网易邮箱"
            ),
        ),
        ("passwords", r"\b(?:1password|bitwarden|lastpass|keepass(?:xc)?|dashlane|nordpass)\b"),
        (
            "tickets",
            (
                r"\b(?:jira|linear|asana|trello|clickup|redmine|youtrack|basecamp|monday\.com"
                r"|todoist"
                r"|ticktick|things 3)\b|禅道|滴答清单|飞书项目|tapd"
            ),
        ),
        ("code host", r"\b(?:github|gitlab|gitee|bitbucket|codeberg|gitea)\b"),
        (
            "music",
            (
                r"\b(?:spotify|apple music|tidal|deezer|youtube music|qobuz)\b|网易云(?:音乐)?"
                r"|qq ?音乐"
                r"|酷狗"
            ),
        ),
        (
            "cloud",
            (
                r"\b(?:aws|gcp|azure|hetzner|digitalocean|linode|ovh|vercel|netlify|heroku"
                r"|fly\.io)\b"
                r"|阿里云|腾讯云|华为云"
            ),
        ),
        (
            "assistant",
            (
                r"\b(?:chatgpt|claude|gemini|copilot|cursor|perplexity|deepseek|codex)\b|豆包"
                r"|文心一言|通义"
            ),
        ),
        (
            "carrier",
            (
                r"\b(?:t-mobile|vodafone|verizon|at&t|o2|orange|telekom|sunrise|swisscom)\b"
                r"|(?:中国)?(?:移动|联通|电信)(?:卡|号|套餐|宽带)"
            ),
        ),
        (
            "chat",
            (
                r"\b(?:slack|discord|mattermost|rocket\.chat|ms teams|microsoft teams|zulip)\b|钉钉"
                r"|企业微信"
            ),
        ),
        ("design", r"\b(?:figma|sketch|adobe xd|penpot|photoshop|affinity)\b"),
    )
)
