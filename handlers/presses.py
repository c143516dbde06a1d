"""Handles presses of buttons, choices of options and submitted forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from cards import actions, formats
from cards.card_json import CardDecodeError, load_action
from cards.memory_actions import MemoryAction
from cards.model import FormBlock, FormField, FormFieldKind, SelectBlock
from handlers import (
    approvals,
    chat,
    memory,
    message_queue,
    people,
    personas,
    reports,
    schedules,
    self_check,
    skills,
    tasks,
    workflows,
)
from handlers.errors import UserError
from handlers.middleware import MAX_TOAST
from handlers.parsing import find_task, split_priority_flag
from handlers.ports import PressRefusal
from handlers.request import Reply, Request
from storage.records.messages import CardActionRow, InboxId
from storage.records.tasks import TaskPriority

_OPTION_INDEX = re.compile(r"#(\d{1,3})")
_LABELLED_LINE = re.compile(r"\s*([^:：]{1,60})[:：](.*)")


async def handle_press(
    request: Request, token: str, inbox_id: InboxId, form: Mapping[str, str], *, value: str = ""
) -> Reply:
    """Act on a press once, if the person may; otherwise reply with the reason. `value` may be `#n`
    for the n-th option of a select."""
    row = await request.services.buttons.get_action(token)
    if row is None:
        return await _refusal_toast(request, PressRefusal.UNKNOWN, None)
    try:
        action = load_action(row.action)
        value = await _picked_value(request, row, value)
    except (CardDecodeError, LookupError):
        # From another version, or from a card that has changed since.
        return await _refusal_toast(request, PressRefusal.RETIRED, row)
    if not request.person.role.allows(action.required_role):
        return await _refusal_toast(request, PressRefusal.NOT_ALLOWED, row)
    if isinstance(action, actions.DecideApproval):
        await approvals.check_may_decide(request, action.approval_id, action.scope)
    if isinstance(action, actions.AnswerQuestion):
        await approvals.check_may_decide(request, action.question_id)
    if _is_empty_form(action, form):
        return Reply(toast=request.words("press.nothing_to_do"), good=False)
    refusal = await request.services.buttons.claim_press(
        token,
        person=request.person.id,
        chat=request.chat.id,
        inbox_id=inbox_id,
        now=request.now,
    )
    if refusal is not None:
        return await _refusal_toast(request, refusal, row)
    return await _perform(request, action, row.card_key, value, form)


def parse_form_reply(form: FormBlock, text: str) -> dict[str, str]:
    """Parse a typed answer to a form: `label: value` lines, other text for the first text field,
    and a leading `-p` for the priority."""
    fields = {name.casefold(): each for each in form.fields for name in (each.name, each.label)}
    word, text = split_priority_flag(text.strip())
    values: dict[str, str] = {"priority": word} if word and "priority" in fields else {}
    rest: list[str] = []
    for row in text.splitlines():
        labelled_line = _LABELLED_LINE.fullmatch(row)
        field = fields.get(labelled_line[1].strip().casefold()) if labelled_line else None
        if labelled_line is None or field is None or field.name in values:
            rest.append(row)
        else:
            values[field.name] = _option_value(field, labelled_line[2].strip())
    free = [each.name for each in form.fields if each.field is not FormFieldKind.CHOICE]
    unfilled = [name for name in free if name not in values]
    if unfilled and rest:
        values[unfilled[0]] = "\n".join(rest).strip()
    return values


async def submit_form_reply(request: Request, form: FormBlock, inbox_id: InboxId) -> Reply:
    """Handle a reply to a card with a form."""
    values = parse_form_reply(form, request.args)
    missing = [each.label for each in form.fields if each.required and not values.get(each.name)]
    if missing:
        raise UserError("form_incomplete", fields=" · ".join(missing))
    reply = await handle_press(request, form.token, inbox_id, values)
    if reply.card is None and reply.toast:
        return Reply(card=chat.text_card(reply.toast), good=reply.good)
    return reply


async def _perform(  # noqa: C901, PLR0911, PLR0912 - one line for each action of the closed union
    request: Request, action: actions.Action, card_key: str, value: str, form: Mapping[str, str]
) -> Reply:
    if isinstance(action, actions.TaskAction):
        return Reply(toast=await _move_task(request, action, value))
    if isinstance(action, actions.SkillAction):
        async with approvals.requesting_budget(request):
            return await skills.handle_skill_press(request, action, card_key)
    if isinstance(action, actions.WorkflowAction):
        return await workflows.handle_workflow_press(request, action, card_key, form)
    if isinstance(action, MemoryAction):
        return await memory.handle_memory_press(request, action, card_key, value, form)
    if isinstance(action, actions.ScheduleAction):
        return await schedules.handle_schedule_press(request, action, card_key)
    match action:
        case actions.StartTask():
            return await tasks.start_proposed_task(request, action, value, card_key)
        case actions.AnswerWithoutTask():
            async with approvals.requesting_budget(request):
                return await chat.decline_proposal(request, action, card_key)
        case actions.SubmitTaskForm():
            return await _submit_task_form(request, form, card_key)
        case actions.ShowTask(task_id=task_id):
            return await tasks.show_task(request, task_id)
        case actions.ShowLogs(task_id=task_id):
            return await tasks.show_task_history(request, task_id)
        case actions.ShowMessageForm(task_id=task_id):
            return Reply(card=await tasks.show_message_form(request, task_id))
        case actions.SubmitMessageForm(task_id=task_id):
            return await _send_message_form(request, task_id, form, card_key)
        case actions.RequestApprovalAgain(approval_id=approval_id):
            return await approvals.request_again(request, approval_id)
        case actions.DecideApproval() | actions.AnswerQuestion():
            return await _decide(request, action, card_key, form.get("text", "") or value)
        case actions.ListApprovals():
            return await approvals.list_approvals(request)
        case actions.ShowReport(period=period):
            return await reports.show_report(request, period)
        case actions.StartRepairTask() | actions.ProveButtons():
            return await self_check.handle_self_press(request, action)
        case actions.ConfirmPersonChange():
            return await people.confirm_person_change(request, action)
        case actions.ApplyPersonChange():
            return await people.apply_person_change(request, action, card_key)
        case actions.OpenPage(page=page):
            return await people.send_dashboard_link(replace(request, args=page))
        case actions.EndWebSession():
            card = await people.end_web_sessions(request, action)
        case actions.DecideHeldMessages(handle=handle):
            card = await message_queue.decide_held(request, handle=handle)
        case actions.ListTasks(page=page, status=status):
            card = await tasks.task_list_page(request, status, page)
        case actions.ChooseModel():
            card = await chat.pick_model(request, value)
        case actions.ChoosePersona(name=name):
            card = await personas.choose_persona(request, value or name)
        case _:
            assert_never(action)
    return Reply(card=card, key=card_key, in_place=True)


async def _decide(
    request: Request,
    action: actions.DecideApproval | actions.AnswerQuestion,
    card_key: str,
    answer: str,
) -> Reply:
    if isinstance(action, actions.DecideApproval):
        return await approvals.decide_by_button(
            request,
            action.approval_id,
            approve=action.approve,
            card_key=card_key,
            scope=action.scope,
        )
    answer = action.value or answer
    return await approvals.decide_by_button(
        request, action.question_id, approve=True, card_key=card_key, answer=answer
    )


async def _submit_task_form(request: Request, form: Mapping[str, str], card_key: str) -> Reply:
    text, priority = form["text"].strip(), form.get("priority", "")
    return await tasks.submit_task_form(request, text, priority, card_key)


async def _send_message_form(
    request: Request, task_id: str, form: Mapping[str, str], card_key: str
) -> Reply:
    text, meant_as = form["text"].strip(), form.get("as", "")
    toast = await tasks.submit_message_form(request, task_id, text, meant_as, card_key)
    return Reply(toast=toast)


async def _move_task(request: Request, action: actions.TaskAction, value: str) -> str:
    task = await find_task(request, action.task_id)
    match action:
        case actions.PauseTask():
            return await tasks.pause_task(request, task)
        case actions.ResumeTask():
            return await tasks.resume_task(request, task)
        case actions.StopTask():
            return await tasks.stop_task(request, task)
        case actions.RetryTask(also=also):
            return await tasks.retry_task(request, task, also)
        case actions.SetPriority(priority=priority):
            target = TaskPriority.parse(value) or priority
            return await tasks.set_task_priority(request, task, target)
        case actions.StartTaskAnyway():
            return await tasks.start_task_anyway(request, task)
        case _:
            assert_never(action)


async def _refusal_toast(
    request: Request, refusal: PressRefusal, row: CardActionRow | None
) -> Reply:
    words = request.words
    if (
        refusal is PressRefusal.RETIRED
        and row is not None
        and (approval_id := _approval_id_of(row))
    ):
        return await approvals.already_settled_reply(request, approval_id)
    if refusal is PressRefusal.USED and row is not None:
        # Read again, because it may have been used since the first read.
        used = await request.services.buttons.get_action(row.token) or row
        text = await _used_text(request, used)
    else:
        text = words(f"press.{refusal}")
    return Reply(toast=formats.single_line(text, MAX_TOAST), good=False)


def _approval_id_of(row: CardActionRow) -> str:
    """The approval request this button belongs to."""
    match row.action:
        case {"kind": "decide", "approval_id": str(found_id)}:
            return found_id
        case {"kind": "answer", "question_id": str(found_id)}:
            return found_id
        case _:
            return ""


def _is_empty_form(action: actions.Action, form: Mapping[str, str]) -> bool:
    """Whether an empty form was submitted."""
    asks = isinstance(action, actions.SubmitTaskForm | actions.SubmitMessageForm) or (
        isinstance(action, actions.AnswerQuestion) and not action.value and "text" in form
    )
    return asks and not form.get("text", "").strip()


async def _used_text(request: Request, row: CardActionRow) -> str:
    if row.used_by is None or row.used_at is None:
        return request.words("press.used")
    at = formats.date_time(row.used_at, request.zone)
    if row.used_by == request.person.id:
        return request.words("press.used_by_you", at=at)
    name = (await request.services.people.get(row.used_by)).name
    return request.words("press.used_by", name=name, at=at)


async def _picked_value(request: Request, row: CardActionRow, value: str) -> str:
    """The chosen option's value; LookupError if the card no longer has it."""
    option_match = _OPTION_INDEX.fullmatch(value)
    if option_match is None:
        return value
    card = await request.services.cards.get_card(row.card_key)
    for block in card.blocks if card else ():
        if isinstance(block, SelectBlock) and block.token == row.token:
            return block.options[int(option_match[1])].value
    raise LookupError(row.token)


def _option_value(field: FormField, text: str) -> str:
    choice = text.casefold()
    for option in field.options:
        if choice in {option.value.casefold(), option.label.casefold()}:
            return option.value
    return text
