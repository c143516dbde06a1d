"""Who is let in: seen, made a member, and removed by owners."""

from __future__ import annotations

from cards.actions import AskAboutPerson, MovePerson
from cards.views.errors import notice_card
from cards.views.members import confirm_card, members_card, members_data
from handlers.errors import Usage, UserError
from handlers.ports import Forbidden
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.errors import NotFound
from storage.records.people import ChatKind, Member, Role

commands = Commands("people")

_DEMOTE = {"demote", "降级"}
_REMOVE = {"remove", "移除"}
_SURE = {"yes", "确定", "是"}


@commands("people", usage="[demote|remove id]", aliases=("成员", "人员"), immediate=True)
async def people(request: Request) -> Reply:
    """Show who is let in, make an owner a member, or remove somebody (owner, in private)."""
    _check(request)
    word, wanted, sure, *_ = [*request.args.split(), "", "", ""]
    if not word:
        members = await request.services.people.members()
        card = members_card(members, request.words, by=request.person.id)
        return Reply(card=card, data=members_data(members))
    remove = word.casefold() in _REMOVE
    if not wanted or not (remove or word.casefold() in _DEMOTE):
        raise Usage("people")
    member = await _found(request, wanted)
    if sure.casefold() in _SURE:
        return await _moved(request, member, remove=remove)
    return _asked(request, member, remove=remove)


async def ask(request: Request, action: AskAboutPerson) -> Reply:
    """A button of the list: nobody is removed by one press."""
    _check(request)
    return _asked(request, await _found(request, action.person_id), remove=action.remove)


async def move(request: Request, action: MovePerson, card_key: str) -> Reply:
    """The confirming button."""
    _check(request)
    member = await _found(request, action.person_id)
    moved = await _moved(request, member, remove=action.remove)
    return Reply(card=moved.card, key=card_key, in_place=True)


def _check(request: Request) -> None:
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden
    if request.chat.kind is not ChatKind.PRIVATE:
        raise UserError("only_in_private", command="people")


async def _found(request: Request, wanted: str) -> Member:
    """By id, by account, or by name where only one has it."""
    members = await request.services.people.members()
    sought = wanted.casefold()
    for each in members:
        accounts = {external_id.casefold() for _, external_id in each.accounts}
        if sought in {each.person.id.casefold(), *accounts}:
            return each
    named = [each for each in members if each.person.name.casefold() == sought]
    if len(named) != 1:
        raise NotFound("person", wanted[:60])
    return named[0]


def _asked(request: Request, member: Member, *, remove: bool) -> Reply:
    if member.local:
        raise UserError("local_owner")
    if not remove and member.person.role is not Role.OWNER:
        raise UserError("already_member", name=member.person.name)
    return Reply(card=confirm_card(member, request.words, remove=remove))


async def _moved(request: Request, member: Member, *, remove: bool) -> Reply:
    services, who = request.services, member.person
    if not remove and who.role is not Role.OWNER:
        raise UserError("already_member", name=who.name)
    if remove:
        rooms = await services.people.remove(who.id)
        if rooms is None:
            raise UserError("last_owner", name=who.name)
        for chat in rooms:
            services.talk.interrupt(chat)
            await services.talk.reset(chat)
    elif not await services.people.demote(who.id):
        raise UserError("last_owner", name=who.name)
    text = request.words("people.removed" if remove else "people.demoted", name=who.name)
    if member.named:
        text = f"{text}\n\n{request.words('people.named')}"
    return Reply(card=notice_card("", text), data={"id": who.id, "removed": remove})
