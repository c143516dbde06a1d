"""The doctor: what its probes are told, and what it repairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from bot.config.server_dates import note_response
from bot.engine.autonomy.check import SelfCheck
from bot.engine.autonomy.doctor import (
    CodingCliProbe,
    DoctorService,
    HostProbe,
    ModelCallProbe,
    RemarkProbe,
    describe_backups,
    describe_buttons,
    describe_fonts,
)
from bot.engine.llm.backend import OFFLINE_NAME
from cards.catalog import catalog_for
from storage.records.autonomy import HealthFinding, HealthReport
from storage.records.people import Channel, Language
from storage.records.system import BackendHealth, BackendReport, BackupState, ModelChoice
from tests.builders import NOW, make_person


class NothingFound:
    async def check(self) -> HealthReport:
        return HealthReport(at=NOW, results=())


@dataclass
class Probe:
    """Finds a problem until it is repaired, if a repair helps at all."""

    name: str = "models"
    helps: bool = True
    is_well: bool = field(default=False, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        facts: dict[str, str | int] = {"detail": "no such key: sk-secret", "n": 1}
        wrong = HealthFinding(text="model_refuses", points=30, facts=facts, repair="mend")
        return () if self.is_well else (wrong,)

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        self.is_well = self.helps
        return 1


async def examine(probe: SelfCheck, *, fix: bool = False) -> HealthReport:
    doctor = DoctorService(
        self_check=cast("Any", NothingFound()),
        probes=lambda _by: (probe,),
        key_values=cast("Any", None),
        mask=lambda text: text.replace("sk-secret", "***"),
        now=lambda: NOW,
    )
    return await doctor.examine(by=make_person(), fix=fix)


async def test_secrets_in_what_a_service_says_are_hidden() -> None:
    (result,) = (await examine(Probe())).results

    assert result.findings[0].facts == {"detail": "no such key: ***", "n": 1}


async def test_only_repairs_that_helped_are_told() -> None:
    helped = await examine(Probe(), fix=True)
    in_vain = await examine(Probe(helps=False), fix=True)

    assert [each.repair for each in helped.repairs] == ["mend"]
    assert not helped.results[0].findings
    assert not in_vain.repairs
    assert in_vain.results[0].findings


@dataclass
class Calling:
    """A probe that calls services whose clocks are off by these seconds."""

    offsets: Mapping[str, float | None]
    unreachable: bool = False
    name: str = "telegram"

    async def find(self) -> Sequence[HealthFinding]:
        def answer(request: httpx.Request) -> httpx.Response:
            off = self.offsets[request.url.host]
            at = "no date" if off is None else datetime.now(UTC) - timedelta(seconds=off)
            date = at if isinstance(at, str) else format_datetime(at, usegmt=True)
            return httpx.Response(200, headers={"date": date})

        transport, hooks = httpx.MockTransport(answer), {"response": [note_response]}
        async with httpx.AsyncClient(transport=transport, event_hooks=hooks) as client:
            for host in self.offsets:
                await client.get(f"https://{host}/")
        return [HealthFinding(text="telegram_unreachable", points=40)] if self.unreachable else ()


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ({"a.example": 0.0}, {"network_answers", "clock_right"}),
        ({"a.example": 3_600.0}, {"network_answers", "clock_fast"}),
        ({"a.example": -3_600.0}, {"network_answers", "clock_slow"}),
        ({"a.example": 3_600.0, "b.example": 1.0}, {"network_answers", "clock_right"}),
        ({"a.example": None}, {"network_answers"}),
        ({"127.0.0.1": 3_600.0}, set()),
    ],
)
async def test_the_clock_is_compared_with_those_that_answer(
    offsets: Mapping[str, float | None], found: set[str]
) -> None:
    report = await examine(Calling(offsets))

    assert {each.text for result in report.results for each in result.findings} == found


async def test_a_network_without_answers_is_told() -> None:
    report = await examine(Calling({"127.0.0.1": 0.0}, unreachable=True))

    texts = [each.text for result in report.results for each in result.findings]
    assert texts == ["telegram_unreachable", "network_silent"]


class Raising:
    name = "telegram"

    async def find(self) -> Sequence[HealthFinding]:
        raise RuntimeError("planted")


async def no_proof(key: str) -> None:
    return None


async def broken_cli(name: str) -> BackendReport:
    broken = BackendHealth(name=name, problem="backend.cli_garbage", is_cli=True)
    return BackendReport(backends=(broken,), default=name)


def no_model() -> SelfCheck:
    offline = ModelChoice(backend=OFFLINE_NAME, model="")
    return ModelCallProbe(
        gateway=cast("Any", None),
        db=cast("Any", None),
        choices=lambda: (offline,),
        account=cast("Any", None),
        is_api=lambda _: False,
    )


def no_press() -> SelfCheck:
    store = cast("Any", SimpleNamespace(get=no_proof))
    read = partial(describe_buttons, store, Channel.TELEGRAM, lambda: NOW)
    return RemarkProbe(name="telegram", read=read)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (Raising, "check_raised"),
        (no_model, "model_none"),
        (no_press, "buttons_unproven"),
        (lambda: CodingCliProbe(report=broken_cli, in_use=lambda: ("codex",)), "cli_fails"),
    ],
)
async def test_a_planted_fault_is_found(plant: Callable[[], SelfCheck], found: str) -> None:
    report = await examine(plant())

    assert [each.text for each in report.results[0].findings] == [found]


@pytest.mark.parametrize(("is_on", "found"), [(True, "backup_none"), (False, None)])
async def test_backups_without_a_first_one_are_not_called_fine(
    *, is_on: bool, found: str | None
) -> None:
    async def read_state() -> BackupState:
        return BackupState(is_on=is_on)

    findings = await describe_backups(read_state, 24, lambda: NOW)

    assert [each.text for each in findings] == ([found] if found else [])
    for language in Language:
        for each in findings:
            assert "24" in catalog_for(language)(f"self.found.{each.text}", **each.facts)


async def test_a_machine_without_git_and_an_open_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "shiftboss.db").touch(0o644)
    tmp_path.chmod(0o700)

    report = await examine(HostProbe(home=tmp_path, version="1"))

    told = [each.text for each in report.results[0].findings]
    assert told == ["versions", "home_readable", "git_missing"]


async def test_a_missing_chinese_font_is_told_with_what_to_install() -> None:
    (found,) = await describe_fonts(lambda: False)

    for language in Language:
        words = catalog_for(language)
        assert "svg" in words(f"self.found.{found.text}").lower()
        assert "fonts-noto-cjk" in words(f"self.next.{found.text}")
    assert await describe_fonts(lambda: True) == ()
