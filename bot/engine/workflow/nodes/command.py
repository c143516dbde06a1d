"""A node that runs one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.llm.tool_calls import CallKind
from bot.engine.workflow.expressions.evaluator import template_expressions
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, range_issues, scalar_text
from bot.engine.workflow.nodes.contract import (
    CallArguments,
    CallTypeSpec,
    EvaluationContext,
    NodeConfig,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues, fill_text

DEFAULT_SECONDS, MAX_SECONDS = 120, 600
_MAX_WORDS = 100
_MAX_WORD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig(NodeConfig):
    """A shell command without placeholders, or the words of one, each of which may have some: a
    filled-in word stays one word, whatever is in it. With `fail_on_error` an exit code other than
    0 fails the node."""

    kind: Literal["command"] = "command"
    command: str = ""
    words: tuple[str, ...] = ()
    seconds: int = DEFAULT_SECONDS
    fail_on_error: bool = True


class CommandNode(CallTypeSpec[CommandConfig]):
    """Runs one command in the sandbox without a model, with the permissions and approvals of the
    tool exec."""

    name = "command"
    config = CommandConfig
    markdown_names = ("命令",)
    changes_files = True
    foreign_names = ("shell", "exec", "execute", "bash", "cmd", "run")
    shorthand = "command"
    shorthand_takes_list = True
    fields = ("command", "seconds")
    inline_fields = ("failOnError", "run")
    telling_fields = ("command", "run")
    example = """\
nodes:
  - {id: count, type: command, command: [wc, -l, "{{inputs.file}}"]}
  - {id: tell, name: "Explain {{outputs.count.stdout}}"}
inputs: [{name: file, default: data.csv}]
"""

    def read(self, block: FieldReader) -> CommandConfig:
        given = block.take("command", "run")
        words = [scalar_text(each) for each in given] if isinstance(given, list) else []
        if None in words:
            block.add("not_a_list_of_words", "command")
        return CommandConfig(
            command="" if isinstance(given, list) else block.word("command", "run"),
            words=tuple(each for each in words if each is not None),
            seconds=block.integer("seconds", default=DEFAULT_SECONDS),
            fail_on_error=block.boolean("failOnError", default=True),
        )

    def write(self, config: CommandConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"command": list(config.words) or config.command}
        data["seconds"] = config.seconds
        return data if config.fail_on_error else data | {"failOnError": False}

    def check(self, config: CommandConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if not config.command and not any(config.words[:1]):
            yield ValidationIssue(key="missing", field="command")
        # Quotes, substitutions and here-documents around it would decide what a value does.
        if any(template_expressions(command=config.command)):
            yield ValidationIssue(key="hole_in_command", field="command")
        if len(config.words) > _MAX_WORDS:
            yield ValidationIssue(
                key="out_of_range", field="command", facts={"least": 1, "most": _MAX_WORDS}
            )
        yield from range_issues(config.seconds, "seconds", 1, MAX_SECONDS)
        for name, text in self.expressions(config):
            yield from expression_issues(text, name)

    def expressions(self, config: CommandConfig) -> Iterable[tuple[str, str]]:
        return template_expressions(command="\n".join(config.words))

    def rewrite(
        self, config: CommandConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> CommandConfig:
        return replace(config, words=tuple(map(text, config.words)))

    def is_repeatable(self, settings: CommandConfig) -> bool:
        return False

    def fill(self, config: CommandConfig, context: EvaluationContext) -> CommandConfig:
        if not config.words:
            return config
        words = [fill_text(each, context) for each in config.words]
        if any(len(each) > _MAX_WORD or "\0" in each for each in words):
            raise ExpressionError("a word of the command is too long, or not a text")
        return replace(config, words=(), command=shlex.join(words))

    def call(self, config: CommandConfig) -> CallArguments:
        arguments = {"command": config.command, "seconds": config.seconds}
        return CallArguments(tool="exec", kind=CallKind.EXECUTE, arguments=arguments)

    def describe(self, config: CommandConfig) -> str:
        return config.command
