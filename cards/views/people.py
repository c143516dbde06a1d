"""Renders pairing, welcomes and the list of people with access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import (
    ApplyPersonChange,
    ConfirmPersonChange,
    EndWebSession,
    ListTasks,
)
from cards.catalog import TextCatalog
from cards.views.account_links import account_text
from cards.views.backends import connect_button
from cards.views.browsers import browser_name
from storage.records.people import (
    ApiToken,
    Member,
    PairingRequest,
    PersonId,
    PersonRole,
    WebKeyKind,
    WebLink,
    WebSession,
)

_MAX_NAME = 60
_MAX_PAIRINGS = 20


def pairing_card(
    pairing: PairingRequest, words: TextCatalog, *, zone: ZoneInfo, asked: bool
) -> model.Card:
    """The only card a stranger sees. `asked`: an owner has it too, with buttons."""
    until = formats.date_time(pairing.expires_at, zone)
    note = "pairing.note" if asked else "pairing.note_unasked"
    return model.titled_card(
        words("pairing.title"),
        model.TextBlock(words("pairing.text")),
        model.FieldsBlock(((words("pairing.code"), pairing.code),)),
        model.NoteBlock(words(note, code=pairing.code, until=until)),
        summary=words("pairing.summary", code=pairing.code),
    )


def paired_card(words: TextCatalog) -> model.Card:
    """Tells a stranger that they now have access."""
    return model.titled_card(
        words("pairing.paired_title"),
        model.TextBlock(words("pairing.paired")),
        tone=model.CardTone.GOOD,
    )


def access_granted_card(pairing: PairingRequest, words: TextCatalog) -> model.Card:
    """Tells the owner that access was granted."""
    name = formats.escape_markdown(pairing.name or "?", _MAX_NAME)
    summary = words("pairing.let_in", name=formats.single_line(pairing.name or "?", _MAX_NAME))
    return model.Card(
        blocks=(model.TextBlock(words("pairing.let_in", name=name)),), summary=summary
    )


def owner_welcome_card(words: TextCatalog) -> model.Card:
    """Tells somebody that their code has made them an owner."""
    text = model.TextBlock(words("setup.channel.owner"))
    return model.titled_card(words("setup.channel.owner_title"), text)


def pairing_refused_card(words: TextCatalog) -> model.Card:
    """Tells a stranger that access was refused."""
    text = words("pairing.refused")
    return model.Card(blocks=(model.TextBlock(text),), summary=text)


def pairings_card(waiting: Sequence[tuple[str, str]], words: TextCatalog) -> model.Card:
    """Waiting pairing requests: a name and a code each."""
    title = words("pairing.list_title", n=len(waiting))
    if not waiting:
        return model.titled_card(
            title, model.TextBlock(words("pairing.none")), tone=model.CardTone.NEUTRAL
        )
    rows = tuple(
        (formats.single_line(name, _MAX_NAME), code) for name, code in waiting[:_MAX_PAIRINGS]
    )
    table = model.TableBlock((words("pairing.name"), words("pairing.code")), rows)
    hidden_count = len(waiting) - len(rows)
    more = (model.NoteBlock(words("pairing.more", n=hidden_count)),) if hidden_count else ()
    return model.titled_card(
        title, table, *more, model.NoteBlock(words("pairing.list_note")), tone=model.CardTone.WARN
    )


def welcome_card(
    words: TextCatalog, *, group: bool = False, offline: bool = False, can_connect: bool = False
) -> model.Card:
    """`offline`: no model is configured. `can_connect`: the reader may connect one."""
    key = "welcome.group" if group else "welcome.text"
    return model.titled_card(
        words("welcome.title"),
        model.TextBlock(words(key)),
        *([model.TextBlock(words("welcome.offline"))] if offline else []),
        *([_connect_block(words, can_connect)] if offline else []),
        model.TextBlock(words("welcome.examples")),
        model.ButtonsBlock((model.CardButton(words("button.tasks"), ListTasks()),)),
        model.NoteBlock(words("welcome.note")),
    )


def _connect_block(words: TextCatalog, can_connect: bool) -> model.Block:
    if can_connect:
        return model.ButtonsBlock((connect_button(words),))
    return model.NoteBlock(words("welcome.ask_owner"))


_MAX_MEMBER_NAME = 60
_MAX_MEMBERS = 40
_MAX_BUTTONS = 8


def members_card(members: Sequence[Member], words: TextCatalog, *, viewer: PersonId) -> model.Card:
    """`viewer` is the reader: their own row has no buttons."""
    rows = [_member_row(each, words) for each in members[:_MAX_MEMBERS]]
    blocks: list[model.Block] = [model.TextBlock("\n".join(rows))]
    if len(members) > _MAX_MEMBERS:
        blocks.append(model.NoteBlock(words("pairing.more", n=len(members) - _MAX_MEMBERS)))
    others = [each for each in members if not each.is_local_web_owner and each.person.id != viewer]
    buttons = [button for each in others for button in _member_buttons(each, words)]
    if buttons:
        blocks.append(model.ButtonsBlock(tuple(buttons[:_MAX_BUTTONS])))
    blocks.append(model.NoteBlock(words("people.note")))
    return model.titled_card(words("people.title", n=len(members)), *blocks)


def confirm_person_change_card(member: Member, words: TextCatalog, *, remove: bool) -> model.Card:
    person = member.person
    key = "remove" if remove else "demote"
    name = formats.single_line(person.name, _MAX_MEMBER_NAME)
    move = ApplyPersonChange(person_id=person.id, remove=remove)
    button = model.CardButton(words(f"people.sure_{key}"), move, style=model.ButtonStyle.DANGER)
    blocks: list[model.Block] = [model.TextBlock(words(f"people.then_{key}"))]
    if member.is_configured_owner:
        blocks.append(model.TextBlock(words("people.named")))
    blocks.append(model.ButtonsBlock((button,)))
    return model.titled_card(
        words(f"people.ask_{key}", name=name), *blocks, tone=model.CardTone.WARN
    )


def members_data(members: Sequence[Member]) -> Mapping[str, Any]:
    return {
        "people": [
            {
                "id": each.person.id,
                "name": each.person.name,
                "role": each.person.role.value,
                "accounts": [f"{channel}:{external_id}" for channel, external_id in each.accounts],
                "named": each.is_configured_owner,
                "local": each.is_local_web_owner,
            }
            for each in members
        ]
    }


def _member_row(member: Member, words: TextCatalog) -> str:
    person = member.person
    accounts = [account_text(each, words) for each in member.accounts]
    marks = [words(f"people.role_{person.role}"), *accounts]
    if member.is_configured_owner:
        marks.append(words("people.by_setting"))
    name = formats.escape_markdown(person.name, _MAX_MEMBER_NAME)
    return f"- **{name}** (`{person.id}`) · {' · '.join(marks)}"


def _member_buttons(member: Member, words: TextCatalog) -> list[model.CardButton]:
    person = member.person
    name = formats.single_line(person.name, 20)
    acts = [False, True] if person.role is PersonRole.OWNER else [True]
    return [
        model.CardButton(
            words(f"people.button_{'remove' if remove else 'demote'}", name=name),
            ConfirmPersonChange(person_id=person.id, remove=remove),
        )
        for remove in acts
    ]


_MAX_SESSIONS = 20
_MAX_AGENT = 60
_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAccess:
    """Signed-in browsers and API tokens. `current` is the reader's session, empty outside the web
    chat; `names` are those of people."""

    sessions: Sequence[WebSession]
    tokens: Sequence[ApiToken]
    names: Mapping[PersonId, str]
    current: str
    zone: ZoneInfo
    words: TextCatalog

    def card(self, news: str = "") -> model.Card:
        """The list of sessions and tokens. `news` describes the change just made."""
        words, sessions = self.words, self.sessions
        blocks: list[model.Block] = [model.TextBlock(words(f"sessions.{news}"))] if news else []
        shown = sessions[:_MAX_SESSIONS]
        rows = [self._session_row(n, each) for n, each in enumerate(shown, 1)]
        blocks.append(model.TextBlock("\n".join(rows) or words("sessions.none")))
        if len(sessions) > len(shown):
            blocks.append(model.NoteBlock(words("sessions.more", n=len(sessions) - len(shown))))
        tokens = [self._token_row(each) for each in self.tokens[:_MAX_SESSIONS]]
        if tokens:
            listed = "\n".join((f"**{words('sessions.tokens')}**", *tokens))
            blocks.append(model.TextBlock(listed))
        if buttons := self._buttons():
            blocks.append(model.ButtonsBlock(buttons))
        blocks.append(model.NoteBlock(words("sessions.note")))
        return model.titled_card(words("sessions.title", n=len(sessions)), *blocks)

    def data(self) -> Mapping[str, Any]:
        return {
            "sessions": [
                {
                    "id": each.id,
                    "person": each.person_id,
                    "created_at": each.created_at.isoformat(),
                    "seen_at": each.seen_at.isoformat(),
                    "expires_at": each.expires_at.isoformat(),
                    "user_agent": each.user_agent,
                }
                for each in self.sessions
            ],
            "tokens": [
                {
                    "id": each.id,
                    "person": each.person_id,
                    "name": each.name,
                    "created_at": each.created_at.isoformat(),
                    "seen_at": each.seen_at.isoformat() if each.seen_at else None,
                }
                for each in self.tokens
            ],
        }

    def _buttons(self) -> tuple[model.CardButton, ...]:
        words = self.words
        ends = [
            model.CardButton(words("sessions.button_end", n=n), EndWebSession(session_id=each.id))
            for n, each in enumerate(self.sessions[:_MAX_SESSIONS], 1)
            if each.id != self.current
        ]
        if not ends:
            return ()
        every = model.CardButton(
            words("sessions.button_others" if self.current else "sessions.button_all"),
            EndWebSession(),
            style=model.ButtonStyle.DANGER,
        )
        return (*ends[: _MAX_BUTTONS - 1], every)

    def _session_row(self, number: int, session: WebSession) -> str:
        text = self.words(
            "sessions.row",
            id=session.id,
            since=formats.date_time(session.created_at, self.zone),
            seen=formats.date_time(session.seen_at, self.zone),
        )
        is_current = session.id == self.current
        mark = f" · **{self.words('sessions.current')}**" if is_current else ""
        agent = formats.escape_markdown(browser_name(session.user_agent, self.words), _MAX_AGENT)
        return f"{number}. {text}{mark}\n   {self._name(session.person_id)} · {agent}"

    def _token_row(self, token: ApiToken) -> str:
        name = formats.escape_markdown(token.name, _MAX_NAME)
        seen = formats.date_time(token.seen_at, self.zone) if token.seen_at else "–"
        times = self.words(
            "sessions.row",
            id=token.id,
            since=formats.date_time(token.created_at, self.zone),
            seen=seen,
        )
        return f"- {name} · {self._name(token.person_id)}\n   {times}"

    def _name(self, person_id: PersonId) -> str:
        return formats.escape_markdown(self.names.get(person_id, ""), _MAX_NAME) or "?"


def web_link_card(url: str, link: WebLink, words: TextCatalog, *, zone: ZoneInfo) -> model.Card:
    key = "dashboard.link" if link.kind is WebKeyKind.SIGN_IN else "sessions.token"
    name = formats.escape_markdown(link.name, _MAX_NAME)
    blocks: list[model.Block] = [
        model.TextBlock(f"{words(f'{key}_text', name=name)}\n\n[{url}]({url})"),
        model.NoteBlock(words("dashboard.once", until=formats.time_of_day(link.expires_at, zone))),
    ]
    if urlsplit(url).hostname in _THIS_MACHINE:
        blocks.append(model.NoteBlock(words("dashboard.this_machine")))
    return model.titled_card(words(f"{key}_title"), *blocks)
