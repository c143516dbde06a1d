"""Links that sign in once, tokens of people, and what either opens."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from bot.transports.web.sessions import LINK_LIFETIME
from storage.migrate import sqlite_path
from tests.bot.dashboard.world import TOKEN, DashboardWorld

CHAT_PATHS = ("/", "/files/x.txt", "/upload")


async def link_of(world: DashboardWorld, name: str, token_name: str = "") -> str:
    url, _ = await world.core.web_sessions.create_link(world.people[name].id, token_name=token_name)
    return url


async def test_a_link_signs_its_owner_in_once(world: DashboardWorld) -> None:
    browser, other = world.client(origin=world.url), world.client(origin=world.url)
    link = await link_of(world, "olga")

    previews = [await other.head(link), await other.get(link), await browser.get(link)]
    signed_in = await browser.post(link)
    home = await browser.get("/dashboard")
    second = [await other.post(link), await other.get(link)]

    assert [each.status_code for each in previews] == [200, 200, 200]
    assert "set-cookie" not in previews[1].headers
    assert signed_in.headers["location"] == "/dashboard"
    assert "HttpOnly" in signed_in.headers["set-cookie"]
    assert home.status_code == 200
    assert "Olga" in home.text
    assert [each.status_code for each in second] == [410, 410]
    assert "Send /dashboard" in second[0].text
    assert (await other.get("/dashboard")).status_code == 401


@pytest.mark.parametrize(
    ("to", "where"),
    [("setup", "/setup"), ("//evil.example", ""), ("../x", ""), ("a" * 21, ""), ("é", "")],
)
async def test_a_link_leads_to_a_page_of_the_dashboard_and_nowhere_else(
    world: DashboardWorld, to: str, where: str
) -> None:
    link = await link_of(world, "olga")

    signed_in = await world.client(origin=world.url).post(link, params={"to": to})

    assert signed_in.headers["location"] == f"/dashboard{where}"


async def test_an_old_link_and_an_earlier_one_work_no_more(
    world: DashboardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = world.client(origin=world.url)
    earlier, link = await link_of(world, "olga"), await link_of(world, "olga")
    now = world.core.clock.now()

    replaced = await browser.post(earlier)
    monkeypatch.setattr(world.core.web_sessions, "now", lambda: now + LINK_LIFETIME * 2)
    expired = await browser.post(link)

    assert [replaced.status_code, expired.status_code] == [410, 410]


async def test_a_link_of_another_site_or_of_somebody_who_left_does_not_sign_in(
    world: DashboardWorld,
) -> None:
    people = world.core.repositories.people
    link = await link_of(world, "olga")
    elsewhere = await world.client(origin="https://evil.example").post(link)
    await people.demote(world.people["olga"].id)
    demoted = await world.client(origin=world.url).post(link)
    of_member = await world.client(origin=world.url).post(await link_of(world, "ann"))

    assert elsewhere.status_code == 403
    assert [demoted.status_code, of_member.status_code] == [410, 410]


async def test_rights_end_at_once_with_the_role_or_the_access(world: DashboardWorld) -> None:
    people = world.core.repositories.people
    browser, program = await world.browser("olga"), world.program("olga")
    before = [await browser.get("/dashboard"), await program.get("/dashboard")]

    await people.demote(world.people["olga"].id)
    demoted = [await browser.get("/dashboard"), await program.get("/dashboard")]
    await people.remove(world.people["olga"].id)
    removed = [await browser.get("/dashboard"), await program.get("/dashboard")]

    assert [each.status_code for each in before] == [200, 200]
    assert [each.status_code for each in demoted] == [401, 403]
    assert [each.status_code for each in removed] == [401, 401]


async def test_the_chat_belongs_to_the_local_owner(world: DashboardWorld) -> None:
    olga, local = await world.browser("olga"), await world.browser()

    refused = [await olga.get("/files/x.txt"), await olga.post("/upload?name=a", content=b"x")]
    moved = await olga.get("/")
    said = [
        await world.program(name).post("/api/say", json={"text": "hello"})
        for name in ("olga", "ann")
    ]

    assert [each.status_code for each in refused] == [403, 403]
    assert moved.headers["location"] == "/dashboard"
    assert [each.status_code for each in said] == [403, 403]
    assert (await local.get("/")).status_code == 200
    assert (await local.get("/dashboard")).status_code == 200


async def test_a_link_makes_a_token_and_shows_it_once(
    world: DashboardWorld, tmp_path: Path
) -> None:
    link = await link_of(world, "ann", "<b>backup script</b>")

    looked = await world.client().get(link)
    shown = await world.client(origin=world.url).post(link)
    again = await world.client(origin=world.url).post(link)
    (token,) = re.findall(r"sbt_[\w-]{43}", shown.text)
    used = await world.client(authorization=f"Bearer {token}").get("/dashboard")

    assert "sbt_" not in looked.text
    assert "<b>backup" not in looked.text + shown.text
    assert again.status_code == 410
    assert used.status_code == 403  # a member, who has no pages
    with closing(sqlite3.connect(sqlite_path(world.core.settings.database) or "")) as raw:
        assert token not in "\n".join(raw.iterdump())
        assert link.rpartition("/")[2] not in "\n".join(raw.iterdump())


async def test_a_program_gets_a_token_from_a_link(world: DashboardWorld) -> None:
    made = await world.client(accept="application/json").post(await link_of(world, "olga", "ci"))

    assert made.status_code == 201
    olga = world.client(authorization=f"Bearer {made.json()['token']}")
    assert (await olga.get("/dashboard")).status_code == 200


async def test_a_revoked_token_opens_nothing(world: DashboardWorld) -> None:
    sessions = world.core.web_sessions
    (token,) = [
        each for each in await sessions.list_tokens() if each.person_id == world.people["olga"].id
    ]

    await world.program("olga").get("/dashboard")
    (used,) = [each for each in await sessions.list_tokens() if each.id == token.id]
    revoked = await sessions.revoke_token(token.id)

    assert (token.seen_at, used.seen_at is None, revoked) == (None, False, True)
    assert (await world.program("olga").get("/dashboard")).status_code == 401
    assert not await sessions.revoke_token(token.id)


@pytest.mark.parametrize("token", ["", "sbt_", "sbt_" + "x" * 43, "x", "sbt_%ff", TOKEN + "x"])
async def test_a_wrong_token_opens_nothing(world: DashboardWorld, token: str) -> None:
    answer = await world.client(authorization=f"Bearer {token}").get("/api/v1/tasks")

    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:shiftboss:problem:needs-token"


async def test_sessions_of_other_owners_are_in_the_list_and_end(world: DashboardWorld) -> None:
    olga = await world.browser("olga")
    (session,) = await world.core.web_sessions.list()

    signed_out = await olga.post("/sign-out")

    assert session.person_id == world.people["olga"].id
    assert signed_out.status_code == 303
    assert (await olga.get("/dashboard")).status_code == 401


async def test_links_begin_with_the_public_address(world: DashboardWorld) -> None:
    world.core.web_sessions.address = "https://boss.example"

    assert (await link_of(world, "olga")).startswith("https://boss.example/sign-in/")
    assert timedelta(minutes=5) <= LINK_LIFETIME <= timedelta(minutes=15)
