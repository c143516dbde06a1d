"""A workflow of the gallery is installed, changed on its page, run and rolled back."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx
import pytest
import pytest_asyncio

from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.named_workflows import parse_workflow_text
from bot.engine.workflow.serialization.data_parser import parse_yaml
from bot.engine.workflow.workflow_bundle import list_gallery, read_bundle
from storage.records.people import Language
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.journeys.chat_channels import Channel, feishu, telegram
from tests.journeys.model_world import ModelWorld, fill_form, model_world
from tests.journeys.web_page import open_web_page
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

_NOW = "Your step now: "
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")
_ROUNDS = 3
GALLERY_NAMES = [each.workflow.name for each in list_gallery(Language.ENGLISH)]
GATE = [("telegram", "weekly-digest"), ("feishu", "research"), ("web", "nightly-report")]
_CHANGE = "# Changed on the page.\n"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(home, "openai", SHIFTBOSS_LANGUAGE="en") as made:
        yield made


@dataclass
class Worker:
    """Does the steps of a workflow as a test case says."""

    workflow: Workflow
    outputs: Mapping[str, Any]
    values: Mapping[str, Any]
    _left: dict[str, deque[Any]] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)

    def __call__(self, asked: ReceivedRequest) -> ScriptedReply:
        text = next(each for each in reversed(asked.user_texts) if _NOW in each)
        node = self._node_of(text.rpartition(_NOW)[2])
        files = [file for each in node.deliverables for file in self._names_of(each)]
        if files and node.id not in self._written:
            self._written.add(node.id)
            calls = [
                ScriptedCall(name="write", arguments={"path": each, "content": f"# {each}\n"})
                for each in files
            ]
            return ScriptedReply(calls=calls)
        self._written.discard(node.id)
        given = self.outputs[node.id]
        left = self._left.setdefault(node.id, deque(given if isinstance(given, list) else [given]))
        value = left.popleft() if len(left) > 1 else left[0]
        facts: dict[str, Any] = {"status": "done", "summary": "Done.", "needs_replan": False}
        if isinstance(value, dict):
            facts["output"] = value
        return fill_form(**facts, files=files)(asked)

    def _node_of(self, title: str) -> WorkflowNode:
        fitting = [each for each in self.workflow.nodes if title.startswith(prefix_of(each))]
        return max(fitting, key=lambda each: len(prefix_of(each)))

    def _names_of(self, template: str) -> list[str]:
        for name, value in self.values.items():
            template = template.replace("{{inputs." + name + "}}", str(value))
        count = _ROUNDS if "{{" in template else 1
        return [template.replace("{{index}}", str(n)) for n in range(count)]


def prefix_of(node: WorkflowNode) -> str:
    return node.title.partition("{{")[0]


def longest_words(title: str) -> str:
    return max(_PLACEHOLDER.split(title), key=len).strip()


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        *GATE,
        *(
            pytest.param(channel, name, marks=thorough_only)
            for name, channel in product(GALLERY_NAMES, ("telegram", "feishu", "web"))
            if (channel, name) not in GATE
        ),
    ],
)
async def test_one_is_installed_changed_run_and_rolled_back(
    world: ModelWorld, channel: str, name: str
) -> None:
    if channel == "web":
        async with open_web_page(world.program) as page:

            async def wait(*parts: str) -> str:
                while True:
                    frame = await page.next_frame("", parts[0])
                    if all(each in frame["html"] for each in parts):
                        return str(frame["html"])

            async def asks(part: str) -> None:
                await wait(part, "Approve")

            await use(world, Channel(say=page.send_message, wait=wait, asks=asks), name, channel)
    else:
        await use(world, telegram(world) if channel == "telegram" else feishu(world), name, channel)


async def use(world: ModelWorld, channel: Channel, name: str, place: str) -> None:
    own = f"{name}-{place}"
    item = next(i for i in list_gallery(Language.ENGLISH) if i.workflow.name == name)
    case = parse_yaml(read_bundle(item.document).tests[name])["cases"][0]
    workflow = parse_workflow_text(item.text)
    file = world.program.home / "workflows" / f"{own}.yaml"

    await channel.say(f"/workflow gallery install {name} {own}")
    await channel.wait("is imported", own)
    assert file.read_text(encoding="utf-8") == item.text
    await change_on_page(world, own)
    assert file.read_text(encoding="utf-8") == item.text + _CHANGE

    given = case.get("inputs", {})
    values = {each.name: given.get(each.name, each.default) for each in workflow.inputs}
    world.script.script(_NOW, "step", Worker(workflow, case["outputs"], values))
    project = world.program.home.parent / f"project-{own}"
    project.mkdir()
    for each in ("data.csv", "a.pdf", "b.pdf", "c.pdf"):
        (project / each).write_text("a,b\n1,2\n", encoding="utf-8")
    typed = " ".join(f'{key}="{value}"' for key, value in given.items())
    await channel.say(f"/workflow run {own} -d {project} {typed}")
    await channel.wait(f"Workflow {own}, version 2")
    for step in case["expect"]["path"]:
        node = workflow.nodes_by_id[step.rpartition("/")[2].partition("#")[0]]
        if node.type in {"human", "command"}:
            await channel.asks("cp --" if node.type == "command" else longest_words(node.title))
            await channel.say("/approve")
    await channel.wait("Task finished", item.workflow.title)

    await channel.say(f"/workflow rollback {own} 1")
    await channel.wait("is back, as version 3")
    assert file.read_text(encoding="utf-8") == item.text


async def change_on_page(world: ModelWorld, name: str) -> None:
    """In a browser that is signed in."""
    url = httpx.URL(world.program.address)
    origin = f"http://127.0.0.1:{url.port}"
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as browser:
        await browser.get(url, follow_redirects=True)
        editor = f"{origin}/dashboard/workflows/{name}/edit"
        page = (await browser.get(editor)).text
        hash_ = re.search('name="hash" value="([^"]+)"', page)
        assert hash_ is not None
        text = (world.program.home / "workflows" / f"{name}.yaml").read_text(encoding="utf-8")
        form = {"order": "save", "hash": hash_[1], "text": text + _CHANGE, "reason": "a note"}
        saved = await browser.post(editor, data=form, headers={"origin": origin})
        assert saved.status_code == 303, saved.text
