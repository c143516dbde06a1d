"""Talk or work, by fixed rules: work is a wish for something that leaves a result behind."""

from __future__ import annotations

import re
from typing import Literal

from bot.engine.llm.answers import Intent
from bot.engine.llm.rules.acts import (
    Act,
    Count,
    InFile,
    ListFolder,
    Show,
    Summarise,
    Unknown,
    Wait,
    Write,
)
from bot.engine.llm.rules.forms import recognise, without_courtesy
from bot.engine.llm.rules.split import split, title_of

MAX_LOOKED_AT = 4_000

Priority = Literal["urgent", "important", "normal"]


def intent(text: str) -> Intent:
    """A greeting or a question is talk; so is whatever does not clearly ask for work."""
    text = text.strip()
    wish = without_courtesy(text[:MAX_LOOKED_AT])
    polite = len(wish) < len(text[:MAX_LOOKED_AT])
    if _is_work(wish) and not (_QUESTION.search(wish) and not polite):
        return Intent(kind="task", title=title_of(wish), priority=_priority(wish))
    return Intent(kind="talk")


def touches_files(act: Act) -> bool:
    """True for what only makes sense as work in a folder, or takes its time."""
    match act:
        case Write() | ListFolder() | Wait():
            return True
        case Summarise(source=InFile()) | Count(source=InFile()) | Show(source=InFile()):
            return True
        case _:
            return False


def _is_work(text: str) -> bool:
    acts = [recognise(text), *(recognise(step) for step in split(text).steps)]
    if any(touches_files(act) for act in acts):
        return True
    if not all(isinstance(act, Unknown) for act in acts):
        return False
    text = _HEAD.sub("", text, count=1)
    return bool(_WORK_EN.match(text) or _WORK_ZH.match(text))


def _priority(text: str) -> Priority | None:
    for priority, words in _PRIORITIES:
        if words.search(text):
            return priority
    return None


_URGENT = r"\b(?:urgent(?:ly)?|asap|immediately|right\s+away)\b|紧急|加急|马上"
_PRIORITIES: tuple[tuple[Priority, re.Pattern[str]], ...] = (
    ("urgent", re.compile(_URGENT, re.IGNORECASE)),
    ("important", re.compile(r"\bimportant\b|重要", re.IGNORECASE)),
)
_HEAD = re.compile(
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
