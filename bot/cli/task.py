"""`shiftboss task`: queue work, look at it, move it on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot.cli import lines
from bot.cli.parameters import Json, MaybeSaid, MaybeTaskId, Name, Said, TaskId, TextCommand, Word
from bot.cli.speak import fail, speak

cli = typer.Typer(no_args_is_help=True, help="Queue work, look at it, move it on.")

_FINAL = frozenset({"completed", "failed", "cancelled"})


@cli.command("add", cls=TextCommand)
def add(
    name: Name,
    *,
    told: Annotated[
        str, typer.Option("-i", "--instruction", help="What to do, where NAME is only the title.")
    ] = "",
    priority: Annotated[
        str, typer.Option("-p", "--priority", help="urgent, important or normal; 紧急, 重要, 普通.")
    ] = "normal",
    parent: Annotated[
        str, typer.Option("--parent", help="Make it a subtask of this task instead.")
    ] = "",
    own: Annotated[
        bool, typer.Option("--self", help="You do the work; Shiftboss only keeps it.")
    ] = False,
    folder: Annotated[str, typer.Option("-d", "--dir", help="The folder to work in.")] = "",
    persona: Annotated[
        str, typer.Option("--persona", help="Who does it; `shiftboss persona` lists them.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Queue a task."""
    if not parent:
        said = lines.run(
            name, told=told, priority=priority, own=own, folder=folder, persona=persona
        )
    elif told or own or folder or persona or priority != "normal":
        told_why = "a subtask has a name only: leave out -i, -p, -d, --persona and --self"
        fail(told_why, as_json=as_json)
    else:
        said = lines.steps("subtask add", parent, [name])
    speak(said, as_json=as_json, needs_worker=not (own or parent))


