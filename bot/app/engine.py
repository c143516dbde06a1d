"""The engine's parts: who works, on what, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.app.lifecycle import Service
from bot.app.memory.archive import build_archive
from bot.app.memory.asking import build_asker
from bot.app.memory.care import build_care
from bot.app.memory.mirror import build_mirror
from bot.app.memory.writing import Writing, build_writing
from bot.app.parts import Parts, Recall, caps_of, settings_language
from bot.app.store import Store
from bot.app.workers.leave import stops_of
from bot.app.workers.place import Place, build_place
from bot.app.workers.talking import build_talking
from bot.app.workers.traces import build_follower, build_watchers
from bot.config.settings import Settings
from bot.engine.agent.budget import Caps
from bot.engine.agent.desk import Desk
from bot.engine.agent.helpers.service import HelperService
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.leave.talks import Talks
from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.skill_writer import SkillWriter
from bot.engine.dispatch.foreman import Foreman
from bot.engine.dispatch.live import LiveCards
from bot.engine.dispatch.local import LocalDispatcher
from bot.engine.dispatch.method.notebook import Notebook
from bot.engine.dispatch.requests import Requests
from bot.engine.dispatch.telling.reporter import Reporter
from bot.engine.dispatch.timekeeper import Timekeeper
from bot.engine.observe.follow import TraceFollower
from bot.engine.skills.newcomers import Newcomers
from bot.engine.workflow.library.drawn import Drawings
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.runner import TaskRunner
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from storage.records.approvals import Approval
from storage.records.messages import InboxRow
from storage.records.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    place: Place
    talk: RememberedTalk
    writing: Writing
    foreman: Foreman
    notebook: Notebook
    dispatcher: LocalDispatcher
    reporter: Reporter
    timekeeper: Timekeeper
    live: LiveCards
    talks: Talks
    helpers: HelperService
    post: list[Callable[[InboxRow], None]]
    on_decided: Callable[[], None]
    caps: Caps
    recall: Recall
    skill_writer: SkillWriter
    newcomers: Newcomers
    traces: TraceFollower
    watchers: tuple[Service, ...]

    @property
    def workers(self) -> tuple[Service, ...]:
        """What has to run for tasks to go on, in the order in which it starts."""
        tellers = (self.timekeeper, self.live, self.talks)
        return (
            self.reporter,
            self.dispatcher,
            self.helpers,
            *tellers,
            self.place.homes,
            self.newcomers,
            self.traces,
            *self.watchers,
        )


def build_engine(settings: Settings, store: Store, courier: OutboxCourier, clock: Clock) -> Engine:
    bell, stopped = Bell(), asyncio.Event()

    async def show(approval: Approval) -> None:
        await requests.put(approval)

    place = build_place(settings, store, clock, bell=bell, show=show)
    parts = _parts(settings, store, courier, clock, place)
    caps = caps_of(settings)
    archive = build_archive(settings, store, clock, place.past.growth)
    desk = parts.desk(place.models, caps, place.servers, archive, place.memory.remembering.book)
    news = asyncio.Event()
    requests = parts.requests(news)
    reporter = parts.reporter(requests)

    recall = _recalling(lambda: notebook)
    runner = TaskRunner(parts.kit(desk, recall, reporter.wake))

    def on_change() -> None:
        reporter.wake()
        place.helping.look()
        writing.listener.wake()

    dispatcher = parts.dispatcher(runner, on_change)

    def on_decided() -> None:
        bell.ring()
        stopped.set()
        runner.look_again()
        dispatcher.wake()
        writing.tell_decided()

    notebook = parts.notebook(dispatcher)
    writing = build_writing(settings, store, clock, desk, place)
    talk = _talk(parts, desk, place, writing, stopped)
    return Engine(
        place=place,
        talk=talk,
        writing=writing,
        talks=parts.talks(talk, requests, stopped),
        foreman=parts.foreman(dispatcher),
        notebook=notebook,
        dispatcher=dispatcher,
        reporter=reporter,
        timekeeper=parts.timekeeper(requests, news, on_decided),
        helpers=place.helping.serve(desk, place.bench, parts.language_of, dispatcher.wake),
        post=place.helping.post,
        live=LiveCards(progress=parts.progress, redraw=reporter.redraw, sleep=asyncio.sleep),
        on_decided=on_decided,
        caps=caps,
        recall=recall,
        skill_writer=SkillWriter(db=store.db, desk=desk, library=place.skills),
        newcomers=parts.newcomers(place.skills),
        traces=build_follower(settings, store, courier, clock),
        watchers=_watchers(
            parts,
            archive.compactor(desk, place.models),
            *_memory(parts, place, writing, requests),
        ),
    )


def _talk(
    parts: Parts, desk: Desk, place: Place, writing: Writing, stopped: asyncio.Event
) -> RememberedTalk:
    talking = build_talking(parts.settings, parts.store, desk, place.models)
    talk = parts.talk(desk, talking, stops_of(parts.store, stopped))
    return writing.heard(talk, parts.store, parts.clock)


def _parts(
    settings: Settings, store: Store, courier: OutboxCourier, clock: Clock, place: Place
) -> Parts:
    return Parts(
        settings=settings,
        store=store,
        courier=courier,
        clock=clock,
        bench=place.bench,
        progress=Progress(place.masking.mask),
    )


def _memory(
    parts: Parts, place: Place, writing: Writing, requests: Requests
) -> tuple[Service, ...]:
    """What writes memories, asks about them, shows them as files and lets them fade."""
    settings, store, clock = parts.settings, parts.store, parts.clock
    fixed = settings_language(settings)
    mirror = build_mirror(settings, store, clock, fixed, writing=writing, courier=parts.courier)
    lifetime = parts.lifetime
    asker = build_asker(store, clock, writing, requests, fixed=fixed, lifetime=lifetime)
    care = build_care(settings, store, clock, writing)
    told = place.memory.follow(writing.changed, writing.reteller)
    return (mirror, care, asker, *writing.services, *told)


def _watchers(parts: Parts, *more: Service) -> tuple[Service, ...]:
    """What goes on by itself besides the work."""
    settings = parts.settings
    watching = build_watchers(settings, parts.store, parts.clock)
    return (*watching, Drawings(home=settings.home), *more)


def _recalling(notebook: Callable[[], Notebook]) -> Callable[[Task], Awaitable[Sequence[str]]]:
    """What earlier tasks have left that may help, a line each."""

    async def recall(task: Task) -> Sequence[str]:
        found = await notebook().recall(task)
        return [f"- {each.entry.kind}: {each.entry.text}" for each in found]

    return recall
