"""How a CLI hands in a result: JSON in a file or at the end of its words, checked by us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from bot.engine.llm.loop.mending import mended_text

FILE = ".shiftboss/result.json"
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_MOST = 500_000
_PROBLEMS = 5


class NoResult(Exception):
    """What was handed in cannot be used; its text says why, for the model to read."""


def asked_for(form: type[BaseModel]) -> str:
    """What is added to the prompt."""
    schema = json.dumps(form.model_json_schema(), ensure_ascii=False)
    return (
        "When you are finished, end your last message with exactly one fenced block that begins"
        " with ```json and holds one JSON object that follows this JSON schema:\n"
        f"{schema}\n"
        f"(Instead of the block you may write the same object to the file {FILE}.)"
        " Only this object counts as your result. Say honestly in it what you did not do."
    )


def asked_again(why: str) -> str:
    return (
        f"Your result could not be read: {why}. Do no further work and use no tools: answer with"
        " only the ```json block that was asked for."
    )


def forget(workspace: Path | None) -> None:
    """A file that an earlier run left is no result of this one. Blocks."""
    if workspace is None:
        return
    path = workspace / FILE
    if path.parent.resolve().is_relative_to(workspace.resolve()):
        path.unlink(missing_ok=True)


def handed_in(text: str, workspace: Path | None, form: type[BaseModel]) -> BaseModel:
    """The result, from the last block that holds one, else from the file. Raises NoResult.
    Blocks."""
    why = "there was no ```json block"
    for found in (*_blocks(text), *_file(workspace)):
        try:
            return form.model_validate_json(found)
        except ValidationError as error:
            why = _told(error)
        with suppress(ValueError):
            return form.model_validate_json(mended_text(found))
    raise NoResult(why)


def without_result(text: str) -> str:
    """The words for people, without the block at the end."""
    found = list(_FENCED.finditer(text))
    if found and not text[found[-1].end() :].strip():
        return text[: found[-1].start()].rstrip()
    return text


def _blocks(text: str) -> Iterator[str]:
    fenced = [match.group(1) for match in _FENCED.finditer(text)]
    # A block within a block cuts the outer one short: then it is the braces that tell.
    start, end = text.rfind("```json"), text.rfind("}")
    outer = text[text.find("{", start) : end + 1] if 0 <= start < end else ""
    bare = text.strip()
    yield from [found for found in reversed(fenced) if found.lstrip().startswith("{")][:1]
    yield from [outer] if outer else []
    yield from [bare] if bare.startswith("{") and bare.endswith("}") else []


def _file(workspace: Path | None) -> Iterator[str]:
    if workspace is None:
        return
    path = workspace / FILE
    # Not through a link: the CLI may not hand in what lies outside.
    if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
        with path.open("rb") as file:
            yield file.read(_MOST).decode("utf-8", "replace")


def _told(error: ValidationError) -> str:
    problems = []
    for each in error.errors()[:_PROBLEMS]:
        place = ".".join(str(part) for part in each["loc"])
        problems.append(f"{place}: {each['msg']}" if place else str(each["msg"]))
    return "; ".join(problems)
