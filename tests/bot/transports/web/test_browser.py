"""The page in a real browser: what a person sees, presses and types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from bot.transports.ports import PressToast
from cards.actions import ChooseModel, PauseTask, ShowLogs, StopTask, SubmitTaskForm
from cards.model import (
    ButtonsBlock,
    ButtonStyle,
    Card,
    CardButton,
    CardTone,
    ChecklistBlock,
    ChecklistItem,
    ChecklistState,
    CodeBlock,
    CollapsibleBlock,
    ConfirmDialog,
    FieldsBlock,
    FormBlock,
    FormField,
    FormFieldKind,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
    SelectOption,
    TextBlock,
)
from storage.records.messages import IncomingMessage
from tests.bot.transports.web.builders import CHAT, WebHarness, letter, running_web_chat
from tests.browser import BrowserVisitor, needs_chromium, open_browser, open_visitor

# One browser for all: starting it takes longer than most of what is done in it.
pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

EDGES_OF_COLUMNS = """() => {
    const edge = (mark, side) => [...document.querySelectorAll(mark)].map(cell =>
        [...cell.children].map(part => part.getBoundingClientRect()).filter(box => box.width))
        .map(boxes => side === "right" ? boxes.at(-1).right : boxes[0].left);
    return [edge("mtd.to-right", "right"), edge("mtd.to-left", "left")];
}"""
"""Right edges of what stands in cells aligned to the right, left edges in those to the left."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_browser() -> AsyncIterator[Browser]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path) -> AsyncIterator[WebHarness]:
    async with running_web_chat(tmp_path) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def browser(running_browser: Browser) -> AsyncIterator[Browser]:
    """Without a window of an earlier test."""
    yield running_browser
    for context in running_browser.contexts:
        await context.close()


async def visit(browser: Browser, world: WebHarness, **window: Any) -> BrowserVisitor:
    visitor = await open_visitor(browser, **window)
    await visitor.open(world.transport.login_url)
    return visitor


def task(percent: int, *states: ChecklistState, done: bool = False) -> Card:
    names = ("Understand what is asked", "Write the haiku", "Save it to haiku.md")
    stop = ConfirmDialog(title="Stop this task?", text="What is done so far is kept.")
    buttons = ButtonsBlock(
        items=(
            CardButton(label="Pause", action=PauseTask(task_id="k3m9qa"), token="pausepause00"),
            CardButton(
                label="Stop",
                action=StopTask(task_id="k3m9qa"),
                style=ButtonStyle.DANGER,
                confirm=stop,
                token="stopstop0000",
            ),
            CardButton(label="Log", action=ShowLogs(task_id="k3m9qa"), token="loglogloglog"),
        )
    )
    return Card(
        title="Write a haiku about queues",
        tone=CardTone.GOOD if done else CardTone.INFO,
        blocks=(
            FieldsBlock(pairs=(("Task", "k3m9qa"), ("Priority", "important"))),
            ProgressBlock(percent=percent, label=f"{percent} % of the steps"),
            ChecklistBlock(items=tuple(map(_check, names, states))),
            CollapsibleBlock(title="Details", blocks=(CodeBlock(text="step 1\nstep 2"),)),
            *(() if done else (buttons,)),
            NoteBlock(markdown="The **offline backend** does this."),
        ),
    )


def _check(name: str, state: ChecklistState) -> ChecklistItem:
    return ChecklistItem(label=name, state=state)


RUNNING = task(33, ChecklistState.DONE, ChecklistState.RUNNING, ChecklistState.PENDING)
FINISHED = task(100, ChecklistState.DONE, ChecklistState.DONE, ChecklistState.DONE, done=True)


async def test_older_messages_come_above_and_the_reader_stays_where_they_are(
    world: WebHarness, browser: Browser
) -> None:
    world.hold_conversation(130)
    visitor = await visit(browser, world)
    page, cards, older = visitor.page, visitor.page.locator(".item"), visitor.page.locator("#older")
    await expect(cards).to_have_count(100)
    await page.locator("#scroll").evaluate("box => { box.scrollTop = 0; }")
    top = page.locator("#card-31")
    before = await top.evaluate("node => node.getBoundingClientRect().top")

    await older.click()

    await expect(cards).to_have_count(130)
    await expect(older).to_be_hidden()
    assert abs(await top.evaluate("node => node.getBoundingClientRect().top") - before) < 60
    ids = await cards.evaluate_all("nodes => nodes.map(node => node.id)")
    assert ids == [f"card-{number}" for number in range(1, 131)]
    await world.stop()
    await world.start()
    await visitor.wait_until_online()
    await expect(cards).to_have_count(130)
    # So much was missed that what stands here does not go on: it begins anew.
    await world.stop()
    world.hold_conversation(400)
    world.history.cards = {key: each for key, each in world.history.cards.items() if key > 130}
    await world.start()
    await expect(cards).to_have_count(100)
    await expect(older).to_be_visible()
    # While nobody answers, the page asks in vain.
    assert all("ERR_CONNECTION_REFUSED" in each for each in visitor.console_errors)
    await visitor.context.close()


