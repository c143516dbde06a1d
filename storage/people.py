"""Stores people with access, their accounts and pairing requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, or_, select, update

from storage.approvals import NewApproval, add_approval, newest_approval_of_subject
from storage.db import Database, Transaction, record_from, row_from
from storage.errors import NotFound, TooManyAttempts
from storage.ids import IdGenerator, normalize_code
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import (
    AccountLinkState,
    Channel,
    Chat,
    ChatId,
    ChatKind,
    Language,
    Member,
    PairingRequest,
    PairingState,
    Person,
    PersonId,
    PersonRole,
)
from storage.schema import chats, identities, pairings, people
from storage.web_schema import account_links, web_keys, web_sessions

LOCAL_WEB_OWNER = (Channel.WEB, "local")
"""The account of the local web chat, whose token is the credential."""

_BY_IDENTITY = (
    select(people)
    .join(identities, identities.c.person_id == people.c.id)
    .where(
        identities.c.channel == bindparam("channel"),
        identities.c.external_id == bindparam("external_id"),
    )
)

_ACCOUNT_NAME = (
    select(identities.c.external_id)
    .where(identities.c.person_id == bindparam("who"), identities.c.channel == bindparam("channel"))
    .order_by(identities.c.external_id)
    .limit(1)
)

_MAKE_OWNER = (
    update(people).where(people.c.id == bindparam("who")).values(role=PersonRole.OWNER.value)
)

_MAKE_BRINGER_OWNER = (
    update(people)
    .where(
        people.c.id.in_(
            select(identities.c.brought_by).where(
                identities.c.channel == bindparam("channel"),
                identities.c.external_id == bindparam("external_id"),
            )
        )
    )
    .values(role=PersonRole.OWNER.value)
)

_JOINED = select(account_links.c.joined).where(
    account_links.c.kept == bindparam("who"),
    account_links.c.state == AccountLinkState.LINKED.value,
)

# Whoever was joined to a demoted person must not be an owner again once they are apart.
_MAKE_MEMBER = (
    update(people)
    .where(or_(people.c.id == bindparam("who"), people.c.id.in_(_JOINED)))
    .values(role=PersonRole.MEMBER.value)
)

_END_LINKS = (
    update(account_links)
    .where(
        account_links.c.kept == bindparam("who"),
        account_links.c.state == AccountLinkState.LINKED.value,
    )
    .values(state=AccountLinkState.ENDED.value)
)

_KEPT = select(account_links.c.kept).where(
    account_links.c.joined == bindparam("who"),
    account_links.c.state == AccountLinkState.LINKED.value,
)

# What began before a link names the former person.
_NOW = func.coalesce(_KEPT.scalar_subquery(), bindparam("who"))

_BY_ID = select(people).where(people.c.id == _NOW)

_HAS_IDENTITY = select(identities.c.person_id).where(identities.c.person_id == _NOW).limit(1)

_DELETE_IDENTITIES = delete(identities).where(identities.c.person_id == bindparam("who"))

_ALL_WITH_ACCOUNTS = (
    select(
        people,
        identities.c.channel,
        identities.c.external_id,
        identities.c.brought_by.label("brought_by"),
    )
    .join(identities, identities.c.person_id == people.c.id)
    .order_by(people.c.role != PersonRole.OWNER.value, people.c.created_at, people.c.id)
)

_PRIVATE_CHATS = select(chats.c.id).where(
    chats.c.person_id == bindparam("who"), chats.c.kind == ChatKind.PRIVATE.value
)

_SET_LANGUAGE = (
    update(people).where(people.c.id == bindparam("who")).values(language=bindparam("spoken"))
)


async def current_person_id(tx: Transaction, person: PersonId) -> PersonId:
    """The present person behind an id. Work that began before accounts were linked still names the
    former person when it is stored; it belongs to the person they were joined to."""
    return PersonId(await tx.scalar(_KEPT, {"who": person}) or person)


class PeopleRepo:
    """Implements handlers.ports.PeoplePort. `unlisted_owner` names an owner who is no longer
    configured but stays one because there is no other."""

    def __init__(self, db: Database, ids: IdGenerator, chats: ChatRepo) -> None:
        self._db = db
        self._ids = ids
        self._chats = chats
        self._configured_owners = frozenset[tuple[Channel, str]]()
        self.unlisted_owner = ""

    async def find_by_account(self, channel: Channel, external_id: str) -> Person | None:
        async with self._db.read_once() as view:
            return await self._find_by_account(view, channel, external_id)

    async def get(self, person_id: PersonId) -> Person:
        """The person with this id. For somebody who was joined to another person, that other one:
        older work may still name the former person."""
        row = await self._db.fetch_one(_BY_ID, {"who": person_id})
        if row is None:
            raise NotFound("person", person_id)
        return record_from(Person, row)

    async def get_account_name(
        self, view: Transaction, person_id: PersonId, channel: Channel
    ) -> str:
        """The person's name on a channel; empty if they have no account there."""
        return await view.scalar(_ACCOUNT_NAME, {"who": person_id, "channel": channel.value}) or ""

    async def find_account(self, person_id: PersonId, channel: Channel) -> str:
        """The platform's id of the person, or of whom they were joined to; empty without one."""
        for member in await self.list_members():
            if person_id in (member.person.id, *member.joined.values()):
                return next((id_ for of, id_ in member.accounts if of is channel), "")
        return ""

    async def get_chat(self, chat_id: ChatId) -> Chat:
        return await self._chats.get(chat_id)

    async def private_chats(self, role: PersonRole) -> Sequence[Chat]:
        return await self._chats.list_private(role)

    async def update_chat_settings(self, chat: Chat, **changes: Any) -> Chat:
        return await self._chats.update_settings(chat.id, **changes)

    async def set_language(self, person: Person, language: Language) -> None:
        async with self._db.write() as tx:
            await tx.execute(_SET_LANGUAGE, {"who": person.id, "spoken": language.value})

    async def ensure_owners(
        self, configured: Iterable[tuple[Channel, str]], *, now: datetime, local_name: str = "Owner"
    ) -> None:
        """Make the configured accounts and the local web chat's account owners; repeating it
        changes nothing. `local_name` names the local web owner. For accounts no longer configured
        see `demote_unlisted_owners`."""
        configured = tuple(configured)
        self._configured_owners = frozenset(configured)
        async with self._db.write() as tx:
            for channel, external_id in dict.fromkeys((LOCAL_WEB_OWNER, *configured)):
                name = local_name if (channel, external_id) == LOCAL_WEB_OWNER else external_id
                person = await self.get_or_create(
                    tx, channel, external_id, name=name, role=PersonRole.OWNER, now=now
                )
                if person.role is not PersonRole.OWNER:
                    await tx.execute(_MAKE_OWNER, {"who": person.id})
                # Also once the account is unlinked.
                account = {"channel": channel.value, "external_id": external_id}
                await tx.execute(_MAKE_BRINGER_OWNER, account)

    async def demote_unlisted_owners(self) -> Sequence[Person]:
        """Make owners who are no longer configured members and return them. The oldest stays if
        only the local web owner would remain."""
        async with self._db.write() as tx:
            owners = [each for each in await self._members(tx) if _is_owner(each)]
            away = [each for each in owners if not each.is_local_web_owner]
            fallen = [each for each in away if not each.is_configured_owner]
            kept = fallen[:1] if len(fallen) == len(away) else []
            fallen = fallen[len(kept) :]
            for each in fallen:
                await tx.execute(_MAKE_MEMBER, {"who": each.person.id})
        self.unlisted_owner = kept[0].person.name if kept else ""
        return [each.person for each in fallen]

    async def list_members(self, tx: Transaction | None = None) -> Sequence[Member]:
        """Everyone with access: owners first, then by age."""
        async with self._db.read(tx) as view:
            return await self._members(view)

    async def demote(self, person_id: PersonId) -> bool:
        """Make an owner a member. False for the last owner and the local web owner, who stay."""
        async with self._db.write() as tx:
            if not await self._can_lose_role(tx, person_id):
                return False
            await tx.execute(_MAKE_MEMBER, {"who": person_id})
        return True

    async def settle_role(self, tx: Transaction, person_id: PersonId, *, without: PersonId) -> None:
        """Make an owner a member if the settings granted the role through an account that has left
        them and that now belongs to `without`."""
        members = {each.person.id: each for each in await self._members(tx)}
        person = members[person_id]
        own = person.is_configured_owner or person.is_local_web_owner
        if members[without].is_configured_owner and not own:
            await tx.execute(_MAKE_MEMBER, {"who": person_id})

    async def remove(self, person_id: PersonId) -> Sequence[ChatId] | None:
        """Revoke a person's access and return their private chats; their tasks stay. None for the
        last owner and the local web owner, who stay."""
        async with self._db.write() as tx:
            if not await self._can_lose_role(tx, person_id):
                return None
            await tx.execute(_MAKE_MEMBER, {"who": person_id})
            await tx.execute(_END_LINKS, {"who": person_id})
            await tx.execute(_DELETE_IDENTITIES, {"who": person_id})
            for table in (web_sessions, web_keys):
                await tx.execute(delete(table).where(table.c.person_id == person_id))
            return [ChatId(each) for each in await tx.scalars(_PRIVATE_CHATS, {"who": person_id})]

    async def has_access(self, person_id: PersonId) -> bool:
        """False for a removed person."""
        return await self._db.fetch_value(_HAS_IDENTITY, {"who": person_id}) is not None

    async def get_or_create(
        self,
        tx: Transaction,
        channel: Channel,
        external_id: str,
        *,
        name: str,
        role: PersonRole,
        now: datetime,
    ) -> Person:
        """The person behind an account, created with this name and role if missing."""
        known = await self._find_by_account(tx, channel, external_id)
        if known is not None:
            return known
        person = Person(
            id=PersonId(self._ids.token()), name=name, role=role, language=None, created_at=now
        )
        await tx.execute(insert(people).values(row_from(person)))
        account = {"channel": channel, "external_id": external_id, "person_id": person.id}
        await tx.execute(insert(identities).values(account))
        return person

    async def _members(self, view: Transaction) -> Sequence[Member]:
        found: dict[str, tuple[Person, dict[tuple[Channel, str], str | None]]] = {}
        for row in (await view.execute(_ALL_WITH_ACCOUNTS)).all():
            _, accounts = found.setdefault(row.id, (record_from(Person, row), {}))
            accounts[Channel(row.channel), row.external_id] = row.brought_by
        return [
            Member(
                person=person,
                accounts=tuple(accounts),
                is_configured_owner=not self._configured_owners.isdisjoint(accounts),
                is_local_web_owner=LOCAL_WEB_OWNER in accounts,
                joined={each: PersonId(who) for each, who in accounts.items() if who},
            )
            for person, accounts in found.values()
        ]

    async def _can_lose_role(self, tx: Transaction, person_id: PersonId) -> bool:
        """Raises NotFound if this person has no access."""
        members = {each.person.id: each for each in await self._members(tx)}
        if person_id not in members:
            raise NotFound("person", person_id)
        others = [each for each in members.values() if each.person.id != person_id]
        return not members[person_id].is_local_web_owner and any(map(_is_owner, others))

    async def _find_by_account(
        self, tx: Transaction, channel: Channel, external_id: str
    ) -> Person | None:
        facts = {"channel": channel.value, "external_id": external_id}
        return record_from(Person, (await tx.execute(_BY_IDENTITY, facts)).one_or_none())


