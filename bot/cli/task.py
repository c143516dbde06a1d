"""`shiftboss task`, `subtask` and `log`: manage tasks, plans and logs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot.cli.chat_commands import (
    JsonOption,
    NameArgument,
    OptionalTaskId,
    OptionalText,
    TaskIdArgument,
    TextArgument,
    TextCommand,
    WordArgument,
    absolute_path,
    add_chat_command,
    command_line,
    execute,
    format_flag,
    help_text,
    optional,
    required,
)
from bot.cli.failures import fail
from handlers.flags import quote_value

task_cli = typer.Typer(no_args_is_help=True, help="Create, list and control tasks.")

_FINAL_STATUSES = frozenset({"completed", "failed", "cancelled"})


@task_cli.command("add", cls=TextCommand, help=help_text("run"))
def add(
    name: NameArgument,
    *,
    instruction: Annotated[
        str, typer.Option("-i", "--instruction", help="The instruction, if NAME is only the title.")
    ] = "",
    priority: Annotated[
        str, typer.Option("-p", "--priority", help="urgent, important or normal; 紧急, 重要, 普通.")
    ] = "normal",
    parent: Annotated[
        str, typer.Option("--parent", help="Make it a subtask of this task instead.")
    ] = "",
    by_self: Annotated[
        bool, typer.Option("--self", help="You do the work; Shiftboss only tracks it.")
    ] = False,
    folder: Annotated[str, typer.Option("-d", "--dir", help="The folder to work in.")] = "",
    persona: Annotated[
        str,
        typer.Option(
            "--persona", help="The persona of the worker; `shiftboss persona` lists them."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    if not parent:
        said = run_line(
            name,
            instruction=instruction,
            priority=priority,
            by_self=by_self,
            folder=folder,
            persona=persona,
        )
    elif instruction or by_self or folder or persona or priority != "normal":
        told_why = "a subtask has a name only: leave out -i, -p, -d, --persona and --self"
        fail(told_why, as_json=as_json)
    else:
        said = command_line("subtask add", parent, name)
    execute(said, as_json=as_json, needs_worker=not (by_self or parent))


@task_cli.command("list", hidden=True)
@task_cli.command("ls")
def list_tasks(
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Include finished tasks.")
    ] = False,
    status: Annotated[
        str,
        typer.Option(
            "-s", "--status", help="Only these statuses, separated by commas: paused,blocked."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List unfinished tasks, or those with a status."""
    from storage.records.tasks import TaskStatus

    named = {word.strip(): TaskStatus.parse(word) for word in status.split(",") if word.strip()}
    wanted = {each.value for each in named.values() if each}
    if unknown := [word for word, each in named.items() if each is None]:
        raise typer.BadParameter(f"there is no status {unknown[0]!r}", param_hint="--status")

    def show(data: Any) -> tuple[str, Any]:
        def kept(task: Any) -> bool:
            return task["status"] in wanted if wanted else everything or _is_open(task)

        tasks = [task for task in data["tasks"] if kept(task)]
        cut = data["total"] - len(data["tasks"])
        rows = [*map(_format_row, tasks), *([f"… +{cut}"] if cut else [])]
        hint = "No such task." if wanted or everything else "No unfinished task; -a lists all."
        return "\n".join(rows) or hint, {**data, "tasks": tasks}

    execute(
        command_line("list", *wanted) if len(wanted) == 1 else "/list",
        as_json=as_json,
        present=show,
    )


_TASK = required("task", TaskIdArgument)
_TEXT = required("text", TextArgument)
_REASON = optional("reason", OptionalText)
_BLOCK_REASON = Annotated[str, typer.Option("-r", "--reason", help="What a person must do.")]
_STATUS_NOTE = Annotated[str, typer.Option("-m", "--message", help="A status note.")]
_TOKENS = Annotated[int, typer.Argument(metavar="N", min=0)]

add_chat_command(task_cli, "show", "get", _TASK)
add_chat_command(task_cli, "history", "logs", _TASK)
add_chat_command(task_cli, "steps", "steps", _TASK, optional("page", OptionalText))
add_chat_command(task_cli, "diff", "diff", _TASK)
add_chat_command(task_cli, "search", "search", _TEXT)
add_chat_command(
    task_cli,
    "up",
    "update",
    _TASK,
    required("field", WordArgument),
    required("value", TextArgument),
)
add_chat_command(task_cli, "plan", "plan", _TASK, optional("text", OptionalText))
add_chat_command(task_cli, "phase", "phase", _TASK, _TEXT)
add_chat_command(task_cli, "block", "block", _TASK, required("reason", _BLOCK_REASON))
add_chat_command(task_cli, "interrupt", "interrupt", _TASK, required("note", _STATUS_NOTE))


