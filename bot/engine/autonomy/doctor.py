"""The doctor: the self-check, and probes that reach out: models, coding CLIs, platforms."""

from __future__ import annotations

import asyncio
import platform
import shutil
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from bot.config.server_dates import ServerDate, collect_server_dates
from bot.engine.agent.model_calls import ModelRequest
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.autonomy.check import BlockingWork, SelfCheck, repair_findings, run_check
from bot.engine.autonomy.self_check import SelfCheckService
from bot.engine.llm.backend import (
    OFFLINE_NAME,
    BackendError,
    BudgetExceeded,
    RunLimits,
    RunPurpose,
    WorkerMode,
)
from bot.engine.memory.ports import EmbeddingFailed, TextEmbedder
from bot.engine.sandbox.spec import Sandbox
from bot.engine.workers.spec import CostAccount
from storage.db import Database
from storage.key_value import KeyValueStore
from storage.records.autonomy import CheckResult, HealthFinding, HealthReport
from storage.records.people import Channel, Language, Person
from storage.records.processes import ProcessSituation, WaitingHome
from storage.records.system import BackendHealth, BackendReport, BackupState, ModelChoice

_PROBE_SECONDS = 45.0
_CALL_LIMITS = RunLimits(turns=1, output_tokens=200, seconds=30.0)
_PROMPT = "Reply with the single word OK."
_PRIVATE = 0o077
_CLOCK_TOLERANCE = 60.0
_MAX_HOSTS = 200
_UNREACHABLE = {"telegram_unreachable", "feishu_unreachable"}
MAKE_PRIVATE = "make_private"


@dataclass(kw_only=True, eq=False)
class DoctorService:
    """Implements handlers.ports_autonomy.DoctorPort. `probes` may call models and platforms, and
    cost a little; `mask` hides secrets in what they are told."""

    self_check: SelfCheckService
    probes: Callable[[Person], Sequence[SelfCheck]]
    key_values: KeyValueStore
    mask: Callable[[str], str]
    now: Callable[[], datetime]
    seconds: float = _PROBE_SECONDS

    async def examine(self, *, by: Person, fix: bool) -> HealthReport:
        """One result for each subject: the self-check's findings and those of the probes."""
        probes = self.probes(by)
        report = await self.self_check.check()
        with collect_server_dates() as dates:
            probed = await asyncio.gather(
                *(run_check(each, seconds=self.seconds) for each in probes)
            )
        repairs = list(report.repairs)
        if fix:
            for at, (probe, result) in enumerate(zip(probes, probed, strict=True)):
                probed[at], helped = await repair_findings(probe, result, seconds=self.seconds)
                repairs += helped
        results: dict[str, CheckResult] = {}
        for each in (*report.results, *probed, *_describe_answers(dates, probed)):
            known = results.get(each.name, CheckResult(name=each.name))
            results[each.name] = CheckResult(
                name=each.name,
                findings=(
                    *known.findings,
                    *(mask_facts(found, self.mask) for found in each.findings),
                ),
                is_complete=known.is_complete and each.is_complete,
            )
        return HealthReport(at=self.now(), results=list(results.values()), repairs=repairs)

    async def record_press(self, channel: Channel, milliseconds: int) -> None:
        """Record that button presses on this channel arrive."""
        at = self.now().isoformat()
        await self.key_values.put(_press_key(channel), {"at": at, "ms": milliseconds})


def _describe_answers(
    dates: Sequence[ServerDate], probed: Sequence[CheckResult]
) -> Sequence[CheckResult]:
    """Check the network, and the clock against those of the services that the probes have reached.
    A service on this machine shares the clock and needs no network."""
    far = [each for each in dates if not _is_here(each.host)]
    texts = {found.text for result in probed for found in result.findings}
    if not far:
        silent = HealthFinding(text="network_silent", points=20)
        return [CheckResult(name="network", findings=(silent,))] if texts & _UNREACHABLE else ()
    hosts = ", ".join(dict.fromkeys(each.host for each in far))
    answers = HealthFinding(text="network_answers", points=0, facts={"hosts": hosts[:_MAX_HOSTS]})
    results = [CheckResult(name="network", findings=(answers,))]
    told = [(each.ahead, each.host) for each in far if each.ahead is not None]
    if told:
        # One service may be wrong, and an answer may be from a cache: the nearest counts.
        ahead, host = min(told, key=lambda each: abs(each[0]))
        facts: dict[str, str | int] = {"host": host, "seconds": round(abs(ahead))}
        text = "clock_right"
        if abs(ahead) > _CLOCK_TOLERANCE:
            text = "clock_fast" if ahead > 0 else "clock_slow"
        clock = HealthFinding(text=text, points=0 if text == "clock_right" else 25, facts=facts)
        results.append(CheckResult(name="clocks", findings=(clock,)))
    return results


