"""Schemas of structured model answers, whose docstrings and descriptions models read; and repair of
almost valid JSON as models write it."""

from __future__ import annotations

import json
import re
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

from bot.engine.llm.plan_reader import normalize_plan, normalize_step

PROPOSE_TASK = "propose_task"
"""The tool with which the chat model proposes a task."""

MAX_STEPS = 30
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
