"""/mcp lists the servers that the asker may know of, and lets owners restart them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import StartMcpSignIn
from cards.catalog import catalog_for
from cards.views.tools import mcp_rights_card
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, PersonId
from storage.records.tasks import TaskId
from storage.records.workers import McpConsent, McpServerState, McpServerStatus
from tests.handlers.router_harness import RouterHarness, text_of

OLGAS = McpServerStatus(
    server="ledger",
    state=McpServerState.READY,
    persona="reviewer",
    person_id=PersonId("olga"),
    chat_id=ChatId("c0"),
    tools=("find_ticket", "[click](http://evil.test) `x`"),
    restarts=2,
)
ANNS = replace(
    OLGAS,
    server="mail",
    person_id=PersonId("ann"),
    chat_id=ChatId("c1"),
    task_id=TaskId("t9"),
    state=McpServerState.FAILED,
    error="no key in /home/olga/.key **now**",
)


def desk(language: Language | None = None) -> RouterHarness:
    made = RouterHarness(language=language)
    made.world.mcp.servers = [OLGAS, ANNS]
    return made


async def test_an_owner_in_private_sees_all_with_where_they_are_used() -> None:
    shown = text_of(await desk().send_message("/mcp", who="x-olga", chat="c0"))

    assert "ledger" in shown
    assert "running" in shown
    assert "restarted 2 times" in shown
    assert "find_ticket" in shown
    assert "mail" in shown
    assert "t9" in shown
    assert "no key in /home/olga/.key" in shown


async def test_what_a_server_says_of_itself_is_shown_as_plain_text() -> None:
    reply = await desk().send_message("/mcp", who="x-olga", chat="c0")

    assert reply.card is not None
    raw = str(reply.card)
    assert "[click](http" not in raw
    assert "**now**" not in raw


async def test_others_see_only_what_they_use_here_and_no_errors() -> None:
    shown = text_of(await desk().send_message("/mcp"))

    assert "mail" in shown
    assert "ledger" not in shown
    assert "no key" not in shown
    assert "t9" not in shown


async def test_in_a_group_an_owners_list_has_no_errors() -> None:
    """The members read along."""
    made = desk()
    made.world.mcp.servers = [replace(ANNS, person_id=PersonId("olga"), chat_id=ChatId("g1"))]
    shown = text_of(await made.send_message("/mcp", who="x-olga", chat="g1"))

    assert "mail" in shown
    assert "no key" not in shown
    assert "t9" not in shown


async def test_a_configured_server_is_listed_before_its_first_use() -> None:
    made = RouterHarness()
    roster = made.world.personas.all_personas
    first = replace(roster.personas[0], servers=("search",))
    made.world.personas.all_personas = replace(roster, personas=(first, *roster.personas[1:]))

    shown = text_of(await made.send_message("/mcp"))

    assert "search" in shown
    assert "not running" in shown


async def test_a_server_of_all_personas_is_listed_once() -> None:
    made = desk()
    made.world.mcp.shared = ["ledger", "weather"]

    shown = text_of(await made.send_message("/mcp", who="x-olga", chat="c0"))

    assert shown.count("ledger") == 1
    assert "weather: not running" in shown


async def test_problems_of_files_are_shown() -> None:
    made = RouterHarness()
    made.world.mcp.faults = ["mcp.json: line 3: a comma is missing"]

    assert "mcp.json: line 3: a comma is missing" in text_of(await made.send_message("/mcp"))


async def test_an_owner_restarts_one_by_name() -> None:
    made = desk()

    told = text_of(await made.send_message("/mcp restart ledger", who="x-olga", chat="c0"))

    assert made.world.mcp.stopped == ["ledger"]
    assert "starts again at its next use" in told


async def test_nobody_else_restarts_one() -> None:
    made = desk()

    await made.send_message("/mcp restart mail")

    assert made.world.mcp.stopped == []


@pytest.mark.parametrize("name", ["nobody", "*" * 900])
async def test_a_name_that_is_not_in_use_is_said_to_be_unknown(name: str) -> None:
    told = text_of(await desk().send_message(f"/mcp restart {name}", who="x-olga", chat="c0"))

    assert "No MCP server named" in told
    assert len(told) < 400


async def test_it_speaks_chinese_too() -> None:
    assert "MCP 服务" in text_of(await desk(language=Language.CHINESE).send_message("/mcp"))


SHOP = McpConsent(id="k3m9qa", project="/srv/*shop*", servers=("docs",), is_allowed=True)


async def test_decisions_about_projects_are_listed_for_owners_in_private_only() -> None:
    made = desk()
    made.world.mcp.consents = [SHOP, replace(SHOP, id="z9", servers=("bad",), is_allowed=False)]

    seen = text_of(await made.send_message("/mcp", who="x-olga", chat="c0"))
    others = text_of(await made.send_message("/mcp"))

    assert "docs · allowed · k3m9qa" in seen.replace("`", "")
    assert "bad · not allowed" in seen
    assert "docs" not in others


async def test_an_owner_revokes_a_decision_by_its_id() -> None:
    made = desk()
    made.world.mcp.consents = [SHOP]

    unknown = text_of(await made.send_message("/mcp revoke nothing", who="x-olga", chat="c0"))
    await made.send_message("/mcp revoke k3m9qa")
    assert made.world.mcp.consents == [SHOP], "a member may not"
    told = text_of(await made.send_message("/mcp revoke K3M9QA", who="x-olga", chat="c0"))

    assert "No decision has the ID nothing" in unknown
    assert "is forgotten" in told
    assert made.world.mcp.consents == []


async def test_the_button_of_missing_rights_starts_a_sign_in_for_an_owner() -> None:
    made = desk()
    made.world.mcp.shared = ["mail"]
    card = mcp_rights_card("mail", "mail:send", catalog_for(Language.ENGLISH))
    urgency = DeliveryUrgency.NOTICE
    await made.world.post.send(ChatId("c0"), card, key="rights", urgency=urgency)
    token = made.world.post.token("rights", StartMcpSignIn)

    member = await made.press(token, who="x-ann", chat="c0")
    shown = text_of(await made.press(token, who="x-olga", chat="c0"))

    assert "https://sign-in.example/mail" in shown
    assert "sign-in.example" not in text_of(member)


async def test_signing_in_is_for_owners_in_private() -> None:
    made = desk()
    made.world.mcp.shared = ["mail"]

    link = text_of(await made.send_message("/mcp login mail", who="x-olga", chat="c0"))
    unknown = text_of(await made.send_message("/mcp login nobody", who="x-olga", chat="c0"))
    failed = text_of(await made.send_message("/mcp code *x*", who="x-olga", chat="c0"))
    out = text_of(await made.send_message("/mcp logout mail", who="x-olga", chat="c0"))
    group = text_of(await made.send_message("/mcp login mail", who="x-olga", chat="g1"))
    member = text_of(await made.send_message("/mcp login mail"))

    assert "https://sign-in.example/mail" in link
    assert "a page of sign-in.example" in link
    assert "No MCP server named nobody" in unknown
    assert "The sign-in failed" in failed
    assert "is deleted" in out
    assert "private chat only" in group
    assert "sign-in.example" not in member + group
