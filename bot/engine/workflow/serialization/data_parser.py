"""Safe parsing of JSON, YAML and the Markdown format of workflows into bounded plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Never

import yaml

from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.nodes.registry import NodeType, spec_of

# --- JSON and YAML, bounded, without aliases or tags

YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML_INTEGER = re.compile(r"[-+]?\d{1,18}")
_YAML_FLOAT = re.compile(r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?")
_YAML_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def parse_yaml_events(text: str, *, max_depth: int, max_values: int) -> tuple[Any, list[str]]:
    """Return the parsed value and duplicate keys. Raises InvalidGraph.

    Scalars follow YAML 1.2: `no` is a string, and so is a date. Tags and aliases are refused, so
    nothing is constructed or copied.
    """
    making = _YamlBuilder(max_depth=max_depth, max_values=max_values)
    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            making.take(event)
    except InvalidGraph:
        raise
    except yaml.YAMLError as error:
        raise InvalidGraph([_yaml_issue(error, text)]) from error
    except (RecursionError, ValueError) as error:
        raise InvalidGraph(
            [ValidationIssue(key="bad_yaml", facts={"line": 1, "why": ""})]
        ) from error
    return making.value, making.duplicate_names


@dataclass(slots=True)
class _OpenContainer:
    """An unfinished mapping or list; `name` is the key of the next value."""

    content: dict[str, Any] | list[Any]
    name: str | None = None


@dataclass(slots=True)
class _YamlBuilder:
    max_depth: int
    max_values: int
    value: Any = None
    duplicate_names: list[str] = field(default_factory=list)
    _containers: list[_OpenContainer] = field(default_factory=list)
    _value_count: int = 0
    _documents: int = 0

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    _refuse_yaml("several_documents", event)
            case yaml.AliasEvent():
                _refuse_yaml("yaml_alias", event)
            case yaml.ScalarEvent():
                self._add(_yaml_scalar(event), event)
            case yaml.MappingStartEvent():
                self._begin({}, event)
            case yaml.SequenceStartEvent():
                self._begin([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._containers.pop()
            case _:
                pass

    def _begin(self, holds: dict[str, Any] | list[Any], event: Any) -> None:
        if event.tag is not None and not event.implicit:
            _refuse_yaml("yaml_tag", event)
        if len(self._containers) >= self.max_depth:
            _refuse_yaml("too_nested", event, most=self.max_depth)
        self._add(holds, event)
        self._containers.append(_OpenContainer(holds))

    def _add(self, value: Any, event: Any) -> None:
        self._value_count += 1
        if self._value_count > self.max_values:
            _refuse_yaml("too_many_values", event)
        if not self._containers:
            self.value = value
            return
        inside = self._containers[-1]
        if isinstance(inside.content, list):
            inside.content.append(value)
        elif inside.name is None:
            inside.name = self._name(value, event)
        else:
            if inside.name in inside.content:
                self.duplicate_names.append(inside.name)
            inside.content[inside.name] = value
            inside.name = None

    def _name(self, value: Any, event: Any) -> str:
        if isinstance(value, dict | list):
            _refuse_yaml("yaml_key", event)
        return str(getattr(event, "value", value))


_YAML_MISTAKES = (
    ("yaml_alias", re.compile(r"alias|anchor")),
    ("yaml_tag", re.compile(r"\btag\b")),
    ("yaml_tab", re.compile("tab character")),
    ("yaml_start", re.compile("cannot start any token")),
    ("yaml_colon", re.compile("mapping values are not allowed")),
    ("yaml_quote", re.compile("quoted scalar")),
    ("yaml_bracket", re.compile("flow (?:mapping|sequence)")),
    ("yaml_indent", re.compile("block (?:mapping|collection|sequence)")),
)
"""Kinds of mistakes, by the words of the parser."""


def _yaml_issue(error: yaml.YAMLError, text: str) -> ValidationIssue:
    if (offset := getattr(error, "position", None)) is not None:
        # Of a character that YAML does not allow; it may count bytes.
        above = text.encode()[:offset].decode("utf-8", "replace").splitlines() or [""]
        facts = {"line": len(above), "column": len(above[-1]) + 1}
        return ValidationIssue(key="yaml_control", facts=facts)
    why = str(getattr(error, "problem", "") or "").strip()[:100]
    about = f"{getattr(error, 'context', None) or ''} {why}"
    key = next((key for key, words in _YAML_MISTAKES if words.search(about)), "bad_yaml")
    mark = getattr(error, "problem_mark", None)
    if key in {"yaml_quote", "yaml_bracket"}:
        # Where it was opened: the end of the text says nothing.
        mark = getattr(error, "context_mark", None) or mark
    if key == "yaml_start" and mark and text.split("\n")[mark.line][mark.column :][:1] == "\t":
        key = "yaml_tab"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return ValidationIssue(key=key, facts={"line": line, "column": column, "why": why})


def _yaml_scalar(event: yaml.ScalarEvent) -> Any:
    if event.tag is not None and event.tag != "tag:yaml.org,2002:str":
        _refuse_yaml("yaml_tag", event)
    text: str = event.value
    if event.style not in {None, ""} or event.tag is not None:
        return text
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if _YAML_INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _YAML_FLOAT.fullmatch(text) else text


class _YamlDumper(yaml.SafeDumper):
    """Quotes every string that `parse_yaml_events` would read as another type, such as `1E5`."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = text not in _YAML_WORDS and not (
        _YAML_INTEGER.fullmatch(text) or _YAML_FLOAT.fullmatch(text)
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else "'")


