"""Which way a switch goes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import JsonValue

from bot.engine.workflow.model.nodes import Case, Switch
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Failed, Sight
from bot.engine.workflow.nodes.switch import Switch as Handler


def _way(wanted: JsonValue, value: Any, default: str = "other") -> str | None:
    config = Switch(expression="v", cases=(Case(value=wanted, target="yes"),), default=default)
    sight = Sight(
        now=datetime(2026, 11, 22, tzinfo=UTC),
        zone=ZoneInfo("UTC"),
        names={"v": value},
        warn=pytest.fail,
    )
    effect = Handler().enter(Node(id="s", title="s", type="switch", config=config), sight)
    assert isinstance(effect, Done)
    return effect.to


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (3, 3),
        ("3", 3),
        (3, "3"),
        ("3", 3.0),
        (True, True),
        ("true", True),
        (True, "True"),
        (None, None),
        ("null", None),
        ("Yes", " yes\n"),
        ("approved", {"_raw": "APPROVED"}),
    ],
)
def test_a_case_fits_what_means_the_same(wanted: JsonValue, value: Any) -> None:
    assert _way(wanted, value) == "yes"


@pytest.mark.parametrize(
    ("wanted", "value"), [(1, True), (0, False), (0, None), ("", None), ("a", "ab"), (1, [1])]
)
def test_what_does_not_fit_goes_the_default_way(wanted: JsonValue, value: Any) -> None:
    assert _way(wanted, value) == "other"
    assert _way(wanted, value, default="") == ""


@pytest.mark.parametrize(("default", "kind"), [("other", Done), ("", Failed)])
def test_a_value_nobody_knows_goes_the_default_way_or_fails(default: str, kind: type) -> None:
    config = Switch(expression="w", cases=(Case(value=1, target="yes"),), default=default)
    said: list[str] = []
    sight = Sight(
        now=datetime(2026, 11, 22, tzinfo=UTC), zone=ZoneInfo("UTC"), names={}, warn=said.append
    )

    effect = Handler().enter(Node(id="s", title="s", type="switch", config=config), sight)

    assert isinstance(effect, kind)
    assert len(said) == (kind is Done)
