"""`shiftboss memory import` and `search`: conversations from elsewhere, and many questions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from bot.cli import lines
from bot.cli.failures import told
from bot.cli.parameters import Json
from bot.cli.speak import fail, speak

_SHOWN = 20
_MOST = 1_000
_LONGEST = 10_000


def import_rows(
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl", help="- for what is piped in.")],
    scope: Annotated[
        str, typer.Option("--scope", help="Whose: me, global, person:ID, chat:ID, … or any name.")
    ],
    as_json: Json = False,
) -> None:
    """Remember the lines of a conversation: {"text", "id"?, "sender"?, "at"?, "thread"?} each, in
    the order in which they were said. Lines that are there already stay as they are."""
    with told(as_json=as_json), _opened(file, as_json=as_json) as rows:
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal import bulk
        from bot.config.settings import load_settings

        done = asyncio.run(bulk.import_rows(load_settings(), rows, scope))
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
            help='{"query", "id"?} each line; an answer in JSON on one line for each, in order.',
        ),
    ] = "",
    scope: Annotated[
        str, typer.Option("--scope", help="Whose: me, global, person:ID, chat:ID, … or any name.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MOST)] = 10,
    as_json: Json = False,
) -> None:
    """Find what is remembered, best first."""
    query = " ".join(words or [])
    if bool(batch) == bool(query.strip()):
        fail("give a QUERY, or --batch with a file of them", as_json=as_json, status=2)
    if batch:
        if not scope:
            fail("--batch needs a --scope", as_json=as_json, status=2)
        with told(as_json=True), _opened(batch, as_json=True) as file:
            asyncio.run(_answer_all(file, scope, limit))
    elif scope in ("", "me", "chat", "project"):
        speak(
            lines.line("memory", "search", lines.flag("--scope", scope), query),
            as_json=as_json,
        )
    else:
        with told(as_json=as_json):
            found = asyncio.run(_answer(query, scope, limit))
        if as_json:
            typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        else:
            typer.echo("\n".join(map(_line, found["results"])) or "—")


async def _answer(query: str, scope: str, limit: int) -> Any:
    from bot.app.terminal import bulk
    from bot.config.settings import load_settings
    from bot.engine.memory.bulk.queries import Found, Query

    asked = Query(query=query[:_LONGEST])
    answers = [each async for each in bulk.search(load_settings(), [asked], scope, limit)]
    assert isinstance(answers[0], Found)
    return answers[0].plain(whole=True)


async def _answer_all(file: BinaryIO, scope: str, limit: int) -> None:
    from bot.app.terminal import bulk
    from bot.config.settings import load_settings
    from bot.engine.memory.bulk.queries import compact, queries_of

    async for each in bulk.search(load_settings(), queries_of(file), scope, limit):
        typer.echo(compact(each.plain()))


@contextmanager
def _opened(place: str, *, as_json: bool) -> Iterator[BinaryIO]:
    if place == "-":
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
    return f"{found['score']:.4f}  {found['id']}  {found['at'][:10]}  {who}{text}"