_YamlDumper.add_representer(str, _represent_text)


def dump_yaml(data: Any) -> str:
    """Dump YAML in the order of `data`, so that `parse_yaml_events` returns the same data."""
    return yaml.dump(data, Dumper=_YamlDumper, allow_unicode=True, sort_keys=False, width=100)


def _refuse_yaml(key: str, event: Any, **facts: object) -> None:
    mark = event.start_mark
    place = {"line": mark.line + 1, "column": mark.column + 1} if mark else {"line": 1}
    raise InvalidGraph([ValidationIssue(key=key, facts={**place, **facts})])


MAX_BYTES = 1_000_000
_MAX_VALUES = 200_000
_MAX_DEPTH = 40
_MAX_NUMBER = 10**18
_TOO_NESTED = ValidationIssue(key="too_nested", facts={"most": _MAX_DEPTH})
_FENCED = re.compile(
    r"\A\s*(?P<fence>`{3,}|~{3,})[ \t]*[\w-]*[ \t]*\r?\n(?P<inside>.*?)\r?\n?(?P=fence)\s*\Z",
    re.DOTALL,
)


def strip_fence(text: str) -> str:
    """Remove a code fence around the text. Raises InvalidGraph if the text is too long."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidGraph([ValidationIssue(key="too_long", facts={"most": MAX_BYTES})])
    text = text.removeprefix("\ufeff")
    fenced = _FENCED.match(text)
    return fenced["inside"] if fenced else text


def parse_data(text: str) -> Any:
    """Parse JSON or YAML. Raises InvalidGraph."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return parse_json(text)
        except InvalidGraph as bad:
            if bad.issues[0].key != "bad_json":
                raise
            try:
                return parse_yaml(text)
            except InvalidGraph:
                raise bad from None
    return parse_yaml(text)


