"""Schemas of structured model answers, whose docstrings and descriptions models read; and reading
of plans and answers as models write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)

# --- plans as models write them
# Steps as Markdown lists, headings or tags, and objects with other field names than asked for.

_MAX_LINES = 4_000
_MAX_LISTED_STEPS = 200
_MAX_TITLE = 200
_MAX_TAGGED = 5_000
_MAX_PATH = 500
_NUMBER = r"(?:\d{1,3}|[一二三四五六七八九十]{1,3}|[①②③④⑤⑥⑦⑧⑨⑩])"
_NUMBERED = re.compile(
    rf"(?P<indent>[ \t]*)(?:\#{{1,6}}[ \t]*)?(?:\*\*|__)?[(（]?"
    rf"(?:(?:(?:step|task|步骤|步驟|任务)[ \t]*{_NUMBER}|第{_NUMBER}步)"
    r"(?:\*\*|__)?[ \t]*[.)、．）:：\-–—]?"
    rf"|{_NUMBER}[.)、．）:：](?:\*\*|__)?|[①②③④⑤⑥⑦⑧⑨⑩])(?!\d)(?P<text>.*)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?P<indent>[ \t]*)[-*+•‣▪][ \t]+(?P<text>\S.*)")
_CHECKBOX = re.compile(r"\[[ xX]?\][ \t]*")
_HEAD = re.compile(r"(?P<title>.{2,100}?)(?:[ \t]+[-–—][ \t]+|[:：][ \t]*|——)(?P<detail>\S.*)")
_BOLD_HEAD = re.compile(
    r"(?:\*\*|__)(?P<title>[^*_]{2,150})(?:\*\*|__)[ \t]*+[:：.\-–—]*+[ \t]*+(?P<detail>.*)"
)
_MARKUP = re.compile(r"\*\*|__|^\#+[ \t]*")
_STEP_OPEN = re.compile(r"<step(?:[ \t][^<>]{0,200})?>", re.IGNORECASE)
_INNER = {
    name: re.compile(rf"<{tags}>(.*?)</", re.IGNORECASE | re.DOTALL)
    for name, tags in (
        ("title", "(?:title|name)"),
        ("detail", "(?:detail|details|description|instructions)"),
        ("persona", "(?:persona)"),
    )
}
_TAG = re.compile(r"<[^<>]{1,100}>")


@dataclass(frozen=True, slots=True)
class StepList:
    """Steps as fields of `answer_schemas.PlanStep`, and the text before them."""

    intro: str
    steps: Sequence[Mapping[str, str]]


@dataclass(slots=True)
class _Item:
    indent: int
    text: str
    more: list[str] = field(default_factory=list)


def read_steps(text: str) -> StepList | None:
    """Return the steps of a plan in words; None if it has none, or too many to be one."""
    tagged = list(_tagged_steps(text))
    found = StepList("", tagged) if tagged else _listed_steps(text)
    return found if found is not None and len(found.steps) <= _MAX_LISTED_STEPS else None


def _tagged_steps(text: str) -> Iterator[Mapping[str, str]]:
    """Steps written as `<step>…</step>`."""
    at, lower = 0, text.casefold()
    lower = lower if len(lower) == len(text) else text
    while (opened := _STEP_OPEN.search(text, at)) is not None:
        end = lower.find("</step>", opened.end())
        if end < 0:
            return
        inside = text[opened.end() : min(end, opened.end() + _MAX_TAGGED)]
        # Without what no tag closes, which each opening tag would search to its end.
        closed = inside[: inside.rfind("</") + 2]
        fields = {
            name: mark[1].strip() for name, form in _INNER.items() if (mark := form.search(closed))
        }
        words = " ".join(_TAG.sub(" ", inside).split())
        if fields.get("title") or words:
            yield fields if fields.get("title") else _as_step(words, [])
        at = end


def _listed_steps(text: str) -> StepList | None:
    lines = [line.rstrip() for line in text.splitlines()[:_MAX_LINES] if not _is_fence(line)]
    for form, least in ((_NUMBERED, 1), (_BULLET, 2)):
        intro, items = _items(lines, form)
        if len(items) >= least:
            steps = [_as_step(item.text, item.more) for item in items]
            return StepList(intro, steps)
    return None


def _is_fence(line: str) -> bool:
    return line.lstrip().startswith("```")


def _items(lines: Sequence[str], form: re.Pattern[str]) -> tuple[str, Sequence[_Item]]:
    """The text before the list and its outermost items, with the lines that belong to each."""
    intro: list[str] = []
    items: list[_Item] = []
    is_after_blank = False
    for line in lines:
        found = form.match(line)
        indent = len(line) - len(line.lstrip())
        if found and (not items or indent <= items[0].indent):
            items.append(_Item(indent, found["text"].strip()))
        elif not items:
            intro.append(line)
        elif line and (indent > items[0].indent or not is_after_blank or _BULLET.match(line)):
            items[-1].more.append(line.strip())
        is_after_blank = not line
    kept = [item for item in items if item.text.strip("*_ ") or item.more]
    return " ".join(" ".join(intro).split())[:1_000], kept


def _as_step(text: str, more: Sequence[str]) -> Mapping[str, str]:
    text, more = _CHECKBOX.sub("", text, count=1).strip(), list(more)
    if more and not text.strip("*_ "):
        text = more.pop(0)
    head = _BOLD_HEAD.fullmatch(text) or _HEAD.fullmatch(text)
    title, detail = (head["title"], head["detail"]) if head else (text, "")
    title = _MARKUP.sub("", title).strip()
    if len(title) > _MAX_TITLE:
        title, detail = title[: _MAX_TITLE - 1] + "…", text
    return {"title": title or text[:_MAX_TITLE], "detail": "\n".join(filter(None, [detail, *more]))}


_STEP_NAMES = {
    "title": ("name", "step", "task", "action", "goal", "summary"),
    "detail": ("description", "details", "instructions", "instruction", "prompt", "content"),
    "persona": ("agent", "worker", "role", "assignee"),
    "deliverables": ("files", "outputs", "output_files"),
}
_PLAN_NAMES = {
    "steps": ("tasks", "plan_steps", "step_list", "todo", "todos", "actions", "步骤"),
    "answer": ("final_answer", "response"),
}
_FALSE_WORDS = {"false", "no", "0", "否"}
_TRUE_WORDS = {"true", "yes", "1", "是"}


def normalize_step(value: Any) -> Any:
    """Return a step's fields under the names asked for, each shortened to what may be."""
    if isinstance(value, str):
        return _as_step(value, []) if value.strip() else value
    if not isinstance(value, Mapping):
        return value
    fields = _renamed(value, _STEP_NAMES)
    title, detail = _text(fields.get("title")), _text(fields.get("detail"))
    if detail and not title:
        title = detail.splitlines()[0]
    if len(title) > _MAX_TITLE:
        title, detail = title[: _MAX_TITLE - 1] + "…", detail or title
    fields |= {"title": title, "detail": detail}
    if isinstance(fields.get("persona"), str):
        fields["persona"] = fields["persona"].strip().casefold()
    if isinstance(fields.get("repeatable"), str | int):
        word = str(fields["repeatable"]).strip().casefold()
        fields["repeatable"] = word not in _FALSE_WORDS
        if word not in _FALSE_WORDS | _TRUE_WORDS:
            del fields["repeatable"]
    files = fields.get("deliverables", [])
    files = [files] if isinstance(files, str) else files
    if isinstance(files, list):
        kept = [
            each for each in files if isinstance(each, str) and 0 < len(each.strip()) <= _MAX_PATH
        ]
        fields["deliverables"] = kept
    return fields


