"""Talk: answers, proposals, and which model gives them."""

from __future__ import annotations

from dataclasses import replace

from cards.actions import JustTalk, StartTask, UseSkill
from cards.model import Card
from cards.views.chat import (
    answer_card,
    declined_card,
    models_card,
    proposal_card,
    session_card,
)
from cards.views.errors import notice_card
from cards.views.workers.skills import suggestion_card
from handlers.access.choosing import check_choice
from handlers.access.ready import check_able, check_ready
from handlers.errors import UserError
from handlers.parsing import Directives, chosen_by
from handlers.ports import Answered, Question
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.records.messages import Urgency
from storage.records.people import ChatSettings
from storage.records.status import AUTO, ModelChoice

commands = Commands("talk")

LEAVES_IT = frozenset({AUTO, "自动"})
"""Words that leave the model of each message to the program; the next take a chat's choice back."""

TAKES_BACK = frozenset({"default", "默认"})

_OFFLINE = "offline"
_WHOLE = 10


async def talk(
    request: Request, *, settle: bool = False, brief: str = "", skill: str = ""
) -> Reply:
    """Answer what was said, or propose a skill, or a task where it amounts to work. `brief` is what
    the worker is told first, of the `skill` by that name."""
    await check_able(request, request.backend)
    if not settle and (proposed := await _skill_for(request)):
        return proposed
    question = Question(
        person=request.person,
        chat=request.chat,
        text=request.args,
        language=request.words.language,
        source=request.source,
        files=request.files,
        model=request.model,
        backend=request.backend,
        settle=settle,
        brief=brief,
        skill=skill,
    )

    async def show(text: str) -> None:
        await request.services.courier.stream(request.answer, text)

    answered = await request.services.talk.answer(question, show)
    if answered.interrupted and not (answered.text.strip() or answered.notes):
        # Nothing of it was ever shown: what cut it short is answered instead.
        return Reply()
    return Reply(card=_answer(request, answered))


async def just_talk(request: Request, action: JustTalk, card_key: str) -> Reply:
    """A proposal was declined: answer its text as talk."""
    await request.services.courier.send(
        request.chat.id,
        declined_card(action.text, request.words),
        key=card_key,
        urgency=Urgency.ANSWER,
    )
    talked = replace(
        request,
        args=action.text,
        files=action.files,
        model=action.model,
        backend=action.backend,
    )
    return await talk(talked, settle=True)


@commands("new", aliases=("reset", "新对话", "重置"), immediate=True)
async def new_talk(request: Request) -> Reply:
    """Start a new conversation."""
    request.services.talk.interrupt(request.chat.id)
    had_one = await request.services.talk.reset(request.chat.id)
    return _said(request, "talk.reset" if had_one else "talk.nothing_to_reset")


@commands("chat", aliases=("session", "会话"), immediate=True)
async def show_talk(request: Request) -> Reply:
    """Show the conversation of this chat."""
    state = await request.services.talk.state(request.chat.id)
    if state is None:
        return _said(request, "talk.none")
    return Reply(
        card=session_card(
            turns=state.turns,
            model=state.model,
            last_used_at=state.last_used_at,
            now=request.now,
            words=request.words,
        )
    )


@commands(
    "model",
    usage="[name|auto|default]",
    aliases=("模型",),
    immediate=True,
    verbatim=True,
)
async def choose_model(request: Request) -> Reply:
    """Show or choose the model of this chat."""
    if not request.args:
        return Reply(card=_models(request, request.chat.settings))
    return Reply(card=_models(request, await _adjusted(request, request.args), changed=True))


async def pick_model(request: Request, name: str) -> Card:
    """A model was picked on the card."""
    return _models(request, await _adjusted(request, name), changed=True)


def cut_short(request: Request) -> Reply:
    """/stop without an id: the answer being made in this chat ends here."""
    if request.services.talk.interrupt(request.chat.id):
        return _said(request, "talk.stopped")
    raise UserError("nothing_to_stop")


def said_card(text: str) -> Card:
    """A short answer without a title."""
    return notice_card("", text)


async def _skill_for(request: Request) -> Reply | None:
    """Words that call for a skill propose it: it is used after consent only."""
    project = request.chat.settings.project
    skill = await request.services.skills.triggered(request.args, project=project)
    if skill is None:
        return None
    model, backend, files = request.model, request.backend, request.files
    use = UseSkill(name=skill.name, text=request.args, model=model, backend=backend, files=files)
    talk = JustTalk(text=request.args, model=model, backend=backend, files=files)
    return Reply(card=suggestion_card(skill, use, talk, request.words))


def _answer(request: Request, answered: Answered) -> Card:
    words = request.words
    proposal = answered.proposal
    if proposal is None:
        cut = (words("talk.interrupted"),) if answered.interrupted else ()
        notes = (*answered.notes, *cut, _by(request, answered))
        text = answered.text
        if not (text.strip() or answered.files or answered.notes or cut):
            text = words("talk.no_answer")
        return answer_card(text, words, notes=notes, files=answered.files, sizes=answered.sizes)
    start = StartTask(
        text=proposal.text,
        priority=proposal.priority,
        model=request.model,
        backend=request.backend,
        title=proposal.title,
        files=request.files,
        message_id=request.message_id,
    )
    declined = JustTalk(
        text=request.args, model=request.model, backend=request.backend, files=request.files
    )
    return proposal_card(
        start, declined, words, said=answered.text, when=proposal.when, notes=answered.notes
    )


def _by(request: Request, answered: Answered) -> str:
    """Who answered, and how long it took. Without a model the answer itself says so."""
    if not answered.model or answered.model == _OFFLINE:
        return ""
    seconds = f"{answered.seconds:.1f}" if answered.seconds < _WHOLE else f"{answered.seconds:.0f}"
    return request.words("talk.by", model=answered.model, seconds=seconds)


async def _adjusted(request: Request, name: str) -> ChatSettings:
    await check_choice(request)
    chosen = _chosen(request, name)
    if chosen.backend:
        await check_ready(request, name.removeprefix("@"))
    settings = replace(request.chat.settings, model=chosen.model, backend=chosen.backend)
    return (await request.services.people.adjust(request.chat, settings)).settings


def _chosen(request: Request, name: str) -> Directives:
    if name.casefold() in LEAVES_IT:
        return Directives(model=AUTO)
    if name.casefold() in TAKES_BACK:
        return Directives()
    name = name.removeprefix("@")
    choice = request.services.models.pick(name)
    if choice is None:
        raise UserError("unknown_model", name=name[:60], names=_names(request))
    return chosen_by(name, choice)


def _names(request: Request) -> str:
    choices = request.services.models.choices()
    return " · ".join(["`auto`", *(f"`{choice.name}`" for choice in choices)])


def _models(request: Request, settings: ChatSettings, *, changed: bool = False) -> Card:
    model = "" if settings.model == AUTO else settings.model
    chosen = ModelChoice(backend=settings.backend, model=model).name
    return models_card(
        request.services.models.choices(),
        chosen=chosen if settings.backend or model else "",
        words=request.words,
        auto=settings.model == AUTO,
        changed=changed,
    )


def _said(request: Request, key: str) -> Reply:
    return Reply(card=said_card(request.words(key)))
