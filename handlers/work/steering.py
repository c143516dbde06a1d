"""Steering a task on its way: a word to its worker, a step put in, another plan, a way in."""

from __future__ import annotations

from cards.model import Card
from cards.views.work.task_steering import message_form, sent_card
from handlers.errors import Usage
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.moved import moved
from handlers.work.naming import found_task, id_and_rest, steps_in
from storage.records.messages import Urgency

commands = Commands("steering")


@commands("msg", usage="id text", aliases=("message", "留言", "发消息"), immediate=True)
async def message(request: Request) -> Reply:
    """Tell a task's worker something; it reaches the next step."""
    task_id, text = id_and_rest(request, "msg")
    task = await found_task(request, task_id)
    if not text:
        return Reply(card=message_form(task, request.words))
    return await moved(request, task, await tell_task(request, task.id, text))


@commands("inject", usage="id step → step", aliases=("插入", "加一步"), immediate=True)
async def inject(request: Request) -> Reply:
    """Put steps in next: before those not begun yet."""
    task_id, text = id_and_rest(request, "inject")
    titles = steps_in(text)
    if not titles:
        raise Usage("inject")
    task = await found_task(request, task_id)
    return await moved(request, task, await inject_steps(request, task.id, titles))


@commands("replan", usage="id [why]", aliases=("重新规划",), immediate=True)
async def replan(request: Request) -> Reply:
    """Make a new plan of what is left; finished steps are kept."""
    task_id, why = id_and_rest(request, "replan")
    task = await found_task(request, task_id)
    await request.services.tasks.replan(task, why, by=request.person, source=request.source)
    return await moved(request, task, request.words("moved.replanning"))


@commands("letin", usage="id", aliases=("放行",), immediate=True)
async def let_in(request: Request) -> Reply:
    """Let a task work where another has left work half done."""
    task_id, _ = id_and_rest(request, "letin")
    task = await found_task(request, task_id)
    return await moved(request, task, await let_in_task(request, task.id))


async def tell_task(request: Request, task_id: str, text: str) -> str:
    task = await found_task(request, task_id)
    await request.services.tasks.tell(task, text, by=request.person, source=request.source)
    return request.words("moved.told")


async def inject_steps(request: Request, task_id: str, titles: tuple[str, ...]) -> str:
    task = await found_task(request, task_id)
    await request.services.tasks.inject(task, titles, by=request.person, source=request.source)
    in_rounds = await request.services.tasks.is_in_rounds(task, titles)
    return request.words("moved.injected_each" if in_rounds else "moved.injected", n=len(titles))


async def let_in_task(request: Request, task_id: str) -> str:
    task = await found_task(request, task_id)
    await request.services.tasks.let_in(task, by=request.person, source=request.source)
    return request.words("moved.let_in")


async def show_message_form(request: Request, task_id: str) -> Card:
    return message_form(await found_task(request, task_id), request.words)


async def message_sent(
    request: Request, task_id: str, text: str, meant_as: str, card_key: str
) -> str:
    """The form was sent, as a word to the worker or as steps of the plan, and becomes the record
    of that."""
    if meant_as == "step" and (titles := steps_in(text)):
        told = await inject_steps(request, task_id, titles)
    else:
        told = await tell_task(request, task_id, text)
    card = sent_card(await found_task(request, task_id), text, told)
    await request.services.courier.send(request.chat.id, card, key=card_key, urgency=Urgency.ANSWER)
    return told
