"""From what arrived to what is said in reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from zoneinfo import ZoneInfo

from cards.courier import CardRef
from cards.rich_text import is_blank
from cards.words import Words, words_for
from handlers import approvals, chat, people, presses
from handlers.language import guessed, hinted
from handlers.memory import in_words
from handlers.middleware import Arrival, Next, RateLimit, error_boundary, recognise, wrapped
from handlers.parsing import Directives, Ordered, parse, verdict_of
from handlers.ports import Clock, Services
from handlers.presses import Press
from handlers.request import Reply, Request
from handlers.table import COMMANDS
from handlers.work import create
from handlers.workers import skills
from handlers.workers.waiting import Line
from storage.records.messages import EntryIn, InboxRow, Incoming, MessageIn, PressIn
from storage.records.people import Channel, ChatId, ChatKind, Language, Person


class Router:
    """What transports hand stored arrivals to. `language` is the one all cards are written in,
    None for each person's own; `fallback` that of people about whom nothing is known.
    `new_incident` makes the ids under which failures are logged."""

    def __init__(
        self,
        services: Services,
        *,
        clock: Clock,
        zone: ZoneInfo,
        new_incident: Callable[[], str],
        language: Language | None = None,
        fallback: Language = Language.ENGLISH,
        limit: RateLimit | None = None,
    ) -> None:
        self._services = services
        self._clock = clock
        self._zone = zone
        self._fixed = language
        self._fallback = fallback
        self._door = people.Door(services, zone=zone, fallback=language or fallback)
        self._talking: dict[ChatId, str] = {}
        self._line = Line()
        boundary = error_boundary(new_incident)
        # Twice: the outer one answers when recognising itself fails, the inner one knows the
        # person's language.
        middlewares = (
            boundary,
            recognise(services.people, fallback, language),
            boundary,
            limit or RateLimit(urgent=_brakes),
        )
        self._answer: Next = wrapped(middlewares, self._route)

    def is_immediate(self, incoming: MessageIn) -> bool:
        """True for commands that must not wait until the chat's turn comes."""
        meaning = parse(incoming.text, COMMANDS, _nothing_known)
        return isinstance(meaning, Ordered) and meaning.command.immediate

    def arriving(self, row: InboxRow) -> None:
        """A message waits for its turn: cut the answer being made in its chat short, or line up
        behind it, as the chat wants; unless it is only a decision, or in a group somebody
        else's, or typed in a shell."""
        incoming = row.incoming
        if not isinstance(incoming, MessageIn) or incoming.quiet:
            return
        if self.is_immediate(incoming) or verdict_of(incoming.text):
            return
        asked = self._talking.get(row.chat_id) == incoming.sender.external_id
        if asked or incoming.place.kind is ChatKind.PRIVATE:
            waits = self._services.talk.arrived(row.chat_id)
            if waits or self._line.waiting(row.chat_id):
                self._line.join(row)

    async def waiting(self, row: InboxRow) -> Reply | None:
        """Show that a message waits for the answer before it, if it does. The reply to one that
        is sent away."""
        incoming = row.incoming
        if not self._line.waiting(row.chat_id) or not isinstance(incoming, MessageIn):
            return None
        if not await self.knows(incoming):
            return None
        return await self._line.show(row, self._services.courier, self._words(incoming))

    async def knows(self, incoming: MessageIn) -> bool:
        """True if whoever wrote this is paired."""
        sender = incoming.sender.external_id
        return await self._services.people.who(incoming.place.channel, sender) is not None

    async def handle(self, row: InboxRow, files: tuple[str, ...]) -> Reply:
        """The reply to one arrival. Whatever goes wrong is a reply as well."""
        incoming = row.incoming
        if incoming.sender.is_bot:
            # Two bots that answer each other never end.
            return Reply()
        if self._has_turn(incoming) and not self._line.begins(row):
            return Reply()
        words = self._words(incoming)
        arrival = Arrival(row=row, files=files, now=self._clock(), words=words)
        reply = await self._answer(arrival)
        await self._line.close(row, reply, self._services.courier, words)
        return reply

    def _has_turn(self, incoming: Incoming) -> bool:
        if not isinstance(incoming, MessageIn) or incoming.quiet:
            return False
        return not self.is_immediate(incoming)

    def _words(self, incoming: Incoming) -> Words:
        text = incoming.text if isinstance(incoming, MessageIn) else ""
        hint = guessed(text) or hinted(incoming.sender.language)
        return words_for(self._fixed or hint or self._fallback)

    async def _route(self, arrival: Arrival) -> Reply:
        if arrival.person is None:
            return await self._door.answer(arrival)
        request = await self._request(arrival, arrival.person)
        incoming = arrival.row.incoming
        match incoming:
            case EntryIn():
                return people.entered(request)
            case PressIn(token=token, value=value, form=form):
                inbox_id = arrival.row.id
                return await presses.press(
                    request, Press(token=token, inbox_id=inbox_id, value=value, form=form)
                )
            case MessageIn(told=told) if told:
                # The chat's worker answers what the house has to tell it, and proposes nothing.
                request = replace(request, args=told)
                return await self._talk(request, incoming.sender.external_id, settle=True)
            case MessageIn():
                return await self._message(request, incoming, arrival)

    async def _message(self, request: Request, incoming: MessageIn, arrival: Arrival) -> Reply:
        mentions = incoming.place.channel is not Channel.WEB
        meaning = parse(incoming.text, COMMANDS, self._services.models.pick, mentions=mentions)
        if isinstance(meaning, Ordered):
            ordered = _with(request, meaning.args, meaning.directives)
            return await meaning.command.handler(ordered)
        said = _with(request, meaning.text, meaning.directives)
        async with approvals.asking_for_money(said):
            if by_name := await skills.by_slash(said, create.run):
                return by_name
        verdict = verdict_of(incoming.text)
        if verdict and (decided := await approvals.by_word(said, verdict)):
            return decided
        if incoming.reply_to:
            form = await self._services.cards.form_of(request.chat.id, incoming.reply_to)
            if form is not None:
                return await presses.answer_form(said, form, arrival.row.id)
        if is_blank(said.args) and not said.files:
            return Reply(card=chat.said_card(request.words("talk.listening")))
        by_words = await in_words.answer(said)
        return by_words or await self._talk(said, incoming.sender.external_id)

    async def _talk(self, request: Request, talker: str, *, settle: bool = False) -> Reply:
        self._talking[request.chat.id] = talker
        try:
            async with approvals.asking_for_money(request):
                return await chat.talk(request, settle=settle)
        finally:
            self._talking.pop(request.chat.id, None)

    async def _request(self, arrival: Arrival, person: Person) -> Request:
        row = arrival.row
        message_id = row.incoming.message_id if isinstance(row.incoming, MessageIn) else ""
        source = f"inbox:{row.id}"
        return Request(
            person=person,
            chat=await self._services.people.chat(row.chat_id),
            words=arrival.words,
            args="",
            source=source,
            origin=f"message:{row.chat_id}:{message_id}" if message_id else source,
            now=arrival.now,
            zone=self._zone,
            services=self._services,
            answer=CardRef(key=f"reply:{row.id}", revision=0),
            files=arrival.files,
            message_id=message_id,
        )


def _with(request: Request, args: str, directives: Directives) -> Request:
    return replace(request, args=args, model=directives.model, backend=directives.backend)


def _brakes(arrival: Arrival) -> bool:
    incoming = arrival.row.incoming
    if isinstance(incoming, MessageIn) and incoming.told:
        return True
    meaning = parse(arrival.text, COMMANDS, _nothing_known)
    return isinstance(meaning, Ordered) and meaning.command.name in {"stop", "pause"}


def _nothing_known(name: str) -> None:
    """Directives do not matter where only the command word is asked for."""
