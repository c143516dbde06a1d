"""Defines the actions of buttons and forms on cards about memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from cards.action_base import CardAction, ReusableAction
from storage.records.memory import MemoryListFilter
from storage.records.people import PersonRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMemories(ReusableAction):
    wanted: MemoryListFilter = MemoryListFilter.KNOWN
    scope: str = ""
    page: int = 1
    kind: Literal["list_memories"] = "list_memories"

    @property
    def command(self) -> str:
        scope = f" --scope {self.scope}" if self.scope else ""
        return f"/memory list --page {self.page}{scope} {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMemory(ReusableAction):
    """Without `entry_id`, the press carries the chosen entry."""

    entry_id: str = ""
    kind: Literal["show_memory"] = "show_memory"

    @property
    def command(self) -> str:
        return f"/memory show {self.entry_id or '…'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetMemory(CardAction):
    """Forget an entry together with `also`.

    `revisions` are those shown, for all of them: changed entries are skipped. `among` is the search
    query to show remaining matches for; `noted` are the others on a card of what was noted.
    """

    entry_id: str
    also: tuple[str, ...] = ()
    revisions: tuple[int, ...] = ()
    among: str = ""
    noted: tuple[str, ...] = ()
    typed: ClassVar[str] = "/memory forget {self.entry_id}"
    kind: Literal["forget_memory"] = "forget_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinMemory(CardAction):
    entry_id: str
    pinned: bool
    kind: Literal["pin_memory"] = "pin_memory"

    @property
    def command(self) -> str:
        return f"/memory {'pin' if self.pinned else 'unpin'} {self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitMemoryEdit(ReusableAction):
    """Submit an edit form: the press carries `text`, which applies to this revision."""

    entry_id: str
    revision: int
    typed: ClassVar[str] = "/memory edit {self.entry_id} …"
    kind: Literal["edit_memory"] = "edit_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideMemoryCandidate(CardAction):
    """Save a candidate permanently or reject it.

    `wording` is a digest of what was shown: a candidate changed since is not decided. `listed`: it
    came from a list, whose remaining candidates are shown again.
    """

    entry_id: str
    keep: bool
    listed: bool = False
    wording: str = ""
    kind: Literal["decide_memory"] = "decide_memory"

    @property
    def command(self) -> str:
        return f"/candidates {'keep' if self.keep else 'drop'} {self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseMemory(CardAction):
    """Let one of two memories hold that exclude each other since accounts were linked, or both."""

    entry_id: str
    both: bool = False
    kind: Literal["choose_memory"] = "choose_memory"

    @property
    def command(self) -> str:
        return f"/link choose {self.entry_id}{' both' if self.both else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMemory(CardAction):
    """Run the cleanup that was announced."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    typed: ClassVar[str] = "/memory clean yes"
    kind: Literal["clean_memory"] = "clean_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkMemoriesHelpful(CardAction):
    """Mark the memories found by search as helpful for the answer to this `turn`."""

    session: str
    turn: int
    typed: ClassVar[str] = "/memory helped {self.session} {self.turn}"
    kind: Literal["memories_helped"] = "memories_helped"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideWithheldMessage(CardAction):
    """Keep a message that may have asked not to be remembered, or not. Only its author `person`
    may; `with_before`: the author's message before it was withheld too."""

    message: int
    person: str
    keep: bool
    with_before: bool = False
    kind: Literal["decide_withheld"] = "decide_withheld"

    @property
    def command(self) -> str:
        return "/remember …" if self.keep else "/memory off"


MemoryAction: TypeAlias = (
    ListMemories
    | ShowMemory
    | ForgetMemory
    | PinMemory
    | SubmitMemoryEdit
    | DecideMemoryCandidate
    | MarkMemoriesHelpful
    | CleanMemory
    | DecideWithheldMessage
)
