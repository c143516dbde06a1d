"""Parses texts by fixed phrases, without a model: a step's into an action, a task's into steps, and
what is a task and what chat.

A phrase must match the whole text; anything else is UnknownAction, because the offline backend must
not guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from bot.engine.llm.answer_schemas import MAX_STEPS, IntentAnswer
from bot.engine.llm.offline.actions import (
    ContentAction,
    CountAction,
    EarlierOutput,
    FileText,
    GreetAction,
    HaikuAction,
    ListFolderAction,
    LiteralText,
    OfflineAction,
    ShowAction,
    SummariseAction,
    TextSource,
    TextUnit,
    UnknownAction,
    WaitAction,
    WriteFileAction,
)

MAX_ACTION_TEXT = 4_000
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_LONG_GAP = re.compile(r"\s{20}")  # would slow down the patterns
_QUOTES = {'"': '"', "“": "”", "'": "'", "‘": "’", "`": "`", "「": "」", "『": "』", "《": "》"}
MAX_STEP_TITLE = 100

# Verbs that start an English request.
_VERBS_EN = (
    "add|analy[sz]e|append|build|check|clean|compare|compose|copy|count|create|delete|deploy|draft"
    "|echo|edit|email|explain|fetch|find|fix|generate|give|install|list|look|make|move|open|post"
    "|print|put|read|remove|rename|reply|report|review|run|save|say|search|send|show|sleep|sort"
    "|store|summari[sz]e|tell|test|translate|update|upload|wait|write"
)
_VERBS_ZH = (
    "保存|存到|存为|存入|存成|写|列出|列一|读|看|总结|概括|摘要|等待|等|统计|数|创建|新建|建立|生成"
    "|发送|发给|说|回复|查|删除|打开|运行|执行|翻译|搜索|分析|整理|检查|更新|复制|移动|修改|测试|部署|把|将"
)
_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?:[-*•·]|\(?\d{1,2}[.)、．:：)](?!\d)|[①-⑳])[ \t]*(?=\S)")
# Doesn't match "1.txt", which is a file.
_INLINE_ITEM = re.compile(
    r"(?:^|(?<=[\s,，;；。:：]))\(?(\d{1,2})(?:\.(?![a-z])|[)、．])(?!\d)[ \t]*(?=\S)"
)

# Bounded repetitions keep matching fast on long texts.
_PROTECTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|\"[^\"\n]*\"|“[^”]{0,1000}”|‘[^’]{0,1000}’"
    r"|「[^」]{0,1000}」|『[^』]{0,1000}』|《[^》]{0,1000}》"
    r"|(?<!\w)'[^'\n]+'(?!\w)",
    re.DOTALL,
)
_CLAUSE_BREAK = re.compile(
    rf"""
      (?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\betc\.)(?<=[.!?])\s{{1,9}}(?=\S)
    | (?<=[。！？])\s{{0,9}}(?=\S)
    | \s{{0,9}}[;；\n]\s{{0,9}}
    | [,，.。]?\s{{0,9}}\band\s{{1,9}}then\b,?\s{{0,9}}
    | [,，]\s{{0,9}}then\b,?\s{{0,9}}
    | \s{{1,9}}then\s{{1,9}}(?=(?:{_VERBS_EN})\b)
    | [,，]?\s{{1,9}}and\s{{1,9}}(?=(?:{_VERBS_EN})\b)
    | [,，]\s{{0,9}}(?=(?:{_VERBS_EN})\b)
    | [，,、\s]{{0,9}}(?:然后|接着|随后)[再，,\s]{{0,9}}
    | [，,、\s]{{1,9}}(?:再|最后|并且|并|同时)[，,]?\s{{0,9}}(?=(?:{_VERBS_ZH}))
    | (?:再|最后|并且|并)(?=(?:{_VERBS_ZH}))
    | [，,、]\s{{0,9}}(?=(?:{_VERBS_ZH}))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CLAUSE_PREFIX = re.compile(
    r"^(?:(?:first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|after\s+that|afterwards|finally"
    r"|lastly|and(?:\s+then)?)\b[,:]?\s*"
    rf"|(?:首先|其次|第[一二三四五六七八九十]步|最后|然后|接着|并且)[，,：:]?\s*|[先再](?={_VERBS_ZH}))",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"^\s*(?:(?:if|when|unless)\b|如果|假如|当|若)", re.IGNORECASE)
