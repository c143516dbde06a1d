"""What a pressed button, a picked option or a sent form does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from cards import formats
from cards.actions import (
    Action,
    Answer,
    AskAboutPerson,
    AskAgain,
    AskMessage,
    Decide,
    EnableSkill,
    JustTalk,
    LetIn,
    ListTasks,
    MovePerson,
    NewTask,
    PauseTask,
    PickModel,
    PickPersona,
    ResumeTask,
    RetryTask,
    SaveSkill,
    SendMessage,
    SetPriority,
    ShowLogs,
    ShowSkill,
    ShowTask,
    StartTask,
    StopTask,
    UseSkill,
)
from cards.card_json import BadCard, load_action
from cards.memory_actions import (
    CleanMemory,
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    MemoriesHelped,
    PinMemory,
    ShowMemory,
)
from cards.model import FieldKind, Form, FormField, Select
from cards.workflow_actions import (
    AskWorkflowName,
    DeleteWorkflow,
    FillWorkflow,
    KeepWorkflow,
    RunWorkflow,
    ShowWorkflow,
)
from handlers import approvals, chat
from handlers.access import members
from handlers.errors import UserError
from handlers.memory import commands as memory
from handlers.middleware import TOAST
from handlers.parsing import priority_of
from handlers.ports import Refusal
from handlers.request import Reply, Request
from handlers.work import create, steering, tasks
from handlers.workers import personas, skills
from handlers.workflows import commands as workflows
from storage.records.messages import ActionRow, InboxId
from storage.records.tasks import Priority

_PICKED = re.compile(r"#(\d{1,3})")
_LABELLED = re.compile(r"\s*([^:：]{1,60})[:：](.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """One press. `value` may be `#n` for the n-th option of a select."""

    token: str
    inbox_id: InboxId
    value: str = ""
    form: Mapping[str, str] = field(default_factory=dict)


async def press(request: Request, pressed: Press) -> Reply:
    """Act on it if this person may, and only once; else say politely why not."""
    row = await request.services.buttons.look(pressed.token)
    if row is None:
        return await _refused(request, Refusal.UNKNOWN, None)
    try:
        action = load_action(row.action)
        value = await _value(request, row, pressed.value)
    except (BadCard, LookupError):
        # From another version, or from a card that has changed since.
        return await _refused(request, Refusal.RETIRED, row)
    if not request.person.role.allows(action.needs):
        return await _refused(request, Refusal.NOT_ALLOWED, row)
    if isinstance(action, Decide):
        await approvals.check(request, action.approval_id, action.scope)
    if isinstance(action, Answer):
        await approvals.check(request, action.question_id)
    if _is_empty(action, pressed.form):
        return Reply(toast=request.words("press.nothing_to_do"), good=False)
    refusal = await request.services.buttons.claim(
        pressed.token,
        person=request.person.id,
        chat=request.chat.id,
        inbox_id=pressed.inbox_id,
        now=request.now,
    )
    if refusal is not None:
        return await _refused(request, refusal, row)
    return await _act(request, action, row.card_key, value, pressed.form)


def form_values(form: Form, text: str) -> dict[str, str]:
    """A typed answer to a form: lines `label: value` where labels are named, the rest is the
    first text field's; a leading `-p` is the priority's."""
    fields = {name.casefold(): each for each in form.fields for name in (each.name, each.label)}
    word, text = priority_of(text.strip())
    values: dict[str, str] = {"priority": word} if word and "priority" in fields else {}
    rest: list[str] = []
    for row in text.splitlines():
        found = _LABELLED.fullmatch(row)
        named = fields.get(found[1].strip().casefold()) if found else None
        if found is None or named is None or named.name in values:
            rest.append(row)
        else:
            values[named.name] = _option_value(named, found[2].strip())
    free = [each.name for each in form.fields if each.field is not FieldKind.CHOICE]
    unfilled = [name for name in free if name not in values]
    if unfilled and rest:
        values[unfilled[0]] = "\n".join(rest).strip()
    return values


async def answer_form(request: Request, form: Form, inbox_id: InboxId) -> Reply:
    """Somebody replied to a card with a form."""
    values = form_values(form, request.args)
    missing = [each.label for each in form.fields if each.required and not values.get(each.name)]
    if missing:
        raise UserError("form_incomplete", fields=" · ".join(missing))
    reply = await press(request, Press(token=form.token, inbox_id=inbox_id, form=values))
    if reply.card is None and reply.toast:
        return Reply(card=chat.said_card(reply.toast), good=reply.good)
    return reply


async def _act(  # noqa: C901, PLR0911, PLR0912 - one line for each action of the closed union
    request: Request, action: Action, card_key: str, value: str, form: Mapping[str, str]
) -> Reply:
    match action:
        case StartTask():
            return await create.start_proposed(request, action, value, card_key)
        case JustTalk():
            async with approvals.asking_for_money(request):
                return await chat.just_talk(request, action, card_key)
        case NewTask():
            priority = form.get("priority", "")
            return await create.submit_form(request, form["text"].strip(), priority, card_key)
        case ShowTask(task_id=task_id):
            return await tasks.show_task(request, task_id)
        case ShowLogs(task_id=task_id):
            return await tasks.show_logs(request, task_id)
        case PauseTask() | ResumeTask() | StopTask() | RetryTask() | SetPriority() | LetIn():
            return _toast(await _ordered(request, action, value))
        case AskMessage(task_id=task_id):
            return Reply(card=await steering.show_message_form(request, task_id))
        case SendMessage(task_id=task_id):
            text, meant_as = form["text"].strip(), form.get("as", "")
            return _toast(await steering.message_sent(request, task_id, text, meant_as, card_key))
        case AskAgain(approval_id=approval_id):
            return await approvals.ask_again(request, approval_id)
        case ListTasks(page=page, status=status):
            card = await tasks.list_page(request, status, page)
            return Reply(card=card, key=card_key, in_place=True)
        case Decide(approval_id=approval_id, approve=approve, scope=scope):
            return await approvals.by_button(
                request, approval_id, approve=approve, card_key=card_key, scope=scope
            )
        case PickModel():
            card = await chat.pick_model(request, value)
            return Reply(card=card, key=card_key, in_place=True)
        case PickPersona(name=name):
            card = await personas.pick_persona(request, value or name)
            return Reply(card=card, key=card_key, in_place=True)
        case Answer(question_id=question_id):
            answer = action.value or form.get("text", "") or value
            return await approvals.by_button(
                request, question_id, approve=True, card_key=card_key, answer=answer
            )
        case ShowSkill() | EnableSkill() | UseSkill() | SaveSkill():
            async with approvals.asking_for_money(request):
                return await skills.pressed(request, action, card_key)
        case ShowWorkflow() | RunWorkflow() | FillWorkflow():
            return await workflows.pressed(request, action, card_key, form)
        case AskWorkflowName() | KeepWorkflow() | DeleteWorkflow():
            return await workflows.pressed(request, action, card_key, form)
        case AskAboutPerson():
            return await members.ask(request, action)
        case MovePerson():
            return await members.move(request, action, card_key)
        case ListMemories() | ShowMemory() | ForgetMemory() | PinMemory() | DecideMemory():
            return await memory.pressed(request, action, card_key, value, form)
        case EditMemory() | MemoriesHelped() | CleanMemory():
            return await memory.pressed(request, action, card_key, value, form)
        case _:
            assert_never(action)


async def _ordered(
    request: Request,
    action: PauseTask | ResumeTask | StopTask | RetryTask | SetPriority | LetIn,
    value: str,
) -> str:
    match action:
        case PauseTask(task_id=task_id):
            return await tasks.pause_task(request, task_id)
        case ResumeTask(task_id=task_id):
            return await tasks.resume_task(request, task_id)
        case StopTask(task_id=task_id):
            return await tasks.stop_task(request, task_id)
        case RetryTask(task_id=task_id):
            return await tasks.retry_task(request, task_id)
        case SetPriority(task_id=task_id, priority=priority):
            wanted = Priority.named(value) or priority
            return await tasks.prioritise_task(request, task_id, wanted)
        case LetIn(task_id=task_id):
            return await steering.let_in_task(request, task_id)
        case _:
            assert_never(action)


async def _refused(request: Request, refusal: Refusal, row: ActionRow | None) -> Reply:
    words = request.words
    if refusal is Refusal.RETIRED and row is not None and (asked := _request_of(row)):
        return await approvals.too_late(request, asked)
    if refusal is Refusal.USED and row is not None:
        # Read again: it may have been used up between our look and our claim.
        used = await request.services.buttons.look(row.token) or row
        text = await _used_text(request, used)
    else:
        text = words(f"press.{refusal}")
    return Reply(toast=formats.line(text, TOAST), good=False)


def _request_of(row: ActionRow) -> str:
    """The request for a decision that this button belongs to."""
    match row.action:
        case {"kind": "decide", "approval_id": str(asked)}:
            return asked
        case {"kind": "answer", "question_id": str(asked)}:
            return asked
        case _:
            return ""


def _is_empty(action: Action, form: Mapping[str, str]) -> bool:
    """Whether a form was sent with nothing in it."""
    asks = isinstance(action, NewTask | SendMessage) or (
        isinstance(action, Answer) and not action.value and "text" in form
    )
    return asks and not form.get("text", "").strip()


async def _used_text(request: Request, row: ActionRow) -> str:
    if row.used_by is None or row.used_at is None:
        return request.words("press.used")
    at = formats.moment(row.used_at, request.zone)
    if row.used_by == request.person.id:
        return request.words("press.used_by_you", at=at)
    name = (await request.services.people.get(row.used_by)).name
    return request.words("press.used_by", name=name, at=at)


async def _value(request: Request, row: ActionRow, value: str) -> str:
    """The picked option's value; LookupError where the card does not have it any more."""
    picked = _PICKED.fullmatch(value)
    if picked is None:
        return value
    card = await request.services.cards.card(row.card_key)
    for block in card.blocks if card else ():
        if isinstance(block, Select) and block.token == row.token:
            return block.options[int(picked[1])].value
    raise LookupError(row.token)


def _option_value(named: FormField, text: str) -> str:
    wanted = text.casefold()
    for option in named.options:
        if wanted in {option.value.casefold(), option.label.casefold()}:
            return option.value
    return text


def _toast(text: str) -> Reply:
    return Reply(toast=text)
