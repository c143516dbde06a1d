"""A configured secret is masked in everything that Shiftboss sends, whoever wrote it and how."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import pytest_asyncio

from bot.config.settings import Settings
from bot.engine.redaction import SecretMasker
from bot.transports.outbox import _mask_texts
from cards.actions import StartTask
from cards.card_json import dump_card, load_card
from cards.formats import escape_markdown
from cards.model import (
    Block,
    ButtonsBlock,
    Card,
    CardButton,
    ChecklistBlock,
    ChecklistItem,
    CodeBlock,
    CollapsibleBlock,
    ConfirmDialog,
    FieldsBlock,
    FileBlock,
    FormBlock,
    FormField,
    ImageBlock,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
    SelectOption,
    TableBlock,
    TextBlock,
)
from storage.migrate import describe_place
from tests.emulators.models.script import ScriptedReply
from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
    write_call,
)

KEY = "tvly-9f/Xq2+Lm7=Zr&4"
"""It looks different in URLs, HTML and base64."""

DATABASE_PASSWORD = "hunter2+of the house"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://boss:{quote(DATABASE_PASSWORD)}@db/shiftboss",
        f"postgresql://boss@db/shiftboss?password={quote_plus(DATABASE_PASSWORD)}",
        f"postgresql://db/shiftboss?sslmode=require&sslpassword={quote(DATABASE_PASSWORD)}&user=b",
    ],
)
def test_a_password_in_the_url_of_the_database_is_told_to_nobody(url: str, tmp_path: Path) -> None:
    settings = Settings(SHIFTBOSS_HOME=tmp_path, DATABASE_URL=url)  # type: ignore[call-arg]
    mask = SecretMasker(settings.secret_values).mask

    for told in (url, f"cannot connect: {DATABASE_PASSWORD}", describe_place(url)):
        assert "hunter2" not in mask(told)
    assert "hunter2" not in describe_place(url)


FORMS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "in a sentence": lambda key: f"the key is {key}.",
    "twice": lambda key: f"{key} and {key}",
    "in code": lambda key: f"`{key}`",
    "in a fence": lambda key: f"```\nexport TAVILY_API_KEY={key}\n```",
    "in bold": lambda key: f"**{key}**",
    "in a link": lambda key: f"[here](https://evil.example/?k={quote(key, safe='')})",
    "as a parameter": lambda key: f"k={quote_plus(key)}",
    "quoted in small letters": lambda key: re.sub(
        "%..", lambda found: found.group().lower(), quote(key, safe="")
    ),
    "as base64": lambda key: base64.b64encode(key.encode()).decode(),
    "as base64 after one letter": lambda key: base64.b64encode(f"x{key}".encode()).decode(),
    "as base64 after two": lambda key: base64.b64encode(f"xy{key}".encode()).decode(),
    "as base64 of a header": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "as hex": lambda key: key.encode().hex(),
    "as large hex": lambda key: key.encode().hex().upper(),
    "as JSON": lambda key: json.dumps({"key": key}),
    "as HTML": html.escape,
    "cut off at its end": lambda key: f"so far: {key[:-3]}",
    "cut off at its start": lambda key: f"{key[4:]} it was",
}


def readable(key: str, text: str) -> bool:
    """Whether eight characters in a row of any of its forms are in the text."""
    raw = key.encode()
    cores = [base64.b64encode(b"x" * n + raw).decode()[4:-4] for n in range(3)]
    wholes = [key, raw.hex(), raw.hex().upper(), quote(key, safe=""), html.escape(key), *cores]
    return any(each[3:-3] in text for each in wholes)


@pytest.mark.parametrize("name", FORMS)
def test_a_secret_is_masked_in_every_form(name: str) -> None:
    said = FORMS[name](KEY)
    assert readable(KEY, said) or "cut off" in name or "small" in name

    shown = SecretMasker([KEY]).mask_for_people(said)

    assert "••••" in shown
    assert not readable(KEY, shown)


DRAWN: dict[str, Callable[[str], str]] = {
    "escaped": lambda key: key.replace("-", "\\-").replace("_", "\\_"),
    "escaped once": lambda key: key.replace("_", "\\_", 1),
    "as Shiftboss escapes names": lambda key: escape_markdown(f"name {key} x", 100),
    "by numbers": lambda key: "".join(f"&#{ord(each)};" for each in key),
    "by large numbers": lambda key: "".join(f"&#x{ord(each):X};" for each in key),
    "by names": lambda key: key.replace("_", "&lowbar;"),
    "half in bold": lambda key: f"{key[:9]}**{key[9:]}**",
    "half in italics": lambda key: f"*{key[:9]}*{key[9:]}",
    "half in code": lambda key: f"{key[:9]}`{key[9:]}`",
    "half struck out": lambda key: f"{key[:9]}~~{key[9:]}~~",
    "each in bold": lambda key: "".join(f"**{each}**" for each in key),
    "with blanks of no width": "\u200b".join,
    "with joiners": "\u2060".join,
    "with soft hyphens": "\u00ad".join,
    "cut off while it is written": lambda key: f"it is {key[:18]}".replace("_", "\\_"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_markdown_draws_as_a_secret_is_masked(name: str) -> None:
    key = "sk-ant-Zq8_mN3xTb-47LkVw_Hd2RcPy"
    said = DRAWN[name](key)
    mask = SecretMasker([key]).mask_for_people

    shown = mask(f"So **far**: {said}" if "cut off" in name else f"So **far**: {said} and *more*")

    assert "••••" in shown
    drawn = re.sub(r"[*`~\\\u200b\u2060\u00ad]", "", html.unescape(shown))
    assert not readable(key, drawn)
    assert "So **far**: " in shown
    assert "cut off" in name or shown.endswith(" and *more*")


def test_marks_of_markdown_alone_are_no_secret() -> None:
    text = "**a** `b` \\* &amp; ~~c~~ \u200b and *nothing* more"

    assert SecretMasker([KEY, "sk-ant-Zq8_mN3xTb-47LkVw"]).mask_for_people(text) == text


@pytest.mark.parametrize("secret", ["a", "test", "password", "development", "geheim", "12345"])
def test_a_short_secret_or_a_word_leaves_normal_texts_alone(secret: str) -> None:
    text = f"Run the {secret}, a {secret}-like thing, in development: 12345 tests."

    assert SecretMasker([secret]).mask_for_people(text) == text


def test_what_only_looks_like_a_secret_is_shown_to_people() -> None:
    text = "An example key is ghp_0123456789abcdefghijABCDEFGHIJ012345."

    assert SecretMasker([KEY]).mask_for_people(text) == text


ACTION = StartTask(text="x")
BLOCKS: list[Block] = [
    TextBlock(KEY),
    NoteBlock(KEY),
    FieldsBlock(((KEY, "x"), ("x", KEY))),
    ChecklistBlock((ChecklistItem(label=KEY, detail=KEY),)),
    ProgressBlock(percent=1, label=KEY),
    CodeBlock(text=KEY, language=""),
    TableBlock(columns=(KEY,), rows=((KEY,),)),
    ImageBlock(path="files/a.png", alt=KEY),
    FileBlock(path="files/a.txt", name=f"{KEY}.txt".replace("/", "-"), size=1),
    ButtonsBlock((CardButton(KEY, ACTION, confirm=ConfirmDialog(title=KEY, text=KEY)),)),
    SelectBlock(placeholder=KEY, action=ACTION, options=(SelectOption(label=KEY, value="v"),)),
    FormBlock(
        fields=(FormField(name="f", label=KEY, placeholder=KEY, value=KEY),),
        submit=KEY,
        action=ACTION,
    ),
    CollapsibleBlock(title=KEY, blocks=(TextBlock(KEY), CodeBlock(text=KEY))),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.kind)
def test_a_secret_is_masked_in_every_part_of_a_card(block: Block) -> None:
    mask = SecretMasker([KEY, f"{KEY}.txt".replace("/", "-")]).mask_for_people
    card = Card(title=KEY, blocks=(block,), summary=KEY, fallback=f"say {KEY}")

    stored = _mask_texts(dump_card(card), mask)

    assert KEY not in json.dumps(stored, ensure_ascii=False)
    assert "tvly" not in json.dumps(stored, ensure_ascii=False)
    assert type(load_card(stored).blocks[0]) is type(block)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(home, "openai", TAVILY_API_KEY=KEY) as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", FORMS)
async def test_an_answer_of_a_model_reaches_no_chat_with_a_secret(
    world: ModelWorld, name: str
) -> None:
    boss, chat = world.new_owner()
    cue = f"tell-{[*FORMS].index(name):02}"
    world.script.script(cue, "talk", ScriptedReply(text=f"Sure. {FORMS[name](KEY)}\n\nThat is it."))

    await boss.says(chat, cue)

    answer = await chat.wait_for(lambda m: m.from_bot and "local-model" in m.text)
    # In the middle of a text a piece is only known if it is the whole.
    assert "cut off" in name or not readable(KEY, f"{answer.history}\n{answer.extra}")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_task_named_after_a_secret_shows_it_in_no_card_and_no_file_name(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    name = KEY.replace("/", "_")
    world.script.script("leaky", "plan", plan_reply(f"leaky-step {KEY}"))
    world.script.script(
        "leaky-step",
        "step",
        write_call(f"a-{KEY[:4]}.txt", KEY),
        step_reply(f"Done: {KEY} {name}."),
    )

    await boss.says(chat, f"/run leaky with {KEY}")
    await wait_for_message(chat, "Task finished")

    assert not any(KEY in m.text for m in chat.from_bot)
    assert any("••••" in m.text for m in chat.from_bot)


@pytest.mark.asyncio(loop_scope="module")
async def test_neither_errors_nor_echoes_of_commands_show_a_secret(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    for text in (
        f"/project /{KEY}",
        f"/get {KEY}",
        f"/run -d /{KEY} x",
        f"/{KEY}",
        f"/tools {KEY}",
    ):
        before = len(chat.from_bot)
        await boss.says(chat, text)
        await chat.wait_until(lambda n=before: len(chat.from_bot) > n)  # type: ignore[misc]  # bound now

    assert not any(KEY in m.text for m in chat.from_bot)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_token_of_the_web_chat_made_at_the_first_start_is_a_secret_too(
    world: ModelWorld,
) -> None:
    token = world.program.address.partition("?token=")[2]
    boss, chat = world.new_owner()
    world.script.script("web-token", "talk", ScriptedReply(text=f"It is {token}, I think."))

    await boss.says(chat, "web-token")
    answer = await chat.wait_for(lambda m: m.from_bot and "I think" in m.text)

    assert token not in answer.text
