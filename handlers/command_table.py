"""Assembles all commands, /help and the platforms' command menus."""

from __future__ import annotations

from cards.catalog import TextCatalog, catalog_for
from cards.views.system import HelpLine, help_card
from handlers import (
    approvals,
    chat,
    doctor,
    heartbeat,
    journal,
    mcp,
    memory,
    message_queue,
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
    workflows,
)
from handlers.chat import backend_commands, context_commands
from handlers.people import member_commands, session_commands
from handlers.request import CommandRegistry, Reply, Request
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
    return Reply(card=help_card(help_lines(request.words), request.words))


COMMANDS = CommandRegistry.merge(
    creation_commands,
    schedules.commands,
    tasks.commands,
    projects.commands,
    steering_commands,
    journal.plan_commands,
    journal.commands,
    journal.update_commands,
    workflows.commands,
    chat.commands,
    message_queue.commands,
    backend_commands,
    personas.commands,
    prompts.commands,
    context_commands,
    chat.transcript_commands,
    chat.history_commands,
    memory.commands,
    approvals.commands,
    people.commands,
    member_commands,
    session_commands,
    system.commands,
    self_check.commands,
    doctor.commands,
    reports.commands,
    mcp.commands,
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
