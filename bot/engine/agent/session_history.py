"""Builds the history sent to a model: summaries, then messages with old tool results shortened; and
exports transcripts of sessions as JSON lines, in one format for all backends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from bot.engine.agent.context_window import ContextBudget, ContextWindows
from bot.engine.llm import stored_messages
from bot.engine.llm.backend import ContextTooLong
from bot.engine.llm.stored_messages import MessagePart, MessageRow
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.memory.ports import ArchivePrefix
from bot.engine.memory.token_budget import estimate_tokens
from handlers.ports_workers import TranscriptExport
from storage.data_directory import ExportFile
from storage.records.workers import ModelSession, SessionInfo, TranscriptRow
from storage.sessions import SessionRepo, TranscriptRepo

# --- transcripts as JSON lines, one format for all backends

TextMask: TypeAlias = Callable[[str], str]
TranscriptLine: TypeAlias = dict[str, Any]

USER, ASSISTANT, TOOL, OTHER = "user", "assistant", "tool", "other"


def transcript_lines(row: TranscriptRow, mask: TextMask) -> Iterator[str]:
    """Yield JSON objects with `at`, `role` and `parts`, secrets masked; a row yields zero or more
    lines."""
    at = row.at.astimezone(UTC).isoformat()
    for role, parts in _messages(row.content):
        line = {"at": at, "role": role, "parts": _mask_deep(parts, mask)}
        yield json.dumps(line, ensure_ascii=False)


def _messages(content: Any) -> Iterator[tuple[str, list[TranscriptLine]]]:
    if stored_messages.is_message(content):
        yield from _message_lines(content)
    elif isinstance(content, Mapping) and isinstance(cli := content.get("cli"), Mapping):
        yield USER, [_text_part(cli.get("prompt"))]
        yield ASSISTANT, [_text_part(cli.get("answer"))]
    else:
        yield OTHER, [{"type": "json", "value": content}]


def _message_lines(row: stored_messages.MessageRow) -> Iterator[tuple[str, list[TranscriptLine]]]:
    if stored_messages.is_response(row):
        yield ASSISTANT, [line for part in row["parts"] for line in _part_lines(part)]
        return
    results = [part for part in row["parts"] if stored_messages.answered_call_id(part)]
    others = [part for part in row["parts"] if not stored_messages.answered_call_id(part)]
    for role, parts in ((TOOL, results), (USER, others)):
        if lines := [line for part in parts for line in _part_lines(part)]:
            yield role, lines


def _part_lines(part: stored_messages.MessagePart) -> Iterator[TranscriptLine]:
    kind, content = part["part_kind"], part.get("content")
    match kind:
        case "text":
            yield _text_part(content)
        case "thinking":
            yield {"type": "thought", "text": content or ""}
        case "tool-call":
            call = {"type": "call", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**call, "arguments": _parse_arguments(part.get("args"))}
        case _ if stored_messages.answered_call_id(part):
            result = {"type": "result", "id": part["tool_call_id"], "tool": part["tool_name"]}
            yield {**result, "text": content if isinstance(content, str) else _dump(content)}
        case "user-prompt":
            several = content if isinstance(content, Sequence) and not _is_text(content) else None
            yield from map(_prompt_part, [content] if several is None else several)
        case _:
            yield {"type": str(kind), "text": _dump(content)}


def _prompt_part(content: Any) -> TranscriptLine:
    """Pictures are listed without their data."""
    if isinstance(content, Mapping) and content.get("kind") == "binary":
        size = len(str(content.get("data", ""))) * 3 // 4
        return {"type": "file", "mime": str(content.get("media_type", "")), "bytes": size}
    return _text_part(content if isinstance(content, str) else _dump(content))


def _text_part(content: Any) -> TranscriptLine:
    return {"type": "text", "text": content if isinstance(content, str) else _dump(content)}


def _parse_arguments(args: Any) -> Any:
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except ValueError:
        return args


def _is_text(content: Any) -> bool:
    return isinstance(content, str | bytes)


def _dump(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, default=str)


def _mask_deep(value: Any, mask: TextMask) -> Any:
    """Mask all strings, including keys."""
    match value:
        case str():
            # Lone surrogates can't be encoded.
            return mask(value).encode("utf-8", "replace").decode()
        case Mapping():
            return {
                _mask_deep(str(key), mask): _mask_deep(each, mask) for key, each in value.items()
            }
        case list() | tuple():
            return [_mask_deep(each, mask) for each in value]
        case _:
            return value


_PAGE = 200


class TranscriptService:
    """Satisfies `handlers.ports_workers.TranscriptPort`."""

    def __init__(self, repo: TranscriptRepo, home: Path, mask: TextMask) -> None:
        self._repo = repo
        self._home = home
        self._mask = mask

    async def list_recent(self, limit: int) -> Sequence[SessionInfo]:
        return await self._repo.newest(limit)

    async def export(self, prefix: str) -> TranscriptExport:
        session = await self._repo.find(prefix)
        file = ExportFile(self._home, f"session-{session.id}.jsonl")
        count, last = 0, 0
        try:
            while page := await self._repo.page(session.id, after=last, limit=_PAGE):
                count += await asyncio.to_thread(self._write, file, page)
                last = page[-1].seq
            size = await asyncio.to_thread(file.commit)
        finally:
            await asyncio.to_thread(file.discard)
        return TranscriptExport(
            session=session,
            path=file.relative_path,
            absolute_path=str(file.path),
            size=size,
            lines=count,
        )

    def _write(self, file: ExportFile, page: Sequence[TranscriptRow]) -> int:
        lines = [line for row in page for line in transcript_lines(row, self._mask)]
        file.append_lines(lines)
        return len(lines)


# --- the history that a model is sent
# Stored messages never change. Pruning depends only on the stored history and moves in steps of
# several turns, so the prefix of successive calls stays identical and cached.

log = logging.getLogger(__name__)

CONTEXT_TOKENS = 200_000
HISTORY_SHARE = 0.5
BYTES_PER_TOKEN = 4

MAX_RESULT_CHARS = 4_000
RESULT_HEAD_CHARS = RESULT_TAIL_CHARS = 1_500
WHOLE_TURNS = 3
"""The last turns are not shortened."""

PRUNE_STEP = 8
"""Turns that are shortened or omitted at a time."""

WHOLE_SHARE = 0.6
"""A history within this share of the session's tokens is not shortened: not reading files again
outweighs the cost of cached tokens."""

NO_RESULT = "[no result: the work was interrupted before this call ended]"
_OMITTED_NOTE = "[{n} earlier messages of this conversation are left out]"
OMITTED_NOTE_WEIGHT = 80
_SHORTENED_RESULT = "\n[… {n} characters left out …]\n"


def prune_history(
    history: Sequence[Any],
    *,
    open_calls: bool = False,
    context_tokens: int = CONTEXT_TOKENS,
    strict: bool = False,
    whole_tokens: int = 0,
) -> tuple[Any, ...]:
    """Return the messages that fit a window of `context_tokens`.

    A history of at most `whole_tokens` is unchanged. Every call has a result, except the last calls
    if `open_calls` is True. The last turns stay unchanged unless `strict` is True and they alone
    exceed the limit.

    Rows that are not messages are dropped; a history without any messages belongs to another kind
    of backend and is returned unchanged."""
    rows = [row for row in history if stored_messages.is_message(row)]
    if not rows:
        return tuple(history)
    if len(rows) < len(history):
        log.warning("%d rows of a session's history are not messages", len(history) - len(rows))
    paired = _pair_calls(rows, open_calls=open_calls)
    if sum(map(stored_messages.text_bytes, paired)) <= whole_tokens * BYTES_PER_TOKEN:
        return tuple(paired)
    whole = _split_turns(paired)
    return tuple(
        _fit_to_budget(whole, int(context_tokens * HISTORY_SHARE * BYTES_PER_TOKEN), strict=strict)
    )


HistoryTurn = list[MessageRow]
"""A model response with the preceding request and the results of its calls."""


def _fit_to_budget(whole: list[HistoryTurn], budget: int, *, strict: bool) -> list[MessageRow]:
    steps = max(0, len(whole) - WHOLE_TURNS) // PRUNE_STEP * PRUNE_STEP
    shown = [_shorten_turn(turn) for turn in whole[:steps]] + whole[steps:]
    for omitted in range(0, steps + 1, PRUNE_STEP):
        if _fits(shown, omitted, budget):
            return _drop_turns(shown, omitted)
    # The turns since the last step exceed the limit, so omit as few as necessary.
    last = max(0, len(whole) - WHOLE_TURNS)
    shown = [_shorten_turn(turn) for turn in whole[:last]] + whole[last:]
    omitted = next((n for n in range(last + 1) if _fits(shown, n, budget)), last)
    if strict and not _fits(shown, omitted, budget):
        shown, end = [_shorten_turn(turn) for turn in whole], len(whole) - 1
        omitted = next((n for n in range(last, end + 1) if _fits(shown, n, budget)), end)
    return _drop_turns(shown, omitted)


def _fits(shown: list[HistoryTurn], omitted: int, budget: int) -> bool:
    note = OMITTED_NOTE_WEIGHT if omitted else 0
    return (
        note + sum(stored_messages.text_bytes(row) for turn in shown[omitted:] for row in turn)
        <= budget
    )


def _drop_turns(shown: list[HistoryTurn], omitted: int) -> list[MessageRow]:
    """Replace the first `gone` turns by a note."""
    kept = [row for turn in shown[omitted:] for row in turn]
    if not omitted:
        return kept
    left_out = sum(map(len, shown[:omitted]))
    note = stored_messages.prompt_part(_OMITTED_NOTE.format(n=left_out), kept[0])
    return [stored_messages.request_message([note]), *kept]


def _split_turns(rows: list[MessageRow]) -> list[HistoryTurn]:
    """Split the history so that calls and their results stay in one turn.

    A request with tool results belongs to the preceding response; one without starts a new turn."""
    result: list[HistoryTurn] = [[]]
    answered = False
    for row in rows:
        if stored_messages.is_response(row):
            if answered:
                result.append([])
            answered = True
        elif answered and not stored_messages.has_tool_results(row):
            result.append([])
            answered = False
        result[-1].append(row)
    if len(result) > 1 and not answered:
        # An unanswered question belongs to the last turn.
        result[-2:] = [[*result[-2], *result[-1]]]
    return result


def _shorten_turn(turn: HistoryTurn) -> HistoryTurn:
    return [
        stored_messages.with_parts(row, [_shorten_part(part) for part in row["parts"]])
        for row in turn
    ]


def _shorten_part(part: MessagePart) -> MessagePart:
    text = stored_messages.result_text(part)
    if text is None or len(text) <= MAX_RESULT_CHARS:
        return part
    note = _SHORTENED_RESULT.format(n=len(text) - RESULT_HEAD_CHARS - RESULT_TAIL_CHARS)
    return stored_messages.with_text(
        part, text[:RESULT_HEAD_CHARS] + note + text[-RESULT_TAIL_CHARS:]
    )


def _pair_calls(rows: list[MessageRow], *, open_calls: bool) -> list[MessageRow]:
    """Give every call one result and drop results without a call."""
    result: list[MessageRow] = []
    first = 0
    while first < len(rows):
        end = first + 1
        while end < len(rows) and not stored_messages.is_response(rows[end]):
            end += 1
        stay_open = open_calls and end == len(rows)
        result += _complete_results(rows[first:end], stay_open=stay_open)
        first = end
    return result


def _complete_results(group: list[MessageRow], *, stay_open: bool) -> list[MessageRow]:
    """Complete one group: a response and the requests before the next one."""
    head = group[0] if stored_messages.is_response(group[0]) else None
    requests = group if head is None else group[1:]
    left = stored_messages.requested_calls(head) if head is not None else []
    kept = []
    for row in requests:
        parts = [part for part in row["parts"] if _is_expected(part, left)]
        if parts:
            kept.append(
                row if len(parts) == len(row["parts"]) else stored_messages.with_parts(row, parts)
            )
    if left and head is not None and not stay_open:
        missing = [
            stored_messages.missing_result_part(call, tool, NO_RESULT, head) for call, tool in left
        ]
        if kept:
            kept[0] = stored_messages.with_parts(kept[0], [*missing, *kept[0]["parts"]])
        else:
            kept = [stored_messages.request_message(missing)]
    return kept if head is None else [head, *kept]


def _is_expected(part: MessagePart, left: list[tuple[str, str]]) -> bool:
    """Return False for results whose call is not in `left`; removes matched calls from `left`."""
    call = stored_messages.answered_call_id(part)
    found = next((each for each in left if each[0] == call), None)
    if call and found is not None:
        left.remove(found)
    return not call or found is not None


_MIN_MESSAGE_TOKENS = 2_000
"""Tokens reserved for messages if the model's window is unknown."""
_SUMMARY_SHARE = 0.75
"""Maximum share of the history for summaries."""
_TOKENS_PER_TOOL = 20

