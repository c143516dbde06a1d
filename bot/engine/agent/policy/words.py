"""What a shell makes of one word: quotes off, escapes read, and a hole for what only it knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.engine.agent.policy.rules import HOLE
from cards.reasons import because

if TYPE_CHECKING:
    from tree_sitter import Node

_UNKNOWN = {
    "simple_expansion", "expansion", "command_substitution", "process_substitution",
    "arithmetic_expansion", "brace_expression",
}  # fmt: skip
_KNOWN = {"$HOME": "~", "$PWD": "."}
_PLAIN = {"number", "variable_name", "test_operator", "extglob_pattern", "regex"}
_ANSI = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|(?P<oct>[0-7]{1,3})|(?P<one>.))",
    re.DOTALL,
)
_ONES = dict(zip("ntrabfveE\\'\"?", "\n\t\r\a\b\f\v\x1b\x1b\\'\"?", strict=True))
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*|\{.*\{", re.DOTALL)
_META = re.compile(r"[\s;&|<>()'\"`$]")
_OBEYED = re.compile(r".*_proxy|_|fpath|path|prompt")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"\\([\n$`\"\\])")
_LARGEST = 0x10FFFF


class UnclearWord(Exception):
    """What stands there cannot be read for certain."""

    def __init__(self, key: str, **facts: object) -> None:
        self.why = because(f"unclear.{key}", **facts)
        super().__init__(key)


def word_text(node: Node) -> str:
    """Raises UnclearWord."""
    text = _read(node)
    bare = _bare(node)
    return HOLE if _BRACES.search(bare) else text


def assigns_safely(name: str) -> bool:
    """Names in lower case are a script's own; programs and the shell obey many of the others."""
    return bool(re.fullmatch(r"[a-z_][a-z0-9_]*", name)) and not _OBEYED.fullmatch(name)


def _read(node: Node) -> str:  # noqa: PLR0911 - one for each kind of word
    text = _text(node)
    match node.type:
        case "word":
            return _plain(text)
        case "raw_string":
            return text[1:-1]
        case "string":
            return _string(node)
        case "ansi_c_string":
            return _ANSI.sub(_ansi, text[2:-1])
        case "concatenation":
            return "".join(_read(child) for child in _pieces(node))
        case kind if kind in _UNKNOWN:
            return _KNOWN.get(text.strip().replace("{", "").replace("}", ""), HOLE)
        case kind if kind in _PLAIN:
            if re.search(r"[$`\\]", text):
                raise UnclearWord("pattern")
            return text
        case kind:
            raise UnclearWord("uses_as_word", kind=kind.replace("_", " ").lower())


def _plain(text: str) -> str:
    if _META.search(_ESCAPED.sub("", text)):
        raise UnclearWord("word_end")
    return _ESCAPED.sub(_unescaped, text)


def _pieces(node: Node) -> list[Node]:
    loose = [child for child in node.children if not child.is_named and child.type != "$"]
    if loose:
        raise UnclearWord("word")
    return node.named_children


def _string(node: Node) -> str:
    data, at, made = node.text or b"", node.start_byte, ""
    start = at + data.index(b'"') + 1
    for child in node.named_children:
        if child.type == "string_content":
            continue
        made += _quoted(data[start - at : child.start_byte - at]) + _read(child)
        start = child.end_byte
    return made + _quoted(data[start - at : -1])


def _quoted(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return _ESCAPED_IN_QUOTES.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _ansi(found: re.Match[str]) -> str:
    digits = found["hex"] or found["u"] or found["U"]
    code = int(digits, 16) if digits else int(found["oct"], 8) & 0xFF if found["oct"] else -1
    if code >= 0:
        if code in (0, 0xE000) or code > _LARGEST or (found["hex"] and code > 0x7F):  # noqa: PLR2004 - ASCII's end
            raise UnclearWord("character")
        return chr(code)
    if found["one"] == "c":
        raise UnclearWord("character")
    return _ONES.get(found["one"], found[0])


def _bare(node: Node) -> str:
    """What is not quoted: only there do braces multiply."""
    if node.type == "word":
        return _ESCAPED.sub("", _text(node))
    if node.type == "concatenation":
        return "".join(_bare(child) for child in node.named_children)
    return "_"


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
