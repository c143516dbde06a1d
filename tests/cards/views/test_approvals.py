"""Approval cards show the request, its approvers and its outcome."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from cards.actions import Action, DecideApproval, RequestApprovalAgain, ShowTask
from cards.catalog import catalog_for
from cards.formats import date_time
from cards.model import ButtonsBlock, Card, CardTone, CodeBlock, CollapsibleBlock, NoteBlock
from cards.permission_reasons import build_reason
from cards.render.text import render
from cards.views.approvals import (
    approval_card,
    mark_settled_in_list,
    waiting_approvals_card,
)
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language
from storage.records.tasks import TaskId
from tests.builders import NOW, make_approval

ZONE = ZoneInfo("UTC")
EN = catalog_for(Language.ENGLISH)


def shown(approval: Approval, **facts: object) -> Card:
    return approval_card(approval, EN, zone=ZONE, **facts)  # type: ignore[arg-type] # names as declared


def actions(card: Card) -> list[Action]:
    blocks = [block for block in card.blocks if isinstance(block, ButtonsBlock)]
    return [button.action for block in blocks for button in block.items]


def text_of(card: Card) -> str:
    return f"{card.title}\n{render(card).text}"


def risk(**changes: object) -> Approval:
    approval = make_approval(kind=ApprovalKind.RISK)
    payload = {"task": "Ship the site", "said": "Ship it today, please", "word": "deploy"}
    return replace(approval, **{"payload": payload, **changes})  # type: ignore[arg-type] # fields of the record


def test_a_risky_step_shows_its_exact_words_its_task_its_deciders_and_its_end() -> None:
    card = shown(risk(title="Deploy", detail="Deploy\n`rm -rf` *all*"), deciders=("Olga", "Ann"))

    said = text_of(card)
    assert [block.text for block in card.blocks if isinstance(block, CodeBlock)] == [
        "Deploy\n`rm -rf` *all*"
    ]
    for part in ("Ship the site", "k3m9qa", "Ship it today", "deploy", "Olga, Ann", "Expires"):
        assert part in said
    assert card.tone is CardTone.WARN
    assert {type(each) for each in actions(card)} == {DecideApproval, ShowTask}


def test_the_name_of_a_tool_is_shown_as_it_is() -> None:
    payload = {"tool": "mcp__git__log", "pattern": "mcp__git__log(*)"}
    card = shown(replace(make_approval(kind=ApprovalKind.TOOL), payload=payload))
    notes = [block.markdown for block in card.blocks if isinstance(block, NoteBlock)]

    assert any("`mcp__git__log`" in note for note in notes), "nothing is escaped in code"


def test_of_many_who_may_decide_three_are_named() -> None:
    card = shown(risk(), deciders=[f"Owner {n}" for n in range(39)])

    assert "Owner 0, Owner 1, Owner 2 and 36 more" in text_of(card)
    assert "Owner 3" not in text_of(card)


def test_a_step_with_less_time_than_its_request_says_its_own() -> None:
    closes = NOW + timedelta(minutes=3)
    approval = risk(expires_at=NOW + timedelta(days=7), payload={"closes": closes.isoformat()})

    assert f"Expires: {date_time(closes, ZONE)}" in text_of(shown(approval)).replace("*", "")


def test_whatever_is_too_long_to_read_at_a_glance_is_there_in_full() -> None:
    command = "echo harmless; " * 200 + "rm -rf /"

    card = shown(risk(detail=command))

    folded = [block for block in card.blocks if isinstance(block, CollapsibleBlock)]
    assert folded[0].blocks == (CodeBlock(text=command),)


def test_without_names_any_owner_decides() -> None:
    assert "any owner" in text_of(shown(risk()))


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        (ApprovalState.APPROVED, CardTone.GOOD),
        (ApprovalState.REJECTED, CardTone.BAD),
        (ApprovalState.EXPIRED, CardTone.NEUTRAL),
    ],
)
@pytest.mark.parametrize("kind", list(ApprovalKind))
def test_what_is_settled_cannot_be_decided_on_its_card(
    kind: ApprovalKind, state: ApprovalState, tone: CardTone
) -> None:
    card = shown(make_approval(kind=kind, state=state), decider="Olga")

    assert card.tone is tone
    assert not [each for each in actions(card) if isinstance(each, DecideApproval)]


def test_who_decided_when_and_why_is_on_the_card() -> None:
    said = text_of(shown(make_approval(state=ApprovalState.REJECTED), decider="Olga"))

    assert "Olga" in said
    assert "too early" in said
    assert f"{NOW:%Y-%m-%d}" in said


def test_a_reason_that_looks_like_one_of_our_keys_stays_what_it_is() -> None:
    approval = replace(make_approval(state=ApprovalState.REJECTED), reason="approval.by")

    assert "approval.by" in text_of(shown(approval, decider="Olga"))


def test_what_expired_can_be_asked_again_unless_it_was_taken_back() -> None:
    expired = risk(state=ApprovalState.EXPIRED)

    assert actions(shown(expired)) == [RequestApprovalAgain(approval_id="ap7x2k")]
    withdrawn = shown(replace(expired, reason="approval.task_over"))
    assert actions(withdrawn) == []
    assert "task is over" in text_of(withdrawn)


def test_money_says_what_is_spent_and_what_a_yes_allows() -> None:
    facts = {
        "scope": "day",
        "cap_micros": 25_000_000,
        "spent_micros": 24_900_000,
        "more_micros": 25_000_000,
        "more_tokens": 2_000_000,
        "tasks": ["k3m9qa"],
        "until": (NOW + timedelta(hours=1)).isoformat(),
    }
    approval = replace(make_approval(kind=ApprovalKind.BUDGET), payload=facts)

    said = text_of(shown(approval))
    for part in ("$24.90", "$25.00", "2.0M tokens", "cap reached"):
        assert part in said
    opened = shown(replace(approval, state=ApprovalState.EXPIRED))
    assert "new day" in text_of(opened)
    assert actions(opened) == []


def test_a_list_does_not_tell_how_to_fill_in_a_form_that_is_settled() -> None:
    form = {"form": [{"name": "amount", "type": "number"}]}
    asked, other = (replace(make_approval(n, ApprovalKind.HUMAN), payload=form) for n in ("a", "b"))
    card = waiting_approvals_card([asked, other], EN, zone=ZONE)

    settled = mark_settled_in_list(card, replace(asked, state=ApprovalState.APPROVED), EN)

    assert "/approve a amount=" in text_of(card)
    assert "/approve a amount=" not in text_of(settled)
    assert "/approve b amount=" in text_of(settled)


def test_the_list_has_the_buttons_of_each_kind() -> None:
    waiting = [make_approval(f"ap{n}", kind) for n, kind in enumerate(ApprovalKind)]

    card = waiting_approvals_card(waiting[:5], EN, zone=ZONE)

    decided = {each.approval_id for each in actions(card) if isinstance(each, DecideApproval)}
    questions = {each.id for each in waiting if each.kind is ApprovalKind.QUESTION}
    assert decided == {each.id for each in waiting[:5]} - questions


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (build_reason("no_sandbox").to_json(), "需要审批的原因：没有沙箱可以限制这条命令。"),
        ("No rule allows it.", "需要审批的原因：No rule allows it."),
    ],
)
def test_why_a_tool_is_asked_about_is_told_in_the_readers_language(why: str, told: str) -> None:
    approval = replace(make_approval(kind=ApprovalKind.TOOL), payload={"tool": "exec", "why": why})

    card = approval_card(approval, catalog_for(Language.CHINESE), zone=ZONE)

    assert told in text_of(card)


@pytest.mark.parametrize(("task", "scopes"), [("k3m9qa", ["", "task"]), (None, [""])])
def test_a_reading_with_the_rights_of_the_app_is_not_offered_for_others(
    task: str | None, scopes: list[str]
) -> None:
    payload = {
        "tool": "feishu_read",
        "pattern": "docx",
        "why": build_reason("app_rights").to_json(),
    }
    asked = replace(
        make_approval(kind=ApprovalKind.TOOL),
        payload=payload,
        task_id=None if task is None else TaskId(task),
    )

    offered = [each for each in actions(shown(asked)) if isinstance(each, DecideApproval)]

    assert [each.scope for each in offered if each.approve] == scopes
