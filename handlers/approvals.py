"""Handles approval decisions by button, command, form or reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import SubmitApprovalForm
from cards.catalog import TextCatalog
from cards.json_data import approval_data, approvals_data
from cards.model import Card, CardTone, FormBlock, notice_card
from cards.views.approvals import (
    approval_card,
    decided_text,
    form_of,
    form_summary,
    question_options,
    waiting_approvals_card,
)
from cards.views.people import paired_card, pairing_refused_card
from cards.views.workflows import input_field
from handlers.account_link_notices import link_notifier
from handlers.approval_cards import ApprovalCards, card_key_prefix
from handlers.errors import ActionForbidden, BackendFailure, UserError
from handlers.middleware import MAX_TOAST
from handlers.parsing import ApprovalReply, parse_form_reply
from handlers.ports import HandlerServices
from handlers.request import CommandRegistry, Reply, Request
from handlers.workflow_inputs import parse_inputs, split_named_values
from handlers.workflows import input_problems
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
)
from storage.records.messages import DeliveryUrgency
from storage.records.people import Language, PersonRole
from storage.records.workflows import WorkflowInputValue

commands = CommandRegistry("approvals")

_NOT_DECIDED_BY_MESSAGE = frozenset(
    {
        *(ApprovalKind.PAIRING, ApprovalKind.MEMORY, ApprovalKind.PROMPT, ApprovalKind.MCP),
        ApprovalKind.LINK,
        ApprovalKind.PAGE,
    }
)


@commands("approve", aliases=("通过", "批准"), immediate=True)
async def approve(request: Request) -> Reply:
    target, rest = [*request.args.split(maxsplit=1), "", ""][:2]
    if target:
        approval = await request.services.approvals.find(target)
    else:
        approval = await _only_waiting(request)
    if approval.kind is ApprovalKind.QUESTION:
        answer = resolve_answer(approval, rest) or request.words("approval.yes_word")
        return await _settled_reply(request, approval, approve=True, reason=answer)
    if form_of(approval):
        await _check_belongs_here(request, approval)
        free, texts = split_named_values(rest)
        values = parse_form(request, approval, texts, free)
        return await _settled_reply(request, approval, approve=True, values=values)
    return await _settled_reply(request, approval, approve=True, scope=parse_scope(approval, rest))


@commands("reject", aliases=("拒绝", "否决"), immediate=True)
async def reject(request: Request) -> Reply:
    first, *rest = request.args.split(maxsplit=1) or [""]
    if target := await _find_named(request, first):
        return await _settled_reply(request, target, approve=False, reason=" ".join(rest))
    target = await _only_waiting(request)
    return await _settled_reply(request, target, approve=False, reason=request.args)


@commands("approvals", aliases=("审批", "待审批"), immediate=True)
async def list_approvals(request: Request) -> Reply:
    waiting = await _visible_waiting(request)
    return Reply(card=_waiting_card(request, waiting), data=approvals_data(waiting))


async def decide_by_message(request: Request, verdict: ApprovalReply) -> Reply | None:
    """Decide by a message that is an approval word as a whole. None if nothing here waits for one.

    Pairing requires a button or a command: a stranger must not benefit from an `ok` meant for
    something else.
    """
    requests = await _waiting_here(request)
    matches = [each for each in requests if each.id.startswith(verdict.target.casefold())]
    if not matches:
        return None
    if len(matches) > 1:
        copies = _request_cards(request)
        redactions = [
            await copies.redact_for_chat(each, request.chat.id, request.words) for each in matches
        ]
        return Reply(card=waiting_approvals_card(redactions, request.words, zone=request.zone))
    if matches[0].kind is ApprovalKind.QUESTION:
        # "ok" and "no" are literal answers to a question.
        return await _settled_reply(request, matches[0], approve=True, reason=request.args)
    return await _settled_reply(request, matches[0], approve=verdict.approve, reason=verdict.reason)


async def answer_by_message(request: Request) -> Reply | None:
    """Take a message as the answer to the question that is open here for its sender. None if there
    is none: others, and owners elsewhere, answer by button or by name.

    Of several questions one must be named, unless the message is more than a number.
    """
    questions = [
        each
        for each in await _waiting_here(request)
        if each.kind is ApprovalKind.QUESTION
        and each.chat_id == request.chat.id
        and each.approvers[:1] in {(), (request.person.id,)}
    ]
    if len(questions) == 1:
        answer = resolve_answer(questions[0], request.args)
        return await _settled_reply(request, questions[0], approve=True, reason=answer)
    if questions and request.args.strip().rstrip(".)）。").isdecimal():
        return Reply(card=_waiting_card(request, questions))
    return None


async def check_may_decide(request: Request, approval_id: str, scope: str = "") -> None:
    """Raises ActionForbidden if others must decide: the press must not use up their button."""
    approval = await request.services.approvals.find(approval_id)
    waits = approval.state is ApprovalState.WAITING
    beyond = scope == ALWAYS_SCOPE and not request.by_owner
    if waits and (beyond or not approval.can_be_decided_by(request.person)):
        raise ActionForbidden


async def decide_by_button(
    request: Request,
    approval_id: str,
    *,
    approve: bool,
    card_key: str,
    scope: str = "",
    answer: str = "",
) -> Reply:
    """Handle a button on a request's card or on a list of requests."""
    approval = await request.services.approvals.find(approval_id)
    answer = resolve_answer(approval, answer)
    try:
        outcome = await settle_approval(
            request, approval, approve=approve, reason=answer, scope=scope
        )
    except WrongState:
        return await already_settled_reply(request, approval.id)
    toast = decided_text(outcome, request.words)
    if card_key.startswith(card_key_prefix(approval)):
        return Reply(toast=toast)
    card = _waiting_card(request, await _visible_waiting(request))
    return Reply(card=card, key=card_key, in_place=True, toast=toast)


