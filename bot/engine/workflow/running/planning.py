"""Asking for a plan, until it is one that can be run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bot.engine.agent.desk import Ask, Reply
from bot.engine.llm.answers import PlanAnswer
from bot.engine.llm.base import BackendDenied
from bot.engine.workflow import prompts
from bot.engine.workflow.forms.answers import steps_of
from bot.engine.workflow.forms.faults import told
from bot.engine.workflow.graph import BadGraph, Workflow
from bot.engine.workflow.steps import planned
from cards.words import Words, words_for
from storage.records.people import Language

log = logging.getLogger(__name__)

_MOST_TOLD = 10


async def agreed(
    ask: Ask,
    put: Callable[[Ask], Awaitable[Reply]],
    keep: Callable[[Reply], Awaitable[None]],
    words: Words,
) -> tuple[Reply, Workflow]:
    """The plan, with the answer that it comes from and that nobody has booked. A workflow that
    cannot be run goes back once with its faults; is it refused again, the steps in order that
    were given with it do. `keep` books the answers nothing comes of.

    Raises BackendDenied, with what to tell the Boss as its hint, where there are no such steps."""
    reply = await put(ask)
    try:
        return reply, planned(reply)
    except BadGraph as bad:
        log.info("a plan is refused: %s", bad)
        faults = told(bad.faults, words_for(Language.ENGLISH))
    await keep(reply)
    again = await put(replace(ask, prompt=prompts.plan_again_prompt(ask.prompt, faults)))
    try:
        return again, planned(again)
    except BadGraph as bad:
        log.warning("a plan is refused twice: %s", bad)
        simple = _steps(again) or _steps(reply)
        if simple is not None:
            return again, simple
        why = words("workflow.plan_refused", faults=told(bad.faults, words, most=_MOST_TOLD))
    await keep(again)
    raise BackendDenied("a plan that cannot be run", hint=why)


def _steps(reply: Reply) -> Workflow | None:
    answer = reply.result.value
    return steps_of(answer) if isinstance(answer, PlanAnswer) else None