def normalize_plan(value: Any) -> Any:
    """Return a plan's fields under the names asked for; steps that are none are dropped."""
    if not isinstance(value, Mapping):
        return value
    fields = _renamed(value, _PLAN_NAMES)
    if isinstance(fields.get("nodes"), list | dict) and not fields.get("workflow"):
        return {"workflow": dict(value)}
    if isinstance(fields.get("plan"), list) and not fields.get("steps"):
        fields["steps"], fields["plan"] = fields["plan"], ""
    if not isinstance(fields.get("plan", ""), str):
        del fields["plan"]
    steps = fields.get("steps")
    if isinstance(steps, str):
        steps = _steps_in_text(steps)
    elif isinstance(steps, Mapping):
        steps = list(steps.values())
    if isinstance(steps, list):
        steps = [each for each in map(normalize_step, steps) if _has_title(each)]
    fields["steps"] = [] if steps is None else steps
    return fields


def _steps_in_text(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        found = read_steps(text)
        return list(found.steps) if found else []
    return value if isinstance(value, list) else []


def _renamed(value: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    fields = dict(value)
    for name, others in names.items():
        known = next((each for each in (name, *others) if fields.get(each)), name)
        if known != name:
            fields[name] = fields.pop(known)
    return fields


def _has_title(step: Any) -> bool:
    return not isinstance(step, Mapping) or bool(_text(step.get("title")).strip())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- schemas of answers, and repair of almost valid JSON

PROPOSE_TASK = "propose_task"
"""The tool with which the chat model proposes a task."""

MAX_STEPS = 30
"""Of a plan by a model; `workflow.validation.MAX_NODES` limits all workflows."""
MAX_TITLE = 200
MAX_TEXT = 20_000
MAX_FILES = 50
MAX_DELIVERABLES = 20
MAX_NOTES = 20
_EMPTY_WORDS = {"null", "none", "{}", "[]", "n/a"}

TitleText = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TITLE)
]
AnswerText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TEXT)]
NoteText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TEXT)]
FilePath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class PlanStep(BaseModel):
    """One step of a plan: work that ends with something to show."""

    model_config = ConfigDict(strict=True, defer_build=True)

    title: TitleText = Field(
        description="What the step does, in a few words, in the Boss's language."
    )
    detail: AnswerText = Field(
        default="", description="All that the one who does the step must know."
    )
    kind: Literal["work", "ask"] = Field(
        default="work",
        description="ask: a person has to do or decide this; the detail tells them what.",
    )
    repeatable: bool = Field(
        default=True,
        description="False if doing the step twice does harm: sending, paying, deleting.",
    )
    persona: Annotated[
        str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=64)
    ] = Field(
        default="",
        description="The step's persona, by name, if another than the default fits it better.",
    )
    deliverables: list[FilePath] = Field(
        default_factory=list,
        max_length=MAX_DELIVERABLES,
        description=(
            "Files that must be there when the step is done, as paths relative to the workspace."
            " Only those the task names or a later step needs; mostly empty."
        ),
    )

    @model_validator(mode="wrap")
    @classmethod
    def _drop_bad_fields(cls, value: Any, handler: ModelWrapValidatorHandler[PlanStep]) -> PlanStep:
        """A field that may be missing is dropped where it is not of the form."""
        fields = normalize_step(value)
        try:
            return handler(fields)
        except ValidationError as error:
            bad = {each["loc"][0] for each in error.errors() if each["loc"]} - {"title"}
            if not bad or not isinstance(fields, dict):
                raise
            return handler({name: each for name, each in fields.items() if name not in bad})