@task_cli.command("done", help=help_text("done"))
def done(
    task: TaskIdArgument,
    summary: Annotated[str, typer.Option("-s", "--summary", help="The result.")] = "",
    tokens: Annotated[
        int | None,
        typer.Option(
            "-t", "--tokens-now", min=0, help="The tokens that your session has used so far."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the task hasn't started.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    said = command_line(
        "done",
        task,
        format_flag("--tokens-now", tokens),
        "--force" if force else "",
        "--" if summary else "",
        summary,
    )
    execute(said, as_json=as_json)


add_chat_command(task_cli, "delete", "delete", _TASK)
add_chat_command(task_cli, "retry", "retry", _TASK, needs_worker=True)
add_chat_command(task_cli, "pause", "pause", _TASK, _REASON)


@task_cli.command("resume", cls=TextCommand, help=help_text("resume"))
def resume(
    task: OptionalTaskId = "", answer: OptionalText = "", as_json: JsonOption = False
) -> None:
    execute(command_line("resume", task, answer), as_json=as_json, needs_worker=bool(task))


add_chat_command(task_cli, "stop", "stop", _TASK, help="Stop a task.")
add_chat_command(task_cli, "msg", "msg", _TASK, _TEXT)


@task_cli.command("inject", cls=TextCommand, help=help_text("inject"))
def inject(
    task: TaskIdArgument,
    steps: Annotated[list[str], typer.Argument(metavar="STEP...")],
    as_json: JsonOption = False,
) -> None:
    execute(command_line("inject", task, "\n".join(steps)), as_json=as_json)


@task_cli.command("rerun", cls=TextCommand, help=help_text("rerun"))
def rerun(
    task: TaskIdArgument,
    node: Annotated[str, typer.Argument(metavar="NODE")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    as_json: JsonOption = False,
) -> None:
    pairs = [each.partition("=") for each in changes or ()]
    if unclear := [name for name, bound, _ in pairs if not bound]:
        fail(f"{unclear[0]!r} is no KEY=VALUE", as_json=as_json, status=2)
    told = [f"{name}={quote_value(value, always=True)}" for name, _, value in pairs]
    execute(command_line("rerun", task, node, *told), as_json=as_json, needs_worker=True)


add_chat_command(task_cli, "replan", "replan", _TASK, optional("why", OptionalText))
add_chat_command(task_cli, "letin", "letin", _TASK)
add_chat_command(task_cli, "priority", "priority", _TASK, required("priority", WordArgument))
add_chat_command(task_cli, "token-snap", "token", _TASK, required("tokens", _TOKENS))


@task_cli.command("next", help=help_text("next"))
def next_task(
    by_self: Annotated[
        bool, typer.Option("--self", help="Only tasks that you work on yourself.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    execute(command_line("next", "--self" if by_self else ""), as_json=as_json)


def run_line(
    name: str, *, instruction: str, priority: str, by_self: bool, folder: str, persona: str
) -> str:
    """`name` is the title if there is an `instruction`, otherwise the instruction."""
    return command_line(
        "run",
        format_flag("-p", priority),
        "--self" if by_self else "",
        format_flag("-d", folder and absolute_path(folder)),
        format_flag("--persona", persona),
        format_flag("--title", name if instruction else ""),
        "--",
        instruction or name,
    )


def _is_open(task: Any) -> bool:
    return task["status"] not in _FINAL_STATUSES


def _format_row(task: Any) -> str:
    facts = (task["id"], task["status"], task["priority"], task["stage"])
    return "  ".join([*filter(None, facts), task["title"]])


subtask_cli = typer.Typer(no_args_is_help=True, help="Work with the steps of a task's plan.")


@subtask_cli.command("add", cls=TextCommand)
def add_subtasks(
    parent: TaskIdArgument,
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    as_json: JsonOption = False,
) -> None:
    """Add subtasks to a task's plan."""
    execute(command_line("subtask add", parent, "\n".join(names)), as_json=as_json)


@subtask_cli.command("done", cls=TextCommand)
def finish_subtask(
    parent: TaskIdArgument,
    name: NameArgument,
    summary: Annotated[str, typer.Option("-s", "--summary", help="The result.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Finish a subtask; the last one finishes the task."""
    quoted = quote_value(name, always=True)
    said = command_line("subtask done", parent, quoted, format_flag("-s", summary))
    execute(said, as_json=as_json)


@subtask_cli.command("phase", cls=TextCommand)
def set_subtask_phase(
    parent: TaskIdArgument, name: NameArgument, text: TextArgument, as_json: JsonOption = False
) -> None:
    """Set a subtask's phase."""
    quoted = quote_value(name, always=True)
    execute(command_line("subtask phase", parent, quoted, "--", text), as_json=as_json)


log_cli = typer.Typer(no_args_is_help=True, help="Log plans, findings, decisions and errors.")


@log_cli.command("add", cls=TextCommand)
def add_log(
    task: TaskIdArgument,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="plan, finding, decision, error, resource, milestone or progress."
        ),
    ],
    text: OptionalText = "",
    *,
    stage: Annotated[str, typer.Option("--phase", help="The phase of the entry.")] = "",
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=0, help="The attempt's number.")
    ] = (None),
    file: Annotated[str, typer.Option("--file", help="A file to attach.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Add to a task's logs; longer texts become files."""
    if not text.strip() and not file:
        fail("TEXT or --file is required", as_json=as_json, status=2)
    if len(kind.split()) != 1:
        fail("TYPE must be one word", as_json=as_json, status=2)
    said = command_line(
        "log",
        task,
        kind,
        format_flag("--phase", stage),
        format_flag("--attempt", attempt),
        format_flag("--file", file and absolute_path(file)),
        "--",
        text,
    )
    execute(said, as_json=as_json)


@log_cli.command("ls")
def list_logs(
    task: TaskIdArgument,
    kind: Annotated[str, typer.Option("--type", help="Only logs of this type.")] = "",
    last: Annotated[
        int, typer.Option("--last", min=1, max=200, help="The maximum number of entries.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List a task's logs."""
    execute(command_line("log", task, kind, format_flag("--last", last)), as_json=as_json)


@log_cli.command("search", cls=TextCommand)
def search_logs(
    words: TextArgument,
    last: Annotated[
        int, typer.Option("--last", min=1, max=15, help="The maximum number of entries.")
    ] = 15,
    as_json: JsonOption = False,
) -> None:
    """Search all logs, newest first."""

    def show(data: Any) -> tuple[str, Any]:
        found = data["logs"][:last]
        rows = [f"{each['task']}  {each['kind']}  {each['text']}" for each in found]
        return "\n".join(rows) or "Nothing found.", {"logs": found}

    execute(command_line("log", "search", words), as_json=as_json, present=show)
