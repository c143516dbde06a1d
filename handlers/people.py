"""Handles strangers, pairing, welcomes and the management of people with access."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import ApplyPersonChange, ConfirmPersonChange, EndWebSession
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card, notice_card
from cards.views import people as views
from handlers.approvals import ask_owners, notify_owners_of_more, settle_approval
from handlers.errors import UsageError, UserError
from handlers.middleware import InboundEvent, refusal_reply
from handlers.ports import HandlerServices
from handlers.request import CommandRegistry, Reply, Request, Silence
from storage.errors import NotFound
from storage.records.approvals import ApprovalKind
from storage.records.messages import (
    DeliveryUrgency,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
)
from storage.records.people import (
    ApiToken,
    ChatId,
    ChatKind,
    Language,
    Member,
    PairingRequest,
    PairingState,
    PersonRole,
    WebLink,
)

commands = CommandRegistry("people")

MIN_ANSWER_INTERVAL = timedelta(minutes=10)
MAX_ANNOUNCED = 10
_ANNOUNCE_WINDOW = timedelta(hours=1)
_MAX_TRACKED = 1000
_MAX_CODE = 64
_LANGUAGE_WORDS = {
    **dict.fromkeys(("zh", "chinese", "中文", "zh-cn", "zh-hans"), Language.CHINESE),
    **dict.fromkeys(("en", "english", "英文", "英语"), Language.ENGLISH),
}


@commands("start", aliases=("开始",), immediate=True)
async def show_welcome(request: Request) -> Reply:
    return Reply(card=_welcome_card(request))


async def claim_owner_code(
    services: HandlerServices, incoming: Incoming, words: TextCatalog, now: datetime
) -> Reply | None:
    """Make the sender of `/start` and the code of the setup an owner; None without such a code. Not
    a handler of `/start`: strangers may do this too."""
    if not isinstance(incoming, IncomingMessage) or incoming.edited:
        return None
    command, _, code = incoming.text.strip().partition(" ")
    if command.partition("@")[0] not in {"/start", "/开始"} or not code.strip():
        return None
    if not await services.channel_setup.claim_owner_code(code[:_MAX_CODE], incoming, now=now):
        return None
    return Reply(card=views.owner_welcome_card(words))


@commands("pair", aliases=("配对",), immediate=True)
async def approve_pairing(request: Request) -> Reply:
    request.require_owner()
    services = request.services
    if not request.args:
        if not request.in_private:
            return Reply(card=notice_card("", request.words("pairing.not_here")))
        waiting = await services.approvals.list_waiting(by=request.person, chat=None)
        strangers = [
            (each.title, each.subject) for each in waiting if each.kind is ApprovalKind.PAIRING
        ]
        return Reply(card=views.pairings_card(strangers, request.words))
    pairing = await services.pairings.find(request.args, now=request.now)
    approval = await services.pairings.get_approval(pairing)
    await settle_approval(request, approval, approve=True)
    return Reply(card=views.access_granted_card(pairing, request.words))


@commands("language", aliases=("lang", "语言"), immediate=True)
async def choose_language(request: Request) -> Reply:
    language = _LANGUAGE_WORDS.get(request.args.casefold())
    if language is None:
        raise UsageError("language")
    await request.services.people.set_language(request.person, language)
    words = catalog_for(language)
    return Reply(card=notice_card("", f"{words('talk.language')}\n\n{words('talk.language_note')}"))


def welcome_reply(request: Request) -> Reply:
    """Welcome a person who opened the chat or added the bot to a group; once only."""
    return Reply(card=_welcome_card(request), key=f"welcome:{request.chat.id}")


class PairingGate:
    """Gives strangers a pairing code and nothing else, at a limited rate.

    Replies to them are delivered after those to people with access. Owners get a card for the first
    ten requests in an hour and one notice about the rest.
    """

    def __init__(self, services: HandlerServices, *, zone: ZoneInfo, fallback: Language) -> None:
        self._services = services
        self._zone = zone
        self._fallback = fallback
        self._answered: OrderedDict[str, datetime] = OrderedDict()
        self._announced: dict[str, datetime] = {}
        self._caught_up: set[ChatId] = set()

    async def answer(self, arrival: InboundEvent) -> Reply:
        words = arrival.words
        if arrival.is_press:
            return refusal_reply(arrival, words("press.stranger"), "")
        group = arrival.row.incoming.place.kind is ChatKind.GROUP
        entry = isinstance(arrival.row.incoming, IncomingChatOpen)
        if (group and entry) or not self._may_answer(arrival):
            return Reply(silence=Silence.STRANGER)
        if group:
            card = notice_card("", words("pairing.in_private"))
            return Reply(card=card, urgency=DeliveryUrgency.NOTICE)
        return await self._pairing_reply(arrival, entry=entry)

    async def _pairing_reply(self, arrival: InboundEvent, *, entry: bool) -> Reply:
        sender = arrival.row.incoming.sender
        await self._remember_language(arrival)
        pairing, _ = await self._services.pairings.get_or_create(
            arrival.row.incoming.place.channel,
            sender.external_id,
            sender.name,
            arrival.row.chat_id,
            now=arrival.now,
        )
        if pairing.state is PairingState.REFUSED:
            return Reply(
                card=views.pairing_refused_card(arrival.words), urgency=DeliveryUrgency.NOTICE
            )
        asked = await self._notify_owners(pairing, arrival.now)
        card = views.pairing_card(pairing, arrival.words, zone=self._zone, asked=asked)
        key = f"pairing:{pairing.code}" if entry else ""
        return Reply(card=card, key=key, urgency=DeliveryUrgency.NOTICE)

    async def catch_up(self, request: Request) -> None:
        """Ask an owner who writes for the first time what could not be asked before."""
        if not (request.by_owner and request.in_private) or request.chat.id in self._caught_up:
            return
        self._caught_up.add(request.chat.id)
        waiting = await self._services.approvals.list_waiting(by=request.person, chat=None)
        for approval in waiting:
            if approval.kind is not ApprovalKind.PAIRING:
                continue
            if not await self._services.cards.list_cards_for_approval(approval.id):
                await ask_owners(self._services, approval, zone=self._zone, fallback=self._fallback)

    async def _notify_owners(self, pairing: PairingRequest, now: datetime) -> bool:
        """Whether an owner could be asked. Also for an existing request: a crash may have prevented
        the owners' cards."""
        since = now - _ANNOUNCE_WINDOW
        self._announced = {code: at for code, at in self._announced.items() if at > since}
        if pairing.code not in self._announced and len(self._announced) >= MAX_ANNOUNCED:
            hour = f"{now:%Y%m%d%H}"
            return await notify_owners_of_more(
                self._services, hour=hour, zone=self._zone, fallback=self._fallback
            )
        self._announced.setdefault(pairing.code, now)
        approval = await self._services.pairings.get_approval(pairing)
        return await ask_owners(self._services, approval, zone=self._zone, fallback=self._fallback)

    async def _remember_language(self, arrival: InboundEvent) -> None:
        """Needed to tell the stranger about the decision in their language."""
        chat = await self._services.people.get_chat(arrival.row.chat_id)
        if chat.settings.language is not arrival.words.language:
            language = arrival.words.language
            await self._services.people.update_chat_settings(chat, language=language)

    def _may_answer(self, arrival: InboundEvent) -> bool:
        last = self._answered.get(arrival.sender_key)
        if last is not None and arrival.now - last < MIN_ANSWER_INTERVAL:
            return False
        self._answered[arrival.sender_key] = arrival.now
        self._answered.move_to_end(arrival.sender_key)
        if len(self._answered) > _MAX_TRACKED:
            self._answered.popitem(last=False)
        return True


