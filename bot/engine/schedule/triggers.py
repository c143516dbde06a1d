"""Starts named workflows by messages, new files and web requests.

Each event is claimed in the transaction that creates its task, so that it starts one task whatever
happens in between."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import stat
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bot.engine.schedule.firing import TaskEnqueuer
from bot.engine.workflow.definition import load_workflow
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.validation import validate_workflow
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from handlers.errors import UserError
from handlers.ports_autonomy import MAX_HOOK_BYTES, HookAnswer, TriggerEvent, TriggerView
from handlers.workflow_inputs import parse_inputs
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.people import PeopleRepo
from storage.records.people import ChatId, Language, Person, PersonRole
from storage.records.tasks import NewTask, Task, TaskPriority
from storage.records.triggers import NewTrigger, Trigger, TriggerFiring, TriggerKind
from storage.records.workflows import NamedWorkflow, WorkflowRefusalReason, WorkflowRefused
from storage.shared_files import FileShareError, SharedFiles
from storage.tasks import TaskRepo
from storage.triggers import TriggerRepo

log = logging.getLogger(__name__)

MAX_TRIGGERS = 100
HOOKS_PER_MINUTE = 30
_POLL_SECONDS = 10.0
_MINUTE = 60
_SETTLED_SECONDS = 2.0
"""A file that was written to since then may not be complete."""
_MAX_FILES = 1_000
_MAX_FILE_BYTES = 20_000_000
_MAX_TEXT = 2_000
_MAX_FIELD = 20_000
_MAX_TITLE = 80
_REPLAY_SECONDS = 600
_HOOK_TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded")


def match_pattern(pattern: str, text: str) -> Mapping[str, str] | None:
    """The named words of a message that matches word by word; None if it does not. `{name}` is one
    word, as the last one all the rest; `*` is any word, as the last one any rest."""
    wanted, words = pattern.split(), text.split()
    found: dict[str, str] = {}
    for n, word in enumerate(wanted):
        is_last = n == len(wanted) - 1
        is_hole = word == "*" or (word.startswith("{") and word.endswith("}"))
        if is_hole and is_last:
            rest = " ".join(words[n:])
            return {**found, **({word[1:-1]: rest} if word != "*" else {})} if rest else None
        if n >= len(words):
            return None
        if is_hole and word != "*":
            found[word[1:-1]] = words[n]
        elif not is_hole and word.casefold() != words[n].casefold():
            return None
    return found if len(wanted) == len(words) else None


class UnfitEvent(Exception):
    """The workflow cannot start with what an event brings; the text names the inputs."""


@dataclass(kw_only=True, eq=False)
class TriggerService:
    """Implements `handlers.ports_autonomy.TriggerPort`, and is a service that polls the watched
    folders. `home` is the data directory."""

    name = "triggers"

    db: Database
    triggers: TriggerRepo
    task_repo: TaskRepo
    people: PeopleRepo
    tasks: TaskEnqueuer
    workflows: WorkflowLibrary
    home: Path
    files: SharedFiles
    web_url: str
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    on_tasks: Callable[[], None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _recent: dict[str, deque[datetime]] = field(
        default_factory=lambda: defaultdict(deque), init=False
    )

    async def start(self, stack: AsyncExitStack) -> None:
        pass

    async def run(self) -> None:
        while True:
            self._changed.clear()
            watched: Sequence[Trigger] | None = None
            try:
                watched = await self.triggers.list_enabled(TriggerKind.FILE)
                for trigger in watched:
                    await self._try_to_look(trigger)
            except StoreUnavailable as error:
                log.warning("new files are looked for later: %s", error)
            # Without the store it is not known whether a folder is watched.
            if watched or watched is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._changed.wait()
            else:
                await self._changed.wait()

    async def _try_to_look(self, trigger: Trigger) -> None:
        try:
            await self.look_for_files(trigger)
        except OSError as error:
            log.warning("the folder of trigger %s cannot be read: %s", trigger.id, error)

    def notify_changed(self) -> None:
        """Call it when another process may have changed a trigger."""
        self._changed.set()

    # --- what people see and change

    async def list(self) -> Sequence[TriggerView]:
        last = await self.triggers.last_firings()
        return [TriggerView(each, last.get(each.id)) for each in await self.triggers.list_all()]

    async def add(self, new: NewTrigger) -> tuple[Trigger, str]:
        workflow = await self.workflows.find(new.workflow)
        if len(await self.triggers.list_all()) >= MAX_TRIGGERS:
            raise UserError("too_many_triggers", most=MAX_TRIGGERS)
        self._check_inputs(workflow, new)
        token, made = "", replace(new, workflow=workflow.name)
        if new.kind is TriggerKind.FILE:
            folder, seen = await asyncio.to_thread(_watch, new.folder)
            made = replace(made, folder=folder, seen=seen)
        elif new.kind is TriggerKind.WEBHOOK:
            token = secrets.token_urlsafe(32)
            made = replace(made, token_hash=hash_token(token))
        elif not new.pattern.split():
            raise UserError("trigger_pattern")
        async with self.db.write() as tx:
            trigger = await self.triggers.add(tx, made, id_=self.new_id(), now=self.now())
        self._changed.set()
        return trigger, self.address(token)

    async def find(self, prefix: str) -> Trigger:
        return await self.triggers.find(prefix)

    async def set_enabled(self, prefix: str, *, enabled: bool) -> Trigger:
        trigger = await self.triggers.update(await self.find(prefix), enabled=enabled)
        self._changed.set()
        return trigger

    async def remove(self, prefix: str) -> Trigger:
        trigger = await self.find(prefix)
        await self.triggers.remove(trigger)
        return trigger

    async def renew_token(self, prefix: str) -> tuple[Trigger, str]:
        trigger = await self.find(prefix)
        if trigger.kind is not TriggerKind.WEBHOOK:
            raise UserError("trigger_no_token", id=trigger.id)
        token = secrets.token_urlsafe(32)
        changed = await self.triggers.update(trigger, token_hash=hash_token(token))
        return changed, self.address(token)

    def address(self, token: str) -> str:
        return f"{self.web_url.rstrip('/')}/hooks/{token}" if token else ""

    # --- events

    async def on_message(self, text: str, *, chat: ChatId, by: Person, source: str) -> Task | None:
        if len(text) > _MAX_TEXT:
            return None
        for trigger in await self.triggers.list_enabled(TriggerKind.MESSAGE, chat):
            words = match_pattern(trigger.pattern, text)
            if words is None or not await self._may_send(trigger, by):
                continue
            event = TriggerEvent(
                key=_digest(source), values={"text": text, "sender": by.name, **words}
            )
            firing = await self._fire(trigger, event, by=by)
            if firing is None:
                firing = await self.triggers.find_firing(trigger, event.key)
            if firing is not None and firing.task_id is None:
                raise UserError("trigger_refused", id=trigger.id, why=firing.note)
            if firing is not None and firing.task_id is not None:
                return await self.task_repo.get(firing.task_id)
        return None

    async def receive(  # noqa: PLR0911 - one for each status
        self, token: str, body: bytes, *, content_type: str, key: str
    ) -> HookAnswer:
        trigger = await self.triggers.find_by_token(hash_token(token))
        if trigger is None:
            return HookAnswer(404)
        if not self._has_room(trigger):
            return HookAnswer(429)
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in _HOOK_TYPES:
            return HookAnswer(415)
        if len(body) > MAX_HOOK_BYTES:
            return HookAnswer(413)
        try:
            values = _read_body(kind, body.decode("utf-8"))
        except (ValueError, RecursionError):
            return HookAnswer(400)
        if not key:
            # Without a key of the sender's, the same body counts once in ten minutes.
            key = await self._key_of_body(trigger, hashlib.sha256(body).hexdigest())
        event = TriggerEvent(key=_digest(key), values=values)
        firing = await self._fire(trigger, event)
        known = firing or await self.triggers.find_firing(trigger, event.key)
        if known is None:
            return HookAnswer(404)
        if known.task_id is None:
            return HookAnswer(422, note=known.note)
        return HookAnswer(202 if firing is not None else 200, task_id=known.task_id)

    async def _key_of_body(self, trigger: Trigger, body: str) -> str:
        """One for each span of time; the one of the span before as long as that is too recent."""
        now = self.now()
        window = int(now.timestamp()) // _REPLAY_SECONDS
        before = f"{window - 1}:{body}"
        known = await self.triggers.find_firing(trigger, _digest(before))
        if known is not None and now - known.fired_at < timedelta(seconds=_REPLAY_SECONDS):
            return before
        return f"{window}:{body}"

    async def look_for_files(self, trigger: Trigger) -> None:
        """Fire once for each file that has come since. Raises OSError."""
        settled = self.now().timestamp() - _SETTLED_SECONDS
        try:
            there = await asyncio.to_thread(_list_files, trigger.folder, settled)
        except _TooManyFiles:
            await self._note_too_many(trigger)
            return
        for key in sorted(await self.triggers.find_unfired(trigger, there)):
            file, size = there[key], 0
            try:
                copy = await asyncio.to_thread(
                    _copy_in, trigger.folder, file, self.home, _digest(trigger.id + key)
                )
                size = (self.home / copy).stat().st_size
                await self.files.publish(copy)
            except (OSError, FileShareError) as error:
                log.warning("trigger %s cannot take a file: %s", trigger.id, error)
                continue
            values = {"file": Path(copy).name, "name": file, "size": size}
            await self._fire(trigger, TriggerEvent(key=key, values=values, files=(copy,)))

    async def _note_too_many(self, trigger: Trigger) -> None:
        """Record once a day, on the trigger's firings, that the folder has too many files."""
        now, words = self.now(), await self._words(trigger)
        why = words("triggers.note.too_many", most=_MAX_FILES)
        key = _digest(f"too many files:{now.date()}")
        if await self.triggers.find_firing(trigger, key) is not None:
            return
        async with self.db.write() as tx:
            if await self.triggers.get(trigger.id, tx=tx) is None:
                return
            if await self.triggers.claim(tx, trigger, key, now=now):
                await self.triggers.settle(tx, trigger, key, task=None, note=why)
        log.warning("trigger %s starts nothing: %s", trigger.id, why)

    async def _fire(
        self, trigger: Trigger, event: TriggerEvent, *, by: Person | None = None
    ) -> TriggerFiring | None:
        """Fire a trigger for one event. None if this event has fired already, or the trigger is
        off."""
        if not await self.people.has_access(trigger.owner_id):
            await self.triggers.update(trigger, enabled=False)
            return None
        prepared, refusal, words = None, "", await self._words(trigger)
        try:
            prepared = await self._prepare(trigger, event, by)
        except WorkflowRefused as error:
            is_unknown = error.reason is WorkflowRefusalReason.UNKNOWN
            key = "triggers.note.unknown" if is_unknown else "triggers.note.broken"
            refusal = words(key, name=error.name)
        except UnfitEvent as error:
            refusal = words("triggers.note.inputs", names=error)
        refusal = formats.single_line(refusal, 300)
        now = self.now()
        async with self.db.write() as tx:
            current = await self.triggers.get(trigger.id, tx=tx)
            if current is None or not current.enabled:
                return None
            if not await self.triggers.claim(tx, trigger, event.key, now=now):
                return None
            task = None
            if prepared is not None:
                task = (await self.tasks.create_within(tx, *prepared)).id
            await self.triggers.settle(tx, trigger, event.key, task=task, note=refusal)
        if task is not None:
            self.on_tasks()
        else:
            log.warning("trigger %s has started nothing: %s", trigger.id, refusal)
        return TriggerFiring(
            trigger_id=trigger.id, key=event.key, task_id=task, note=refusal, fired_at=now
        )

    async def _words(self, trigger: Trigger) -> TextCatalog:
        """The texts in the language of the trigger's owner: a note is stored as people read it."""
        owner = await self.people.get(trigger.owner_id)
        return catalog_for(owner.language or Language.ENGLISH)

    async def _prepare(
        self, trigger: Trigger, event: TriggerEvent, by: Person | None
    ) -> tuple[NewTask, Any]:
        """Raises WorkflowRefused and UnfitEvent."""
        named = await self.workflows.find(trigger.workflow)
        texts = {each.name: _as_text(event.values.get(each.name)) for each in named.inputs}
        texts = {name: text for name, text in texts.items() if text} | dict(trigger.inputs)
        parsed = parse_inputs(named.inputs, texts)
        if not parsed.is_complete:
            wrong = [each.input.name for each in parsed.invalid]
            wrong += [each.name for each in parsed.missing] + list(parsed.unknown)
            raise UnfitEvent(", ".join(wrong))
        ready = await self.workflows.prepare_run(named.name, parsed.values)
        workflow = validate_workflow(load_workflow(ready.body))
        new = NewTask(
            title=formats.single_line(ready.title, _MAX_TITLE),
            instruction=ready.instruction,
            priority=TaskPriority.NORMAL,
            chat_id=trigger.chat_id,
            created_by=trigger.owner_id if by is None else by.id,
            source=f"trigger:{trigger.id}:{event.key}",
            files=event.files,
        )
        return new, workflow

    def _check_inputs(self, workflow: NamedWorkflow, new: NewTrigger) -> None:
        known = {each.name for each in workflow.inputs}
        if unknown := [name for name in new.inputs if name not in known]:
            names = ", ".join(sorted(known)) or "–"
            raise UserError("trigger_input", name=formats.single_line(unknown[0], 40), names=names)

    async def _may_send(self, trigger: Trigger, by: Person) -> bool:
        match trigger.sender:
            case "":
                return True
            case "owner":
                return by.role is PersonRole.OWNER
            case name:
                # People choose their names themselves: one that two have says nothing.
                members = [each.person for each in await self.people.list_members()]
                meant = [each.id for each in members if each.id == name]
                return (meant or [each.id for each in members if each.name == name]) == [by.id]

    def _has_room(self, trigger: Trigger) -> bool:
        now, recent = self.now(), self._recent[trigger.id]
        while recent and (now - recent[0]).total_seconds() >= _MINUTE:
            recent.popleft()
        if len(recent) >= HOOKS_PER_MINUTE:
            return False
        recent.append(now)
        return True


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return (value or "")[:_MAX_FIELD]
    return json.dumps(value, ensure_ascii=False)[:_MAX_FIELD]


