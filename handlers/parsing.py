"""Parses messages, directives, approval replies and task arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cards import formats
from cards.model import FormBlock, FormField, FormFieldKind
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, CommandSpec, Request
from storage.records.system import ModelChoice
from storage.records.tasks import Task, TaskPriority

ModelResolver: TypeAlias = Callable[[str], ModelChoice | None]
"""Resolves the name of a model or backend, or returns None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDirectives:
    """Choices for a single message; empty means the chat's choice."""

    model: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMessage:
    """A command and its arguments."""

    command: CommandSpec
    args: str
    directives: MessageDirectives


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMessage:
    """Any other message. `text` is without directives; they never empty it."""

    text: str
    directives: MessageDirectives


ParsedMessage: TypeAlias = CommandMessage | PlainMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalReply:
    """A message that consists of an approval word. `target` may name the request; `reason` follows
    a rejection."""

    approve: bool
    target: str = ""
    reason: str = ""


# Feishu's placeholder for a mention.
_PLACEHOLDER = re.compile(r"(?<!\S)@_(?:user_\d+|all)(?!\S)")
_MENTION = re.compile(r"(?<!\S)@\S+")
_SLASH = re.compile(r"(?:@\S+\s+)*[/／]([^\s@/／:：]+)(?:@\S*)?(?:[:：]|\s+|$)")
_DIRECTIVE = re.compile(
    r"(?:@(?P<at>\S+)|[/／](?:backend[:：]|use\s+)(?P<use>\S+))(?:\s+|$)", re.IGNORECASE
)
_BARE_MODEL = re.compile(r"(?P<bare>opus|sonnet|haiku)(?:\s+|$)", re.IGNORECASE)
_PRIORITY = re.compile(r"[-–—]{1,2}(?:p|priority)(?:\s+|=)(?P<word>\S+)(?:\s+|$)", re.IGNORECASE)

_APPROVE_WORDS = frozenset(("通过", "approve", "批准", "ok", "yes"))
_REJECT_WORDS = frozenset(("拒绝", "reject", "no", "否"))
_APPROVE_VERBS = frozenset(("通过", "approve", "批准"))
_REJECT_VERBS = frozenset(("拒绝", "reject"))

_MAX_DIRECTIVES = 4


def parse_message(
    text: str, commands: CommandRegistry, resolve_model: ModelResolver, *, mentions: bool = True
) -> ParsedMessage:
    """Parse a message without its mentions and directives. `mentions` False: the channel has no
    mentions, so an @ belongs to the text."""
    cleaned = (_PLACEHOLDER.sub("", text) if mentions else text).strip()
    rest, directives = split_directives(cleaned, resolve_model)
    slash = _SLASH.match(rest)
    command = commands.find(slash.group(1)) if slash else None
    if slash is None or command is None:
        return PlainMessage(text=rest or cleaned, directives=directives)
    args = rest[slash.end() :].strip()
    plain_args = strip_mentions(args) if mentions and not command.verbatim else args
    return CommandMessage(command=command, args=plain_args, directives=directives)


def split_directives(
    text: str, resolve_model: ModelResolver, *, allow_bare: bool = True
) -> tuple[str, MessageDirectives]:
    """The text without its leading directives, and these. The last one wins. `allow_bare` accepts a
    model's short name without @."""
    directives = MessageDirectives()
    for _ in range(_MAX_DIRECTIVES):
        directive = _DIRECTIVE.match(text) or (_BARE_MODEL.match(text) if allow_bare else None)
        if directive is None:
            break
        name = next(part for part in directive.groupdict().values() if part)
        choice = resolve_model(name)
        alone = directive.end() == len(text)
        if choice is None or (alone and _is_backend(name, choice)):
            break
        directives = choice_directives(name, choice)
        text = text[directive.end() :].lstrip()
    return text, directives


def choice_directives(name: str, choice: ModelChoice) -> MessageDirectives:
    """A backend's own name leaves the model to it; any other name sets both."""
    model = "" if _is_backend(name, choice) else choice.model
    return MessageDirectives(model=model, backend=choice.backend)


