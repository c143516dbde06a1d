"""Strangers at the door, pairing and welcomes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards.model import Card
from cards.views.errors import notice_card
from cards.views.people import (
    let_in_card,
    pairing_card,
    pairings_card,
    refused_card,
    welcome_card,
)
from cards.words import words_for
from handlers.approvals import announce, announce_more, settle
from handlers.errors import Usage
from handlers.middleware import Arrival, refused
from handlers.ports import Forbidden, Services
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.records.approvals import ApprovalKind
from storage.records.messages import EntryIn, Urgency
from storage.records.people import ChatKind, Language, Pairing, PairingState, Role

commands = Commands("people")

ANSWER_EVERY = timedelta(minutes=10)
ANNOUNCED = 10
_ANNOUNCED_WITHIN = timedelta(hours=1)
_REMEMBERED = 1000
_OFFLINE = "offline"
_LANGUAGES = {
    **dict.fromkeys(("zh", "chinese", "中文", "zh-cn", "zh-hans"), Language.CHINESE),
    **dict.fromkeys(("en", "english", "英文", "英语"), Language.ENGLISH),
}


@commands("start", aliases=("开始",), immediate=True)
async def start(request: Request) -> Reply:
    """Say hello and show how to begin."""
    return Reply(card=_welcome(request))


@commands("pair", usage="[code]", aliases=("配对",), immediate=True)
async def pair(request: Request) -> Reply:
    """Let somebody in by their pairing code (owner)."""
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden
    services = request.services
    if not request.args:
        if request.chat.kind is ChatKind.GROUP:
            return Reply(card=notice_card("", request.words("pairing.not_here")))
        waiting = await services.approvals.waiting(by=request.person, chat=None)
        strangers = [
            (each.title, each.subject) for each in waiting if each.kind is ApprovalKind.PAIRING
        ]
        return Reply(card=pairings_card(strangers, request.words))
    pairing = await services.pairings.find(request.args, now=request.now)
    approval = await services.pairings.approval(pairing)
    await settle(request, approval, approve=True)
    return Reply(card=let_in_card(pairing, request.words))


@commands("language", usage="zh|en", aliases=("lang", "语言"), immediate=True)
async def language(request: Request) -> Reply:
    """Choose the language I write to you in."""
    chosen = _LANGUAGES.get(request.args.casefold())
    if chosen is None:
        raise Usage("language")
    await request.services.people.speak(request.person, chosen)
    words = words_for(chosen)
    return Reply(card=notice_card("", f"{words('talk.language')}\n\n{words('talk.language_note')}"))


def entered(request: Request) -> Reply:
    """A paired person opened the chat, or added the bot to a group: greeted once for ever."""
    return Reply(card=_welcome(request), key=f"welcome:{request.chat.id}")


class Door:
    """Where strangers knock: they get a pairing code and nothing else, and that not often.
    Answers to them wait behind those to people who are known. Owners are shown the first ten in
    an hour on cards of their own, and of the others only that there are more."""

    def __init__(self, services: Services, *, zone: ZoneInfo, fallback: Language) -> None:
        self._services = services
        self._zone = zone
        self._fallback = fallback
        self._answered: OrderedDict[str, datetime] = OrderedDict()
        self._announced: dict[str, datetime] = {}

    async def answer(self, arrival: Arrival) -> Reply:
        words = arrival.words
        if arrival.is_press:
            return refused(arrival, words("press.stranger"), "")
        group = arrival.row.incoming.place.kind is ChatKind.GROUP
        entry = isinstance(arrival.row.incoming, EntryIn)
        if (group and entry) or not self._turn_of(arrival):
            return Reply()
        if group:
            card = notice_card("", words("pairing.in_private"))
            return Reply(card=card, urgency=Urgency.NOTICE)
        return await self._code(arrival, entry=entry)

    async def _code(self, arrival: Arrival, *, entry: bool) -> Reply:
        sender = arrival.row.incoming.sender
        await self._remember_language(arrival)
        pairing, _ = await self._services.pairings.ask(
            arrival.row.incoming.place.channel,
            sender.external_id,
            sender.name,
            arrival.row.chat_id,
            now=arrival.now,
        )
        if pairing.state is PairingState.REFUSED:
            return Reply(card=refused_card(arrival.words), urgency=Urgency.NOTICE)
        await self._announce(pairing, arrival.now)
        card = pairing_card(pairing, arrival.words, zone=self._zone)
        key = f"pairing:{pairing.code}" if entry else ""
        return Reply(card=card, key=key, urgency=Urgency.NOTICE)

    async def _announce(self, pairing: Pairing, now: datetime) -> None:
        """Not only of a new request: a crash may have come between it and the owners' cards."""
        since = now - _ANNOUNCED_WITHIN
        self._announced = {code: at for code, at in self._announced.items() if at > since}
        if pairing.code not in self._announced and len(self._announced) >= ANNOUNCED:
            await announce_more(self._services, hour=f"{now:%Y%m%d%H}", fallback=self._fallback)
            return
        self._announced.setdefault(pairing.code, now)
        approval = await self._services.pairings.approval(pairing)
        await announce(self._services, approval, zone=self._zone, fallback=self._fallback)

    async def _remember_language(self, arrival: Arrival) -> None:
        """So that the stranger is told of the decision in a language they read."""
        chat = await self._services.people.chat(arrival.row.chat_id)
        if chat.settings.language is not arrival.words.language:
            settings = replace(chat.settings, language=arrival.words.language)
            await self._services.people.adjust(chat, settings)

    def _turn_of(self, arrival: Arrival) -> bool:
        last = self._answered.get(arrival.who)
        if last is not None and arrival.now - last < ANSWER_EVERY:
            return False
        self._answered[arrival.who] = arrival.now
        self._answered.move_to_end(arrival.who)
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)
        return True


def _welcome(request: Request) -> Card:
    group = request.chat.kind is ChatKind.GROUP
    choices = request.services.models.choices()
    offline = not choices or choices[0].backend == _OFFLINE
    return welcome_card(request.words, group=group, offline=offline)
