"""Every other view, in both languages, with nothing and with too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from cards.actions import AnswerWithoutTask, ListTasks, PauseTask, ResumeTask, StartTask
from cards.card_json import dump_card, load_card
from cards.catalog import TextCatalog, catalog_for
from cards.model import (
    ButtonsBlock,
    Card,
    CardTone,
    CodeBlock,
    NoteBlock,
    TextBlock,
    error_card,
    notice_card,
)
from cards.render.text import render
from cards.telegram_text import markdown_to_rich
from cards.views.approvals import approval_card, waiting_approvals_card
from cards.views.chat import (
    answer_card,
    models_card,
    proposal_card,
    proposal_declined_card,
    session_card,
    task_started_card,
)
from cards.views.costs import cost_card
from cards.views.people import (
    access_granted_card,
    paired_card,
    pairing_card,
    pairing_refused_card,
    pairings_card,
    welcome_card,
)
from cards.views.prompts import figures_data, version_adopted_card, version_retired_card
from cards.views.system import HelpLine, help_card, status_card
from cards.views.tasks import (
    new_task_form,
    task_changed_card,
    task_detail_card,
    task_history_card,
    task_list_card,
)
from storage.records.approvals import ApprovalKind, ApprovalState
from storage.records.people import Channel, ChatId, Language, PairingRequest, PairingState
from storage.records.tasks import EventKind, NodeStatus, TaskPage, TaskPriority, TaskStatus
from tests.builders import (
    GPT,
    NOW,
    OFFLINE,
    make_approval,
    make_cost_report,
    make_event,
    make_step,
    make_system_status,
    make_task,
    make_view,
)
from tests.cards.untranslated_words import foreign_words_on
from tests.fakes.prompts import make_figures, make_version

ZONE = ZoneInfo("Asia/Shanghai")
EN, ZH = catalog_for(Language.ENGLISH), catalog_for(Language.CHINESE)
HUGE = "长 text\n" * 5000
PAIRING = PairingRequest(
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
    tasks = tuple(make_task(f"task{n}x", status) for n, status in enumerate(statuses))
    return TaskPage(tasks=tasks, page=at, pages=pages, total=len(tasks))


def huge_task() -> Card:
    task = make_task(status=TaskStatus.FAILED, title=HUGE, summary=HUGE, reason=HUGE)
    step = replace(make_step(status=NodeStatus.FAILED), title=HUGE, error=HUGE, summary=HUGE)
    return task_detail_card(make_view(task, *[step] * 40, plan="p"), EN, now=NOW, zone=ZONE)


def detail(status: TaskStatus, words: TextCatalog) -> Card:
    return task_detail_card(
        make_view(make_task(status=status), make_step()), words, now=NOW, zone=ZONE
    )


def request(kind: ApprovalKind, state: ApprovalState, words: TextCatalog) -> Card:
    approval = make_approval(kind=kind, state=state, subject="CODE1")
    return approval_card(approval, words, zone=ZONE, decider="Olga")


def prompt_request(words: TextCatalog) -> Card:
    payload = {
        "stage": "trial",
        "reason": "Too early.",
        "share": 50,
        "signal": {"kind": "retries", "hits": 4, "window": 20},
        "figures": figures_data(make_figures()),
    }
    asked = replace(make_approval(kind=ApprovalKind.PROMPT), payload=payload)
    return approval_card(asked, words, zone=ZONE)


START = StartTask(text="Water the plants", title="Plants")
TALK = AnswerWithoutTask(text="Water the plants")

CARDS: dict[str, Callable[[TextCatalog], Card]] = {
    "answer": lambda words: answer_card("**Hi**", words, notes=("note",)),
    "nothing": lambda words: answer_card("", words),
    "proposal": lambda words: proposal_card(START, TALK, words, answer_text="Sure."),
    "started": lambda words: task_started_card("Plants", "k3m9qa", words),
    "declined": lambda words: proposal_declined_card("Plants", words),
    "session": lambda words: session_card(
        turns=2, choice=GPT, last_used_at=NOW, now=NOW, words=words
    ),
    "models": lambda words: models_card((OFFLINE, GPT), chosen_name="", words=words),
    "no models": lambda words: models_card((), chosen_name="", words=words),
    "ill model": lambda words: models_card(
        (replace(GPT, problem="backend.denied"),), chosen_name=GPT.name, words=words, changed=True
    ),
    "error": lambda words: error_card(HUGE, "hint"),
    "notice": lambda words: notice_card("", "text"),
    "pairing": lambda words: pairing_card(PAIRING, words, zone=ZONE, asked=True),
    "paired": paired_card,
    "refused": pairing_refused_card,
    "pairings": lambda words: pairings_card((("Eve", "CODE1"),), words),
    "no pairings": lambda words: pairings_card((), words),
    "welcome": welcome_card,
    "welcome offline": lambda words: welcome_card(words, offline=True),
    "welcome group": lambda words: welcome_card(words, group=True),
    "help": lambda words: help_card(
        (HelpLine(family="tasks", name="run", usage="text", text="Do it", aliases=("/跑",)),), words
    ),
    "status": lambda words: status_card(make_system_status(), words, now=NOW, zone=ZONE),
    "cost": lambda words: cost_card(make_cost_report(), words),
    "list": lambda words: task_list_card(page(*TaskStatus), words, now=NOW),
    "empty list": lambda words: task_list_card(page(), words, now=NOW, status=TaskStatus.FAILED),
    "ask": new_task_form,
    "logs": lambda words: task_history_card(
        make_task(), [make_event(kind, "x") for kind in EventKind], words, zone=ZONE
    ),
    "no logs": lambda words: task_history_card(make_task(), (), words, zone=ZONE),
    "moved": lambda words: task_changed_card(make_task(), "Paused.", words),
    "huge task": lambda words: huge_task(),
    **{f"detail {status}": partial(detail, status) for status in TaskStatus},
    **{
        f"approval {kind} {state}": partial(request, kind, state)
        for kind in ApprovalKind
        for state in ApprovalState
    },
    "prompt change": prompt_request,
    "prompt adopted": lambda words: version_adopted_card(make_version(), make_figures(), words),
    **{
        f"prompt {reason}": partial(version_retired_card, make_version(), reason, make_figures())
        for reason in ("worse", "unclear", "changed", "no_answer")
    },
    "waiting": lambda words: waiting_approvals_card([make_approval()] * 7, words, zone=ZONE),
    "nothing waiting": lambda words: waiting_approvals_card([], words, zone=ZONE),
}

SAMPLES = frozenset({
    "Hi", "note", "Sure", "Plants", "gpt-", "text", "hint", "CODE", "Eve", "Do", "it", "the",
    "Water", "plants", "opus", "qa", "Paused", "It", "was", "in", "shed", "Find", "can", "Delete",
    "old", "logs", "rm", "Olga", "too", "early", "reviewer", "Too",
})  # fmt: skip
"""Words of the samples' people and tasks."""