def parse_approval_reply(text: str) -> ApprovalReply | None:
    """Recognize approval words. Only whole messages count: `ok let us start` does not."""
    reply = strip_mentions(text)
    word, rest = [*reply.split(maxsplit=1), "", ""][:2]
    match (word.casefold(), rest.strip()):
        case (yes, "") if yes in _APPROVE_WORDS:
            return ApprovalReply(approve=True)
        case (no, "") if no in _REJECT_WORDS:
            return ApprovalReply(approve=False)
        case (yes, target) if yes in _APPROVE_VERBS and len(target.split()) == 1:
            return ApprovalReply(approve=True, target=target)
        case (no, reason) if no in _REJECT_VERBS:
            return ApprovalReply(approve=False, reason=reason)
    return None


def split_priority_flag(args: str) -> tuple[str, str]:
    """The word after a leading `-p`, or empty, and the remaining text."""
    flag = _PRIORITY.match(args)
    return (flag["word"], args[flag.end() :].strip()) if flag else ("", args)


def find_priority(words: str) -> tuple[TaskPriority | None, str]:
    """The first word that names a priority, and the other words."""
    rest = words.split()
    for index in reversed(range(len(rest))):
        if priority := TaskPriority.parse(rest[index]):
            return priority, " ".join(rest[:index] + rest[index + 1 :])
    return None, words.strip()


def strip_mentions(text: str) -> str:
    return _MENTION.sub("", text).strip()


def _is_backend(name: str, choice: ModelChoice) -> bool:
    return name.casefold() == choice.backend.casefold()


_STEP_SEPARATOR = re.compile(r"→|->|\n")
_MAX_STEPS = 10
_MAX_STEP_TITLE = 200


def split_id(request: Request, command: str) -> tuple[str, str]:
    """The first word and the rest; UsageError if there is none."""
    first, rest = split_first_word(request.args)
    if not first:
        raise UsageError(command)
    return first, rest


async def find_task(request: Request, prefix: str) -> Task:
    return await request.services.tasks.find(prefix, by=request.person, chat=request.chat.id)


async def split_task(request: Request, command: str) -> tuple[Task, str]:
    """The task named by the first word, and the rest."""
    first, rest = split_id(request, command)
    return await find_task(request, first), rest


def split_first_word(text: str) -> tuple[str, str]:
    first, *rest = text.split(maxsplit=1) or [""]
    return first, "".join(rest).strip()


def parse_number(word: str) -> int:
    """A whole number, with or without thousands separators."""
    plain = word.replace(",", "").replace("_", "")
    if not (plain.isascii() and plain.isdigit()):
        raise UserError("bad_number", word=formats.single_line(word, 40) or "–")
    return min(int(plain[:18]), 10**15)


def split_steps(text: str, limit: int = _MAX_STEPS) -> tuple[str, ...]:
    """Titles, one per line or separated by arrows."""
    titles = (part.strip()[:_MAX_STEP_TITLE] for part in _STEP_SEPARATOR.split(text))
    return tuple(title for title in titles if title)[:limit]


_LABELLED_LINE = re.compile(r"\s*([^:：]{1,60})[:：](.*)")


def parse_form_reply(form: FormBlock, text: str) -> dict[str, str]:
    """Parse a typed answer to a form: `label: value` lines, other text for the first text field,
    and a leading `-p` for the priority."""
    fields = {name.casefold(): each for each in form.fields for name in (each.name, each.label)}
    word, text = split_priority_flag(text.strip())
    values: dict[str, str] = {"priority": word} if word and "priority" in fields else {}
    rest: list[str] = []
    for row in text.splitlines():
        labelled_line = _LABELLED_LINE.fullmatch(row)
        field = fields.get(labelled_line[1].strip().casefold()) if labelled_line else None
        if labelled_line is None or field is None or field.name in values:
            rest.append(row)
        else:
            values[field.name] = _option_value(field, labelled_line[2].strip())
    free = [each.name for each in form.fields if each.field is not FormFieldKind.CHOICE]
    unfilled = [name for name in free if name not in values]
    if unfilled and rest:
        values[unfilled[0]] = "\n".join(rest).strip()
    return values


def _option_value(field: FormField, text: str) -> str:
    choice = text.casefold()
    for option in field.options:
        if choice in {option.value.casefold(), option.label.casefold()}:
            return option.value
    return text