async def test_a_person_types_watches_the_card_and_presses(
    world: WebHarness, browser: Browser, tmp_path: Path
) -> None:
    async def answer(message: IncomingMessage) -> None:
        await world.show(1, RUNNING, reply_to=message.message_id)

    world.inbox.answer = answer
    world.inbox.toast_for = lambda press: PressToast(text=f"Understood: {press.token}")
    visitor = await visit(browser, world)
    page = visitor.page
    assert "token" not in page.url
    await expect(page.locator("#tries")).to_be_visible()

    await page.locator("#text").press_sequentially("write a haiku")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("about queues")
    await page.keyboard.press("Enter")
    await expect(page.locator(".said .bubble")).to_have_text("write a haiku\nabout queues")
    await expect(page.locator("#card-1 .card-title")).to_have_text("Write a haiku about queues")
    await expect(page.locator("#tries")).to_be_hidden()
    await expect(page.locator("#text")).to_have_value("")
    await expect(page.locator(".unsent")).to_have_count(0)
    await visitor.save_screenshot("task", tmp_path)

    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".toast")).to_have_text("Understood: pausepause00")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Stop this task?")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    await expect(page.locator(".toast").last).to_have_text("Understood: stopstop0000")
    assert [press.token for press in world.inbox.presses] == ["pausepause00", "stopstop0000"]
    assert world.inbox.presses[0].message_id == "card-1"

    await page.locator("#card-1 summary").click()
    await world.show(1, FINISHED, revision=2)
    await expect(page.locator("#card-1 progress")).to_have_attribute("value", "100")
    await expect(page.locator("#card-1 details")).to_have_attribute("open", "")
    await expect(page.locator("#card-1")).to_have_count(1)
    assert visitor.console_errors == []


async def test_half_typed_text_and_what_was_sent_meanwhile_survive_a_restart(
    world: WebHarness, browser: Browser, tmp_path: Path
) -> None:
    visitor = await visit(browser, world)
    page = visitor.page
    await page.locator("#text").fill("sent while it was away")
    await world.stop()
    await expect(page.locator("#status")).to_have_attribute("data-state", "reconnecting")
    await page.keyboard.press("Enter")
    await expect(page.locator(".unsent .fate")).to_contain_text("when the connection is back")
    await page.locator("#text").fill("half typed")
    await visitor.save_screenshot("reconnecting", tmp_path)

    await world.start()
    await world.show(5, Card(blocks=(TextBlock(markdown="said while you were away"),)))
    await expect(page.locator("#status")).to_have_attribute("data-state", "online")
    await expect(page.locator("#card-5")).to_contain_text("said while you were away")
    await expect(page.locator(".unsent")).to_have_count(0)
    assert [message.text for message in world.inbox.messages] == ["sent while it was away"]
    await expect(page.locator("#text")).to_have_value("half typed")
    await page.reload()
    await expect(page.locator("#text")).to_have_value("half typed")
    await expect(page.locator(".said")).to_have_count(1)


async def test_a_program_with_another_key_shows_its_own_page(
    world: WebHarness, browser: Browser
) -> None:
    visitor = await visit(browser, world)
    before = await visitor.page.context.cookies()
    await world.stop()
    world.settings = {"token": "another-token"}
    await world.start()
    await expect(visitor.page.locator("h1")).to_have_text("This page needs a token")
    await visitor.page.get_by_label("Token").fill("another-token")
    await visitor.page.get_by_role("button", name="Open").click()
    await expect(visitor.page.locator("#status")).to_have_attribute("data-state", "online")
    cookies = await visitor.page.context.cookies()
    assert not {each.get("value") for each in cookies} & {each.get("value") for each in before}
    assert len(await world.sessions.list()) == 2