def _welcome_card(request: Request) -> Card:
    group = not request.in_private
    return views.welcome_card(
        request.words,
        group=group,
        offline=request.without_model,
        can_connect=request.by_owner and request.in_private,
    )


member_commands = CommandRegistry("people")

_DEMOTE_WORDS = {"demote", "降级"}
_REMOVE_WORDS = {"remove", "移除"}
_CONFIRM_WORDS = {"yes", "确定", "是"}


@member_commands("people", aliases=("成员", "人员"), immediate=True)
async def manage_people(request: Request) -> Reply:
    _check_owner_in_private(request)
    word, name, sure, *_ = [*request.args.split(), "", "", ""]
    if not word:
        members = await request.services.people.list_members()
        card = views.members_card(members, request.words, viewer=request.person.id)
        return Reply(card=card, data=views.members_data(members))
    remove = word.casefold() in _REMOVE_WORDS
    if not name or not (remove or word.casefold() in _DEMOTE_WORDS):
        raise UsageError("people")
    member = await _find_member(request, name)
    if sure.casefold() in _CONFIRM_WORDS:
        return await _change_person(request, member, remove=remove)
    return _confirm_reply(request, member, remove=remove)


async def handle_person_press(
    request: Request, action: ConfirmPersonChange | ApplyPersonChange, card_key: str
) -> Reply:
    if isinstance(action, ConfirmPersonChange):
        return await confirm_person_change(request, action)
    return await apply_person_change(request, action, card_key)


async def confirm_person_change(request: Request, action: ConfirmPersonChange) -> Reply:
    """Ask for confirmation: one press must not remove anyone."""
    _check_owner_in_private(request)
    return _confirm_reply(
        request, await _find_member(request, action.person_id), remove=action.remove
    )


async def apply_person_change(request: Request, action: ApplyPersonChange, card_key: str) -> Reply:
    """Apply the confirmed change."""
    _check_owner_in_private(request)
    member = await _find_member(request, action.person_id)
    reply = await _change_person(request, member, remove=action.remove)
    return Reply(card=reply.card, key=card_key, in_place=True)


def _check_owner_in_private(request: Request, command: str = "people") -> None:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command=command)


