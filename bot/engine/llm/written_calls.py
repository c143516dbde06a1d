"""Reads tool calls that models write as text: JSON, XML and code, in the forms that model families
use.

A text is a call only if it ends in it: reasoning and a short lead-in may stand before it, nothing
behind it. All functions take any text, raise nothing and look at a bounded part of it."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bot.engine.llm.written_forms import brace_spans, parse_repaired_json, without_thoughts

MAX_TEXT = 1_200_000
"""A call may carry a whole file; longer texts are no calls."""
_MAX_REPAIRED = 200_000
_MAX_REPAIRS = 3
"""Objects that are repaired in a text or a block; a repair reads all of the rest."""
_MAX_UNCLOSED = 50
MAX_CALLS = 20
_MAX_LEAD_IN = 400
_MAX_STARTS = 12
_MAX_HELD = 64
"""Characters at the end of a streamed text that may turn out to begin a call."""

ToolSchemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments by tool name."""

CALL_TAGS = "tool_call|toolcall|function_call|functioncall|tool_use|tool_calls|function_calls"
_MARKS = (
    rf"<(?:{CALL_TAGS})>|<function=|<invoke[ \t]+name=|<\|tool_call\|>|<\|python_tag\|>"
    r"|\[TOOL_CALLS\]"
)
_CALL_FENCE = r"```[ \t]*(?:tool_code|tool_call|tool_calls|function_call)\b"
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_CALL_KEYS = "|".join((*NAME_KEYS, *_ARGUMENT_KEYS, "type", "id", "tool_call"))
_JSON_START = rf"[\[{{][\s\[{{]{{0,30}}[\"'](?:{_CALL_KEYS})[\"']\s*:"
_ACTION = re.compile(
    r"Action[ \t]*:[ \t]*`?([\w.:-]{1,100})`?[ \t]*\r?\n+[ \t]*Action[ _]Input[ \t]*:[ \t]*"
)
_NAMED = re.compile(r"<(?:function=|invoke[ \t]+name=)[\"']?([\w.:-]{1,100})[\"']?[ \t]*>")
_PARAMETER = re.compile(
    r"\s*<parameter(?:=|[ \t]+name=)[\"']?([\w.-]{1,100})[\"']?(?:[ \t][^<>]{0,80})?>"
)
_ARG_KEY = re.compile(r"\s*<arg_key>([^<]{1,100})</arg_key>\s*<arg_value>")
_BARE_NAME = re.compile(r"\s*([\w.:-]{1,100})\s*(?=[{<\n])")
_FILLER = re.compile(
    rf"(?:\s|,|;|</?(?:{CALL_TAGS})>|</(?:function|invoke)>|<\|/?tool_calls?\|>|<\|python_tag\|>"
    r"|\[/?TOOL_CALLS\]|</s>|<\|(?:im_end|eot_id|eom_id|end|endoftext)\|>|\])*"
)
_AFTER = re.compile(
    r"<(?:tool_response|function_results?|function_response|observation)\b|Observation:"
)
"""A result that the model has made up, after its call."""
_MAY_BEGIN = re.compile(r"(?:^|\n)[ \t]*[`{\[]|<|\[T")
_FENCE_OPEN = re.compile(r"[ \t]*```[ \t]*+(\w*+)[ \t]*+\r?\n")
_PLAIN_FENCE = re.compile(rf"{_FENCE_OPEN.pattern}\s*+(?!{_MARKS})")

_LAYOUT = re.compile(
    rf"^(?:\d+\t)?[ \t>]*```.*$|^[ \t]*\d+\t|\\+n\d+\\+t|</?(?:{CALL_TAGS})>|\\+[nrt]",
    re.MULTILINE,
)
"""Code fences, line numbers, call tags and escaped white space."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_NAME_ALONE = re.compile(r"[\w.:-]*")
_NOISE = re.compile(r"[\s\\]+")
_MAX_PIECES = 100
_NEAR = 40
"""Characters between a key and its value, at most: quotes, signs and tags."""
_MARGIN = 2000


@dataclass(frozen=True, slots=True)
class WrittenCalls:
    """The calls in a text, and the words before them; `text` is the calls as they are written."""

    lead_in: str
    text: str
    calls: Sequence[tuple[str, Mapping[str, Any] | str]]
    """Tool names with their arguments, which are text where they can't be read."""
    is_certain: bool
    """Marked as calls, and of tools that are offered."""


