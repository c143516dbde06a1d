"""Work without a chat: the queue, or one task of it, or only a look at what would come next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta

from bot.app.build import Core, build_core
from bot.app.failures import unusable
from bot.app.lifecycle import App, stop_on_signals
from bot.app.parts import leaves_of, settings_language
from bot.app.services import LanguageOfTask
from bot.app.terminal.opening import explained, prepare
from bot.config.settings import Settings
from bot.engine.agent.team import purposes
from bot.engine.dispatch.dry_run import next_prompt
from bot.engine.workflow.shown.preview import Preview
from handlers.language import guessed
from storage.db import Database
from storage.errors import HomeBusy, HomeUnusable
from storage.home import Home
from storage.records.tasks import Task, TaskView


async def work(settings: Settings, announce: Callable[[str], None]) -> None:
    """Work the queue until SIGTERM or SIGINT: no channels, no web chat; commands typed beside it
    are taken. What there is to tell is kept for the next `shiftboss run`. Raises StartFailure, and
    HomeBusy."""
    # The web server is for who works on only: one task, or a look, needs none.
    from bot.app.terminal.door import door

    with held(settings):
        stop = stop_on_signals()
        async with (
            opened(settings) as core,
            App((*core.engine.workers, *door(settings, core))) as app,
        ):
            announce("Working the queue. Ctrl-C ends it politely.")
            await app.run(stop)


async def work_once(settings: Settings) -> TaskView | None:
    """Take the first task of the queue to its end, or to where it waits or pauses; the task as it
    is then, None if nothing waits that can start. Raises StartFailure, and HomeBusy."""
    with held(settings):
        stop = stop_on_signals()
        async with opened(settings) as core, AsyncExitStack() as stack:
            await core.engine.dispatcher.start(stack)
            task = await _one(core, stop)
            while await core.engine.reporter.tell():
                pass
            await core.engine.reporter.tell_places()
            return None if task is None else await core.engine.foreman.view(task.id)


async def look(settings: Settings) -> Preview | None:
    """What the next task would be told. Calls nobody and changes nothing."""
    try:
        with held(settings):
            return await _look(settings, alone=True)
    except HomeBusy:
        with explained(settings):
            return await _look(settings, alone=False)


async def _one(core: Core, stop: asyncio.Event) -> Task | None:
    working = asyncio.create_task(core.engine.dispatcher.one(), name="one task")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        await core.engine.dispatcher.drain()
    return await working


async def _look(settings: Settings, *, alone: bool) -> Preview | None:
    async with opened(settings) as core:
        return await next_prompt(
            core.store.work,
            language_of=LanguageOfTask(core.store.people, guessed, settings_language(settings)),
            recall=core.engine.recall,
            now=core.clock.now(),
            patience=timedelta(hours=settings.patience_hours),
            alone=alone,
            leaves=leaves_of(settings, core.store, core.clock),
            team=purposes(await core.engine.place.personas.known()),
        )


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """HomeBusy passes: what it means depends on what was wanted."""
    try:
        home = Home(settings.home)
    except HomeUnusable as error:
        raise unusable(error) from error
    with home, explained(settings):
        prepare(settings, settings.log_level)
        yield


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Core, None]:
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        core = await build_core(settings, db)
        stack.push_async_callback(core.engine.place.models.aclose)
        yield core
