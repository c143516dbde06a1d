"""Decisions: asked on cards, taken by button, command or word."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Card, Tone
from cards.plain import approval_data, approvals_data
from cards.views.approvals import approval_card, waiting_card
from cards.views.errors import notice_card
from cards.views.people import paired_card, refused_card
from cards.views.workers.leave import options_of
from cards.words import Words, words_for
from handlers.errors import UserError
from handlers.language import read_in
from handlers.middleware import TOAST
from handlers.parsing import Verdict
from handlers.ports import BackendFailure, Forbidden, Services
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.copies import Copies, prefix_of
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.messages import Urgency
from storage.records.people import ChatId, ChatKind, Language, Role

commands = Commands("approvals")

_ALWAYS = "always"
_BY_THE_WAY = frozenset({ApprovalKind.PAIRING, ApprovalKind.MEMORY})
_SCOPES = {
    "task": ("task", "任务", "本任务"),
    "chat": ("chat", "会话", "本会话"),
    _ALWAYS: (_ALWAYS, "始终", "总是"),
}


@commands(
    "approve", usage="[id] [task|chat|always|answer]", aliases=("通过", "批准"), immediate=True
)
async def approve(request: Request) -> Reply:
    """Approve what waits in this chat, or the request named."""
    target, rest = [*request.args.split(maxsplit=1), "", ""][:2]
    if target:
        approval = await request.services.approvals.find(target)
    else:
        approval = await _only_one(request)
    if approval.kind is ApprovalKind.QUESTION:
        answer = _answer_of(approval, rest) or request.words("approval.yes_word")
        return await _settled(request, approval, approve=True, reason=answer)
    return await _settled(request, approval, approve=True, scope=_scope_of(approval, rest))


@commands("reject", usage="[id] [reason]", aliases=("拒绝", "否决"), immediate=True)
async def reject(request: Request) -> Reply:
    """Reject what waits in this chat, or the request named."""
    first, *rest = request.args.split(maxsplit=1) or [""]
    if named := await _named(request, first):
        return await _settled(request, named, approve=False, reason=" ".join(rest))
    approval = await _only_one(request)
    return await _settled(request, approval, approve=False, reason=request.args)


@commands("approvals", aliases=("审批", "待审批"), immediate=True)
async def list_approvals(request: Request) -> Reply:
    """List what waits for your decision."""
    return Reply(card=await _waiting_card(request), data=approvals_data(await _waiting(request)))


async def by_word(request: Request, verdict: Verdict) -> Reply | None:
    """An approval word was the whole message. None if nothing here waits for it: then it is
    talk. Letting people in takes a button or a command: a stranger must not profit from an `ok`
    meant for something else."""
    here = await _here(request)
    wanted = [each for each in here if each.id.startswith(verdict.target.casefold())]
    if not wanted:
        return None
    if len(wanted) > 1:
        copies = _copies(request)
        told = [await copies.as_told(each, request.chat.id, request.words) for each in wanted]
        return Reply(card=waiting_card(told, request.words, zone=request.zone))
    if wanted[0].kind is ApprovalKind.QUESTION:
        # “ok” and “no” answer a question as they are.
        return await _settled(request, wanted[0], approve=True, reason=request.args)
    return await _settled(request, wanted[0], approve=verdict.approve, reason=verdict.reason)


async def check(request: Request, approval_id: str, scope: str = "") -> None:
    """Raises Forbidden where somebody else has to decide: their press must not use up the button
    of those who may."""
    approval = await request.services.approvals.find(approval_id)
    waits = approval.state is ApprovalState.WAITING
    beyond = scope == _ALWAYS and request.person.role is not Role.OWNER
    if waits and (beyond or not approval.may_be_decided_by(request.person)):
        raise Forbidden


async def by_button(
    request: Request,
    approval_id: str,
    *,
    approve: bool,
    card_key: str,
    scope: str = "",
    answer: str = "",
) -> Reply:
    """A button on a card about one request, or on a list of several."""
    approval = await request.services.approvals.find(approval_id)
    answer = _answer_of(approval, answer)
    try:
        decided = await settle(request, approval, approve=approve, reason=answer, scope=scope)
    except WrongState:
        return await too_late(request, approval.id)
    toast = request.words(f"approval.decided.{decided.state}")
    if card_key.startswith(prefix_of(approval)):
        return Reply(toast=toast)
    card = await _waiting_card(request)
    return Reply(card=card, key=card_key, in_place=True, toast=toast)


async def too_late(request: Request, approval_id: str) -> Reply:
    """Somebody else, or time, was first: the card shows it, and so does the answer."""
    settled = await request.services.approvals.find(approval_id)
    words = request.words
    text = words(f"approval.decided.{settled.state}")
    if settled.decided_by is not None and settled.decided_at is not None:
        name = await _copies(request).decider(settled)
        at = formats.moment(settled.decided_at, request.zone)
        text = words("approval.settled_by", name=name, state=text, at=at)
    return Reply(toast=formats.line(text, TOAST), good=False)


async def ask_again(request: Request, approval_id: str) -> Reply:
    """Nobody decided in time: what waited for it goes on, and asks anew when it gets there."""
    approval = await request.services.approvals.find(approval_id)
    if approval.kind is ApprovalKind.PAIRING:
        return Reply(toast=request.words("approval.expired_pairing"), good=False)
    if approval.state is not ApprovalState.EXPIRED:
        return await too_late(request, approval.id)
    concerned = approval.payload.get("tasks") or ([approval.task_id] if approval.task_id else [])
    if not concerned:
        raise NotFound("approval", approval_id)
    for task_id in concerned:
        await _go_on(request, str(task_id), alone=len(concerned) == 1)
    return Reply(toast=request.words("moved.resumed"))


async def settle(
    request: Request, approval: Approval, *, approve: bool, reason: str = "", scope: str = ""
) -> Approval:
    """Decide, show it on every copy of the card, and tell whom it concerns."""
    try:
        decided = await request.services.approvals.decide(
            approval,
            approve=approve,
            by=request.person,
            source=request.source,
            reason=reason,
            scope=scope,
        )
    except WrongState:
        await _show_everywhere(request, await request.services.approvals.find(approval.id))
        raise
    await _show_everywhere(request, decided)
    if decided.kind is ApprovalKind.PAIRING:
        await _tell_stranger(request, decided)
    return decided


@asynccontextmanager
async def asking_for_money(request: Request) -> AsyncGenerator[None, None]:
    """Where a cap stops what is done within, the request to extend it is shown here, and to those
    who may allow it."""
    try:
        yield
    except BackendFailure as error:
        if isinstance(asked := error.facts.get("approval"), Approval):
            fallback = request.words.language
            await _copies(request).ask(asked, request.chat.id, fallback=fallback)
        raise


async def announce(
    services: Services, approval: Approval, *, zone: ZoneInfo, fallback: Language
) -> None:
    """Ask every owner in private. Asking again changes nothing."""
    owners = await services.people.private_chats(Role.OWNER)
    await _copies_of(services, zone).tell(approval, owners, fallback=fallback)


async def announce_more(services: Services, *, hour: str, fallback: Language) -> None:
    """Tell every owner in private, once an hour, that more people knock than are shown."""
    for chat in await services.people.private_chats(Role.OWNER):
        words = await words_in(services, chat.id, fallback)
        await services.courier.send(
            chat.id,
            notice_card("", words("pairing.many"), tone=Tone.WARN),
            key=f"strangers:{hour}:{chat.id}",
            urgency=Urgency.APPROVAL,
        )


async def words_in(services: Services, chat_id: ChatId, fallback: Language) -> Words:
    """The language of whoever reads in that chat."""
    chat = await services.people.chat(chat_id)
    return words_for(await read_in(services.people, chat) or fallback)


async def _settled(
    request: Request, approval: Approval, *, approve: bool, reason: str = "", scope: str = ""
) -> Reply:
    await _belongs_here(request, approval)
    decided = await settle(request, approval, approve=approve, reason=reason, scope=scope)
    decider = await _copies(request).decider(decided)
    told = await _copies(request).as_told(decided, request.chat.id, request.words)
    card = approval_card(told, request.words, zone=request.zone, decider=decider)
    return Reply(card=card, data=approval_data(told))


def _scope_of(approval: Approval, word: str) -> str:
    """How far a yes to the use of a tool reaches. A word that is none is a mistake: it must not
    pass for a yes to anything."""
    if not word:
        return ""
    scope = next((each for each, words in _SCOPES.items() if word.casefold() in words), "")
    if approval.kind is not ApprovalKind.TOOL or not scope:
        raise UserError("approve_how", word=word[:60])
    return scope


def _answer_of(approval: Approval, text: str) -> str:
    """An option by its number, or the words themselves."""
    options = options_of(approval)
    number = text.strip().rstrip(".)）。")
    if number.isdecimal() and 0 < int(number) <= len(options):
        return options[int(number) - 1]
    return text.strip()


async def _belongs_here(request: Request, approval: Approval) -> None:
    """In a group others read along: what is asked elsewhere is neither shown nor decided there."""
    if request.chat.kind is not ChatKind.GROUP:
        return
    asked = await request.services.people.chat(approval.chat_id)
    here = (request.chat.channel, request.chat.external_id)
    if (asked.channel, asked.external_id) == here:
        return
    if not await _copies(request).stands_in(approval, request.chat.id):
        raise NotFound("approval", approval.id)


async def _go_on(request: Request, task_id: str, *, alone: bool) -> None:
    """Of several, those that this person may not see or that have gone on since stay as they
    are."""
    tasks = request.services.tasks
    try:
        task = await tasks.find(task_id, by=request.person, chat=request.chat.id)
        await tasks.resume(task, by=request.person, source=f"{request.source}:{task_id}")
    except (NotFound, WrongState):
        if alone:
            raise


async def _named(request: Request, word: str) -> Approval | None:
    """The request whose id the first word of a refusal is: the beginning of one that waits, or
    the whole of one that is settled. Any other word belongs to the reason."""
    waiting = await request.services.approvals.waiting(by=request.person, chat=None)
    named = [each for each in waiting if word and each.id.startswith(word.casefold())]
    if len(named) == 1:
        return named[0]
    try:
        found = await request.services.approvals.find(word)
    except (NotFound, AmbiguousId):
        return None
    return found if found.id == word.casefold() else None


async def _only_one(request: Request) -> Approval:
    here = await _here(request)
    if len(here) == 1:
        return here[0]
    everywhere = await request.services.approvals.waiting(by=request.person, chat=None)
    raise UserError("which_approval" if here or everywhere else "no_approval")


async def _here(request: Request) -> Sequence[Approval]:
    """What waits for this person and is asked in this chat: it came from here, or has a copy
    here. Neither who wants in is among them nor what is asked by the way: “ok” is meant for none
    of these."""
    waiting = await request.services.approvals.waiting(by=request.person, chat=None)
    copies = _copies(request)
    return [
        each
        for each in waiting
        if each.kind not in _BY_THE_WAY
        and (each.chat_id == request.chat.id or await copies.stands_in(each, request.chat.id))
    ]


async def _waiting_card(request: Request) -> Card:
    return waiting_card(
        await _waiting(request),
        request.words,
        zone=request.zone,
        only_here=request.chat.kind is ChatKind.GROUP,
    )


async def _waiting(request: Request) -> Sequence[Approval]:
    # What waits elsewhere is nobody's business in a group, where others read along.
    group = request.chat.kind is ChatKind.GROUP
    return await request.services.approvals.waiting(
        by=request.person, chat=request.chat.id if group else None
    )


async def _show_everywhere(request: Request, approval: Approval) -> None:
    await _copies(request).show(approval, fallback=request.words.language)


async def _tell_stranger(request: Request, approval: Approval) -> None:
    words = await words_in(request.services, approval.chat_id, request.words.language)
    admitted = approval.state is ApprovalState.APPROVED
    await request.services.courier.send(
        approval.chat_id,
        paired_card(words) if admitted else refused_card(words),
        key=f"paired:{approval.id}",
        urgency=Urgency.ANSWER,
    )
    chat = await request.services.people.chat(approval.chat_id)
    if admitted and chat.settings.language:
        # It stood in for the person's own, which what they write tells from now on.
        await request.services.people.adjust(chat, replace(chat.settings, language=None))


def _copies(request: Request) -> Copies:
    return _copies_of(request.services, request.zone)


def _copies_of(services: Services, zone: ZoneInfo) -> Copies:
    return Copies(people=services.people, cards=services.cards, courier=services.courier, zone=zone)