async def _find_member(request: Request, name: str) -> Member:
    """Find by id, by account, or by a unique name."""
    members = await request.services.people.list_members()
    sought = name.casefold()
    for each in members:
        accounts = {external_id.casefold() for _, external_id in each.accounts}
        if sought in {each.person.id.casefold(), *accounts}:
            return each
    matches = [each for each in members if each.person.name.casefold() == sought]
    if len(matches) != 1:
        raise NotFound("person", name[:60])
    return matches[0]


def _confirm_reply(request: Request, member: Member, *, remove: bool) -> Reply:
    if member.is_local_web_owner:
        raise UserError("local_owner")
    if not remove and member.person.role is not PersonRole.OWNER:
        raise UserError("already_member", name=member.person.name)
    return Reply(card=views.confirm_person_change_card(member, request.words, remove=remove))


async def _change_person(request: Request, member: Member, *, remove: bool) -> Reply:
    services, who = request.services, member.person
    if not remove and who.role is not PersonRole.OWNER:
        raise UserError("already_member", name=who.name)
    if remove:
        chats = await services.people.remove(who.id)
        if chats is None:
            raise UserError("last_owner", name=who.name)
        for chat in chats:
            services.conversations.interrupt(chat)
            await services.conversations.reset(chat)
    elif not await services.people.demote(who.id):
        raise UserError("last_owner", name=who.name)
    text = request.words("people.removed" if remove else "people.demoted", name=who.name)
    if member.is_configured_owner:
        text = f"{text}\n\n{request.words('people.named')}"
    return Reply(card=notice_card("", text), data={"id": who.id, "removed": remove})


session_commands = CommandRegistry("people")

_END_WORDS = {"end", "结束"}
_OTHERS_WORDS = {"others", "其他"}
_TOKEN_WORDS = {"token", "口令"}
_MAX_TOKEN_NAME = 60


@session_commands("dashboard", aliases=("控制台",), immediate=True)
async def send_dashboard_link(request: Request) -> Reply:
    """Send a link to the named page of the dashboard, or to the first one."""
    _check_owner_in_private(request, "dashboard")
    page = request.args.strip().casefold()
    if page and not (page.isascii() and page.isalpha()):
        raise UsageError("dashboard")
    url, link = await request.services.web_sessions.create_link(request.person.id, page=page)
    return _link_reply(request, url, link)


@session_commands("sessions", aliases=("网页登录",), immediate=True)
async def manage_web_sessions(request: Request) -> Reply:
    """Members see and end their own API tokens only."""
    if not request.in_private:
        raise UserError("only_in_private", command="sessions")
    word, _, rest = request.args.partition(" ")
    which = rest.strip().casefold()
    if not word:
        return await _web_access_reply(request)
    if word.casefold() in _TOKEN_WORDS and which:
        name = formats.truncate(formats.clean_line(rest.strip()), _MAX_TOKEN_NAME)
        url, link = await request.services.web_sessions.create_link(
            request.person.id, token_name=name
        )
        return _link_reply(request, url, link)
    if word.casefold() not in _END_WORDS or not which:
        raise UsageError("sessions")
    if which in _OTHERS_WORDS:
        return Reply(card=await end_web_sessions(request, EndWebSession()))
    if which in {each.id for each in await _own_tokens(request)}:
        await request.services.web_sessions.revoke_token(which)
        return await _web_access_reply(request, "revoked")
    request.require_owner()
    if which not in {each.id for each in await request.services.web_sessions.list()}:
        raise NotFound("web_session", which[:60])
    return Reply(card=await end_web_sessions(request, EndWebSession(session_id=which)))


async def end_web_sessions(request: Request, action: EndWebSession) -> Card:
    """End one session, or all but the one that the request comes from, and show those that are
    left. Doing so again changes nothing."""
    _check_owner_in_private(request, "sessions")
    sessions = request.services.web_sessions
    if action == EndWebSession():
        await sessions.end_others(request.web_session)
        return (await _web_access(request)).card("ended_others")
    await sessions.end(action.session_id)
    return (await _web_access(request)).card("ended")


async def _own_tokens(request: Request) -> Sequence[ApiToken]:
    """The API tokens that this person may end: owners may end all of them."""
    return [
        each
        for each in await request.services.web_sessions.list_tokens()
        if request.by_owner or each.person_id == request.person.id
    ]


async def _web_access_reply(request: Request, news: str = "") -> Reply:
    access = await _web_access(request)
    return Reply(card=access.card(news), data=access.data())


async def _web_access(request: Request) -> views.WebAccess:
    services = request.services
    members = await services.people.list_members()
    return views.WebAccess(
        sessions=await services.web_sessions.list() if request.by_owner else (),
        tokens=await _own_tokens(request),
        names={each.person.id: each.person.name for each in members},
        current=request.web_session,
        zone=request.zone,
        words=request.words,
    )


def _link_reply(request: Request, url: str, link: WebLink) -> Reply:
    card = views.web_link_card(url, link, request.words, zone=request.zone)
    return Reply(card=card, data={"url": url, "expires_at": link.expires_at.isoformat()})