# "write this to notes.md:" followed by the text is one step, even if the text contains lists.
_DICTATION = re.compile(
    r"^\s*(?:please\s+)?(?:write|save|put|create|make)\b"
    r"[^\n]{0,200}?\.\w{1,8}\b[^\n]{0,100}[:：][ \t]*\n"
    r"|^\s*(?:请)?(?:写|保存|创建|新建|把|将)[^\n]{0,200}?\.\w{1,8}[^\n]{0,100}[:：][ \t]*\n",
    re.IGNORECASE | re.ASCII,
)
_EDGE_CHARACTERS = " \t\r\n,，;；、"


def parse_action(text: str) -> OfflineAction:
    text = strip_courtesy(text)
    dictated = _DICTATED.match(text)
    if dictated:
        body = text[dictated.end() :].strip("\n")
        return WriteFileAction(path=_unquoted(dictated["path"]), content=_show_literal(body))
    text = text.rstrip(" \t\r\n.。!！;；,，?？~")
    if _GREETING.fullmatch(text):
        return GreetAction()
    if not text or len(text) > MAX_ACTION_TEXT or _LONG_GAP.search(text):
        return UnknownAction()
    return _parse_wait(text) or _parse_write(text) or _parse_content_action(text) or UnknownAction()


def strip_courtesy(text: str) -> str:
    """Remove "please", "can you" or 帮我 at the start, and "please" or 谢谢 at the end."""
    return _COURTESY_PREFIX.sub("", _COURTESY_SUFFIX.sub("", text.strip()), count=1).lstrip()


def _parse_wait(text: str) -> WaitAction | None:
    found = _first_match((_WAIT_EN, _WAIT_ZH), text)
    if not found:
        return None
    amount = found["amount"].lower()
    number = _AMOUNTS[amount] if amount in _AMOUNTS else float(amount)
    return WaitAction(seconds=number * _SECONDS[found["unit"][0].lower()])


def _parse_write(text: str) -> WriteFileAction | None:
    found = _first_match(_WRITE, text)
    if not found:
        return None
    groups = found.groupdict()
    what = groups.get("what")
    content = _show_literal(groups.get("raw") or "") if what is None else _parse_content(what)
    return WriteFileAction(path=_unquoted(found["path"]), content=content) if content else None


def _parse_content(what: str) -> ContentAction | None:
    """Parse the content to write: literal text, generated content or an earlier output."""
    what = _AND_SAVE.sub("", what.strip(" ,，:："))
    if not what or _PRONOUN.fullmatch(what):
        return ShowAction(source=EarlierOutput())
    given = _quoted_text(what)
    return (
        _parse_content_action(what) if given is None else ShowAction(source=LiteralText(text=given))
    )


def _parse_content_action(text: str) -> ContentAction | None:
    haiku = _first_match(_HAIKU, text)
    if haiku:
        topic = _unquoted((haiku["topic"] or "").strip(" ,，.。"))
        return HaikuAction(topic=topic, chinese=bool(_CHINESE.search(text)))
    folder = _first_match(_LIST, text)
    if folder:
        path = _unquoted(folder["path"] or "")
        return ListFolderAction(path="." if _CURRENT_FOLDER.fullmatch(path) else path or ".")
    count = _first_match(_COUNT, text)
    if count:
        counted = _parse_source(count["source"])
        return CountAction(unit=_UNITS[count["unit"].lower()], source=counted) if counted else None
    summary = _first_match(_SUMMARISE, text)
    if summary and (source := _parse_source(summary["source"])):
        return SummariseAction(source=source)
    return _parse_show(text)


def _parse_show(text: str) -> ShowAction | None:
    said = _first_match(_SAY, text)
    if said:
        return _show_literal(said["source"])
    read = _first_match(_READ, text)
    source = _parse_source(read["source"]) if read else None
    return ShowAction(source=source) if source and not isinstance(source, LiteralText) else None


def _parse_source(text: str) -> TextSource | None:
    text = text.strip()
    if _PRONOUN.fullmatch(text):
        return EarlierOutput()
    if _FILE.fullmatch(text):
        return FileText(path=_unquoted(_FILE_WORD.sub("", text)))
    given = _quoted_text(text)
    return None if given is None else LiteralText(text=given)