every_card = pytest.mark.parametrize("name", CARDS)
both = pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])


@both
@every_card
def test_a_card_has_a_summary_and_survives_storing(name: str, words: TextCatalog) -> None:
    card = CARDS[name](words)

    assert card.summary or not card.blocks
    assert "\n" not in card.title
    assert len(card.title) <= 120
    assert load_card(dump_card(card)) == card


@both
@every_card
def test_a_card_reads_as_plain_text(name: str, words: TextCatalog) -> None:
    text = render(CARDS[name](words)).text

    assert text or name == "nothing"
    assert "{" not in text


@every_card
def test_a_card_in_chinese_has_no_english_word(name: str) -> None:
    # The huge task is always written in English.
    assert name == "huge task" or foreign_words_on(CARDS[name](ZH), SAMPLES) == set()


def test_list_rows_have_the_buttons_of_their_state() -> None:
    card = task_list_card(page(TaskStatus.RUNNING, TaskStatus.PAUSED), EN, now=NOW)

    rows = [block for block in card.blocks if isinstance(block, ButtonsBlock)]
    kinds = [{type(button.action) for button in row.items} for row in rows]
    assert PauseTask in kinds[0]
    assert ResumeTask not in kinds[0]
    assert ResumeTask in kinds[1]


@pytest.mark.parametrize(("at", "turns"), [(1, [2]), (2, [1, 3]), (3, [2])])
def test_list_pages_lead_to_their_neighbours(at: int, turns: list[int]) -> None:
    card = task_list_card(
        page(TaskStatus.FAILED, at=at, pages=3), EN, now=NOW, status=TaskStatus.FAILED
    )

    actions = [
        button.action
        for block in card.blocks
        if isinstance(block, ButtonsBlock)
        for button in block.items
        if isinstance(button.action, ListTasks)
    ]
    assert actions == [ListTasks(page=turn, status="failed") for turn in turns]