def read_calls(
    text: str, tools: ToolSchemas, *, text_is_answer: bool, is_asked: bool = False
) -> WrittenCalls | None:
    """Return the calls that the text ends in; None if it is no call.

    Where a text may be an answer, JSON is a call only if nothing else is said, and JSON or code in
    a block of no stated kind only if the model `is_asked` to write its calls."""
    if not tools or len(text) > MAX_TEXT:
        return None
    text = without_thoughts(text)
    scanner = _Scanner(text, tools)
    for start, is_marked in _starts(text, tools):
        lead_in = text[:start].strip()
        is_answer = bool(lead_in) or (not is_asked and _PLAIN_FENCE.match(text, start))
        if text_is_answer and not is_marked and is_answer:
            continue
        calls = scanner.read(start)
        if calls:
            return WrittenCalls(lead_in, text[start:], calls, is_certain=is_marked)
        if is_marked and (broken := _broken_call(text, start)):
            return WrittenCalls(lead_in, text[start:], [broken], is_certain=False)
    return None


class HeldText:
    """Holds back the part of a streamed text that is, or may become, a written call."""

    def __init__(self, tools: ToolSchemas) -> None:
        tags = "|".join(map(re.escape, tools))
        own = rf"|<(?:{tags})>" if tags else ""
        self._hold = re.compile(
            rf"(?:(?:^|\n)[ \t]*+```[ \t]*+\w*+[ \t]*+\n\s*+)?(?:{_MARKS}{own})"
            rf"|(?:^|\n)[ \t]*+(?:{_CALL_FENCE}|(?:```[ \t]*+\w*+[ \t]*+\n\s*+)?{_JSON_START})"
        )
        self._held: list[str] = []
        self._tail = ""

    def feed(self, text: str) -> str:
        """Return what may be shown now."""
        if self._held:
            self._held.append(text)
            return ""
        self._tail += text
        if (found := self._hold.search(self._tail)) is not None:
            shown, self._tail = self._tail[: found.start()], self._tail[found.start() :]
            self._held.append("")
            return shown
        start = max(0, len(self._tail) - _MAX_HELD)
        unsure = _MAY_BEGIN.search(self._tail, start)
        cut = len(self._tail) if unsure is None else unsure.start()
        shown, self._tail = self._tail[:cut], self._tail[cut:]
        return shown

    @property
    def rest(self) -> str:
        """The text that has not been shown."""
        return self._tail + "".join(self._held)


def _starts(text: str, tools: ToolSchemas) -> Iterator[tuple[int, bool]]:
    """Yield where a call may begin, and whether a mark says that it is one."""
    tags = "|".join(map(re.escape, tools))
    form = re.compile(
        rf"(?P<marked>{_MARKS}|^[ \t]*{_CALL_FENCE})"
        rf"|^[ \t]*(?:```|[\[{{]|Action[ \t]*:|<(?:{tags})>)",
        re.MULTILINE,
    )
    found = form.finditer(text, 0, min(len(text), _MAX_LEAD_IN + 200))
    for _, mark in zip(range(_MAX_STARTS), found, strict=False):
        if len(text[: mark.start()].strip()) <= _MAX_LEAD_IN:
            yield mark.start(), mark["marked"] is not None


def _broken_call(text: str, start: int) -> tuple[str, str] | None:
    """A call that can't be read, or of a tool that isn't offered, so that the model is told."""
    rest = text[start:]
    inside = re.sub(rf"^(?:{_MARKS})", "", rest, count=1).lstrip()
    is_call = inside.startswith(("{", "[")) or _NAMED.match(rest) or _NAMED.match(inside)
    behind = rest[rest.rfind("</") :] if "</" in rest else ""
    if not is_call or re.sub(r"</?[\w]{1,40}>", "", behind).strip():
        return None
    named = _NAMED.search(rest) or re.search(
        r"[\"'](?:name|tool)[\"']\s*:\s*[\"']([\w.:-]{1,100})", rest
    )
    return (named[1] if named else "unreadable_call", rest[:200])


