"""/steps, /diff and /rerun: what they show, and how changes are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.model import ImageBlock
from handlers.request import Reply
from handlers.task_runs import parse_rerun
from storage.records.tasks import NodeStatus, TaskStatus
from tests.builders import make_step, make_task, make_view
from tests.handlers.router_harness import RouterHarness, text_of

_QUOTED = {"ok": "true", "result": 'x=1 "y"'}
FAILED = make_task("3k9xyz", status=TaskStatus.FAILED)


@pytest.mark.parametrize(
    ("text", "node", "inputs", "outputs"),
    [
        ("fix", "fix", {}, {}),
        ("each[2]/read#2", "each[2]/read#2", {}, {}),
        ("Write it topic=two words n=3", "Write it", {"topic": "two words", "n": "3"}, {}),
        (r'fix a-b.ok=true a-b.result="x=1 \"y\""', "fix", {}, {"a-b": _QUOTED}),
        ("审阅 主题=猫", "审阅", {"主题": "猫"}, {}),
    ],
)
def test_changes_stand_behind_the_node(
    text: str, node: str, inputs: dict[str, str], outputs: dict[str, dict[str, str]]
) -> None:
    wanted, changes = parse_rerun(text)

    assert (wanted, dict(changes.inputs), dict(changes.outputs)) == (node, inputs, outputs)


async def test_a_task_runs_again_from_a_node() -> None:
    desk = RouterHarness(FAILED)

    reply = await desk.send_message("/rerun 3k fix topic=cats")

    assert "fix" in text_of(reply)
    assert [move[0] for move in desk.world.tasks.moves] == ["rerun"]
    assert desk.world.tasks.messages == ["fix {'topic': 'cats'} {}"]


async def test_all_nodes_are_listed_with_pictures_and_in_pages() -> None:
    desk = RouterHarness(FAILED)
    steps = tuple(
        replace(make_step(f"s{n}"), status=NodeStatus.DONE if n < 5 else NodeStatus.PENDING)
        for n in range(60)
    )
    desk.world.tasks.views[FAILED.id] = make_view(FAILED, *steps)

    first, second = [await desk.send_message(text) for text in ("/steps 3k", "/steps 3k 2")]

    assert "/steps 3k9xyz 2" in text_of(first)
    assert [_count_pictures(each) for each in (first, second)] == [2, 0]
    assert first.data is not None
    assert len(first.data["nodes"]) == 60


async def test_what_was_changed_since_is_told() -> None:
    desk = RouterHarness(FAILED)

    reply = await desk.send_message("/diff 3k")

    assert "title: x → y" in text_of(reply)


def _count_pictures(reply: Reply) -> int:
    assert reply.card is not None
    return sum(isinstance(each, ImageBlock) for each in reply.card.blocks)
