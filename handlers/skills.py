"""Handles skills: listing, viewing, use, approval and creation."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from cards import formats
from cards.actions import EnableSkill, SaveSkill, ShowSkill, SkillAction, UseSkill
from cards.model import Card, CardTone, notice_card
from cards.views import skills as views
from handlers import chat
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags, quote_value
from handlers.parsing import split_first_word
from handlers.request import CommandHandler, Reply, Request
from storage.records.messages import DeliveryUrgency
from storage.records.skills import (
    BUILTIN_HASH,
    SkillCatalog,
    SkillDraft,
    SkillListing,
    SkillRefused,
    SkillSource,
    SkillState,
)
from storage.records.system import ModelChoice

_MIN_HASH_LENGTH = 8
_MAX_NAME = 64
_MAX_TITLE = 80
_CREATOR_SKILL = "skill-creator"
_SLASH = re.compile(r"[/／](?P<name>[^\s@/／:：]{1,64})(?:@\S*)?(?:[:：]|\s+|$)")
_SUBCOMMAND_WORDS = {
    **dict.fromkeys(("list", "ls", "列表"), "list"),
    **dict.fromkeys(("show", "查看", "显示"), "show"),
    **dict.fromkeys(("use", "run", "使用"), "use"),
    **dict.fromkeys(("enable", "启用"), "enable"),
    **dict.fromkeys(("disable", "停用", "禁用"), "disable"),
    **dict.fromkeys(("new", "create", "新建", "创建"), "new"),
    **dict.fromkeys(("reload", "refresh", "重载", "刷新"), "reload"),
}


async def skill_command(request: Request, run: CommandHandler) -> Reply:
    """Handle /skill. `run` creates a task from a request, as /run does."""
    first, rest = split_first_word(request.args)
    if not first:
        return await _list(request)
    order = _SUBCOMMANDS.get(_SUBCOMMAND_WORDS.get(first.casefold(), ""))
    if order is None:
        return await _use(
            request, rest if _SUBCOMMAND_WORDS.get(first.casefold()) else request.args, run
        )
    return await order(request, rest)


async def use_by_slash(request: Request, run: CommandHandler) -> Reply | None:
    """Handle `/name text` for a skill where no command has the name; None otherwise."""
    slash = _SLASH.match(request.args)
    if slash is None or await _find_skill(request, slash["name"]) is None:
        return None
    return await _use(request, f"{slash['name']} {request.args[slash.end() :]}", run)


async def handle_skill_press(request: Request, action: SkillAction, card_key: str) -> Reply:
    """Handle a button about skills; the caller has checked permission."""
    with _explain_rejection():
        match action:
            case ShowSkill(name=name):
                return await show_skill(request, name)
            case EnableSkill():
                reply = await _apply_decision(request, action)
                return replace(reply, key=card_key, in_place=True)
            case UseSkill(name=name):
                return await _use_proposed(request, action, name, card_key)
            case SaveSkill(save=False, name=name):
                card = _skill_notice(request, "skill.discarded", name=name)
            case SaveSkill(name=name, text=text):
                draft = SkillDraft(name=name, text=text)
                listing = await request.services.skills.save(draft, by=request.person.id)
                visible_listing = listing if _sees_paths(request) else _without_paths(listing)
                path = f"{visible_listing.skill.path}/SKILL.md"
                card = _skill_notice(
                    request, "skill.saved", tone=CardTone.GOOD, name=name, path=path
                )
            case _:
                assert_never(action)
    return Reply(card=card, key=card_key, in_place=True)


async def show_skill(request: Request, name: str) -> Reply:
    """Show a skill, with a button to enable it for owners."""
    if not name:
        raise UsageError("skill")
    listing = await _find_for_review(request, name)
    if listing is None:
        raise UserError("skill_unknown", name=formats.single_line(name, _MAX_NAME), detail="")
    return await _skill_reply(request, listing)


async def _show(request: Request, rest: str) -> Reply:
    return await show_skill(request, split_first_word(rest)[0])


async def _list(request: Request, _rest: str = "") -> Reply:
    return _skills_reply(request, await request.services.skills.list_skills(_project(request)))


async def _reload(request: Request, _rest: str) -> Reply:
    catalog = await request.services.skills.reload(_project(request))
    return _skills_reply(request, catalog, note=request.words("skill.reloaded"))


def _skills_reply(request: Request, catalog: SkillCatalog, *, note: str = "") -> Reply:
    owner = request.by_owner
    if not _sees_paths(request):
        bad = tuple(replace(each, path=_last_path_part(each.path)) for each in catalog.invalid)
        catalog = replace(catalog, skills=tuple(map(_without_paths, catalog.skills)), invalid=bad)
    card = views.skills_card(catalog, request.words, owner=owner, note=note)
    return Reply(card=card, data=views.skills_data(catalog, request.words))


async def _use(request: Request, args: str, run: CommandHandler) -> Reply:
    """Use a skill in the chat's next turn or in a new task."""
    before = parse_flags(args, bare=("task",))
    name, rest = split_first_word(before.text)
    after = parse_flags(rest, bare=("task",))
    if not name:
        raise UsageError("skill")
    listing = await _find_skill(request, name)
    if listing is not None and _may_enable(request, listing):
        return await _skill_reply(request, listing)
    with _explain_rejection():
        instructions = await request.services.skills.load(
            name, project=_project(request), arguments=after.text
        )
    if "task" in {*before.options, *after.options}:
        if listing is not None and not listing.skill.model_may_load:
            # The task's worker would have to load the skill, which the model may not.
            raise UserError("skill_person_only", name=instructions.name, detail="")
        return await run(_as_task_request(request, instructions.name, after.text))
    if after.text and _creates_draft(request, listing):
        return await _draft_skill(request, after.text)
    return await _answer_with_skill(request, instructions.text, after.text, skill=instructions.name)


