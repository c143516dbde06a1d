"""Routes stored events to handlers and returns their replies: messages, presses of buttons, choices
of options and submitted forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import assert_never
from zoneinfo import ZoneInfo

from cards import actions, formats
from cards.card_json import CardDecodeError, load_action
from cards.catalog import TextCatalog, catalog_for
from cards.courier import CardRef
from cards.formats import is_blank
from cards.memory_actions import ChooseMemory, DecideWithheldMessage, MemoryAction
from cards.model import FormBlock, SelectBlock
from handlers import (
    account_links,
    approvals,
    chat,
    mcp,
    memory,
    memory_consent,
    people,
    personas,
    reports,
    schedules,
    self_check,
    skills,
    tasks,
    triggers,
    workflows,
)
from handlers.approvals import is_meant_for_form
from handlers.chat import WaitingMessages
from handlers.command_table import COMMANDS, refuse_misspelt
from handlers.errors import UserError
from handlers.language import guess_language
from handlers.middleware import (
    MAX_TOAST,
    InboundEvent,
    NextHandler,
    chain_middlewares,
    error_boundary,
    identify_sender,
    origin_of,
)
from handlers.parsing import (
    CommandMessage,
    MessageDirectives,
    find_task,
    parse_approval_reply,
    parse_form_reply,
    parse_message,
)
from handlers.ports import Clock, HandlerServices, InterruptedMessage, PressRefusal
from handlers.request import Reply, Request, Silence
from storage.records.messages import (
    CardActionRow,
    InboxId,
    InboxRow,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
)
from storage.records.people import Channel, ChatId, ChatKind, Language, Person
from storage.records.tasks import TaskPriority

# --- presses of buttons, chosen options, submitted forms

_OPTION_INDEX = re.compile(r"#(\d{1,3})")


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
    if isinstance(action, DecideWithheldMessage):
        memory_consent.check_may_decide(request, action)
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
    await memory_consent.heed_consent_in_form(request, form, row.card_key)
    return await _perform(request, action, row.card_key, value, form)


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


async def _fill_by_reply(request: Request, reply_to: str, inbox_id: InboxId) -> Reply | None:
    """Fill in the form of the card that this message replies to. None if the card has no form, and
    never had the one that the reply is for."""
    shown = await request.services.cards.find_shown(request.chat.id, reply_to)
    if shown is None:
        return None
    key, card = shown
    form = next((block for block in card.blocks if isinstance(block, FormBlock)), None)
    if form is not None:
        return await submit_form_reply(request, form, inbox_id)
    return await _refuse_late_form(request, key)


async def _refuse_late_form(request: Request, card_key: str) -> Reply | None:
    """Tell the sender of a reply to a form that somebody else has submitted it first. None for any
    other reply."""
    kind, _, rest = card_key.partition(":")
    if kind != "approval":
        return None
    approval = await request.services.approvals.find(rest.partition(":")[0])
    if not is_meant_for_form(approval, request.args, request.words):
        return None
    late = await approvals.already_settled_reply(request, approval.id)
    return Reply(card=chat.text_card(late.toast), good=False)


_SHOWN_TASK = {actions.ShowTask: tasks.show_task, actions.ShowLogs: tasks.show_task_history}


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
        case actions.ShowTask() | actions.ShowLogs():
            show = _SHOWN_TASK[type(action)]
            return await show(request, action.task_id)
        case actions.ShowMessageForm(task_id=task_id):
            return Reply(card=await tasks.show_message_form(request, task_id))
        case actions.SubmitMessageForm(task_id=task_id):
            return await _send_message_form(request, task_id, form, card_key)
        case actions.RequestApprovalAgain(approval_id=approval_id):
            return await approvals.request_again(request, approval_id)
        case actions.DecideApproval() | actions.AnswerQuestion() | actions.SubmitApprovalForm():
            return await _decide(request, action, card_key, form, value)
        case actions.ListApprovals():
            return await approvals.list_approvals(request)
        case actions.ShowReport(period=period):
            return await reports.show_report(request, period)
        case actions.StartRepairTask() | actions.ProveButtons():
            return await self_check.handle_self_press(request, action)
        case actions.ConfirmPersonChange() | actions.ApplyPersonChange():
            return await people.handle_person_press(request, action, card_key)
        case actions.UnlinkAccount() | ChooseMemory():
            return await account_links.handle_link_press(request, action, card_key)
        case actions.StartMcpSignIn(server=server):
            return await mcp.start_sign_in(request, server)
        case actions.OpenPage(page=page):
            return await people.send_dashboard_link(replace(request, args=page))
        case actions.EndWebSession():
            card = await people.end_web_sessions(request, action)
        case actions.DecideHeldMessages(handle=handle):
            card = await chat.decide_held(request, handle=handle)
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
    action: actions.DecideApproval | actions.AnswerQuestion | actions.SubmitApprovalForm,
    card_key: str,
    form: Mapping[str, str],
    value: str,
) -> Reply:
    if isinstance(action, actions.SubmitApprovalForm):
        values = {action.name: action.value} if action.name else form
        return await approvals.submit_form(request, action.approval_id, values)
    if isinstance(action, actions.DecideApproval):
        return await approvals.decide_by_button(
            request,
            action.approval_id,
            approve=action.approve,
            card_key=card_key,
            scope=action.scope,
        )
    answer = action.value or form.get("text", "") or value
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
        case {"kind": "decide" | "fill_approval", "approval_id": str(found_id)}:
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


# --- the router

_BACKLOG_AGE = timedelta(seconds=30)
"""A message that arrives this long after it was sent was not meant to interrupt anything."""


class Router:
    """Handles the events stored by transports. `language` is the language of all cards, None for
    each person's own; `fallback` applies to people without a known one. `new_incident` creates ids
    for logged failures."""

    def __init__(
        self,
        services: HandlerServices,
        *,
        clock: Clock,
        zone: ZoneInfo,
        new_incident: Callable[[], str],
        language: Language | None = None,
        fallback: Language = Language.ENGLISH,
    ) -> None:
        self._services = services
        self._clock = clock
        self._zone = zone
        self._fixed_language = language
        self._fallback = fallback
        self._pairing_gate = people.PairingGate(services, zone=zone, fallback=language or fallback)
        self._answering_for: dict[ChatId, str] = {}
        self._waiting_messages = WaitingMessages()
        boundary = error_boundary(new_incident)
        # Twice: the outer one answers if identification fails; the inner one knows the person's
        # language.
        middlewares = (boundary, identify_sender(services.people, fallback, language), boundary)
        self._run_middlewares: NextHandler = chain_middlewares(middlewares, self._route)

    def is_immediate(self, incoming: IncomingMessage) -> bool:
        """True for commands that must not wait for the chat's turn."""
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and meaning.command.immediate

    def is_command(self, incoming: IncomingMessage) -> bool:
        """True for a command of ours that is not addressed to another bot."""
        first = incoming.text.split(maxsplit=1)[:1]
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and "@" not in "".join(first)

    def is_urgent(self, incoming: IncomingMessage) -> bool:
        """True for commands that end or pause something, which no pace slows down."""
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and meaning.command.name in {"stop", "pause"}

    def on_message_waiting(self, row: InboxRow, mode: str) -> None:
        """Interrupt the chat's current answer or queue the message, as the chat has chosen.

        Approval replies, other people's messages in a group and command-line requests do neither;
        messages that waited elsewhere for long do not interrupt.
        """
        incoming = row.incoming
        if not isinstance(incoming, IncomingMessage) or incoming.quiet:
            return
        if self.is_immediate(incoming) or parse_approval_reply(incoming.text):
            return
        is_asker = self._answering_for.get(row.chat_id) == incoming.sender.external_id
        if is_asker or incoming.place.kind is ChatKind.PRIVATE:
            waits = self._services.conversations.on_new_message(
                row.chat_id, mode, may_interrupt=self._clock() - incoming.sent_at < _BACKLOG_AGE
            )
            if waits or self._waiting_messages.count_waiting(row.chat_id):
                self._waiting_messages.add(row)

    def on_message_withdrawn(self, row: InboxRow) -> None:
        """Forget a recalled message; those behind it move up."""
        self._waiting_messages.remove(row)

    async def waiting_notice(self, row: InboxRow) -> str:
        """Tell a waiting message's position."""
        incoming = row.incoming
        if not self._waiting_messages.count_waiting(row.chat_id) or not isinstance(
            incoming, IncomingMessage
        ):
            return ""
        if not await self.is_known_sender(incoming):
            return ""
        place = self._waiting_messages.get_position(row)
        return self._guess_catalog(incoming)("queue.waits", n=place) if place else ""

    async def is_known_sender(self, incoming: IncomingMessage) -> bool:
        """True if the sender has access."""
        sender = incoming.sender.external_id
        return (
            await self._services.people.find_by_account(incoming.place.channel, sender) is not None
        )

    async def find_task(self, row: InboxRow) -> str:
        """The id of the unfinished task that this message has created; empty if there is none."""
        task = await self._services.tasks.find_by_source(origin_of(row))
        return "" if task is None or task.status.is_final else task.id

    async def handle(
        self,
        row: InboxRow,
        files: tuple[str, ...],
        interrupted: Sequence[InboxRow] = (),
        missing: Sequence[str] = (),
    ) -> Reply:
        """Handle one event. Failures become replies too."""
        incoming = row.incoming
        if incoming.sender.is_bot and not incoming.sender.anonymous:
            # Two bots that answer each other would never stop.
            return Reply(silence=Silence.BOT)
        if self._is_queued(incoming):
            self._waiting_messages.start_turn(row)
        words = self._guess_catalog(incoming)
        arrival = InboundEvent(
            row=row,
            files=files,
            now=self._clock(),
            words=words,
            interrupted=tuple(map(_interrupted_message, interrupted)),
            missing=tuple(missing),
        )
        return await self._run_middlewares(arrival)

    def _is_queued(self, incoming: Incoming) -> bool:
        if not isinstance(incoming, IncomingMessage) or incoming.quiet:
            return False
        return not self.is_immediate(incoming)

    def _guess_catalog(self, incoming: Incoming) -> TextCatalog:
        text = incoming.text if isinstance(incoming, IncomingMessage) else ""
        hint = guess_language(text) or Language.from_tag(incoming.sender.language)
        return catalog_for(self._fixed_language or hint or self._fallback)

    async def _route(self, arrival: InboundEvent) -> Reply:
        if arrival.row.incoming.sender.anonymous:
            raise UserError("anonymous")
        claimed = await people.claim_owner_code(
            self._services, arrival.row.incoming, arrival.words, arrival.now
        )
        if claimed is not None:
            return claimed
        if arrival.person is None:
            return await self._pairing_gate.answer(arrival)
        request = await self._build_request(arrival, arrival.person)
        if not arrival.is_press:
            await self._pairing_gate.catch_up(request)
        incoming = arrival.row.incoming
        match incoming:
            case IncomingChatOpen():
                return people.welcome_reply(request)
            case IncomingPress(token=token, value=value, form=form):
                await memory_consent.withhold_where_off(request)
                return await handle_press(request, token, arrival.row.id, form, value=value)
            case IncomingMessage(told=note) if note:
                # A note from Shiftboss to the chat's worker: it is answered without proposals.
                request = replace(request, args=note)
                return await self._answer_message(request, incoming.sender.external_id, settle=True)
            case IncomingMessage():
                return await self._handle_message(request, incoming, arrival)

    async def _handle_message(
        self, request: Request, incoming: IncomingMessage, arrival: InboundEvent
    ) -> Reply:
        mentions = incoming.place.channel is not Channel.WEB
        meaning = parse_message(
            incoming.text, COMMANDS, self._services.models.resolve_choice, mentions=mentions
        )
        if isinstance(meaning, CommandMessage):
            command_request = _with_directives(request, meaning.args, meaning.directives)
            await memory_consent.heed_consent_in_command(command_request, meaning.command.name)
            return await meaning.command.handler(command_request)
        message_request = _with_directives(request, meaning.text, meaning.directives)
        message_request, allowed = await memory_consent.heed_permission(message_request, incoming)
        if allowed is not None:
            return allowed
        names_topic = bool(memory.topic_to_forget(message_request.args))
        heeded = await memory_consent.heed_consent(
            message_request, incoming, names_topic=names_topic
        )
        reply = await self._handle_words(message_request, incoming, arrival.row.id, heeded.reply)
        return await memory_consent.ask_if_in_doubt(message_request, heeded, reply)

    async def _handle_words(
        self, request: Request, incoming: IncomingMessage, inbox_id: InboxId, reply: Reply | None
    ) -> Reply:
        """`reply`: all that is to be said, unless the message also decides about something."""
        async with approvals.requesting_budget(request):
            if by_name := await skills.use_by_slash(request, tasks.run_task):
                return by_name
        refuse_misspelt(request.args)
        verdict = parse_approval_reply(incoming.text)
        if verdict and reply is None:
            reply = await approvals.decide_by_message(request, verdict)
        if reply is not None:
            return reply
        if incoming.reply_to:
            filled = await _fill_by_reply(request, incoming.reply_to, inbox_id)
            if filled is not None:
                return filled
        if is_blank(request.args) and not request.files:
            return Reply(card=chat.text_card(request.words("talk.listening")))
        by_words = await _answer_by_words(request, incoming)
        return by_words or await self._answer_message(request, incoming.sender.external_id)

    async def _answer_message(
        self, request: Request, talker: str, *, settle: bool = False
    ) -> Reply:
        self._answering_for[request.chat.id] = talker
        try:
            async with approvals.requesting_budget(request):
                return await chat.answer_message(
                    request, no_proposal=settle, propose_timed=schedules.propose_timed_task
                )
        finally:
            self._answering_for.pop(request.chat.id, None)

    async def _build_request(self, arrival: InboundEvent, person: Person) -> Request:
        row = arrival.row
        message_id = row.incoming.message_id if isinstance(row.incoming, IncomingMessage) else ""
        return Request(
            person=person,
            chat=await self._services.people.get_chat(row.chat_id),
            words=arrival.words,
            args="",
            source=row.source,
            origin=origin_of(row),
            now=arrival.now,
            zone=self._zone,
            services=self._services,
            answer_ref=CardRef(key=f"reply:{row.id}", revision=0),
            files=arrival.files,
            message_id=message_id,
            interrupted=arrival.interrupted,
            missing_files=arrival.missing,
            heard_at=arrival.heard_at,
            web_session=row.incoming.sender.web_session,
            forwarded=isinstance(row.incoming, IncomingMessage) and row.incoming.forwarded,
        )


async def _answer_by_words(request: Request, incoming: IncomingMessage) -> Reply | None:
    """Handle what needs no model: answers to an open question, requests to the memory, and requests
    for a later time."""
    if not (incoming.edited or request.files):
        answered = await approvals.answer_by_message(request)
        if answered is not None:
            return answered
        if (started := await triggers.start_by_message(request)) is not None:
            return started
    return await memory.answer_memory_request(request) or await schedules.propose_by_words(request)


def _interrupted_message(row: InboxRow) -> InterruptedMessage:
    said = row.incoming
    text = said.text if isinstance(said, IncomingMessage) else ""
    return InterruptedMessage(source=row.source, text=text)


def _with_directives(request: Request, args: str, directives: MessageDirectives) -> Request:
    return replace(request, args=args, model=directives.model, backend=directives.backend)


def _no_model(name: str) -> None:
    """A stand-in for the model lookup where only the command word is needed, so that directives do
    not matter."""