def _is_owner(member: Member) -> bool:
    return member.person.role is PersonRole.OWNER


PAIRING_LIFETIME = timedelta(hours=1)
MAX_WRONG_CODES = 5
WRONG_CODE_WINDOW = timedelta(hours=1)

_WRONG_CODES_KEY = "pairing.wrong_codes"

_OPEN_PAIRING = (
    select(pairings)
    .where(
        pairings.c.channel == bindparam("channel"),
        pairings.c.external_id == bindparam("external_id"),
        pairings.c.state != PairingState.APPROVED.value,
        pairings.c.expires_at > bindparam("now"),
    )
    .order_by(pairings.c.created_at.desc())
    .limit(1)
)

_PAIRING_BY_CODE = (
    select(pairings, chats.c.external_id.label("chat_external_id"))
    .join(chats, chats.c.id == pairings.c.chat_id)
    .where(pairings.c.code == bindparam("code"))
)

_DECIDE_PAIRING = (
    update(pairings)
    .where(pairings.c.code == bindparam("which"))
    .values(state=bindparam("verdict"), decided_by=bindparam("who"))
)


@dataclass(eq=False)
class PairingRepo:
    """Implements handlers.ports.PairingPort; `apply_decision` handles approvals of kind PAIRING."""

    db: Database
    ids: IdGenerator
    people: PeopleRepo
    chats: ChatRepo
    key_values: KeyValueStore
    now: Callable[[], datetime]

    async def get_or_create(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[PairingRequest, bool]:
        """The stranger's pending request and True if it is new. A refused stranger gets the refused
        request until it expires, and may then ask again."""
        async with self.db.write() as tx:
            facts = {"channel": channel.value, "external_id": external_id, "now": now}
            row = (await tx.execute(_OPEN_PAIRING, facts)).one_or_none()
            if row is not None:
                return record_from(PairingRequest, row), False
            pairing = PairingRequest(
                code=self.ids.pairing_code(),
                channel=channel,
                external_id=external_id,
                name=name,
                chat_id=chat_id,
                state=PairingState.PENDING,
                created_at=now,
                expires_at=now + PAIRING_LIFETIME,
            )
            await self._insert(tx, pairing)
        return pairing, True

    async def find(self, code: str, *, now: datetime) -> PairingRequest:
        """Case, spaces and dashes are ignored. NotFound if unknown, decided or expired;
        TooManyAttempts, a NotFound, after five wrong codes within an hour by anyone."""
        wanted = normalize_code(code)
        async with self.db.read() as view:
            stored = await self.key_values.read(view, _WRONG_CODES_KEY)
            misses = recent_times(stored, WRONG_CODE_WINDOW, now)
            row = (await view.execute(_PAIRING_BY_CODE, {"code": wanted})).one_or_none()
        if len(misses) >= MAX_WRONG_CODES:
            raise TooManyAttempts("pairing", code)
        if row is None:
            await self._record_wrong_code(now)
        if row is None or row.state != PairingState.PENDING.value or row.expires_at <= now:
            raise NotFound("pairing", code)
        return record_from(PairingRequest, row)

    async def get_approval(self, pairing: PairingRequest) -> Approval:
        """The approval created with this request."""
        async with self.db.read() as view:
            return await newest_approval_of_subject(
                view, ApprovalKind.PAIRING, pairing.code, now=self.now()
            )

    async def apply_decision(self, tx: Transaction, approval: Approval) -> None:
        """Grant or refuse access as `approval` says."""
        row = (await tx.execute(_PAIRING_BY_CODE, {"code": approval.subject})).one_or_none()
        if row is None or approval.state is ApprovalState.EXPIRED:
            return
        approved = approval.state is ApprovalState.APPROVED
        verdict = PairingState.APPROVED if approved else PairingState.REFUSED
        facts = {"which": row.code, "verdict": verdict.value, "who": approval.decided_by}
        await tx.execute(_DECIDE_PAIRING, facts)
        if approved:
            await self._grant_access(tx, row, approval.decided_at or row.created_at)

    async def _grant_access(self, tx: Transaction, row: Row[Any], now: datetime) -> None:
        channel = Channel(row.channel)
        person = await self.people.get_or_create(
            tx, channel, row.external_id, name=row.name, role=PersonRole.MEMBER, now=now
        )
        await self.chats.set_partner(tx, channel, row.chat_external_id, person.id)

    async def _insert(self, tx: Transaction, pairing: PairingRequest) -> None:
        await tx.execute(insert(pairings).values(row_from(pairing)))
        new = NewApproval(
            kind=ApprovalKind.PAIRING,
            chat_id=pairing.chat_id,
            title=pairing.name or pairing.external_id,
            subject=pairing.code,
            expires_at=pairing.expires_at,
        )
        await add_approval(tx, new, ids=self.ids, now=pairing.created_at)

    async def _record_wrong_code(self, now: datetime) -> None:
        async with self.db.write() as tx:
            stored = await self.key_values.read(tx, _WRONG_CODES_KEY)
            misses = recent_times(stored, WRONG_CODE_WINDOW, now)
            await self.key_values.write(
                tx, _WRONG_CODES_KEY, [*misses, now.isoformat()][-MAX_WRONG_CODES:]
            )


def recent_times(times: Any, window: timedelta, now: datetime) -> list[str]:
    """The stored times that lie within the window."""
    return [at for at in times or () if datetime.fromisoformat(at) > now - window]


_OWNER_IDS = (
    select(people.c.id).where(people.c.role == PersonRole.OWNER.value).order_by(people.c.created_at)
)


_HAS_ACCOUNT = people.c.id.in_(select(identities.c.person_id))


_BY_ID_OR_ACCOUNT = select(people.c.id).where(
    _HAS_ACCOUNT,
    or_(
        people.c.id == bindparam("id"),
        people.c.id.in_(
            select(identities.c.person_id).where(
                identities.c.channel == bindparam("channel"),
                identities.c.external_id == bindparam("account"),
            )
        ),
    ),
)


_ALL_NAMES = select(people.c.id, people.c.name).where(_HAS_ACCOUNT)


async def owner_ids(view: Transaction) -> tuple[PersonId, ...]:
    return tuple(PersonId(each) for each in await view.scalars(_OWNER_IDS))


async def find_name(view: Transaction, person: PersonId) -> str:
    """Empty if there is no such person."""
    return await view.scalar(select(people.c.name).where(people.c.id == person)) or ""


async def find_person_id(view: Transaction, name: str) -> PersonId | None:
    """The person with access who has this id, this account (`channel:id`) or, if unique, this name,
    ignoring case."""
    channel, _, account = (each.strip() for each in name.partition(":"))
    found = await view.scalars(
        _BY_ID_OR_ACCOUNT, {"id": name, "channel": channel.lower(), "account": account}
    )
    if exact := list(found):
        return PersonId(exact[0])
    rows = (await view.execute(_ALL_NAMES)).all()
    same = [row.id for row in rows if row.name.strip().casefold() == name.casefold()]
    return PersonId(same[0]) if len(same) == 1 else None