def _read_body(kind: str, text: str) -> Mapping[str, Any]:
    """The fields of the body by name, and the whole as `body`. Raises ValueError."""
    values: Mapping[str, Any] = {}
    if kind == "application/json":
        data = json.loads(text)
        values = data if isinstance(data, dict) else {}
    elif kind == "application/x-www-form-urlencoded":
        values = dict(parse_qsl(text, max_num_fields=100))
    return {"text": text, **values, "body": text}


def _watch(folder: str) -> tuple[str, tuple[str, ...]]:
    """The folder without links, and the keys of the files in it. Blocking. Raises UserError."""
    try:
        path = Path(folder).expanduser()
        if not folder or not path.is_absolute() or not path.is_dir():
            raise UserError("trigger_folder", folder=formats.single_line(folder, 80))
        real = str(path.resolve(strict=True))
        return real, tuple(_list_files(real, float("inf")))
    except _TooManyFiles as error:
        shown = formats.single_line(folder, 80)
        raise UserError("trigger_crowded", folder=shown, most=_MAX_FILES) from error
    except OSError as error:
        shown = formats.single_line(folder, 80)
        raise UserError("trigger_folder", folder=shown) from error


class _TooManyFiles(Exception):
    """The folder has more files than the limit. Taking some of them in no order would miss new
    ones."""