def _quoted_text(text: str) -> str | None:
    """Return literal text that is quoted, or introduced by "the text …" or a colon."""
    bare = _unquoted(text)
    if bare != text:
        return bare
    announced = _ANNOUNCED.fullmatch(text)
    return _unquoted(announced[announced.lastgroup or 0]) if announced else None


def _show_literal(text: str) -> ShowAction:
    return ShowAction(source=LiteralText(text=_unquoted(text)))


def _unquoted(text: str) -> str:
    """Remove quotes or a code fence around the text."""
    text = text.strip()
    fenced = re.fullmatch(r"```[^\n]*\n(.*?)\n?```", text, re.DOTALL)
    if fenced:
        return fenced[1]
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text[-1] not in text[1:-1]:
        return text[1:-1]
    return text


def _first_match(forms: tuple[re.Pattern[str], ...], text: str) -> re.Match[str] | None:
    return next((found for form in forms if (found := form.fullmatch(text))), None)


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _forms(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_form(pattern) for pattern in patterns)


# Unquoted paths need an extension or a slash; otherwise any word would match.
_PATH = (
    r"(?:`[^`\n]+`|\"[^\"\n]+\"|「[^」\n]+」|“[^”\n]+”|'[^'\n]+'"
    r"|(?:[\w.~-]*/)+[\w.~-]*|[\w~-][\w.~-]*\.[A-Za-z]\w{0,7})"
)
_TARGET = (
    r"(?:a\s+|the\s+)?(?:new\s+)?(?:text\s+)?(?:file\s+)?(?:named\s+|called\s+)?"
    rf"(?P<path>{_PATH})(?:\s+file)?"
)
_QUOTED = r"(?:`[^`]+`|\"[^\"]+\"|「[^」]+」|『[^』]+』|“[^”]+”|‘[^’]+’|'[^']+')"
_TARGET_ZH = (
    rf"\s*(?:一个)?(?:新)?(?:的)?(?:文件)?\s*(?P<path>{_PATH})"
    r"\s*(?:这个)?(?:文件)?\s*(?:里面|里|中)?"
)
_FILE_WORD = _form(r"^(?:the\s+)?(?:text\s+)?file\s+|^文件\s*|\s+file$|\s*文件$")
_FILE = _form(
    rf"(?:(?:the\s+)?(?:text\s+)?file\s+|文件\s*)?(?!`?\w+://){_PATH}(?:\s+file|\s*文件)?"
)
_PRONOUN = _form(
    r"it|this|that|them|(?:the|its|this|that)\s+(?:result|results|output|text|haiku|poem|summary"
    r"|list|listing|count|content|contents|answer)"
    r"|它|它们|这个|(?:这|那|上面|刚才|该)?(?:个|首|段|份|些)?(?:的)?(?:结果|内容|俳句|诗|摘要|总结|列表|清单|文字|文本)"
)
_ANNOUNCED = _form(
    r"(?:(?:the|this|these|following)\s+)*(?:text|words?|lines?|sentence|content|contents)"
    r"(?:\s*[:：]\s*|\s+)(?P<inner>.+)"
    r"|(?:这段|以下|下面|这些|这句)?(?:的)?(?:文字|文本|内容|话|这句话)?\s*[:：]\s*(?P<zh>.+)"
)
_COURTESY_PREFIX = _form(
    r"^(?:please|pls|kindly|can\s+you|could\s+you|would\s+you|will\s+you|i\s+want\s+you\s+to"
    r"|i\s+need\s+you\s+to|help\s+me(?:\s+to)?)\b(?:\s+please\b)?[\s,:]*"
    r"|^(?:请你?|麻烦你?|帮我|给我|帮忙|你?能不能|你?可以|你能)[\s，:：]*(?:帮我|给我)?"
)
_COURTESY_SUFFIX = _form(
    r"(?<=\S)[\s,，]*(?:\b(?:please|pls|thanks|thank\s+you)|谢谢你?|多谢)[.!。！\s]*$"
)
_AND_SAVE = _form(
    r"(?:\s*,)?(?:\s+and)?(?:\s+then)?\s+(?:save|write|store|put)\s+(?:it|that|this|them)$"
    r"|[，,\s]*(?:然后|再|并且|并)?(?:把它|将它)?$"
)
_GREETING = _form(
    r"(?:hi|hello|hey|yo|good\s+(?:morning|afternoon|evening|day)|thanks?(?:\s+you)?|bye|goodbye"
    r"|ping|你好|您好|嗨|哈喽|早上好|早安|早|晚上好|下午好|晚安|谢谢你?|多谢|再见|在吗)"
    r"(?:\s+(?:there|shiftboss|boss|all|everyone))?(?:[啊呀吗呢])?"
)
_AMOUNTS = {
    "a": 1.0, "an": 1.0, "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0,
    "ten": 10.0, "half a": 0.5, "half an": 0.5, "半": 0.5, "一": 1.0, "两": 2.0, "二": 2.0,
    "三": 3.0, "四": 4.0, "五": 5.0, "六": 6.0, "七": 7.0, "八": 8.0, "九": 9.0, "十": 10.0,
}  # fmt: skip
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "秒": 1.0, "分": 60.0, "小": 3600.0, "钟": 3600.0}
_WAIT_EN = _form(
    r"(?:wait|sleep|pause)(?:\s+for)?(?:\s+about)?\s+(?P<amount>\d{1,6}(?:\.\d{1,3})?"
    r"|half\s+an?|an?|one|two|three|four|five|ten)\s*"
    r"(?P<unit>seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h)"
)
_WAIT_ZH = _form(
    r"(?:等待|等|暂停|休眠|睡)\s*(?P<amount>\d{1,6}(?:\.\d{1,3})?|[半一两二三四五六七八九十])\s*个?"
    r"(?P<unit>秒|分|小时|钟头)钟?(?:吧|后)?"
)
_HAIKU = _forms(
    r"(?:(?:write|compose|create|make|give)\s+(?:me\s+)?)?(?:a|one|the)?\s*(?:short\s+)?haiku"
    r"(?:\s+poem)?(?:\s+(?:about|on|of|for)\s+(?P<topic>[^\n.]{1,100}))?",
    r"(?:写|作|创作|来|编)?(?:一)?(?:首|个)?(?:(?:关于|有关|以)\s*(?P<topic>[^\n]{1,50}?)\s*(?:为题)?的)?俳句",
)
_WHERE = (
    r"(?:\s+(?:in|of|inside|under|from)\s+(?:the\s+)?"
    r"(?P<path>[^\s,，]+|(?:this|current|work(?:ing)?)\s+(?:folder|directory|dir))"
    r"(?:\s+(?:folder|directory|dir))?)?"
)
_LIST = _forms(
    r"(?:list|show|print)(?:\s+me)?(?:\s+all)?(?:\s+of)?(?:\s+the|\s+my|\s+its)?\s+"
    rf"(?:files|folders?|directory|contents|files\s+and\s+folders|everything|workspace){_WHERE}",
    rf"(?:the\s+)?(?:list|listing)\s+of\s+(?:all\s+)?(?:the\s+)?files{_WHERE}",
    rf"(?:list|ls|dir)(?:\s+(?P<path>{_PATH}|\.))?",
    r"(?:列出|列一下|看看|查看|显示)(?:一下)?(?:所有|全部)?(?:的)?(?:当前|工作)?"
    r"(?:\s*(?P<path>[A-Za-z0-9_./-]+)\s*)?(?:文件夹|目录|工作区)?(?:里面|里|中|下)?(?:的)?(?:所有|全部)?"
    r"(?:有什么|有哪些文件|文件和文件夹|文件列表|文件夹|文件|内容|目录|工作区)",
)
_CURRENT_FOLDER = _form(
    r"(?:this|current|here|workspace|work(?:ing)?)(?:\s+(?:folder|directory|dir))?|\."
)
_SUMMARISE = _forms(
    r"(?:summari[sz]e|sum\s+up)(?:\s+(?=\S)|(?=[:：]))(?P<source>.+)",
    r"(?:(?:write|make|give|create)\s+(?:me\s+)?)?(?:an?\s+|the\s+)?(?:short\s+)?summary\s+of\s+(?P<source>.+)",
    r"(?:总结|概括|摘要|归纳)(?:一下)?\s*(?P<source>.+?)(?:的(?:内容|要点))?",
    r"(?:写|生成|给出)?(?:一个|一份)?\s*(?P<source>\S+?)\s*的(?:摘要|总结)",
)
_UNIT_NAMES = {
    TextUnit.WORDS: "word words 字数 词数 单词数 多少字 多少个字",
    TextUnit.LINES: "line lines 行数 多少行",
    TextUnit.CHARACTERS: "character characters chars 字符数",
}
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}
_COUNT = _forms(
    r"count\s+(?:all\s+)?(?:the\s+)?(?:number\s+of\s+)?(?P<unit>words?|lines?|characters?|chars)"
    r"(?:\s+(?:in|of|from)\s+|\s*(?=[:：]))(?P<source>.+)",
    r"how\s+many\s+(?P<unit>words|lines|characters|chars)\s+(?:are\s+(?:there\s+)?)?in\s+(?P<source>.+)",
    r"(?:the\s+)?(?P<unit>word|line|character)\s+count\s+of\s+(?P<source>.+)",
    r"(?:统计|计算|数|数一下|数数)(?:一下)?\s*(?P<source>.+?)\s*(?:的|有|里有|里面有)?(?P<unit>单词数|字符数|字数|词数|行数|多少个?字|多少行)",
    r"(?:统计|计算)(?P<unit>单词数|字符数|字数|词数|行数)(?P<source>[:：].+)",
)
_READ = _forms(
    r"(?:read|show|print|display|cat|open)(?:\s+me)?(?:\s+the)?(?:\s+contents?\s+of)?\s+"
    rf"(?P<source>{_PATH}|\S+(?:\s+file)?|file\s+\S+)",
    rf"(?:读取|读一下|读|显示|打开|查看|看一下|看看)\s*(?P<source>{_PATH}|\S+?)\s*(?:的内容)?",
)
_SAY = _forms(
    r"(?:say|echo|repeat|reply\s+with|answer\s+with)\s*[:：]?\s+(?P<source>.{1,2000})",
    r"(?:say|echo|repeat)[:：]\s*(?P<source>.{1,2000})",
    r"(?:说|回复|复述|重复)(?:一?句|一遍|一下)?\s*(?P<source>[:：“「『\"'].{1,2000})",
)
_SAVE_ZH = r"(?:(?:保存|存)(?:到|为|在|成|入|进)|写(?:入|到|进|在|成)|放(?:到|进|入))"
_WRITE = _forms(
    r"(?:create|make|write|touch|add)\s+(?:an?\s+|the\s+)?(?:new\s+)?(?:empty\s+|blank\s+)?(?:new\s+)?"
    rf"(?:text\s+|markdown\s+)?file\s+(?:named\s+|called\s+)?(?P<path>{_PATH})",
    rf"(?:create|make|write)\s+{_TARGET}\s*,?\s*(?:that\s+|which\s+)?(?:saying|says|reading|reads)\s*[:：]?\s*(?P<raw>.+)",
    rf"(?:create|make|write)\s+{_TARGET}\s*,?\s*(?:with|containing|that\s+contains|and\s+put\s+in)\s+(?P<what>.+)",
    r"(?:write|save|put|store|create|make|compose|export)\s+(?P<what>.+?)\s*,?\s+"
    rf"(?:in|into|to|as|at|under)\s+{_TARGET}",
    rf"(?:save|write|store|put)\s+(?:it\s+)?{_TARGET}\s*[:：]\s*(?P<what>.+)",
    rf"(?:把|将)\s*(?P<what>.+?)\s*{_SAVE_ZH}{_TARGET_ZH}",
    rf"(?P<what>(?:写|作|列出|总结|概括|统计|读取).+?)[，,\s]*(?:并且|并|然后|再)?(?:把它|将它|将其)?{_SAVE_ZH}{_TARGET_ZH}",
    rf"(?P<what>){_SAVE_ZH}{_TARGET_ZH}",
    rf"(?:写入?|保存|存)\s*(?P<what>{_QUOTED})\s*(?:到|进|入|在|成|为){_TARGET_ZH}",
    rf"(?:在|往)\s*(?P<path>{_PATH})\s*(?:里面|里|中)\s*(?:写入|写上|写下|写|添加)\s*(?P<what>.+)",
    rf"(?:创建|新建|建立|生成|写)(?:一个)?(?:新)?(?:的)?(?:空)?(?:白)?(?:的)?(?:文本)?文件\s*(?P<path>{_PATH})",
    rf"(?:创建|新建|建立|生成|写)(?:一个)?(?:新的?)?(?:文本)?(?:文件)?\s*(?P<path>{_PATH})\s*[，,]?\s*(?:文件)?"
    r"(?:内容(?:是|为)?|写入|写上|里面写|其中写)\s*[:：]?\s*(?P<raw>.+)",
)
_DICTATED = _form(
    rf"(?:write|save|put|create|make|写入|写到|保存到|创建文件|新建文件)[^\n]{{0,60}}?(?<![\w/.~-])"
    rf"(?P<path>{_PATH})[^\n]{{0,30}}[:：][ \t]*\n(?=.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTask:
    """`intro` is the text before a list."""

    intro: str
    steps: tuple[str, ...]


def split_steps(text: str) -> SplitTask:
    """Split into at most MAX_STEPS steps; a text without any task has none."""
    if _DICTATION.match(text):
        return SplitTask(intro="", steps=(text.strip(),))
    lines = _one_item_a_line(text).splitlines()
    opening, steps = _items(lines)
    if not steps:
        opening, steps = "", _clauses(text)
    return SplitTask(intro=opening.strip(), steps=_bounded(steps))


def step_title(step: str) -> str:
    """Return a short line for the card."""
    line = step.strip().splitlines()[0].rstrip(".。;；") if step.strip() else ""
    return line if len(line) <= MAX_STEP_TITLE else f"{line[: MAX_STEP_TITLE - 1]}…"


def blank_quotes(text: str) -> str:
    """Replace quoted text and code by filler of the same length."""
    return _PROTECTED.sub(lambda found: "\ufffc" * len(found[0]), text)


def _one_item_a_line(text: str) -> str:
    """Put `1. a 2. b` on separate lines if the numbers count up from one."""
    marks = list(_INLINE_ITEM.finditer(blank_quotes(text)))
    numbers = [int(mark[1]) for mark in marks]
    if len(marks) < 2 or numbers != list(range(1, len(marks) + 1)):  # noqa: PLR2004 - one is no list
        return text
    starts = [mark.start() for mark in marks]
    parts = [text[: starts[0]]]
    parts += [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    return "\n".join(part.rstrip(_EDGE_CHARACTERS) for part in parts if part.strip())


def _items(lines: list[str]) -> tuple[str, list[str]]:
    """Return the text before the first item, and the items with their continuation lines."""
    fenced = False
    base: int | None = None
    opening: list[str] = []
    items: list[list[str]] = []
    for line in lines:
        mark = None if fenced else _ITEM.match(line)
        fenced ^= line.lstrip().startswith("```")
        if mark and (base is None or len(mark["indent"]) <= base):
            base = len(mark["indent"])
            items.append([line[mark.end() :]])
        else:
            (items[-1] if items else opening).append(line)
    return "\n".join(opening), ["\n".join(item).strip() for item in items]


def _clauses(text: str) -> list[str]:
    if _CONDITION.match(text):
        return [text.strip()] if text.strip() else []
    clauses: list[str] = []
    start = 0
    for cut in _CLAUSE_BREAK.finditer(blank_quotes(text)):
        clauses.append(text[start : cut.start()])
        start = cut.end()
    clauses.append(text[start:])
    stripped = (_strip_clause_prefix(clause) for clause in clauses)
    return [clause for clause in stripped if re.search(r"\w", clause)]


def _strip_clause_prefix(clause: str) -> str:
    clause = clause.strip(_EDGE_CHARACTERS)
    return _CLAUSE_PREFIX.sub("", clause, count=1).strip(_EDGE_CHARACTERS)


def _bounded(steps: list[str]) -> tuple[str, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    return (*steps[: MAX_STEPS - 1], "\n".join(steps[MAX_STEPS - 1 :]))


MAX_CLASSIFIED_TEXT = 4_000

IntentPriority = Literal["urgent", "important", "normal"]


def classify_intent(text: str) -> IntentAnswer:
    """Greetings, questions and anything that is not clearly a request for work are chat."""
    text = text.strip()
    request = strip_courtesy(text[:MAX_CLASSIFIED_TEXT])
    polite = len(request) < len(text[:MAX_CLASSIFIED_TEXT])
    if _is_work(request) and not (_QUESTION.search(request) and not polite):
        return IntentAnswer(kind="task", title=step_title(request), priority=_priority(request))
    return IntentAnswer(kind="talk")


def can_perform(text: str) -> bool:
    """Whether the rules know each step of a task with this text."""
    return all(
        not isinstance(parse_action(each), UnknownAction) for each in split_steps(text).steps
    )


def needs_workspace(action: OfflineAction) -> bool:
    """Return True for actions that need a workspace or take time."""
    match action:
        case WriteFileAction() | ListFolderAction() | WaitAction():
            return True
        case (
            SummariseAction(source=FileText())
            | CountAction(source=FileText())
            | ShowAction(source=FileText())
        ):
            return True
        case _:
            return False


def _is_work(text: str) -> bool:
    actions = [parse_action(text), *(parse_action(step) for step in split_steps(text).steps)]
    if any(needs_workspace(action) for action in actions):
        return True
    if not all(isinstance(action, UnknownAction) for action in actions):
        return False
    text = _PRIORITY_PREFIX.sub("", text, count=1)
    return bool(_WORK_EN.match(text) or _WORK_ZH.match(text))


def _priority(text: str) -> IntentPriority | None:
    for priority, words in _PRIORITIES:
        if words.search(text):
            return priority
    return None


_URGENT = r"\b(?:urgent(?:ly)?|asap|immediately|right\s+away)\b|紧急|加急|马上"
_PRIORITIES: tuple[tuple[IntentPriority, re.Pattern[str]], ...] = (
    ("urgent", re.compile(_URGENT, re.IGNORECASE)),
    ("important", re.compile(r"\bimportant\b|重要", re.IGNORECASE)),
)
_PRIORITY_PREFIX = re.compile(
    r"^(?:very\s+)?(?:urgent|important|asap|紧急|加急|重要)[\s:：,，!！]+", re.IGNORECASE
)
_QUESTION = re.compile(
    r"^(?:what|why|how|who|whose|when|where|which|is|are|am|was|were|do|does|did|has|have|should"
    r"|would|could|can|may)\b|\?\s*$|？\s*$|吗\s*$|(?:什么|怎么|为什么|为何|多少|谁|哪|是不是|有没有)",
    re.IGNORECASE,
)
_WORK_EN = re.compile(
    r"(?:[\w-]+\s+){0,2}?(?:add|analy[sz]e|build|clean\s+up|compare|compile|compose|create|deploy|design|draft|edit"
    r"|fix|generate|implement|install|investigate|make|migrate|organi[sz]e|plan|prepare|produce"
    r"|refactor|research|review|rewrite|run|send|set\s+up|summari[sz]e|test|translate|update"
    r"|upgrade|write)\b.{0,200}?(?:\b(?:analysis|api|app|article|branch|bugs?|chart|code|copy"
    r"|database|deck|demo|deployment|diagram|docs?|documents?|documentation|draft|e-?mails?|essay"
    r"|features?|files?|functions?|guide|interface|invoice|issues?|letter|lists?|minutes|module"
    r"|newsletter|notes|outline|pages?|papers?|plan|posts?|presentation|program|project|proposal"
    r"|readme|release|reports?|repo(?:sitory)?|review|schedule|scripts?|server|site|slides|speech"
    r"|spreadsheet|story|summary|tables?|template|tests?|tickets?|tool|translation|tutorial"
    r"|website)\b|\b[\w-]+\.[a-z]\w{0,4}\b)",
    re.IGNORECASE | re.DOTALL,
)
_WORK_ZH = re.compile(
    r"[^，。？！\n]{0,8}?(?:写|做|生成|整理|创建|翻译|分析|调研|修复|修改|实现|设计|部署|总结|制作|准备|起草|优化|重构"
    r"|开发|编写|撰写|更新|发布|汇总|检查|测试)"
    r".{0,100}?(?:报告|文档|文件|脚本|代码|计划|方案|邮件|表格|幻灯片|PPT|网页|网站|测试|文章|周报|日报|月报|总结|清单"
    r"|翻译|海报|图表|功能|接口|程序|项目|需求|问题|数据|纪要|合同|简历|教程|论文|bug|[\w-]+\.[a-z]\w{0,4})",
    re.IGNORECASE | re.DOTALL,
)
