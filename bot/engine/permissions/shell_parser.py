"""Parses a shell command into its commands, redirects and here-documents.

Syntax that is not certainly understood is reported as unclear, never guessed: only the node types
listed here are accepted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from bot.engine.permissions.rules import UNKNOWN_TEXT
from cards.permission_reasons import PermissionReason, build_reason

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_UNKNOWN_NODES = {
    "simple_expansion", "expansion", "command_substitution", "process_substitution",
    "arithmetic_expansion", "brace_expression",
}  # fmt: skip
_KNOWN_VARIABLES = {"$HOME": "~", "$PWD": "."}
_PLAIN_NODES = {"number", "variable_name", "test_operator", "extglob_pattern", "regex"}
_ANSI = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})"
    r"|(?P<oct>[0-7]{1,3})|(?P<one>.))",
    re.DOTALL,
)
_ANSI_ESCAPES = dict(zip("ntrabfveE\\'\"?", "\n\t\r\a\b\f\v\x1b\x1b\\'\"?", strict=True))
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*|\{.*\{", re.DOTALL)
_META_CHARACTERS = re.compile(r"[\s;&|<>()'\"`$]")
_SPECIAL_VARIABLES = re.compile(r".*_proxy|_|fpath|path|prompt")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"\\([\n$`\"\\])")
_MAX_CODE_POINT = 0x10FFFF


class UnclearShellWord(Exception):
    """The word can't be read for certain."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


def resolve_word(node: Node) -> str:
    """Return the word's value with quotes and escapes resolved. Raises UnclearShellWord."""
    text = _read_word(node)
    bare = _unquoted_text(node)
    return UNKNOWN_TEXT if _BRACES.search(bare) else text


def is_safe_variable(name: str) -> bool:
    """Lower-case names belong to scripts; programs and shells use many of the others."""
    return bool(re.fullmatch(r"[a-z_][a-z0-9_]*", name)) and not _SPECIAL_VARIABLES.fullmatch(name)


def _read_word(node: Node) -> str:  # noqa: PLR0911 - one per kind of word
    text = _node_text(node)
    match node.type:
        case "word":
            return _read_bare_word(text)
        case "raw_string":
            return text[1:-1]
        case "string":
            return _read_string(node)
        case "ansi_c_string":
            return _ANSI.sub(_ansi_character, text[2:-1])
        case "concatenation":
            return "".join(_read_word(child) for child in _word_pieces(node))
        case kind if kind in _UNKNOWN_NODES:
            return _KNOWN_VARIABLES.get(
                text.strip().replace("{", "").replace("}", ""), UNKNOWN_TEXT
            )
        case kind if kind in _PLAIN_NODES:
            if re.search(r"[$`\\]", text):
                raise UnclearShellWord("pattern")
            return text
        case kind:
            raise UnclearShellWord("uses_as_word", kind=kind.replace("_", " ").lower())


def _read_bare_word(text: str) -> str:
    if _META_CHARACTERS.search(_ESCAPED.sub("", text)):
        raise UnclearShellWord("word_end")
    return _ESCAPED.sub(_unescape, text)


def _word_pieces(node: Node) -> list[Node]:
    loose = [child for child in node.children if not child.is_named and child.type != "$"]
    if loose:
        raise UnclearShellWord("word")
    return node.named_children


def _read_string(node: Node) -> str:
    data, at, made = node.text or b"", node.start_byte, ""
    start = at + data.index(b'"') + 1
    for child in node.named_children:
        if child.type == "string_content":
            continue
        made += _unquote(data[start - at : child.start_byte - at]) + _read_word(child)
        start = child.end_byte
    return made + _unquote(data[start - at : -1])


