from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest
import pytest_asyncio

from bot.transports.feishu.diagnosis import FeishuDiagnosis
from storage.records.autonomy import HealthFinding
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import FeishuApiError


@pytest_asyncio.fixture
async def feishu() -> AsyncGenerator[FeishuEmulator, None]:
    async with FeishuEmulator() as emulator:
        yield emulator


def diagnosis(feishu: FeishuEmulator, **changed: str) -> FeishuDiagnosis:
    facts = {
        "app_id": feishu.app_id,
        "app_secret": feishu.app_secret,
        "domain": feishu.domain,
        **changed,
    }
    return FeishuDiagnosis(
        app_id=facts["app_id"],
        app_secret=facts["app_secret"],
        domain=facts["domain"],
        quota=lambda: (120, 10_000),
        on_call=lambda: None,
    )


def problems(found: list[HealthFinding]) -> list[tuple[str, str]]:
    return [(each.text, each.subject) for each in found if each.points]


async def test_an_app_that_has_all_it_needs_is_fine(feishu: FeishuEmulator) -> None:
    found = list(await diagnosis(feishu).find())

    assert problems(found) == []
    assert [each.text for each in found] == ["feishu_connects", "feishu_quota"]
    assert found[-1].facts == {"calls": 120, "quota": 10_000}


def no_bot(feishu: FeishuEmulator) -> None:
    refusal = FeishuApiError(11205, "app do not have bot")
    feishu.inject_fault("GET", "/open-apis/bot/v3/info", error=refusal)


def refuse(method: str, path: str) -> Callable[[FeishuEmulator], object]:
    """A refusal that has nothing to do with the credentials."""
    refusal = FeishuApiError(99992402, "field validation failed")
    return lambda feishu: feishu.inject_fault(method, path, error=refusal)


def set_app(**changes: object) -> Callable[[FeishuEmulator], None]:
    def plant(feishu: FeishuEmulator) -> None:
        for name, value in changes.items():
            setattr(feishu.app, name, value)

    return plant


def deny_scope(name: str) -> Callable[[FeishuEmulator], None]:
    return lambda feishu: feishu.app.scopes.update({name: 2})


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (no_bot, ("feishu_no_bot", "")),
        (refuse("GET", "/open-apis/bot/v3/info"), ("feishu_refuses", "")),
        (refuse("POST", "/callback/ws/endpoint"), ("feishu_no_connection", "")),
        (deny_scope("cardkit:card:write"), ("feishu_scope", "cardkit:card:write")),
        (set_app(scopes={"im:message": 1}), ("feishu_scope", "cardkit:card:write")),
        (set_app(event_mode="webhook"), ("feishu_events_mode", "")),
        (set_app(callback_mode="webhook"), ("feishu_callback_mode", "")),
        (set_app(events=["im.chat.updated_v1"]), ("feishu_event", "im.message.receive_v1")),
        (set_app(callbacks=[]), ("feishu_callback", "card.action.trigger")),
        (set_app(version=""), ("feishu_no_version", "")),
        (set_app(version="", version_in_review="oav_2"), ("feishu_in_review", "")),
    ],
)
async def test_a_planted_fault_is_found_alone(
    feishu: FeishuEmulator, plant: Callable[[FeishuEmulator], None], found: tuple[str, str]
) -> None:
    plant(feishu)

    assert problems(list(await diagnosis(feishu).find())) == [found]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"app_secret": "another"}, "feishu_credentials"),
        ({"app_id": "cli_another"}, "feishu_credentials"),
        ({"domain": "http://127.0.0.1:9"}, "feishu_unreachable"),
    ],
)
async def test_what_is_set_wrongly_is_found(
    feishu: FeishuEmulator, changed: dict[str, str], found: str
) -> None:
    assert problems(list(await diagnosis(feishu, **changed).find())) == [(found, "")]


async def test_finer_permissions_are_enough(feishu: FeishuEmulator) -> None:
    finer = (
        "im:message:send_as_bot",
        "im:message.p2p_msg:readonly",
        "im:message.group_at_msg:readonly",
        "im:resource",
        "cardkit:card:write",
    )
    feishu.app.scopes = dict.fromkeys(finer, 1)

    assert problems(list(await diagnosis(feishu).find())) == []


async def test_what_the_app_may_not_ask_is_said_to_be_unknown(feishu: FeishuEmulator) -> None:
    feishu.app.may_read = False

    found = list(await diagnosis(feishu).find())

    assert problems(found) == []
    assert "feishu_events_unknown" in [each.text for each in found]


async def test_what_is_in_use_needs_more_scopes_and_events(feishu: FeishuEmulator) -> None:
    async def uses_tables() -> bool:
        return True

    feishu.app.events = ["im.message.receive_v1"]
    deny_scope("bitable:app")(feishu)
    deny_scope("drive:drive")(feishu)
    deny_scope("wiki:wiki:readonly")(feishu)

    without = list(await diagnosis(feishu).find())
    uses_all = replace(diagnosis(feishu), has_tables=uses_tables, makes_documents=True)
    found = list(await uses_all.find())

    assert problems(without) == []
    assert problems(found) == [
        ("feishu_scope", "bitable:app"),
        ("feishu_scope", "drive:drive"),
        ("feishu_table_event", "drive.file.bitable_field_changed_v1"),
        ("feishu_table_event", "drive.file.bitable_record_changed_v1"),
    ]
    (reading,) = (each for each in found if each.text == "feishu_reading")
    assert reading.facts == {"scopes": "wiki:wiki:readonly, bitable:app:readonly"}
