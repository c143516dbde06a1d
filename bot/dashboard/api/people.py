"""People with access."""

from __future__ import annotations

from datetime import datetime

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes
from storage.records.people import Channel, PersonRole

routes = ApiRoutes("people")


class AccountModel(ApiModel):
    channel: Channel
    id: str


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
                accounts=[AccountModel(channel=kind, id=name) for kind, name in each.accounts],
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
