"""What buttons and forms about what is remembered mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from cards.action_rules import ActionRules as _Action
from storage.records.memory.shown import Wanted
from storage.records.people import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMemories(_Action):
    single_use: ClassVar[bool] = False
    wanted: Wanted = Wanted.KNOWN
    scope: str = ""
    page: int = 1
    kind: Literal["list_memories"] = "list_memories"

    @property
    def command(self) -> str:
        scope = f" --scope {self.scope}" if self.scope else ""
        return f"/memory list --page {self.page}{scope} {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMemory(_Action):
    """Without an id it is the one that was picked."""

    single_use: ClassVar[bool] = False
    entry_id: str = ""
    kind: Literal["show_memory"] = "show_memory"

    @property
    def command(self) -> str:
        return f"/memory show {self.entry_id or '…'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetMemory(_Action):
    """`also` are forgotten with it. `revisions` are those of all of them that were shown: what
    says something else by now is not what was meant. `among` is what was looked for when it was
    found: what else says so is shown again."""

    entry_id: str
    also: tuple[str, ...] = ()
    revisions: tuple[int, ...] = ()
    among: str = ""
    kind: Literal["forget_memory"] = "forget_memory"

    @property
    def command(self) -> str:
        return f"/memory forget {self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinMemory(_Action):
    entry_id: str
    pinned: bool
    kind: Literal["pin_memory"] = "pin_memory"

    @property
    def command(self) -> str:
        return f"/memory {'pin' if self.pinned else 'unpin'} {self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditMemory(_Action):
    """A form was sent: the press carries `text`. It is written on top of that revision."""

    single_use: ClassVar[bool] = False
    entry_id: str
    revision: int
    kind: Literal["edit_memory"] = "edit_memory"

    @property
    def command(self) -> str:
        return f"/memory edit {self.entry_id} …"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideMemory(_Action):
    """Keep a candidate for good, or drop it. `wording` is a digest of what was shown of it: what
    says something else by now is not decided about. `listed` says that others stand beside it:
    what is left of them is shown again."""

    entry_id: str
    keep: bool
    listed: bool = False
    wording: str = ""
    kind: Literal["decide_memory"] = "decide_memory"

    @property
    def command(self) -> str:
        return f"/candidates {'keep' if self.keep else 'drop'} {self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMemory(_Action):
    """Do what the cleaning has told it would."""

    needs: ClassVar[Role] = Role.OWNER
    kind: Literal["clean_memory"] = "clean_memory"

    @property
    def command(self) -> str:
        return "/memory clean yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoriesHelped(_Action):
    """What was looked for helped the answer to this `turn` of a `session`."""

    session: str
    turn: int
    kind: Literal["memories_helped"] = "memories_helped"

    @property
    def command(self) -> str:
        return f"/memory helped {self.session} {self.turn}"


MemoryAction: TypeAlias = (
    ListMemories
    | ShowMemory
    | ForgetMemory
    | PinMemory
    | EditMemory
    | DecideMemory
    | MemoriesHelped
    | CleanMemory
)
