"""Routes stored events to handlers and returns their replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards.catalog import TextCatalog, catalog_for
from cards.courier import CardRef
from cards.formats import is_blank
from handlers import approvals, chat, memory, people, presses, schedules, skills, tasks
from handlers.command_table import COMMANDS, refuse_misspelt
from handlers.errors import UserError
from handlers.language import guess_language, language_from_hint
from handlers.message_queue import WaitingMessages
from handlers.middleware import (
    InboundEvent,
    NextHandler,
    chain_middlewares,
    error_boundary,
    identify_sender,
)
from handlers.parsing import CommandMessage, MessageDirectives, parse_approval_reply, parse_message
from handlers.ports import Clock, HandlerServices, InterruptedMessage
from handlers.request import Reply, Request, Silence
from storage.records.messages import (
    InboxRow,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
)
from storage.records.people import Channel, ChatId, ChatKind, Language, Person

_LATE = timedelta(hours=1)
_BACKLOG_AGE = timedelta(seconds=30)
"""A message that arrives this long after it was sent was not meant to interrupt anything."""


class Router:
    """Handles the events stored by transports. `language` is the language of all cards, None for
    each person's own; `fallback` applies to people without a known one. `new_incident` creates ids
    for logged failures."""

    def __init__(
        self,
        services: HandlerServices,
        *,
        clock: Clock,
        zone: ZoneInfo,
        new_incident: Callable[[], str],
        language: Language | None = None,
        fallback: Language = Language.ENGLISH,
    ) -> None:
        self._services = services
        self._clock = clock
        self._zone = zone
        self._fixed_language = language
        self._fallback = fallback
        self._pairing_gate = people.PairingGate(services, zone=zone, fallback=language or fallback)
        self._answering_for: dict[ChatId, str] = {}
        self._waiting_messages = WaitingMessages()
        boundary = error_boundary(new_incident)
        # Twice: the outer one answers if identification fails; the inner one knows the person's
        # language.
        middlewares = (boundary, identify_sender(services.people, fallback, language), boundary)
        self._run_middlewares: NextHandler = chain_middlewares(middlewares, self._route)

    def is_immediate(self, incoming: IncomingMessage) -> bool:
        """True for commands that must not wait for the chat's turn."""
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and meaning.command.immediate

    def is_command(self, incoming: IncomingMessage) -> bool:
        """True for a command of ours that is not addressed to another bot."""
        first = incoming.text.split(maxsplit=1)[:1]
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and "@" not in "".join(first)

    def is_urgent(self, incoming: IncomingMessage) -> bool:
        """True for commands that end or pause something, which no pace slows down."""
        meaning = parse_message(incoming.text, COMMANDS, _no_model)
        return isinstance(meaning, CommandMessage) and meaning.command.name in {"stop", "pause"}

    def on_message_waiting(self, row: InboxRow, mode: str) -> None:
        """Interrupt the chat's current answer or queue the message, as the chat has chosen.

        Approval replies, other people's messages in a group and command-line requests do neither;
        messages that waited elsewhere for long do not interrupt.
        """
        incoming = row.incoming
        if not isinstance(incoming, IncomingMessage) or incoming.quiet:
            return
        if self.is_immediate(incoming) or parse_approval_reply(incoming.text):
            return
        is_asker = self._answering_for.get(row.chat_id) == incoming.sender.external_id
        if is_asker or incoming.place.kind is ChatKind.PRIVATE:
            waits = self._services.conversations.on_new_message(
                row.chat_id, mode, may_interrupt=self._clock() - incoming.sent_at < _BACKLOG_AGE
            )
            if waits or self._waiting_messages.count_waiting(row.chat_id):
                self._waiting_messages.add(row)

    def on_message_withdrawn(self, row: InboxRow) -> None:
        """The others move up."""
        self._waiting_messages.remove(row)

    async def waiting_notice(self, row: InboxRow) -> str:
        """Tell a waiting message's position."""
        incoming = row.incoming
        if not self._waiting_messages.count_waiting(row.chat_id) or not isinstance(
            incoming, IncomingMessage
        ):
            return ""
        if not await self.is_known_sender(incoming):
            return ""
        place = self._waiting_messages.get_position(row)
        return self._guess_catalog(incoming)("queue.waits", n=place) if place else ""

    async def is_known_sender(self, incoming: IncomingMessage) -> bool:
        """True if the sender has access."""
        sender = incoming.sender.external_id
        return (
            await self._services.people.find_by_account(incoming.place.channel, sender) is not None
        )

    async def find_task(self, row: InboxRow) -> str:
        """The id of the unfinished task that this message has created; empty if there is none."""
        task = await self._services.tasks.find_by_source(_origin_of(row))
        return "" if task is None or task.status.is_final else task.id

    async def handle(
        self,
        row: InboxRow,
        files: tuple[str, ...],
        interrupted: Sequence[InboxRow] = (),
        missing: Sequence[str] = (),
    ) -> Reply:
        """Handle one event. Failures become replies too."""
        incoming = row.incoming
        if incoming.sender.is_bot and not incoming.sender.anonymous:
            # Two bots that answer each other would never stop.
            return Reply(silence=Silence.BOT)
        if self._is_queued(incoming):
            self._waiting_messages.start_turn(row)
        words = self._guess_catalog(incoming)
        arrival = InboundEvent(
            row=row,
            files=files,
            now=self._clock(),
            words=words,
            interrupted=tuple(map(_interrupted_message, interrupted)),
            missing=tuple(missing),
        )
        return await self._run_middlewares(arrival)

    def _is_queued(self, incoming: Incoming) -> bool:
        if not isinstance(incoming, IncomingMessage) or incoming.quiet:
            return False
        return not self.is_immediate(incoming)

    def _guess_catalog(self, incoming: Incoming) -> TextCatalog:
        text = incoming.text if isinstance(incoming, IncomingMessage) else ""
        hint = guess_language(text) or language_from_hint(incoming.sender.language)
        return catalog_for(self._fixed_language or hint or self._fallback)

    async def _route(self, arrival: InboundEvent) -> Reply:
        if arrival.row.incoming.sender.anonymous:
            raise UserError("anonymous")
        if arrival.person is None:
            return await self._pairing_gate.answer(arrival)
        request = await self._build_request(arrival, arrival.person)
        if not arrival.is_press:
            await self._pairing_gate.catch_up(request)
        incoming = arrival.row.incoming
        match incoming:
            case IncomingChatOpen():
                return people.welcome_reply(request)
            case IncomingPress(token=token, value=value, form=form):
                return await presses.handle_press(request, token, arrival.row.id, form, value=value)
            case IncomingMessage(told=note) if note:
                # A note from Shiftboss to the chat's worker: it is answered without proposals.
                request = replace(request, args=note)
                return await self._answer_message(request, incoming.sender.external_id, settle=True)
            case IncomingMessage():
                return await self._handle_message(request, incoming, arrival)

    async def _handle_message(
        self, request: Request, incoming: IncomingMessage, arrival: InboundEvent
    ) -> Reply:
        mentions = incoming.place.channel is not Channel.WEB
        meaning = parse_message(
            incoming.text, COMMANDS, self._services.models.resolve_choice, mentions=mentions
        )
        if isinstance(meaning, CommandMessage):
            command_request = _with_directives(request, meaning.args, meaning.directives)
            return await meaning.command.handler(command_request)
        message_request = _with_directives(request, meaning.text, meaning.directives)
        async with approvals.requesting_budget(message_request):
            if by_name := await skills.use_by_slash(message_request, tasks.run_task):
                return by_name
        refuse_misspelt(meaning.text)
        verdict = parse_approval_reply(incoming.text)
        if verdict and (reply := await approvals.decide_by_message(message_request, verdict)):
            return reply
        if incoming.reply_to:
            form = await self._services.cards.get_form(request.chat.id, incoming.reply_to)
            if form is not None:
                return await presses.submit_form_reply(message_request, form, arrival.row.id)
        if is_blank(message_request.args) and not message_request.files:
            return Reply(card=chat.text_card(request.words("talk.listening")))
        by_words = await _answer_by_words(message_request, incoming)
        return by_words or await self._answer_message(message_request, incoming.sender.external_id)

    async def _answer_message(
        self, request: Request, talker: str, *, settle: bool = False
    ) -> Reply:
        self._answering_for[request.chat.id] = talker
        try:
            async with approvals.requesting_budget(request):
                return await chat.answer_message(
                    request, no_proposal=settle, propose_timed=schedules.propose_timed_task
                )
        finally:
            self._answering_for.pop(request.chat.id, None)

    async def _build_request(self, arrival: InboundEvent, person: Person) -> Request:
        row = arrival.row
        message_id = row.incoming.message_id if isinstance(row.incoming, IncomingMessage) else ""
        return Request(
            person=person,
            chat=await self._services.people.get_chat(row.chat_id),
            words=arrival.words,
            args="",
            source=row.source,
            origin=_origin_of(row),
            now=arrival.now,
            zone=self._zone,
            services=self._services,
            answer_ref=CardRef(key=f"reply:{row.id}", revision=0),
            files=arrival.files,
            message_id=message_id,
            interrupted=arrival.interrupted,
            missing_files=arrival.missing,
            heard_at=_heard_at(row),
            web_session=row.incoming.sender.web_session,
        )


