"""Executes the steps that call a tool without a model: HTTP requests, commands, files in and out.

Permissions, approvals, the record of calls, sandbox, address checks and masking are those of the
tools that workers call."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bot.engine.agent.worker_context import AuthorizerFactory, PersonaSource
from bot.engine.llm import workspace_files as folder
from bot.engine.llm.tool_calls import (
    ERROR_PREFIX,
    CallKind,
    CallVerdict,
    ToolCall,
    call_fingerprint,
    call_title,
)
from bot.engine.permissions.rules import ReadProtectedFiles
from bot.engine.sandbox.process_runner import ExitCause
from bot.engine.tools.file_editing import DamagesFile, replace_file, write_tool
from bot.engine.tools.file_reading import is_link_to_protected
from bot.engine.tools.shell_exec import (
    CommandShell,
    ShellRefused,
    run_in_shell,
    terminal_text,
)
from bot.engine.tools.web import extract_text
from bot.engine.web import FetchRefused, WebFetcher, WebPage, parse_url
from bot.engine.workers.spec import WorkerSpec
from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.nodes.command import CommandConfig
from bot.engine.workflow.nodes.contract import CallTypeSpec
from bot.engine.workflow.nodes.http import HttpConfig
from bot.engine.workflow.nodes.readfile import ReadFileConfig
from bot.engine.workflow.nodes.writefile import WriteFileConfig
from cards.catalog import TextCatalog
from cards.permission_reasons import describe_reason
from storage.records.approvals import ToolCallRecord, ToolCallState
from storage.records.tasks import TaskId
from storage.tools import ToolCallRepo, model_call_id

_MAX_TEXT = 12_000
"""Characters of a text in a result; the record of a call holds 40,000."""
_MAX_ERRORS = 4_000
_SHOWN_ERROR = 1_000
_MAX_READ_BYTES = 1_000_000
_MAX_VALUE_CHARS = 200_000
_MAX_ROWS = 5_000
_FIRST_FAILED_STATUS = 400
_UNDECIDED = {ToolCallState.OPEN, ToolCallState.ALLOWED, ToolCallState.DENIED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a call. `values` holds its fields by name, and `summary` describes it in words.
    `error` says why the call failed. `files` are the files that it wrote. If a person has to
    approve the call first, `pending_call` is its id, and nothing was done.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    error: str = ""
    files: tuple[str, ...] = ()
    pending_call: str = ""

    def to_json(self) -> str:
        kept = {"values": self.values, "summary": self.summary, "files": self.files}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> CallResult | None:
        try:
            kept = json.loads(text)
            return cls(values=kept["values"], summary=kept["summary"], files=tuple(kept["files"]))
        except (ValueError, LookupError, TypeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSteps:
    """Makes the calls of steps that work without a model. `calls` records every call before it is
    made; `mask` removes secrets from results.
    """

    personas: PersonaSource
    authorizers: AuthorizerFactory
    shell: CommandShell
    fetcher: WebFetcher
    protected: ReadProtectedFiles
    calls: ToolCallRepo
    mask: Callable[[str], str]

    async def perform(self, node: WorkflowNode, spec: WorkerSpec, words: TextCatalog) -> CallResult:
        """Make the call of a step whose placeholders are filled in. A call that an earlier attempt
        made before a crash is not repeated; its recorded result is returned.
        """
        call = await self._make_call(node, spec)
        task = spec.account.task
        assert task is not None
        before = await self.calls.find_last_of_step(task, spec.step_path)
        if before is not None and before.command_hash == call_fingerprint(
            call.name, call.arguments
        ):
            known = CallResult.from_json(before.outcome)
            if before.state is ToolCallState.DONE and known is not None:
                return known
            if before.suspended and before.state in _UNDECIDED:
                call = await self._make_call(node, spec, model_call_id(before))
        persona = await self.personas.get(spec.persona)
        permit = self.authorizers.create_authorizer(spec, persona)
        decision = await permit(call)
        if decision.verdict is CallVerdict.PENDING:
            return CallResult(pending_call=call.call_id)
        if decision.verdict is not CallVerdict.ALLOW:
            why = await self._refusal(task, spec.step_path, words) or decision.text
            return CallResult(error=words("workflow.call_refused", why=why))
        assert isinstance(node.spec, CallTypeSpec)
        async with (
            self.shell.lock_for(spec.workspace) if node.spec.changes_files else nullcontext(),
            decision.hold_effect() as changed,
        ):
            result = (
                CallResult(error=changed) if changed else await self._execute(node, spec, words)
            )
        outcome = f"{ERROR_PREFIX}{result.error}" if result.error else result.to_json()
        await permit.record_outcome(call.call_id, succeeded=not result.error, outcome=outcome)
        return result

    async def _make_call(self, node: WorkflowNode, spec: WorkerSpec, call_id: str = "") -> ToolCall:
        kind_of_node = node.spec
        assert isinstance(kind_of_node, CallTypeSpec)
        made = kind_of_node.call(node.config)
        detail = kind_of_node.describe(node.config)
        if made.kind is CallKind.EDIT and (diff := write_tool(spec.workspace).detail) is not None:
            detail = await diff(made.arguments)
        own = f"{spec.step_path}:{spec.attempt}"
        return ToolCall(
            call_id=call_id or hashlib.sha256(own.encode()).hexdigest()[:32],
            name=made.tool,
            arguments=made.arguments,
            kind=made.kind,
            title=call_title(made.tool, made.arguments),
            detail=detail,
        )

    async def _refusal(self, task: TaskId, path: str, words: TextCatalog) -> str:
        refused: ToolCallRecord | None = await self.calls.find_last_of_step(task, path)
        if refused is None or refused.state is not ToolCallState.DENIED:
            return ""
        return refused.answer or describe_reason(refused.why, words)

    async def _execute(
        self, node: WorkflowNode, spec: WorkerSpec, words: TextCatalog
    ) -> CallResult:
        match node.config:
            case HttpConfig():
                return await self._request(node.config, words)
            case CommandConfig():
                return await self._run(node.config, spec, words)
            case ReadFileConfig():
                return await asyncio.to_thread(self._read, node.config, spec.workspace, words)
            case WriteFileConfig():
                return await _write(node.config, spec.workspace, words)
            case _:
                raise TypeError(f"{node.type} calls no tool")

    async def _request(self, config: HttpConfig, words: TextCatalog) -> CallResult:
        url = parse_url(config.url)
        if url is None:
            return CallResult(error=words("workflow.call.bad_url", url=config.url[:100]))
        body = config.body.encode() if isinstance(config.body, str) else None
        try:
            if config.method == "get" and not config.headers:
                page = await self.fetcher.fetch(config.url)
            else:
                page = await self.fetcher.send(
                    url, headers=config.headers, body=body, method=config.method.upper()
                )
        except FetchRefused as error:
            told = words(f"workflow.call.{error.key}", site=error.site) if error.key else str(error)
            return CallResult(error=self.mask(told))
        return await asyncio.to_thread(self._page_result, page, config, words)

    def _page_result(self, page: WebPage, config: HttpConfig, words: TextCatalog) -> CallResult:
        raw = page.body.decode(_charset(page), "replace")
        text = self.mask(raw if "html" not in page.content_type else extract_text(page))
        values = {
            "status": page.status,
            "ok": page.status < _FIRST_FAILED_STATUS,
            "headers": {name: self.mask(value) for name, value in page.headers.items()},
            "text": text[:_MAX_TEXT],
            "json": _parse_json(text) if "json" in page.content_type else None,
            "truncated": page.is_truncated or len(text) > _MAX_TEXT,
        }
        failed = page.status >= _FIRST_FAILED_STATUS and config.fail_on_error
        error = ""
        if failed:
            error = words("workflow.call.status", site=page.url.site, status=page.status)
        return CallResult(values=values, summary=text[:_MAX_TEXT], error=error)

    async def _run(self, config: CommandConfig, spec: WorkerSpec, words: TextCatalog) -> CallResult:
        try:
            ended = await run_in_shell(
                self.shell,
                spec.workspace,
                config.command,
                seconds=config.seconds,
                mode=spec.mode,
                splits_errors=True,
            )
        except ShellRefused as error:
            return CallResult(error=str(error))
        printed = self.mask(terminal_text(ended.head))
        errors = self.mask(terminal_text(ended.errors))
        values = {
            "exit_code": ended.status,
            "ok": ended.cause is ExitCause.EXITED and ended.status == 0,
            "stdout": printed[:_MAX_TEXT],
            "stderr": errors[:_MAX_ERRORS],
            "truncated": len(printed) > _MAX_TEXT or bool(ended.dropped),
        }
        failure = ""
        if ended.cause is not ExitCause.EXITED:
            failure = words(f"workflow.call.stopped_{ended.cause}", seconds=config.seconds)
        elif ended.status and config.fail_on_error:
            code = words("workflow.call.exit_code", n=ended.status)
            failure = f"{code}\n{(errors or printed)[-_SHOWN_ERROR:]}".strip()
        return CallResult(values=values, summary=printed[:_MAX_TEXT], error=failure)

    def _read(self, config: ReadFileConfig, workspace: Path, words: TextCatalog) -> CallResult:
        """Read a file of the workspace. Blocking."""
        path = config.path
        shown = path[: folder.MAX_SHOWN]
        if is_link_to_protected(workspace, path, self.protected.is_protected):
            return CallResult(error=words("workflow.call.link", path=shown))
        try:
            text = self.mask(folder.read_text(workspace, path, limit=_MAX_READ_BYTES))
            value, is_truncated = _parse_text(text.removeprefix("\ufeff"), config.format)
        except folder.PathRefused as error:
            return CallResult(error=_path_text(error.refusal, shown, words))
        except (ValueError, csv.Error, RecursionError) as error:
            facts = {"path": shown, "format": config.format, "why": error}
            return CallResult(error=words("workflow.call.no_format", **facts))
        if len(json.dumps(value, ensure_ascii=False)) > _MAX_VALUE_CHARS:
            error_text = words("workflow.call.too_long", path=shown, most=_MAX_VALUE_CHARS)
            return CallResult(error=error_text)
        values = {"value": value, "path": path, "size": len(text), "truncated": is_truncated}
        return CallResult(values=values, summary=text[:_MAX_TEXT])


async def _write(config: WriteFileConfig, workspace: Path, words: TextCatalog) -> CallResult:
    path, content = config.path, str(config.content)
    try:
        await asyncio.to_thread(replace_file, workspace, path, content)
    except folder.PathRefused as error:
        return CallResult(error=_path_text(error.refusal, path[: folder.MAX_SHOWN], words))
    except DamagesFile as error:
        return CallResult(error=str(error))
    return CallResult(values={"path": path, "size": len(content)}, summary=path, files=(path,))


def _path_text(refusal: folder.PathRefusal, path: str, words: TextCatalog) -> str:
    return words(f"workflow.call.path_{refusal}", path=path)


def _charset(page: WebPage) -> str:
    try:
        "".encode(page.charset or "utf-8")
    except LookupError:
        return "utf-8"
    return page.charset or "utf-8"


def _parse_json(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if len(text) <= _MAX_VALUE_CHARS // 8 else None


def _parse_text(text: str, format_: str) -> tuple[Any, bool]:
    """Parse a file's text; return the value, and whether lines or rows were left out. Raises
    ValueError, csv.Error or RecursionError.
    """
    match format_:
        case "json":
            return json.loads(text, parse_constant=lambda _: None), False
        case "lines":
            lines = text.splitlines()
            return lines[:_MAX_ROWS], len(lines) > _MAX_ROWS
        case "csv":
            rows = csv.DictReader(io.StringIO(text))
            found = [
                {str(name): value for name, value in row.items() if name is not None}
                for row in islice(rows, _MAX_ROWS)
            ]
            return found, next(rows, None) is not None
        case _:
            return text, False
