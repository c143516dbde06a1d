"""An app made by a scanned code, against the emulated accounts service."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bot.transports.feishu.api import build_http_client
from bot.transports.feishu.diagnosis import FeishuDiagnosis
from bot.transports.feishu.registration import (
    APP_CALLBACKS,
    APP_EVENTS,
    APP_SCOPES,
    FeishuRegistration,
    RegisteredApp,
    RegistrationCode,
    RegistrationFailed,
    RegistrationOutcome,
    accounts_domain,
)
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut
from tests.emulators.feishu.registration import PATH


@pytest.fixture
async def lark() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator("cli_lark", "lark-secret", is_lark=True) as emulator:
        yield emulator


class RegistrationHarness:
    """Both platforms, and pauses in which nothing but the platforms' time passes. `on_pause` is
    called in each."""

    def __init__(self, fs: FeishuEmulator, lark: FeishuEmulator) -> None:
        self.fs = fs
        self.lark = lark
        self.pauses: list[float] = []
        self.on_pause: Callable[[], object] = lambda: None
        self.url = ""

    async def run(self, flow: Callable[[FeishuRegistration], Awaitable[Any]]) -> Any:
        self.fs.registration.share_codes_with(self.lark.registration)
        async with build_http_client(self.fs.domain) as client:
            return await flow(
                FeishuRegistration(
                    client=client,
                    domain=self.fs.domain,
                    lark_domain=self.lark.domain,
                    sleep=self._sleep,
                    now=self.fs.clock.now,
                )
            )

    async def register(self) -> RegisteredApp:
        async def flow(registration: FeishuRegistration) -> RegisteredApp:
            code = await registration.begin()
            self.url = code.url
            return await registration.wait(code)

        app: RegisteredApp = await self.run(flow)
        return app

    async def begin(self) -> RegistrationCode:
        code: RegistrationCode = await self.run(lambda registration: registration.begin())
        return code

    async def fail(self) -> RegistrationFailed:
        with pytest.raises(RegistrationFailed) as caught:
            await self.register()
        return caught.value

    def scan(self, *, on: FeishuEmulator | None = None) -> None:
        self.fs.registration.scan(self.url, (on or self.fs).user("Boss"), on=on)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        for each in (self.fs, self.lark):
            each.advance(seconds)
        self.on_pause()
        await asyncio.sleep(0)


@pytest.fixture
def harness(fs: FeishuEmulator, lark: FeishuEmulator) -> RegistrationHarness:
    return RegistrationHarness(fs, lark)


async def test_the_app_of_whoever_scans_the_code_is_returned(
    harness: RegistrationHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fs = harness.fs
    harness.on_pause = harness.scan

    app = await harness.register()

    assert (app.app_id, app.app_secret, app.domain) == (fs.app_id, fs.app_secret, fs.domain)
    assert app.open_id == fs.user("Boss").open_id
    assert harness.pauses == [5]
    device_code = fs.registration.newest.device_code
    told = caplog.text + repr(app) + repr(await harness.begin())
    assert "device-code" not in told
    assert device_code not in told
    assert fs.app_secret not in told


async def test_the_page_asks_for_all_that_the_doctor_wants_to_see(
    harness: RegistrationHarness,
) -> None:
    harness.on_pause = harness.scan
    app = await harness.register()
    diagnosis = FeishuDiagnosis(
        app_id=app.app_id,
        app_secret=app.app_secret,
        domain=app.domain,
        quota=lambda: (0, 0),
        on_call=lambda: None,
    )

    found = [each.text for each in await diagnosis.find()]
    # Reading linked documents is for those who want it: its scopes are not asked of everyone.
    assert found == ["feishu_connects", "feishu_reading"]


async def test_a_tenant_of_lark_gets_its_secret_from_lark(harness: RegistrationHarness) -> None:
    lark = harness.lark
    harness.on_pause = lambda: harness.scan(on=lark)

    app = await harness.register()

    assert (app.app_id, app.app_secret, app.domain) == (lark.app_id, lark.app_secret, lark.domain)
    assert app.open_id == lark.user("Boss").open_id
    assert [form["action"] for form in lark.registration.forms] == ["poll"]


async def test_whoever_is_told_to_slow_down_asks_five_seconds_later_from_then_on(
    harness: RegistrationHarness,
) -> None:
    def on_pause() -> None:
        if len(harness.pauses) == 1:
            harness.fs.advance(-4)  # too early for the platform
        elif len(harness.pauses) == 4:
            harness.scan()

    harness.on_pause = on_pause
    await harness.register()

    assert harness.pauses == [5, 10, 10, 10]


@pytest.mark.parametrize(
    ("plant", "outcome"),
    [
        (lambda fs: fs.registration.deny(fs.registration.newest), RegistrationOutcome.DENIED),
        (lambda fs: fs.advance(600), RegistrationOutcome.EXPIRED),
        (lambda fs: fs.registration.codes.clear(), RegistrationOutcome.USED),
    ],
)
async def test_a_code_that_gives_no_app_ends_the_waiting(
    harness: RegistrationHarness,
    plant: Callable[[FeishuEmulator], None],
    outcome: RegistrationOutcome,
) -> None:
    harness.on_pause = lambda: plant(harness.fs)

    failed = await harness.fail()

    assert failed.outcome is outcome


async def test_waiting_ends_with_the_code_even_if_nobody_answers(
    harness: RegistrationHarness,
) -> None:
    fs = harness.fs

    async def flow(registration: FeishuRegistration) -> None:
        code = await registration.begin()
        fs.inject_fault("POST", PATH, times=10_000, cut=ConnectionCut.BEFORE)
        await registration.wait(code)

    with pytest.raises(RegistrationFailed) as caught:
        await harness.run(flow)

    assert caught.value.outcome is RegistrationOutcome.EXPIRED
    assert sum(harness.pauses) < fs.registration.lifetime + 31
    assert len(harness.pauses) < 40, "it asks less often, the longer it gets no answer"


@pytest.mark.parametrize(
    "fault",
    [
        {"cut": ConnectionCut.BEFORE},
        {"raw": b"<html>bad gateway</html>", "status": 502},
        {"raw": b"[]", "status": 200},
        {"raw": b'{"error":"server_error"}', "status": 503},
    ],
)
async def test_a_request_without_an_answer_is_repeated(
    harness: RegistrationHarness, fault: dict[str, Any]
) -> None:
    fs = harness.fs
    planted = False

    def on_pause() -> None:
        nonlocal planted
        if not planted:
            planted = True
            fs.inject_fault("POST", PATH, **fault)
            harness.scan()

    harness.on_pause = on_pause
    app = await harness.register()

    assert app.app_secret == fs.app_secret
    assert harness.pauses == [5, 10]


@pytest.mark.parametrize(
    "told",
    [
        {"error": "unsupported", "error_description": "x" * 1000},
        {"error": ["a", "list"]},
        {"client_id": "cli_x\nSHIFTBOSS_OWNERS=telegram:6", "client_secret": "good"},
        {"client_id": "cli_x", "client_secret": "two\nlines"},
        {"client_id": "cli_x", "client_secret": ["list"]},
        {"client_id": None, "client_secret": "good"},
        {"user_info": "text"},
        {},
    ],
)
async def test_an_answer_that_cannot_be_used_is_refused(
    harness: RegistrationHarness, told: dict[str, Any]
) -> None:
    fs = harness.fs
    harness.on_pause = lambda: fs.inject_fault(
        "POST", PATH, raw=json.dumps(told).encode(), status=400
    )

    failed = await harness.fail()

    assert failed.outcome is RegistrationOutcome.REFUSED
    assert len(failed.reason) <= 200


async def test_a_stranger_is_no_owner_of_anything(harness: RegistrationHarness) -> None:
    told = {
        "client_id": "cli_x",
        "client_secret": "good",
        "user_info": {"open_id": "ou_x,telegram:666"},
    }
    fs = harness.fs
    fault = {"raw": json.dumps(told).encode(), "status": 200}
    harness.on_pause = lambda: fs.inject_fault("POST", PATH, **fault)

    assert (await harness.register()).open_id == ""


@pytest.mark.parametrize(
    "told",
    [
        {"error": "invalid_request"},
        {"device_code": "x"},
        {"device_code": "x", "verification_uri_complete": "javascript:alert(1)"},
        {"device_code": "", "verification_uri_complete": "https://open.feishu.cn/page"},
    ],
)
async def test_a_platform_that_gives_no_code_is_told_from_one_that_is_away(
    harness: RegistrationHarness, told: dict[str, Any]
) -> None:
    fs = harness.fs
    offer = b'{"supported_auth_methods":["client_secret"]}'
    fs.inject_fault("POST", PATH, raw=offer, status=200)
    fs.inject_fault("POST", PATH, raw=json.dumps(told).encode(), status=200)

    refused = await harness.fail()
    fs.inject_fault("POST", PATH, cut=ConnectionCut.BEFORE)
    away = await harness.fail()
    fs.registration.methods = ["private_key"]
    unsupported = await harness.fail()

    assert refused.outcome is RegistrationOutcome.REFUSED
    assert away.outcome is RegistrationOutcome.UNREACHABLE
    assert unsupported.outcome is RegistrationOutcome.REFUSED


async def test_odd_intervals_and_lifetimes_are_not_believed(harness: RegistrationHarness) -> None:
    fs = harness.fs
    fs.registration.interval, fs.registration.lifetime = -1, 10**9

    code = await harness.begin()

    assert (code.interval, code.lifetime) == (5, 3600)


@pytest.mark.parametrize(
    ("domain", "accounts"),
    [
        ("https://open.feishu.cn", "https://accounts.feishu.cn"),
        ("https://open.larksuite.com/", "https://accounts.larksuite.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_the_accounts_service_stands_beside_the_open_platform(domain: str, accounts: str) -> None:
    assert accounts_domain(domain) == accounts


def test_the_guide_names_all_that_an_app_by_hand_needs() -> None:
    guide = Path("docs/feishu.md").read_text(encoding="utf-8")

    assert [each for each in (*APP_SCOPES, *APP_EVENTS, *APP_CALLBACKS) if each not in guide] == []


@pytest.fixture
def sdk() -> Iterator[ModuleType]:
    """The SDK's own flow, without all that its package loads."""
    added = []
    for name in ("lark_oapi", "lark_oapi.scene"):
        if name not in sys.modules:
            spec = find_spec(name)
            assert spec is not None
            module = ModuleType(name)
            module.__path__ = list(spec.submodule_search_locations or ())
            sys.modules[name] = module
            added.append(name)
    try:
        yield importlib.import_module("lark_oapi.scene.registration")
    finally:
        for name in added:
            del sys.modules[name]


async def test_the_code_and_the_requests_are_those_of_the_sdk(
    harness: RegistrationHarness, sdk: ModuleType
) -> None:
    fs, shown = harness.fs, list[str]()
    addons = {
        "scopes": {"tenant": list(APP_SCOPES)},
        "events": {"items": {"tenant": list(APP_EVENTS)}},
        "callbacks": {"items": list(APP_CALLBACKS)},
    }

    def scan(info: dict[str, Any]) -> None:
        shown.append(info["url"])
        fs.registration.scan(info["url"], fs.user("Boss"))

    preset = {"name": "Shiftboss"}
    told = await sdk.aregister_app(
        scan, domain=fs.domain, source="shiftboss", app_preset=preset, addons=addons
    )
    of_sdk = fs.registration.forms.copy()
    fs.registration.forms.clear()
    harness.on_pause = harness.scan
    app = await harness.register()

    assert (told["client_id"], told["client_secret"]) == (app.app_id, app.app_secret)
    assert harness.url.replace("USER-0002", "USER-0001") == shown[0]
    assert [form.keys() for form in fs.registration.forms[:3]] == [form.keys() for form in of_sdk]
