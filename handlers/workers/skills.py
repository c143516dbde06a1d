"""Skills: listed, shown, used, let in and made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from cards import formats
from cards.actions import EnableSkill, SaveSkill, ShowSkill, SkillAction, UseSkill
from cards.model import Card, Tone
from cards.views.errors import notice_card
from cards.views.workers.skill_data import shelf_data, skill_data
from cards.views.workers.skills import (
    draft_card,
    enabled_card,
    has_more,
    shelf_card,
    skill_card,
)
from handlers import chat
from handlers.errors import Usage, UserError
from handlers.flags import flags_of, quoted
from handlers.ports import Forbidden
from handlers.registry import Handler
from handlers.request import Reply, Request
from storage.records.messages import Urgency
from storage.records.people import ChatKind, Role
from storage.records.status import ModelChoice
from storage.records.workers.skills import (
    BUILTIN_HASH,
    Listed,
    SkillDraft,
    SkillRefused,
    SkillShelf,
    SkillSource,
    SkillState,
)

_LEAST_HASH = 8
_NAME = 64
_TITLE = 80
_CREATOR = "skill-creator"
_SLASH = re.compile(r"[/／](?P<name>[^\s@/／:：]{1,64})(?:@\S*)?(?:[:：]|\s+|$)")
_WORDS = {
    **dict.fromkeys(("list", "ls", "列表"), "list"),
    **dict.fromkeys(("show", "查看", "显示"), "show"),
    **dict.fromkeys(("use", "run", "使用"), "use"),
    **dict.fromkeys(("enable", "启用"), "enable"),
    **dict.fromkeys(("disable", "停用", "禁用"), "disable"),
    **dict.fromkeys(("new", "create", "新建", "创建"), "new"),
    **dict.fromkeys(("reload", "refresh", "重载", "刷新"), "reload"),
}


async def ordered(request: Request, run: Handler) -> Reply:
    """/skill with whatever follows it. `run` makes a task of a request, as /run does."""
    first, rest = _split(request.args)
    if not first:
        return await _list(request)
    order = _ORDERS.get(_WORDS.get(first.casefold(), ""))
    if order is None:
        return await _use(request, rest if _WORDS.get(first.casefold()) else request.args, run)
    return await order(request, rest)


async def by_slash(request: Request, run: Handler) -> Reply | None:
    """`/name text` where no command has that name, but a skill has; None for anything else."""
    found = _SLASH.match(request.args)
    if found is None or await _found(request, found["name"]) is None:
        return None
    return await _use(request, f"{found['name']} {request.args[found.end() :]}", run)


async def pressed(request: Request, action: SkillAction, card_key: str) -> Reply:
    """A button on a card about skills; whether this person may press it was checked."""
    with _explained():
        match action:
            case ShowSkill(name=name):
                return await show_skill(request, name)
            case EnableSkill():
                decided = await _decided(request, action)
                return replace(decided, key=card_key, in_place=True)
            case UseSkill(name=name):
                return await _consented(request, action, name, card_key)
            case SaveSkill(save=False, name=name):
                card = _said(request, "skill.discarded", name=name)
            case SaveSkill(name=name, text=text):
                draft = SkillDraft(name=name, text=text)
                saved = await request.services.skills.save(draft, by=request.person.id)
                seen = saved if _sees_paths(request) else _discreet(saved)
                path = f"{seen.skill.path}/SKILL.md"
                card = _said(request, "skill.saved", tone=Tone.GOOD, name=name, path=path)
            case _:
                assert_never(action)
    return Reply(card=card, key=card_key, in_place=True)


async def show_skill(request: Request, name: str) -> Reply:
    """All that is to be seen of it, and for an owner the button that lets it in."""
    if not name:
        raise Usage("skill")
    listed = await _to_look_at(request, name)
    if listed is None:
        raise UserError("skill_unknown", name=formats.line(name, _NAME), detail="")
    return await _shown(request, listed)


async def _show(request: Request, rest: str) -> Reply:
    return await show_skill(request, _split(rest)[0])


async def _list(request: Request, _rest: str = "") -> Reply:
    return _shelf(request, await request.services.skills.shelf(_project(request)))


async def _reload(request: Request, _rest: str) -> Reply:
    shelf = await request.services.skills.reload(_project(request))
    return _shelf(request, shelf, note=request.words("skill.reloaded"))


def _shelf(request: Request, shelf: SkillShelf, *, note: str = "") -> Reply:
    owner = request.person.role.allows(Role.OWNER)
    if not _sees_paths(request):
        bad = tuple(replace(each, path=_last(each.path)) for each in shelf.bad)
        shelf = replace(shelf, skills=tuple(map(_discreet, shelf.skills)), bad=bad)
    card = shelf_card(shelf, request.words, owner=owner, note=note)
    return Reply(card=card, data=shelf_data(shelf, request.words))


async def _use(request: Request, args: str, run: Handler) -> Reply:
    """In the chat, as its next turn; or as a task of its own."""
    before = flags_of(args, bare=("task",))
    name, rest = _split(before.text)
    after = flags_of(rest, bare=("task",))
    if not name:
        raise Usage("skill")
    listed = await _found(request, name)
    if listed is not None and _may_let_in(request, listed):
        return await _shown(request, listed)
    with _explained():
        loaded = await request.services.skills.load(
            name, project=_project(request), arguments=after.text
        )
    if "task" in {*before.options, *after.options}:
        if listed is not None and not listed.skill.by_model:
            # The task's worker would have to load it by itself.
            raise UserError("skill_person_only", name=loaded.name, detail="")
        return await run(_as_task(request, loaded.name, after.text))
    if after.text and _drafts(request, listed):
        return await _draft(request, after.text)
    return await _talk(request, loaded.text, after.text, skill=loaded.name)


def _as_task(request: Request, name: str, text: str) -> Request:
    if not text:
        raise Usage("skill")
    told = request.words("skill.task_text", text=text, name=name)
    title = formats.line(text, _TITLE)
    return replace(request, args=f"--title {quoted(title)} -- {told}")


async def _talk(request: Request, loaded: str, text: str, *, skill: str) -> Reply:
    said = replace(request, args=text or request.words("skill.begin"))
    return await chat.talk(said, settle=True, brief=loaded, skill=skill)


async def _consented(request: Request, action: UseSkill, name: str, card_key: str) -> Reply:
    loaded = await request.services.skills.load(
        name, project=_project(request), arguments=action.text
    )
    card = _said(request, "skill.using", name=name)
    await request.services.courier.send(request.chat.id, card, key=card_key, urgency=Urgency.ANSWER)
    said = replace(request, model=action.model, backend=action.backend, files=action.files)
    if _drafts(request, await _found(request, name)):
        return await _draft(said, action.text)
    return await _talk(said, loaded.text, action.text, skill=loaded.name)


async def _enable(request: Request, rest: str) -> Reply:
    """Without the hash it is shown first: nobody lets in what they have not seen."""
    _demand_owner(request)
    name, digest = _split(rest)
    if not digest:
        return await show_skill(request, name)
    if len(digest) < _LEAST_HASH and digest != BUILTIN_HASH:
        raise UserError("skill_hash", name=formats.line(name, _NAME))
    with _explained():
        return await _decided(request, EnableSkill(name=name, hash=digest))


async def _decided(request: Request, action: EnableSkill) -> Reply:
    skills, words = request.services.skills, request.words
    decide = skills.enable if action.enable else skills.put_off
    listed = await decide(action.name, action.hash, by=request.person.id, project=_project(request))
    put_off = notice_card("", words("skill.put_off", name=action.name))
    card = enabled_card(listed, words) if action.enable else put_off
    return Reply(card=card, data=skill_data(listed, words))


async def _disable(request: Request, rest: str) -> Reply:
    _demand_owner(request)
    name = _split(rest)[0]
    if not name:
        raise Usage("skill")
    with _explained():
        listed = await request.services.skills.disable(
            name, by=request.person.id, project=_project(request)
        )
    return Reply(
        card=_said(request, "skill.disabled", name=listed.skill.name),
        data=skill_data(listed, request.words),
    )


async def _draft(request: Request, text: str) -> Reply:
    _demand_owner(request)
    if not text:
        raise Usage("skill")
    with _explained():
        draft = await request.services.skill_writer.draft(
            text,
            by=request.person,
            chat=request.chat,
            language=request.words.language,
            source=request.source,
            choice=ModelChoice(backend=request.backend, model=request.model),
        )
    return Reply(card=draft_card(draft, request.words))


def _drafts(request: Request, listed: Listed | None) -> bool:
    """Whether an owner uses our own skill for making skills: then a draft is what they want, to
    be seen and saved by its button, not a file that lies in a chat's folder."""
    if listed is None or listed.skill.source is not SkillSource.BUILTIN:
        return False
    return listed.skill.name == _CREATOR and request.person.role.allows(Role.OWNER)


