"""What every errand needs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from bot.engine.agent.desk import Ask, Desk
from bot.engine.agent.leave.asking import Asker
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.base import Chosen
from bot.engine.workflow.places.artifacts import Artifacts
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.running.here import AskForMore, Leaves
from bot.engine.workflow.store import WorkStore
from storage.records.people import Chat, ChatId, Language
from storage.records.tasks import Task

ShowPictures: TypeAlias = Callable[[Ask, Chosen, Sequence[str]], Awaitable[Ask]]
"""The same with those of these files of its workspace that are pictures, as its model can take
them."""


MOST_CONTEXT = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What every errand needs. `bench` is where a worker finds its tools; `chat_of` finds
    the chat whose model does the work where the task names none; `leaves` says which steps a
    person is asked about; `recall` finds what earlier tasks have left that may help; `on_change`
    is called after each commit that wrote events; `zone` is the one that people's clocks show.
    `asker` asks for leave to use tools: without one no step stops for that. `progress` is told
    what the running step does; `show_pictures` gives the model those that were sent along.
    `chance`, from 0 to 1, spreads the tries of those that wait for the same thing. A session that
    has grown beyond `most_context` tokens is left behind."""

    store: WorkStore
    desk: Desk
    artifacts: Artifacts
    bench: Workbench
    language_of: Callable[[Task], Awaitable[Language]]
    chat_of: Callable[[ChatId], Awaitable[Chat]]
    leaves: Leaves
    ask_for_more: AskForMore
    recall: Callable[[Task], Awaitable[Sequence[str]]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    on_change: Callable[[], None]
    zone: ZoneInfo
    asker: Asker | None = None
    show_pictures: ShowPictures | None = None
    chance: Callable[[], float] = random.random
    progress: Progress = field(default_factory=Progress)
    most_context: int = MOST_CONTEXT