def parse_json(text: str) -> Any:
    twice: list[str] = []

    def group(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for name, value in pairs:
            if name in mapping:
                twice.append(name)
            mapping[name] = value
        return mapping

    try:
        value = json.loads(text, object_pairs_hook=group, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        facts = {"line": error.lineno, "column": error.colno, "why": error.msg}
        raise InvalidGraph([ValidationIssue(key="bad_json", facts=facts)]) from error
    except RecursionError as error:
        raise InvalidGraph([_TOO_NESTED]) from error
    except ValueError as error:
        raise InvalidGraph([ValidationIssue(key="bad_number")]) from error
    return clean_data(value, twice)


def parse_yaml(text: str) -> Any:
    value, twice = parse_yaml_events(text, max_depth=_MAX_DEPTH, max_values=_MAX_VALUES)
    return clean_data(value, twice)


def clean_data(value: Any, duplicate_names: Iterable[str] = ()) -> Any:
    """Return the value with storable strings. Raises InvalidGraph for duplicate keys or too much
    data."""
    faults = [ValidationIssue(key="given_twice", field=name[:60]) for name in duplicate_names]
    cleaning = _DataCleaner()
    cleaned = cleaning.clean(value, 0)
    if faults or cleaning.issues:
        raise InvalidGraph([*faults, *cleaning.issues.values()])
    return cleaned


class _DataCleaner:
    def __init__(self) -> None:
        self.issues: dict[str, ValidationIssue] = {}
        self._value_count = 0

    def clean(self, value: Any, deep: int) -> Any:
        self._value_count += 1
        if deep > _MAX_DEPTH or self._value_count > _MAX_VALUES:
            issue = _TOO_NESTED if deep > _MAX_DEPTH else ValidationIssue(key="too_many_values")
            self.issues[issue.key] = issue
            return None
        match value:
            case dict():
                return {
                    _clean_text(name): self.clean(each, deep + 1) for name, each in value.items()
                }
            case list():
                return [self.clean(each, deep + 1) for each in value]
            case str():
                return _clean_text(value)
            case int() | float() if not abs(value) <= _MAX_NUMBER:
                self.issues["bad_number"] = ValidationIssue(key="bad_number")
        return value


def _clean_text(text: str) -> str:
    """Remove lone surrogates and NUL characters, which the store does not accept."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _refuse_constant(name: str) -> Never:
    raise ValueError(name)


# --- the Markdown format: a heading for each task, with lines for its fields

DEFAULT_MAX_LOOPS = 3
"""Loop limit of a line under `## Loops` that gives none."""

_NAME_DEPTH, _SECTION_DEPTH, _TASK_DEPTH = 1, 2, 3
_TASKS = r"(?:任务|步骤|tasks?|steps?)"
_LOOPS = r"(?:循环|loops?)"
_BACKGROUND = r"(?:背景|说明|描述|background|description|context)"
_IS_MARKDOWN_WORKFLOW = re.compile(
    rf"^(?:##[ \t]*{_TASKS}[ \t:：]*$|###[ \t]+\S)", re.MULTILINE | re.IGNORECASE
)
_HAS_NODES = re.compile(r"^(?:nodes|steps)\s*:", re.MULTILINE)
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_NUMBERED = re.compile(
    r"(?:(?:任务|步骤|task|step)\s*)?(\d{1,6})\s*[.、:：)）]\s*(.*)", re.IGNORECASE
)
_FIELD = re.compile(r"[-*+]\s+\**([^\W\d][\w -]{0,30}?)\**\s*[:：]\**[ \t]*(.*)")
_ARROW = re.compile(r"→|->|=>")
_RULE = re.compile(r"[（(](.*)[）)]")
_MAX_RULE = 500
_MAX_FIELD = 2_000
_MAX_LOOPS_TEXT = re.compile(
    r"[,，;；]?(?<!\s)\s*(?:最多|at most|max(?:imum)?\.?)\s*(\d{1,6})\s*(?:次|轮|times|rounds)?",
    re.IGNORECASE,
)
_CONDITION_WORD = re.compile(r"^\s*(?:当|如果|when\b|if\b)\s*", re.IGNORECASE)
_FIELD_NAMES = {
    **dict.fromkeys(("agent", "persona", "执行者", "角色"), "agent"),
    **dict.fromkeys(("type", "类型"), "type"),
    **dict.fromkeys(("depends", "depends on", "dependencies", "after", "依赖"), "after"),
    **dict.fromkeys(("description", "prompt", "detail", "描述", "说明"), "prompt"),
    **dict.fromkeys(("condition", "when", "条件"), "when"),
    **dict.fromkeys(("timeout", "超时"), "timeout"),
    **dict.fromkeys(("retries", "重试"), "retries"),
    **dict.fromkeys(("output", "输出"), "output"),
    **dict.fromkeys(("deliverables", "files", "交付物", "交付文件"), "deliverables"),
    **dict.fromkeys(("审批人", "负责人"), "assignee"),
    **{
        name.casefold(): name
        for name in (
            "onError",
            "autoWait",
            "repeatable",
            *(name for kind in NodeType for name in kind.spec.fields),
        )
    },
}
_TYPE_NAMES = {name: kind.value for kind in NodeType for name in kind.spec.markdown_names}
_NODE_FIELDS = {name for kind in NodeType for name in kind.spec.node_fields}
_BODY_FIELDS = {name for kind in NodeType for name in kind.spec.body_fields}
_EMPTY_WORDS = {"", "无", "none", "-", "没有"}


@dataclass(slots=True)
class _MarkdownTask:
    number: str
    title: str
    line: int
    fields: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    last: str = ""


@dataclass(slots=True)
class _MarkdownPage:
    name: str = ""
    line: int = 0
    section: str = ""
    background: list[str] = field(default_factory=list)
    tasks: list[_MarkdownTask] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)


def is_markdown(text: str) -> bool:
    """Whether the text is in this format; YAML may start with `#` too."""
    begins = text.lstrip().startswith("#")
    return begins and bool(_IS_MARKDOWN_WORKFLOW.search(text)) and not _HAS_NODES.search(text)


def parse_markdown(text: str) -> dict[str, Any]:
    """Convert to the structure of the JSON format."""
    return _page_data(_read_page(text))


def find_task_lines(text: str) -> dict[str, int]:
    """The line of each task's heading, by the id that the task gets."""
    tasks = _read_page(text).tasks
    return {name: task.line for name, task in zip(_task_ids(tasks), tasks, strict=True)}


def _read_page(text: str) -> _MarkdownPage:
    page = _MarkdownPage()
    fence = ""
    for page.line, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.match(line)
        if heading is None or not _take_heading(page, len(heading[1]), _heading_text(heading[2])):
            _take_line(page, line, plain=not fence and not mark)
    return page


def _take_heading(page: _MarkdownPage, depth: int, title: str) -> bool:
    """Whether the heading belongs to the format; others are plain text."""
    if depth == _NAME_DEPTH and not page.name:
        page.name = title
    elif depth == _SECTION_DEPTH:
        page.section = _section(title)
    elif depth == _TASK_DEPTH and page.section in {"", "tasks"}:
        numbered = _NUMBERED.fullmatch(title)
        number, name = (numbered[1], numbered[2]) if numbered else ("", title)
        page.section = "tasks"
        page.tasks.append(_MarkdownTask(number, name, page.line))
    else:
        return False
    return True


def _heading_text(text: str) -> str:
    """Without closing `#` characters."""
    text = text.strip()
    open_ = text.rstrip("#")
    return open_.rstrip() if open_.endswith((" ", "\t")) else text


def _section(title: str) -> str:
    known = {"tasks": _TASKS, "loops": _LOOPS, "background": _BACKGROUND}
    title = title.strip(" :：")
    found = (name for name, form in known.items() if re.fullmatch(form, title, re.IGNORECASE))
    return next(found, "more")


def _take_line(page: _MarkdownPage, line: str, *, plain: bool) -> None:
    match page.section:
        case "loops":
            page.loops.append(line)
        case "tasks" if page.tasks:
            _take_task_line(page.tasks[-1], line, plain=plain)
        case _:
            page.background.append(line)


def _take_task_line(task: _MarkdownTask, line: str, *, plain: bool) -> None:
    found = _FIELD.fullmatch(line.rstrip()) if plain else None
    name = _FIELD_NAMES.get(found[1].strip().casefold(), "") if found else ""
    if found and name and name not in task.fields:
        task.fields[name], task.last = found[2].strip(), name
    elif _continues_field(task, line):
        task.fields[task.last] += f" {line.strip()}"
    else:
        task.last = "prompt"
        task.text.append(line)


def _continues_field(task: _MarkdownTask, line: str) -> bool:
    """Whether an indented line continues the field above it."""
    set_back = line.startswith((" ", "\t")) and bool(line.strip())
    if not set_back or task.last in {"", "prompt"}:
        return False
    return len(task.fields[task.last]) < _MAX_FIELD


def _page_data(page: _MarkdownPage) -> dict[str, Any]:
    names = _task_ids(page.tasks)
    known = _task_names(page.tasks, names)
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "start"}]
    edges: list[dict[str, Any]] = []
    for task, name in zip(page.tasks, names, strict=True):
        nodes.append(_node_data(task, name, known))
        edges += _edge_data(task, name, known)
    edges += _loop_edges(page.loops, known)
    return {
        "name": page.name,
        "description": "\n".join(page.background).strip(),
        "nodes": nodes if page.tasks else [],
        "edges": edges,
    }


