"""The doctor: what its probes are told, and what it repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bot.engine.autonomy.doctor import DoctorService
from storage.records.autonomy import HealthFinding, HealthReport
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


async def examine(probe: Probe, *, fix: bool = False) -> HealthReport:
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
