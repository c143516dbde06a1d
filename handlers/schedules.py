"""Handles reminders and scheduled jobs: /remind, /schedule, and messages that ask for something
later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from cards import formats
from cards.actions import (
    AnswerReminder,
    ControlSchedule,
    DecideMissedFiring,
    DecideSchedule,
    ScheduleAction,
)
from cards.model import Card
from cards.views.schedules import (
    firing_data,
    missed_decided_card,
    reminder_answered_card,
    schedule_card,
    schedule_data,
    schedule_log_card,
    schedule_proposed_card,
    schedules_card,
)
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.personas import persona_for_task
from handlers.ports import TaskProposal
from handlers.ports_autonomy import ScheduleView, TimedRequest
from handlers.projects import resolve_workspace
from handlers.request import CommandRegistry, Reply, Request
from handlers.workflow_inputs import parse_inputs, split_named_values
from handlers.workflows import explain_rejection
from storage.records.schedules import (
    FiringState,
    MessageBody,
    MissedPolicy,
    NewSchedule,
    OneTime,
    ScheduleBody,
    ScheduleId,
    ScheduleKind,
    ScheduleState,
    TaskBody,
    Timing,
    WorkflowBody,
)
from storage.records.usage import parse_cap

commands = CommandRegistry("tasks")

_MAX_TITLE = 80
_MAX_RETRIES = 10
_LOGGED = 15
_NOT_STARTED = {FiringState.SKIPPED, FiringState.FAILED}
_ADD_FLAGS = ("zone", "missed", "retries", "cap", "persona", "workflow", "title", "d", "dir")
_BARE_FLAGS = ("quiet", "fresh")


@commands("remind", aliases=("reminder", "提醒"), verbatim=True)
async def remind(request: Request) -> Reply:
    if not request.args.strip():
        raise UsageError("remind")
    asked = request.services.schedules.read_request(request.args)
    if asked is not None and asked.subject.strip():
        asked = replace(asked, asks_reminder=True)
        return _proposal_reply(request, await propose_request(request, asked))
    timing, text = request.services.schedules.split_timing(request.args)
    if not text.strip():
        raise UsageError("remind")
    return await _propose(request, _new_reminder(request, timing, text.strip()))


@commands("schedule", aliases=("schedules", "cron", "日程", "定时"), verbatim=True)
async def manage_schedules(request: Request) -> Reply:
    word, _, rest = request.args.strip().partition(" ")
    if not word:
        return await _list(request, "")
    subcommand = _SUBCOMMANDS.get(word.casefold())
    if subcommand is None:
        # Without a subcommand: the job itself.
        subcommand, rest = _add, request.args
    return await explain_rejection(request, subcommand(request, rest.strip()))


async def propose_by_words(request: Request) -> Reply | None:
    """Propose a reminder or job for a message that asks for it in plain words; None if it does
    not."""
    asked = request.services.schedules.read_request(request.args)
    if asked is None and not request.files and request.without_model:
        # A model would ask; without one, this says what is missing.
        request.services.schedules.check_readable(request.args)
    if asked is None or not asked.subject.strip() or request.files:
        return None
    return _proposal_reply(request, await propose_request(request, asked))


async def propose_request(request: Request, asked: TimedRequest) -> ScheduleView:
    """Store what was asked for in words. It fires once it is confirmed."""
    subject = asked.subject.strip()
    if asked.asks_reminder:
        new = _new_reminder(request, asked.timing, subject)
    else:
        new = await _new_job(request, asked.timing, TaskBody(instruction=subject))
    new = replace(new, zone=asked.zone_name or new.zone)
    return await request.services.schedules.propose(new)


async def propose_timed_task(request: Request, proposal: TaskProposal) -> Reply | None:
    """Propose what a model has understood; None if its time cannot be read. The person's own words
    count before what the model made of them, which may be off by a day."""
    refusals = []
    for text in filter(None, (proposal.requested_time, proposal.computed_time)):
        try:
            timing = request.services.schedules.read_timing(text)
        except UserError as error:
            refusals.append(error)
            continue
        if proposal.is_reminder:
            return await _propose(request, _new_reminder(request, timing, proposal.text))
        body = TaskBody(instruction=proposal.text)
        return await _propose(request, await _new_job(request, timing, body, title=proposal.title))
    if proposal.is_reminder and refusals:
        # A task may be started now instead; a reminder may not.
        raise refusals[0]
    return None


async def handle_schedule_press(request: Request, action: ScheduleAction, card_key: str) -> Reply:
    schedules, by, chat = request.services.schedules, request.person, request.chat.id
    words = request.words
    match action:
        case DecideSchedule(schedule_id=schedule_id, confirm=True):
            view = await schedules.confirm(ScheduleId(schedule_id), by=by, chat=chat)
            card = _card(request, view, _confirmation(view))
        case DecideSchedule(schedule_id=schedule_id):
            view = await schedules.decline(ScheduleId(schedule_id), by=by, chat=chat)
            card = _card(request, view, "schedule.declined")
        case ControlSchedule(change="log", schedule_id=schedule_id):
            return await _show_log(request, schedule_id)
        case ControlSchedule(schedule_id=schedule_id, change=change):
            view = await change_schedule(request, change, schedule_id, due_at=action.due_at)
            if not action.listed:
                return Reply(card=_card(request, view, f"schedule.changed_{change}"))
            card = (await _list(request, "")).card or _card(request, view, "")
        case AnswerReminder(firing_id=firing_id, snooze_minutes=0):
            fired = await schedules.finish_reminder(firing_id, by=by, chat=chat)
            card = reminder_answered_card(fired.schedule, words)
        case AnswerReminder(firing_id=firing_id, snooze_minutes=minutes):
            view = await schedules.snooze(
                firing_id, timedelta(minutes=minutes), by=by, chat=chat, source=request.source
            )
            timing = view.schedule.timing
            until = timing.at if isinstance(timing, OneTime) else None
            card = reminder_answered_card(view.schedule, words, snoozed_until=until)
        case DecideMissedFiring(firing_id=firing_id, run=run):
            fired = await schedules.decide_missed(firing_id, run=run, by=by, chat=chat)
            return Reply(card=missed_decided_card(fired, words))
        case _:
            assert_never(action)
    return Reply(card=card, key=card_key, in_place=True)


async def _propose(request: Request, new: NewSchedule) -> Reply:
    return _proposal_reply(request, await request.services.schedules.propose(new))


def _proposal_reply(request: Request, view: ScheduleView) -> Reply:
    card = schedule_proposed_card(view.schedule, view.upcoming, request.words)
    return Reply(card=card, data=schedule_data(view.schedule, view.upcoming))


def _new_reminder(request: Request, timing: Timing, text: str) -> NewSchedule:
    return NewSchedule(
        kind=ScheduleKind.REMINDER,
        title=formats.single_line(text, _MAX_TITLE),
        timing=timing,
        zone=request.zone.key,
        body=MessageBody(text=text),
        owner_id=request.person.id,
        chat_id=request.chat.id,
        source=request.origin,
        reply_to=request.message_id,
    )


async def _new_job(
    request: Request, timing: Timing, body: ScheduleBody, *, title: str = "", folder: str = ""
) -> NewSchedule:
    project_dir, _ = await resolve_workspace(request, folder)
    name = body.instruction if isinstance(body, TaskBody) else getattr(body, "name", "")
    settings = request.chat.settings
    return NewSchedule(
        kind=ScheduleKind.JOB,
        title=formats.single_line(title or name, _MAX_TITLE),
        timing=timing,
        zone=request.zone.key,
        body=body,
        owner_id=request.person.id,
        chat_id=request.chat.id,
        source=request.origin,
        reply_to=request.message_id,
        project_dir=project_dir,
        model=request.model or settings.model,
        backend=request.backend or settings.backend,
        persona=await persona_for_task(request, ""),
    )


async def _add(request: Request, rest: str) -> Reply:
    """Add a schedule from `[flags] TIME WORK`."""
    flags = parse_flags(rest, valued=_ADD_FLAGS, bare=_BARE_FLAGS)
    options = flags.options
    schedules = request.services.schedules
    workflow = options.get("workflow", "")
    body: ScheduleBody
    if workflow:
        timing, text = schedules.split_timing(flags.text)
        body = await _workflow_body(request, workflow, text)
    else:
        asked = schedules.read_request(flags.text)
        if asked is not None and asked.subject.strip():
            if asked.asks_reminder:
                return _proposal_reply(request, await propose_request(request, asked))
            timing, text = asked.timing, asked.subject
        else:
            timing, text = schedules.split_timing(flags.text)
        if not text.strip():
            raise UsageError("schedule")
        if parse_flags(text, valued=_ADD_FLAGS, bare=_BARE_FLAGS).options:
            raise UserError("schedule_options")
        body = TaskBody(instruction=text.strip())
    new = await _new_job(
        request,
        timing,
        body,
        title=options.get("title", ""),
        folder=options.get("d", options.get("dir", "")),
    )
    if persona := options.get("persona", ""):
        new = replace(new, persona=await persona_for_task(request, persona))
    return await _propose(
        request,
        replace(
            new,
            zone=options.get("zone", new.zone),
            missed=_missed_policy(options.get("missed", "")),
            retries=_retries(options.get("retries", "0")),
            cap=_cap(options.get("cap", "")),
            respects_quiet_hours="quiet" in options,
            use_memory="fresh" not in options,
        ),
    )


async def _workflow_body(request: Request, name: str, text: str) -> WorkflowBody:
    """A schedule's workflow with the inputs in `text`. Invalid inputs are reported now rather than
    when it fires."""
    workflow = await request.services.workflows.find(name)
    free, texts = split_named_values(text)
    inputs = parse_inputs(workflow.inputs, texts, free)
    if not inputs.is_complete:
        wrong = [each.input for each in inputs.invalid] + list(inputs.missing)
        names = [each.name for each in wrong] + list(inputs.unknown)
        raise UserError("schedule_inputs", name=workflow.name, names=", ".join(names)[:200])
    await request.services.workflows.prepare_run(workflow.name, inputs.values)
    return WorkflowBody(name=workflow.name, inputs=inputs.values)


def _missed_policy(word: str) -> MissedPolicy:
    try:
        return MissedPolicy(word.casefold() or MissedPolicy.ONCE)
    except ValueError as error:
        raise UserError("schedule_missed", word=formats.single_line(word, 40)) from error


def _retries(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) > _MAX_RETRIES:
        raise UserError("schedule_retries", word=formats.single_line(word, 40), n=_MAX_RETRIES)
    return int(word)


def _cap(text: str) -> str:
    try:
        parse_cap(text)
    except ValueError as error:
        raise UserError("schedule_cap", word=formats.single_line(text, 40)) from error
    return text


async def _list(request: Request, _rest: str) -> Reply:
    views = await request.services.schedules.list(by=request.person, chat=request.chat.id)
    rows = [(each.schedule, each.upcoming, each.last) for each in views]
    data = {"schedules": [schedule_data(*row) for row in rows]}
    return Reply(card=schedules_card(rows, request.words), data=data)


async def _show(request: Request, rest: str) -> Reply:
    view = await _find(request, rest)
    return _changed_reply(request, view, "")


async def _show_log(request: Request, rest: str) -> Reply:
    view = await _find(request, rest)
    firings = await request.services.schedules.log(view.schedule, _LOGGED)
    data = {"id": view.schedule.id, "firings": [firing_data(each) for each, _ in firings]}
    return Reply(card=schedule_log_card(view.schedule, firings, request.words), data=data)


async def _find(request: Request, prefix: str) -> ScheduleView:
    if not prefix.strip():
        raise UsageError("schedule")
    return await request.services.schedules.find(
        prefix.strip(), by=request.person, chat=request.chat.id
    )


async def change_schedule(
    request: Request, change: str, prefix: str, *, due_at: datetime | None = None
) -> ScheduleView:
    """`change` is confirm, pause, resume, run, skip or delete. `due_at` is the firing to skip,
    where it was shown."""
    schedules, by, chat = request.services.schedules, request.person, request.chat.id
    which = (await _find(request, prefix)).schedule.id
    at = request.heard_at or request.now
    if change == "run":
        return await schedules.run_now(which, by=by, chat=chat, at=at)
    if change == "skip":
        return await schedules.skip_next(which, by=by, chat=chat, at=at, due_at=due_at)
    changes = {
        "confirm": schedules.confirm,
        "pause": schedules.pause,
        "resume": schedules.resume,
        "delete": schedules.delete,
    }
    return await changes[change](which, by=by, chat=chat)


def _changing(change: str) -> Callable[[Request, str], Awaitable[Reply]]:
    async def handle(request: Request, rest: str) -> Reply:
        view = await change_schedule(request, change, rest)
        is_confirmation = change == "confirm"
        news = _confirmation(view) if is_confirmation else f"schedule.changed_{change}"
        return _changed_reply(request, view, news)

    return handle


def _confirmation(view: ScheduleView) -> str:
    """The reply to a confirmation, which may be repeated or come too late for the due time."""
    return "schedule.confirmed" if view.schedule.state is ScheduleState.ACTIVE else ""


def _changed_reply(request: Request, view: ScheduleView, news: str) -> Reply:
    data = schedule_data(view.schedule, view.upcoming, view.last)
    return Reply(card=_card(request, view, news), data=data)


def _card(request: Request, view: ScheduleView, news: str) -> Card:
    text = request.words(news) if news else ""
    last = view.last
    if news == "schedule.changed_run" and last is not None and last.state in _NOT_STARTED:
        why = request.words.get_or_literal(last.note)
        text = request.words("schedule.not_started", why=formats.single_line(why, _MAX_TITLE))
    return schedule_card(view.schedule, view.upcoming, request.words, news=text)


_SUBCOMMANDS: dict[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list,
    "ls": _list,
    "列表": _list,
    "add": _add,
    "new": _add,
    "添加": _add,
    "show": _show,
    "查看": _show,
    "log": _show_log,
    "日志": _show_log,
    "confirm": _changing("confirm"),
    "确认": _changing("confirm"),
    "pause": _changing("pause"),
    "暂停": _changing("pause"),
    "resume": _changing("resume"),
    "恢复": _changing("resume"),
    "run": _changing("run"),
    "运行": _changing("run"),
    "skip": _changing("skip"),
    "跳过": _changing("skip"),
    "delete": _changing("delete"),
    "remove": _changing("delete"),
    "删除": _changing("delete"),
}