def _heard_at(row: InboxRow) -> datetime:
    said = row.incoming
    late = isinstance(said, IncomingMessage) and row.received_at - said.sent_at > _LATE
    return said.sent_at if late and isinstance(said, IncomingMessage) else row.received_at


def _origin_of(row: InboxRow) -> str:
    """Identifies a message across its edits."""
    message_id = row.incoming.message_id if isinstance(row.incoming, IncomingMessage) else ""
    return f"message:{row.chat_id}:{message_id}" if message_id else row.source


async def _answer_by_words(request: Request, incoming: IncomingMessage) -> Reply | None:
    """Handle what needs no model: the answer to an open question, and requests to the memory or
    for something later."""
    if not (incoming.edited or request.files):
        answered = await approvals.answer_by_message(request)
        if answered is not None:
            return answered
    return await memory.answer_memory_request(request) or await schedules.propose_by_words(request)


def _interrupted_message(row: InboxRow) -> InterruptedMessage:
    said = row.incoming
    text = said.text if isinstance(said, IncomingMessage) else ""
    return InterruptedMessage(source=row.source, text=text)


def _with_directives(request: Request, args: str, directives: MessageDirectives) -> Request:
    return replace(request, args=args, model=directives.model, backend=directives.backend)


def _no_model(name: str) -> None:
    """Directives are irrelevant if only the command word is needed."""
