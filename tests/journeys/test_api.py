"""A program drives the real Shiftboss by its HTTP API, and a browser signs in by a link."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.journeys.program import running_program
from tests.waiting import WAIT_SECONDS, wait_until

API = "/api/v1"
GATE = """\
name: Gate
inputs:
  - {name: n, title: How many, type: number}
nodes:
  - {id: ok, type: human, name: "Is {{inputs.n}} enough?"}
  - {id: twice, type: script, script: {expression: "inputs.n * 2", outputVar: twice}}
edges:
  - {from: ok, to: twice}
outputs: {twice: variables.twice}
"""


class Follower:
    """Reads the stream of events, and asks for the rest of it after a restart."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.last_id = "0"
        self.opened = asyncio.Event()

    async def follow(self, api: httpx.AsyncClient, kind: str) -> None:
        headers = {"last-event-id": self.last_id}
        async with (
            asyncio.timeout(WAIT_SECONDS),
            api.stream("GET", f"{API}/events", headers=headers) as stream,
        ):
            self.opened.set()
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    self.last_id = line.removeprefix("id: ")
                if line.startswith("data: "):
                    self.seen.append(json.loads(line.removeprefix("data: ")))
                    if self.seen[-1]["kind"] == kind:
                        return


def client(address: str) -> httpx.AsyncClient:
    url, _, token = address.partition("/?token=")
    headers = {"authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=WAIT_SECONDS)


async def test_a_program_runs_approves_and_reads_over_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workflows").mkdir(parents=True)
    (home / "workflows" / "gate.yaml").write_text(GATE)
    async with running_program(home) as program:
        followed, key = Follower(), {"idempotency-key": "the gate"}
        async with client(program.address) as api:
            run = {"inputs": {"n": "21"}}
            first = await api.post(f"{API}/workflows/gate/runs", json=run, headers=key)
            await followed.follow(api, "waiting")
        await program.kill()
        await program.start()

        async with client(program.address) as api:
            again = await api.post(f"{API}/workflows/gate/runs", json=run, headers=key)
            (asked,) = (await api.get(f"{API}/approvals")).json()["approvals"]
            decision = f"{API}/approvals/{asked['id']}/decision"
            decided = await api.post(decision, json={"approve": True})
            await followed.follow(api, "completed")
            task = (await api.get(f"{API}/tasks/{first.json()['id']}")).json()
            said = await api.post("/api/say", json={"text": "/dashboard", "quiet": True})
            link = re.findall(r"http\S+/sign-in/[\w-]+", said.text)[0]
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as browser:
                origin = str(api.base_url).rstrip("/")
                await browser.post(link, headers={"origin": origin})
                home_page = await browser.get(f"{origin}/dashboard")
            followed.opened.clear()
            open_stream = asyncio.create_task(followed.follow(api, "never"))
            await followed.opened.wait()
            # An owner changes what waits for a restart, and restarts it.
            changes = {"changes": {"SHIFTBOSS_QUEUE": "wait"}}
            changed = (await api.patch(f"{API}/settings", json=changes)).json()
            pid, starts = program.pid, program.printed.count("is ready")
            assert (await api.post(f"{API}/settings/restart")).status_code == 202
            await asyncio.wait([open_stream])
            open_stream.exception()
        await wait_until(lambda: program.printed.count("is ready") > starts)
        async with client(program.address) as api:
            settings = (await api.get(f"{API}/settings")).json()["settings"]
        (queue,) = [each for each in settings if each["name"] == "SHIFTBOSS_QUEUE"]
        assert program.pid == pid
        status = await program.stop()

    assert changed["waiting"] == ["SHIFTBOSS_QUEUE"]
    assert (queue["value"], queue["waits"]) == ("wait", False)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert "Is 21 enough?" in asked["title"]
    assert decided.json()["state"] == "approved"
    assert task["task"]["status"] == "completed"
    assert "42" in task["task"]["summary"]
    ids = [each["id"] for each in followed.seen]
    assert ids == sorted(set(ids))
    assert home_page.status_code == 200
    assert status == 0
    assert "Traceback" not in program.printed
