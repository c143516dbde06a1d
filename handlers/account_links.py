"""Handles /link and /unlink: one person with accounts on several channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cards import formats
from cards.actions import UnlinkAccount
from cards.memory_actions import ChooseMemory
from cards.model import CardTone, notice_card
from cards.views import account_links as views
from handlers.account_link_notices import link_notifier
from handlers.approvals import show_request
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request
from storage.errors import NotFound
from storage.records.approvals import Approval
from storage.records.people import AccountLink, Channel, Member

commands = CommandRegistry("people")

_MAX_CODE = 64
_MAX_TYPED = 80
_CHOOSE_WORDS, _BOTH_WORDS = {"choose", "选择"}, {"both", "都", "两个"}
_REVOKE_WORDS = {"revoke", "撤销"}


@commands("link", aliases=("关联", "绑定"), immediate=True)
async def link_account(request: Request) -> Reply:
    """Create a code. With a code, ask for confirmation of the link; with a memory, choose between
    memories that exclude each other."""
    _check_private(request, "link")
    links, words = request.services.account_links, request.words
    if not request.args:
        code, until = await links.create_code(request.person, request.chat.id)
        card = views.link_code_card(code, until, words, zone=request.zone)
        return Reply(card=card, data={"code": code, "expires_at": until.isoformat()})
    word, entry_id, both, *_ = [*request.args.split(), "", "", ""]
    if word.casefold() in _CHOOSE_WORDS:
        return await _choose(request, entry_id, both=both.casefold() in _BOTH_WORDS)
    approval = await ask_to_link(request, request.args)
    here = approval.chat_id == request.chat.id
    text = words("link.confirm_here" if here else "link.confirm_there")
    return Reply(card=notice_card("", text), data={"approval": approval.id})


async def ask_to_link(request: Request, code: str) -> Approval:
    """Use a code, and show the request for confirmation."""
    links = request.services.account_links
    approval = await links.use_code(code[:_MAX_CODE], request.person, request.chat.id)
    await show_request(request, approval)
    return approval


@commands("unlink", aliases=("取消关联", "解绑"), immediate=True)
async def unlink_account(request: Request) -> Reply:
    """List the person's accounts, take one apart, or revoke its access."""
    _check_private(request, "unlink")
    name, _, word = request.args.strip().partition(" ")
    if not name:
        members = await request.services.people.list_members()
        own = next(each for each in members if each.person.id == request.person.id)
        return Reply(card=views.accounts_card(own, request.words), data=views.accounts_data(own))
    revoke = word.strip().casefold() in _REVOKE_WORDS
    if word and not revoke:
        raise UsageError("unlink")
    account = await unlink_named(request, name, revoke=revoke)
    key = "link.revoked" if revoke else "link.unlinked"
    text = request.words(key, account=views.account_text(account, request.words))
    data = {"account": views.account_name(account), "revoked": revoke}
    return Reply(card=notice_card("", text, tone=CardTone.GOOD), data=data)


async def unlink_named(request: Request, name: str, *, revoke: bool) -> tuple[Channel, str]:
    """Take an account apart from its person, or revoke its access."""
    members = await request.services.people.list_members()
    member, account = _find_account(request, members, name)
    links, web = request.services.account_links, request.services.web_sessions
    before = {each.id for each in await web.list()}
    if revoke:
        link = await links.revoke(*account, session=request.web_session)
    elif account in member.joined:
        link = await links.unlink(member.joined[account])
    else:
        raise UserError("main_account", account=views.account_name(account))
    for ended in before - {each.id for each in await web.list()}:
        await web.end(ended)
    await _end_conversations(request, link)
    await link_notifier(request.services).notify()
    return account


async def handle_link_press(
    request: Request, action: UnlinkAccount | ChooseMemory, card_key: str
) -> Reply:
    if isinstance(action, UnlinkAccount):
        reply = await unlink_account(replace(request, args=action.account))
    else:
        _check_private(request, "link")
        reply = await _choose(request, action.entry_id, both=action.both)
    return replace(reply, key=card_key, in_place=True)


async def _choose(request: Request, entry_id: str, *, both: bool) -> Reply:
    """Let one of two exclusive memories hold. Without an id, list the open choices."""
    links, person = request.services.account_links, request.person.id
    if entry_id:
        await links.choose(person, entry_id[:_MAX_TYPED].lower(), both=both)
    choices = await links.list_choices(person)
    card = views.memory_choices_card(choices, request.words)
    return Reply(card=card, data=views.memory_choices_data(choices))


async def _end_conversations(request: Request, link: AccountLink) -> None:
    for chat in await request.services.account_links.list_chats(link):
        request.services.conversations.interrupt(chat.id)
        await request.services.conversations.reset(chat.id)


def _check_private(request: Request, command: str) -> None:
    if not request.in_private:
        raise UserError("only_in_private", command=command)


def _find_account(
    request: Request, members: Sequence[Member], name: str
) -> tuple[Member, tuple[Channel, str]]:
    """Find one of the person's own accounts by its channel or its full name. Owners find other
    people's accounts by their full names only."""
    sought = name.casefold()
    own = [each for each in members if each.person.id == request.person.id]
    seen = members if request.by_owner else own
    exact = [
        (member, account)
        for member in seen
        for account in member.accounts
        if views.account_name(account).casefold() == sought
    ]
    there = [
        (member, account)
        for member in own
        for account in member.accounts
        if account[0].value == sought
    ]
    found = exact or there
    if len(found) != 1:
        raise NotFound("account", formats.single_line(name, _MAX_TYPED))
    return found[0]
