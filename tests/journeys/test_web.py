"""The first journey in the web chat: the real program, and Chromium in front of it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser import BrowserVisitor, needs_chromium, open_browser, open_visitor
from tests.journeys.model_world import (
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.program import ShiftbossProcess, running_program
from tests.thoroughness import thorough_only

HAIKU = "write a haiku about queues and save it to haiku.md"
OFFLINE = "Offline backend: fixed rules, no model."
NEEDS_MODEL = "needs a model, and none is connected"
# What Latin letters a Chinese reader meets on purpose: names, settings, files, commands.
KNOWN = re.compile(
    r"Shiftboss|offline|(?:(?:pip|apt) install )?bubblewrap(?:-bin)?|Landlock|docs/tools.md"
    r"|[Tt]oken|[KMG]B|ID|MCP|English|[\w-]+\.md|/(?:run|help)|SHIFTBOSS_LANGUAGE"
    r"|(?:ANTHROPIC|OPENAI)_[A-Z_]+|\b[23456789a-z]{6}\b"
)

# One browser for all: starting it takes longer than most of what is done in it.
pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser, None]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def shiftboss(tmp_path: Path) -> AsyncGenerator[ShiftbossProcess, None]:
    async with running_program(tmp_path / "home") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def boss(
    browser: Browser, shiftboss: ShiftbossProcess
) -> AsyncGenerator[BrowserVisitor, None]:
    visitor = await open_visitor(browser)
    await visitor.open(shiftboss.address)
    yield visitor
    await visitor.context.close()
    assert visitor.console_errors == []


async def wait_for_end(boss: BrowserVisitor, title: str = "", count: int = 1) -> Locator:
    """The message that tells of an end."""
    ending = boss.bot_messages("Task finished").filter(has_text=title)
    await expect(ending).to_have_count(count)
    return ending


async def live_card(boss: BrowserVisitor, title: str) -> Locator:
    """The card of a task, to be found again by its id whatever becomes of it."""
    card = boss.page.locator(".told", has=boss.page.locator(".card-title", has_text=title))
    await expect(card).to_have_count(1)
    return boss.page.locator(f"#{await card.get_attribute('id')}")


@pytest.fixture
def held_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile, although the program may listen on it."""
    with socket.socket() as held:
        # As servers do; of those who share it so, one may listen.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def download_text(page: Page, link: Locator) -> str:
    async with page.expect_download() as waiting:
        await link.click()
    return (await (await waiting.value).path()).read_text()


async def test_a_new_user_finishes_a_first_task_from_the_welcome_card(
    boss: BrowserVisitor, tmp_path: Path
) -> None:
    await expect(boss.bot_messages("No model is connected yet")).to_have_count(1)
    await boss.save_screenshot("first-visit", tmp_path)
    await boss.page.get_by_role("button", name=f"/run {HAIKU}").click()
    await expect(boss.input_box).to_have_value(f"/run {HAIKU}")
    await boss.page.keyboard.press("Enter")

    ending = await wait_for_end(boss)
    card = await live_card(boss, HAIKU)
    await expect(card.locator("progress")).to_have_attribute("value", "100")
    await expect(card.locator('.steps > [data-state="done"]')).to_have_text(
        [re.compile("write a haiku about queues"), re.compile("save it to haiku.md")]
    )
    haiku = await download_text(boss.page, ending.locator("a.file"))
    assert haiku.startswith("# queues\n")
    assert len(haiku.split("\n\n")[1].strip().splitlines()) == 3
    await expect(boss.page.locator(".told")).to_have_count(3)
    await boss.save_screenshot("finished", tmp_path)


async def test_one_card_shows_the_steps_and_pauses_resumes_and_stops_the_task(
    browser: Browser, tmp_path: Path
) -> None:
    boss = await open_visitor(browser)
    async with (
        scripted_model() as (stage, access),
        running_program(tmp_path / "home", **access) as shiftboss,
    ):
        go = asyncio.Event()
        stage.script("ticking-cue", "plan", plan_reply("hold on", "write it", "hold on for ever"))
        written = write_call("a.txt", "hello"), step_reply("It is written.", "a.txt")
        endless = held_reply(step_reply("Never."), asyncio.Event())
        stage.script("ticking-cue", "step", held_reply(step_reply("Held."), go), *written, endless)
        await boss.open(shiftboss.address)
        await _paused_resumed_and_stopped(boss, go, tmp_path)
        await boss.context.close()
        assert boss.console_errors == []


