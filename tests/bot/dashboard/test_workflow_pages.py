"""The pages of workflows: list, runs with typed inputs, and the editor that loses nothing."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.test_task_pages import HOSTILE
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/workflows"
NEW = f"{PAGE}/-/edit"
NOTE = """\
name: Release note
description: Write it and have it checked.
inputs:
  - {name: topic, title: What about?}
  - {name: pages, type: number, default: 2}
  - {name: tone, options: [dry, warm]}
  - {name: draft, type: bool, required: false}
nodes:
  - {id: write, prompt: "Write on {{inputs.topic}}"}
  - {id: check, type: human}
"""


@pytest.fixture
def folder(world: DashboardWorld) -> Path:
    path = world.core.settings.home / "workflows"
    path.mkdir(exist_ok=True)
    (path / "note.yaml").write_text(NOTE, encoding="utf-8")
    return path


def hidden(page: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found is not None
    return found[1]


def typed_text(page: httpx.Response) -> str:
    """The text in the editor, as a browser sends it."""
    found = re.search(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', page.text, re.DOTALL)
    assert found is not None
    plain = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"')
    return plain.replace("&#39;", "'").replace("&amp;", "&").replace("\n", "\r\n")


async def test_a_broken_file_is_told_with_its_place_and_hides_no_other(
    world: DashboardWorld, folder: Path
) -> None:
    (folder / "flawed.yaml").write_text("name: x\nnodes:\n  - {id: a, promt: y}\n")
    (folder / "tab.yml").write_text("name: x\nnodes:\n\t- a\n")
    (folder / "link.yaml").symlink_to("/etc/passwd")
    (folder / "bytes.json").write_bytes(b"\xff")
    browser = await world.browser("olga")

    page = await browser.get(PAGE)

    assert f'href="{PAGE}/note"' in page.text
    assert "Line 3, column 13:" in page.text
    assert "Did you mean <code>prompt</code>?" in page.text
    assert f'href="{PAGE}/tab/edit"' in page.text
    assert f'href="{PAGE}/link/edit"' not in page.text
    assert "root:" not in page.text
    known = {"flawed": 200, "tab": 200, "link": 422, "nope": 404, "..%2Fx": 404}
    for name, status in known.items():
        assert (await browser.get(f"{PAGE}/{name}")).status_code == status, name
    stale = await browser.post(f"{PAGE}/tab", data={"order": "run"})
    assert stale.status_code == 422
    assert "use spaces" in stale.text


async def test_many_files_and_hostile_texts_stay_within_a_page(
    world: DashboardWorld, folder: Path
) -> None:
    long = (
        f"name: '{HOSTILE.replace(chr(39), '')}'\ndescription: {'x' * 5_000}\nnodes: [{{id: a}}]\n"
    )
    for number in range(60):
        (folder / f"w{number}.yaml").write_text(long, encoding="utf-8")
        bad = "name: x\nnodes:\n" + "".join(f"  - {{id: n{n}, type: <b>q}}\n" for n in range(50))
        (folder / f"bad{number}.yaml").write_text(bad, encoding="utf-8")
    browser = await world.browser("olga")

    page, second = await browser.get(PAGE), await browser.get(PAGE, params={"page": "1"})
    one = await browser.get(f"{PAGE}/w1")

    assert len(page.content) < 90_000
    assert f'href="{PAGE}/w9"' in page.text + second.text
    for each in (page, second, one):
        assert "<script>alert" not in each.text
        assert "<b>q" not in each.text
        assert find_faults(each.text) == []


async def test_inputs_are_asked_for_by_type_and_a_form_runs_once(
    world: DashboardWorld, folder: Path
) -> None:
    browser = await world.browser("olga")
    page = await browser.get(f"{PAGE}/note")
    source = {"order": "run", "source": hidden(page, "source")}
    given = {"in.topic": "queues", "in.tone": "dry", "in.draft": "yes"}

    wrong = await browser.post(
        f"{PAGE}/note", data={**source, "in.topic": "<b>kept", "in.pages": "two", "in.tone": "loud"}
    )
    ran = [await browser.post(f"{PAGE}/note", data={**source, **given}) for _ in range(2)]
    other = await browser.post(f"{PAGE}/note", data={**source, **given, "in.topic": "dogs"})
    after = await browser.get(f"{PAGE}/note")

    seen = {
        name: await world.core.services.tasks.list_workflow_runs(
            by=person, chat=(await world.core.get_local_chat()).id, names=["note"], limit=limit
        )
        for name, person, limit in (
            ("all", world.people["olga"], 9),
            ("newest", world.people["olga"], 1),
            ("foreign", world.people["ann"], 9),
        )
    }
    assert [each.title for each in seen["all"]["note"]] == [
        *("Release note: dogs · dry · True", "Release note: queues · dry · True")
    ]
    assert [len(seen[name].get("note", ())) for name in ("newest", "foreign")] == [1, 0]
    assert '<input type="number"' in page.text
    assert page.text.count("<select") == 5  # two stand in the form of dry runs too
    assert wrong.status_code == 422
    assert "&lt;b&gt;kept" in wrong.text
    assert "must be a number" in wrong.text
    assert "must be one of dry / warm" in wrong.text
    assert find_faults(wrong.text) == []
    assert [each.status_code for each in (*ran, other)] == [303] * 3
    assert ran[0].headers["location"] == ran[1].headers["location"]
    assert other.headers["location"] != ran[0].headers["location"]
    assert after.text.count('<li><a href="/dashboard/tasks/') == 2
    assert ran[0].headers["location"] in (await browser.get(PAGE)).text or (
        other.headers["location"] in (await browser.get(PAGE)).text
    )


async def test_what_is_saved_replaces_only_what_was_seen(
    world: DashboardWorld, folder: Path
) -> None:
    browser, path = await world.browser("olga"), f"{PAGE}/note/edit"
    seen = hidden(opened := await browser.get(path), "hash")
    mine = typed_text(opened).replace("Release note", "Mine")
    theirs = NOTE.replace("Release note", "Theirs & <b>")
    (folder / "note.yaml").write_text(theirs, encoding="utf-8")

    conflict = await browser.post(path, data={"order": "save", "hash": seen, "text": mine})
    kept = (folder / "note.yaml").read_text(encoding="utf-8")
    again = {"order": "save", "hash": hidden(conflict, "hash"), "text": typed_text(conflict)}
    saved = [await browser.post(path, data=again) for _ in range(2)]

    assert conflict.status_code == 409
    assert "Theirs &amp; &lt;b&gt;" in conflict.text
    assert typed_text(conflict) == mine
    assert find_faults(conflict.text) == []
    assert kept == theirs
    assert [each.status_code for each in saved] == [303, 303]
    assert (folder / "note.yaml").read_text(encoding="utf-8") == mine.replace("\r\n", "\n")
    (folder / "note.yaml").unlink()
    gone = await browser.post(path, data={**again, "text": mine})
    assert gone.status_code == 409
    assert typed_text(gone) == mine
    made = await browser.post(path, data={"order": "save", "hash": "", "text": typed_text(gone)})
    assert made.status_code == 303
    assert (folder / "note.yaml").exists()


async def test_a_new_one_is_checked_before_it_is_saved_and_never_lost(
    world: DashboardWorld, folder: Path
) -> None:
    browser = await world.browser("olga")
    start = await browser.get(NEW)
    data = {"name": "weekly", "text": typed_text(start)}

    assert "Ready to run." in start.text
    assert "<svg" in start.text
    for text in ("name: x\nnodes:\n\t- a", "", "<script>alert(1)</script>", "a\0b", "]" * 99_999):
        for order, status in (("check", 200), ("save", 422)):
            page = await browser.post(NEW, data={**data, "order": order, "text": text})
            assert (page.status_code, find_faults(page.text)) == (status, []), text[:20]
            assert typed_text(page) == text.replace("\n", "\r\n")
            assert "<script>alert" not in page.text
    for name in ("../x", "a/b", ".x", "a.b", "readme", "x" * 65, "-", "", "a b", "\u202ex"):
        page = await browser.post(NEW, data={**data, "order": "save", "name": name})
        assert (name, page.status_code) == (name, 422)
        assert typed_text(page) == data["text"]
    taken = await browser.post(NEW, data={**data, "order": "save", "name": "note"})
    made = [await browser.post(NEW, data={**data, "order": "save"}) for _ in range(2)]

    assert taken.status_code == 409
    assert [each.headers.get("location") for each in made] == [f"{PAGE}/weekly"] * 2
    assert sorted(each.name for each in folder.iterdir()) == ["note.yaml", "weekly.yaml"]
    copy = await browser.get(NEW, params={"copy": "note"})
    assert typed_text(copy) == NOTE.replace("\n", "\r\n")


async def test_the_check_while_typing_is_bounded(world: DashboardWorld, folder: Path) -> None:
    browser = await world.browser("olga")
    bomb = "a: &a [x,x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(50))
    many = "name: x\nnodes:\n" + "".join(f"  - {{id: n{n}, type: q}}\n" for n in range(2_500))
    wide = "name: x\nnodes:\n" + "".join(f"  - {{id: n{n}}}\n" for n in range(2_500))

    async def check(text: str) -> httpx.Response:
        return await browser.post(f"{PAGE}/note/edit", data={"order": "live", "text": text})

    for text in (bomb, many, "[" * 90_000, "\t" * 90_000, "漢" * 100_001, "\x1b" * 1_000):
        answer = await check(text)
        assert answer.status_code == 200
        assert "<html" not in answer.text
        assert "be run yet" in answer.text
        assert len(answer.content) < 20_000
    assert len((await check(wide)).content) < 250_000
    assert (await check("x" * 3_000_000)).status_code == 413


async def test_a_workflow_is_tried_without_a_model(world: DashboardWorld, folder: Path) -> None:
    cases = "cases:\n  - {name: short, inputs: {topic: cats, tone: dry}, expect: {path: [check]}}\n"
    (folder / "note.test.yaml").write_text(cases, encoding="utf-8")
    browser = await world.browser("olga")
    page = f"{PAGE}/note"
    form = {"order": "dry-run", "in.topic": "<b>cats</b>", "in.tone": "dry"}

    tried = await browser.post(page, data={**form, "given": "write: done\n"})
    missing = await browser.post(page, data={"order": "dry-run", "given": "write: done"})
    broken = await browser.post(page, data={**form, "given": "wirte: 1"})
    tested = await browser.post(page, data={"order": "test"})

    assert tried.status_code == 200
    assert find_faults(tried.text) == []
    assert "Write on &lt;b&gt;cats&lt;/b&gt;" in tried.text
    assert "<b>cats" not in tried.text
    assert "write: done" in tried.text
    assert (missing.status_code, broken.status_code) == (422, 422)
    assert "write: done" in missing.text
    assert "wirte" in broken.text
    assert "❌ short" in tested.text


async def test_a_workflow_is_deleted_after_a_yes_and_only_as_it_was_seen(
    world: DashboardWorld, folder: Path
) -> None:
    browser, path = await world.browser("olga"), f"{PAGE}/note"
    yes = {"order": "delete", "hash": hidden(await browser.get(path), "hash"), "sure": "yes"}

    unsure = await browser.post(path, data={**yes, "sure": ""})
    unseen = await browser.post(path, data={**yes, "hash": ""})
    (folder / "note.yaml").write_text(NOTE + "# mine\n", encoding="utf-8")
    changed = await browser.post(path, data=yes)
    assert (folder / "note.yaml").exists()
    fresh = hidden(await browser.get(path), "hash")
    deleted = await browser.post(path, data={**yes, "hash": fresh})

    assert [each.status_code for each in (unsure, unseen, changed)] == [422, 409, 409]
    assert deleted.status_code == 303
    assert list(folder.iterdir()) == []


async def test_versions_are_compared_edited_and_brought_back(
    world: DashboardWorld, folder: Path
) -> None:
    browser = await world.browser("olga")
    editor = await browser.get(f"{PAGE}/note/edit")
    better = NOTE.replace("Write on", "Write well on")
    form = {"order": "save", "text": better, "hash": hidden(editor, "hash"), "reason": HOSTILE}
    assert (await browser.post(f"{PAGE}/note/edit", data=form)).status_code == 303
    late = await browser.post(f"{PAGE}/note/edit", data=form | {"text": f"{NOTE}# late"})
    assert late.status_code == 409
    assert "kept as version 3" in late.text

    page = await browser.get(f"{PAGE}/note")
    versions = await browser.get(f"{PAGE}/note/versions", params={"old": "1", "new": "2"})
    for each in (page, versions):
        assert "<script>alert" not in each.text
        assert find_faults(each.text) == []
    assert "Write well on" in versions.text
    first = await browser.get(f"{PAGE}/note/edit", params={"version": "1"})
    assert typed_text(first) == NOTE.replace("\n", "\r\n")
    for rubbish in ("9", "x", "-1", "9" * 50):
        other = await browser.get(f"{PAGE}/note/edit", params={"version": rubbish})
        assert typed_text(other) == better.replace("\n", "\r\n")
        again = await browser.post(f"{PAGE}/note/versions", data={"version": rubbish})
        assert again.status_code == 404

    back = await browser.post(f"{PAGE}/note/versions", data={"version": "1"})
    assert back.status_code == 303
    assert (folder / "note.yaml").read_text(encoding="utf-8") == NOTE
    (folder / "note.yaml").unlink()
    assert "was deleted" in (await browser.get(f"{PAGE}/note/versions")).text


async def test_members_have_no_part_in_it(world: DashboardWorld, folder: Path) -> None:
    ann = world.program("ann")

    for path in (PAGE, f"{PAGE}/note", f"{PAGE}/note/versions", f"{PAGE}/note/edit", NEW):
        assert (await ann.get(path)).status_code == 403
    for path in (f"{PAGE}/note", f"{PAGE}/note/edit", NEW):
        assert (await ann.post(path, data={"order": "save"})).status_code == 403
    assert (folder / "note.yaml").read_text(encoding="utf-8") == NOTE
