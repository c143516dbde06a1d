"""Handles what a person does not want remembered: wishes in messages and in tasks, memory off and
on, and /incognito."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cards.memory_actions import DecideWithheldMessage
from cards.model import Block, ButtonsBlock, Card, CardButton, NoteBlock, TextBlock, notice_card
from handlers.errors import ActionForbidden, UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request, check_may_choose
from storage.records.memory_consent import ConsentRequest
from storage.records.messages import DeliveryUrgency, IncomingMessage
from storage.records.people import ChatMemory

commands = CommandRegistry("memory")

_ON_WORDS, _OFF_WORDS = {"on", "开", "打开", "开启"}, {"off", "关", "关闭", "结束"}


_QUESTION = "consent"
_GIVES_WORDS = frozenset(
    (
        *("msg", "inject", "replan", "rerun", "log", "plan", "subtask", "done", "phase", "block"),
        *("interrupt", "update", "schedule", "remind", "workflow", "approve", "reject"),
        *("trigger", "skill"),
    )
)
_KEEPS_WORDS = frozenset(("schedule", "remind", "trigger", "skill"))
"""Those of them that make something which stays when the conversation has ended."""
_MOST_NAMES = 2
_INPUT = re.compile(r"(?:^|(?<=\s))\w+=[\"“']?|[\"”]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeededConsent:
    """The outcome of a message's wish. `reply`: it needs no other answer. `in_doubt`: its
    author is to be asked; `with_before` if the message before it is withheld too."""

    reply: Reply | None = None
    in_doubt: bool = False
    with_before: bool = False


async def heed_permission(request: Request, said: IncomingMessage) -> tuple[Request, Reply | None]:
    """Turn memory on again where the message allows it, and take back an announcement. Where
    nothing is off, such words say nothing to us. The reply is set if it says nothing else."""
    memory = request.services.memory
    more = None if said.forwarded else memory.find_permission(request.args)
    if more is None:
        return request, None
    taken_back = await memory.expect_no_more(request.chat, source=request.source)
    if request.chat.settings.memory_off:
        try:
            reply = await switch_memory(request, ChatMemory.ON)
        except UserError:
            await withhold_where_off(request)
            raise
        chat = await request.services.people.get_chat(request.chat.id)
        request = replace(request, chat=chat)
    elif taken_back:
        reply = Reply(card=notice_card("", request.words("memory.next_allowed")))
    else:
        return request, None
    if not more:
        return request, reply
    assert reply.card is not None
    await _send_notice(request, reply.card, "allowed")
    return request, None


async def heed_consent(
    request: Request, said: IncomingMessage, *, names_topic: bool
) -> HeededConsent:
    """Withhold what the message asks not to remember, before anything else is done with it; a
    message that may ask it counts too. Forwarded words ask nothing: somebody else wrote them.
    `names_topic` is set if the message asks to forget what is known about a topic."""
    memory, chat = request.services.memory, request.chat
    wish = None if said.forwarded else memory.find_consent_request(request.args)
    await memory.withhold_expected(chat, source=request.source)
    if wish is None or not wish.is_sure:
        is_doubtful = wish is not None and not names_topic
        if is_doubtful or chat.settings.memory_off:
            await memory.withhold(chat, ConsentRequest.THIS, source=request.source)
        if wish is None or not is_doubtful or chat.settings.memory_off:
            return HeededConsent()
        with_before = wish.wanted is ConsentRequest.BEFORE and await memory.withhold(
            chat, wish.wanted, source=request.source, reply_to=said.reply_to, is_sure=False
        )
        return HeededConsent(in_doubt=True, with_before=with_before)
    if wish.wanted is ConsentRequest.CHAT or wish.says_more:
        # Whoever decides about the chat, and whatever was said before: these words go.
        await memory.withhold(chat, ConsentRequest.THIS, source=request.source)
    if wish.wanted is ConsentRequest.CHAT and not chat.settings.memory_off:
        await switch_memory(request, ChatMemory.OFF)
    done = await memory.withhold(chat, wish.wanted, source=request.source, reply_to=said.reply_to)
    if wish.says_more:
        return HeededConsent()
    text = request.words(f"memory.withheld_{wish.wanted}" if done else "memory.withheld_none")
    return HeededConsent(reply=Reply(card=notice_card("", text)))


async def ask_if_in_doubt(request: Request, heeded: HeededConsent, reply: Reply) -> Reply:
    """The reply with the question whether the message may be remembered below it."""
    if not heeded.in_doubt:
        return reply
    before = "_before" if heeded.with_before else ""
    question = request.words(f"memory.withheld_in_doubt{before}")
    blocks = _question_blocks(request, question, with_before=heeded.with_before)
    if reply.card is not None:
        return replace(reply, card=replace(reply.card, blocks=(*reply.card.blocks, *blocks)))
    await _send_question(request, replace(notice_card("", question), blocks=blocks))
    return reply


def _question_blocks(
    request: Request, question: str, *, with_before: bool = False
) -> tuple[Block, ...]:
    buttons = (
        CardButton(
            request.words("memory.button.keep" if keep else "memory.button.do_not_keep"),
            DecideWithheldMessage(
                message=int(request.source.removeprefix("inbox:")),
                person=request.person.id,
                keep=keep,
                with_before=with_before,
            ),
        )
        for keep in (True, False)
    )
    return TextBlock(question, id=_QUESTION), ButtonsBlock(tuple(buttons))


async def _send_question(request: Request, card: Card) -> None:
    await _send_notice(request, card, "withheld")


async def _send_notice(request: Request, card: Card, name: str) -> None:
    await request.services.courier.send(
        request.chat.id,
        card,
        key=f"{request.answer_ref.key}:{name}",
        urgency=DeliveryUrgency.ANSWER,
    )


def check_may_decide(request: Request, action: DecideWithheldMessage) -> None:
    if request.person.id != action.person:
        raise ActionForbidden


async def decide_withheld(request: Request, action: DecideWithheldMessage, card_key: str) -> Reply:
    """Keep the message after all, or not; the question on the card becomes the answer."""
    memory, source = request.services.memory, f"inbox:{action.message}"
    if action.keep:
        done = await memory.keep_after_all(
            request.person, request.chat, source=source, with_before=action.with_before
        )
        text = request.words("memory.kept_after_all" if done else "memory.gone_already")
    else:
        await memory.withhold(request.chat, ConsentRequest.THIS, source=source)
        text = request.words("memory.withheld_this")
    card = await request.services.cards.get_card(card_key)
    blocks = () if card is None else tuple(each for each in card.blocks if not _asks(each))
    answered = replace(card or notice_card("", text), blocks=(*blocks, NoteBlock(text)))
    return Reply(card=answered, key=card_key, in_place=True)


def _asks(block: Block) -> bool:
    if isinstance(block, ButtonsBlock):
        return any(isinstance(each.action, DecideWithheldMessage) for each in block.items)
    return isinstance(block, TextBlock) and block.id == _QUESTION


async def withhold_where_off(request: Request) -> None:
    """Withhold an event of a chat whose memory is off: its commands and presses are deleted with
    the conversation too."""
    if request.chat.settings.memory_off:
        await request.services.memory.withhold(
            request.chat, ConsentRequest.THIS, source=request.source
        )


async def heed_consent_in_command(request: Request, name: str) -> None:
    """Withhold a command where memory is off. Elsewhere heed a wish in the words of one that gives
    work its words, and tell the person what becomes of them."""
    await withhold_where_off(request)
    if name == "run":
        await _heed_in_work(request, (request.args,), "task")
    elif name in _GIVES_WORDS:
        # Ids and names come first: "T1 don't remember this: …", "run NAME key=…".
        words = request.args.split(maxsplit=_MOST_NAMES)
        tails = [request.args.split(maxsplit=n)[-1] for n in range(1, len(words))]
        inputs = _INPUT.sub("\n", request.args)
        kind = "kept" if name in _KEEPS_WORDS else "work"
        await _heed_in_work(request, (request.args, *tails, inputs), kind)


async def heed_consent_in_form(request: Request, form: Mapping[str, str], card_key: str) -> None:
    """Heed a wish in a form that was sent in. A task that it starts belongs to the message that the
    form's card answered."""
    kind, _, number = card_key.partition(":")
    of_card = f"inbox:{number}" if kind == "reply" and number.isdecimal() else ""
    await _heed_in_work(request, tuple(form.values()), "work", also=of_card)