def _list_files(folder: str, settled: float) -> dict[str, str]:
    """The names of the files in it that were not written to since, by key: a replaced file is a new
    one. Links, folders and hidden files do not count. Blocking. Raises OSError and
    _TooManyFiles."""
    found: dict[str, str] = {}
    with _open_watched(folder) as handle, os.scandir(handle) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.name.isprintable():
                continue
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(info.st_mode) and info.st_mtime <= settled:
                found[_digest(f"{entry.name}:{info.st_ino}")] = entry.name
            if len(found) > _MAX_FILES:
                raise _TooManyFiles
    return found


@contextmanager
def _open_watched(folder: str) -> Iterator[int]:
    """No link led there when it was chosen; a worker may have put one in since. Raises OSError."""
    parts = Path(folder).parts
    way = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(parts[0], way)
    try:
        for n, part in enumerate(parts[1:], 2):
            flags = way if n < len(parts) else (way & ~os.O_PATH) | os.O_RDONLY
            deeper = os.open(part, flags, dir_fd=at)
            os.close(at)
            at = deeper
        yield at
    finally:
        os.close(at)


def _copy_in(folder: str, name: str, home: Path, key: str) -> str:
    """Copy a file into the data directory; returns its path there. Blocking. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        _open_watched(folder) as watched,
        os.fdopen(os.open(name, flags, dir_fd=watched), "rb") as opened,
    ):
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(f"{name!r} is no file")
        data = opened.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise OSError(f"{name!r} has more than {_MAX_FILE_BYTES // 1_000_000} MB")
    target = home / "files" / "triggers" / key[:16] / name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.write_bytes(data)
    return target.relative_to(home).as_posix()
