"""Runs Shiftboss: with all channels, only its queue, or one task; and previews the next prompt."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

from bot.app.container import Container, open_container
from bot.app.lifecycle import ServiceGroup, StartFailure, stop_on_signals
from bot.app.parts import ProcessPlan
from bot.app.preflight import (
    check_store,
    explain_start_failures,
    hold_home,
    join_home,
    report_unwritable_home,
)
from bot.app.processes import Membership, belong
from bot.app.running_program import has_run_before, save_address
from bot.app.work_rules import build_step_approvals
from bot.config.settings import Settings, setting_names
from bot.config.sources import list_unknown_variables
from bot.engine.agent.worker_context import persona_purposes
from bot.engine.llm.backend import OFFLINE_NAME
from bot.engine.tasks.next_prompt import CallPreview, preview_next_prompt
from bot.engine.tasks.processes import FRONT_SERVICE
from bot.transports.alerts import alert_text
from cards.catalog import catalog_for
from handlers.account_link_notices import link_notifier
from storage.errors import DataDirectoryInUse, StoreUnavailable
from storage.people import PeopleRepo
from storage.records.people import Channel, Language
from storage.records.processes import ProcessRole
from storage.records.tasks import Task, TaskView
from storage.shared_files import FileShareError

if TYPE_CHECKING:
    from bot.transports.web.transport import WebTransport

log = logging.getLogger(__name__)

_TAKE_OVER_SECONDS = 1.0
"""How often a front that does not lead looks whether it may take over."""


async def serve(
    settings: Settings,
    announce: Callable[[str], None],
    on_ready: Callable[[], None],
    plan: ProcessPlan | None = None,
) -> bool:
    """Run with all channels until SIGTERM or SIGINT, or until an owner restarts it: returns whether
    that was so. Where processes share the store, one of them leads: it handles the messages of
    all and does what must happen once. The others serve, and wait to lead. Raises StartFailure."""
    plan = plan or ProcessPlan()
    home = hold_home(settings) if plan.role is ProcessRole.RUN else join_home(settings, plan)
    with explain_start_failures(settings), home:
        stop, restarts = stop_on_signals(), asyncio.Event()

        def restart() -> None:
            restarts.set()
            stop.set()

        async with open_container(settings, plan) as core:
            core.reloader.restart = restart
            await _check_files(core)
            async with belong(core, stop) as member:
                await _serve_channels(core, member, stop, announce, on_ready)
    if restarts.is_set() or member.is_lost:
        announce("Shiftboss restarts.")
        return True
    announce("Shiftboss has stopped. Running tasks resume at the next start.")
    return False


async def _serve_channels(
    core: Container,
    member: Membership,
    stop: asyncio.Event,
    announce: Callable[[str], None],
    on_ready: Callable[[], None],
) -> None:
    from bot.app.channels import connect_channels

    settings, workers = core.settings, core.engine.workers
    leads = await member.hold(FRONT_SERVICE)
    if leads:
        await _prepare_to_lead(core)
    # Detected before the first command, which also logs the sandbox.
    await asyncio.gather(workers.sandbox(), workers.models.refresh_cli_health())
    channels = connect_channels(core, leads=leads)
    first = channels.leading if leads else ()
    async with ServiceGroup((*first, *channels.serving)) as app:
        _save_address(settings, channels.web, leads=leads)
        log.info("shiftboss %s on %s", version("shiftboss"), settings.home)
        for line in _describe_parts(core):
            announce(line)
        announce(f"Shiftboss is ready. Open the web chat: {channels.web.login_url}")
        on_ready()

        async def take_over() -> None:
            announce("Another front leads: this one serves the web and Feishu, and takes over.")
            await _wait_to_lead(core, member)
            await channels.lead()
            await app.add(channels.leading)
            _save_address(settings, channels.web, leads=True)
            announce("This front leads now.")

        if leads:
            await app.run(stop)
        else:
            await app.run(stop, meanwhile=take_over)


async def _check_files(core: Container) -> None:
    """Raises StartFailure for what only the settings or the bucket's owner can mend."""
    try:
        await core.files.check()
    except FileShareError as error:
        if error.setup:
            words = catalog_for(core.settings.fixed_language or Language.ENGLISH)
            raise StartFailure(words(f"store.s3.{error.setup}", **error.facts)) from error
        log.warning("files cannot be shared now: %s", error)


async def _wait_to_lead(core: Container, member: Membership) -> None:
    """Until this process holds the lease and has done what comes first. An outage of the store in
    between is waited for."""
    while True:
        if await member.hold(FRONT_SERVICE):
            try:
                await _prepare_to_lead(core)
            except StoreUnavailable as error:
                log.warning("this front cannot lead yet: %s", error)
            else:
                return
        await core.clock.sleep(_TAKE_OVER_SECONDS)


async def _prepare_to_lead(core: Container) -> None:
    await _demote_unlisted_owners(core.repositories.people)
    await core.repositories.account_links.move_late_records()
    await link_notifier(core.services).notify()


def _save_address(settings: Settings, web: WebTransport, *, leads: bool) -> None:
    """For shell commands, which ask the process that leads if it has this data directory."""
    if leads or not has_run_before(settings):
        with report_unwritable_home(settings):
            save_address(settings, web.address.rstrip("/"))