async def submit_form(request: Request, approval_id: str, form: Mapping[str, str]) -> Reply:
    """Handle the form on a request's card: it stays until all values are valid, and the first one
    counts."""
    await check_may_decide(request, approval_id)
    approval = await request.services.approvals.find(approval_id)
    fields = form_of(approval)
    if approval.state is not ApprovalState.WAITING or not fields:
        return await already_settled_reply(request, approval.id)
    known = {each.name for each in fields}
    texts = {name: text for name, text in form.items() if name in known and text.strip()}
    values = parse_form(request, approval, texts)
    try:
        outcome = await settle_approval(request, approval, approve=True, values=values)
    except WrongState:
        return await already_settled_reply(request, approval.id)
    return Reply(toast=decided_text(outcome, request.words))


async def already_settled_reply(request: Request, approval_id: str) -> Reply:
    """Reply that the request was already decided or expired, and update its card."""
    approval = await request.services.approvals.find(approval_id)
    words = request.words
    text = decided_text(approval, words)
    if approval.decided_by is not None and approval.decided_at is not None:
        name = await _request_cards(request).decider_name(approval)
        at = formats.date_time(approval.decided_at, request.zone)
        text = words("approval.settled_by", name=name, state=text, at=at)
    return Reply(toast=formats.single_line(text, MAX_TOAST), good=False)


async def request_again(request: Request, approval_id: str) -> Reply:
    """Resume the tasks waiting for an expired request; they request approval again."""
    approval = await request.services.approvals.find(approval_id)
    if approval.kind is ApprovalKind.PAIRING:
        return Reply(toast=request.words("approval.expired_pairing"), good=False)
    if approval.state is not ApprovalState.EXPIRED:
        return await already_settled_reply(request, approval.id)
    task_ids = approval.payload.get("tasks") or ([approval.task_id] if approval.task_id else [])
    if not task_ids:
        raise NotFound("approval", approval_id)
    for task_id in task_ids:
        await _resume_task(request, str(task_id), alone=len(task_ids) == 1)
    return Reply(toast=request.words("moved.resumed"))


async def settle_approval(
    request: Request,
    approval: Approval,
    *,
    approve: bool,
    reason: str = "",
    scope: str = "",
    values: Mapping[str, WorkflowInputValue] | None = None,
) -> Approval:
    """Record the decision, update every copy of the card, and notify those concerned. A request
    with a form is approved with its `values` only."""
    if approve and (form := form_of(approval)):
        values = parse_form(request, approval, {}) if values is None else values
        reason = form_summary(form, values)
    copies, fallback = _request_cards(request), request.words.language
    try:
        outcome = await request.services.approvals.decide(
            approval, approve=approve, **request.author, reason=reason, scope=scope, values=values
        )
    except WrongState:
        current = await request.services.approvals.find(approval.id)
        await copies.update_all(current, fallback=fallback)
        raise
    await copies.update_all(outcome, fallback=fallback)
    if outcome.kind is ApprovalKind.PAIRING:
        await _notify_stranger(request, outcome)
    if outcome.kind is ApprovalKind.LINK:
        await link_notifier(request.services).notify()
    return outcome


