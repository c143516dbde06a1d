"""Handles approval decisions by button, command or reply, standing permissions and tool calls, and
keeps every copy of an approval card up to date."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.courier import Courier
from cards.json_data import approval_data, approvals_data
from cards.model import Card, CardTone, notice_card
from cards.views.approvals import (
    approval_card,
    decided_text,
    form_of,
    form_summary,
    mark_settled_in_list,
    waiting_approvals_card,
)
from cards.views.people import paired_card, pairing_refused_card
from cards.views.tools import calls_card, calls_data, grants_card, grants_data
from handlers.account_link_notices import link_notifier
from handlers.approval_answers import (
    ALWAYS_SCOPE,
    parse_form,
    parse_scope,
    resolve_answer,
)
from handlers.errors import ActionForbidden, BackendFailure, UsageError, UserError
from handlers.language import language_of_chat
from handlers.middleware import MAX_TOAST
from handlers.parsing import ApprovalReply, find_task, parse_number
from handlers.ports import CardPort, HandlerServices, PeoplePort
from handlers.request import CommandRegistry, Reply, Request
from handlers.workflow_inputs import split_named_values
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
    StandingPermission,
    StandingPermissionScope,
)
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatId, ChatKind, Language, PersonRole
from storage.records.workflows import WorkflowInputValue

# --- approval cards and all their copies


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCards:
    """Every call is idempotent: the same card under the same key changes nothing. `language` is the
    language of all cards, None for the reader's."""

    people: PeoplePort
    cards: CardPort
    courier: Courier
    zone: ZoneInfo
    language: Language | None = None

    async def request_decision(
        self, approval: Approval, chat: ChatId, *, fallback: Language, reply_to: str = ""
    ) -> None:
        """Show the request in this chat and, unless someone there can decide it alone, to every
        approver in private."""
        await self._send(approval, chat, card_key(approval, chat), fallback, reply_to)
        for room in await self._decider_chats(approval, await self.people.get_chat(chat)):
            await self._send(approval, room.id, card_key(approval, room.id), fallback)

    async def post_to_chats(
        self, approval: Approval, chats: Sequence[Chat], *, fallback: Language
    ) -> None:
        """Show the request in these chats only."""
        for room in chats:
            await self._send(approval, room.id, card_key(approval, room.id), fallback)

    async def update_all(self, approval: Approval, *, fallback: Language) -> None:
        """Update every copy, and lists with buttons for the request."""
        for key, chat in await self.cards.list_card_keys(card_key_prefix(approval)):
            await self._send(approval, chat, key, fallback)
        if approval.state is ApprovalState.WAITING:
            return
        for key, chat in await self.cards.list_cards_for_approval(approval.id):
            card = (
                None
                if key.startswith(card_key_prefix(approval))
                else await self.cards.get_card(key)
            )
            if card is not None:
                card_copy = mark_settled_in_list(
                    card, approval, await self.catalog_for_chat(chat, fallback)
                )
                await self.courier.send(chat, card_copy, key=key, urgency=DeliveryUrgency.NOTICE)

    async def is_shown_in(self, approval: Approval, chat: ChatId) -> bool:
        """Whether this chat has a copy."""
        return await self.cards.get_card(card_key(approval, chat)) is not None

    async def redact_for_chat(
        self, approval: Approval, chat: ChatId, words: TextCatalog
    ) -> Approval:
        """The request as this chat may see it: one cap request may serve several chats, and the
        first one's words are for that chat and the owners only."""
        if approval.kind is not ApprovalKind.BUDGET or await self._may_see_title(chat, approval):
            return approval
        return replace(approval, title=words("approval.kinds.budget"), task_id=None)

    async def catalog_for_chat(self, chat: ChatId, fallback: Language) -> TextCatalog:
        language = self.language or await language_of_chat(
            self.people, await self.people.get_chat(chat)
        )
        return catalog_for(language or fallback)

    async def decider_name(self, approval: Approval) -> str:
        if approval.decided_by is None:
            return ""
        return (await self.people.get(approval.decided_by)).name

    async def _send(
        self, approval: Approval, chat: ChatId, key: str, fallback: Language, reply_to: str = ""
    ) -> None:
        words = await self.catalog_for_chat(chat, fallback)
        card = approval_card(
            await self.redact_for_chat(approval, chat, words),
            words,
            zone=self.zone,
            decider=await self.decider_name(approval),
            deciders=[(await self.people.get(each)).name for each in approval.approvers],
        )
        await self.courier.send(
            chat, card, key=key, urgency=DeliveryUrgency.APPROVAL, reply_to=reply_to
        )

    async def _decider_chats(self, approval: Approval, origin: Chat) -> Sequence[Chat]:
        assignees = approval.payload.get("assignees", [])
        origin_decides = origin.kind is ChatKind.PRIVATE and await self._may_decide(
            origin, approval
        )
        if origin_decides and {*assignees} <= {origin.person_id}:
            return ()
        rooms = [chat for role in PersonRole for chat in await self.people.private_chats(role)]
        return [
            chat
            for chat in rooms
            if (chat.channel, chat.external_id) != (origin.channel, origin.external_id)
            and await self._may_decide(chat, approval)
            and (not origin_decides or chat.person_id in assignees)
        ]

    async def _may_see_title(self, chat: ChatId, approval: Approval) -> bool:
        reader_chat, origin = [
            await self.people.get_chat(each) for each in (chat, approval.chat_id)
        ]
        if (reader_chat.channel, reader_chat.external_id) == (origin.channel, origin.external_id):
            return True
        if reader_chat.kind is not ChatKind.PRIVATE or reader_chat.person_id is None:
            return False
        return (await self.people.get(reader_chat.person_id)).role is PersonRole.OWNER

    async def _may_decide(self, chat: Chat, approval: Approval) -> bool:
        if chat.person_id is None:
            return False
        return approval.can_be_decided_by(await self.people.get(chat.person_id))


