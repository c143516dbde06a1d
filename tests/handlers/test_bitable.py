"""/bitable: its link for everybody, its setup for owners, in both languages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handlers.request import Reply
from storage.records.bitable import BitableGap, BitableGapKind, BitableState, TableRole
from storage.records.people import Language
from tests.fakes.bitable import BASE
from tests.handlers.router_harness import RouterHarness, text_of

MEMBER, OWNER = "x-ann", "x-olga"


async def ask(desk: RouterHarness, text: str, who: str = OWNER) -> Reply:
    return await desk.send_message(text, who=who, chat="c0")


async def test_it_says_how_to_begin() -> None:
    desk = RouterHarness()
    assert "/bitable setup" in text_of(await ask(desk, "/bitable"))

    desk.world.bitable.has_feishu = False

    assert "shiftboss init --channel feishu" in text_of(await ask(desk, "/bitable"))
    assert "Feishu is not connected" in text_of(await ask(desk, "/bitable setup"))


async def test_it_is_set_up_with_a_base_of_its_own_or_a_given_one() -> None:
    desk = RouterHarness()

    made = await ask(desk, "/bitable setup")
    given = await ask(desk, "/bitable setup https://team.feishu.cn/base/bascnFake0001")

    assert "is ready" in text_of(made)
    assert BASE.url in text_of(made)
    assert made.data is not None
    assert (made.data["base"], made.data["new"]) == (BASE.base, True)
    assert "Nothing is missing" in text_of(given)
    assert desk.world.bitable.tokens == ["", "https://team.feishu.cn/base/bascnFake0001"]


async def test_everybody_sees_the_link_and_owners_the_commands() -> None:
    desk = RouterHarness()
    desk.world.bitable.base = BASE

    shown, for_owner = (
        text_of(await ask(desk, "/bitable", MEMBER)),
        text_of(await ask(desk, "/bitable")),
    )

    assert BASE.url in shown
    assert "repair" not in shown
    assert "repair" in for_owner


@pytest.mark.parametrize("word", ["setup", "check", "repair", "off"])
async def test_members_may_not_change_it(word: str) -> None:
    desk = RouterHarness()
    desk.world.bitable.base = BASE

    reply = await ask(desk, f"/bitable {word}", MEMBER)

    assert "owner" in text_of(reply)
    assert desk.world.bitable.base is BASE


@pytest.mark.parametrize("language", Language)
async def test_gaps_are_named_and_filled(language: Language) -> None:
    desk = RouterHarness(language=language)
    desk.world.bitable.base = BASE
    desk.world.bitable.gaps = tuple(
        BitableGap(kind=kind, table=TableRole.TASKS, name=f"name-{kind}") for kind in BitableGapKind
    )

    found, repaired = await ask(desk, "/bitable check"), await ask(desk, "/bitable repair")

    for kind in BitableGapKind:
        assert f"name-{kind}" in text_of(found)
    assert "/bitable repair" in text_of(found)
    assert found.data is not None
    assert repaired.data is not None
    assert (found.data["good"], repaired.data["good"]) == (False, True)
    assert len(found.data["gaps"]) == len(BitableGapKind)


async def test_a_base_whose_changes_are_not_announced_says_so() -> None:
    desk = RouterHarness()
    desk.world.bitable.announces = False

    assert "/doctor" in text_of(await ask(desk, "/bitable setup"))


@pytest.mark.parametrize(
    ("reason", "shown"), [("setup", "interrupted"), ("Forbidden *x*", "Forbidden *x*")]
)
async def test_a_stopped_base_says_why(reason: str, shown: str) -> None:
    desk = RouterHarness()
    desk.world.bitable.base = replace(BASE, state=BitableState.STOPPED, reason=reason)

    assert shown in text_of(await ask(desk, "/bitable"))


async def test_it_is_made_new_from_the_store() -> None:
    desk = RouterHarness()
    assert "No Bitable" in text_of(await ask(desk, "/bitable rebuild"))
    desk.world.bitable.base = BASE

    assert "Rebuilding the tables" in text_of(await ask(desk, "/bitable 重建"))
    assert desk.world.bitable.rebuilds == 1


async def test_it_is_switched_off() -> None:
    desk = RouterHarness()
    desk.world.bitable.base = BASE

    assert "disconnected" in text_of(await ask(desk, "/bitable off"))
    assert "No Bitable" in text_of(await ask(desk, "/bitable off"))
    assert "/bitable [setup" in text_of(await ask(desk, "/bitable dance"))
