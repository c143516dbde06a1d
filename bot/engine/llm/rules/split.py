"""A task's text cut into steps by its own marks: list items, sentences, "then", 然后, 再, 并.

Only marks and linking words are dropped; every other word ends up in exactly one piece, in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.engine.llm.answers import MAX_STEPS

MAX_TITLE = 100

# What an English clause begins with when it asks for something to be done.
_DO_EN = (
    "add|analy[sz]e|append|build|check|clean|compare|compose|copy|count|create|delete|deploy|draft"
    "|echo|edit|email|explain|fetch|find|fix|generate|give|install|list|look|make|move|open|post"
    "|print|put|read|remove|rename|reply|report|review|run|save|say|search|send|show|sleep|sort"
    "|store|summari[sz]e|tell|test|translate|update|upload|wait|write"
)
_DO_ZH = (
    "保存|存到|存为|存入|存成|写|列出|列一|读|看|总结|概括|摘要|等待|等|统计|数|创建|新建|建立|生成"
    "|发送|发给|说|回复|查|删除|打开|运行|执行|翻译|搜索|分析|整理|检查|更新|复制|移动|修改|测试|部署|把|将"
)
_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?:[-*•·]|\(?\d{1,2}[.)、．:：)](?!\d)|[①-⑳])[ \t]*(?=\S)")
# Not "1.txt", which is a file.
_INLINE_ITEM = re.compile(
    r"(?:^|(?<=[\s,，;；。:：]))\(?(\d{1,2})(?:\.(?![a-z])|[)、．])(?!\d)[ \t]*(?=\S)"
)

# Repetitions are bounded: a hundred kilobytes of blanks must not take for ever.
_PROTECTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|\"[^\"\n]*\"|“[^”]{0,1000}”|‘[^’]{0,1000}’"
    r"|「[^」]{0,1000}」|『[^』]{0,1000}』|《[^》]{0,1000}》"
    r"|(?<!\w)'[^'\n]+'(?!\w)",
    re.DOTALL,
)
_CUT = re.compile(
    rf"""
      (?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\betc\.)(?<=[.!?])\s{{1,9}}(?=\S)
    | (?<=[。！？])\s{{0,9}}(?=\S)
    | \s{{0,9}}[;；\n]\s{{0,9}}
    | [,，.。]?\s{{0,9}}\band\s{{1,9}}then\b,?\s{{0,9}}
    | [,，]\s{{0,9}}then\b,?\s{{0,9}}
    | \s{{1,9}}then\s{{1,9}}(?=(?:{_DO_EN})\b)
    | [,，]?\s{{1,9}}and\s{{1,9}}(?=(?:{_DO_EN})\b)
    | [,，]\s{{0,9}}(?=(?:{_DO_EN})\b)
    | [，,、\s]{{0,9}}(?:然后|接着|随后)[再，,\s]{{0,9}}
    | [，,、\s]{{1,9}}(?:再|最后|并且|并|同时)[，,]?\s{{0,9}}(?=(?:{_DO_ZH}))
    | (?:再|最后|并且|并)(?=(?:{_DO_ZH}))
    | [，,、]\s{{0,9}}(?=(?:{_DO_ZH}))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPENING = re.compile(
    r"^(?:(?:first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|after\s+that|afterwards|finally"
    r"|lastly|and(?:\s+then)?)\b[,:]?\s*"
    rf"|(?:首先|其次|第[一二三四五六七八九十]步|最后|然后|接着|并且)[，,：:]?\s*|[先再](?={_DO_ZH}))",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"^\s*(?:(?:if|when|unless)\b|如果|假如|当|若)", re.IGNORECASE)
# "write this to notes.md:" and then the text itself, lists and all: one step.
_DICTATED = re.compile(
    r"^\s*(?:please\s+)?(?:write|save|put|create|make)\b"
    r"[^\n]{0,200}?\.\w{1,8}\b[^\n]{0,100}[:：][ \t]*\n"
    r"|^\s*(?:请)?(?:写|保存|创建|新建|把|将)[^\n]{0,200}?\.\w{1,8}[^\n]{0,100}[:：][ \t]*\n",
    re.IGNORECASE | re.ASCII,
)
_EDGE = " \t\r\n,，;；、"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """`opening` is what stands before a list; `steps` are the pieces of work in order."""

    opening: str
    steps: tuple[str, ...]


def split(text: str) -> Pieces:
    """Cut `text`; a text with nothing to do in it has no steps. Never more than MAX_STEPS."""
    if _DICTATED.match(text):
        return Pieces(opening="", steps=(text.strip(),))
    lines = _one_item_a_line(text).splitlines()
    opening, steps = _items(lines)
    if not steps:
        opening, steps = "", _clauses(text)
    return Pieces(opening=opening.strip(), steps=_bounded(steps))


def title_of(step: str) -> str:
    """A short line for the card; the whole step belongs in the detail where it is longer."""
    line = step.strip().splitlines()[0].rstrip(".。;；") if step.strip() else ""
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


def hide_quotes(text: str) -> str:
    """The same text, same length, with what stands in quotes or code blotted out."""
    return _PROTECTED.sub(lambda found: "\ufffc" * len(found[0]), text)


def _one_item_a_line(text: str) -> str:
    """`1. a 2. b` on one line becomes two lines, if the numbers count up from one."""
    marks = list(_INLINE_ITEM.finditer(hide_quotes(text)))
    numbers = [int(mark[1]) for mark in marks]
    if len(marks) < 2 or numbers != list(range(1, len(marks) + 1)):  # noqa: PLR2004 - one is no list
        return text
    starts = [mark.start() for mark in marks]
    parts = [text[: starts[0]]]
    parts += [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    return "\n".join(part.rstrip(_EDGE) for part in parts if part.strip())


def _items(lines: list[str]) -> tuple[str, list[str]]:
    """What stands before the first item, and the items with the lines that belong to each."""
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
    for cut in _CUT.finditer(hide_quotes(text)):
        clauses.append(text[start : cut.start()])
        start = cut.end()
    clauses.append(text[start:])
    stripped = (_without_opening(clause) for clause in clauses)
    return [clause for clause in stripped if re.search(r"\w", clause)]


def _without_opening(clause: str) -> str:
    clause = clause.strip(_EDGE)
    return _OPENING.sub("", clause, count=1).strip(_EDGE)


def _bounded(steps: list[str]) -> tuple[str, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    return (*steps[: MAX_STEPS - 1], "\n".join(steps[MAX_STEPS - 1 :]))
