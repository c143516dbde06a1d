"""Decides by rules whether a changed text may be proposed at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from cards.formats import strip_invisible

MAX_PROMPT = 6_000
"""Characters of a text that may be changed."""
_MAX_GROWTH = 1_500
_MIN_KEPT = 0.6
"""The part of the old words that a change must keep."""
_UNITS = re.compile(r"[\u3400-\u9fff]|\w+|[^\w\s]")

_PROTECTED = re.compile(
    r"approv\w*|permission\w*|permit\w*|confirm\w*|\bask\b|\basks\b|\bnever\b|\bdo not\b|\bdon't\b"
    r"|\bmust not\b|\bsecrets?\b|\bpasswords?\b|\bcredentials?\b|\buntrusted\b|\bas\s+data\b"
    r"|\brefuse\w*|\bden(?:y|ied)\b|\bsandbox\w*|\bchange nothing\b|\brejected\b|\boutside\b"
    r"|\bundo\w*|批准|审批|许可|权限|确认|询问|请示|绝不|不得|不要|禁止|严禁|密码|密钥|机密|拒绝|沙箱|不可信",
    re.IGNORECASE,
)
"""Words of caution: a change may add some, but may not have fewer of any."""

_SUSPECT = re.compile(
    r"https?:|\bwww\.|\b[\w-]+\.(?:com|net|org|io|dev|cn|ru|xyz|sh|top|info)\b"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|`|\$\(|\$\{|\{\{|&&|\|\||>\s*/|(?<!\w)/(?:etc|root|home|tmp|dev|proc|bin|usr|var)\b|~/"
    r"|(?m:^\s*(?:\$|#!|>)\s*\S)"
    r"|\b(?:sudo|curl|wget|chmod|chown|rm|ssh|scp|nc|bash|zsh|powershell|eval|crontab|kubectl"
    r"|docker|base64)\s+-?\w"
    r"|\b(?:pip|pip3|npm|npx|uv|uvx|cargo|gem|brew|apt|apt-get|yum)\s+(?:install|run|exec|add)\b"
    r"|\bgit\s+(?:push|clone|remote|config|reset)\b|--[a-z][\w-]+"
    r"|\bmcp__|\b(?:exec|web_fetch|web_search|ask_user|skill_load|sessions_spawn"
    r"|memory_\w+|shell|tools?|denied|allow(?:ed|list)?|modes?)\b"
    r"|\bignor(?:e|ing)\b|\bbypass\w*|\bskip(?:s|ping)?\b|\boverrid\w*|\bdisable\w*|\bautomatically\b"
    r"|\bwithout\s+(?:asking|approval|permission|confirm\w*|waiting)"
    r"|\b(?:system|developer)\s+prompt\b|\bprevious\s+instructions?\b|\byou\s+may\b|\b(?:is|are)\s+free\s+to\b"
    r"|\bsend\w*\b|\bupload\w*|\bpost\s+(?:it|them|to)\b|\.env\b|\bapi[ _-]?keys?\b|\btokens?\b"
    r"|无需|不必|不用(?:问|询问|等)|跳过|忽略|绕过|自动(?:批准|执行)|工具|命令|发送|上传|执行以下",
    re.IGNORECASE,
)
"""Addresses, commands, tools, rights and ways around a check: a change may have fewer of each, and
none that was not there."""


_LOOKALIKES = re.compile(
    "[\u0370-\u03ff\u0400-\u052f\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff]"
)
"""Letters that look like Latin ones, and would hide words from these rules."""


_CODE = re.compile(
    r"(?ms:^[ \t]*(?P<fence>```+|~~~+).*?(?:^[ \t]*(?P=fence)[ \t]*$|\Z))"
    r"|(?m:^(?: {4}|\t).*$)|`[^`\n]+`|<[^>\n]+>|\$\w+|\$\{\w+\}"
    r"|[\w.~@-]*(?:[/\\][\w.~@-]*\w)+[/\\]?|\b\w[\w-]+\.[A-Za-z]\w{0,5}\b"
)
"""Code in its three forms, markup, variables, and names of folders and files."""


def find_objection(old: str, new: str) -> str:
    """The reason why `new` may not replace `old`, a catalogue key under `evolve.note`; empty if
    nothing speaks against it."""
    return next(_objections(old, new), "")


def keeps_code(old: str, new: str) -> bool:
    """Whether commands and other code, and names of files, are the same and in the same order."""
    before, after = ([each[0] for each in _CODE.finditer(text)] for text in (old, new))
    return before == after


def _objections(old: str, new: str) -> Iterator[str]:
    if not new.strip() or new.strip() == old.strip():
        yield "no_change"
    if len(new) > MAX_PROMPT or len(new) > len(old) + _MAX_GROWTH:
        yield "too_long"
        return
    if not _is_small(old, new):
        yield "too_much"
    if strip_invisible(new) != new or (_LOOKALIKES.search(new) and not _LOOKALIKES.search(old)):
        yield "hidden_characters"
    if _has_fewer(_PROTECTED, old, new):
        yield "less_caution"
    if _has_fewer(_SUSPECT, new, old):
        yield "more_rights"


def _is_small(old: str, new: str) -> bool:
    """Whether most of the old text is still there, in its order."""
    before, after = _UNITS.findall(old), _UNITS.findall(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    kept = sum(each.size for each in matcher.get_matching_blocks())
    return kept >= _MIN_KEPT * len(before)


def _has_fewer(pattern: re.Pattern[str], before: str, after: str) -> bool:
    """Whether a word that the pattern finds is less often in `after` than in `before`."""
    return bool(_words(pattern, before) - _words(pattern, after))


def _words(pattern: re.Pattern[str], text: str) -> Counter[str]:
    return Counter(" ".join(found.casefold().split()) for found in pattern.findall(text))
