"""Accounts behind which many people stand are nobody whom Shiftboss knows, and members reach
nothing by its rights that nobody gave them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import telegram

from bot.transports.telegram.incoming import parse_sender
from storage.records.approvals import StandingPermissionScope
from tests.bot.engine.permissions.policy_cases import (
    WORKSPACE,
    build_policy,
    make_grant,
    tool_call,
)


@pytest.mark.parametrize("number", [777000, 136817688, 1087968824])
def test_a_pseudo_account_of_telegram_is_no_person(number: int) -> None:
    assert parse_sender(telegram.User(id=number, first_name="Group", is_bot=False)).is_bot


def test_a_person_is_one() -> None:
    assert not parse_sender(telegram.User(id=42, first_name="Ada", is_bot=False)).is_bot


@pytest.mark.parametrize(
    ("rules", "scope", "for_owner", "verdict"),
    [
        ({}, None, True, "ask"),
        ({"allow": "feishu_read"}, None, True, "allow"),
        ({"allow": "feishu_read"}, None, False, "ask"),
        ({"security": "full"}, None, False, "ask"),
        ({"security": "full", "asking": "off"}, None, False, "deny"),
        ({}, StandingPermissionScope.ALWAYS, True, "allow"),
        ({}, StandingPermissionScope.ALWAYS, False, "ask"),
        ({}, StandingPermissionScope.TASK, False, "allow"),
        ({}, StandingPermissionScope.CHAT, True, "allow"),
        ({}, StandingPermissionScope.CHAT, False, "ask"),
    ],
)
@pytest.mark.parametrize("tool", ["feishu_read", "mcp__docs__docx_read"])
def test_a_member_reads_with_the_rights_of_the_app_only_what_an_owner_allows_them(
    rules: dict[str, str],
    scope: StandingPermissionScope | None,
    for_owner: bool,
    verdict: str,
    tool: str,
) -> None:
    call = tool_call(tool, url="https://x.feishu.cn/docx/doxcnAbC0123456789")
    policy = build_policy(
        **{name: text.replace("feishu_read", tool) for name, text in rules.items()}
    )
    pattern = policy.evaluate(call, workspace=WORKSPACE, for_owner=True).pattern
    given = [replace(make_grant(pattern, scope), tool=call.name)] if scope else []

    found = policy.evaluate(
        call,
        workspace=WORKSPACE,
        grants=given,
        for_owner=for_owner,
        with_app_rights=tool.startswith("mcp__"),
    )

    assert found.verdict == verdict
