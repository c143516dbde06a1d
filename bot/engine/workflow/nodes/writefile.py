"""A node that writes a value to a file of the workspace."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.llm.tool_calls import CallKind
from bot.engine.workflow.expressions.evaluator import template_expressions
from bot.engine.workflow.expressions.operations import value_as_text
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.node_runs import public_value
from bot.engine.workflow.nodes.contract import (
    CallArguments,
    CallTypeSpec,
    EvaluationContext,
    NodeConfig,
)
from bot.engine.workflow.nodes.shared_settings import (
    expression_issues,
    fill_text,
    fill_value,
    workspace_path_issues,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFileConfig(NodeConfig):
    """The value of `content`, a template or data, becomes the whole content of the file at `path`:
    texts as they are, lists and maps as JSON."""

    kind: Literal["writefile"] = "writefile"
    path: str
    content: JsonValue = ""


class WriteFileNode(CallTypeSpec[WriteFileConfig]):
    """Writes a value to a file of the workspace, with the rules of the tool write, and delivers the
    file."""

    name = "writefile"
    config = WriteFileConfig
    aliases = ("fileout",)
    markdown_names = ("写文件",)
    changes_files = True
    fields = ("path", "content")
    example = """\
nodes:
  - {id: sum, name: Summarise}
  - {id: keep, type: writefile, path: out/sum.md, content: "{{outputs.sum}}"}
"""

    def read(self, block: FieldReader) -> WriteFileConfig:
        return WriteFileConfig(path=block.word("path"), content=block.value("content"))

    def write(self, config: WriteFileConfig) -> dict[str, Any]:
        return {"path": config.path, "content": config.content}

    def check(
        self, config: WriteFileConfig, node_ids: Collection[str]
    ) -> Iterator[ValidationIssue]:
        yield from workspace_path_issues(config.path)
        if config.content is None:
            yield ValidationIssue(key="missing", field="content")
        elif isinstance(config.content, str):
            for name, text in template_expressions(content=config.content):
                yield from expression_issues(text, name)

    def expressions(self, config: WriteFileConfig) -> Iterable[tuple[str, str]]:
        content = config.content if isinstance(config.content, str) else ""
        return template_expressions(path=config.path, content=content)

    def rewrite(
        self, config: WriteFileConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> WriteFileConfig:
        content = text(config.content) if isinstance(config.content, str) else config.content
        return replace(config, path=text(config.path), content=content)

    def fill(self, config: WriteFileConfig, context: EvaluationContext) -> WriteFileConfig:
        value = public_value(fill_value(config.content, context))
        is_data = isinstance(value, list | Mapping)
        text = json.dumps(value, ensure_ascii=False, indent=2) if is_data else value_as_text(value)
        path = fill_text(config.path, context).strip()
        return replace(config, path=path, content=text)

    def call(self, config: WriteFileConfig) -> CallArguments:
        content = config.content if isinstance(config.content, str) else ""
        arguments = {"path": config.path, "content": content}
        return CallArguments(tool="write", kind=CallKind.EDIT, arguments=arguments)

    def describe(self, config: WriteFileConfig) -> str:
        return f"✏️ {config.path}\n\n{config.content}"