async def test_a_card_that_changes_while_its_question_is_open_is_still_pressed(
    browser: Browser, tmp_path: Path
) -> None:
    boss = await open_visitor(browser)
    async with (
        scripted_model() as (stage, access),
        running_program(tmp_path / "home", **access) as shiftboss,
    ):
        stage.script("asking-cue", "plan", plan_reply("hold on for ever"))
        endless = held_reply(step_reply("Never."), asyncio.Event())
        stage.script("asking-cue", "step", endless)
        await boss.open(shiftboss.address)
        await boss.send_message("/run asking-cue")
        card = await live_card(boss, "asking-cue")
        await expect(card.locator('.steps > [data-state="running"]')).to_have_count(1)
        other = BrowserVisitor(await boss.context.new_page())
        await other.open(boss.page.url)

        question = boss.page.get_by_role("dialog")
        await card.get_by_role("button", name="Stop").click()
        await expect(question).to_contain_text("Finished work is kept")
        theirs = await live_card(other, "asking-cue")
        await theirs.get_by_role("button", name="Urgent").click()
        await expect(card).to_contain_text("now Urgent")
        await question.get_by_role("button", name="Stop").click()

        await expect(card).to_contain_text("Press Retry to continue")
        await boss.context.close()
        assert boss.console_errors == []


async def _paused_resumed_and_stopped(
    boss: BrowserVisitor, go: asyncio.Event, tmp_path: Path
) -> None:
    await boss.send_message("/run ticking-cue")
    card = await live_card(boss, "ticking-cue")
    steps = card.locator(".steps > li")
    running = card.locator('.steps > [data-state="running"] .step')
    await expect(running.filter(has_text="hold on")).to_be_visible()
    await card.get_by_role("button", name="Pause").click()
    await expect(card).to_contain_text("Pauses after the current step")
    await boss.save_screenshot("pausing", tmp_path)
    go.set()
    await expect(card).to_contain_text("Finished steps are kept")
    await expect(steps.nth(1)).to_have_attribute("data-state", "pending")

    await card.get_by_role("button", name="Resume").click()
    await expect(steps.nth(1)).to_have_attribute("data-state", "done")
    await expect(steps.nth(2)).to_have_attribute("data-state", "running")
    await expect(card.locator("progress")).to_have_attribute("value", "66")

    question = boss.page.get_by_role("dialog")
    await card.get_by_role("button", name="Stop").click()
    await expect(question).to_contain_text("Finished work is kept")
    await boss.save_screenshot("stop", tmp_path)
    await question.get_by_role("button", name="Cancel").click()
    await expect(steps.nth(2)).to_have_attribute("data-state", "running")
    await card.get_by_role("button", name="Stop").click()
    await question.get_by_role("button", name="Stop").click()
    await expect(card).to_contain_text("Press Retry to continue")
    await expect(card.get_by_role("button", name="Retry")).to_be_visible()
    await expect(boss.page.locator(".told")).to_have_count(2)


async def test_a_proposed_task_starts_once_however_often_its_button_is_pressed(
    boss: BrowserVisitor,
) -> None:
    other = BrowserVisitor(await boss.context.new_page())
    await other.open(boss.page.url)
    await boss.send_message(HAIKU.capitalize())
    proposal = boss.bot_messages("Make this a task?")
    await expect(other.bot_messages("Make this a task?")).to_have_count(1)
    start = proposal.get_by_role("button", name="Start", exact=False).first
    token = await start.get_attribute("data-token")
    assert not await boss.bot_messages("Task finished").count()

    # Both are found before either is pressed: a press redraws the card everywhere.
    mine = await start.element_handle()
    theirs = await other.page.locator(f'[data-token="{token}"]').first.element_handle()
    twice = "button => { button.click(); button.click(); }"
    await asyncio.gather(mine.evaluate(twice), theirs.evaluate(twice))
    await wait_for_end(boss)
    await boss.page.reload()
    await boss.wait_until_online()
    await expect(boss.bot_messages("🚀 Started")).to_have_count(1)
    toast = await boss.page.evaluate(_PRESS, {"token": token, "card": "card-2"})
    assert "already pressed" in toast["text"]
    assert toast["good"] is False

    await boss.send_message("/list")
    await expect(boss.bot_messages("Tasks (1)")).to_have_count(1)
    await expect(other.bot_messages("Tasks (1)")).to_have_count(1)
    await expect(boss.bot_messages("Task finished")).to_have_count(1)
    assert other.console_errors == []