def _task_ids(tasks: Sequence[_MarkdownTask]) -> list[str]:
    """By the written numbers if they are complete and unique, or else by position."""
    numbers = [task.number.lstrip("0") or "0" for task in tasks]
    own = all(task.number for task in tasks) and len(set(numbers)) == len(numbers)
    return [f"task-{number if own else n}" for n, number in enumerate(numbers, start=1)]


def _task_names(tasks: Sequence[_MarkdownTask], names: Iterable[str]) -> Mapping[str, str]:
    """Alternative names of tasks: title, number and id."""
    known: dict[str, str] = {}
    for task, name in zip(tasks, names, strict=True):
        for called in (name, name.removeprefix("task-"), task.title.casefold()):
            known.setdefault(called, name)
    return known


def _node_data(task: _MarkdownTask, name: str, known: Mapping[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"id": name, "name": task.title}
    text = "\n".join([task.fields.get("prompt", ""), *task.text]).strip()
    for key, value in task.fields.items():
        if key in _BODY_FIELDS | _NODE_FIELDS:
            names = [_resolve_name(each, known) for each in _split_list(value)]
            data[key] = names if key in _BODY_FIELDS else "".join(names[:1])
        elif key not in {"prompt", "after", "when"}:
            data[key] = value
    kind = data.get("type", "").strip()
    data["type"] = _TYPE_NAMES.get(kind, kind) or "task"
    timeout = spec_of(data["type"]).markdown_timeout
    if timeout:
        data.setdefault("timeout", timeout)
    return {**data, "prompt": text} if text else data


def _edge_data(
    task: _MarkdownTask, name: str, known: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    before = [_resolve_name(each, known) for each in _split_list(task.fields.get("after", ""))]
    condition = task.fields.get("when", "")
    for each in before or ["start"]:
        edge = {"from": each, "to": name}
        yield {**edge, "condition": condition} if condition else edge


def _loop_edges(lines: Iterable[str], known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        arrow = _ARROW.search(line)
        if arrow is None:
            continue
        target = line[arrow.end() :]
        brackets = _RULE.search(target)
        rule = brackets[1][:_MAX_RULE] if brackets else ""
        target = target[: brackets.start()] if brackets else target
        most = _MAX_LOOPS_TEXT.search(rule)
        condition = _CONDITION_WORD.sub("", _MAX_LOOPS_TEXT.sub("", rule)).strip(" ,，;；")
        yield {
            "from": _resolve_name(line[: arrow.start()].strip().lstrip("-*+ "), known),
            "to": _resolve_name(target, known),
            "maxLoops": int(most[1]) if most else DEFAULT_MAX_LOOPS,
            "label": "loop",
            **({"condition": condition} if condition else {}),
        }


def _split_list(text: str) -> list[str]:
    parts = re.split(r"[,，、;；]", text.strip().strip("[]"))
    return [part.strip() for part in parts if part.strip().casefold() not in _EMPTY_WORDS]


def _resolve_name(name: str, known: Mapping[str, str]) -> str:
    """Unknown names stay as they are; validation of the edges reports them."""
    name = name.strip().strip("`\"'“”")
    return known.get(name) or known.get(name.casefold()) or name
