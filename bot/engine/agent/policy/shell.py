"""A shell command taken apart: every command in it that may run, and every file redirected to.

What is not understood for certain is said to be unclear, never guessed: each kind of node that
may occur is named here, and all others are unclear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from bot.engine.agent.policy.rules import HOLE
from bot.engine.agent.policy.words import UnclearWord, assigns_safely, word_text
from cards.reasons import Reason, because

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 10_000
MOST_COMMANDS = 100
_DEEPEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """One command with its arguments, quotes taken off. `assigned` are the `NAME=value` before
    it."""

    words: tuple[str, ...]
    assigned: tuple[str, ...] = ()


@dataclass(slots=True)
class Script:
    """All that a command line may run, read and write. `unclear` says what was not understood."""

    commands: list[Simple] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    fed: list[str] = field(default_factory=list)
    """What stands in here-documents and here-strings: a script, where a shell reads it."""
    unclear: Reason | None = None


def parse(source: str) -> Script:
    script = Script()
    if problem := _problem(source):
        script.unclear = problem
        return script
    data = source.encode("utf-8", "replace")
    root = _parser().parse(data).root_node
    if root.has_error or not _is_covered(root, data):
        script.unclear = because("unclear.parse")
    _Reader(script).visit(root, 0)
    if len(script.commands) > MOST_COMMANDS:
        script.unclear = because("unclear.many_commands", most=MOST_COMMANDS)
        del script.commands[MOST_COMMANDS:]
    return script


def _problem(source: str) -> Reason | None:
    if len(source) > LONGEST:
        return because("unclear.too_long")
    if not source.strip():
        return because("unclear.empty")
    if re.search(r"[^ \t\n]\\\n[^ \t\n]", source):
        return because("unclear.broken_word")
    if re.search(r"(?:^|\n)[ \t]*\\\n", source):
        return because("unclear.continued")
    if "\\`" in source:
        return because("unclear.backticks")
    hidden = (one for one in source if one not in "\n\t" and unicodedata.category(one)[0] == "C")
    found = next(hidden, "")
    return because("unclear.invisible", code=f"U+{ord(found):04X}") if found else None


@cache
def _parser() -> Parser:
    # Compiled libraries, wanted only once a command is judged.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _is_covered(root: Node, data: bytes) -> bool:
    """Nothing but blanks lies between the leaves, and signs are what they are taken for."""
    at = 0
    for leaf in _leaves(root):
        is_itself = leaf.is_named or _text(leaf).strip(" \t\n\\") == leaf.type.strip()
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
        if one.children and one.type not in _OPAQUE:
            todo.extend(reversed(one.children))
        else:
            yield one


_OPAQUE = {"string", "heredoc_body", "raw_string"}
"""Their text is taken as a whole, with the gaps between its parts."""

_THROUGH = {
    "program", "list", "pipeline", "redirected_statement", "subshell", "if_statement",
    "elif_clause", "else_clause", "while_statement", "do_group", "case_statement", "case_item",
    "negated_command", "function_definition", "heredoc_body", "command_substitution",
    "process_substitution", "string", "expansion", "concatenation", "compound_statement",
    "for_statement", "command_name", "array",
}  # fmt: skip
_LEAVES = {
    "word", "raw_string", "ansi_c_string", "number", "string_content", "variable_name",
    "special_variable_name", "simple_expansion", "comment", "heredoc_start", "heredoc_end",
    "heredoc_content", "file_descriptor", "extglob_pattern", "test_operator", "translated_string",
    "regex",
}  # fmt: skip
_WORDS = {
    "word", "raw_string", "ansi_c_string", "number", "string", "concatenation", "simple_expansion",
    "expansion", "command_substitution", "arithmetic_expansion", "brace_expression",
    "translated_string",
}  # fmt: skip
_REDIRECTED = {"redirected_statement", "command"}
RESERVED = {
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
    "select", "function", "{", "}", "[[", "]]", "!", "coproc",
}  # fmt: skip
_DOLLARS = {"simple_expansion", "expansion", "string"}
_BLANK_BETWEEN = _WORDS | {"command_name", "variable_assignment"}
_JOINED = {"concatenation", "string", "expansion", "heredoc_body", "case_item"}
_TESTED = {"binary_expression", "unary_expression", "negation_expression", "test_command"}
_TESTED |= {"parenthesized_expression"}

# These evaluate a variable's content as arithmetic, and arithmetic may run commands.
_ARITHMETIC = re.compile(r"(?<!\S)-(?:eq|ne|lt|le|gt|ge|v|R)(?!\S)|\[\w*\$|\(\(")
_TEST = re.compile(r"\[\s.*\s\]|\[\[\s.*\s\]\]", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPANSION = re.compile(
    r"\$\{#?[A-Za-z_]\w*(?:\}|(?::?[-+?]|##?|%%?|//?|\^\^?|,,?)[^@!]*)", re.DOTALL
)


class _Reader:
    def __init__(self, script: Script) -> None:
        self._script = script

    def visit(self, node: Node, depth: int) -> None:
        if depth > _DEEPEST:
            self._unclear(because("unclear.deep"))
            return
        match node.type:
            case "command":
                self._command(node)
            case "declaration_command" | "unset_command":
                self._declaration(node)
            case "variable_assignment":
                self._assignment(node)
            case "file_redirect":
                self._redirect(node)
            case "herestring_redirect" | "heredoc_redirect":
                self._fed(node)
            case _:
                self._check(node)
        if _is_odd(node):
            self._unclear(because("unclear.sign"))
        if node.type not in _JOINED and _run_together(node.named_children):
            self._unclear(because("unclear.word_end"))
        for child in node.named_children:
            self.visit(child, depth + 1)

    def _check(self, node: Node) -> None:
        """Kinds of nodes that hold others, or nothing."""
        text = _text(node).strip()
        match node.type:
            case "expansion" if not _EXPANSION.fullmatch(text):
                self._unclear(because("unclear.expansion", what=text[:40]))
            case "compound_statement" if not re.match(r"\{\s", text):
                self._unclear(because("unclear.computes"))
            case "arithmetic_expansion":
                if re.search(r"[A-Za-z_$`]", text.lstrip("$")):
                    self._unclear(because("unclear.computes_unknown"))
            case "for_statement":
                variable = node.child_by_field_name("variable")
                if variable is None or not assigns_safely(_text(variable)):
                    self._unclear(because("unclear.loop"))
            case kind if kind in _TESTED:
                self._test(node, text)
            case kind if kind not in _THROUGH | _LEAVES:
                self._unclear(because("unclear.uses", kind=kind.replace("_", " ").lower()))
            case _:
                pass

    def _test(self, node: Node, text: str) -> None:
        if node.type == "test_command" and not _TEST.fullmatch(text):
            self._unclear(because("unclear.test"))
        if _ARITHMETIC.search(text) and re.search(r"[$`]", text):
            self._unclear(because("unclear.computes_unknown"))

    def _command(self, node: Node) -> None:
        words, assigned = [], []
        if any(not child.is_named for child in node.children):
            self._unclear(because("unclear.sign"))
        for child in node.named_children:
            match child.type:
                case "variable_assignment":
                    assigned.append(self._pair(child))
                case "file_redirect" | "herestring_redirect" | "heredoc_redirect" | "comment":
                    pass
                case "command_name":
                    words.append(self._word(child.named_children[0]))
                case _:
                    words.append(self._word(child))
        if words and words[0] in RESERVED:
            self._unclear(because("unclear.reserved", word=words[0]))
        if any(re.match(r"[A-Za-z_]\w*\[[^\]]*$", word) for word in words):
            self._unclear(because("unclear.word_end"))
        if words and (HOLE in words[0] or re.search(r"[*?\[]", words[0].removeprefix("["))):
            self._unclear(because("unclear.program"))
        self._script.commands.append(Simple(words=tuple(words), assigned=tuple(assigned)))

    def _declaration(self, node: Node) -> None:
        words = [_text(node.children[0])]
        for child in node.named_children:
            pair = child.type == "variable_assignment"
            words.append(self._pair(child) if pair else self._word(child))
        self._script.commands.append(Simple(words=tuple(words)))

    def _assignment(self, node: Node) -> None:
        """One on its own; those before a command or in a declaration are read with it."""
        parent = node.parent
        if parent is not None and parent.type in {"command", "declaration_command"}:
            return
        pair = self._pair(node)
        if not assigns_safely(pair.split("=", 1)[0]):
            self._script.commands.append(Simple(words=(pair,)))

    def _pair(self, node: Node) -> str:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or not _NAME.fullmatch(_text(name)):
            self._unclear(because("unclear.list"))
            return HOLE
        if value is not None and value.type == "array":
            return f"{_text(name)}={HOLE}"
        return f"{_text(name)}={self._word(value) if value is not None else ''}"

    def _redirect(self, node: Node) -> None:
        targets = node.children_by_field_name("destination")
        if len(targets) > 1:
            self._unclear(because("unclear.after_redirect"))
        target = targets[0] if targets else None
        sign = next((child.type for child in node.children if not child.is_named), "")
        if target is None:
            if not sign.endswith("&-"):
                self._unclear(because("unclear.redirects_nowhere"))
            return
        text = self._word(target)
        if sign in {">&", "<&"} and re.fullmatch(r"\d+-?|-", text):
            return
        (self._script.reads if sign == "<" else self._script.writes).append(text)

    def _fed(self, node: Node) -> None:
        if node.type == "herestring_redirect":
            self._script.fed += [self._word(child) for child in node.named_children]
            return
        body = "".join(_text(one) for one in node.named_children if one.type == "heredoc_body")
        if not _ends_well(node, body):
            self._unclear(because("unclear.heredoc_end"))
        if any(child.type in _WORDS for child in node.named_children):
            self._unclear(because("unclear.heredoc_words"))
        self._script.fed.append(body)

    def _word(self, node: Node) -> str:
        try:
            return word_text(node)
        except UnclearWord as error:
            self._unclear(error.why)
            return HOLE

    def _unclear(self, why: Reason) -> None:
        self._script.unclear = self._script.unclear or why


def _ends_well(node: Node, body: str) -> bool:
    """The here-document ends at its own mark, and at the first of them."""
    texts = {one.type: _text(one) for one in node.named_children}
    mark = re.sub(r"[\\'\"]", "", texts.get("heredoc_start", ""))
    lines = [line.strip("\t") for line in body.split("\n")]
    return bool(mark) and texts.get("heredoc_end", "").strip() == mark and mark not in lines


def _run_together(children: list[Node]) -> bool:
    """The parser ends some words early, where the shell reads on."""
    return any(
        left.end_byte == right.start_byte and {left.type, right.type} <= _BLANK_BETWEEN
        for left, right in pairwise(children)
    )


def _stands_alone(node: Node, around: Node) -> bool:
    data, at = around.text or b"", node.start_byte - around.start_byte
    return at <= 0 or data[at - 1 : at] in {b" ", b"\t", b"\n", b";", b"&", b"|", b"("}


def _takes_number(node: Node) -> bool:
    """A word that touches the sign of a redirect may be its number."""
    children = node.named_children
    return any(
        left.end_byte == right.start_byte
        and right.type.endswith("_redirect")
        and not _text(left)[-1:].isalpha()
        for left, right in pairwise(children)
    )


def _is_odd(node: Node) -> bool:
    """A lone dollar sign, a `!` that belongs to the word it touches, and the like."""
    text = _text(node)
    if node.type == "file_descriptor":
        before = (node.parent.parent or node.parent) if node.parent else None
        return not text.isdecimal() or before is None or not _stands_alone(node, before)
    if node.type == "simple_expansion":
        return bool(re.search(r"\s", text.strip()))
    if node.type in _REDIRECTED:
        return _takes_number(node)
    if node.type == "negated_command":
        return node.children[0].end_byte == node.children[1].start_byte
    return node.type not in _DOLLARS and any(child.type == "$" for child in node.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