@asynccontextmanager
async def requesting_budget(request: Request) -> AsyncGenerator[None, None]:
    """If a spending cap stops the enclosed work, show its request here and to the approvers."""
    try:
        yield
    except BackendFailure as error:
        if isinstance(approval := error.facts.get("approval"), Approval):
            fallback = request.words.language
            await _request_cards(request).request_decision(
                approval, request.chat.id, fallback=fallback
            )
        raise


async def show_request(request: Request, approval: Approval) -> None:
    """Show a request in its chat. Idempotent."""
    fallback = request.words.language
    await _request_cards(request).request_decision(approval, approval.chat_id, fallback=fallback)


async def ask_owners(
    services: HandlerServices, approval: Approval, *, zone: ZoneInfo, fallback: Language
) -> bool:
    """Ask every owner in private; False if none of them is known to read it, because none has
    written yet. Idempotent."""
    owners = await services.people.private_chats(PersonRole.OWNER)
    await _approval_cards(services, zone).post_to_chats(approval, owners, fallback=fallback)
    return any(not chat.is_unopened for chat in owners)


async def notify_owners_of_more(
    services: HandlerServices, *, hour: str, zone: ZoneInfo, fallback: Language
) -> bool:
    """Tell every owner in private, once an hour, that there are more pairing requests than shown;
    False as in `ask_owners`."""
    owners = await services.people.private_chats(PersonRole.OWNER)
    for chat in owners:
        words = await _approval_cards(services, zone).catalog_for_chat(chat.id, fallback)
        await services.courier.send(
            chat.id,
            notice_card("", words("pairing.many"), tone=CardTone.WARN),
            key=f"strangers:{hour}:{chat.id}",
            urgency=DeliveryUrgency.APPROVAL,
        )
    return any(not chat.is_unopened for chat in owners)


async def _settled_reply(
    request: Request,
    approval: Approval,
    *,
    approve: bool,
    reason: str = "",
    scope: str = "",
    values: Mapping[str, WorkflowInputValue] | None = None,
) -> Reply:
    await _check_belongs_here(request, approval)
    outcome = await settle_approval(
        request, approval, approve=approve, reason=reason, scope=scope, values=values
    )
    copies = _request_cards(request)
    decider = await copies.decider_name(outcome)
    redaction = await copies.redact_for_chat(outcome, request.chat.id, request.words)
    card = approval_card(redaction, request.words, zone=request.zone, decider=decider)
    return Reply(card=card, data=approval_data(redaction))


async def _check_belongs_here(request: Request, approval: Approval) -> None:
    """In a group others read along, so requests from elsewhere are neither shown nor decided
    there."""
    if request.in_private:
        return
    origin = await request.services.people.get_chat(approval.chat_id)
    address = (request.chat.channel, request.chat.external_id)
    if (origin.channel, origin.external_id) == address:
        return
    if not await _request_cards(request).is_shown_in(approval, request.chat.id):
        raise NotFound("approval", approval.id)


async def _resume_task(request: Request, task_id: str, *, alone: bool) -> None:
    """Resume a waiting task. Unless it is `alone`, tasks that the person may not see or that have
    moved on are skipped."""
    tasks = request.services.tasks
    try:
        task = await tasks.find(task_id, by=request.person, chat=request.chat.id)
        await tasks.resume(task, by=request.person, source=f"{request.source}:{task_id}")
    except (NotFound, WrongState):
        if alone:
            raise


async def _find_named(request: Request, word: str) -> Approval | None:
    """The request named by a rejection's first word: a prefix of a waiting id or a complete settled
    one. Any other word belongs to the reason."""
    waiting = await request.services.approvals.list_waiting(by=request.person, chat=None)
    matches = [each for each in waiting if word and each.id.startswith(word.casefold())]
    if len(matches) == 1:
        return matches[0]
    try:
        approval = await request.services.approvals.find(word)
    except (NotFound, AmbiguousId):
        return None
    return approval if approval.id == word.casefold() else None


async def _only_waiting(request: Request) -> Approval:
    requests = await _waiting_here(request)
    if len(requests) == 1:
        return requests[0]
    all_requests = await request.services.approvals.list_waiting(by=request.person, chat=None)
    raise UserError("which_approval" if requests or all_requests else "no_approval")