async def serve_tasks(
    settings: Settings,
    announce: Callable[[str], None],
    on_ready: Callable[[], None],
    plan: ProcessPlan,
) -> bool:
    """Run tasks of a shared store until SIGTERM or SIGINT, or until it is drained by a command.
    Returns whether to start again, because others took this process for dead. Raises
    StartFailure."""
    with explain_start_failures(settings), join_home(settings, plan):
        stop = stop_on_signals()
        async with open_container(settings, plan) as core:
            await _check_files(core)
            workers = core.engine.workers
            await asyncio.gather(workers.sandbox(), workers.models.refresh_cli_health())
            async with (
                belong(core, stop) as member,
                ServiceGroup((*core.engine.task_services, *core.home_keepers)) as app,
            ):
                log.info("worker %s of shiftboss %s", plan.name, version("shiftboss"))
                announce(f"Worker {plan.name} is ready: {core.engine.slots} slots.")
                on_ready()
                await app.run(stop)
    announce("The worker has stopped. Others continue its tasks.")
    return member.is_lost


def _describe_parts(core: Container) -> Iterator[str]:
    """One line for each variable that no setting has, and for each model and channel: works, or
    what is missing."""
    words, models = catalog_for(Language.ENGLISH), core.engine.workers.models
    yield from (f"⚠️ {line}" for line in list_unknown_variables(os.environ, setting_names()))
    for name in dict.fromkeys(core.settings.fallbacks):
        if models.resolve_choice(name) is None:
            yield f"⚠️ Model {name}: {words('backend.unknown')}"
    found = (models.resolve_choice(name) for name in core.settings.fallbacks)
    for choice in dict.fromkeys(each for each in (models.default, *found) if each is not None):
        if choice.problem:
            yield f"⚠️ Model {choice.label}: {words.get_or_literal(choice.problem)}"
        elif choice.backend == OFFLINE_NAME:
            yield "⚠️ Model offline: only fixed rules work. Connect one with `shiftboss init`."
        else:
            yield f"Model {choice.label}: configured; `shiftboss doctor` calls it"
    for health in core.alerts.health():
        problem = alert_text(words, health) if health.alert else ""
        mark, state = ("⚠️ ", problem) if problem else ("", "ready")
        if not problem and health.channel is not Channel.WEB:
            state = "connecting; problems are logged here"
        yield f"{mark}{words(f'channel.{health.channel}')}: {state}"


async def _demote_unlisted_owners(people: PeopleRepo) -> None:
    """Demote owners who are no longer configured. Single shell commands skip this, because they may
    lack some settings."""
    for person in await people.demote_unlisted_owners():
        log.warning("%s is no longer in SHIFTBOSS_OWNERS: a member from now on", person.id)
    if people.unlisted_owner:
        log.warning("SHIFTBOSS_OWNERS is empty: the last owner stays an owner, see /status")


async def run_queue(settings: Settings, announce: Callable[[str], None]) -> None:
    """Run the queue until SIGTERM or SIGINT, without channels; shell commands are accepted.
    Notifications wait for the next `shiftboss run`. Raises StartFailure and DataDirectoryInUse."""
    # One task or a preview needs no web server.
    from bot.app.channels import build_local_api

    with hold_home(settings):
        stop = stop_on_signals()
        async with (
            open_container(settings) as core,
            belong(core, stop),
            ServiceGroup((*core.engine.services, *build_local_api(core))) as app,
        ):
            announce("Running the queue. Press Ctrl-C to stop after the current steps.")
            await app.run(stop)


async def run_one_task(settings: Settings) -> TaskView | None:
    """Run the first queued task until it ends, waits or pauses, and return it; None if none can
    start. Raises StartFailure and DataDirectoryInUse."""
    with hold_home(settings):
        stop = stop_on_signals()
        async with open_container(settings) as core, AsyncExitStack() as stack:
            await core.engine.dispatcher.start(stack)
            task = await _run_until_stopped(core, stop)
            while await core.engine.notifier.notify_batch():
                pass
            await core.engine.notifier.refresh_positions()
            return None if task is None else await core.engine.tasks.view(task.id)


async def preview_next_task(settings: Settings) -> CallPreview | None:
    """The prompt of the next task, without any call or change."""
    try:
        with hold_home(settings):
            return await _preview(settings, alone=True)
    except DataDirectoryInUse:
        with explain_start_failures(settings):
            check_store(settings)
            return await _preview(settings, alone=False)


async def _run_until_stopped(core: Container, stop: asyncio.Event) -> Task | None:
    working = asyncio.create_task(core.engine.dispatcher.run_one(), name="one task")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        await core.engine.dispatcher.drain()
    return await working


async def _preview(settings: Settings, *, alone: bool) -> CallPreview | None:
    async with open_container(settings) as core:
        workers = core.engine.workers
        return await preview_next_prompt(
            core.repositories.work,
            language_of=core.repositories.task_language,
            recall=workers.task_memories.list_helpful,
            now=core.clock.now(),
            patience=timedelta(hours=settings.patience_hours),
            without_dispatcher=alone,
            step_approvals=build_step_approvals(settings, core.repositories, core.clock),
            team=persona_purposes(await workers.personas.get_all()),
        )
