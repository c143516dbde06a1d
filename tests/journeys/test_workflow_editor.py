"""A workflow is made, mended, saved and run in the browser, and nothing of it gets lost."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import BrowserVisitor, needs_chromium, open_browser, open_visitor
from tests.journeys.program import ShiftbossProcess, running_program

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

DOUBLE = """\
name: Double
description: Doubles a number.
inputs:
  - {name: n, title: How many, type: number}
nodes:
  - {id: twice, type: script, script: {expression: "inputs.n * 2", outputVar: twice}}
outputs: {twice: variables.twice}
"""
HOSTILE = "<img src=x onerror=alert(1)> {{7*7}} \u202e\"'`"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser, None]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shiftboss(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[ShiftbossProcess, None]:
    home = tmp_path_factory.mktemp("editor") / "home"
    (home / "workflows").mkdir(parents=True)
    async with running_program(home) as running:
        yield running


async def visit(browser: Browser, shiftboss: ShiftbossProcess, **window: object) -> BrowserVisitor:
    """A browser that is signed in."""
    visitor = await open_visitor(browser, **window)
    await visitor.page.goto(shiftboss.address)
    await visitor.page.goto(address(shiftboss, ""))
    return visitor


def address(shiftboss: ShiftbossProcess, path: str) -> str:
    return shiftboss.address.partition("/?")[0] + "/dashboard/workflows" + path


async def fits(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def test_a_workflow_is_typed_mended_saved_and_run(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    owner = await visit(browser, shiftboss, viewport={"width": 1280, "height": 900})
    page, box = owner.page, owner.page.locator("#text")
    verdict, drawing = page.locator("#verdict"), page.locator("#drawing")
    await page.get_by_role("link", name="New workflow").click()
    await expect(verdict).to_contain_text("Ready to run.")

    await page.get_by_role("textbox", name="Name", exact=True).fill("double")
    await box.fill(DOUBLE.replace("type: script", "type: scirpt").replace("number", "nmuber"))
    await expect(verdict).to_contain_text("2 errors")
    await expect(drawing).to_have_attribute("data-old", "")
    await page.locator("#faults a").last.click()
    picked = await box.evaluate("box => box.value.slice(box.selectionStart, box.selectionEnd)")
    assert picked == "scirpt"
    await page.keyboard.type("script")
    await expect(verdict).to_contain_text("1 error")
    await owner.save_screenshot("workflow-faults", tmp_path)
    await box.fill(DOUBLE)
    await expect(verdict).to_contain_text("Ready to run.")
    await expect(drawing.locator("text", has_text="twice")).to_be_visible()
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Double")
    saved = shiftboss.home / "workflows" / "double.yaml"
    assert saved.read_text(encoding="utf-8") == DOUBLE
    await page.get_by_label("How many").first.fill("21")
    await page.locator("button[value=run]").click()
    await expect(page).to_have_url(re.compile("/dashboard/tasks/"))
    await expect(page.locator("#state")).to_contain_text("Completed")
    await expect(page.locator("#card")).to_contain_text("42")
    await page.goto(address(shiftboss, "/double"))
    await expect(page.locator("#runs")).to_contain_text("Completed")
    # A run that begins elsewhere appears by itself.
    other = await owner.context.new_page()
    await other.goto(address(shiftboss, "/double"))
    await other.get_by_label("How many").first.fill("4")
    await other.locator("button[value=run]").click()
    await expect(page.locator("#runs li")).to_have_count(2)
    await expect(page.locator("#runs li").first).to_contain_text("Completed")
    await owner.save_screenshot("workflow", tmp_path)
    assert owner.console_errors == []
    await owner.context.close()


async def test_the_plan_of_a_finished_task_is_saved_from_its_page(
    browser: Browser, shiftboss: ShiftbossProcess
) -> None:
    owner = await visit(browser, shiftboss)
    page = owner.page
    await page.goto(address(shiftboss, "").replace("/workflows", "/tasks"))
    await page.get_by_text("New task").click()
    await page.get_by_label("What should be done").fill('write "a" to a.txt, then read a.txt')
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#state")).to_contain_text("Completed")

    await page.get_by_role("textbox", name="Name").fill("../evil")
    await page.get_by_role("button", name="Save as workflow").click()
    await expect(page.locator("main")).to_contain_text("letters, digits")
    await page.go_back()
    await page.get_by_role("textbox", name="Name").fill("a-and-back")
    await page.get_by_role("button", name="Save as workflow").click()

    await expect(page).to_have_url(address(shiftboss, "/a-and-back"))
    assert (shiftboss.home / "workflows" / "a-and-back.yaml").is_file()
    assert not list(shiftboss.home.rglob("*evil*"))
    await owner.context.close()


async def test_two_tabs_and_the_disk_do_not_undo_each_other(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    file = shiftboss.home / "workflows" / "shared.yaml"
    file.write_text(DOUBLE, encoding="utf-8")
    owner = await visit(browser, shiftboss, locale="zh-CN", color_scheme="dark")
    first, second = owner.page, await owner.context.new_page()
    for tab, title in ((first, "First"), (second, "Second")):
        await tab.goto(address(shiftboss, "/shared/edit"))
        await tab.locator("#text").fill(DOUBLE.replace("Double", title))

    await first.get_by_role("button", name="保存").click()
    await expect(first.get_by_role("heading", level=1)).to_have_text("First")
    await second.get_by_role("button", name="保存").click()
    await expect(second.get_by_role("alert")).to_be_visible()
    await expect(second.locator("textarea[readonly]")).to_have_value(re.compile("name: First"))
    await expect(second.locator("#text")).to_have_value(re.compile("name: Second"))
    file.write_text(DOUBLE.replace("Double", "Disk"), encoding="utf-8")
    await second.get_by_role("button", name="用我的覆盖").click()
    await expect(second.locator("textarea[readonly]")).to_have_value(re.compile("name: Disk"))
    assert "Disk" in file.read_text(encoding="utf-8")
    await second.get_by_role("button", name="用我的覆盖").click()

    await expect(second.get_by_role("heading", level=1)).to_have_text("Second")
    assert file.read_text(encoding="utf-8") == DOUBLE.replace("Double", "Second")
    # A conflict is told with 409, which the console notes.
    assert all("409" in each for each in owner.console_errors)
    await owner.context.close()


_SLOW = """
name: Slow
nodes:
  - {id: pause, type: delay, delay: 4s}
  - {id: sum, type: script, script: {expression: "20 + 22", outputVar: total}}