def _is_here(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def mask_facts(finding: HealthFinding, mask: Callable[[str], str]) -> HealthFinding:
    """Mask secrets in facts: a service may repeat the key in its refusal."""
    facts = {k: mask(v) if isinstance(v, str) else v for k, v in finding.facts.items()}
    return replace(finding, facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallProbe:
    """Makes a real call to each model API in use. It is charged to `account`, against its caps."""

    name = "models"

    gateway: ModelGateway
    db: Database
    choices: Callable[[], Collection[ModelChoice]]
    account: CostAccount
    is_api: Callable[[ModelChoice], bool]

    async def find(self) -> Sequence[HealthFinding]:
        if all(each.backend == OFFLINE_NAME for each in self.choices()):
            return [HealthFinding(text="model_none", points=5)]
        return await asyncio.gather(
            *(self._call(each) for each in self.choices() if self.is_api(each))
        )

    async def _call(self, choice: ModelChoice) -> HealthFinding:
        try:
            chosen = self.gateway.select_backend(choice.model, choice.backend)
            if chosen.instead_of:
                return _refused(choice, chosen.fallback_reason)
            key = f"doctor:{choice.name}"
            begun = time.monotonic()
            session = await self.gateway.open_session(key, chosen)
            try:
                reply = await self.gateway.call_model(self._request(), chosen, session)
                milliseconds = round((time.monotonic() - begun) * 1000)
                async with self.db.write() as tx:
                    await self.gateway.record_reply(tx, reply)
            finally:
                await self.gateway.close_session(key)
        except BudgetExceeded:
            return HealthFinding(text="model_capped", subject=choice.name, points=5)
        except BackendError as error:
            return _refused(choice, error.hint, error.answer[:200])
        facts: dict[str, str | int] = {"model": choice.label, "ms": milliseconds}
        return HealthFinding(text="model_answers", subject=choice.name, points=0, facts=facts)

    def _request(self) -> ModelRequest:
        return ModelRequest(
            purpose=RunPurpose.CHECK,
            prompt=_PROMPT,
            system_prompt="",
            language=Language.ENGLISH,
            account=self.account,
            facts={"text": _PROMPT},
            limits=_CALL_LIMITS,
            mode=WorkerMode.REVIEW,
        )


def _refused(choice: ModelChoice, reason_key: str, detail: str = "") -> HealthFinding:
    facts = {"model": choice.label, "reason_key": reason_key, "detail": detail}
    text = "model_refuses_with" if detail else "model_refuses"
    return HealthFinding(text=text, subject=choice.name, points=30, facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingCliProbe:
    """Starts each coding CLI in use and asks for its version. `report` starts the one it names."""

    name = "models"

    report: Callable[[str], Awaitable[BackendReport | None]]
    in_use: Callable[[], Collection[str]]

    async def find(self) -> Sequence[HealthFinding]:
        found = [await self.report(name) for name in dict.fromkeys(self.in_use())]
        return [_cli_finding(each) for one in found if one for each in one.backends if each.is_cli]


def _cli_finding(health: BackendHealth) -> HealthFinding:
    facts = {**health.facts, "model": health.name}
    if health.problem:
        facts["reason_key"] = health.problem
        return HealthFinding(text="cli_fails", subject=health.name, points=30, facts=facts)
    facts["version"] = health.version or "-"
    return HealthFinding(text="cli_works", subject=health.name, points=0, facts=facts)


@dataclass(kw_only=True, eq=False)
class HostProbe:
    """Checks who may read the data directory, and reports the versions in use."""

    name = "version"

    home: Path
    version: str

    def __post_init__(self) -> None:
        self._work = BlockingWork()

    async def find(self) -> Sequence[HealthFinding]:
        return await self._work.run(self._look)

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        def make_private() -> int:
            open_ = self._list_open()
            for each in open_:
                each.chmod(each.stat().st_mode & ~_PRIVATE)
            return len(open_)

        return await self._work.run(make_private)

    def _look(self) -> Sequence[HealthFinding]:
        facts: dict[str, str | int] = {
            "version": self.version,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        }
        found = [HealthFinding(text="versions", points=0, facts=facts)]
        if open_ := self._list_open():
            names: dict[str, str | int] = {"n": len(open_), "first": open_[0].name}
            found.append(
                HealthFinding(text="home_readable", points=20, facts=names, repair=MAKE_PRIVATE)
            )
        if shutil.which("git") is None:
            found.append(HealthFinding(text="git_missing", points=10))
        return found

    def _list_open(self) -> Sequence[Path]:
        """The data directory and the entries of its first level, if others may read them."""
        places = (self.home, *sorted(self.home.iterdir()))
        return [
            each
            for each in places
            if not each.is_symlink() and stat.S_IMODE(each.stat().st_mode) & _PRIVATE
        ]


@dataclass(kw_only=True, eq=False)
class RemarkProbe:
    """Describes the sandbox, the disk and the backups where they are in order."""

    name: str
    read: Callable[[], Awaitable[Sequence[HealthFinding]]]

    async def find(self) -> Sequence[HealthFinding]:
        return await self.read()


async def describe_sandbox(detect: Callable[[], Awaitable[Sandbox]]) -> Sequence[HealthFinding]:
    sandbox = await detect()
    if not sandbox.kind.confines:
        return ()
    facts = {
        "kind": sandbox.kind.value,
        "program": str(sandbox.program or "-"),
        "limits_key": f"doctor.limits.{sandbox.limits.enforcement.value}",
    }
    return [HealthFinding(text=f"sandbox_{sandbox.kind.value}", points=0, facts=facts)]


async def describe_backups(
    state: Callable[[], Awaitable[BackupState]], every_hours: float, now: Callable[[], datetime]
) -> Sequence[HealthFinding]:
    backups = await state()
    last = backups.last_at
    if last is None:
        facts = {"hours": f"{every_hours:g}"}
        return [HealthFinding(text="backup_none", points=0, facts=facts)] if backups.is_on else ()
    hours = max(0, int((now() - last).total_seconds() // 3600))
    if not hours:
        return [HealthFinding(text="backup_new", points=0)]
    return [HealthFinding(text="backup_age", points=0, facts={"hours": hours})]


async def describe_disk(free_bytes: Callable[[], int]) -> Sequence[HealthFinding]:
    free = await asyncio.to_thread(free_bytes)
    return [HealthFinding(text="disk_free", points=0, facts={"free_bytes": free})]


async def describe_fonts(has_chinese: Callable[[], bool]) -> Sequence[HealthFinding]:
    """Without a font for them, drawings with Chinese characters have no picture."""
    if await asyncio.to_thread(has_chinese):
        return ()
    return [HealthFinding(text="font_missing", points=5)]


async def describe_process_clocks(
    list_processes: Callable[[], Awaitable[Sequence[ProcessSituation]]],
) -> Sequence[HealthFinding]:
    """Name the machines whose clocks differ from the store's, which all of them use."""
    return [
        HealthFinding(
            text="machine_clock_fast" if ahead > 0 else "machine_clock_slow",
            points=10,
            facts={"name": each.process.name, "seconds": round(abs(ahead))},
        )
        for each in await list_processes()
        if abs(ahead := each.process.clock_ahead.total_seconds()) >= _CLOCK_TOLERANCE
    ]


_TEXTS_OF_WAITING = {
    "silent": "forget_when_back",
    "fails": "forget_fails",
    "store": "forget_in_store",
}


async def describe_waiting_homes(
    list_waiting: Callable[[], Awaitable[Sequence[WaitingHome]]], now: Callable[[], datetime]
) -> Sequence[HealthFinding]:
    """Name the places that still have what must be forgotten."""
    return [
        HealthFinding(
            text=_TEXTS_OF_WAITING[each.fault(now())],
            points=15,
            facts={
                "place": each.place,
                "n": each.erasures,
                "hours": int((now() - each.asked_at).total_seconds() // 3600),
            },
        )
        for each in await list_waiting()
    ]


async def describe_embeddings(embedder: TextEmbedder | None) -> Sequence[HealthFinding]:
    """Test the embedding model with one word; empty without one."""
    if embedder is None:
        return ()
    begun = time.monotonic()
    try:
        await embedder.embed(["OK"])
    except EmbeddingFailed as error:
        facts: dict[str, str | int] = {"model": embedder.model, "detail": str(error)}
        return [HealthFinding(text="embeds_not", points=10, facts=facts)]
    facts = {"model": embedder.model, "ms": round((time.monotonic() - begun) * 1000)}
    return [HealthFinding(text="embeds", points=0, facts=facts)]


async def describe_buttons(
    key_values: KeyValueStore, channel: Channel, now: Callable[[], datetime]
) -> Sequence[HealthFinding]:
    """Whether a press on a card of this channel has ever arrived; the doctor's own button proves
    it."""
    proof = await key_values.get(_press_key(channel))
    if proof is None:
        facts: dict[str, str | int] = {"channel_key": f"channel.{channel}"}
        return [HealthFinding(text="buttons_unproven", subject=channel, points=5, facts=facts)]
    days = max(0, (now() - datetime.fromisoformat(proof["at"])).days)
    facts = {"ms": int(proof["ms"]), "days": days}
    return [HealthFinding(text="buttons_proven", subject=channel, points=0, facts=facts)]


def _press_key(channel: Channel) -> str:
    return f"doctor:press:{channel}"