def _as_task_request(request: Request, name: str, text: str) -> Request:
    if not text:
        raise UsageError("skill")
    instruction = request.words("skill.task_text", text=text, name=name)
    title = formats.single_line(text, _MAX_TITLE)
    return replace(request, args=f"--title {quote_value(title)} -- {instruction}")


async def _answer_with_skill(request: Request, brief: str, text: str, *, skill: str) -> Reply:
    skill_request = replace(request, args=text or request.words("skill.begin"))
    return await chat.answer_message(skill_request, no_proposal=True, brief=brief, skill=skill)


async def _use_proposed(request: Request, action: UseSkill, name: str, card_key: str) -> Reply:
    instructions = await request.services.skills.load(
        name, project=_project(request), arguments=action.text
    )
    card = _skill_notice(request, "skill.using", name=name)
    await request.services.courier.send(
        request.chat.id, card, key=card_key, urgency=DeliveryUrgency.ANSWER
    )
    proposal_request = replace(
        request, model=action.model, backend=action.backend, files=action.files
    )
    if _creates_draft(request, await _find_skill(request, name)):
        return await _draft_skill(proposal_request, action.text)
    return await _answer_with_skill(
        proposal_request, instructions.text, action.text, skill=instructions.name
    )


async def _enable(request: Request, rest: str) -> Reply:
    """Without the hash the skill is shown first, so that no unseen files are enabled."""
    request.require_owner()
    name, digest = split_first_word(rest)
    if not digest:
        return await show_skill(request, name)
    if len(digest) < _MIN_HASH_LENGTH and digest != BUILTIN_HASH:
        raise UserError("skill_hash", name=formats.single_line(name, _MAX_NAME))
    with _explain_rejection():
        return await _apply_decision(request, EnableSkill(name=name, hash=digest))


