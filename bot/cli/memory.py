"""`shiftboss memory`: shows, changes, searches, imports and exports memories."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, NoReturn, TypeVar

import typer

from bot.cli.chat_commands import (
    SCOPE_HELP,
    JsonOption,
    ScopeOption,
    TextCommand,
    WordArgument,
    add_chat_command,
    command_line,
    data_directory,
    execute,
    format_flag,
    help_text,
    required,
    resolve_scope,
)
from bot.cli.failures import fail, report_start_failures
from cards.formats import escape_invisible

_EXPORTS_FOLDER = "exports"


def deliver_export(data: Any, file: str) -> tuple[str, Any]:
    """Move an export to its destination; returns the result as text and JSON."""
    made, count = data_directory() / data["path"], data["entries"]
    if file == "-":
        with made.open("rb") as lines:
            shutil.copyfileobj(lines, sys.stdout.buffer)
        made.unlink()
        sys.stdout.flush()
        raise typer.Exit
    if file:
        try:
            made = Path(shutil.move(made, Path(file).expanduser().resolve()))
        except OSError as error:
            fail(f"{file} cannot be written ({error.strerror}); it is in {made}")
    return f"{count} entries in {made}", {**data, "path": str(made)}


@contextmanager
def stage_file(file: str, *, as_json: bool) -> Iterator[str]:
    """Path below the data directory; files elsewhere are copied there temporarily."""
    with report_start_failures(as_json=as_json):
        home = data_directory().resolve()
    found = next((each for each in (Path(file).expanduser(), home / file) if each.is_file()), None)
    if found is None:
        fail(f"{file} cannot be read (no such file)", as_json=as_json, status=2)
    found = found.resolve()
    if found.is_relative_to(home):
        yield str(found.relative_to(home))
        return
    lent = home / _EXPORTS_FOLDER / f"{secrets.token_hex(8)}.jsonl"
    try:
        lent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with found.open("rb") as outside, open(lent, "xb", opener=_open_private) as inside:
            shutil.copyfileobj(outside, inside)
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror})", as_json=as_json, status=2)
    try:
        yield str(lent.relative_to(home))
    finally:
        lent.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_T = TypeVar("_T")

_MAX_SHOWN_ERRORS = 20
_MAX_LIMIT = 1_000
_MAX_LINE_WIDTH = 300
_MAX_QUERY_LENGTH = 10_000


def import_conversation(
    file: Annotated[
        str, typer.Argument(metavar="FILE.jsonl", help="A JSONL file, or - for standard input.")
    ],
    scope: Annotated[str, typer.Option("--scope", help=SCOPE_HELP)],
    as_json: JsonOption = False,
) -> None:
    """Import a conversation from JSON lines; existing lines stay unchanged."""
    with report_start_failures(as_json=as_json), _open_input(file, as_json=as_json) as rows:
        # Imported here so that `--help` stays fast.
        from bot.cli import memory_bulk
        from bot.config.settings import load_settings

        done = _run_interruptible(
            memory_bulk.import_memory_rows(load_settings(), rows, resolve_scope(scope))
        )
    bad = [{"line": each.number, "why": each.reason} for each in done.bad_lines]
    if as_json:
        typer.echo(json.dumps({"imported": done.added, "known": done.duplicates, "bad": bad}))
    else:
        typer.echo(f"{done.added} imported, {done.duplicates} already there, {len(bad)} bad")
        for each in bad[:_MAX_SHOWN_ERRORS]:
            typer.echo(f"shiftboss: {file}:{each['line']}: {each['why']}", err=True)
        if len(bad) > _MAX_SHOWN_ERRORS:
            typer.echo(f"shiftboss: … and {len(bad) - _MAX_SHOWN_ERRORS} more bad lines", err=True)
    if bad and not done.added and not done.duplicates:
        raise typer.Exit(1)


def search(
    words: Annotated[list[str] | None, typer.Argument(metavar="[QUERY]")] = None,
    *,
    batch: Annotated[
        str,
        typer.Option(
            "--batch",
            metavar="QUERIES.jsonl",
            help='{"query", "id"?} each line; an answer in JSON on one line for each, in order.'
            " - for what is piped in.",
        ),
    ] = "",
    scope: ScopeOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MAX_LIMIT)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Search memories, best match first; default: your chat's scopes."""
    query = " ".join(words or [])
    if bool(batch) == bool(query.strip()):
        fail("give a QUERY, or --batch with a file of them", as_json=as_json, status=2)
    with report_start_failures(as_json=as_json or bool(batch)):
        from bot.engine.memory.bulk_jsonl import BulkQuery, read_queries

        if batch:
            with _open_input(batch, as_json=True) as file:
                _run_interruptible(_search_each(read_queries(file), scope, limit, _print_json_line))
        else:
            asked = BulkQuery(query=query[:_MAX_QUERY_LENGTH])
            _run_interruptible(
                _search_each([asked], scope, limit, _print_json if as_json else _print_text)
            )


