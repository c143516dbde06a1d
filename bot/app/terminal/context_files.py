"""Templates of the files in which a Boss tells workers how to be."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bot.engine.agent.context.bootstrap import FOLDER


class ContextFilesFailure(Exception):
    """A file could not be written. The text says why."""


def write_templates(home: Path, language: str) -> tuple[Path, list[str]]:
    """The folder, and the names of the files that were not there and are now. What is there stays
    as it is. Raises ContextFilesFailure."""
    folder = home / FOLDER
    source = files("bot.engine.agent.context").joinpath("templates", language)
    made = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in sorted(source.iterdir(), key=str):
            try:
                with (folder / each.name).open("x", encoding="utf-8") as file:
                    file.write(each.read_text(encoding="utf-8"))
            except FileExistsError:
                continue
            made.append(each.name)
    except OSError as error:
        why = error.strerror or str(error)
        raise ContextFilesFailure(f"{folder} cannot be written ({why})") from error
    return folder, made