async def test_hostile_text_runs_nothing(world: WebHarness, browser: Browser) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    visitor = await visit(browser, world)
    page = visitor.page
    await page.locator("#text").fill(hostile)
    await page.keyboard.press("Enter")
    await world.show(
        1,
        Card(
            title=hostile,
            blocks=(
                TextBlock(markdown=f"{hostile}\n\n[x](javascript:alert(1))"),
                CodeBlock(text=hostile),
            ),
        ),
    )
    await world.transport.stream(letter(2, Card()), hostile)
    await expect(page.locator("#card-1 .card-title")).to_have_text(hostile)
    await expect(page.locator(".said .bubble")).to_have_text(hostile)
    await expect(page.locator("#card-2")).to_contain_text("onerror")
    assert await page.locator("#items img, #items script").count() == 0
    assert await page.title() == "Shiftboss"
    assert visitor.console_errors == []


async def test_an_answer_grows_on_the_page_and_is_then_final(
    world: WebHarness, browser: Browser
) -> None:
    visitor = await visit(browser, world)
    page = visitor.page
    await world.transport.show_typing(CHAT)
    await expect(page.locator("#working")).to_be_visible()
    await world.transport.stream(letter(1, Card()), "Once **upon**")
    await expect(page.locator("#card-1 strong")).to_have_text("upon")
    await expect(page.locator("#working")).to_be_hidden()
    await expect(page.locator("#card-1")).to_have_attribute("aria-busy", "true")
    await world.show(1, Card(blocks=(TextBlock(markdown="Once upon a **time**."),)), revision=2)
    await expect(page.locator("#card-1 strong")).to_have_text("time")
    await expect(page.locator("#card-1")).not_to_have_attribute("aria-busy", "true")
    await expect(page.locator("#announce")).to_contain_text("Once upon a time.")


async def test_the_columns_of_a_drawn_formula_are_aligned(
    world: WebHarness, browser: Browser
) -> None:
    latex = r"$$\begin{align*} x &= y + z + 1 \\ long &= n \end{align*}$$"
    await world.show(1, Card(blocks=(TextBlock(markdown=latex),)))
    visitor = await visit(browser, world)
    await expect(visitor.page.locator("#card-1 mtd")).to_have_count(4)
    ends, starts = await visitor.page.evaluate(EDGES_OF_COLUMNS)
    assert ends[0] == pytest.approx(ends[1], abs=3)
    assert starts[0] == pytest.approx(starts[1], abs=3)


async def test_choices_and_forms_are_answered(world: WebHarness, browser: Browser) -> None:
    options = tuple(SelectOption(label=f"Model {n}", value=f"m{n}") for n in range(6))
    form = FormBlock(
        fields=(
            FormField(name="text", label="What?", field=FormFieldKind.PARAGRAPH),
            FormField(name="model", label="Which?", field=FormFieldKind.CHOICE, options=options),
        ),
        submit="Create",
        action=SubmitTaskForm(),
        token="formformform",
    )
    few = SelectBlock(
        placeholder="Few", action=ChooseModel(), options=options[:2], token="fewfewfewfew"
    )
    many = SelectBlock(
        placeholder="Many", action=ChooseModel(), options=options, token="manymanymany"
    )
    visitor = await visit(browser, world)
    page = visitor.page
    await world.show(1, Card(title="Ask", blocks=(few, many, form)))

    await page.get_by_role("button", name="Model 1").click()
    await expect(page.locator(".toast")).to_have_count(1)
    await page.get_by_label("Many").select_option("m4")
    await page.get_by_role("button", name="Choose").click()
    await expect(page.locator(".toast")).to_have_count(2)
    await page.get_by_label("What?").fill("a thing")
    await world.show(1, Card(title="Ask again", blocks=(few, many, form)), revision=2)
    await expect(page.locator(".card-title")).to_have_text("Ask again")
    await expect(page.get_by_label("What?")).to_have_value("a thing")
    await page.get_by_label("Which?").select_option("m2")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator(".toast")).to_have_count(3)

    pressed = [(press.token, press.value, dict(press.form)) for press in world.inbox.presses]
    assert pressed == [
        ("fewfewfewfew", "m1", {}),
        ("manymanymany", "m4", {}),
        ("formformform", "", {"text": "a thing", "model": "m2"}),
    ]


async def test_the_command_menu_is_driven_by_keys(world: WebHarness, browser: Browser) -> None:
    page = (await visit(browser, world)).page
    await page.locator("#text").press_sequentially("/st")
    await expect(page.get_by_role("option")).to_have_count(2)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("#text")).to_have_value("/status ")
    await expect(page.locator("#commands")).to_be_hidden()
    await page.locator("#text").fill("/l")
    await page.keyboard.press("Escape")
    await expect(page.locator("#commands")).to_be_hidden()
    await page.locator("#text").fill("/help")
    await page.keyboard.press("Enter")
    await expect(page.locator(".said .bubble")).to_have_text("/help")


