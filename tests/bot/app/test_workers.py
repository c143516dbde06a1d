"""Settings decide what workers may do, and a setting that cannot be met stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.app.work_rules import build_policy
from bot.app.workers import build_fetcher
from bot.config.settings import BadSettings, Settings
from bot.engine.llm.tool_calls import CallKind, ToolCall


def _settings(**named: str) -> Settings:
    return Settings.model_validate({f"SHIFTBOSS_{name}": text for name, text in named.items()})


def _verdict(settings: Settings, command: str) -> str:
    call = ToolCall(
        call_id="c",
        name="exec",
        arguments={"command": command},
        kind=CallKind.EXECUTE,
        title="exec",
    )
    return (
        build_policy(settings).evaluate(call, workspace=Path("/w"), is_sandboxed=True).verdict.value
    )


def test_rules_and_levels_come_from_the_settings() -> None:
    settings = _settings(
        TOOLS_ALLOW="exec(make *), exec(git push*)", TOOLS_ASK_FOR="exec(make clean)",
        TOOLS_DENY="exec(git push*)",
    )  # fmt: skip

    assert _verdict(settings, "make all") == "allow"
    assert _verdict(settings, "make clean") == "ask"
    assert _verdict(settings, "git push") == "deny"
    assert _verdict(settings, "curl x") == "ask"
    assert _verdict(_settings(TOOLS_SECURITY="full"), "curl x") == "allow"
    assert _verdict(_settings(TOOLS_ASK="off"), "curl x") == "deny"


@pytest.mark.parametrize("name", ["TOOLS_ALLOW", "TOOLS_ASK_FOR", "TOOLS_DENY"])
def test_a_rule_that_is_none_is_told_by_the_name_of_its_setting(name: str) -> None:
    with pytest.raises(BadSettings, match=rf"SHIFTBOSS_{name}: 'exec\(' is not of the form"):
        build_policy(_settings(**{name: "read, exec("}))


def test_a_place_that_is_none_is_told_by_the_name_of_its_setting() -> None:
    build_fetcher(_settings(FETCH_PRIVATE="nas.local, 192.168.1.0/24"))

    with pytest.raises(BadSettings, match=r"SHIFTBOSS_FETCH_PRIVATE: '192\.168\.1\.0/99'"):
        build_fetcher(_settings(FETCH_PRIVATE="192.168.1.0/99"))
