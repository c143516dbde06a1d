"""Decisions: asked on cards, taken by button, command or word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from cards.model import Card, Tone
from cards.views.approvals import approval_card, waiting_card
from cards.views.errors import notice_card
from cards.views.people import paired_card, refused_card
from cards.words import Words, words_for
from handlers.errors import UserError
from handlers.language import read_in
from handlers.parsing import Verdict
from handlers.plain import approval_data, approvals_data
from handlers.ports import Services
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.messages import Urgency
from storage.records.people import ChatId, ChatKind, Language, Role

commands = Commands("approvals")


@commands("approve", usage="[id]", aliases=("通过", "批准"), immediate=True)
async def approve(request: Request) -> Reply:
    """Approve what waits in this chat, or the request named."""
    target = request.args.split(maxsplit=1)[0] if request.args else ""
    if target:
        approval = await request.services.approvals.find(target)
    else:
        approval = await _only_one(request)
    return await _settled(request, approval, approve=True)


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
    waiting = await request.services.approvals.waiting(by=request.person, chat=request.chat.id)
    here = [each for each in waiting if each.kind is not ApprovalKind.PAIRING]
    wanted = [each for each in here if each.id.startswith(verdict.target.casefold())]
    if not wanted:
        return None
    if len(wanted) > 1:
        return Reply(card=waiting_card(wanted, request.words, zone=request.zone))
    return await _settled(request, wanted[0], approve=verdict.approve, reason=verdict.reason)


async def by_button(request: Request, approval_id: str, *, approve: bool, card_key: str) -> Reply:
    """A button on a card about one request, or on a list of several."""
    approval = await request.services.approvals.find(approval_id)
    decided = await settle(request, approval, approve=approve)
    toast = request.words(f"approval.decided.{decided.state}")
    if card_key.startswith(_prefix(approval)):
        return Reply(toast=toast)
    card = await _waiting_card(request)
    return Reply(card=card, key=card_key, in_place=True, toast=toast)


async def ask_again(request: Request, approval_id: str) -> Reply:
    """Nobody decided in time: ask anew."""
    await request.services.approvals.find(approval_id)
    raise NotFound("approval", approval_id)


async def settle(
    request: Request, approval: Approval, *, approve: bool, reason: str = ""
) -> Approval:
    """Decide, show it on every copy of the card, and tell whom it concerns."""
    try:
        decided = await request.services.approvals.decide(
            approval, approve=approve, by=request.person, source=request.source, reason=reason
        )
    except WrongState:
        await _show_everywhere(request, await request.services.approvals.find(approval.id))
        raise
    await _show_everywhere(request, decided)
    if decided.kind is ApprovalKind.PAIRING:
        await _tell_stranger(request, decided)
    return decided


async def announce(
    services: Services, approval: Approval, *, zone: ZoneInfo, fallback: Language
) -> None:
    """Ask every owner in private. Asking again changes nothing."""
    for chat in await services.people.private_chats(Role.OWNER):
        words = await words_in(services, chat.id, fallback)
        await services.courier.send(
            chat.id,
            approval_card(approval, words, zone=zone),
            key=f"{_prefix(approval)}{chat.id}",
            urgency=Urgency.APPROVAL,
        )


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
    request: Request, approval: Approval, *, approve: bool, reason: str = ""
) -> Reply:
    decided = await settle(request, approval, approve=approve, reason=reason)
    card = _card(request, decided, request.words, await _decider(request, decided))
    return Reply(card=card, data=approval_data(decided))


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
    here = await request.services.approvals.waiting(by=request.person, chat=request.chat.id)
    if len(here) == 1:
        return here[0]
    everywhere = await request.services.approvals.waiting(by=request.person, chat=None)
    raise UserError("which_approval" if here or everywhere else "no_approval")


async def _waiting_card(request: Request) -> Card:
    group = request.chat.kind is ChatKind.GROUP
    waiting = await _waiting(request)
    return waiting_card(waiting, request.words, zone=request.zone, only_here=group)


async def _waiting(request: Request) -> Sequence[Approval]:
    # What waits elsewhere is nobody's business in a group, where others read along.
    group = request.chat.kind is ChatKind.GROUP
    return await request.services.approvals.waiting(
        by=request.person, chat=request.chat.id if group else None
    )


async def _show_everywhere(request: Request, approval: Approval) -> None:
    decider = await _decider(request, approval)
    for key, chat_id in await request.services.cards.copies(_prefix(approval)):
        words = await words_in(request.services, chat_id, request.words.language)
        await request.services.courier.send(
            chat_id,
            _card(request, approval, words, decider),
            key=key,
            urgency=Urgency.APPROVAL,
        )


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


async def _decider(request: Request, approval: Approval) -> str:
    if approval.decided_by is None:
        return ""
    return (await request.services.people.get(approval.decided_by)).name


def _card(request: Request, approval: Approval, words: Words, decider: str) -> Card:
    return approval_card(approval, words, zone=request.zone, decider=decider)


def _prefix(approval: Approval) -> str:
    return f"approval:{approval.id}:"