async def test_composing_a_chinese_word_does_not_send(world: WebHarness, browser: Browser) -> None:
    page = (await visit(browser, world)).page
    await page.locator("#text").fill("ni hao")
    await page.locator("#text").dispatch_event(
        "keydown", {"key": "Enter", "isComposing": True, "bubbles": True, "cancelable": True}
    )
    await expect(page.locator("#text")).to_have_value("ni hao")
    await expect(page.locator(".said")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.locator(".said .bubble")).to_have_text("ni hao")


async def test_a_file_is_attached_and_sent(world: WebHarness, browser: Browser) -> None:
    page = (await visit(browser, world)).page
    picked = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"},
        {"name": "empty.txt", "mimeType": "text/plain", "buffer": b""},
    ]
    await page.locator("#picker").set_input_files(picked)  # type: ignore[arg-type]  # FilePayload is a plain dict
    await expect(page.locator("#files li")).to_have_count(1)
    await expect(page.locator(".toast")).to_contain_text("empty.txt is empty")
    await page.locator("#send").click()
    await expect(page.locator(".said a.file")).to_contain_text("notes.txt")
    (file,) = world.inbox.messages[0].attachments
    assert (world.home / file.reference["path"]).read_bytes() == b"hello"


async def test_two_tabs_show_one_conversation_in_the_language_chosen(
    world: WebHarness, browser: Browser
) -> None:
    visitor = await visit(browser, world)
    other = await visitor.page.context.new_page()
    await other.goto(world.url)
    await expect(other.locator("#status")).to_have_attribute("data-state", "online")
    await visitor.page.locator("#text").fill("hello")
    await visitor.page.keyboard.press("Enter")
    await expect(other.locator(".said .bubble")).to_have_text("hello")
    await other.get_by_role("button", name="中文").click()
    await expect(other.locator("html")).to_have_attribute("lang", "zh")
    await expect(other.locator(".said .bubble")).to_have_text(["hello", "/language zh"])


async def test_new_messages_do_not_pull_a_reader_away(world: WebHarness, browser: Browser) -> None:
    page = (await visit(browser, world)).page
    for number in range(1, 30):
        await world.show(number, Card(blocks=(TextBlock(markdown=f"message {number}\n\nmore"),)))
    await expect(page.locator("#card-29")).to_be_in_viewport()
    await page.locator("#scroll").hover()
    await page.mouse.wheel(0, -600)
    await expect(page.locator("#card-29")).not_to_be_in_viewport()
    await world.show(30, Card(blocks=(TextBlock(markdown="message 30"),)))
    await expect(page.locator("#latest")).to_be_visible()
    await expect(page.locator("#card-30")).not_to_be_in_viewport()
    await page.locator("#latest").click()
    await expect(page.locator("#card-30")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("name", "window"),
    [
        (
            "phone",
            {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True},
        ),
        ("dark", {"color_scheme": "dark"}),
        ("chinese", {"locale": "zh-CN"}),
    ],
)
async def test_nothing_is_cut_off_on_a_phone_in_the_dark_or_in_chinese(
    world: WebHarness, browser: Browser, tmp_path: Path, name: str, window: dict[str, Any]
) -> None:
    await world.show(1, RUNNING)
    world.alerts.current = ["Telegram does not accept the token. Set TELEGRAM_BOT_TOKEN."]
    visitor = await visit(browser, world, **window)
    page = visitor.page
    await expect(page.locator("#card-1")).to_be_visible()
    await expect(page.locator("#alerts")).to_contain_text("Telegram")
    wider = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    inner = await page.locator("#scroll").evaluate("node => node.scrollWidth > node.clientWidth")
    assert (wider, inner) == (False, False)
    await visitor.save_screenshot(name, tmp_path)
    if name == "dark":
        colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert all(int(part) < 60 for part in colour.strip("rgb()").split(","))
    assert visitor.console_errors == []


async def test_everything_can_be_reached_by_keyboard_and_has_a_name(
    world: WebHarness, browser: Browser
) -> None:
    await world.show(1, RUNNING)
    page = (await visit(browser, world)).page
    await expect(page.locator("#card-1")).to_be_visible()
    nameless = await page.evaluate(
        """[...document.querySelectorAll('button, input:not([hidden]), textarea, select')]
            .filter((node) => node.checkVisibility())
            .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []
    reached = set()
    for _ in range(14):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
    assert {"Pause", "Stop", "Log", "Details"} <= reached
