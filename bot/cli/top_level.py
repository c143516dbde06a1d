"""Top-level commands such as say, status, doctor, cost, report, prompt, sessions, self, trigger."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import (
    JsonOption,
    OptionalText,
    TextCommand,
    WordArgument,
    absolute_path,
    add_chat_command,
    command_line,
    execute,
    help_text,
    optional,
    required,
)
from bot.cli.failures import fail, report_start_failures
from bot.cli.holder import find_holder
from cards.formats import escape_invisible
from handlers.flags import quote_value

self_cli = typer.Typer(no_args_is_help=True, help="See how Shiftboss itself is.")

_BARE_FLAGS = ("--quiet", "--fresh")
_READING = frozenset({"list", "ls", "show", "log"})
"""Subcommands of `schedule` after which nothing is left to do."""
"""Options of /schedule without a value."""
_CHANGE = Annotated[
    str,
    typer.Argument(metavar="[CHANGE]", help="start, stop, enable or disable; without, the status."),
]
_LINK_CODE = Annotated[
    str, typer.Argument(metavar="[CODE]", help="Of another account; without, make one. Or: choose.")
]
_LINK_MEMORY = Annotated[
    str, typer.Argument(metavar="[ID]", help="After choose: the memory that is right.")
]
_LINK_BOTH = Annotated[str, typer.Argument(metavar="[both]", help="After choose ID: both are.")]
_ACCOUNT = Annotated[
    str, typer.Argument(metavar="[ACCOUNT]", help="As in telegram:12345; without, list yours.")
]
_HOW = Annotated[
    str, typer.Argument(metavar="[revoke]", help="revoke: the account loses its access.")
]
_GOAL = Annotated[str, typer.Argument(metavar="[GOAL]", help="health-check, evolve or cleanup.")]


def say(
    text: Annotated[str, typer.Argument(help="A command such as /list, or a message.")],
) -> None:
    """Send a message to Shiftboss and print the answer."""
    _say_to_running(text)


def pair(
    code: Annotated[str, typer.Argument(help="The pairing code that the person received.")],
) -> None:
    _say_to_running(f"/pair {code}")


def _say_to_running(text: str) -> None:
    with report_start_failures():
        # Imported here so that `--help` stays fast.
        from bot.app.running_program import find_running_program
        from bot.cli.local_execution import CommandRefused, ProgramUnreachable, send_command
        from bot.config.settings import load_settings

        settings = load_settings()
        running = find_running_program(settings)
    # Another program may listen there by now, and must not get the token. Fronts hold no directory.
    if not settings.shares_store and find_holder(settings.home) is None:
        fail("Shiftboss is not running: start it with `shiftboss start`")
    try:
        # Text that is not a command is part of the conversation and needs a running Shiftboss.
        answer = send_command(running, text, quiet=text.lstrip().startswith(("/", "／")))
    except ProgramUnreachable as error:
        fail(f"{error}. Is `shiftboss run` running?")
    except CommandRefused as error:
        fail(str(error))
    typer.echo(escape_invisible(answer.text))
    if not answer.good:
        raise typer.Exit(1)


def trace(
    task: Annotated[
        str,
        typer.Argument(
            metavar="[ID|talk]", help="A task id, or `talk`; by default the newest task."
        ),
    ] = "",
    *,
    slow: Annotated[bool, typer.Option("--slow", help="Only slow spans.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Only errors.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Costs by step.")] = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="All spans.")] = False,
    otlp: Annotated[
        str,
        typer.Option(
            "--otlp", metavar="FILE", help="Write OTLP JSON to a file, or - for standard output."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    modes = [name for name, on in (("slow", slow), ("errors", errors), ("cost", cost)) if on]
    if len(modes) > 1 or (modes and (everything or otlp)):
        fail("choose one of --slow, --errors, --cost, --all and --otlp", as_json=as_json, status=2)

    def show(data: Any) -> tuple[str, Any]:
        if not data["spans"]:
            return "there is nothing to trace yet", data
        return _export_otlp(data, otlp, as_json=as_json) if otlp else (_format_tree(data), data)

    said = command_line("trace", *modes, task)
    execute(said, as_json=as_json, present=show if otlp or everything else None)


def _export_otlp(data: Any, place: str, *, as_json: bool) -> tuple[str, Any]:
    # Imported here so that `--help` stays fast.
    from importlib.metadata import version

    from bot.engine.tracing.otlp_export import build_request
    from cards.views.traces import parse_trace

    request = build_request([parse_trace(data)], version=version("shiftboss"))
    written = json.dumps(request, ensure_ascii=False)
    if place == "-":
        return written, request
    try:
        Path(place).expanduser().write_text(f"{written}\n", encoding="utf-8")
    except OSError as error:
        fail(f"{place} cannot be written ({error.strerror or error})", as_json=as_json, status=2)
    spans = len(data["spans"])
    return f"{spans} spans → {place}", {"file": place, "spans": spans}


def _format_tree(data: Any) -> str:
    from cards.catalog import catalog_for
    from cards.views.traces import parse_trace, tree_lines
    from storage.records.people import Language

    return "\n".join(tree_lines(parse_trace(data), catalog_for(Language.ENGLISH)))


_APPROVAL_ID = Annotated[
    str, typer.Argument(metavar="[ID]", help="The request's id; optional if only one is open.")
]
_COUNT = Annotated[
    str, typer.Argument(metavar="[NUMBER]", help="Messages to show: 10, at most 50.")
]
_PERIOD = Annotated[
    str, typer.Argument(metavar="[PERIOD|ID|MODEL]", help="today, week, month, all, 7d, a task")
]
_MODEL = Annotated[str, typer.Argument(metavar="[MODEL]")]


def persona(
    words: Annotated[list[str] | None, typer.Argument(metavar="[NAME|show NAME|auto]")] = None,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("persona", *(words or ())), as_json=as_json)


def sessions(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[end ID|others] [token NAME]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("sessions", *(words or ())), as_json=as_json)


def doctor(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Make the repairs that are safe.")] = False,
    as_json: JsonOption = False,
) -> None:
    report = execute(command_line("doctor", "fix" if fix else ""), as_json=as_json)
    if report["grade"] == "fail":
        raise typer.Exit(1)


def remind(
    words: Annotated[list[str], typer.Argument(metavar="TIME TEXT")], as_json: JsonOption = False
) -> None:
    execute(command_line("remind", *words), as_json=as_json)


def schedule(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[list|add|show|confirm|run|skip|pause|resume|delete|log] [ID|TIME WORK]"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    given = list(words or ())
    parts = (
        quote_value(word) if before.startswith("-") and before not in _BARE_FLAGS else word
        for before, word in pairwise(["", *given])
    )
    first = given[0] if given else "list"
    execute(
        command_line("schedule", *parts),
        as_json=as_json,
        needs_worker=first not in _READING,
        needs_program=first == "run",
    )


def heartbeat(
    words: Annotated[list[str] | None, typer.Argument(metavar="[on|off|now|add TEXT|log]")] = None,
    as_json: JsonOption = False,
) -> None:
    at_once = list(words or ())[:1] in (["now"], ["run"])
    execute(command_line("heartbeat", *(words or ())), as_json=as_json, needs_program=at_once)


def report(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[day|week|month|trend|cost|daily TIME|weekly DAY TIME|off]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("report", *(words or ())), as_json=as_json)


def prompt(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[list|show NAME|diff NAME [N M]|rollback NAME]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("prompt", *(words or ())), as_json=as_json)


def evolve(
    words: Annotated[list[str] | None, typer.Argument(metavar="[analyze|history]")] = None,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("evolve", *(words or ())), as_json=as_json)


def add_commands(cli: typer.Typer) -> None:
    cli.command("remind", cls=TextCommand, help=help_text("remind"))(remind)
    cli.command(
        "schedule",
        cls=TextCommand,
        # The options of a schedule go to the chat command with the rest.
        context_settings={"ignore_unknown_options": True},
        help=help_text("schedule"),
    )(schedule)
    cli.command("heartbeat", cls=TextCommand, help=help_text("heartbeat"))(heartbeat)
    cli.command("report", cls=TextCommand, help=help_text("report"))(report)
    cli.command("prompt", help=help_text("prompt"))(prompt)
    cli.command("evolve", help=help_text("evolve"))(evolve)
    add_chat_command(cli, "status", "status", tells_running=True)
    add_chat_command(cli, "inbox", "inbox", optional("number", _COUNT))
    add_chat_command(cli, "cost", "cost", optional("what", _PERIOD), optional("model", _MODEL))
    cli.command("doctor", help=help_text("doctor"))(doctor)
    cli.command("trace", help=help_text("trace"))(trace)
    cli.command("persona", help=help_text("persona"))(persona)
    add_chat_command(cli, "dashboard", "dashboard", needs_program=True)
    add_chat_command(
        cli,
        "link",
        "link",
        optional("code", _LINK_CODE),
        optional("memory", _LINK_MEMORY),
        optional("both", _LINK_BOTH),
    )
    add_chat_command(cli, "unlink", "unlink", optional("account", _ACCOUNT), optional("how", _HOW))
    add_chat_command(cli, "reload", "reload", needs_program=True)
    cli.command("sessions", help=help_text("sessions"))(sessions)
    add_chat_command(cli, "approvals", "approvals")
    add_chat_command(cli, "approve", "approve", optional("request", _APPROVAL_ID))
    add_chat_command(
        cli,
        "reject",
        "reject",
        required("request", WordArgument),
        optional("reason", OptionalText),
        help="Reject a request, with an optional reason.",
    )


def check_self(as_json: JsonOption = False) -> None:
    """Run the self-check; status 1 if it fails. Without a running Shiftboss it only reports."""
    report = execute(command_line("self", "check"), as_json=as_json)
    if report["grade"] == "fail":
        raise typer.Exit(1)


add_chat_command(self_cli, "status", "self", help="Show health, open problems and drive.")
self_cli.command("check")(check_self)
add_chat_command(self_cli, "history", "self history", help="List the problems so far.")
add_chat_command(
    self_cli,
    "drive",
    "self drive",
    optional("change", _CHANGE),
    optional("goal", _GOAL),
    help="Show or change the goals that Shiftboss pursues by itself.",
)


trigger_cli = typer.Typer(no_args_is_help=True, help=help_text("trigger"))

_TRIGGER_KIND = Annotated[str, typer.Argument(metavar="message|file|webhook")]
_TRIGGER_ID = Annotated[str, typer.Argument(metavar="ID", help="Its first characters will do.")]


@trigger_cli.command("add", cls=TextCommand)
def add_trigger(
    kind: _TRIGGER_KIND,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW")],
    *,
    pattern: Annotated[
        str, typer.Option("--pattern", help="Words of the message, as in: deploy {service}.")
    ] = "",
    by: Annotated[
        str, typer.Option("--by", help="From whom: owner or a name; by default anyone.")
    ] = "",
    folder: Annotated[str, typer.Option("--folder", help="The folder to watch.")] = "",
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="A fixed input.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a trigger. The address of a webhook is printed only now."""
    given = {"pattern": pattern, "by": by, "folder": absolute_path(folder) if folder else ""}
    for each in inputs or ():
        name, is_pair, value = each.partition("=")
        if not is_pair or not name.isidentifier():
            fail(f"{each!r} is not NAME=VALUE", as_json=as_json, status=2)
        given[name] = value
    parts = (f"{name}={quote_value(text, always=True)}" for name, text in given.items() if text)
    execute(command_line("trigger add", kind, workflow, *parts), as_json=as_json, needs_worker=True)


add_chat_command(trigger_cli, "list", "trigger list", help="List all, with their last events.")
for _name, _help in (
    ("on", "Switch a trigger on."),
    ("off", "Switch a trigger off."),
    ("remove", "Remove a trigger."),
    ("token", "Give a webhook another address."),
):
    add_chat_command(
        trigger_cli, _name, f"trigger {_name}", required("trigger", _TRIGGER_ID), help=_help
    )
