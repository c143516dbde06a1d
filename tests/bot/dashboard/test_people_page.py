"""The page of people: pairing, roles, browsers and tokens, and whose orders count."""

from __future__ import annotations

import re

from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, ChatKind, PersonRole
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/people"
STRANGER = "Mallory <b>"


async def knock(world: DashboardWorld, name: str) -> str:
    """A stranger asks for access; returns the id of the request."""
    store, now = world.core.repositories, world.core.clock.now()
    place = ChatAddress(channel=Channel.TELEGRAM, chat=name, kind=ChatKind.PRIVATE)
    async with store.db.write() as tx:
        chat = await store.chats.get_or_create(tx, place, MessageSender(external_id=name), now)
    services = world.core.services
    pairing, _ = await services.pairings.get_or_create(
        Channel.TELEGRAM, name, name, chat.id, now=now
    )
    return (await services.pairings.get_approval(pairing)).id


async def roles(world: DashboardWorld) -> dict[str, PersonRole]:
    members = await world.core.services.people.list_members()
    return {each.person.name: each.person.role for each in members}


async def test_strangers_get_access_or_none(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    welcome, unwelcome = await knock(world, STRANGER), await knock(world, "Trudy")

    page = (await browser.get(PAGE)).text
    for order, which in (("approve", welcome), ("decline", unwelcome)):
        answer = await browser.post(PAGE, data={"order": order, "which": which})
        assert answer.status_code == 303

    assert "Mallory &lt;b&gt;" in page
    assert STRANGER in await roles(world)
    assert "Trudy" not in await roles(world)
    assert (
        await browser.post(PAGE, data={"order": "approve", "which": unwelcome})
    ).status_code == 409
    assert (await browser.post(PAGE, data={"order": "approve", "which": "nope"})).status_code == 404


async def test_owners_change_roles_but_lose_neither_themselves_nor_the_last_owner(
    world: DashboardWorld,
) -> None:
    browser, ids = await world.browser("olga"), {n: p.id for n, p in world.people.items()}
    ann = world.program("ann")

    page = (await browser.get(PAGE)).text
    removed = await browser.post(PAGE, data={"order": "remove", "which": ids["ann"]})
    again = await browser.post(PAGE, data={"order": "remove", "which": ids["ann"]})
    not_an_owner = await browser.post(PAGE, data={"order": "demote", "which": ids["bob"]})

    assert f'name="which" value="{ids["bob"]}"' in page
    assert f'name="which" value="{ids["olga"]}"' not in page
    assert [removed.status_code, again.status_code, not_an_owner.status_code] == [303, 404, 422]
    assert "Ann" not in await roles(world)
    assert (await ann.get("/api/v1/people/me")).status_code == 401
    local = next(
        p.person for p in await world.core.services.people.list_members() if p.is_local_web_owner
    )
    assert (
        await browser.post(PAGE, data={"order": "remove", "which": local.id})
    ).status_code == 422
    for wrong in ({}, {"order": "explode"}, {"order": "new_token", "name": " "}):
        assert (await browser.post(PAGE, data=wrong)).status_code == 422


async def test_members_have_no_orders_here(world: DashboardWorld) -> None:
    program = world.program("ann")
    order = {"order": "remove", "which": world.people["bob"].id}

    assert (await program.get(PAGE)).status_code == 403
    assert (await program.post(PAGE, data=order)).status_code == 403
    assert "Bob" in await roles(world)


async def test_browsers_and_tokens_end_at_once(world: DashboardWorld) -> None:
    browser, other = await world.browser("olga"), await world.browser("olga")
    page = (await browser.get(PAGE)).text
    assert "this browser" in page
    (token,) = [
        each.id
        for each in await world.core.web_sessions.list_tokens()
        if each.person_id == world.people["bob"].id
    ]

    await browser.post(PAGE, data={"order": "revoke", "which": token})
    await browser.post(PAGE, data={"order": "end_others"})

    assert (await world.program("bob").get("/api/v1/people/me")).status_code == 401
    assert (await other.get(PAGE)).status_code == 401
    assert (await browser.get(PAGE)).status_code == 200


async def test_a_token_is_made_on_the_next_page(world: DashboardWorld) -> None:
    browser = await world.browser("olga")

    moved = await browser.post(PAGE, data={"order": "new_token", "name": "<i>ci"})
    shown = await browser.post(moved.headers["location"])
    (token,) = re.findall(r"sbt_[\w-]{43}", shown.text)

    assert moved.headers["location"].startswith("/sign-in/")
    assert (await world.client(authorization=f"Bearer {token}").get(PAGE)).status_code == 200
    assert "&lt;i&gt;ci" in (await browser.get(PAGE)).text


async def test_accounts_are_linked_and_unlinked_here_and_by_programs(world: DashboardWorld) -> None:
    browser, api = await world.browser("olga"), "/api/v1/people/me"
    ann, people = world.program("ann"), world.people
    page = (await browser.post(PAGE, data={"order": "link_code"})).text
    found = re.search(r"/link ([2-9A-Z]{8})", page)
    assert found is not None
    code = found[1]

    wrong = await ann.post(f"{api}/links", json={"code": "WRONG"})
    used = await ann.post(f"{api}/links", json={"code": code})
    request = used.json()["approval_id"]
    forbidden = await ann.post(f"/api/v1/approvals/{request}/decision", json={"approve": True})
    shown = (await browser.get(f"/dashboard/approvals/{request}")).text
    await browser.post(f"/dashboard/approvals/{request}", data={"decision": "approve"})

    assert [wrong.status_code, used.status_code, forbidden.status_code] == [404, 201, 404]
    assert "rights of an owner" in shown
    accounts = (await ann.get(f"{api}/accounts")).json()["accounts"]
    assert sorted(each["is_linked"] for each in accounts) == [False, True]
    linked = next(each for each in accounts if each["is_linked"])
    assert 'value="unlink"' in (await browser.get(PAGE)).text
    assert (await ann.get(api)).json()["id"] == people["olga"].id

    name = f"{linked['channel']}:{linked['id']}"
    assert (await browser.post(PAGE, data={"order": "unlink", "which": name})).status_code == 303
    assert (await ann.get(api)).json()["id"] == people["ann"].id
    assert (await browser.get(PAGE)).status_code != 200, "all browsers of both are signed out"
    browser = await world.browser("olga")
    again = await browser.post(PAGE, data={"order": "unlink", "which": name})
    assert again.status_code == 422

    made = (await ann.post(f"{api}/link-codes")).json()["code"]
    there = await browser.post(PAGE, data={"order": "use_link_code", "code": made})
    assert there.headers["location"] == "/dashboard/approvals"
