"""All commands, joined by hand, and what speaks of them all: /help and the platforms' menus."""

from __future__ import annotations

from cards.views.system import HelpLine, help_card
from cards.words import Words, words_for
from handlers import approvals, chat, people, system
from handlers.access import members
from handlers.memory import commands as memory
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work import agenda, costs, create, logs, projects, steering, tasks, traces, upkeep
from handlers.workers import (
    backends,
    context,
    histories,
    personas,
    skills,
    tools,
    transcripts,
    waiting,
)
from handlers.workflows import commands as workflows
from storage.records.people import Language

_skills = Commands("system")
_about = Commands("system")


@_skills(
    "skill",
    usage="[name [text] | show|enable|disable name | new text | reload]",
    aliases=("skills", "技能"),
    verbatim=True,
)
async def skill(request: Request) -> Reply:
    """List skills, use one, or see and decide which are let in."""
    async with approvals.asking_for_money(request):
        return await skills.ordered(request, create.run)


@_about("help", aliases=("帮助", "commands", "指令"), immediate=True)
async def show_help(request: Request) -> Reply:
    """Show what I understand."""
    return Reply(card=help_card(help_lines(request.words), request.words))


COMMANDS = Commands.joined(
    create.commands,
    tasks.commands,
    projects.commands,
    steering.commands,
    agenda.commands,
    logs.commands,
    upkeep.commands,
    workflows.commands,
    chat.commands,
    waiting.commands,
    backends.commands,
    personas.commands,
    context.commands,
    transcripts.commands,
    histories.commands,
    memory.commands,
    approvals.commands,
    tools.commands,
    people.commands,
    members.commands,
    system.commands,
    costs.commands,
    traces.commands,
    _skills,
    _about,
)


def help_lines(words: Words) -> tuple[HelpLine, ...]:
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


def menu(language: Language) -> tuple[tuple[str, str], ...]:
    """The command menu for platforms that show one: names and one-line help."""
    words = words_for(language)
    return tuple((command.name, words(f"help.{command.name}.text")) for command in COMMANDS)
