"""Ends a run: it succeeds only with the files that its task asks for, and it fails or stops only
after its compensations have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from bot.engine.workflow.compensation import ending_run, given_up
from bot.engine.workflow.expressions.evaluator import escape_placeholders, fill_template
from bot.engine.workflow.node_runs import FAILED_KEY
from bot.engine.workflow.plan import insert_steps, is_chain
from bot.engine.workflow.run_state import ChangeSet, TaskRunState
from cards import formats
from storage.records.tasks import EventKind, NodeRun, NodeStatus, TaskStatus

STOP_KEY = "@stop"
"""In the output of a step that failed while others ran: the status and the reason with which its
task ends after them."""

_MAX_NAMES = 10
_MAX_TITLE = 100
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def files_to_check(state: TaskRunState) -> tuple[str, ...]:
    """The files that the task asks for, unless its last step has reported on them or people have
    said something about them since.
    """
    if is_chain(state.workflow):
        return ()
    # Imported on first use: its many patterns cost the start.
    from bot.engine.agent.requested_files import find_named_files

    said = "\n".join(state.orders.messages)
    return tuple(name for name in find_named_files(state.task.instruction) if name not in said)


def ask_for_files(state: TaskRunState, changes: ChangeSet, missing: Sequence[str]) -> bool:
    """Insert a step that writes the missing files; False if one was inserted before, in which case
    the task ends.
    """
    files = ", ".join(missing)
    title = state.text("workflow.write_files", files=files)
    if any(node.title == escape_placeholders(title) for node in state.workflow.nodes):
        changes.end_task(TaskStatus.BLOCKED, state.text("work.missing_files", files=files))
        return False
    changes.add_plan(insert_steps(state.workflow, state.runs, [title]), "inject", "")
    changes.add_event(EventKind.INJECTED, title)
    return True


def release_failed_steps(state: TaskRunState, changes: ChangeSet) -> None:
    """The Boss may retry what failed."""
    while (failed := state.scheduler.failed_run) is not None:
        free = {key: value for key, value in failed.output.items() if key != STOP_KEY}
        free[FAILED_KEY] = True
        changes.put_run(replace(failed, status=NodeStatus.PENDING, output=free))


def begin_ending(
    state: TaskRunState,
    changes: ChangeSet,
    status: TaskStatus,
    reason: str,
    now: datetime,
    *,
    due: Iterable[NodeRun],
) -> bool:
    """Store the status and the reason with which the run will end once the compensations in `due`,
    and those that are open already, have run. False if there are none.
    """
    rows, undoing = tuple(due), state.scheduler.compensations
    if not status.is_final or not (rows or undoing.open):
        return False
    for run in (ending_run(state.task.id, status, reason, now, undoing), *rows):
        changes.put_run(run)
    return True


def cut_off_running_steps(state: TaskRunState, changes: ChangeSet, now: datetime) -> str:
    """Cut off the running steps because the workflow is out of time; return that reason."""
    why = state.timeout_reason
    for path in tuple(state.scheduler.running_paths):
        changes.cancelled.append(state.runs[path])
        changes.release_run(state.runs[path], why)
    changes.put_run(state.scheduler.timeout_run(now))
    return why


def finish_ending(
    state: TaskRunState, changes: ChangeSet, now: datetime, *, why: str | None
) -> bool:
    """End the task as recorded once all compensations have run; False if some are left. With `why`,
    those are given up.
    """
    flow = state.scheduler
    _tell_ending(state, changes)
    if why is None and flow.compensations.open:
        return False
    for run in flow.compensations.open:
        lost = given_up(run, why or "", now)
        if run.status is NodeStatus.RUNNING:
            changes.end_attempt(lost)
        else:
            changes.put_run(lost)
    noted = flow.ending
    assert noted is not None
    changes.end_task(TaskStatus(noted.output["status"]), ending_report(state))
    return True


def ending_report(state: TaskRunState) -> str:
    """The report of the ending: why the run ends, what was undone and what was not."""
    undoing, ending = state.scheduler.compensations, state.scheduler.ending
    done = [run for run in undoing.all if run.status is NodeStatus.DONE]
    others = [run for run in undoing.all if run.status is not NodeStatus.DONE]
    told = [] if ending is None else [str(ending.output.get("reason", ""))]
    if done:
        told.append(state.text("workflow.undone", names=_titles(state, done)))
    if failed := [run for run in others if run.status is NodeStatus.FAILED]:
        names = "; ".join(f"{_titles(state, [run])}: {run.error}" for run in failed[:_MAX_NAMES])
        told.append(state.text("workflow.not_undone", names=names))
    if left := [run for run in others if run.status is not NodeStatus.FAILED]:
        told.append(state.text("workflow.not_undone", names=_titles(state, left)))
    return "\n".join(filter(None, told))


def forget_idle_time(state: TaskRunState, changes: ChangeSet, since: datetime | None) -> None:
    """Leave the time before `since`, in which the program did not run, out of the compensation's
    time limit.
    """
    ending = state.scheduler.ending
    if since is None or ending is None or ending.ended_at is None:
        return
    undoing = state.scheduler.compensations.all
    times = [ending.started_at, *(run.started_at for run in undoing)]
    # Of one that was cut off, the end is when that was found out.
    times += [run.ended_at for run in undoing if run.status is not NodeStatus.PENDING]
    if (last := max(filter(None, times), default=since)) < since:
        until = ending.ended_at + (since - last)
        changes.put_run(replace(ending, started_at=since, ended_at=until))


def _tell_ending(state: TaskRunState, changes: ChangeSet) -> None:
    """Announce on the card, once, that steps are being undone."""
    undoing = state.scheduler.compensations.all
    if any(run.started_at is not None for run in undoing):
        return
    text = state.text("workflow.undoing", names=_titles(state, undoing))
    if state.task.status_reason != text:
        changes.update_task(status_reason=text)
        changes.add_event(EventKind.NOTE, text)


def _titles(state: TaskRunState, runs: Sequence[NodeRun]) -> str:
    flow, titles = state.scheduler, list[str]()
    for run in runs[:_MAX_NAMES]:
        place, node = flow.compensations.step_at(run.path)
        names = flow.context_of(place, _EARLIEST).names
        titles.append(
            formats.truncate(fill_template(node.title, names, lambda _why: None), _MAX_TITLE)
        )
    return ", ".join(titles) + ", …" * (len(runs) > _MAX_NAMES)
