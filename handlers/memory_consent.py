"""Handles what a person does not want remembered: wishes in messages and in tasks, memory off and
on, and /incognito."""

from __future__ import annotations

from cards.model import notice_card
from handlers.errors import UsageError
from handlers.request import CommandRegistry, Reply, Request, check_may_choose
from storage.records.memory_consent import ConsentRequest
from storage.records.messages import DeliveryUrgency, IncomingMessage
from storage.records.people import ChatMemory

commands = CommandRegistry("memory")

_ON_WORDS, _OFF_WORDS = {"on", "开", "打开", "开启"}, {"off", "关", "关闭", "结束"}


async def heed_consent(
    request: Request, said: IncomingMessage, *, names_topic: bool
) -> Reply | None:
    """Withhold what the message asks not to remember, before anything else is done with it; a
    message that may ask it counts too. Returns None if the message says more than that, or nothing
    of the kind. Forwarded words ask nothing: somebody else wrote them. `names_topic` is set if the
    message asks to forget what is known about a topic."""
    memory, chat = request.services.memory, request.chat
    wish = None if said.forwarded else memory.find_consent_request(request.args)
    if wish is None or not wish.is_sure:
        is_doubtful = wish is not None and not names_topic
        if is_doubtful or chat.settings.memory_off:
            await memory.withhold(chat, ConsentRequest.THIS, source=request.source)
        return None
    if wish.wanted is ConsentRequest.CHAT:
        # Whoever decides about the chat, these words are their own.
        await memory.withhold(chat, ConsentRequest.THIS, source=request.source)
        if not chat.settings.memory_off:
            await switch_memory(request, ChatMemory.OFF)
    done = await memory.withhold(chat, wish.wanted, source=request.source, reply_to=said.reply_to)
    if wish.says_more:
        return None
    text = request.words(f"memory.withheld_{wish.wanted}" if done else "memory.withheld_none")
    return Reply(card=notice_card("", text))


async def withhold_where_off(request: Request) -> None:
    """Withhold an event of a chat whose memory is off: its commands and presses are deleted with
    the conversation too."""
    if request.chat.settings.memory_off:
        await request.services.memory.withhold(
            request.chat, ConsentRequest.THIS, source=request.source
        )


async def heed_consent_in_task(request: Request) -> None:
    """Withhold the words of a task that ask not to be remembered, and tell the person what becomes
    of them. If they only may ask it, explain how to ask."""
    memory = request.services.memory
    wish = memory.find_consent_request(request.args)
    if wish is None:
        return
    # To withhold a task erases it, which no guess may do.
    if wish.is_sure:
        await memory.withhold(request.chat, ConsentRequest.THIS, source=request.source)
    text = "memory.withheld_task" if wish.is_sure else "memory.task_in_doubt"
    await request.services.courier.send(
        request.chat.id,
        notice_card("", request.words(text)),
        key=f"{request.answer_ref.key}:withheld",
        urgency=DeliveryUrgency.ANSWER,
    )


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
