"""Every other view, in both languages, with nothing and with too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from cards.actions import JustTalk, ListTasks, PauseTask, ResumeTask, StartTask
from cards.card_json import dump_card, load_card
from cards.markdown_text import to_rich
from cards.model import Buttons, Card, Code, Note, Text, Tone
from cards.render.text import render
from cards.views.approvals import approval_card, waiting_card
from cards.views.chat import (
    answer_card,
    declined_card,
    models_card,
    proposal_card,
    session_card,
    started_card,
)
from cards.views.errors import error_card, notice_card
from cards.views.people import (
    let_in_card,
    paired_card,
    pairing_card,
    pairings_card,
    refused_card,
    welcome_card,
)
from cards.views.system import HelpLine, help_card, status_card
from cards.views.work.costs import cost_card
from cards.views.work.task_lists import ask_card, detail_card, list_card, logs_card, moved_card
from cards.words import Words, words_for
from storage.records.approvals import ApprovalKind, ApprovalState
from storage.records.people import Channel, ChatId, Language, Pairing, PairingState
from storage.records.tasks import EventKind, NodeStatus, Priority, TaskPage, TaskStatus
from tests.cards.chinese import foreign_words_on
from tests.samples import (
    GPT,
    NOW,
    OFFLINE,
    a_cost_report,
    a_step,
    a_system_status,
    a_task,
    a_view,
    an_approval,
    an_event,
)

ZONE = ZoneInfo("Asia/Shanghai")
EN, ZH = words_for(Language.ENGLISH), words_for(Language.CHINESE)
HUGE = "长 text\n" * 5000
PAIRING = Pairing(
    code="CODE1",
    channel=Channel.TELEGRAM,
    external_id="7",
    name="Eve",
    chat_id=ChatId("s1"),
    state=PairingState.PENDING,
    created_at=NOW,
    expires_at=NOW + timedelta(hours=1),
)


def page(*statuses: TaskStatus, at: int = 1, pages: int = 1) -> TaskPage:
    tasks = tuple(a_task(f"task{n}x", status) for n, status in enumerate(statuses))
    return TaskPage(tasks=tasks, page=at, pages=pages, total=len(tasks))


def huge_task() -> Card:
    task = a_task(status=TaskStatus.FAILED, title=HUGE, summary=HUGE, reason=HUGE)
    step = replace(a_step(status=NodeStatus.FAILED), title=HUGE, error=HUGE, summary=HUGE)
    return detail_card(a_view(task, *[step] * 40, plan="p"), EN, now=NOW, zone=ZONE)


def detail(status: TaskStatus, words: Words) -> Card:
    return detail_card(a_view(a_task(status=status), a_step()), words, now=NOW, zone=ZONE)


def request(kind: ApprovalKind, state: ApprovalState, words: Words) -> Card:
    approval = an_approval(kind=kind, state=state, subject="CODE1")
    return approval_card(approval, words, zone=ZONE, decider="Olga")


START = StartTask(text="Water the plants", title="Plants")
TALK = JustTalk(text="Water the plants")

CARDS: dict[str, Callable[[Words], Card]] = {
    "answer": lambda words: answer_card("**Hi**", words, notes=("note",)),
    "nothing": lambda words: answer_card("", words),
    "proposal": lambda words: proposal_card(START, TALK, words, said="Sure."),
    "started": lambda words: started_card("Plants", "k3m9qa", words),
    "declined": lambda words: declined_card("Plants", words),
    "session": lambda words: session_card(
        turns=2, model=GPT, last_used_at=NOW, now=NOW, words=words
    ),
    "models": lambda words: models_card((OFFLINE, GPT), chosen="", words=words),
    "no models": lambda words: models_card((), chosen="", words=words),
    "ill model": lambda words: models_card(
        (replace(GPT, problem="backend.denied"),), chosen=GPT.name, words=words, changed=True
    ),
    "error": lambda words: error_card(HUGE, "hint"),
    "notice": lambda words: notice_card("", "text"),
    "pairing": lambda words: pairing_card(PAIRING, words, zone=ZONE),
    "paired": paired_card,
    "refused": refused_card,
    "pairings": lambda words: pairings_card((("Eve", "CODE1"),), words),
    "no pairings": lambda words: pairings_card((), words),
    "welcome": welcome_card,
    "welcome offline": lambda words: welcome_card(words, offline=True),
    "welcome group": lambda words: welcome_card(words, group=True),
    "help": lambda words: help_card(
        (HelpLine(family="tasks", name="run", usage="text", text="Do it", aliases=("/跑",)),), words
    ),
    "status": lambda words: status_card(a_system_status(), words, now=NOW, zone=ZONE),
    "cost": lambda words: cost_card(a_cost_report(), words),
    "list": lambda words: list_card(page(*TaskStatus), words, now=NOW),
    "empty list": lambda words: list_card(page(), words, now=NOW, status=TaskStatus.FAILED),
    "ask": ask_card,
    "logs": lambda words: logs_card(
        a_task(), [an_event(kind, "x") for kind in EventKind], words, zone=ZONE
    ),
    "no logs": lambda words: logs_card(a_task(), (), words, zone=ZONE),
    "moved": lambda words: moved_card(a_task(), "Paused.", words),
    "huge task": lambda words: huge_task(),
    **{f"detail {status}": partial(detail, status) for status in TaskStatus},
    **{
        f"approval {kind} {state}": partial(request, kind, state)
        for kind in ApprovalKind
        for state in ApprovalState
    },
    "waiting": lambda words: waiting_card([an_approval()] * 7, words, zone=ZONE),
    "nothing waiting": lambda words: waiting_card([], words, zone=ZONE),
}

SAMPLES = frozenset({
    "Hi", "note", "Sure", "Plants", "gpt-", "text", "hint", "CODE", "Eve", "Do", "it", "the",
    "Water", "plants", "opus", "qa", "Paused", "It", "was", "in", "shed", "Find", "can", "Delete",
    "old", "logs", "rm", "Olga", "too", "early",
})  # fmt: skip
"""Words of the samples' people and tasks."""

