"""One run of a CLI: prompts until there is a result, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

from pydantic import BaseModel

from bot.engine.llm.acp.asking import Asking
from bot.engine.llm.acp.failures import Failed, failure, is_unfit
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.live import Ears, Live, live
from bot.engine.llm.acp.machine.homes import home_of
from bot.engine.llm.acp.memory import WishBook, turn
from bot.engine.llm.acp.said import contract, words
from bot.engine.llm.acp.said.contract import NoResult
from bot.engine.llm.acp.said.hiding import Hiding
from bot.engine.llm.acp.said.meter import Meter
from bot.engine.llm.acp.said.updates import Calls
from bot.engine.llm.acp.table import Agent, Resume
from bot.engine.llm.base import (
    BackendError,
    BadAnswer,
    CannotWork,
    LimitReached,
    Mode,
    Purpose,
    RunRequest,
    RunResult,
    Usage,
)
from bot.engine.llm.events import AgentEvent, Noted, TextDelta, ToolFinished, ToolStarted
from bot.engine.llm.loop.run import OneRun

_QUEUE = 256
_KEPT = 2_000_000
_DENIALS = 3
_CHARS_PER_TOKEN = 16
_LOOKS = {Purpose.PLAN, Purpose.INTENT}

_Item: TypeAlias = Mapping[str, Any] | AgentEvent | None


class AcpRun(OneRun):
    """See `base.Run`. What the CLI tells waits in a short queue: it is read no faster than it is
    dealt with, and what came before the turn's answer is told before it."""

    def __init__(self, agent: Agent, request: RunRequest, house: House) -> None:
        super().__init__()
        self._agent = agent
        self._request = request
        self._house = house
        self._mode = Mode.PLAN if request.purpose in _LOOKS else request.mode
        self._home = home_of(house.root, agent.name, request.persona)
        self._meter = Meter()
        self._calls = Calls(titled=agent.titled)
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE)
        self._asking = Asking(
            request, self._mode, self._calls, patience=house.patience, tell=self._tell
        )
        self._hiding = Hiding([each for server in request.servers for each in server.secrets])
        self._listening = False
        self._texts: list[str] = []
        self._written = 0
        self._gap = False
        self._used_tools = False
        self._deadline = 0.0

    @property
    def spent(self) -> Usage:
        return self._meter.spent

    async def _go(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._in_its_turn()) as events:
                async for event in events:
                    yield event
        except BackendError as error:
            error.usage = self.spent
            if is_unfit(error) and not self._used_tools:
                # It is known only now, and what it said so far has changed nothing.
                raise CannotWork(str(error), usage=error.usage, hint=error.hint) from None
            raise

    async def _in_its_turn(self) -> AsyncGenerator[AgentEvent, None]:
        """Live processes are large, so there are few: wait until there is room for one more."""
        slots = self._house.slots
        if slots.locked():
            yield Noted(key="backend.cli_queue", facts={"name": self._agent.name})
        ears = Ears(update=self._heard, wish=self._asking.wish)
        async with (
            slots,
            live(
                self._agent, self._request, self._house, self._home, mode=self._mode, ears=ears
            ) as alive,
            aclosing(self._work(alive)) as events,
        ):
            async for event in events:
                yield event

    async def _work(self, alive: Live) -> AsyncGenerator[AgentEvent, None]:
        request, session = self._request, alive.session
        resumes = self._agent.resume is not Resume.NONE
        if request.external_id and resumes and not session.gone_on:
            yield Noted(key="backend.cli_afresh", facts={"name": self._agent.name})
        self._meter.begin()
        self._deadline = _now() + self._house.seconds(request.limits)
        await asyncio.to_thread(contract.forget, request.workspace)
        book = WishBook(self._home.wishes, session.id)
        await asyncio.to_thread(book.take_over, request.external_id)
        decided = await self._asking.begin(book)
        text = words.first_prompt(request, self._mode, gone_on=session.gone_on, decided=decided)
        denials, asked_again = 0, False
        while True:
            async with aclosing(self._turn(alive, text)) as events:
                async for event in events:
                    yield event
            if self._asking.suspended:
                self._end(None)
                return
            value, why = await self._handed_in()
            if not why:
                self._end(value)
                return
            if self._asking.denied and denials < _DENIALS:
                denied, self._asking.denied = self._asking.denied, []
                denials += 1
                text = words.after_refusal(denied, form=request.result is not None)
            elif request.result is not None and not asked_again:
                asked_again = True
                text = contract.asked_again(why)
            else:
                raise self._no_result(why)
            self._check_tokens()

    async def _turn(self, alive: Live, text: str) -> AsyncGenerator[AgentEvent, None]:
        """One prompt and all that it brings. The texts kept are this turn's."""
        request = self._request
        if request.gate is not None:
            expected = self._meter.context + len(text) // 2
            await request.gate(request.model or self._agent.name, expected, self.spent)
        pictures = request.pictures if not self._meter.spent.requests else ()
        blocks = await words.blocks(text, pictures, able=alive.session.pictures)
        self._texts, self._gap, self._listening = [], False, True
        self._meter.asked()
        answer = alive.prompt(blocks)
        answer.add_done_callback(lambda _: self._wake())
        try:
            async with aclosing(self._told(answer)) as events:
                async for event in events:
                    yield event
        finally:
            self._deafen()
        if self._asking.suspended:
            await alive.settled()
        else:
            self._check_ending(await answer)

    async def _told(
        self, answer: asyncio.Future[Mapping[str, Any]]
    ) -> AsyncGenerator[AgentEvent, None]:
        """All that comes before the turn's answer, or before it is known that it has to wait."""
        while not (answer.done() and self._queue.empty()):
            for event in self._events_of(await self._next(answer)):
                await self._note(event)
                yield event
            if self._asking.broken is not None:
                raise self._asking.broken
            if self._asking.suspended and not self._asking.under_way:
                return

    def _deafen(self) -> None:
        """What comes from now on is of no interest, and nobody waits to tell it."""
        self._listening = False
        while not self._queue.empty():
            self._queue.get_nowait()

    async def _next(self, answer: asyncio.Future[Mapping[str, Any]]) -> _Item:
        """What is told next; None for a change elsewhere, or once the turn is over and all is
        told. Time does not run while people are asked."""
        while True:
            if answer.done() and self._queue.empty():
                return None
            asked = self._asking.under_way > 0
            began = _now()
            left = None if asked else min(self._deadline - began, self._house.idle)
            try:
                async with asyncio.timeout(left):
                    item = await self._queue.get()
            except TimeoutError:
                raise self._too_long() from None
            if asked:
                self._deadline += _now() - began
            return item

    async def _heard(self, update: Mapping[str, Any]) -> None:
        """From the wire. What it tells outside a turn is the past, replayed, except its money."""
        if update.get("sessionUpdate") == "usage_update":
            self._meter.update(update)
        elif self._listening:
            await self._queue.put(update)

    async def _tell(self, event: AgentEvent | None) -> None:
        if self._listening:
            await self._queue.put(event)

    def _wake(self) -> None:
        if self._queue.empty():
            self._queue.put_nowait(None)

    def _events_of(self, item: _Item) -> list[AgentEvent]:
        if item is None:
            return []
        if not isinstance(item, Mapping):
            return [item]
        return [self._spaced(event) for event in self._calls.events(item)]

    def _spaced(self, event: AgentEvent) -> AgentEvent:
        """What was said before a tool call and after it are paragraphs of one answer."""
        if isinstance(event, TextDelta) and self._gap and self._texts:
            self._gap = False
            return TextDelta(text=f"\n\n{event.text}")
        return event

    async def _note(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._gap = False
                self._written += len(text)
                self._texts.append(text)
                most = min(_KEPT, self._request.limits.output_tokens * _CHARS_PER_TOKEN)
                if self._written > most:
                    raise failure(Failed.FLOOD, self._agent.name, "too long an answer")
            case ToolStarted():
                self._gap = self._used_tools = True
            case ToolFinished():
                await self._asking.ended(event)
            case _:
                pass

    @property
    def _text(self) -> str:
        """A secret may have come in pieces."""
        return self._hiding.text("".join(self._texts))

    async def _handed_in(self) -> tuple[BaseModel | None, str]:
        """The result, or why there is none."""
        form, text = self._request.result, self._text
        if form is None:
            empty = not text.strip() and (self._asking.denied or not self._used_tools)
            return None, "the answer was empty" if empty else ""
        try:
            return await asyncio.to_thread(
                contract.handed_in, text, self._request.workspace, form
            ), ""
        except NoResult as why:
            return None, str(why)

    def _check_ending(self, answer: Mapping[str, Any]) -> None:
        self._meter.answered(answer.get("usage"))
        reason = answer.get("stopReason")
        if reason == "refusal":
            raise BadAnswer(f"{self._agent.name} refused to answer")
        if reason == "cancelled" and not self._asking.denied and self._request.result is None:
            raise BadAnswer(f"{self._agent.name} gave up its turn")

    def _check_tokens(self) -> None:
        if self.spent.output_tokens > self._request.limits.output_tokens:
            raise LimitReached(f"{self._agent.name} wrote more than one run may")

    def _too_long(self) -> Exception:
        if _now() >= self._deadline:
            return LimitReached(f"{self._agent.name} took longer than one run may")
        return failure(Failed.SILENT, self._agent.name)

    def _no_result(self, why: str) -> Exception:
        if self._request.result is None:
            return BadAnswer(f"{self._agent.name}: {why}")
        hint = Failed.NO_RESULT.hint
        return BadAnswer(f"{self._agent.name} handed in no result: {why}", hint=hint)

    def _end(self, value: BaseModel | None) -> None:
        text = self._text
        shown = text if self._request.result is None else contract.without_result(text)
        history = turn(
            prompt=self._request.prompt, answer=text, system=words.system_hash(self._request)
        )
        self._result = RunResult(
            text=shown,
            value=value,
            model=self._request.model or self._agent.name,
            usage=self.spent,
            new_history=(history,),
            context=self._meter.context,
            suspended=tuple(self._asking.suspended),
        )


async def version_of(agent: Agent, request: RunRequest, house: House) -> str:
    """What it says of itself once a session is open. Raises BackendError."""
    home = home_of(house.root, agent.name, request.persona)
    asking = Asking(request, Mode.PLAN, Calls(), patience=0, tell=_unheard)
    ears = Ears(update=_unheard, wish=asking.wish)
    async with live(agent, request, house, home, mode=Mode.PLAN, ears=ears) as alive:
        return alive.session.version


async def _unheard(_told: object) -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