def _run_interruptible(work: Coroutine[Any, Any, _T]) -> _T:
    """Like `asyncio.run`, but Ctrl-C also works while reading from a pipe."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


async def _search_each(
    queries: Iterable[Any], scope: str, limit: int, present: Callable[[Any], None]
) -> None:
    # Imported here so that `--help` stays fast.
    from bot.cli import memory_bulk
    from bot.config.settings import load_settings
    from bot.engine.memory.bulk_jsonl import BulkQuery

    async with memory_bulk.open_memory_search(load_settings(), resolve_scope(scope)) as asking:
        if await asking.is_empty():
            there = ", ".join(map(str, asking.scopes))
            typer.echo(f"shiftboss: no memories in {there}", err=True)
        for each in queries:
            present(await asking.find(each, limit) if isinstance(each, BulkQuery) else each)


def _print_json_line(answer: Any) -> None:
    from bot.engine.memory.bulk_jsonl import to_json_line

    typer.echo(escape_invisible(to_json_line(answer.to_json())))


def _print_json(answer: Any) -> None:
    typer.echo(
        escape_invisible(json.dumps(answer.to_json(whole=True), ensure_ascii=False, indent=2))
    )


def _print_text(answer: Any) -> None:
    for each in answer.to_json(whole=True)["results"]:
        typer.echo(escape_invisible(_format_hit(each)))
    if not answer.hits:
        typer.echo("shiftboss: no matches", err=True)


@contextmanager
def _open_input(place: str, *, as_json: bool) -> Iterator[BinaryIO]:
    if place == "-":
        if sys.stdin is None:
            fail("standard input is closed", as_json=as_json, status=2)
        yield sys.stdin.buffer
        return
    try:
        file = Path(place).open("rb")  # noqa: SIM115 - closed below; errors of the body must not be reported as errors of opening
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fail(f"{place} cannot be read ({why})", as_json=as_json, status=2)
    with file:
        yield file


def _format_hit(found: Any) -> str:
    who = f"{found['sender']}: " if found["sender"] else ""
    text = " ".join(found["text"].split())
    if len(text) > _MAX_LINE_WIDTH:
        text = f"{text[:_MAX_LINE_WIDTH]}…"
    return f"{found['score']:.4f}  {found['id']}  {found['at'][:10]}  {who}{text}"


cli = typer.Typer(no_args_is_help=True, help="Search, edit, import and export memories.")
cli.command("import")(import_conversation)
cli.command("search")(search)

TextArguments = Annotated[list[str], typer.Argument(metavar="TEXT")]


@cli.command("list")
def list_entries(
    kind: Annotated[str, typer.Argument(help="handbook, profile, longterm, facts, cells, …")] = "",
    scope: ScopeOption = "",
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
    as_json: JsonOption = False,
) -> None:
    """List memories, newest first."""
    options = (format_flag("--scope", resolve_scope(scope)), format_flag("--page", page))
    execute(command_line("memory", "list", *options, kind), as_json=as_json)


@cli.command("add", cls=TextCommand, help=help_text("remember"))
def add(text: TextArguments, scope: ScopeOption = "", as_json: JsonOption = False) -> None:
    joined = " ".join(text)
    execute(
        command_line("memory", "add", format_flag("--scope", resolve_scope(scope)), "--", joined),
        as_json=as_json,
    )


@cli.command("about")
def about(text: TextArguments, as_json: JsonOption = False) -> None:
    """Show what is known about a person, project or place."""
    execute(command_line("memory", "about", " ".join(text)), as_json=as_json)


_ENTRY = required("entry_id", WordArgument)

add_chat_command(cli, "off", "memory off", help="Remember and use nothing in the shell's chat.")
add_chat_command(cli, "on", "memory on", help="Turn memory in the shell's chat on again.")
add_chat_command(cli, "show", "memory show", _ENTRY, help="Show one memory in full.")


@cli.command("edit", cls=TextCommand)
def edit(entry_id: WordArgument, text: TextArguments, as_json: JsonOption = False) -> None:
    """Edit a memory's text."""
    execute(command_line("memory", "edit", entry_id, " ".join(text)), as_json=as_json)


add_chat_command(
    cli,
    "forget",
    "memory forget",
    _ENTRY,
    help="Forget a memory; conversations, exports and backups keep it.",
)


@cli.command("pin")
def pin(
    entry_id: WordArgument,
    off: Annotated[bool, typer.Option("--off", help="Unpin it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pin a memory, so that it never becomes stale."""
    execute(command_line("memory", "unpin" if off else "pin", entry_id), as_json=as_json)


@cli.command("move")
def move(entry_id: WordArgument, scope: WordArgument, as_json: JsonOption = False) -> None:
    """Move a memory to another scope."""
    execute(command_line("memory", "move", entry_id, resolve_scope(scope)), as_json=as_json)


add_chat_command(cli, "stats", "memory stats", help="Show memory statistics.")


@cli.command("clean")
def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove noise, duplicates and stale memories after a backup."""
    execute("/memory clean" if dry_run else "/memory clean yes", as_json=as_json)


@cli.command("export")
def export(
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]", help="- for standard output; by default a file in the data directory."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Export all memories as JSON lines."""
    execute("/memory export", as_json=as_json, present=lambda data: deliver_export(data, file))


@cli.command("restore")
def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A backup or export file.")],
    as_json: JsonOption = False,
) -> None:
    """Restore missing memories from a backup, except forgotten ones."""
    with stage_file(file, as_json=as_json) as name:
        execute(command_line("memory", "restore", name), as_json=as_json)


add_chat_command(cli, "candidates", "candidates", help="List memories to review.")
add_chat_command(cli, "keep", "candidates keep", _ENTRY, help="Save a candidate memory.")
add_chat_command(
    cli,
    "drop",
    "candidates drop",
    _ENTRY,
    help="Reject a candidate memory; it is not proposed again.",
)