@cli.command("list", hidden=True)
@cli.command("ls")
def ls(
    everything: Annotated[bool, typer.Option("-a", "--all", help="Finished ones too.")] = False,
    status: Annotated[
        str, typer.Option("-s", "--status", help="Only these, with commas between: paused,blocked.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List tasks, unfinished ones only unless told otherwise."""
    from storage.records.tasks import TaskStatus

    named = {word.strip(): TaskStatus.named(word) for word in status.split(",") if word.strip()}
    wanted = {each.value for each in named.values() if each}
    if unknown := [word for word, each in named.items() if each is None]:
        raise typer.BadParameter(f"there is no status {unknown[0]!r}", param_hint="--status")

    def show(data: Any) -> tuple[str, Any]:
        def kept(task: Any) -> bool:
            return task["status"] in wanted if wanted else everything or _is_open(task)

        tasks = [task for task in data["tasks"] if kept(task)]
        cut = data["total"] - len(data["tasks"])
        rows = [*map(_row, tasks), *([f"… +{cut}"] if cut else [])]
        return "\n".join(rows) or "—", {**data, "tasks": tasks}

    speak(lines.line("list", *wanted) if len(wanted) == 1 else "/list", as_json=as_json, show=show)


@cli.command("show")
def show(task: TaskId, as_json: Json = False) -> None:
    """Show one task in full."""
    speak(lines.line("get", task), as_json=as_json)


@cli.command("history")
def history(task: TaskId, as_json: Json = False) -> None:
    """Show what happened in a task."""
    speak(lines.line("logs", task), as_json=as_json)


@cli.command("search", cls=TextCommand)
def search(words: Said, as_json: Json = False) -> None:
    """Find tasks by what they and their logs say."""
    speak(lines.line("search", words), as_json=as_json)


@cli.command("up", cls=TextCommand)
def up(task: TaskId, field: Word, value: Said, as_json: Json = False) -> None:
    """Put a task's title, instruction, priority or stage right."""
    speak(lines.line("update", task, field, value), as_json=as_json)


@cli.command("plan", cls=TextCommand)
def plan(task: TaskId, text: MaybeSaid = "", as_json: Json = False) -> None:
    """Show a task's plan, or write it."""
    speak(lines.line("plan", task, text), as_json=as_json)


@cli.command("phase", cls=TextCommand)
def phase(task: TaskId, text: Said, as_json: Json = False) -> None:
    """Say where a task stands, and hear whether something more important waits."""
    speak(lines.line("phase", task, text), as_json=as_json)


@cli.command("block")
def block(
    task: TaskId,
    reason: Annotated[str, typer.Option("-r", "--reason", help="What it needs a person for.")],
    as_json: Json = False,
) -> None:
    """Say that a task cannot go on without a person, and why."""
    speak(lines.line("block", task, reason), as_json=as_json)


@cli.command("interrupt")
def interrupt(
    task: TaskId,
    note: Annotated[str, typer.Option("-m", "--message", help="Where it stands.")],
    as_json: Json = False,
) -> None:
    """Put a task aside with a note of where it stands."""
    speak(lines.line("interrupt", task, note), as_json=as_json)


@cli.command("done")
def done(
    task: TaskId,
    summary: Annotated[str, typer.Option("-s", "--summary", help="What came of it.")] = "",
    tokens: Annotated[
        int | None,
        typer.Option("-t", "--tokens-now", min=0, help="What your session has used by now."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it has not begun.")] = False,
    as_json: Json = False,
) -> None:
    """Say that a task is finished."""
    said = lines.done(task, summary=summary, tokens=tokens, force=force)
    speak(said, as_json=as_json)


@cli.command("delete")
def delete(task: TaskId, as_json: Json = False) -> None:
    """Take a task that is not being worked on out of sight."""
    speak(lines.line("delete", task), as_json=as_json)


@cli.command("retry")
def retry(task: TaskId, as_json: Json = False) -> None:
    """Try a failed or stopped task again, keeping finished steps."""
    speak(lines.line("retry", task), as_json=as_json, needs_worker=True)


@cli.command("pause", cls=TextCommand)
def pause(task: TaskId, reason: MaybeSaid = "", as_json: Json = False) -> None:
    """Pause a task at its next safe point."""
    speak(lines.line("pause", task, reason), as_json=as_json)


@cli.command("resume", cls=TextCommand)
def resume(task: MaybeTaskId = "", answer: MaybeSaid = "", as_json: Json = False) -> None:
    """Go on with a task; without an ID, say which one and where it stands."""
    speak(lines.line("resume", task, answer), as_json=as_json, needs_worker=bool(task))


@cli.command("stop")
def stop(task: TaskId, as_json: Json = False) -> None:
    """Stop a task."""
    speak(lines.line("stop", task), as_json=as_json)


@cli.command("msg", cls=TextCommand)
def msg(task: TaskId, text: Said, as_json: Json = False) -> None:
    """Tell a task's worker something; it reaches the next step."""
    speak(lines.line("msg", task, text), as_json=as_json)


@cli.command("inject", cls=TextCommand)
def inject(
    task: TaskId,
    steps: Annotated[list[str], typer.Argument(metavar="STEP...")],
    as_json: Json = False,
) -> None:
    """Put steps in next: before those not begun yet."""
    speak(lines.steps("inject", task, steps), as_json=as_json)


@cli.command("replan", cls=TextCommand)
def replan(task: TaskId, why: MaybeSaid = "", as_json: Json = False) -> None:
    """Make a new plan of what is left; finished steps are kept."""
    speak(lines.line("replan", task, why), as_json=as_json)


@cli.command("letin")
def letin(task: TaskId, as_json: Json = False) -> None:
    """Let a task work where another has left work half done."""
    speak(lines.line("letin", task), as_json=as_json)


@cli.command("priority")
def priority(task: TaskId, priority: Word, as_json: Json = False) -> None:
    """Change how urgent a task is."""
    speak(lines.line("priority", task, priority), as_json=as_json)


@cli.command("token-snap")
def token_snap(
    task: TaskId,
    tokens: Annotated[int, typer.Argument(metavar="N", min=0)],
    as_json: Json = False,
) -> None:
    """Note how many tokens your own session has used as a task begins."""
    speak(lines.line("token", task, str(tokens)), as_json=as_json)


@cli.command("next")
def next_task(
    own: Annotated[bool, typer.Option("--self", help="Only work that you do yourself.")] = False,
    as_json: Json = False,
) -> None:
    """Show what to do now, and what comes after it."""
    speak(lines.line("next", "--self" if own else ""), as_json=as_json)


def _is_open(task: Any) -> bool:
    return task["status"] not in _FINAL


def _row(task: Any) -> str:
    facts = (task["id"], task["status"], task["priority"], task["stage"])
    return "  ".join([*filter(None, facts), task["title"]])