outputs: {total: variables.total}
"""


async def test_an_unfolded_list_of_nodes_follows_the_run_and_its_values_can_be_asked_for(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    (shiftboss.home / "workflows" / "slow.yaml").write_text(_SLOW, encoding="utf-8")
    owner = await visit(browser, shiftboss, viewport={"width": 390, "height": 844})
    page = owner.page
    await page.goto(address(shiftboss, "/slow"))
    await page.locator("button[value=run]").click()
    await expect(page.locator("#state")).to_contain_text("Waiting")
    nodes, value = page.locator("#nodes"), page.locator("#eval")
    await nodes.locator("summary").click()
    await expect(nodes).to_contain_text("0 %")

    await expect(page.locator("#state")).to_contain_text("Completed")
    await expect(nodes).to_contain_text("100 %")
    await expect(nodes.locator("li").first).to_be_visible()
    await expect(nodes.locator("summary")).to_be_focused()
    await value.locator("summary").click()
    await value.get_by_label("Expression").fill("variables.total / 2")
    await value.get_by_role("button", name="Evaluate").click()
    await expect(value.get_by_role("status")).to_contain_text("21")
    assert await fits(page)
    await owner.save_screenshot("value-in-a-run", tmp_path)
    assert owner.console_errors == []
    await owner.context.close()


_WIDE = """
name: Wide
nodes:
  - {id: a, prompt: one, name: A long name of a step}
  - {id: b, prompt: two, name: A long name of another step}
edges: [{from: start, to: a}, {from: start, to: b}, {from: a, to: end}, {from: b, to: end}]
"""


async def test_hostile_texts_and_names_are_judged_on_a_phone_too(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    (shiftboss.home / "workflows" / "evil.yaml").write_text(
        f"name: '{HOSTILE.replace(chr(39), '')}'\nnodes: [{{id: a, name: <b>x}}]\n"
    )
    owner = await visit(browser, shiftboss, viewport={"width": 390, "height": 844})
    page, box, verdict = owner.page, owner.page.locator("#text"), owner.page.locator("#verdict")
    page.on("dialog", lambda dialog: dialog.accept())
    assert await fits(page)
    await page.goto(address(shiftboss, "/evil"))
    await expect(page.locator("svg text", has_text="<b>x")).to_be_visible()
    assert await fits(page)
    (shiftboss.home / "workflows" / "wide.yaml").write_text(_WIDE)
    await page.goto(address(shiftboss, "/wide"))
    frame = await page.locator(".picture").bounding_box()
    drawn = await page.locator(".picture .wf").bounding_box()
    assert frame is not None
    assert drawn is not None
    assert drawn["width"] <= frame["width"] + 1, "made smaller as far as it can be read"

    await page.goto(address(shiftboss, "/-/edit"))
    bomb = "a: &a [x, x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(60))
    for text, told in (
        (bomb, "aliases are not allowed"),
        ("name: x\nnodes:\n\t- a", "spaces"),
        ("[" * 50_000, "nested too deeply"),
        ("name: \u0007x\n", "control characters"),
    ):
        await box.fill(text)
        await expect(page.locator("#faults")).to_contain_text(told)
    await box.evaluate("box => { box.value = 'x'.repeat(1e6); }")
    await box.press("End")
    await page.keyboard.type("y")
    await expect(verdict).to_contain_text("at most 100000 characters")
    await page.get_by_role("textbox", name="Name", exact=True).fill("../evil")
    await box.fill(DOUBLE)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("letters, digits")
    await expect(box).to_have_value(re.compile("Doubles a number"))
    assert await fits(page)
    await owner.save_screenshot("workflow-phone", tmp_path)
    assert sorted(shiftboss.home.rglob("*evil*")) == [shiftboss.home / "workflows" / "evil.yaml"]
    assert all("422" in each for each in owner.console_errors)
    await owner.context.close()


async def test_without_scripts_the_buttons_do_the_same(
    browser: Browser, shiftboss: ShiftbossProcess
) -> None:
    owner = await visit(browser, shiftboss, java_script_enabled=False)
    page, box = owner.page, owner.page.locator("#text")
    await page.goto(address(shiftboss, "/-/edit"))

    await page.get_by_role("textbox", name="Name", exact=True).fill("plain")
    await box.fill("name: Plain\nnodes:\n\t- a\n")
    await page.get_by_role("button", name="Check").click()
    await expect(page.locator("#faults")).to_contain_text("Line 3, column 1:")
    await box.fill(DOUBLE.replace("Double", "Plain"))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Plain")
    await page.get_by_text("Delete this workflow").click()
    await page.get_by_label("Delete permanently").check()
    await page.get_by_role("button", name="Delete").click()

    await expect(page).to_have_url(address(shiftboss, ""))
    assert not (shiftboss.home / "workflows" / "plain.yaml").exists()
    await owner.context.close()