def card_key_prefix(approval: Approval) -> str:
    return f"approval:{approval.id}:"


def card_key(approval: Approval, chat: ChatId) -> str:
    return f"{card_key_prefix(approval)}{chat}"


# --- decisions

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


_REVOKE_WORDS = {"revoke", "收回", "撤销"}
_LOG_WORDS = {"log", "记录"}
_MAX_CALLS_LISTED = 40
_MAX_TYPED = 12


@commands("tools", aliases=("工具", "权限"), immediate=True)
async def manage_tools(request: Request) -> Reply:
    word, rest = [*request.args.split(maxsplit=1), "", ""][:2]
    if word.casefold() in _REVOKE_WORDS:
        if not rest:
            raise UsageError("tools")
        return await _revoke_grant(request, parse_number(rest), rest)
    if word.casefold() in _LOG_WORDS:
        return await _show_calls(request, rest)
    if word:
        raise UsageError("tools")
    grants = await _visible_grants(request)
    people = request.services.people
    names = {each.granted_by: (await people.get(each.granted_by)).name for each in grants}
    card = grants_card(grants, names, request.words, zone=request.zone)
    return Reply(card=card, data=grants_data(grants))


async def _revoke_grant(request: Request, number: int, word: str) -> Reply:
    request.require_owner()
    numbers = {each.id for each in await _visible_grants(request)}
    if number not in numbers or not await request.services.tools.revoke(number):
        raise UserError("unknown_leave", n=formats.single_line(word, _MAX_TYPED))
    text = request.words("tools.list.revoked")
    return Reply(card=notice_card("", text), data={"revoked": number})


async def _show_calls(request: Request, prefix: str) -> Reply:
    if not prefix:
        raise UsageError("tools")
    task = await find_task(request, prefix)
    calls = await request.services.tools.list_calls(task.id, _MAX_CALLS_LISTED)
    card = calls_card(task.id, calls, request.words, zone=request.zone)
    return Reply(card=card, data=calls_data(task.id, calls, request.words))


async def _visible_grants(request: Request) -> Sequence[StandingPermission]:
    """An owner sees all in private; elsewhere only those granted in that chat."""
    grants = await request.services.tools.list_grants()
    if request.by_owner and request.in_private:
        return grants
    subject = (StandingPermissionScope.CHAT, str(request.chat.id))
    return [each for each in grants if (each.scope, each.subject) == subject]