def _as_text(value: Any) -> Any:
    """Some models return the object itself instead of its text, or a word for none."""
    if isinstance(value, dict | list) and value:
        return json.dumps(value, ensure_ascii=False)
    none = not value or (isinstance(value, str) and value.strip().casefold() in _EMPTY_WORDS)
    return "" if none else value


class PlanAnswer(BaseModel):
    """How a task will be done: steps in order, or the answer at once where no work is needed."""

    model_config = ConfigDict(strict=True, defer_build=True)

    plan: AnswerText = Field(default="", description="The approach in one to three sentences.")
    steps: list[PlanStep] = Field(
        default_factory=list,
        max_length=MAX_STEPS,
        description="The steps in order. Empty only if `answer` already says everything.",
    )
    answer: AnswerText = Field(
        default="", description="The complete answer, if the task needs no step at all."
    )
    workflow: Annotated[AnswerText, BeforeValidator(_as_text)] = Field(
        default="",
        description="A workflow as JSON, only where steps in order cannot do it. Mostly empty.",
    )

    @model_validator(mode="before")
    @classmethod
    def _as_asked_for(cls, value: Any) -> Any:
        return normalize_plan(value)

    @model_validator(mode="after")
    def _says_something(self) -> PlanAnswer:
        if not self.steps and not self.answer and not self.workflow:
            raise ValueError("give at least one step, or the complete answer")
        return self


@lru_cache(maxsize=32)
def plan_answer_for(personas: tuple[str, ...]) -> type[PlanAnswer]:
    """Return the form of a plan whose steps may name only these personas; others are dropped."""
    if not personas:
        return PlanAnswer
    description = PlanStep.model_fields["persona"].description
    known = Field(description=description, json_schema_extra={"enum": ["", *personas]})
    one: Any = Annotated[str, known, AfterValidator(lambda name: name if name in personas else "")]
    step = create_model(
        PlanStep.__name__, __base__=PlanStep, __doc__=PlanStep.__doc__, persona=(one, "")
    )
    steps = PlanAnswer.model_fields["steps"]
    return create_model(
        PlanAnswer.__name__,
        __base__=PlanAnswer,
        __doc__=PlanAnswer.__doc__,
        steps=(
            list[step],  # type: ignore[valid-type]
            Field(default_factory=list, max_length=MAX_STEPS, description=steps.description),
        ),
    )


