"""Assembles all commands, /help and the platforms' command menus."""

from __future__ import annotations

import re
from itertools import takewhile

from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.views.system import HelpLine, help_card, short_help_card
from handlers import (
    account_links,
    approvals,
    bitable,
    chat,
    heartbeat,
    journal,
    mcp,
    memory,
    memory_consent,
    people,
    personas,
    projects,
    prompts,
    reports,
    schedules,
    self_check,
    skills,
    system,
    tasks,
    tools,
    triggers,
    workflows,
)
from handlers.chat import backend_commands, context_commands
from handlers.errors import UserError
from handlers.people import member_commands, session_commands
from handlers.request import CommandRegistry, Reply, Request
from handlers.task_runs import run_commands
from handlers.tasks import creation_commands, run_task, steering_commands
from storage.records.people import Language

_skill_commands = CommandRegistry("system")
_help_commands = CommandRegistry("system")


@_skill_commands("skill", aliases=("skills", "技能"), verbatim=True)
async def manage_skills(request: Request) -> Reply:
    async with approvals.requesting_budget(request):
        return await skills.skill_command(request, run_task)


@_help_commands("help", aliases=("帮助", "commands", "指令"), immediate=True)
async def show_help(request: Request) -> Reply:
    word, lines, words = request.args.strip().casefold(), help_lines(request.words), request.words
    if not word:
        main = [line for name in _MAIN for line in lines if line.name == name]
        return Reply(card=short_help_card(main, lines, words))
    found = lines if word in _ALL_WORDS else _find_help(word, lines, words)
    if not found:
        raise UserError("no_help", word=formats.code_text(word, _MAX_WORD))
    return Reply(card=help_card(found, words))


_MAIN = (
    "run",
    "list",
    "stop",
    "resume",
    "approve",
    "schedule",
    "project",
    "model",
    "new",
    "memory",
    "cost",
    "status",
)
"""Most people need these."""
_ALL_WORDS = {"all", "全部", "所有"}
_MAX_WORD = 40


def _find_help(word: str, lines: tuple[HelpLine, ...], words: TextCatalog) -> tuple[HelpLine, ...]:
    """Find help lines by a group, by a command, or else by a word that they contain."""
    group = [
        each
        for each in lines
        if word in {each.family, words(f"help.family.{each.family}").casefold()}
    ]
    command = COMMANDS.find(word.lstrip("/／"))
    named = [each for each in lines if command is not None and each.name == command.name]
    having = [
        each
        for each in lines
        if word in f"/{each.name} {each.usage} {each.text} {each.aliases}".casefold()
    ]
    return tuple(group or named or having)


_SLASH_WORD = re.compile(r"\s*[/／]([^\W\d_]{3,20})(?:\s|$)")
_SWAPPED, _MIN_SAME = 2, 3


def refuse_misspelt(text: str) -> None:
    """Raises UserError if the text begins with what is nearly a command."""
    found = _SLASH_WORD.match(text)
    if found is None:
        return
    word = found[1].casefold()
    for known in (name for each in COMMANDS for name in (each.name, *each.aliases)):
        if _is_near(word, known):
            raise UserError("misspelt", word=found[1], command=known)


def _is_near(word: str, known: str) -> bool:
    """Whether a word is a typing error for a command: two neighbouring letters are swapped, or one
    after the first is wrong, missing or too many. Short words never count, because too many others
    are like them."""
    start = _count_same(word, known)
    word, known = word[start:], known[start:]
    end = _count_same(word[::-1], known[::-1])
    word, known = word[: len(word) - end], known[: len(known) - end]
    if len(word) == len(known) == _SWAPPED:
        return word == known[::-1]
    return start > 0 and start + end >= _MIN_SAME and len(word) <= 1 and len(known) <= 1


def _count_same(one: str, other: str) -> int:
    """Count the letters at the start that both words share."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


COMMANDS = CommandRegistry.merge(
    creation_commands,
    schedules.commands,
    triggers.commands,
    tasks.commands,
    projects.commands,
    steering_commands,
    run_commands,
    journal.plan_commands,
    journal.commands,
    journal.update_commands,
    workflows.commands,
    chat.commands,
    backend_commands,
    personas.commands,
    prompts.commands,
    context_commands,
    chat.transcript_commands,
    chat.history_commands,
    memory.commands,
    memory_consent.commands,
    approvals.commands,
    tools.commands,
    people.commands,
    account_links.commands,
    member_commands,
    session_commands,
    system.commands,
    self_check.commands,
    reports.commands,
    mcp.commands,
    bitable.commands,
    heartbeat.commands,
    _skill_commands,
    _help_commands,
)


def help_lines(words: TextCatalog) -> tuple[HelpLine, ...]:
    return tuple(
        HelpLine(
            family=command.family,
            name=command.name,
            usage=words(f"help.{command.name}.usage"),
            text=words(f"help.{command.name}.text"),
            aliases=tuple(f"/{alias}" for alias in command.aliases if not alias.isascii()),
        )
        for command in COMMANDS
    )


def platform_menu(language: Language) -> tuple[tuple[str, str], ...]:
    """The command menu for platforms that show one: names and one-line help."""
    words = catalog_for(language)
    return tuple((command.name, words(f"help.{command.name}.text")) for command in COMMANDS)