async def test_without_a_model_every_answer_says_so(boss: BrowserVisitor, tmp_path: Path) -> None:
    await boss.send_message("Hello")
    await expect(boss.bot_messages(OFFLINE)).to_have_count(1)
    helpless = ("what is the capital of France?", "/frobnicate", "write a plan for my bakery")
    for number, text in enumerate(helpless, 1):
        await boss.send_message(text)
        await expect(boss.bot_messages(NEEDS_MODEL)).to_have_count(number)
    await expect(boss.bot_messages("Paris")).to_have_count(0)
    await expect(boss.page.get_by_role("button", name="Start")).to_have_count(0)

    await boss.send_message('/run write "a" to a.txt, then prove the Riemann hypothesis')
    stuck = boss.bot_messages("Task blocked")
    await expect(stuck).to_have_count(1)
    card = await live_card(boss, "prove the Riemann hypothesis")
    for told in (card, stuck):
        await expect(told).to_contain_text(NEEDS_MODEL)
        await expect(told.get_by_role("link", name="Connect a model")).to_have_count(1)
    await expect(card.locator('.steps > [data-state="failed"]')).to_contain_text("prove")
    await expect(card.get_by_role("button", name="Resume")).to_be_visible()
    await boss.save_screenshot("stuck", tmp_path)


@thorough_only
async def test_a_kill_loses_neither_the_task_nor_the_draft_message(
    browser: Browser, tmp_path: Path, held_port: int
) -> None:
    boss = await open_visitor(browser)
    async with (
        scripted_model() as (stage, access),
        running_program(
            tmp_path / "home", SHIFTBOSS_WEB_PORT=str(held_port), **access
        ) as shiftboss,
    ):
        stage.script("deadly-cue", "plan", plan_reply("write one", "hold on", "write two"))
        stage.script(
            "deadly-cue",
            "step",
            write_call("1.txt", "one"),
            step_reply("One.", "1.txt"),
            held_reply(step_reply("Never."), asyncio.Event()),
            step_reply("Held."),
            write_call("2.txt", "two"),
            step_reply("Two.", "2.txt"),
        )
        await boss.open(shiftboss.address)
        await boss.send_message("/run deadly-cue")
        card = await live_card(boss, "deadly-cue")
        # What the step before it does is a list of its own for as long as that runs.
        running = card.locator('.steps > [data-state="running"]')
        await expect(running.filter(has_text="hold on")).to_be_visible()
        await stage.wait_for_request("deadly-cue", count=3)
        await boss.input_box.fill("half typed")
        await shiftboss.kill()
        await expect(boss.page.locator("#status")).to_have_attribute("data-state", "reconnecting")
        await boss.input_box.fill("/list")
        await boss.page.keyboard.press("Enter")
        await expect(boss.page.locator(".unsent")).to_contain_text("when the connection is back")
        await boss.input_box.fill("half typed")

        await shiftboss.start()
        await boss.wait_until_online()
        await wait_for_end(boss)
        await expect(boss.input_box).to_have_value("half typed")
        await expect(card.locator('.steps > [data-state="done"]')).to_have_count(3)
        await expect(boss.bot_messages("Tasks (1)")).to_have_count(1)
        await expect(boss.page.locator(".said")).to_have_count(2)
        told = await boss.page.locator(".told").evaluate_all("nodes => nodes.map(n => n.id)")
        await boss.page.reload()
        await boss.wait_until_online()
        await expect(boss.input_box).to_have_value("half typed")
        await expect(boss.page.locator(".told")).to_have_count(4)
        assert await boss.page.locator(".told").evaluate_all("nodes => nodes.map(n => n.id)") == (
            told
        )
        await boss.send_message(f"/logs {await card.locator('.note code').inner_text()}")
        log = boss.bot_messages("📜 History").locator("pre")
        await expect(log).to_contain_text("completed")
        assert (await log.inner_text()).count("step started write one") == 1


async def test_files_and_pictures_can_be_uploaded(boss: BrowserVisitor, tmp_path: Path) -> None:
    picture = await boss.page.screenshot()
    picked = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"one two three"},
        {"name": "screen.png", "mimeType": "image/png", "buffer": picture},
    ]
    await boss.page.locator("#picker").set_input_files(picked)  # type: ignore[arg-type]  # FilePayload is a plain dict
    await expect(boss.page.locator('#files [data-done="true"]')).to_have_count(2)
    await boss.send_message(
        "/run count the words in notes.txt and save it to count.md, then list the files"
    )

    said = boss.page.locator(".said")
    await expect(said.locator("a.file")).to_contain_text("notes.txt")
    shown = said.locator("img")
    await expect(shown).to_have_js_property("complete", value=True)
    assert await shown.evaluate("image => image.naturalWidth") == 1000
    ending = await wait_for_end(boss)
    await expect(boss.bot_messages("- screen.png")).to_have_count(1)  # the whole report: the card
    assert "3" in await download_text(boss.page, ending.locator("a.file", has_text="count.md"))
    await boss.save_screenshot("files", tmp_path)