class _Scanner:
    """Reads calls one after another until the end of the text."""

    def __init__(self, text: str, tools: ToolSchemas) -> None:
        self._text = text
        self._tools = tools
        self._at = 0
        self._repairs_left = _MAX_REPAIRS

    def read(self, start: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the calls from there; none if the text contains anything else."""
        self._at = start
        calls: list[tuple[str, Mapping[str, Any]]] = []
        while len(calls) <= MAX_CALLS:
            self._skip(_FILLER)
            if self._at >= len(self._text) or (calls and _AFTER.match(self._text, self._at)):
                return calls
            found = self._fenced() or self._tagged() or self._json() or self._action()
            if not found:
                return []
            calls += found
        return []

    def _skip(self, form: re.Pattern[str]) -> re.Match[str] | None:
        mark = form.match(self._text, self._at)
        self._at = self._at if mark is None else mark.end()
        return mark

    def _fenced(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        opened = _FENCE_OPEN.match(self._text, self._at)
        if opened is None:
            return []
        end = self._text.find("\n```", opened.end() - 1)
        inside = self._text[opened.end() : len(self._text) if end < 0 else end]
        self._at = len(self._text) if end < 0 else end + 4
        scanner = _Scanner(inside, self._tools)
        scanner._repairs_left = self._repairs_left
        found = scanner.read(0)
        self._repairs_left = scanner._repairs_left
        return found or _code_calls(inside, self._tools)

    def _tagged(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """`<function=name>`, `<invoke name="…">`, `<name>` and the bare name after a call tag."""
        if (mark := self._skip(_NAMED)) is not None:
            name = self._known(mark[1])
            return [] if name is None else self._arguments(name, ("</function>", "</invoke>"))
        own = re.compile(r"<([\w.-]{1,100})>").match(self._text, self._at)
        if own is not None and own[1] in self._tools:
            self._at = own.end()
            return self._arguments(own[1], (f"</{own[1]}>",))
        bare = _BARE_NAME.match(self._text, self._at)
        if bare is not None and (name := self._known(bare[1])) is not None:
            self._at = bare.end()
            return self._arguments(name, ("</tool_call>",))
        return []

    def _arguments(self, name: str, ends: Sequence[str]) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The arguments of this call as parameter tags, one tag each, or JSON."""
        properties = self._tools[name].get("properties", {})
        found: dict[str, Any] = {}
        while True:
            if (mark := self._skip(_PARAMETER)) is not None:
                key, value = mark[1], self._until("</parameter>", "</invoke>", "</function>")
            elif (mark := self._skip(_ARG_KEY)) is not None:
                key, value = mark[1].strip(), self._until("</arg_value>")
            elif (mark := self._own_tag(properties)) is not None:
                key, value = mark[1], self._until(f"</{mark[1]}>")
            else:
                break
            if value is None:
                return []
            found[key] = _typed(value, properties.get(key, {}))
        self._skip(re.compile(r"\s*"))
        if not found and self._text.startswith("{", self._at):
            value = self._object()
            if not isinstance(value, Mapping):
                return []
            found = dict(value)
        self._skip(re.compile(rf"\s*(?:{'|'.join(map(re.escape, ends))})?"))
        return [(name, found)]

    def _own_tag(self, properties: Mapping[str, Any]) -> re.Match[str] | None:
        mark = re.compile(r"\s*<([\w.-]{1,100})>").match(self._text, self._at)
        if mark is None or mark[1] not in properties:
            return None
        self._at = mark.end()
        return mark

    def _until(self, end: str, *others: str) -> str | None:
        """The text up to this end tag, which may be missing before one of the others."""
        at = self._text.find(end, self._at)
        closing = end if at >= 0 else ""
        if at < 0:
            places = [place for each in others if (place := self._text.find(each, self._at)) >= 0]
            if not places:
                return None
            at = min(places)
        value = self._text[self._at : at]
        self._at = at + len(closing)
        return value.removeprefix("\n").removesuffix("\n")

    def _json(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        if not self._text.startswith(("{", "["), self._at):
            return []
        if self._text.startswith("[", self._at):
            self._at += 1
            self._skip(re.compile(r"\s*"))
        call = self._call_in(self._object())
        return [] if call is None else [call]

    def _object(self) -> Any:
        """The JSON object that begins here; None if it can't be read."""
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            return self._repaired_object()
        return value

    def _repaired_object(self) -> Any:
        rest = self._text[self._at : self._at + _MAX_REPAIRED]
        if not self._repairs_left or rest.count("{") - rest.count("}") > _MAX_UNCLOSED:
            return None
        self._repairs_left -= 1
        end = next((span[1] for span in brace_spans(rest) if span[0] == 0), 0)
        tries = [(rest[:end], end)]
        if not end:
            # A brace at the end is forgotten more often than anything else.
            place = rest.find("</")
            whole = rest if place < 0 else rest[:place]
            tries = [(whole + "}" * n, len(whole)) for n in (1, 2)]
        for text, used in tries:
            try:
                value = parse_repaired_json(text)
            except ValueError:
                continue
            self._at += used
            return value
        return None

    def _call_in(self, value: Any) -> tuple[str, Mapping[str, Any]] | None:
        for inner in ("function", "tool_call", "function_call"):
            if isinstance(value, Mapping) and isinstance(value.get(inner), Mapping):
                value = value[inner]
        if not isinstance(value, Mapping):
            return None
        named = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), "")
        name = self._known(named)
        key = next((key for key in _ARGUMENT_KEYS if key in value), "")
        arguments = value.get(key, {})
        if isinstance(arguments, str):
            try:
                arguments = parse_repaired_json(arguments)
            except ValueError:
                return None
        if name is None or not isinstance(arguments, Mapping):
            return None
        has_arguments = key or not self._tools[name].get("required")
        return (name, dict(arguments)) if has_arguments else None

    def _action(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        mark = self._skip(_ACTION)
        name = None if mark is None else self._known(mark[1])
        value = None if name is None else self._object()
        return [] if name is None or not isinstance(value, Mapping) else [(name, dict(value))]

    def _known(self, name: str) -> str | None:
        return next((each for each in (name, name.rpartition(".")[2]) if each in self._tools), None)


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """Convert an argument written as text to the type that its schema asks for."""
    kinds = schema.get("type")
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    try:
        return parse_repaired_json(text.strip())
    except ValueError:
        return text


def _code_calls(code: str, tools: ToolSchemas) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Read calls written as Python, such as `print(default_api.write(path="a"))`."""
    try:
        body = ast.parse(code.strip()).body if len(code) <= _MAX_REPAIRED else []
        calls = [_code_call(each, tools) for each in body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [each for each in calls if each is not None]
    return found if len(found) == len(calls) <= MAX_CALLS else []


def _code_call(line: ast.stmt, tools: ToolSchemas) -> tuple[str, Mapping[str, Any]] | None:
    call = line.value if isinstance(line, ast.Expr | ast.Assign) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print":
        call = call.args[0] if len(call.args) == 1 else None
    if not isinstance(call, ast.Call):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in tools or any(word.arg is None for word in call.keywords):
        return None
    names = list(tools[name].get("properties", {}))[: len(call.args)]
    given = {str(word.arg): word.value for word in call.keywords}
    given |= dict(zip(names, call.args, strict=True))
    return name, {key: ast.literal_eval(value) for key, value in given.items()}


def is_quoted(found: WrittenCalls, sources: Iterator[str]) -> bool:
    """Whether a source has one of these calls, in any written form and layout."""
    written = _compact(found.text)
    is_telling = not _NAME_ALONE.fullmatch(written)
    return any(
        (is_telling and written in source) or any(_has_call(source, *call) for call in found.calls)
        for source in map(_compact, sources)
    )


def _compact(text: str) -> str:
    decoded = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), html.unescape(text))
    plain = _NOISE.sub("", _LAYOUT.sub("", decoded))
    return plain.replace("'", '"').casefold()


def _has_call(source: str, name: str, arguments: Mapping[str, Any] | str) -> bool:
    """Return True if the name is that of a call there, with each key and its value around it."""
    pieces = [] if isinstance(arguments, str) else [*_pieces(arguments)][:_MAX_PIECES]
    if not pieces:
        return False
    forms = [_form(key, lines[0]) for key, lines in pieces]
    lines = [line for _, each in pieces for line in each][:_MAX_PIECES]
    reach = _MARGIN + 3 * sum(len(key) + sum(map(len, each)) for key, each in pieces)
    done = -1
    for mark in _name_form(name).finditer(source):
        if mark.start() <= done:
            continue
        # What is skipped next lies in this part too, so each part is looked at three times at most.
        done = mark.start() + reach
        part = source[max(0, mark.start() - reach) : done + reach]
        if all(line in part for line in lines) and all(form.search(part) for form in forms):
            return True
    return False


def _name_form(name: str) -> re.Pattern[str]:
    keys, own = "|".join(NAME_KEYS), re.escape(_compact(name))
    return re.compile(
        rf'\b(?:{keys})"?:"(?:[\w-]+\.)*{own}"|(?:<function=|<invokename=)"?{own}"?>|<{own}>'
        rf"|\b{own}(?:\(|\{{|<arg_key>)|action:`?{own}"
    )


def _form(key: str, value: str) -> re.Pattern[str]:
    """The key before the value; a call in code may leave the key out."""
    near = rf'(?:{re.escape(key)}["=:></_a-z]{{0,{_NEAR}}}?|[(,\[]"?)' if key else ""
    return re.compile(near + re.escape(value))


def _pieces(value: Any, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the keys and the lines of their values, compact; a value has at least one line."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _pieces(inner, _compact(str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from _pieces(inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, [line for each in text.splitlines() if (line := _compact(each))] or [""]
