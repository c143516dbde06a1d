"""A node that reads a file of the workspace into a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.llm.tool_calls import CallKind
from bot.engine.workflow.expressions.evaluator import template_expressions
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.nodes.contract import (
    CallArguments,
    CallTypeSpec,
    EvaluationContext,
    NodeConfig,
)
from bot.engine.workflow.nodes.shared_settings import fill_text, workspace_path_issues

_FORMATS: tuple[Literal["text", "json", "lines", "csv"], ...] = ("text", "json", "lines", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFileConfig(NodeConfig):
    """`format` says what the value of the text is: itself, its JSON, a list of its lines, or of the
    rows of a CSV table with a header."""

    kind: Literal["readfile"] = "readfile"
    path: str
    format: Literal["text", "json", "lines", "csv"] = "text"


class ReadFileNode(CallTypeSpec[ReadFileConfig]):
    """Reads a file of the workspace into a value, with the rules of the tool read. Files that came
    with the task are in the workspace."""

    name = "readfile"
    config = ReadFileConfig
    aliases = ("filein",)
    markdown_names = ("读文件",)
    shorthand = "path"
    fields = ("path", "format")
    example = """\
nodes:
  - {id: table, type: readfile, path: "{{inputs.file}}", format: csv}
  - {id: each, type: foreach, collection: outputs.table.value, itemVar: row, bodyNodes: [look]}
  - {id: look, name: "Look at {{row.name}}"}
edges: [{from: table, to: each}]
inputs: [{name: file, default: data.csv}]
"""

    def read(self, block: FieldReader) -> ReadFileConfig:
        return ReadFileConfig(
            path=block.word("path"), format=block.one_of(_FORMATS, "format", default="text")
        )

    def write(self, config: ReadFileConfig) -> dict[str, Any]:
        return {"path": config.path, "format": config.format}

    def check(self, config: ReadFileConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        return workspace_path_issues(config.path)

    def expressions(self, config: ReadFileConfig) -> Iterable[tuple[str, str]]:
        return template_expressions(path=config.path)

    def rewrite(
        self, config: ReadFileConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> ReadFileConfig:
        return replace(config, path=text(config.path))

    def fill(self, config: ReadFileConfig, context: EvaluationContext) -> ReadFileConfig:
        return replace(config, path=fill_text(config.path, context).strip())

    def call(self, config: ReadFileConfig) -> CallArguments:
        return CallArguments(tool="read", kind=CallKind.READ, arguments={"path": config.path})

    def describe(self, config: ReadFileConfig) -> str:
        return f"📖 {config.path}"
