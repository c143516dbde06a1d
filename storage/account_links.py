"""Links the accounts of one person, takes them apart again, and takes access from an account.

Every row that belongs to a person has their ID. A link gives the rows of `joined` to `kept`, and
each remembers in `brought_by` whose it was, so that it can go back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Table,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from storage.approvals import NewApproval, add_approval, newest_approval_of_subject
from storage.autonomy_schema import triggers
from storage.db import Database, Transaction, record_from, records_from, row_from
from storage.errors import ConcurrentUpdate, NotFound, TooManyAttempts, WrongState
from storage.ids import IdGenerator, normalize_code
from storage.key_value import KeyValueStore
from storage.memory.linked_memories import LinkedMemoryRepo
from storage.messages.chats import chat_from_row
from storage.people import LOCAL_WEB_OWNER, PeopleRepo, recent_times
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
    StandingPermissionScope,
)
from storage.records.memory import EntryId, MemoryEntry
from storage.records.people import (
    AccountLink,
    AccountLinkState,
    Channel,
    Chat,
    ChatId,
    ChatKind,
    Member,
    Person,
    PersonId,
    PersonRole,
)
from storage.records.schedules import ScheduleState
from storage.schema import (
    approvals,
    chats,
    identities,
    people,
    schedules,
    tasks,
    tool_grants,
    usage,
)
from storage.sessions import SessionRepo, chat_session_key
from storage.web_schema import account_links, web_keys, web_sessions

CODE_LIFETIME = timedelta(minutes=10)
MAX_WRONG_CODES = 5
WRONG_CODE_WINDOW = timedelta(hours=1)

OWNED: Sequence[tuple[Table, str]] = (
    (identities, "person_id"),
    (chats, "person_id"),
    (tasks, "created_by"),
    (schedules, "owner_id"),
    (triggers, "owner_id"),
    (usage, "person_id"),
    (web_sessions, "person_id"),
    (web_keys, "person_id"),
)
"""The tables of what belongs to a person, with the column that has their ID."""

_C = account_links.c
_LINKED = _C.state == AccountLinkState.LINKED.value
_WRONG_CODES_KEY = "link.wrong_codes"


@dataclass(eq=False)
class AccountLinkRepo:
    """Implements handlers.ports_people.AccountLinkPort; `apply_decision` handles approvals of kind
    LINK. `publish` is called after the commit with the persons whose memories have changed."""

    db: Database
    ids: IdGenerator
    people: PeopleRepo
    key_values: KeyValueStore
    memories: LinkedMemoryRepo
    now: Callable[[], datetime]
    publish: Callable[[Sequence[PersonId]], None]

    async def create_code(self, person: Person, chat: ChatId) -> tuple[str, datetime]:
        """Create a single-use code and return it with its expiry. The person's earlier codes stop
        working."""
        now, code = self.now(), self.ids.pairing_code()
        link = AccountLink(
            id=self.ids.token(),
            state=AccountLinkState.OPEN,
            maker=person.id,
            maker_chat=chat,
            taker=None,
            taker_chat=None,
            kept=None,
            joined=None,
            created_at=now,
            expires_at=now + CODE_LIFETIME,
            linked_at=None,
            ended_at=None,
        )
        useless = or_(_C.maker == person.id, _C.expires_at <= now)
        async with self.db.write() as tx:
            await tx.execute(
                delete(account_links).where(_C.state == AccountLinkState.OPEN.value, useless)
            )
            values = {**row_from(link), "code_hash": _hash_code(code), "untold": False}
            await tx.execute(insert(account_links).values(values))
        return code, link.expires_at

    async def use_code(self, code: str, person: Person, chat: ChatId) -> Approval:
        """Use up a code and ask for the confirmation of who has more rights, or else of `person`.
        Who has used it gets the same request again: a crash may have hidden it.

        NotFound if it is unknown, used or expired; TooManyAttempts, a NotFound, after five wrong
        ones of one person within an hour. WrongState if both are the same person already.
        """
        now, key = self.now(), f"{_WRONG_CODES_KEY}:{person.id}"
        async with self.db.write() as tx:
            misses = recent_times(await self.key_values.read(tx, key), WRONG_CODE_WINDOW, now)
            if len(misses) >= MAX_WRONG_CODES:
                raise TooManyAttempts("link_code", code)
            link = await _find_usable(tx, code, person.id, now)
            if link is not None and link.state is AccountLinkState.ASKED:
                return await newest_approval_of_subject(tx, ApprovalKind.LINK, link.id, now=now)
            if link is not None:
                return await self._ask(tx, link, person, chat, now)
            await self.key_values.write(tx, key, [*misses, now.isoformat()])
        raise NotFound("link_code", code)

    async def apply_decision(self, tx: Transaction, approval: Approval) -> None:
        """Link the two accounts, or discard the code, as `approval` decides. Raises
        ConcurrentUpdate if either of them has changed since the request."""
        query = select(account_links).where(_C.id == approval.subject)
        link = record_from(AccountLink, (await tx.execute(query)).one_or_none())
        if link is None or link.state is not AccountLinkState.ASKED:
            return
        if approval.state is not ApprovalState.APPROVED:
            await self._set(tx, link, state=AccountLinkState.REFUSED)
            return
        if not await self._may_link(tx, link, approval):
            raise ConcurrentUpdate
        assert link.kept is not None
        assert link.joined is not None
        now = approval.decided_at or self.now()
        await self._join(tx, link.joined, link.kept, now)
        # Who was joined to the joined person is joined to the other one now.
        await tx.execute(
            update(account_links).where(_C.kept == link.joined, _LINKED).values(kept=link.kept)
        )
        await _replace_approver(tx, link.joined, link.kept)
        await self._set(tx, link, state=AccountLinkState.LINKED, linked_at=now, untold=True)

    async def unlink(self, joined: PersonId) -> AccountLink:
        """Make a joined account a person of its own again, who gets back what they brought. What
        came since stays. All browsers of both are signed out and their conversations closed, and
        the links and tokens that came since end. NotFound if they are not joined."""
        now = self.now()
        async with self.db.write() as tx:
            query = select(account_links).where(_C.joined == joined, _LINKED)
            link = record_from(AccountLink, (await tx.execute(query)).one_or_none())
            if link is None or link.kept is None:
                raise NotFound("account", joined)
            theirs = await _private_chats(tx, chats.c.brought_by == joined)
            both = await _private_chats(tx, chats.c.person_id == link.kept)
            await _redirect_schedules(tx, link.kept, theirs, but_of=joined)
            await _stop_triggers(tx, link.kept, theirs, but_of=joined)
            await _end_web_access(tx, link.kept, since=link.linked_at)
            await _revoke_chat_permissions(tx, theirs, now, since=link.linked_at)
            for table, column in OWNED:
                values = {column: joined, "brought_by": None}
                await tx.execute(update(table).where(table.c.brought_by == joined).values(values))
            await self.memories.separate(tx, joined, link.kept, now=now)
            await _replace_approver(tx, link.kept, joined, only_from=theirs)
            await self._close_conversations(tx, both, now)
            await self.people.settle_role(tx, link.kept, without=joined)
            link = replace(link, state=AccountLinkState.ENDED, ended_at=now)
            await self._set(tx, link, state=link.state, ended_at=now, untold=True)
        return link

    async def revoke(self, channel: Channel, external_id: str, *, session: str = "") -> AccountLink:
        """Take access from one of several accounts of a person; all they have stays with the
        others. The person's conversations are closed, and so are all browsers, links and tokens but
        the web session `session`. WrongState for the only account, and for that of the local web
        chat."""
        now = self.now()
        mine = (identities.c.channel == channel.value, identities.c.external_id == external_id)
        async with self.db.write() as tx:
            account = (await tx.execute(select(identities).where(*mine))).one_or_none()
            if account is None:
                raise NotFound("account", external_id)
            person = PersonId(account.person_id)
            every = await _private_chats(tx, chats.c.person_id == person)
            theirs = await _private_chats(
                tx,
                chats.c.person_id == person,
                chats.c.channel == channel.value,
                chats.c.brought_by.is_not_distinct_from(account.brought_by),
            )
            query = select(func.count()).where(identities.c.person_id == person)
            if (channel, external_id) == LOCAL_WEB_OWNER or await tx.scalar(query) == 1:
                raise WrongState("account", external_id, "last")
            stranger = await self._add_stranger(tx, account, now)
            await tx.execute(delete(identities).where(*mine))
            await _redirect_schedules(tx, person, theirs)
            await _stop_triggers(tx, person, theirs)
            await _end_web_access(tx, person, but=session)
            await _revoke_chat_permissions(tx, theirs, now)
            await self._close_conversations(tx, every, now)
            left = {"person_id": stranger, "brought_by": None}
            await tx.execute(update(chats).where(chats.c.id.in_(theirs)).values(left))
            await self._make_permanent(tx, account.brought_by)
            link = AccountLink(
                id=self.ids.token(),
                state=AccountLinkState.REVOKED,
                maker=person,
                maker_chat=next(iter(every)),
                taker=None,
                taker_chat=None,
                kept=person,
                joined=stranger,
                created_at=now,
                expires_at=now,
                linked_at=None,
                ended_at=now,
            )
            await tx.execute(
                insert(account_links).values(row_from(link) | {"code_hash": "", "untold": True})
            )
        return link

    async def move_late_records(self) -> None:
        """Give persons what was still written for those who are joined to them: what had begun
        before the link may end after it."""
        async with self.db.write() as tx:
            rows = (await tx.execute(select(_C.joined, _C.kept).where(_LINKED))).all()
            for joined, kept in rows:
                await self._join(tx, joined, kept, self.now())

    async def list_untold(self) -> Sequence[AccountLink]:
        """Links and separations whose two sides have not been notified."""
        query = select(account_links).where(_C.untold).order_by(_C.created_at, _C.id)
        return records_from(AccountLink, await self.db.fetch_all(query))

    async def mark_told(self, link: AccountLink) -> None:
        """Record that both sides were notified, unless the link has changed since."""
        async with self.db.write() as tx:
            same = (_C.id == link.id, _C.state == link.state.value)
            await tx.execute(update(account_links).where(*same).values(untold=False))
        self.publish([each for each in (link.kept, link.joined) if each])

    async def list_choices(self, person: PersonId) -> Sequence[tuple[MemoryEntry, MemoryEntry]]:
        """Pairs of memories that exclude each other and that the person has not chosen between: the
        one that holds, then the other."""
        return await self.memories.list_choices(person)

    async def choose(self, person: PersonId, entry_id: str, *, both: bool) -> None:
        """Let one of such a pair hold, or both. NotFound if it is in none."""
        async with self.db.write() as tx:
            for pair in await self.memories.list_choices(person, tx=tx):
                ids = {each.id for each in pair}
                if entry_id in ids:
                    holding = ids if both else {EntryId(entry_id)}
                    await self.memories.choose(tx, pair, holding, now=self.now())
                    break
            else:
                raise NotFound("memory_choice", entry_id)
        self.publish([person])

    async def list_chats(self, link: AccountLink) -> Sequence[Chat]:
        """The private chats of both sides, without threads."""
        query = select(chats).where(
            chats.c.person_id.in_([link.kept, link.joined]),
            chats.c.kind == ChatKind.PRIVATE.value,
            chats.c.thread == "",
        )
        return [chat_from_row(row) for row in await self.db.fetch_all(query.order_by(chats.c.id))]

    async def _ask(
        self, tx: Transaction, link: AccountLink, taker: Person, chat: ChatId, now: datetime
    ) -> Approval:
        members = {each.person.id: each for each in await self.people.list_members(tx)}
        maker, own = members.get(link.maker), members[taker.id]
        if maker is None:
            raise NotFound("link_code", link.id)
        if maker is own:
            raise WrongState("link_code", link.id, "same")
        kept, joined = (own, maker) if _outranks(own, maker) else (maker, own)
        by_maker = _outranks(maker, own)
        new = NewApproval(
            kind=ApprovalKind.LINK,
            chat_id=link.maker_chat if by_maker else chat,
            title=joined.person.name,
            subject=link.id,
            approvers=((maker if by_maker else own).person.id,),
            payload={"kept": _describe(kept), "joined": _describe(joined)},
            expires_at=now + CODE_LIFETIME,
        )
        await self._set(
            tx,
            link,
            state=AccountLinkState.ASKED,
            taker=taker.id,
            taker_chat=chat,
            kept=kept.person.id,
            joined=joined.person.id,
        )
        return await add_approval(tx, new, ids=self.ids, now=now)

    async def _may_link(self, tx: Transaction, link: AccountLink, approval: Approval) -> bool:
        """Whether both accounts still have access, are still two persons, and have the roles that
        they had when confirmation was requested."""
        members = {each.person.id: each for each in await self.people.list_members(tx)}
        sides = {"kept": link.kept, "joined": link.joined}
        now = {name: members[who].person.role for name, who in sides.items() if who in members}
        return now == {name: approval.payload[name]["role"] for name in sides}

    async def _join(self, tx: Transaction, joined: PersonId, kept: PersonId, now: datetime) -> None:
        for table, column in OWNED:
            await _move(tx, table, column, joined, kept)
        await self.memories.join(tx, joined, kept, now=now)

    async def _make_permanent(self, tx: Transaction, joined: str | None) -> None:
        """End the possibility to separate an account that no longer has access."""
        if joined is None:
            return
        for table, _ in OWNED:
            await tx.execute(
                update(table).where(table.c.brought_by == joined).values(brought_by=None)
            )
        await self.memories.make_permanent(tx, joined)
        ended = {"state": AccountLinkState.ENDED.value}
        await tx.execute(update(account_links).where(_C.joined == joined, _LINKED).values(ended))

    async def _set(self, tx: Transaction, link: AccountLink, **values: Any) -> None:
        await tx.execute(update(account_links).where(_C.id == link.id).values(**values))

    async def _close_conversations(
        self, tx: Transaction, ids: Sequence[ChatId], now: datetime
    ) -> None:
        """Close conversations: their transcripts may have memories of the former joint person."""
        sessions = SessionRepo(self.db)
        for chat in ids:
            await sessions.close(tx, chat_session_key(chat), now=now)

    async def _add_stranger(self, tx: Transaction, account: Row[Any], now: datetime) -> PersonId:
        """Add a person without access, who owns the chats of a revoked account."""
        name = await tx.scalar(select(people.c.name).where(people.c.id == account.person_id))
        stranger = Person(
            id=PersonId(self.ids.token()),
            name=name or account.external_id,
            role=PersonRole.MEMBER,
            language=None,
            created_at=now,
        )
        await tx.execute(insert(people).values(row_from(stranger)))
        return stranger.id


def _hash_code(code: str) -> str:
    return hashlib.sha256(normalize_code(code).encode()).hexdigest()


def _outranks(one: Member, other: Member) -> bool:
    return not other.person.role.allows(one.person.role)


def _describe(member: Member) -> Mapping[str, Any]:
    accounts = [f"{channel}:{external_id}" for channel, external_id in member.accounts]
    return {"name": member.person.name, "role": member.person.role.value, "accounts": accounts}


async def _find_usable(
    tx: Transaction, code: str, person: PersonId, now: datetime
) -> AccountLink | None:
    is_open = and_(
        _C.state == AccountLinkState.OPEN.value, _C.maker.in_(select(identities.c.person_id))
    )
    is_asked = and_(_C.state == AccountLinkState.ASKED.value, _C.taker == person)
    query = select(account_links).where(
        _C.code_hash == _hash_code(code), _C.expires_at > now, or_(is_open, is_asked)
    )
    return record_from(AccountLink, (await tx.execute(query.limit(1))).one_or_none())


async def _move(
    tx: Transaction, table: Table, column: str, joined: PersonId, kept: PersonId
) -> None:
    theirs = table.c[column] == joined
    brought = func.coalesce(table.c.brought_by, joined)
    await tx.execute(update(table).where(theirs).values({column: kept, "brought_by": brought}))


async def _private_chats(tx: Transaction, *where: ColumnElement[bool]) -> Sequence[ChatId]:
    query = select(chats.c.id).where(chats.c.kind == ChatKind.PRIVATE.value, *where)
    return [ChatId(each) for each in await tx.scalars(query)]


async def _replace_approver(
    tx: Transaction, old: PersonId, new: PersonId, *, only_from: Sequence[ChatId] | None = None
) -> None:
    """Replace an approver of waiting requests, or only of those from these chats."""
    query = select(approvals.c.id, approvals.c.approvers).where(
        approvals.c.state == ApprovalState.WAITING.value
    )
    if only_from is not None:
        query = query.where(approvals.c.chat_id.in_(only_from))
    for row in (await tx.execute(query)).all():
        if old in row.approvers:
            named = [*dict.fromkeys(new if each == old else each for each in row.approvers)]
            which = approvals.c.id == row.id
            await tx.execute(update(approvals).where(which).values(approvers=named))


async def _redirect_schedules(
    tx: Transaction, owner: PersonId, left: Sequence[ChatId], *, but_of: PersonId | None = None
) -> None:
    """Keep schedules of `owner` from reporting to chats that no longer belong to that person."""
    theirs = [
        schedules.c.owner_id == owner,
        schedules.c.chat_id.in_(left),
        schedules.c.brought_by.is_distinct_from(but_of) if but_of else true(),
    ]
    main = (
        select(chats.c.id)
        .where(
            chats.c.person_id == owner,
            chats.c.kind == ChatKind.PRIVATE.value,
            chats.c.id.not_in(left),
        )
        .order_by(chats.c.thread != "", chats.c.created_at.desc(), chats.c.id)
        .limit(1)
    )
    there = await tx.scalar(main)
    values = (
        {"chat_id": there, "reply_to": ""}
        if there
        else {"state": ScheduleState.PAUSED.value, "next_due": None}
    )
    await tx.execute(update(schedules).where(*theirs).values(values))


async def _stop_triggers(
    tx: Transaction, owner: PersonId, left: Sequence[ChatId], *, but_of: PersonId | None = None
) -> None:
    """Switch off the triggers of `owner` whose tasks would report in chats that are no longer
    theirs."""
    theirs = (
        triggers.c.owner_id == owner,
        triggers.c.chat_id.in_(left),
        triggers.c.brought_by.is_distinct_from(but_of) if but_of else true(),
    )
    await tx.execute(update(triggers).where(*theirs).values(enabled=False))


async def _end_web_access(
    tx: Transaction, person: PersonId, *, but: str = "", since: datetime | None = None
) -> None:
    """Sign out all browsers but the session `but`, and end the links and tokens that were made
    since then, or all."""
    mine = and_(web_sessions.c.person_id == person, web_sessions.c.id != but)
    await tx.execute(delete(web_sessions).where(mine))
    keys = [web_keys.c.person_id == person]
    if since is not None:
        keys += [web_keys.c.brought_by.is_(None), web_keys.c.created_at >= since]
    await tx.execute(delete(web_keys).where(*keys))


async def _revoke_chat_permissions(
    tx: Transaction, ids: Sequence[ChatId], now: datetime, *, since: datetime | None = None
) -> None:
    which = [
        tool_grants.c.scope == StandingPermissionScope.CHAT.value,
        tool_grants.c.subject.in_(ids),
        tool_grants.c.revoked_at.is_(None),
    ]
    if since is not None:
        which.append(tool_grants.c.at >= since)
    await tx.execute(update(tool_grants).where(*which).values(revoked_at=now))