async def test_a_notice_that_stands_apart_leads_to_its_card(boss: BrowserVisitor) -> None:
    await boss.send_message("/run wait 2 seconds")
    await expect(boss.bot_messages("wait 2 seconds")).to_have_count(1)
    await boss.send_message("/help")
    notice = await wait_for_end(boss)
    link = notice.locator("a.quote")

    await expect(link).to_contain_text("wait 2 seconds")
    card = boss.page.locator(str(await link.get_attribute("href")))
    await expect(card.get_by_role("button", name="Details")).to_have_count(1)


async def test_a_chinese_browser_gets_chinese_everywhere(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    boss = await open_visitor(browser, locale="zh-CN")
    await boss.open(shiftboss.address)
    await expect(boss.bot_messages("还没有接入模型")).to_have_count(1)
    await boss.send_message("写一首关于排队的俳句并保存到 haiku.md")
    await boss.bot_messages("要建个任务吗").get_by_role("button", name="开始").click()
    ending = boss.bot_messages("任务已完成")
    await expect(ending).to_have_count(1)
    assert "前门打开了" in await download_text(boss.page, ending.locator("a.file"))
    titles = {
        "/帮助": "指令帮助",
        "/列表": "任务列表（1）",
        "/状态": "系统状态",
        "/费用": "费用",
        "/模型": "模型",
        "/运行": "新任务",
        "/语言": "缺少参数",
        "/查看 不存在": "没有",
        "你好": "离线后端",
    }
    for number, (text, title) in enumerate(titles.items(), 5):
        await boss.send_message(text)
        await expect(boss.page.locator(".told")).to_have_count(number)
        await expect(boss.page.locator(".told").last).to_contain_text(title)
    await boss.send_message("/run 等待 1 秒，然后列出文件夹，然后证明黎曼猜想")
    await expect(boss.bot_messages("任务已阻塞")).to_have_count(1)
    await boss.save_screenshot("chinese", tmp_path)
    assert await _foreign_words(boss.page) == []
    assert boss.console_errors == []


async def test_commands_turn_pages_in_place_and_change_the_language_of_the_whole_page(
    boss: BrowserVisitor, tmp_path: Path
) -> None:
    for number in range(1, 7):
        await boss.send_message(f'/run write "{number}" to {number}.txt')
    await wait_for_end(boss, count=6)
    await boss.send_message("/list")
    page = boss.bot_messages("Tasks (6)")
    await expect(page).to_contain_text("Page 1 of 2")
    await boss.save_screenshot("list", tmp_path)
    await page.get_by_role("button", name="Next").click()
    await expect(page).to_contain_text("Page 2 of 2")
    await expect(page.locator("li")).to_have_count(1)
    await page.get_by_role("button", name="Previous").click()
    await expect(page).to_contain_text("Page 1 of 2")
    await expect(page).to_have_count(1)

    task_id = await page.locator("code").first.inner_text()
    for text, expected in (
        (f"/get {task_id[:4]}", "📌"),
        (f"/logs {task_id[:4]}", "step done"),
        ("/status", "✅ Completed 6"),
        ("/cost", "This month by model"),
        ("/help priority", "/priority id urgent|important|normal"),
    ):
        await boss.send_message(text)
        await expect(boss.page.locator(".told").last).to_contain_text(expected)
    await boss.send_message("/model")
    model = boss.bot_messages("Choose a model")
    await model.get_by_role("button", name="offline").click()
    await expect(model).to_contain_text("This chat now uses: offline")
    await boss.save_screenshot("commands", tmp_path)

    await boss.input_box.fill("/language zh")
    await boss.page.keyboard.press("Enter")
    await expect(boss.page.locator("html")).to_have_attribute("lang", "zh")
    await expect(boss.bot_messages("之后我会用中文回复你")).to_have_count(1)


async def test_hostile_and_huge_text_is_shown_as_text(boss: BrowserVisitor, tmp_path: Path) -> None:
    await boss.send_message("x" * 100_000)
    await expect(boss.bot_messages(NEEDS_MODEL)).to_have_count(1)
    await boss.input_box.evaluate(
        "(box, text) => { box.value = text; }", "a\x01b\x07c\ud800d\u202ee"
    )
    await boss.page.keyboard.press("Enter")
    await expect(boss.bot_messages(NEEDS_MODEL)).to_have_count(2)
    await expect(boss.page.locator(".bubble").last).to_have_text("abc\ufffdd\u202ee")

    await boss.send_message('/run write "<b>x</b>" to \u202eabc.txt')
    await expect(
        boss.bot_messages("Task blocked").or_(boss.bot_messages("Task finished"))
    ).to_have_count(1)
    titles = await boss.page.locator(".card-title, .prose strong").all_inner_texts()
    assert not [title for title in titles if "\u202e" in title]
    assert await boss.page.locator("#items b").count() == 0
    await boss.page.reload()
    await boss.wait_until_online()
    await expect(boss.page.locator(".bubble")).to_have_count(3)
    wider = await boss.page.locator("#scroll").evaluate(
        "node => node.scrollWidth > node.clientWidth"
    )
    assert not wider
    await boss.save_screenshot("hostile", tmp_path)


async def test_a_wrong_token_opens_nothing_and_the_page_says_where_to_find_the_right_one(
    browser: Browser, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    stranger = await open_visitor(browser)
    base, _, token = shiftboss.address.partition("?token=")
    await stranger.page.goto(f"{base}?token=wrong")
    await expect(stranger.page.locator("h1")).to_have_text("This page needs a token")
    await expect(stranger.page.locator(".wrong")).to_contain_text("shiftboss run")
    await stranger.save_screenshot("denied", tmp_path)
    await stranger.page.get_by_label("Token").fill(token)
    await stranger.page.get_by_role("button", name="Open").click()
    await stranger.wait_until_online()


_PRESS = """({token, card}) => new Promise((resolve) => {
    const socket = new WebSocket(`ws://${location.host}/ws`);
    socket.onopen = () => socket.send(
        JSON.stringify({type: "press", id: "replayed-1", card, token, value: "", form: {}}));
    socket.onmessage = (event) => {
        const frame = JSON.parse(event.data);
        if (frame.type === "toast") { socket.close(); resolve(frame); }
    };
})"""


async def _foreign_words(page: Page) -> list[str]:
    """Latin words on the page that are neither the user's, nor code, nor known names."""
    texts = await page.evaluate(
        """() => {
            const copy = document.body.cloneNode(true);
            copy.querySelectorAll("code, pre, script, .said, .file, option[value='']")
                .forEach((node) => node.remove());
            return [...copy.querySelectorAll("*")].flatMap((node) => [
                ...[...node.childNodes].filter((child) => child.nodeType === 3)
                    .map((child) => child.textContent),
                node.ariaLabel ?? "", node.title ?? "", node.placeholder ?? ""]);
        }"""
    )
    return re.findall(r"[A-Za-z]{2,}", KNOWN.sub("", "\n".join(texts)))


WIDE = "\n".join(
    [
        "name: Many ways",
        "nodes:",
        "  - {id: fork, type: parallel}",
        *(f"  - {{id: way{n}, name: Look into corner number {n}}}" for n in range(12)),
        "  - {id: all, type: join}",
        "edges:",
        *(f"  - {{from: fork, to: way{n}}}\n  - {{from: way{n}, to: all}}" for n in range(12)),
    ]
)
# How wide the picture is by itself and as it is shown; the frame around it, and what is in that.
MEASURED = """image => {
    const frame = image.closest(".image")
    const right = element => element.getBoundingClientRect().right
    return {
        own: image.naturalWidth,
        shown: image.clientWidth,
        frame: frame.clientWidth,
        inside: frame.scrollWidth,
        beyond: right(frame) - right(frame.closest(".told")),
        page: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    }
}"""


async def test_a_wide_drawing_stays_legible_and_scrolls_within_its_card(
    boss: BrowserVisitor, shiftboss: ShiftbossProcess, tmp_path: Path
) -> None:
    folder = shiftboss.home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / "ways.yaml").write_text(WIDE, encoding="utf-8")

    await boss.send_message("/workflow show ways")
    picture = boss.page.locator('.told .image img[src*=".svg"]')
    await expect(picture).not_to_have_js_property("naturalWidth", 0)
    sizes = await picture.evaluate(MEASURED)
    # Smaller than this, its letters could not be read.
    assert sizes["own"] > sizes["shown"] >= 0.69 * sizes["own"]
    assert sizes["shown"] > sizes["frame"] > 0
    assert sizes["inside"] >= sizes["shown"]
    assert sizes["beyond"] <= 1
    assert sizes["page"] <= 0

    await picture.hover()
    await boss.page.mouse.wheel(sizes["inside"], 0)
    frame = boss.page.locator(".told .image", has=boss.page.locator('img[src*=".svg"]'))
    await expect(frame).not_to_have_js_property("scrollLeft", 0)
    await boss.save_screenshot("wide-drawing", tmp_path)