async def _waiting_here(request: Request) -> Sequence[Approval]:
    """Requests this person may decide that came from this chat or have a copy here, and that were
    there when the message came. Pairing requests and side requests are excluded: "ok" is never
    meant for these."""
    waiting = await request.services.approvals.list_waiting(by=request.person, chat=None)
    copies = _request_cards(request)
    return [
        each
        for each in waiting
        if each.kind not in _NOT_DECIDED_BY_MESSAGE
        and (request.heard_at is None or each.created_at <= request.heard_at)
        and (each.chat_id == request.chat.id or await copies.is_shown_in(each, request.chat.id))
    ]


def _waiting_card(request: Request, waiting: Sequence[Approval]) -> Card:
    return waiting_approvals_card(
        waiting, request.words, zone=request.zone, others_hidden=not request.in_private
    )


async def _visible_waiting(request: Request) -> Sequence[Approval]:
    # Others read along in a group, so requests from elsewhere are not their business.
    chat = None if request.in_private else request.chat.id
    return await request.services.approvals.list_waiting(by=request.person, chat=chat)


async def _notify_stranger(request: Request, approval: Approval) -> None:
    words = await _request_cards(request).catalog_for_chat(approval.chat_id, request.words.language)
    has_access = approval.state is ApprovalState.APPROVED
    await request.services.courier.send(
        approval.chat_id,
        paired_card(words) if has_access else pairing_refused_card(words),
        key=f"paired:{approval.id}",
        urgency=DeliveryUrgency.ANSWER,
    )
    chat = await request.services.people.get_chat(approval.chat_id)
    if has_access and chat.settings.language:
        # The chat's language replaced the person's, which their messages show from now on.
        await request.services.people.update_chat_settings(chat, language=None)


def _request_cards(request: Request) -> ApprovalCards:
    return _approval_cards(request.services, request.zone)


def _approval_cards(services: HandlerServices, zone: ZoneInfo) -> ApprovalCards:
    return ApprovalCards(
        people=services.people, cards=services.cards, courier=services.courier, zone=zone
    )


ALWAYS_SCOPE = "always"
_SCOPES = {
    "task": ("task", "任务", "本任务"),
    "chat": ("chat", "会话", "本会话"),
    ALWAYS_SCOPE: (ALWAYS_SCOPE, "始终", "总是"),
}


def parse_scope(approval: Approval, word: str) -> str:
    """How far an approval of a tool call reaches. Raises for an unknown word, which must not count
    as an approval."""
    if not word:
        return ""
    scope = next((each for each, words in _SCOPES.items() if word.casefold() in words), "")
    if approval.kind is not ApprovalKind.TOOL or not scope:
        raise UserError("approve_how", word=word[:60])
    return scope


def resolve_answer(approval: Approval, text: str) -> str:
    """An option by its number, or the text itself."""
    options = question_options(approval)
    number = text.strip().rstrip(".)）。")
    if number.isdecimal() and 0 < int(number) <= len(options):
        return options[int(number) - 1]
    return text.strip()


def is_meant_for_form(approval: Approval, text: str, words: TextCatalog) -> bool:
    """Whether a reply to the request's card names a field of its form, or gives all it needs."""
    if not (fields := form_of(approval)):
        return False
    action = SubmitApprovalForm(approval_id=approval.id)
    block = FormBlock(
        fields=tuple(input_field(each, words) for each in fields), submit="", action=action
    )
    given = parse_form_reply(block, text)
    names_one = any(value != text.strip() for value in given.values())
    return names_one or all(each.name in given for each in fields if each.must_be_given)


def parse_form(
    request: Request, approval: Approval, texts: Mapping[str, str], free: str = ""
) -> Mapping[str, WorkflowInputValue]:
    """The values of the request's form, from texts by name and, for the first text field, one
    without. Raises UserError with all that is wrong."""
    fields = form_of(approval)
    parsed = parse_inputs(fields, texts, free)
    if parsed.is_complete:
        return parsed.values
    missing = ", ".join(each.label for each in parsed.missing)
    lacking = (request.words("approval.form_missing", names=missing),) if missing else ()
    problems = " · ".join((*input_problems(request, fields, parsed), *lacking))
    names = " ".join(f"{each.name}=…" for each in fields if each.must_be_given)
    line = f"/approve {approval.id} {names}".strip()
    raise UserError("form_refused", problems=problems, line=line)
