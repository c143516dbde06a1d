"""Splits a task's text into steps and distinguishes tasks from chat messages, by fixed rules.

Splitting drops only list markers and linking words such as "then", 然后 and 并."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from bot.engine.llm.answer_schemas import MAX_STEPS, IntentAnswer
from bot.engine.llm.offline.action_parser import parse_action, strip_courtesy
from bot.engine.llm.offline.actions import (
    CountAction,
    FileText,
    ListFolderAction,
    OfflineAction,
    ShowAction,
    SummariseAction,
    UnknownAction,
    WaitAction,
    WriteFileAction,
)

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
_DICTATED = re.compile(
    r"^\s*(?:please\s+)?(?:write|save|put|create|make)\b"
    r"[^\n]{0,200}?\.\w{1,8}\b[^\n]{0,100}[:：][ \t]*\n"
    r"|^\s*(?:请)?(?:写|保存|创建|新建|把|将)[^\n]{0,200}?\.\w{1,8}[^\n]{0,100}[:：][ \t]*\n",
    re.IGNORECASE | re.ASCII,
)
_EDGE_CHARACTERS = " \t\r\n,，;；、"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTask:
    """`intro` is the text before a list."""

    intro: str
    steps: tuple[str, ...]


def split_steps(text: str) -> SplitTask:
    """Split into at most MAX_STEPS steps; a text without any task has none."""
    if _DICTATED.match(text):
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