SHORTENED_NOTE = (
    "[This had become too long for you, and its beginning is left out or shortened. What you have"
    " done already is above: do not do it again, go on from there.]\n"
)


class SessionSummaries(Protocol):
    async def build_prefix(self, session_id: str) -> ArchivePrefix: ...


class SessionHistory:
    """Builds the history of a session within `max_tokens` and the model's window.

    `on_too_long` is called for sessions that exceeded their model's window."""

    def __init__(
        self,
        sessions: SessionRepo,
        archive: SessionSummaries,
        *,
        max_tokens: int,
        windows: ContextWindows,
        on_too_long: Callable[[str], None],
    ) -> None:
        self._sessions = sessions
        self._archive = archive
        self._max_tokens = max_tokens
        self._windows = windows
        self._on_too_long = on_too_long

    async def allocate(
        self, session: ModelSession, backend: str, model: str, prompt_tokens: int
    ) -> ContextBudget:
        """Return the budget for the session's next call, given the tokens of its prompt."""
        return await self._windows.allocate(session.id, backend, model, prompt_tokens)

    async def build(
        self, session_id: str, *, open_calls: bool = False, max_tokens: int | None = None
    ) -> tuple[Any, ...]:
        """Return summaries and pruned messages (see `prune_history`).

        With `max_tokens` the last turns are shortened if necessary. The prefix changes only when a
        summary is added."""
        prefix = await self._archive.build_prefix(session_id)
        rows = await self._sessions.list_messages(session_id, after=prefix.through_message)
        whole = self._max_tokens if max_tokens is None else min(max_tokens, self._max_tokens)
        texts = _newest_summaries(prefix.texts, int(whole * _SUMMARY_SHARE))
        left = whole - sum(map(estimate_tokens, texts))
        room = max(_MIN_MESSAGE_TOKENS, left) if max_tokens is None else left
        shown = prune_history(
            rows,
            open_calls=open_calls,
            context_tokens=int(room / HISTORY_SHARE),
            strict=max_tokens is not None,
            whole_tokens=int(room * WHOLE_SHARE),
        )
        if not texts:
            return shown
        at = {"timestamp": prefix.last_at, "parts": []} if prefix.last_at else {"parts": []}
        return (
            stored_messages.request_message(
                [stored_messages.prompt_part(text, at) for text in texts]
            ),
            *shown,
        )

    async def record_overflow(
        self,
        error: ContextTooLong,
        session: ModelSession,
        backend_and_model: tuple[str, str],
        *,
        sent_tokens: int,
    ) -> None:
        """Learn that `sent_tokens` exceeded the model's window and report the session as too
        long."""
        added = count_row_tokens(error.new_history)
        await self._windows.learn(
            *backend_and_model,
            stated_window=error.window,
            sent_tokens=sent_tokens + added,
            had_started=bool(error.new_history),
        )
        self._on_too_long(session.id)


def count_row_tokens(rows: Iterable[Any]) -> int:
    """Estimate the tokens of stored messages."""
    weights = (stored_messages.text_bytes(row) for row in rows if stored_messages.is_message(row))
    return sum(weights) // BYTES_PER_TOKEN


def count_prompt_tokens(texts: Iterable[str], tools: Sequence[AgentTool]) -> int:
    """Estimate the tokens of a prompt and its tool definitions."""
    schemas = (json.dumps(each.schema, ensure_ascii=False, default=str) for each in tools)
    said = (f"{each.name} {each.description}" for each in tools)
    return sum(map(estimate_tokens, (*texts, *said, *schemas))) + _TOKENS_PER_TOOL * len(tools)


def _newest_summaries(texts: Sequence[str], most: int) -> Sequence[str]:
    """Return the first summary, which introduces the others, and the newest ones that fit."""
    if sum(map(estimate_tokens, texts)) <= most:
        return texts
    kept: list[str] = []
    left = most - estimate_tokens(texts[0])
    for text in reversed(texts[1:]):
        left -= estimate_tokens(text)
        if left < 0:
            break
        kept.append(text)
    return (texts[0], *reversed(kept)) if kept else ()