class StepAnswer(BaseModel):
    """The outcome of one step. `done` only if the step's work really is done."""

    model_config = ConfigDict(strict=True, defer_build=True)

    status: Literal["done", "error", "blocked"] = Field(
        description=(
            "done: the work is finished. error: it was tried and failed."
            " blocked: it needs something that only the Boss can give."
        )
    )
    summary: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)
    ] = Field(description="What was done and found, or what went wrong, for the Boss to read.")
    files: list[FilePath] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description="Files made or changed, as paths relative to the workspace.",
    )
    findings: list[NoteText] = Field(
        default_factory=list,
        max_length=MAX_NOTES,
        description="Facts found that later work must know, one short sentence each.",
    )
    decisions: list[NoteText] = Field(
        default_factory=list,
        max_length=MAX_NOTES,
        description="What was decided and why, one short sentence each.",
    )
    resources: list[NoteText] = Field(
        default_factory=list,
        max_length=MAX_NOTES,
        description="Addresses and paths worth finding again, one each.",
    )
    needs_replan: bool = Field(
        default=False, description="True if the remaining steps no longer fit what was found."
    )


class IntentAnswer(BaseModel):
    """Whether a message is talk to be answered, or work to be queued as a task."""

    model_config = ConfigDict(strict=True, defer_build=True)

    kind: Literal["talk", "task"] = Field(
        description="task only if the message asks for work that leaves a result behind."
    )
    title: Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_TITLE)] = Field(
        default="", description="A short title for the task, in the Boss's language."
    )
    priority: Literal["urgent", "important", "normal"] | None = Field(
        default=None, description="Only if the message itself says how urgent it is."
    )


_MAX_FAULTS = 5
_MAX_FAULT = 300


def find_faults(error: ValidationError) -> str:
    """Describe the faults of an answer, for its model, and for people if it stays so."""
    faults = []
    for each in error.errors(include_url=False, include_context=False)[:_MAX_FAULTS]:
        place = ".".join(map(str, each["loc"]))
        what = str(each["msg"]).removeprefix("Value error, ")[:_MAX_FAULT]
        faults.append(f"{place}: {what}" if place else what)
    return "; ".join(faults)


_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|\#[^\n]*)|(?P<comment>/\*)|(?P<sign>[{}\[\],:])"
    r"|(?P<quote>[\"'“”])|(?P<word>[^\s{}\[\],:\"'“”]+)"
)
_AFTER_STRING = re.compile(r"\s*(?:[,:}\]]|//|/\*|\Z)")
_CLOSING = {'"': '"', "'": "'", "“": '”"', "”": '”"'}
_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPECIAL = re.compile(r"""\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4})|[\\"\x00-\x1f]""")


def repair_json(text: str) -> str:
    """Remove comments and trailing commas, fix quotes and escape characters.

    Raises ValueError. The result may still be invalid JSON."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # the groups cover every character
        at = token.end()
        if token["comment"]:
            at = text.index("*/", at) + 2
        elif token["quote"]:
            end = find_string_end(text, at, _CLOSING[token["quote"]])
            parts.append(_quoted(text[at:end]))
            at = end + 1
        elif token["word"]:
            parts.append(_bare_word(token["word"]))
        elif token["sign"]:
            if token["sign"] in "}]" and parts and parts[-1] == ",":
                parts.pop()
            parts.append(token["sign"])
    return "".join(parts)


def find_string_end(text: str, start: int, closing: str) -> int:
    """Return the end of the string that contains `start`: a quote followed by JSON syntax."""
    while start < len(text):
        if text[start] == "\\":
            start += 1
        elif text[start] in closing and _AFTER_STRING.match(text, start + 1):
            return start
        start += 1
    return len(text)


def _quoted(inside: str) -> str:
    """Quote the text, keeping valid escapes."""
    return f'"{_SPECIAL.sub(_escaped, inside)}"'


def _escaped(found: re.Match[str]) -> str:
    special = found[0]
    if special == "\\'":
        return "'"
    return special if len(special) > 1 else json.dumps(special)[1:-1]


def _bare_word(word: str) -> str:
    word = _LITERALS.get(word, word)
    return word if _PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False)