every_card = pytest.mark.parametrize("name", CARDS)
both = pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])


@both
@every_card
def test_a_card_has_a_summary_and_survives_storing(name: str, words: Words) -> None:
    card = CARDS[name](words)

    assert card.summary or not card.blocks
    assert "\n" not in card.title
    assert len(card.title) <= 120
    assert load_card(dump_card(card)) == card


@both
@every_card
def test_a_card_reads_as_plain_text(name: str, words: Words) -> None:
    text = render(CARDS[name](words)).text

    assert text or name == "nothing"
    assert "{" not in text


@every_card
def test_a_card_in_chinese_has_no_english_word(name: str) -> None:
    # The huge task is always written in English.
    assert name == "huge task" or foreign_words_on(CARDS[name](ZH), SAMPLES) == set()


def test_list_rows_have_the_buttons_of_their_state() -> None:
    card = list_card(page(TaskStatus.RUNNING, TaskStatus.PAUSED), EN, now=NOW)

    rows = [block for block in card.blocks if isinstance(block, Buttons)]
    kinds = [{type(button.action) for button in row.items} for row in rows]
    assert PauseTask in kinds[0]
    assert ResumeTask not in kinds[0]
    assert ResumeTask in kinds[1]


@pytest.mark.parametrize(("at", "turns"), [(1, [2]), (2, [1, 3]), (3, [2])])
def test_list_pages_lead_to_their_neighbours(at: int, turns: list[int]) -> None:
    card = list_card(page(TaskStatus.FAILED, at=at, pages=3), EN, now=NOW, status=TaskStatus.FAILED)

    actions = [
        button.action
        for block in card.blocks
        if isinstance(block, Buttons)
        for button in block.items
        if isinstance(button.action, ListTasks)
    ]
    assert actions == [ListTasks(page=turn, status="failed") for turn in turns]


def test_a_log_is_cut_at_its_beginning_to_3000_characters() -> None:
    events = [replace(an_event(EventKind.NOTE, f"line {n} " + "x" * 200), id=n) for n in range(50)]

    card = logs_card(a_task(), events, EN, zone=ZONE)

    code = next(block for block in card.blocks if isinstance(block, Code))
    assert len(code.text) <= 3000
    assert "line 49" in code.text
    assert "line 0 " not in code.text


def test_a_waiting_request_can_be_decided_and_a_settled_one_says_by_whom() -> None:
    waiting = approval_card(an_approval(), EN, zone=ZONE)
    settled = approval_card(
        an_approval(state=ApprovalState.REJECTED), EN, zone=ZONE, decider="Olga"
    )

    assert waiting.tone is Tone.WARN
    assert "/approve ap7x2k" in render(waiting).text
    assert settled.tone is Tone.BAD
    assert "Olga" in render(settled).text
    assert "too early" in render(settled).text
    assert not [block for block in settled.blocks if isinstance(block, Buttons)]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("help", "🤖 指令帮助"),
        ("nothing waiting", "✅ 审批状态"),
        ("approval human waiting", "🔔 需要审批"),
        ("cost", "💰 对话费用"),
        ("list", "📋 任务列表 (8)"),
        ("logs", "📜 日志 k3m9qa"),
        ("detail failed", "📌 Water the plants"),
    ],
)
def test_titles_of_the_reference_are_kept(name: str, title: str) -> None:
    assert CARDS[name](ZH).title == title


def test_a_strangers_card_cannot_be_pressed() -> None:
    card = pairing_card(PAIRING, EN, zone=ZONE)

    assert not [block for block in card.blocks if isinstance(block, Buttons)]
    assert "CODE1" in render(card).text


@pytest.mark.parametrize("name", ["**x** [pay](https://evil.example)", "<at id=all></at>", "`a`"])
def test_a_stranger_s_name_is_shown_and_never_acts(name: str) -> None:
    waiting = replace(an_approval(kind=ApprovalKind.PAIRING), title=name)
    decided = replace(waiting, state=ApprovalState.APPROVED, decided_at=NOW)
    cards = [
        approval_card(waiting, EN, zone=ZONE),
        approval_card(decided, EN, zone=ZONE, decider=name),
        let_in_card(replace(PAIRING, name=name), EN),
    ]

    for card in cards:
        said = [block.markdown for block in card.blocks if isinstance(block, Text | Note)]
        assert not any(name in markdown for markdown in said)
        assert name in to_rich("\n".join(said)).text


def test_a_log_names_a_new_priority_in_the_readers_language() -> None:
    events = [an_event(EventKind.REORDERED, Priority.URGENT)]

    text = render(logs_card(a_task(), events, words_for(Language.CHINESE), zone=ZONE)).text

    assert "紧急" in text
    assert "urgent" not in text
