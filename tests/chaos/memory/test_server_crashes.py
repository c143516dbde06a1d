"""A memory that an external agent stores over MCP: the server dies before and after the commit, the
client repeats the call, and the memory exists once."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.chaos.inspection import read_points, rows, witness_file
from tests.chaos.memory.invariants import MEMORY_INVARIANTS
from tests.chaos.story_run import LAUNCHER
from tests.journeys.program import ShiftbossProcess
from tests.thoroughness import thorough_only

SCOPE = "custom:sea"
CALLS: Mapping[str, Mapping[str, Any]] = {
    "store_memory": {"content": "The harbour crane is driven by hand", "tags": ["crane"]},
    "log_session": {"summary": "We oiled the harbour crane, and its rope is to be changed"},
    "extract_memories": {"conversation": "The lamp of the lighthouse was changed in May"},
}
DEATHS = [
    (name, f"shelf.{'read_through' if name == 'extract_memories' else 'keep'}:{when}:1")
    for name in CALLS
    for when in ("before", "after")
]
_KILLED = -9
_SECONDS = 120.0

pytestmark = thorough_only


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def program_on(home: Path, points: str = "") -> ShiftbossProcess:
    # Extraction is on, so that there are jobs; nobody is there to do them.
    settings = {
        "SHIFTBOSS_LANGUAGE": "en",
        "SHIFTBOSS_MEMORY": "{}",
        "DEADLY_WITNESS": str(witness_file(home)),
        "DEADLY_POINTS": points,
    }
    return ShiftbossProcess(home=home, settings=settings, command=LAUNCHER)


def asked(name: str) -> Mapping[str, Any]:
    params = {"name": name, "arguments": CALLS[name]}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def said(answer: Mapping[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


def by_stdio(home: Path, name: str, points: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [*LAUNCHER, "mcp", "--scope", SCOPE],
        env=program_on(home, points).environment,
        input=f"{json.dumps(asked(name))}\n".encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode()


async def by_http(program: ShiftbossProcess, name: str) -> Mapping[str, Any]:
    url = urlsplit(program.address)
    token = parse_qs(url.query)["token"][0]
    async with httpx.AsyncClient(trust_env=False, timeout=_SECONDS) as client:
        told = await client.post(
            f"http://{url.netloc}/mcp",
            params={"scope": SCOPE},
            headers={"authorization": f"Bearer {token}"},
            json=asked(name),
        )
    answer: Mapping[str, Any] = told.json()
    return answer


def is_there_once(home: Path) -> None:
    kept = rows(home, f"SELECT kind, text FROM memories WHERE scope = '{SCOPE}' ORDER BY number")
    assert kept == [
        ("fact", CALLS["store_memory"]["content"]),
        ("episode", CALLS["log_session"]["summary"]),
        ("cell", CALLS["extract_memories"]["conversation"]),
    ]
    (job,) = rows(home, "SELECT payload FROM memory_jobs WHERE kind = 'extract'")
    assert len(json.loads(job[0])["cells"]) == 1
    assert [e for check in MEMORY_INVARIANTS for e in check(lambda sql: rows(home, sql))] == []
    died = [line.removeprefix("died ") for line in read_points(home) if line.startswith("died ")]
    assert died == [point for _, point in DEATHS]


def test_a_request_repeated_after_a_stdio_server_crash_is_saved_once(home: Path) -> None:
    for name, point in DEATHS:
        assert by_stdio(home, name, point) == (_KILLED, ""), point
        status, answer = by_stdio(home, name)
        assert status == 0
        assert "Kept as memory:" in said(json.loads(answer)), point

    is_there_once(home)


async def test_a_request_repeated_after_a_program_crash_is_saved_once(
    home: Path,
) -> None:
    for name, point in DEATHS:
        program = program_on(home, point)
        await program.start()
        with pytest.raises(httpx.TransportError):
            await by_http(program, name)
        assert await program.wait_for_exit() == _KILLED
        program = program_on(home)
        await program.start()
        assert "Kept as memory:" in said(await by_http(program, name)), point
        await program.stop()

    is_there_once(home)


async def test_a_server_whose_program_crashed_reports_it_or_handles_the_call_itself(
    home: Path,
) -> None:
    """The program works for the server beside it; the server does not die with it."""
    for name, point in DEATHS:
        program = program_on(home, point)
        await program.start()
        status, first = await asyncio.to_thread(by_stdio, home, name)
        assert await program.wait_for_exit() == _KILLED
        answer = json.loads(first)
        assert status == 0
        assert "error" in answer or "Kept as memory:" in said(answer)
        assert "Kept as memory:" in said(
            json.loads((await asyncio.to_thread(by_stdio, home, name))[1])
        )

    is_there_once(home)
