"""Steps without a model: typed results, what is refused, and what a crash does to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.engine.llm.workspace_files import PathRefusal
from bot.engine.sandbox.process_runner import ExitCause
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.node_runs import VALUES_KEY
from cards.catalog import catalog_for
from storage.records.approvals import ApprovalState, ToolCallState
from storage.records.people import Language
from storage.records.tasks import EventKind, TaskStatus, TaskView
from storage.tools import ToolCallRepo
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.call_world import call_steps_in, recording_site
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    workflow_world,
)
from tests.engine_harness import BOSS, ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 20


def workflow_of(*nodes: str) -> Workflow:
    """Its nodes, one after the other."""
    lines = "\n".join(f"  - {{{node}}}" for node in nodes)
    return parse_workflow_text(f"name: W\nnodes:\n{lines}\nvariables: {{up: ../outside.txt}}")


def make_project(folder: Path, files: Mapping[str, str], links: Mapping[str, str]) -> str:
    project = folder / "project"
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text)
    for name, target in links.items():
        (project / name).symlink_to(target)
    return str(project)


async def live_to_the_end(here: WorkflowWorld, plan: Workflow, project: str) -> TaskView:
    """Everything is allowed; what was interrupted is retried once somebody has looked."""
    made = await here.engine.run_workflow(plan, source="test:once", project_dir=project)
    while True:
        view = await here.engine.views.view(made.id)
        if view.task.status in {TaskStatus.COMPLETED, TaskStatus.FAILED}:
            return view
        if view.task.status is TaskStatus.BLOCKED:
            await here.engine.tasks.retry(view.task, by=BOSS, source=f"again:{view.task.epoch}")
        for each in await here.approvals.list_by_task(made.id):
            if each.state is ApprovalState.WAITING:
                await here.decide(each)
        await asyncio.sleep(0.005)


async def test_calls_give_typed_results_that_later_steps_use(tmp_path: Path) -> None:
    evil = 'a";touch pwned;$(touch pwned)\n'
    quoted = evil.replace('"', '""')
    files = {"data.csv": f'name,n\nsmith,1\n"{quoted}",2\n', "long.csv": "n\n" + "1\n" * 5_001}
    project = make_project(tmp_path, files, {})
    async with recording_site() as site:
        plan = workflow_of(
            "id: table, type: readfile, path: data.csv, format: csv",
            "id: rows, type: readfile, path: long.csv, format: csv",
            "id: lines, type: readfile, path: long.csv, format: lines",
            f"id: ask, type: http, url: '{site.url}/rates?q={{{{outputs.table.value[0].name}}}}'",
            f"id: tell, type: http, url: '{site.url}/new', method: post, body: "
            "{rate: '{{outputs.ask.json.rate}}', of: ['{{outputs.table.value[1].name}}']}",
            "id: count, type: command, command: [sh, -c, 'echo \"$1\"; echo no >&2; exit 3', _, "
            "'{{outputs.table.value[1].name}}'], failOnError: false",
            "id: keep, type: writefile, path: out/sum.json, content: '{{outputs.tell.json}}'",
            "id: end_, name: 'code {{outputs.count.exit_code}}'",
        )
        worker = PacedBackend()
        steps = call_steps_in(tmp_path)
        async with workflow_world(tmp_path, worker, call_steps=steps) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                view = await live_to_the_end(here, plan, project)
            runs = await here.runs(view.task)
            calls = await ToolCallRepo(here.engine.db).list_by_task(view.task.id, 50)
            asked = await here.approvals.list_by_task(view.task.id)

    values = {path: each.output.get(VALUES_KEY, {}) for path, each in runs.items()}
    assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
    sent = json.dumps({"rate": 7, "of": [evil]})
    assert site.requests == ["GET /rates?q=smith", f"POST /new {sent}"]
    cut = {name: values[name]["truncated"] for name in ("table", "rows", "lines")}
    assert cut == {"table": False, "rows": True, "lines": True}
    assert len(values["rows"]["value"]) == len(values["lines"]["value"]) == 5_000
    assert values["ask"]["status"] == 200
    assert values["ask"]["json"] == {"rate": 7, "key": "••••"}
    assert values["ask"]["headers"].keys() == {"content-type", "content-length", "etag"}
    assert values["count"]["stdout"] == f"{evil}\n"
    assert (values["count"]["exit_code"], values["count"]["stderr"]) == (3, "no\n")
    assert not (Path(project) / "pwned").exists()
    assert json.loads((Path(project) / "out/sum.json").read_text())["rate"] == 7
    assert runs["keep"].output["files"]
    assert worker.started_steps == ["code 3"]
    # What may change something beyond the workspace was asked about, with all of it.
    assert [each.path for each in asked] == ["tell", "count"]
    assert asked[0].detail.endswith(sent)
    assert {each.state for each in calls} == {ToolCallState.DONE}
    assert not any(each.suspended for each in calls)


REFUSED = {
    "type: http, url: 'http://127.0.0.1:9000/'": "not on the open internet",
    "type: http, url: 'http://169.254.169.254/latest/meta-data/'": "not on the open internet",
    "type: http, url: 'http://[::1]:8080/', method: post": "not on the open internet",
    "type: http, url: 'http://2130706433:8080/', method: put, body: x": "not on the open internet",
    "type: http, url: 'https://evil.example/'": "Not allowed",
    "type: http, url: 'https://evil.example/', method: post": "Not allowed",
    "type: http, url: 'file:///etc/passwd'": "Not allowed",
    "type: http, url: '{{variables.up.there}}'": "has no value",
    "type: readfile, path: link": "Not allowed",
    "type: readfile, path: secret.txt": "Not allowed",
    "type: readfile, path: alias": "Not allowed",
    "type: readfile, path: big.txt": "too large",
    "type: readfile, path: bad.json, format: json": "is no json",
    "type: readfile, path: '{{variables.up}}'": "Not allowed",
    "type: writefile, path: link, content: x": "Not allowed",
    "type: writefile, path: '{{variables.up}}', content: x": "Not allowed",
    "type: command, command: 'exit 4'": "exit code 4",
    "type: command, command: 'sleep 60', seconds: 1": "longer than 1 s",
}


async def test_what_must_not_be_reached_fails_its_step(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("outside")
    files = {"secret.txt": "s", "big.txt": "x" * 1_000_001, "bad.json": "{"}
    links = {"link": str(outside), "alias": "secret.txt"}
    project = make_project(tmp_path, files, links)
    nodes = [f"id: n{n}, onError: continue, {node}" for n, node in enumerate(REFUSED)]
    steps = call_steps_in(tmp_path, private=())
    async with workflow_world(tmp_path, call_steps=steps) as here:
        async with asyncio.timeout(WAIT_SECONDS):
            view = await live_to_the_end(here, workflow_of(*nodes), project)
        runs = await here.runs(view.task)

    told = {node: runs[f"n{n}"].error for n, node in enumerate(REFUSED)}
    assert {node: text for node, text in told.items() if REFUSED[node] not in text} == {}
    assert outside.read_text() == "outside"


def test_errors_of_calls_are_told_in_both_languages() -> None:
    named = [
        *(f"path_{each}" for each in PathRefusal),
        *(f"stopped_{each}" for each in ExitCause if each is not ExitCause.EXITED),
        *("not_found", "not_public", "no_answer", "slow"),
    ]
    for words in map(catalog_for, Language):
        assert [each for each in named if not words.has(f"workflow.call.{each}")] == []


@pytest.mark.parametrize("nth", range(2, MAX_COMMITS + 1, sampled(1, 4)))
async def test_a_call_that_changes_something_is_not_repeated_after_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    clock, death = ManualClock(), CrashAfterCommit(nth)
    project = make_project(tmp_path, {"in.txt": "7"}, {})
    async with recording_site() as site:
        plan = workflow_of(
            "id: read, type: readfile, path: in.txt",
            "id: run, type: command, command: 'echo once >> log'",
            f"id: tell, type: http, url: '{site.url}/new', method: post, "
            "body: '{{outputs.read}}'",
            "id: keep, type: writefile, path: out.txt, content: '{{outputs.tell.status}}'",
        )
        steps = call_steps_in(tmp_path)
        async with workflow_world(tmp_path, clock=clock, call_steps=steps) as here:
            with monkeypatch.context() as patched:
                death.install(patched)
                await death.run_until_crash(live_to_the_end(here, plan, project))
        async with workflow_world(tmp_path, clock=clock, call_steps=steps) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                view = await live_to_the_end(here, plan, project)
            events = await here.engine.tasks.events(view.task.id, 200)
            asked = await here.approvals.list_by_task(view.task.id)

    assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
    assert (Path(project) / "out.txt").read_text() == "200"
    done = (Path(project) / "log").read_text().count("once") + len(site.requests)
    # What was cut off while it ran was repeated only because somebody said so.
    blocked = sum(each.kind is EventKind.BLOCKED for each in events)
    assert 2 <= done <= 2 + blocked <= 3
    assert all(each.state is ApprovalState.APPROVED for each in asked)
