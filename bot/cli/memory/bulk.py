"""`shiftboss memory import` and `search`: conversations from elsewhere, and many questions."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, NoReturn, TypeVar

import typer

from bot.cli.failures import told
from bot.cli.memory.scopes import WHOSE, Scope, named
from bot.cli.parameters import Json
from bot.cli.speak import fail
from storage.memory.lexicon.unseen import revealed

_T = TypeVar("_T")

_SHOWN = 20
_MOST = 1_000
_WIDEST = 300
_LONGEST = 10_000


def import_rows(
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl", help="- for what is piped in.")],
    scope: Annotated[str, typer.Option("--scope", help=WHOSE)],
    as_json: Json = False,
) -> None:
    """Remember the lines of a conversation: {"text", "id"?, "sender"?, "at"?, "thread"?} each, in
    the order in which they were said. Lines that are there already stay as they are."""
    with told(as_json=as_json), _opened(file, as_json=as_json) as rows:
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal import bulk
        from bot.config.settings import load_settings

        done = _run(bulk.import_rows(load_settings(), rows, named(scope)))
    bad = [{"line": each.number, "why": each.why} for each in done.bad]
    if as_json:
        typer.echo(json.dumps({"imported": done.new, "known": done.known, "bad": bad}))
    else:
        typer.echo(f"{done.new} imported, {done.known} known already, {len(bad)} bad")
        for each in bad[:_SHOWN]:
            typer.echo(f"shiftboss: {file}:{each['line']}: {each['why']}", err=True)
        if len(bad) > _SHOWN:
            typer.echo(f"shiftboss: … and {len(bad) - _SHOWN} more bad lines", err=True)
    if bad and not done.new and not done.known:
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
    scope: Scope = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MOST)] = 10,
    as_json: Json = False,
) -> None:
    """Find what is remembered, best first. Without --scope, where your own chat looks."""
    query = " ".join(words or [])
    if bool(batch) == bool(query.strip()):
        fail("give a QUERY, or --batch with a file of them", as_json=as_json, status=2)
    with told(as_json=as_json or bool(batch)):
        from bot.engine.memory.bulk.queries import Query, queries_of

        if batch:
            with _opened(batch, as_json=True) as file:
                _run(_answer(queries_of(file), scope, limit, _in_a_line))
        else:
            asked = Query(query=query[:_LONGEST])
            _run(_answer([asked], scope, limit, _as_json if as_json else _for_people))


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`; Ctrl-C ends it also while it waits for the next line of a pipe."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


async def _answer(
    queries: Iterable[Any], scope: str, limit: int, show: Callable[[Any], None]
) -> None:
    # Loaded here and not above, so that `--help` stays quick.
    from bot.app.terminal import bulk
    from bot.config.settings import load_settings
    from bot.engine.memory.bulk.queries import Query

    async with bulk.asking(load_settings(), named(scope)) as asking:
        if await asking.is_empty():
            there = ", ".join(map(str, asking.scopes))
            typer.echo(f"shiftboss: nothing is kept in {there}", err=True)
        for each in queries:
            show(await asking.find(each, limit) if isinstance(each, Query) else each)


def _in_a_line(answer: Any) -> None:
    from bot.engine.memory.bulk.queries import compact

    typer.echo(revealed(compact(answer.plain())))


def _as_json(answer: Any) -> None:
    typer.echo(revealed(json.dumps(answer.plain(whole=True), ensure_ascii=False, indent=2)))


def _for_people(answer: Any) -> None:
    for each in answer.plain(whole=True)["results"]:
        typer.echo(revealed(_line(each)))
    if not answer.hits:
        typer.echo("shiftboss: nothing fits", err=True)


@contextmanager
def _opened(place: str, *, as_json: bool) -> Iterator[BinaryIO]:
    if place == "-":
        if sys.stdin is None:
            fail("nothing is piped in", as_json=as_json, status=2)
        yield sys.stdin.buffer
        return
    try:
        file = Path(place).open("rb")  # noqa: SIM115 - closed below; what fails within is not told as if it failed here
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fail(f"{place} cannot be read ({why})", as_json=as_json, status=2)
    with file:
        yield file


def _line(found: Any) -> str:
    who = f"{found['sender']}: " if found["sender"] else ""
    text = " ".join(found["text"].split())
    if len(text) > _WIDEST:
        text = f"{text[:_WIDEST]}…"
    return f"{found['score']:.4f}  {found['id']}  {found['at'][:10]}  {who}{text}"
