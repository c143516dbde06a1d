"""People with access."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes
from handlers.account_links import ask_to_link, link_account, unlink_named
from storage.records.people import Channel, Member, PersonRole

routes = ApiRoutes("people")


class AccountModel(ApiModel):
    """`is_linked`: it was linked to the main account and can be unlinked."""

    channel: Channel
    id: str
    is_linked: bool


class PersonModel(ApiModel):
    id: str
    name: str
    role: PersonRole
    created_at: datetime


class MemberModel(ApiModel):
    """`is_configured_owner`: the settings make them an owner."""

    person: PersonModel
    accounts: list[AccountModel]
    is_configured_owner: bool
    is_local_web_owner: bool


class PeopleList(ApiModel):
    people: list[MemberModel]


@routes("GET", "/people", role=PersonRole.OWNER)
async def list_people(call: ApiCall) -> PeopleList:
    """Everyone with access (owners)"""
    members = await call.request.services.people.list_members()
    return PeopleList(
        people=[
            MemberModel(
                person=PersonModel.model_validate(each.person),
                accounts=_accounts(each),
                is_configured_owner=each.is_configured_owner,
                is_local_web_owner=each.is_local_web_owner,
            )
            for each in members
        ]
    )


@routes("GET", "/people/me")
async def show_me(call: ApiCall) -> PersonModel:
    """Whose token or session this is"""
    return PersonModel.model_validate(call.request.person)


class LinkCode(ApiModel):
    code: str
    expires_at: datetime


class UsedCode(ApiModel):
    code: Annotated[str, Field(min_length=1, max_length=64)]


class LinkRequest(ApiModel):
    """`approval_id`: the request that must be approved, by you or by the owner with whom you are
    to be one person."""

    approval_id: str


class UnlinkBody(ApiModel):
    """`revoke`: the account loses its access, and all it brought stays."""

    channel: Channel
    id: Annotated[str, Field(min_length=1, max_length=128)]
    revoke: bool = False


class AccountList(ApiModel):
    accounts: list[AccountModel]


@routes("GET", "/people/me/accounts")
async def list_accounts(call: ApiCall) -> AccountList:
    """Your accounts"""
    members = await call.request.services.people.list_members()
    own = [each for each in members if each.person.id == call.request.person.id]
    return AccountList(accounts=[account for each in own for account in _accounts(each)])


@routes("POST", "/people/me/link-codes", status=201)
async def create_link_code(call: ApiCall) -> LinkCode:
    """A code that links another account of yours"""
    made = await link_account(replace(call.command, args=""))
    return LinkCode.model_validate(made.data)


@routes("POST", "/people/me/links", status=201)
async def use_link_code(call: ApiCall, body: UsedCode) -> LinkRequest:
    """Use a code that another account of yours made"""
    approval = await ask_to_link(call.command, body.code)
    return LinkRequest(approval_id=approval.id)


@routes("POST", "/people/me/unlink")
async def unlink(call: ApiCall, body: UnlinkBody) -> AccountList:
    """Unlink an account of yours (owners: of anybody), or take its access"""
    await unlink_named(call.command, f"{body.channel}:{body.id}", revoke=body.revoke)
    return await list_accounts(call)


def _accounts(member: Member) -> list[AccountModel]:
    return [
        AccountModel(channel=each[0], id=each[1], is_linked=each in member.joined)
        for each in member.accounts
    ]