def test_a_log_is_cut_at_its_beginning_to_3000_characters() -> None:
    events = [
        replace(make_event(EventKind.NOTE, f"line {n} " + "x" * 200), id=n) for n in range(50)
    ]

    card = task_history_card(make_task(), events, EN, zone=ZONE)

    code = next(block for block in card.blocks if isinstance(block, CodeBlock))
    assert len(code.text) <= 3000
    assert "line 49" in code.text
    assert "line 0 " not in code.text


def test_a_waiting_request_can_be_decided_and_a_settled_one_says_by_whom() -> None:
    waiting = approval_card(make_approval(), EN, zone=ZONE)
    settled = approval_card(
        make_approval(state=ApprovalState.REJECTED), EN, zone=ZONE, decider="Olga"
    )

    assert waiting.tone is CardTone.WARN
    assert "/approve ap7x2k" in render(waiting).text
    assert settled.tone is CardTone.BAD
    assert "Olga" in render(settled).text
    assert "too early" in render(settled).text
    assert not [block for block in settled.blocks if isinstance(block, ButtonsBlock)]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("help", "🤖 指令帮助"),
        ("nothing waiting", "✅ 审批"),
        ("approval human waiting", "🔔 需要审批"),
        ("cost", "💰 费用"),
        ("list", "📋 任务列表（8）"),
        ("logs", "📜 k3m9qa 的经过"),
        ("detail failed", "📌 Water the plants"),
    ],
)
def test_titles_of_the_reference_are_kept(name: str, title: str) -> None:
    assert CARDS[name](ZH).title == title


def test_a_strangers_card_cannot_be_pressed() -> None:
    card = pairing_card(PAIRING, EN, zone=ZONE, asked=True)

    assert not [block for block in card.blocks if isinstance(block, ButtonsBlock)]
    assert "CODE1" in render(card).text


@pytest.mark.parametrize("name", ["**x** [pay](https://evil.example)", "<at id=all></at>", "`a`"])
def test_a_stranger_s_name_is_shown_and_never_acts(name: str) -> None:
    waiting = replace(make_approval(kind=ApprovalKind.PAIRING), title=name)
    decided = replace(waiting, state=ApprovalState.APPROVED, decided_at=NOW)
    cards = [
        approval_card(waiting, EN, zone=ZONE),
        approval_card(decided, EN, zone=ZONE, decider=name),
        access_granted_card(replace(PAIRING, name=name), EN),
    ]

    for card in cards:
        said = [block.markdown for block in card.blocks if isinstance(block, TextBlock | NoteBlock)]
        assert not any(name in markdown for markdown in said)
        assert name in markdown_to_rich("\n".join(said)).text


def test_a_log_names_a_new_priority_in_the_readers_language() -> None:
    events = [make_event(EventKind.REORDERED, TaskPriority.URGENT)]

    text = render(
        task_history_card(make_task(), events, catalog_for(Language.CHINESE), zone=ZONE)
    ).text

    assert "紧急" in text
    assert "urgent" not in text


def test_a_proposal_shows_the_instruction_that_will_run() -> None:
    text = "Delete the logs\n" + "and count them\n" * 200 + "then rm -rf build"
    start = StartTask(text=text, priority=TaskPriority.IMPORTANT, title="Tidy up")
    card = proposal_card(start, AnswerWithoutTask(text="x"), EN)
    shown = render(card).text

    assert "Tidy up" in shown
    assert "Delete the logs" in shown
    assert "then rm -rf build" in shown, "in the whole instruction"
