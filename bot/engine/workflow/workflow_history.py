"""Keeps the versions of named workflows: records each text of a file with its author, saves new
ones and brings earlier ones back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bot.engine.agent.prompt_versions import PromptVersions
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.workflow_files import is_valid_name, written_text
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate, NotAllowed, StoreUnavailable
from storage.prompt_versions import PromptVersionRepo
from storage.records.people import Person, PersonRole
from storage.records.prompt_versions import (
    FILE_AUTHOR,
    ORIGINAL,
    NewPromptVersion,
    PromptKind,
    PromptRef,
    PromptVersion,
    UsedVersion,
    VersionState,
    WorkflowVersions,
    text_hash,
)
from storage.records.workflows import NamedWorkflow, WorkflowRefusalReason, WorkflowRefused

log = logging.getLogger(__name__)

MAX_VERSIONS = 100
MAX_CHARACTERS = 5_000_000
"""Limits of what is kept of one workflow; the text of the file is never deleted."""
_POLL_SECONDS = 30.0
_CONFLICT = "conflict"


@dataclass(kw_only=True, eq=False)
class WorkflowHistory:
    """Satisfies `handlers.ports_workflows.WorkflowHistoryPort`; chooses the version of a new run.

    A save is announced in the store before the file is written and confirmed after it, so that it
    keeps its author if the program dies in between. Any other change of a file was made with an
    editor; it is noticed when the file is used, and by a look every half minute.
    """

    name = "workflow-history"

    db: Database
    repo: PromptVersionRepo
    trials: PromptVersions
    list_people: Callable[[], Awaitable[Mapping[str, str]]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    _library: WorkflowLibrary = field(init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _stamps: Mapping[str, object] = field(default_factory=dict, init=False)

    def bind(self, library: WorkflowLibrary) -> None:
        """Register with `library`, which asks this history for the version that a run takes."""
        self._library = library

    async def start(self, stack: AsyncExitStack) -> None:
        """Do nothing: `run` takes the first look."""

    async def run(self) -> None:
        while True:
            try:
                await self.notice_edits()
            except StoreUnavailable as error:
                log.warning("Edited workflows are noticed later: %s", error)
            await self.sleep(_POLL_SECONDS)

    async def notice_edits(self) -> None:
        """Record the files that have changed or disappeared since the last look."""
        try:
            stamps = await asyncio.to_thread(self._library.list_stamps)
        except OSError as error:
            log.warning("The folder of workflows cannot be read: %s", error)
            return
        changed = [
            name
            for name, stamp in stamps.items()
            if is_valid_name(name) and self._stamps.get(name) != stamp
        ]
        for name in changed:
            # An invalid file has a text too; one that cannot be read has none.
            with suppress(WorkflowRefused):
                await self._notice(name)
        for name in await self.repo.list_written_names(PromptKind.WORKFLOW):
            if name not in stamps:
                await self._retire_deleted(name)
        self._stamps = stamps

    async def apply_to_workflow(self, name: str, text: str) -> tuple[str, UsedVersion]:
        written = await self.record(name, text)
        chosen, used = await self.trials.apply_to_workflow(name, text)
        if used.number == ORIGINAL and written is not None:
            used = replace(used, number=written.number, version_id=written.id)
        return chosen, used

    async def number_of(self, name: str, text: str) -> int:
        written = await self.record(name, text)
        return ORIGINAL if written is None else written.number

    async def workflow_text(self, name: str, number: int) -> str | None:
        # A workflow may be called in other case than its file.
        spelt = {name.casefold(): name}
        with suppress(OSError):
            stamps = await asyncio.to_thread(self._library.list_stamps)
            spelt |= {each.casefold(): each for each in stamps}
        return await self.trials.workflow_text(spelt[name.casefold()], number)

    async def record(self, name: str, text: str) -> PromptVersion | None:
        """The version of a file with this text; recorded now if somebody has edited it. None for a
        name that no workflow may have.
        """
        if not is_valid_name(name):
            return None
        async with self._lock:
            return await self._record(name, text)

    async def save(
        self,
        name: str,
        text: str,
        *,
        by: Person,
        via: str,
        reason: str = "",
        replace: bool = False,
        based_on: str = "",
    ) -> NamedWorkflow:
        return await self._save(
            name, text, by, {"via": via}, reason, replace=replace, based_on=based_on
        )

    async def list_versions(self, name: str) -> WorkflowVersions:
        in_use: int | None = None
        try:
            source = await self._library.read_source(name)
            written = await self.record(name, source.text)
            in_use = written.number if written else None
        except WorkflowRefused as refused:
            if refused.reason is not WorkflowRefusalReason.UNKNOWN:
                raise
            await self._retire_deleted(name)
        versions = await self.repo.list_of(_ref(name))
        if not versions:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        active = [each.number for each in versions if each.state is VersionState.ACTIVE]
        return WorkflowVersions(
            name=name,
            versions=list(reversed(versions)),
            in_use=in_use if in_use is None else next(iter(active), in_use),
            authors=await self.list_people(),
        )

    async def roll_back(
        self, name: str, number: int, *, by: Person, via: str, based_on: str = ""
    ) -> NamedWorkflow | None:
        _require_owner(by)
        found = (await self.list_versions(name)).find(number)
        if found is None:
            raise WorkflowRefused(WorkflowRefusalReason.NO_VERSION, name, str(number))
        facts = {"via": via, "restored": number}
        with suppress(WorkflowRefused):
            source = await self._library.read_source(name)
            if source.text == found.content:
                return None
            based_on = based_on or source.hash
        return await self._save(name, found.content, by, facts, "", based_on=based_on)

    async def _save(
        self,
        name: str,
        text: str,
        by: Person,
        facts: Mapping[str, Any],
        reason: str,
        *,
        replace: bool = False,
        based_on: str = "",
    ) -> NamedWorkflow:
        _require_owner(by)
        if not is_valid_name(name):
            raise WorkflowRefused(WorkflowRefusalReason.BAD_NAME, name)
        async with self._lock:
            with suppress(WorkflowRefused):
                await self._record(name, (await self._library.read_source(name)).text)
            saving = await self._announce(name, written_text(text), by, facts, reason)
            try:
                saved = await self._library.save(name, text, replace=replace, based_on=based_on)
            except WorkflowRefused as refused:
                if refused.reason is WorkflowRefusalReason.CHANGED:
                    refused.detail = str(await self._keep_conflicting(saving))
                else:
                    async with self.db.write() as tx:
                        await self.repo.delete(tx, saving)
                raise
            await self._confirm(saving)
            return saved

    async def _notice(self, name: str) -> None:
        async with self._lock:
            await self._record(name, (await self._library.read_source(name)).text)

    async def _record(self, name: str, text: str) -> PromptVersion:
        """Under the lock, so that no save is under way: one that was announced was either written
        before the program died, or never will be."""
        known = await self.repo.list_written(_ref(name))
        hash_ = text_hash(text)
        written = next((each for each in known if each.state is VersionState.WRITTEN), None)
        announced = [each for each in known if each.state is VersionState.SAVING]
        if written is not None and written.hash == hash_:
            if announced:
                async with self.db.write() as tx:
                    for each in announced:
                        await self.repo.delete(tx, each)
            return written
        async with self.db.write() as tx:
            current = next((each for each in announced if each.hash == hash_), None)
            for each in announced:
                if each is not current:
                    # It may have been in the file for a while.
                    await self.repo.retire(tx, each, "unfinished", now=self.now())
            if current is None:
                new = _new_version(
                    name, text, FILE_AUTHOR, facts={"via": FILE_AUTHOR}, parent=written
                )
                current = await self.repo.add_saving(tx, new, now=self.now())
            await self._confirm_within(tx, current)
        return current

    async def _announce(
        self, name: str, text: str, by: Person, facts: Mapping[str, Any], reason: str
    ) -> PromptVersion:
        known = await self.repo.list_written(_ref(name))
        written = next((each for each in known if each.state is VersionState.WRITTEN), None)
        new = _new_version(name, text, str(by.id), facts=facts, parent=written, reason=reason)
        async with self.db.write() as tx:
            return await self.repo.add_saving(tx, new, now=self.now())

    async def _confirm(self, saving: PromptVersion) -> None:
        written = await self.repo.list_written(saving.ref)
        before = next((each for each in written if each.state is VersionState.WRITTEN), None)
        async with self.db.write() as tx:
            if before is not None and before.hash == saving.hash:
                # Saved as it was.
                await self.repo.delete(tx, saving)
            else:
                await self._confirm_within(tx, saving)

    async def _confirm_within(self, tx: Transaction, saving: PromptVersion) -> None:
        await self.repo.confirm_written(tx, saving, now=self.now())
        await self.repo.prune(tx, saving.ref, most=MAX_VERSIONS, most_characters=MAX_CHARACTERS)

    async def _keep_conflicting(self, saving: PromptVersion) -> int:
        """Keep a text that came too late, each only once; return its number."""
        async with self.db.write() as tx:
            for each in await self.repo.list_of(saving.ref, tx=tx):
                if each.end_reason == _CONFLICT and each.hash == saving.hash:
                    await self.repo.delete(tx, saving)
                    return each.number
            await self.repo.retire(tx, saving, _CONFLICT, now=self.now())
        return saving.number

    async def _retire_deleted(self, name: str) -> None:
        async with self._lock:
            try:
                await self._library.read_source(name)
            except WorkflowRefused as refused:
                if refused.reason is not WorkflowRefusalReason.UNKNOWN:
                    return
            else:
                # Made again meanwhile.
                return
            known = await self.repo.list_written(_ref(name))
            if not known:
                return
            with suppress(ConcurrentUpdate):
                async with self.db.write() as tx:
                    for each in known:
                        if each.state is VersionState.WRITTEN:
                            await self.repo.retire(tx, each, "deleted", now=self.now())
                        else:
                            await self.repo.delete(tx, each)


def _new_version(
    name: str,
    text: str,
    author: str,
    *,
    facts: Mapping[str, Any],
    parent: PromptVersion | None,
    reason: str = "",
) -> NewPromptVersion:
    return NewPromptVersion(
        kind=PromptKind.WORKFLOW,
        name=name,
        content=text,
        base_hash=text_hash(text),
        parent=parent.number if parent else ORIGINAL,
        parent_content="",
        author=author,
        reason=reason,
        signal=facts,
        share=0,
    )


def _require_owner(person: Person) -> None:
    if person.role is not PersonRole.OWNER:
        raise NotAllowed("workflow", person.id)


def _ref(name: str) -> PromptRef:
    return PromptRef(PromptKind.WORKFLOW, name)
