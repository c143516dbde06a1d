"""The pages of tasks: what they list, show and change, and for whom."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from bot.dashboard.pages.tasks import _PAGE_SIZE
from storage.records.tasks import NewTask, Task, TaskPriority, TaskStatus
from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/tasks"
HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }} \u202e`x` [x](javascript:alert(1))"


async def create(
    world: DashboardWorld, title: str, who: str = "olga", files: tuple[str, ...] = ()
) -> Task:
    chat = await world.core.repositories.chats.get_private(world.people[who].id)
    return await world.core.services.tasks.create(
        NewTask(
            title=title,
            instruction=title,
            chat_id=chat.id,
            created_by=world.people[who].id,
            priority=TaskPriority.NORMAL,
            source=f"test:{title}",
            files=files,
        )
    )


async def state(world: DashboardWorld, task: Task) -> TaskStatus:
    return (await world.core.services.tasks.view(task.id)).task.status


def ids(page: httpx.Response) -> list[str]:
    return list(dict.fromkeys(re.findall(r'href="/dashboard/tasks/(\w+)"', page.text)))


async def test_tasks_are_filtered_searched_and_shown_as_a_board(world: DashboardWorld) -> None:
    plants, report = await create(world, "Water the plants"), await create(world, "写周报")
    browser = await world.browser("olga")
    await browser.post(f"{PAGE}/{report.id}", data={"order": "stop", "source": "s1"})

    assert ids(await browser.get(PAGE)) == [plants.id]
    assert ids(await browser.get(PAGE, params={"show": "ended"})) == [report.id]
    assert ids(await browser.get(PAGE, params={"show": "all"})) == [report.id, plants.id]
    assert ids(await browser.get(PAGE, params={"show": "all", "text": "周报"})) == [report.id]
    board = await browser.get(PAGE, params={"view": "board"})
    assert ids(board) == [plants.id, report.id]
    empty = await browser.get(PAGE, params={"text": "nothing like it"})
    assert "No task matches" in empty.text


async def test_the_list_goes_on_with_older_tasks(world: DashboardWorld) -> None:
    made = [await create(world, f"task {n}") for n in range(_PAGE_SIZE + 3)]
    browser = await world.browser("olga")

    first = await browser.get(PAGE)
    older = re.search(r'href="(\?show=open[^"]+)"', first.text)
    assert older is not None
    second = await browser.get(PAGE + older[1].replace("&amp;", "&"))

    assert ids(first) + ids(second) == [each.id for each in reversed(made)]
    for rubbish in ("x", "2026-01-01", "~", "9" * 400):
        assert ids(await browser.get(PAGE, params={"before": rubbish})) == ids(first)


async def test_a_task_is_created_once_however_often_its_form_is_sent(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    form = {"text": "Write a poem", "priority": "urgent", "source": "abc123"}

    sent = [await browser.post(PAGE, data=form) for _ in range(2)]
    empty = await browser.post(PAGE, data={"text": "  ", "source": "abc124"})

    assert {each.status_code for each in sent} == {303}
    assert len({each.headers["location"] for each in sent}) == 1
    assert len(ids(await browser.get(PAGE))) == 1
    assert empty.status_code >= 400
    assert "What should be done" in empty.text


async def test_a_task_is_shown_and_steered(world: DashboardWorld) -> None:
    task = await create(world, "Water the plants")
    browser = await world.browser("olga")
    page = f"{PAGE}/{task.id}"

    async def order(name: str, **more: str) -> int:
        return (await browser.post(page, data={"order": name, **more})).status_code

    shown = await browser.get(page)
    assert "Water the plants" in shown.text
    assert 'class="trace"' in shown.text
    assert await order("pause") == 303
    assert await state(world, task) is TaskStatus.PAUSED
    assert 'value="resume"' in (await browser.get(page)).text
    assert await order("priority", priority="urgent") == 303
    assert await order("message", text="Use rain water") == 303
    assert "rain water" in (await browser.get(page)).text
    assert await order("resume") == 303
    assert await order("stop") == 303
    assert await state(world, task) is TaskStatus.CANCELLED
    assert await order("pause") == 409
    assert await order("retry") == 303
    for wrong in ("", "explode", "message"):
        assert await order(wrong) >= 400
    assert await state(world, task) is TaskStatus.PENDING


async def test_what_was_changed_in_a_workflow_and_what_waits_stand_on_the_page_of_its_task(
    world: DashboardWorld,
) -> None:
    folder = world.core.settings.home / "workflows"
    folder.mkdir()
    (folder / "note.yaml").write_text("name: Note\nnodes: [{id: a, name: Write}]\n")
    browser = await world.browser("olga")
    started = await browser.post("/dashboard/workflows/note", data={"order": "run", "source": "s1"})
    page, planned = started.headers["location"], await create(world, "Water the plants")
    (folder / "note.yaml").write_text("name: Note\nnodes: [{id: a, name: Write more}]\n")

    shown, changed = await browser.get(page), await browser.get(f"{page}?changes=1")
    no_workflow = await browser.get(f"{PAGE}/{planned.id}?changes=1")
    (folder / "note.yaml").unlink()
    gone = await browser.get(f"{page}?changes=1")

    assert 'href="?changes=1#changes"' in shown.text
    assert "Write more" not in shown.text
    assert "Write more" in changed.text
    assert [each.status_code for each in (no_workflow, gone)] == [200, 200]
    assert "changes=1" not in no_workflow.text
    for each in (shown, changed, no_workflow, gone):
        assert find_faults(each.text) == []


async def test_an_expression_is_evaluated_in_the_run_of_a_task(world: DashboardWorld) -> None:
    folder = world.core.settings.home / "workflows"
    folder.mkdir()
    (folder / "note.yaml").write_text(
        "name: Note\ninputs: [{name: topic}]\nnodes: [{id: a, name: Write}]\n"
    )
    browser = await world.browser("olga")
    form = {"order": "run", "source": "s1", "in.topic": HOSTILE}
    started = await browser.post("/dashboard/workflows/note", data=form)
    page, planned = started.headers["location"], await create(world, "Water the plants")

    async def ask(expression: str, node: str = "", where: str = page) -> str:
        got = await browser.get(where, params={"eval": expression, "node": node})
        assert got.status_code == 200
        assert find_faults(got.text) == []
        assert "<script>alert" not in got.text
        return html.unescape(got.text)

    assert 'name="eval"' in (await browser.get(page)).text
    assert "85" in await ask("len(inputs.topic) * 0 + 85")
    assert "Type: text" in await ask("inputs.topic")
    unknown = await ask("inputs.topci")
    assert "It has no value" in unknown
    assert "`topic`" in unknown or "<code>topic</code>" in unknown
    assert "nowhere" in await ask("1", node="nowhere")
    assert 'name="eval"' not in await ask("1", where=f"{PAGE}/{planned.id}")


async def test_the_plan_is_a_picture_without_scripts(world: DashboardWorld) -> None:
    task = await create(world, "Water the plants")

    picture = await (await world.browser("olga")).get(f"{PAGE}/{task.id}/plan.svg")

    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert "sandbox" in picture.headers["content-security-policy"]


@pytest.mark.parametrize("part", ["", "/plan.svg"])
async def test_only_owners_see_the_pages_of_tasks(world: DashboardWorld, part: str) -> None:
    task = await create(world, "mine", "ann")

    assert (await world.program("ann").get(f"{PAGE}/{task.id}{part}")).status_code == 403
    assert (await world.client().get(f"{PAGE}/{task.id}{part}")).status_code == 401
    assert (await (await world.browser("olga")).get(f"{PAGE}/zzzzzz{part}")).status_code == 404


async def test_hostile_names_are_only_text(world: DashboardWorld) -> None:
    task = await create(world, HOSTILE)
    browser = await world.browser("olga")

    for path in (PAGE, f"{PAGE}?view=board", f"{PAGE}/{task.id}"):
        page = await browser.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert 'href="javascript' not in page.text
        assert " style=" not in page.text


async def test_files_of_a_task_are_those_that_belong_to_it(world: DashboardWorld) -> None:
    task = await create(world, "mine", files=("files/inbox/1/a plan.svg", "files/inbox/1/é.md"))
    folder = world.core.settings.home / "files/inbox/1"
    folder.mkdir(parents=True)
    for name in ("a plan.svg", "é.md", "other.txt"):
        (folder / name).write_text("<script>alert(1)</script>", encoding="utf-8")
    browser, root = await world.browser("olga"), f"{PAGE}/{task.id}/files"

    page = (await browser.get(f"{PAGE}/{task.id}")).text
    picture, text = [await browser.get(each) for each in re.findall(f'href="({root}/[^"]+)"', page)]

    assert "a plan.svg</a>" in page
    assert picture.headers["content-disposition"].startswith("attachment")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    for each in (picture, text):
        assert "sandbox" in each.headers["content-security-policy"]
        assert each.headers["x-content-type-options"] == "nosniff"
    for wrong in ("inbox/1/other.txt", "inbox/1/..%2f1%2fé.md", "%2e%2e/shiftboss.db", ""):
        assert (await browser.get(f"{root}/{wrong}")).status_code == 404
    (folder / "é.md").unlink()
    (folder / "é.md").symlink_to(world.core.settings.home / "shiftboss.db")
    assert (await browser.get(f"{root}/inbox/1/é.md")).status_code == 404
    assert (await world.program("ann").get(f"{root}/inbox/1/é.md")).status_code == 403


async def test_forms_that_no_page_sends_change_nothing_and_are_no_incident(
    world: DashboardWorld,
) -> None:
    browser = await world.browser("olga")
    multipart = "multipart/form-data; boundary=x"

    answers = [
        await browser.post(PAGE, data={"text": "x" * 2_000_000}),
        await browser.post(PAGE, files={"text": ("a.txt", b"x" * 2_000_000)}),
        await browser.post(PAGE, content=b"--x\r\nbad", headers={"content-type": multipart}),
        await browser.post(PAGE, data={f"f{n}": "1" for n in range(1_500)}),
    ]
    answers += [
        await browser.post(f"/dashboard/{page}", data={"order": "x" * 2_000_000})
        for page in ("people", "health", "setup")
    ]
    before = (await world.program("olga").get("/api/v1/tasks")).json()["tasks"]
    cleaned = await browser.post(PAGE, data={"text": "a\0b\x1b[2J\u200bc"})

    assert [each.status_code for each in answers] == [413, 413, 422, 413, 413, 413, 413]
    assert not before
    task = (await world.program("olga").get("/api/v1/tasks")).json()["tasks"][0]
    assert (cleaned.status_code, task["title"]) == (303, "ab[2J\u200bc")
