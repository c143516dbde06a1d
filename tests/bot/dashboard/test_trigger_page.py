"""The page of triggers: adding, switching and removing them, and an address that is shown once."""

from __future__ import annotations

import re

from storage.records.triggers import TriggerKind
from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.test_task_pages import HOSTILE
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/workflows/-/triggers"
NOTE = "name: Note\ninputs: [{name: topic, required: false}]\nnodes: [{id: a, name: Write}]\n"


async def test_triggers_are_added_shown_and_changed_and_an_address_is_shown_once(
    world: DashboardWorld,
) -> None:
    browser, triggers = await world.browser("olga"), world.core.services.triggers
    empty = await browser.get(PAGE)
    folder = world.core.settings.home / "workflows"
    folder.mkdir()
    (folder / "note.yaml").write_text(NOTE)
    hook = {"order": "add", "kind": "webhook", "workflow": "note", "source": "s1"}
    message = {**hook, "kind": "message", "pattern": "", "inputs": 'topic="two words"'}

    made, twice = [await browser.post(PAGE, data=hook) for _ in range(2)]
    refused = await browser.post(PAGE, data=message)
    free = await browser.post(PAGE, data={**message, "pattern": "go", "inputs": "just words"})
    added = await browser.post(PAGE, data={**message, "pattern": HOSTILE, "by": "owner"})
    shown = await browser.get(PAGE)
    by_kind = {each.trigger.kind: each.trigger for each in await triggers.list()}
    hook_id = by_kind[TriggerKind.WEBHOOK].id
    await browser.post(PAGE, data={"order": "off", "trigger": hook_id})
    changed = await browser.post(PAGE, data={"order": "token", "trigger": hook_id})
    gone = by_kind[TriggerKind.MESSAGE].id
    removed = await browser.post(PAGE, data={"order": "remove", "trigger": gone})
    missing = await browser.post(PAGE, data={"order": "on", "trigger": gone})
    (left,) = await triggers.list()

    addresses = [re.findall(r"http\S+/hooks/[\w-]{40,}", each.text) for each in (made, changed)]
    assert [len(each) for each in addresses] == [1, 1]
    assert addresses[0] != addresses[1]
    assert "/hooks/" not in shown.text
    codes = [each.status_code for each in (made, twice, refused, free, added, removed, missing)]
    assert codes == [200, 303, 422, 422, 303, 303, 404]
    assert "two words" in refused.text
    assert "just words" in free.text
    pattern, inputs = by_kind[TriggerKind.MESSAGE].pattern, by_kind[TriggerKind.MESSAGE].inputs
    assert (pattern.split(), inputs) == (HOSTILE.split(), {"topic": "two words"})
    assert "<script>alert" not in shown.text
    assert not left.trigger.enabled
    assert left.trigger.kind is TriggerKind.WEBHOOK
    assert (await world.program("ann").get(PAGE)).status_code == 403
    for each in (empty, made, refused, shown):
        assert find_faults(each.text) == []