async def _apply_decision(request: Request, action: EnableSkill) -> Reply:
    skills, words = request.services.skills, request.words
    decide = skills.enable if action.enable else skills.postpone
    listing = await decide(
        action.name, action.hash, by=request.person.id, project=_project(request)
    )
    put_off = notice_card("", words("skill.put_off", name=action.name))
    card = views.enabled_card(listing, words) if action.enable else put_off
    return Reply(card=card, data=views.skill_data(listing, words))


async def _disable(request: Request, rest: str) -> Reply:
    request.require_owner()
    name = split_first_word(rest)[0]
    if not name:
        raise UsageError("skill")
    with _explain_rejection():
        listing = await request.services.skills.disable(
            name, by=request.person.id, project=_project(request)
        )
    return Reply(
        card=_skill_notice(request, "skill.disabled", name=listing.skill.name),
        data=views.skill_data(listing, request.words),
    )


async def _draft_skill(request: Request, text: str) -> Reply:
    request.require_owner()
    if not text:
        raise UsageError("skill")
    with _explain_rejection():
        draft = await request.services.skill_writer.draft(
            text,
            by=request.person,
            chat=request.chat,
            language=request.words.language,
            source=request.source,
            choice=ModelChoice(backend=request.backend, model=request.model),
        )
    return Reply(card=views.draft_card(draft, request.words))


def _creates_draft(request: Request, listing: SkillListing | None) -> bool:
    """Whether an owner uses the built-in skill for creating skills: they need a draft to review and
    save, not a file in the chat's folder."""
    if listing is None or listing.skill.source is not SkillSource.BUILTIN:
        return False
    return listing.skill.name == _CREATOR_SKILL and request.by_owner


async def _find_skill(request: Request, name: str) -> SkillListing | None:
    """The effective skill of that name."""
    return (await request.services.skills.list_skills(_project(request))).find(name)


async def _find_for_review(request: Request, name: str) -> SkillListing | None:
    """The skill of that name that awaits an owner, else the effective one."""
    same = (await request.services.skills.list_skills(_project(request))).list_by_name(name)
    waiting = (each for each in same if each.state in {SkillState.NEW, SkillState.CHANGED})
    return next(waiting, next(iter(same), None))


async def _skill_reply(request: Request, listing: SkillListing) -> Reply:
    owner = request.by_owner
    attach = views.exceeds_card(listing.skill) and _may_enable(request, listing)
    whole = await request.services.skills.bundle_files(listing.skill) if attach else None
    if not _sees_paths(request):
        listing = _without_paths(listing)
    return Reply(
        card=views.skill_card(listing, request.words, owner=owner, full_text=whole),
        data=views.skill_data(listing, request.words),
    )


def _sees_paths(request: Request) -> bool:
    """Paths on this machine are for owners in private only."""
    return request.by_owner and request.in_private


def _without_paths(listing: SkillListing) -> SkillListing:
    skill = replace(listing.skill, path=_last_path_part(listing.skill.path))
    return replace(
        listing,
        skill=skill,
        shadowed_by=listing.shadowed_by and _last_path_part(listing.shadowed_by),
    )


def _last_path_part(path: str) -> str:
    return f"…/{path.rstrip('/').rpartition('/')[2]}"


def _may_enable(request: Request, listing: SkillListing) -> bool:
    return listing.state is not SkillState.ENABLED and request.by_owner


@contextmanager
def _explain_rejection() -> Iterator[None]:
    try:
        yield
    except SkillRefused as error:
        name, detail = (
            formats.single_line(error.name, _MAX_NAME),
            formats.single_line(error.detail, 200),
        )
        raise UserError(f"skill_{error.reason}", name=name, detail=detail) from error


def _skill_notice(
    request: Request, key: str, *, tone: CardTone = CardTone.INFO, **facts: object
) -> Card:
    return notice_card("", request.words(key, **facts), tone=tone)


def _project(request: Request) -> str:
    return request.chat.settings.project


_SUBCOMMANDS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list,
    "reload": _reload,
    "show": _show,
    "enable": _enable,
    "disable": _disable,
    "new": _draft_skill,
}