async def _found(request: Request, name: str) -> Listed | None:
    """The one of that name that counts."""
    return (await request.services.skills.shelf(_project(request))).find(name)


async def _to_look_at(request: Request, name: str) -> Listed | None:
    """The one of that name that waits for an owner, else the one that counts."""
    same = (await request.services.skills.shelf(_project(request))).named(name)
    waiting = (each for each in same if each.state in {SkillState.NEW, SkillState.CHANGED})
    return next(waiting, next(iter(same), None))


async def _shown(request: Request, listed: Listed) -> Reply:
    owner = request.person.role.allows(Role.OWNER)
    attach = has_more(listed.skill) and _may_let_in(request, listed)
    whole = await request.services.skills.whole(listed.skill) if attach else None
    if not _sees_paths(request):
        listed = _discreet(listed)
    return Reply(
        card=skill_card(listed, request.words, owner=owner, whole=whole),
        data=skill_data(listed, request.words),
    )


def _sees_paths(request: Request) -> bool:
    """Where a folder lies on the machine is for owners, where nobody reads along."""
    return request.person.role.allows(Role.OWNER) and request.chat.kind is ChatKind.PRIVATE


def _discreet(listed: Listed) -> Listed:
    skill = replace(listed.skill, path=_last(listed.skill.path))
    return replace(listed, skill=skill, shadowed=listed.shadowed and _last(listed.shadowed))


def _last(path: str) -> str:
    return f"…/{path.rstrip('/').rpartition('/')[2]}"


def _may_let_in(request: Request, listed: Listed) -> bool:
    return listed.state is not SkillState.ENABLED and request.person.role.allows(Role.OWNER)


def _demand_owner(request: Request) -> None:
    if not request.person.role.allows(Role.OWNER):
        raise Forbidden


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SkillRefused as error:
        name, detail = formats.line(error.name, _NAME), formats.line(error.detail, 200)
        raise UserError(f"skill_{error.reason}", name=name, detail=detail) from error


def _said(request: Request, key: str, *, tone: Tone = Tone.INFO, **facts: object) -> Card:
    return notice_card("", request.words(key, **facts), tone=tone)


def _split(text: str) -> tuple[str, str]:
    first, _, rest = text.strip().partition(" ")
    lead, newline, more = first.partition("\n")
    return (lead, f"{more} {rest}".strip()) if newline else (first, rest.strip())


def _project(request: Request) -> str:
    return request.chat.settings.project


_ORDERS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list,
    "reload": _reload,
    "show": _show,
    "enable": _enable,
    "disable": _disable,
    "new": _draft,
}
