"""The pages of approvals: what they show in full, and what a decision does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from storage.approvals import NewApproval, add_approval
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import PersonId
from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.test_task_pages import HOSTILE
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/approvals"
TOOL = {"tool": "run_command", "pattern": "rm -rf build"}


async def ask(
    world: DashboardWorld,
    kind: ApprovalKind = ApprovalKind.TOOL,
    detail: str = "rm -rf build",
    *,
    title: str = "Run a command",
    payload: Mapping[str, Any] = TOOL,
    approvers: tuple[PersonId, ...] = (),
) -> Approval:
    store, chat = world.core.repositories, await world.core.get_local_chat()
    async with store.db.write() as tx:
        return await add_approval(
            tx,
            NewApproval(
                kind=kind,
                chat_id=chat.id,
                title=title,
                detail=detail,
                payload=payload,
                approvers=approvers,
                expires_at=world.core.clock.now() + timedelta(hours=1),
            ),
            ids=IdGenerator(),
            now=world.core.clock.now(),
        )


async def find(world: DashboardWorld, approval: Approval) -> Approval:
    return await world.core.repositories.approvals.get(approval.id)


async def test_what_is_approved_is_shown_completely_and_decided_once(
    world: DashboardWorld,
) -> None:
    long = "echo " + "x" * 3_000 + " && rm -rf THE_MIDDLE && " + "y" * 3_000
    asked = await ask(world, detail=long)
    browser = await world.browser("olga")

    page = await browser.get(PAGE)
    assert "rm -rf THE_MIDDLE" in page.text.replace("&amp;", "&")
    assert 'value="approve:always"' in page.text
    form = {"decision": "approve:chat", "source": "s1", "reason": "for once"}
    first, again = [await browser.post(f"{PAGE}/{asked.id}", data=form) for _ in range(2)]
    late = await browser.post(f"{PAGE}/{asked.id}", data={"decision": "reject", "source": "s2"})

    assert (first.status_code, again.status_code, late.status_code) == (303, 303, 409)
    assert f'href="{PAGE}/{asked.id}"' in late.text
    decided = await find(world, asked)
    assert (decided.state, decided.reason) == (ApprovalState.APPROVED, "for once")
    assert decided.payload["reach"] == "chat"
    after = await browser.get(PAGE)
    assert 'name="decision"' not in after.text
    assert "Olga" in after.text
    assert "for once" in (await browser.get(f"{PAGE}/{asked.id}")).text


@pytest.mark.parametrize("decision", ["", "approve:always", "approve:world", "answer", "yes"])
async def test_only_what_is_offered_can_be_decided(world: DashboardWorld, decision: str) -> None:
    asked = await ask(world, payload={})
    browser = await world.browser("olga")

    refused = await browser.post(f"{PAGE}/{asked.id}", data={"decision": decision})

    assert refused.status_code == 422
    assert (await find(world, asked)).state is ApprovalState.WAITING


async def test_a_question_is_answered_by_an_option_or_in_words(world: DashboardWorld) -> None:
    options = {"options": ["Red", "蓝色"]}
    by_option = await ask(world, ApprovalKind.QUESTION, "Which colour?", payload=options)
    in_words = await ask(world, ApprovalKind.QUESTION, "Which city?", payload=options)
    browser = await world.browser("olga")

    page = await browser.get(f"{PAGE}/{by_option.id}")
    assert 'value="蓝色"' in page.text
    assert 'value="approve"' not in page.text
    for asked, form in ((by_option, {"option": "蓝色"}), (in_words, {"reason": " Rome "})):
        empty = await browser.post(f"{PAGE}/{asked.id}", data={"decision": "answer"})
        answer = {"decision": "answer", **form}
        sent = await browser.post(f"{PAGE}/{asked.id}", data=answer)
        assert (empty.status_code, sent.status_code) == (422, 303)

    assert [(await find(world, each)).reason for each in (by_option, in_words)] == ["蓝色", "Rome"]


async def test_owners_see_what_others_decide_but_do_not_decide_it(world: DashboardWorld) -> None:
    asked = await ask(world, ApprovalKind.HUMAN, approvers=(world.people["ann"].id,))
    browser = await world.browser("olga")

    page = await browser.get(f"{PAGE}/{asked.id}")
    decided = await browser.post(f"{PAGE}/{asked.id}", data={"decision": "approve"})

    assert "Ann" in page.text
    assert 'name="decision"' not in page.text
    assert decided.status_code == 403
    assert (await browser.get(f"{PAGE}/zzzzzz")).status_code == 404
    assert (await world.program("ann").get(PAGE)).status_code == 403
    assert (await world.program("ann").get(f"{PAGE}/{asked.id}")).status_code == 403


async def test_many_requests_stay_within_a_page_and_hostile_ones_are_text(
    world: DashboardWorld,
) -> None:
    for number in range(30):
        await ask(world, detail=f"{HOSTILE} {number} " + "z" * 600, title=HOSTILE)
    browser = await world.browser("olga")

    page = await browser.get(PAGE)

    assert len(page.content) < 30_000
    shown = set(re.findall(rf'href="{PAGE}/(\w+)"', page.text))
    assert len(shown) == 30
    assert "<script>alert" not in page.text
    assert 'href="javascript' not in page.text


async def test_a_form_of_ten_megabytes_is_refused(world: DashboardWorld) -> None:
    asked = await ask(world)
    form = {"decision": "approve", "reason": "x" * 10_000_000}

    refused = await (await world.browser("olga")).post(f"{PAGE}/{asked.id}", data=form)

    assert refused.status_code == 413
    assert (await find(world, asked)).state is ApprovalState.WAITING


FORM = [
    {"name": "amount", "title": "How much? <b>", "type": "number"},
    {"name": "day", "type": "date", "required": False},
    {"name": "to", "type": "choice", "options": ["Ann", "Bo"], "default": "Ann"},
    {"name": "now", "type": "bool", "default": True},
    {"name": "note", "type": "text"},
]


async def test_a_form_is_told_at_its_fields_what_is_wrong_and_the_first_one_counts(
    world: DashboardWorld,
) -> None:
    asked, no = [
        await ask(world, ApprovalKind.HUMAN, payload={"form": FORM}, title="Pay") for _ in range(2)
    ]
    browser = await world.browser("olga")
    shown = [await browser.get(each) for each in (PAGE, f"{PAGE}/{asked.id}")]
    wrong_form = {
        "in.amount": "much",
        "in.day": "2026-02-30",
        "in.to": "Eve",
        "decision": "approve",
    }

    wrong = await browser.post(f"{PAGE}/{asked.id}", data=wrong_form)
    assert (await find(world, asked)).state is ApprovalState.WAITING
    given = {"in.amount": "5", "in.day": "2026-03-01", "in.now": "no", "in.note": "for Bo"}
    right, again = [
        await browser.post(
            f"{PAGE}/{asked.id}", data={**given, "decision": "approve", "source": "s1"}
        )
        for _ in range(2)
    ]
    late = await browser.post(f"{PAGE}/{asked.id}", data={**wrong_form, "source": "s2"})
    rejected = await browser.post(
        f"{PAGE}/{no.id}", data={"decision": "reject", "reason": "not now"}
    )

    for page in shown:
        assert page.text.count('type="date" name="in.day"') in {1, 2}
        assert "How much? &lt;b&gt;" in page.text
    told = re.findall(r'id="\w+-(\d)" role="alert"', wrong.text)
    assert (wrong.status_code, told) == (422, ["1", "2", "3", "5"])
    assert "not <code>much</code>" in wrong.text
    assert wrong.text.count('aria-invalid="true"') == 4
    codes = [each.status_code for each in (right, again, late, rejected)]
    assert codes == [303, 303, 409, 303]
    assert "Olga decided first" in late.text
    assert 'name="in.amount"' not in late.text
    values = (await find(world, asked)).payload["values"]
    assert values == {"amount": 5, "day": "2026-03-01", "now": False, "note": "for Bo"}
    assert (await find(world, no)).reason == "not now"
    for each in (*shown, wrong, late):
        assert find_faults(each.text) == []