def _unquote(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return _ESCAPED_IN_QUOTES.sub(_unescape, text)


def _unescape(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _ansi_character(found: re.Match[str]) -> str:
    digits = found["hex"] or found["u"] or found["U"]
    code = int(digits, 16) if digits else int(found["oct"], 8) & 0xFF if found["oct"] else -1
    if code >= 0:
        if code in (0, 0xE000) or code > _MAX_CODE_POINT or (found["hex"] and code > 0x7F):  # noqa: PLR2004 - last ASCII character
            raise UnclearShellWord("character")
        return chr(code)
    if found["one"] == "c":
        raise UnclearShellWord("character")
    return _ANSI_ESCAPES.get(found["one"], found[0])


def _unquoted_text(node: Node) -> str:
    """Return the unquoted text, where braces expand."""
    if node.type == "word":
        return _ESCAPED.sub("", _node_text(node))
    if node.type == "concatenation":
        return "".join(_unquoted_text(child) for child in node.named_children)
    return "_"


MAX_COMMAND_CHARS = 10_000
MAX_COMMANDS = 100
_MAX_DEPTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A command with unquoted arguments; `assignments` are the preceding `NAME=value` words."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()


@dataclass(slots=True)
class ShellScript:
    """Everything a command line may run, read and write; `unclear_reason` is set if part of it was
    not understood."""

    commands: list[SimpleCommand] = field(default_factory=list)
    written_files: list[str] = field(default_factory=list)
    read_files: list[str] = field(default_factory=list)
    stdin_texts: list[str] = field(default_factory=list)
    """Here-documents and here-strings, which are scripts if a shell reads them."""
    unclear_reason: PermissionReason | None = None


def parse_script(source: str) -> ShellScript:
    script = ShellScript()
    if problem := _reject_reason(source):
        script.unclear_reason = problem
        return script
    data = source.encode("utf-8", "replace")
    root = _parser().parse(data).root_node
    if root.has_error or not _is_covered(root, data):
        script.unclear_reason = build_reason("unclear.parse")
    _ScriptReader(script).visit(root, 0)
    if len(script.commands) > MAX_COMMANDS:
        script.unclear_reason = build_reason("unclear.many_commands", most=MAX_COMMANDS)
        del script.commands[MAX_COMMANDS:]
    return script


def _reject_reason(source: str) -> PermissionReason | None:
    if len(source) > MAX_COMMAND_CHARS:
        return build_reason("unclear.too_long")
    if not source.strip():
        return build_reason("unclear.empty")
    if re.search(r"[^ \t\n]\\\n[^ \t\n]", source):
        return build_reason("unclear.broken_word")
    if re.search(r"(?:^|\n)[ \t]*\\\n", source):
        return build_reason("unclear.continued")
    if "\\`" in source:
        return build_reason("unclear.backticks")
    hidden = (one for one in source if one not in "\n\t" and unicodedata.category(one)[0] == "C")
    found = next(hidden, "")
    return build_reason("unclear.invisible", code=f"U+{ord(found):04X}") if found else None


@cache
def _parser() -> Parser:
    # Compiled libraries, imported only when a command is checked.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _is_covered(root: Node, data: bytes) -> bool:
    """Return True if only blanks lie between the leaves and operators are what they appear to
    be."""
    at = 0
    for leaf in _leaves(root):
        is_itself = leaf.is_named or _node_text(leaf).strip(" \t\n\\") == leaf.type.strip()
        if not is_itself or not _is_blank(data[at : leaf.start_byte]):
            return False
        at = max(at, leaf.end_byte)
    return _is_blank(data[at:])


def _is_blank(gap: bytes) -> bool:
    return not gap.replace(b"\\\n", b"").strip(b" \t\n")


def _leaves(node: Node) -> Iterator[Node]:
    todo = [node]
    while todo:
        one = todo.pop()
        if one.children and one.type not in _OPAQUE_NODES:
            todo.extend(reversed(one.children))
        else:
            yield one


_OPAQUE_NODES = {"string", "heredoc_body", "raw_string"}
"""Their text is taken as a whole."""

_CONTAINER_NODES = {
    "program", "list", "pipeline", "redirected_statement", "subshell", "if_statement",
    "elif_clause", "else_clause", "while_statement", "do_group", "case_statement", "case_item",
    "negated_command", "function_definition", "heredoc_body", "command_substitution",
    "process_substitution", "string", "expansion", "concatenation", "compound_statement",
    "for_statement", "command_name", "array",
}  # fmt: skip
_LEAF_NODES = {
    "word", "raw_string", "ansi_c_string", "number", "string_content", "variable_name",
    "special_variable_name", "simple_expansion", "comment", "heredoc_start", "heredoc_end",
    "heredoc_content", "file_descriptor", "extglob_pattern", "test_operator", "translated_string",
    "regex",
}  # fmt: skip
_WORD_NODES = {
    "word", "raw_string", "ansi_c_string", "number", "string", "concatenation", "simple_expansion",
    "expansion", "command_substitution", "arithmetic_expansion", "brace_expression",
    "translated_string",
}  # fmt: skip
_REDIRECTED_NODES = {"redirected_statement", "command"}
RESERVED_WORDS = {
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
    "select", "function", "{", "}", "[[", "]]", "!", "coproc",
}  # fmt: skip
_DOLLAR_NODES = {"simple_expansion", "expansion", "string"}
_BLANK_BETWEEN = _WORD_NODES | {"command_name", "variable_assignment"}
_JOINED_NODES = {"concatenation", "string", "expansion", "heredoc_body", "case_item"}
_TEST_NODES = {"binary_expression", "unary_expression", "negation_expression", "test_command"}
_TEST_NODES |= {"parenthesized_expression"}

# These evaluate variables as arithmetic, which may run commands.
_ARITHMETIC = re.compile(r"(?<!\S)-(?:eq|ne|lt|le|gt|ge|v|R)(?!\S)|\[\w*\$|\(\(")
_OPERATOR = re.compile(r"(?<!\S)-[A-Za-z]+(?!\S)")
_TEST = re.compile(r"\[\s.*\s\]|\[\[\s.*\s\]\]", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPANSION = re.compile(
    r"\$\{#?[A-Za-z_]\w*(?:\}|(?::?[-+?]|##?|%%?|//?|\^\^?|,,?)[^@!]*)", re.DOTALL
)


class _ScriptReader:
    def __init__(self, script: ShellScript) -> None:
        self._script = script

    def visit(self, node: Node, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._mark_unclear("deep")
            return
        match node.type:
            case "command":
                self._read_command(node)
            case "declaration_command" | "unset_command":
                self._read_declaration(node)
            case "variable_assignment":
                self._read_assignment(node)
            case "file_redirect":
                self._read_redirect(node)
            case "herestring_redirect" | "heredoc_redirect":
                self._read_heredoc(node)
            case _:
                self._check_node(node)
        if _has_stray_sign(node):
            self._mark_unclear("sign")
        if node.type not in _JOINED_NODES and _words_touch(node.named_children):
            self._mark_unclear("word_end")
        for child in node.named_children:
            self.visit(child, depth + 1)

    def _check_node(self, node: Node) -> None:
        """Check nodes that only contain others."""
        text = _node_text(node).strip()
        match node.type:
            case "expansion" if not _EXPANSION.fullmatch(text):
                self._mark_unclear("expansion", what=text[:40])
            case "compound_statement" if not re.match(r"\{\s", text):
                self._mark_unclear("computes")
            case "arithmetic_expansion":
                if re.search(r"[A-Za-z_$`]", text.lstrip("$")):
                    self._mark_unclear("computes_unknown")
            case "for_statement":
                variable = node.child_by_field_name("variable")
                if variable is None or not is_safe_variable(_node_text(variable)):
                    self._mark_unclear("loop")
            case kind if kind in _TEST_NODES:
                self._check_test(node, text)
            case kind if kind not in _CONTAINER_NODES | _LEAF_NODES:
                self._mark_unclear("uses", kind=kind.replace("_", " ").lower())
            case _:
                pass

    def _check_test(self, node: Node, text: str) -> None:
        if node.type == "test_command" and not _TEST.fullmatch(text):
            self._mark_unclear("test")
        # A name stands for its value there, and an index in that value runs commands.
        if _ARITHMETIC.search(text) and re.search(r"[A-Za-z_$`]", _OPERATOR.sub("", text)):
            self._mark_unclear("computes_unknown")

    def _read_command(self, node: Node) -> None:
        words, assigned = [], []
        if any(not child.is_named for child in node.children):
            self._mark_unclear("sign")
        for child in node.named_children:
            match child.type:
                case "variable_assignment":
                    assigned.append(self._assignment_text(child))
                case "file_redirect" | "herestring_redirect" | "heredoc_redirect" | "comment":
                    pass
                case "command_name":
                    words.append(self._read_word(child.named_children[0]))
                case _:
                    words.append(self._read_word(child))
        if words and words[0] in RESERVED_WORDS:
            self._mark_unclear("reserved", word=words[0])
        if any(re.match(r"[A-Za-z_]\w*\[[^\]]*$", word) for word in words):
            self._mark_unclear("word_end")
        if words and (UNKNOWN_TEXT in words[0] or re.search(r"[*?\[]", words[0].removeprefix("["))):
            self._mark_unclear("program")
        self._script.commands.append(SimpleCommand(words=tuple(words), assignments=tuple(assigned)))

    def _read_declaration(self, node: Node) -> None:
        words = [_node_text(node.children[0])]
        for child in node.named_children:
            pair = child.type == "variable_assignment"
            words.append(self._assignment_text(child) if pair else self._read_word(child))
        self._script.commands.append(SimpleCommand(words=tuple(words)))

    def _read_assignment(self, node: Node) -> None:
        """Read a standalone assignment; others are read with their command."""
        parent = node.parent
        if parent is not None and parent.type in {"command", "declaration_command"}:
            return
        pair = self._assignment_text(node)
        if not is_safe_variable(pair.split("=", 1)[0]):
            self._script.commands.append(SimpleCommand(words=(pair,)))

    def _assignment_text(self, node: Node) -> str:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or not _NAME.fullmatch(_node_text(name)):
            self._mark_unclear("list")
            return UNKNOWN_TEXT
        if value is not None and value.type == "array":
            return f"{_node_text(name)}={UNKNOWN_TEXT}"
        return f"{_node_text(name)}={self._read_word(value) if value is not None else ''}"

    def _read_redirect(self, node: Node) -> None:
        targets = node.children_by_field_name("destination")
        if len(targets) > 1:
            self._mark_unclear("after_redirect")
        target = targets[0] if targets else None
        sign = next((child.type for child in node.children if not child.is_named), "")
        if target is None:
            if not sign.endswith("&-"):
                self._mark_unclear("redirects_nowhere")
            return
        text = self._read_word(target)
        if sign in {">&", "<&"} and re.fullmatch(r"\d+-?|-", text):
            return
        if re.search(r"[*?\[]", text):
            text = UNKNOWN_TEXT
        (self._script.read_files if sign == "<" else self._script.written_files).append(text)

    def _read_heredoc(self, node: Node) -> None:
        if node.type == "herestring_redirect":
            self._script.stdin_texts += [self._read_word(child) for child in node.named_children]
            return
        bodies = [one for one in node.named_children if one.type == "heredoc_body"]
        body = "".join(map(_node_text, bodies))
        if not _heredoc_ends_cleanly(node, body):
            self._mark_unclear("heredoc_end")
        if any(child.type in _WORD_NODES for child in node.named_children):
            self._mark_unclear("heredoc_words")
        if not _has_quoted_delimiter(node) and any(map(_has_unread_expansion, bodies)):
            self._mark_unclear("heredoc_expands")
        self._script.stdin_texts.append(body)

    def _read_word(self, node: Node) -> str:
        try:
            return resolve_word(node)
        except UnclearShellWord as error:
            self._mark_unclear(error.key, **error.facts)
            return UNKNOWN_TEXT

    def _mark_unclear(self, key: str, **facts: object) -> None:
        """Only the first reason is kept."""
        if self._script.unclear_reason is None:
            self._script.unclear_reason = build_reason(f"unclear.{key}", **facts)


def _has_quoted_delimiter(node: Node) -> bool:
    """Return True if the shell expands nothing in the here-document."""
    starts = (_node_text(one) for one in node.named_children if one.type == "heredoc_start")
    return any(re.search(r"[\\'\"]", start) for start in starts)


def _has_unread_expansion(body: Node) -> bool:
    """Return True if the shell expands something that the parser takes as text: in backquotes, or
    after tabs."""
    text, at = body.text or b"", body.start_byte
    for child in body.named_children:
        if child.type != "heredoc_content":
            start, end = child.start_byte - at, child.end_byte - at
            text = text[:start] + b" " * (end - start) + text[end:]
    return bool(re.search(rb"`|\$[({\[]", re.sub(rb"\\.", b"", text, flags=re.DOTALL)))


def _heredoc_ends_cleanly(node: Node, body: str) -> bool:
    """Return True if the here-document ends at the first line with its delimiter."""
    texts = {one.type: _node_text(one) for one in node.named_children}
    mark = re.sub(r"[\\'\"]", "", texts.get("heredoc_start", ""))
    lines = [line.strip("\t") for line in body.split("\n")]
    return bool(mark) and texts.get("heredoc_end", "").strip() == mark and mark not in lines


def _words_touch(children: list[Node]) -> bool:
    """The parser ends some words before the shell does."""
    return any(
        left.end_byte == right.start_byte and {left.type, right.type} <= _BLANK_BETWEEN
        for left, right in pairwise(children)
    )


def _stands_alone(node: Node, around: Node) -> bool:
    data, at = around.text or b"", node.start_byte - around.start_byte
    return at <= 0 or data[at - 1 : at] in {b" ", b"\t", b"\n", b";", b"&", b"|", b"("}


def _may_be_descriptor(node: Node) -> bool:
    """A word next to a redirect operator may be its file descriptor."""
    children = node.named_children
    return any(
        left.end_byte == right.start_byte
        and right.type.endswith("_redirect")
        and not _node_text(left)[-1:].isalpha()
        for left, right in pairwise(children)
    )


def _has_stray_sign(node: Node) -> bool:
    """Detect misparsed operators such as a lone `$` or a `!` that touches its word."""
    text = _node_text(node)
    if node.type == "file_descriptor":
        before = (node.parent.parent or node.parent) if node.parent else None
        return not text.isdecimal() or before is None or not _stands_alone(node, before)
    if node.type == "simple_expansion":
        return bool(re.search(r"\s", text.strip()))
    if node.type in _REDIRECTED_NODES:
        return _may_be_descriptor(node)
    if node.type == "negated_command":
        return node.children[0].end_byte == node.children[1].start_byte
    return node.type not in _DOLLAR_NODES and any(child.type == "$" for child in node.children)


def _node_text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