async def _heed_in_work(
    request: Request, texts: Sequence[str], name: str, *, also: str = ""
) -> None:
    """If the words only may ask not to be remembered, ask the person."""
    memory = request.services.memory
    wishes = [wish for each in texts if (wish := memory.find_consent_request(each))]
    # To withhold what has been worked on erases it, which no guess may do.
    if any(each.is_sure for each in wishes):
        for source in filter(None, (request.source, also)):
            await memory.withhold(request.chat, ConsentRequest.THIS, source=source)
        await _send_question(request, notice_card("", request.words(f"memory.withheld_{name}")))
    elif wishes and name == "task":
        question = request.words("memory.task_in_doubt")
        blocks = _question_blocks(request, question)
        await _send_question(request, replace(notice_card("", question), blocks=blocks))


async def switch_memory(request: Request, memory: ChatMemory) -> Reply:
    """Set whether the chat has memory; in a group only owners may. An incognito chat begins and
    ends with a conversation of its own."""
    await check_may_choose(request)
    now, conversations = request.chat.settings.memory, request.services.conversations
    if ChatMemory.INCOGNITO in {now, memory} and now is not memory:
        conversations.interrupt(request.chat.id)
        await conversations.reset(request.chat.id)
    await request.services.people.update_chat_settings(
        request.chat,
        memory_off=memory is not ChatMemory.ON,
        incognito=memory is ChatMemory.INCOGNITO,
    )
    key = "incognito_ended" if now is ChatMemory.INCOGNITO is not memory else f"turned_{memory}"
    return Reply(
        card=notice_card("", request.words(f"memory.{key}")), data={"memory": memory.value}
    )


@commands("incognito", aliases=("无痕", "隐身"), immediate=True)
async def switch_incognito(request: Request) -> Reply:
    word = request.args.strip().casefold()
    off = word in _OFF_WORDS
    if word and not off and word not in _ON_WORDS:
        raise UsageError("incognito")
    return await switch_memory(request, ChatMemory.ON if off else ChatMemory.INCOGNITO)
