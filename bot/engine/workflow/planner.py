"""Planning: request a plan from the model, parse and repair it, and explain its issues."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.llm.answer_schemas import MAX_TITLE, PlanAnswer, repair_json
from bot.engine.llm.backend import AnswerCutByBudget, BackendDenied, InvalidAnswer
from bot.engine.llm.workspace_files import is_workspace_path
from bot.engine.llm.written_forms import brace_spans
from bot.engine.workflow import prompts
from bot.engine.workflow.definition import FORMAT_VERSION, Workflow, WorkflowNode
from bot.engine.workflow.expressions.evaluator import escape_placeholders
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.plan import is_chain, linear_workflow
from bot.engine.workflow.serialization.data_parser import MAX_BYTES, clean_data, parse_json
from bot.engine.workflow.serialization.reader import complete_and_check, parse_text, read_draft
from bot.engine.workflow.step_approvals import find_risk_word
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Language
from storage.records.tasks import Task

_MAX_LINES = 40
_MAX_FACT = 120


def format_issues(
    issues: Iterable[ValidationIssue], words: TextCatalog, *, limit: int = _MAX_LINES
) -> str:
    """One line per issue with its location; at most `limit` of them."""
    all_of_them = iter(issues)
    lines = [format_issue(fault, words) for fault in islice(all_of_them, limit)]
    left = sum(1 for _ in all_of_them)
    return "\n".join([*lines, *([words("workflow.fault_more", n=left)] if left else [])])


def format_issue(fault: ValidationIssue, words: TextCatalog) -> str:
    facts = {name: _shorten_fact(value) for name, value in fault.facts.items()}
    if (reason := f"workflow.expression.{facts.get('reason')}") and words.has(reason):
        facts["why"] = words(reason, **facts)
    text = words(f"workflow.fault.{fault.key}", **facts)
    if "line" in facts:
        text = words("workflow.fault_line", line=facts["line"], text=text)
    if fault.suggestion:
        text = f"{text} {words('workflow.meant', text=_shorten_fact(fault.suggestion))}"
    if words.language is Language.ENGLISH and facts.get("why") and "reason" not in facts:
        # The parsers' reasons exist in English only.
        text = f"{text} ({facts['why']})"
    place = ".".join(str(_shorten_fact(part)) for part in (fault.where, fault.field) if part)
    return words("workflow.fault_at", place=place, text=text) if place else text


def _shorten_fact(value: object) -> object:
    return value if isinstance(value, int) else " ".join(str(value)[:500].split())[:_MAX_FACT]


_FENCED_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(\w*)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE
)
_MAX_CANDIDATES = 200


def find_json(text: str) -> Any:
    """Find the last JSON object in a text: fenced, the whole text, or inside it. None if there is
    none. Raises InvalidGraph if it cannot be repaired."""
    text = text[:MAX_BYTES]
    fenced = [(mark[1].casefold(), mark[2].strip()) for mark in _FENCED_BLOCK.finditer(text)]
    for word, inside in reversed(fenced):
        if inside.startswith("{") and word in {"", "json", "json5", "jsonc"}:
            return parse_repaired(inside)
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        return parse_repaired(whole)
    return _longest_json(whole)


def parse_repaired(text: str) -> Any:
    """Parse JSON, repairing common mistakes. Raises InvalidGraph."""
    try:
        return parse_json(text)
    except InvalidGraph as bad:
        if bad.issues[0].key not in {"bad_json", "bad_number"}:
            raise
        try:
            return clean_data(json.loads(repair_json(text)))
        except (ValueError, RecursionError) as error:
            raise bad from error


def _longest_json(text: str) -> Any:
    """The longest object between words that can be parsed."""
    places = sorted(brace_spans(text), key=lambda place: place[0] - place[1])
    for start, end in places[:_MAX_CANDIDATES]:
        try:
            value = parse_repaired(text[start:end])
        except InvalidGraph:
            continue
        if value:
            return value
    return None


_FILE_SUFFIX = re.compile(r"\.[A-Za-z0-9_-]{1,12}")
_BARE_FILES = frozenset(
    (
        *("makefile", "justfile", "dockerfile", "containerfile", "procfile", "jenkinsfile"),
        *("gemfile", "rakefile", "vagrantfile", "codeowners", "license", "licence", "copying"),
        *("notice", "readme", "changelog", "authors"),
    )
)
DEFAULT_MAX_LOOPS = 5
"""Loop limit for back edges for which the planner gave none."""


def plan_from_answer(answer: PlanAnswer) -> Workflow:
    """Build the plan from a structured answer: a workflow, a list of steps, or only text. Raises
    InvalidGraph."""
    if answer.workflow:
        found = find_json(answer.workflow)
        data = found if _looks_like_workflow(found) else parse_text(answer.workflow)
        return _build_plan(data, answer.plan)
    simple = plan_from_steps(answer)
    return plan_from_text(answer.answer, answer.plan) if simple is None else simple


def plan_from_text(text: str, plan: str = "") -> Workflow:
    """Build the plan from a plain text: the workflow in it, or the text as the answer. Raises
    InvalidGraph."""
    try:
        data = find_json(text)
    except InvalidGraph:
        if '"nodes"' in text:
            raise
        data = None
    if _looks_like_workflow(data):
        return _build_plan(data, plan)
    return Workflow(plan=plan, answer=text)


def plan_from_steps(answer: PlanAnswer) -> Workflow | None:
    """The steps as a linear plan; None if there are none."""
    if not answer.steps:
        return None
    return linear_workflow(
        answer.plan,
        (
            WorkflowNode(
                id=f"s{n}",
                title=escape_placeholders(step.title),
                detail=escape_placeholders(step.detail),
                repeatable=step.repeatable,
                type=NodeType.HUMAN if step.kind == "ask" else NodeType.TASK,
                persona=step.persona,
                deliverables=tuple(dict.fromkeys(filter(_is_workspace_file, step.deliverables))),
            )
            for n, step in enumerate(answer.steps, start=1)
        ),
    )


def _is_workspace_file(path: str) -> bool:
    """Whether this names a file. Weak models also name variables and results here."""
    place = PurePosixPath(path)
    is_named = bool(_FILE_SUFFIX.fullmatch(place.suffix)) or place.name.casefold() in _BARE_FILES
    return is_workspace_path(path) and (is_named or "/" in path)


def _looks_like_workflow(data: Any) -> bool:
    inner = data.get("workflow", data) if isinstance(data, Mapping) else None
    return isinstance(inner, Mapping) and isinstance(inner.get("nodes"), list | dict)


def _build_plan(data: Any, plan: str) -> Workflow:
    draft, faults = read_draft(data, require_name=False)
    # A plan is not refused for a field that has no effect.
    faults = [each for each in faults if each.key != "foreign_field"]
    # A running task cannot ask for inputs, and the version is not the model's choice.
    draft = replace(draft, plan=draft.plan or plan, inputs=(), version=FORMAT_VERSION)
    workflow = complete_and_check(draft, faults, default_max_loops=DEFAULT_MAX_LOOPS)
    return _simplify_to_chain(workflow)


def _simplify_to_chain(workflow: Workflow) -> Workflow:
    """Reduce a workflow that is only a sequence of steps to a linear plan without start and end."""
    is_plain = all(node.role.is_step or node.role.is_terminal for node in workflow.nodes)
    is_plain = is_plain and not any(edge.condition or edge.max_loops for edge in workflow.edges)
    extra = workflow.outputs or workflow.variables or workflow.timeout is not None
    if not workflow.nodes or not is_plain or extra:
        return workflow
    after = {edge.source: edge.target for edge in workflow.edges}
    chain = [node.id for node in workflow.nodes if node.role is NodeRole.START]
    while chain[-1] in after:
        chain.append(after[chain[-1]])
    if len(after) != len(workflow.edges) or len(chain) != len(workflow.nodes):
        return workflow
    known = workflow.nodes_by_id
    steps = [known[name] for name in chain if known[name].role.is_step]
    return replace(linear_workflow(workflow.plan, steps), name=workflow.name)


log = logging.getLogger(__name__)


async def request_valid_plan(
    ask: ModelRequest,
    send: Callable[[ModelRequest], Awaitable[ModelReply]],
    record_cost: Callable[[ModelReply], Awaitable[None]],
    words: TextCatalog,
) -> tuple[ModelReply, Workflow]:
    """Request a plan and return it with the last reply, whose cost is not yet recorded.

    An invalid workflow is sent back once with its issues. If the second one is invalid too, the
    linear steps of either reply are used. `record_cost` records all other replies. Raises
    UnreadablePlan if there are no such steps or no reply is a plan.
    """
    try:
        return await _request_valid_plan(ask, send, record_cost, words)
    except AnswerCutByBudget:
        raise
    except InvalidAnswer as error:
        raise UnreadablePlan(str(error), words("workflow.no_plan")) from error


class UnreadablePlan(BackendDenied):
    """The model gave no plan that can be run. `reason` says why, in the Boss's language."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, hint=reason)
        self.reason = reason


_PEOPLE_WANTED = re.compile(
    r"\b(?:ask\w*|confirm\w*|approv\w*|permission|consent|consult\w*|discuss\w*|clarif\w*|propos\w*"
    r"|suggest\w*|options?|unclear|(?:not |un)sure|which|decid\w*|decision|choos\w*|choice|pick\w*"
    r"|review\w*|feedback|check with|wait\w*|let me|tell me|show me|before you|me first|manual\w*"
    r"|by hand|human|person|people|somebody|someone|sign\w*|call|interview\w*|survey\w*)\b"
    r"|[问询]|确认|批准|审批|审核|审阅|同意|许可|征[求得]|商量|讨论|等我|[让由经]我|给我|我来|告诉我|决定|选|挑"
    r"|人工|手动|亲自|本人|签|建议|方案|不清楚|不确定|澄清|核对|过目|反馈",
    re.IGNORECASE,
)
"""Words of a task in which people have a part."""
_HARM = re.compile(
    r"\b(?:delet\w*|remov\w*|eras\w*|drop\w*|destroy\w*|wipe\w*|overwrit\w*|reset\w*|send\w*|e?-?mail\w*"
    r"|pay\w*|buy\w*|purchas\w*|order\w*|transfer\w*|refund\w*|publish\w*|post\w*|releas\w*|push\w*"
    r"|merg\w*|deploy\w*|install\w*|shut ?down|restart\w*|kill\w*|production|book\w*|reserv\w*"
    r"|subscrib\w*|cancel\w*|submit\w*|apply\w*|register\w*|shar(?:e|ing)\w*|upload\w*|grant\w*"
    r"|revok\w*|migrat\w*)\b"
    r"|删|清[空除理]|覆盖|重置|发[送出布给帖]|邮件|付|支付|转账|购买|下单|退款|上线|推送|合并|部署|安装|关机|重启|生产环境"
    r"|预[订定约]|取消|提交|上传|注册|分享|授权|撤销|格式化|迁移",
    re.IGNORECASE,
)


def defer_first_questions(plan: Workflow, prompt: str, risk_words: Sequence[str]) -> Workflow:
    """Drop steps for people that come before any work and that nobody asked for: the task would
    wait without need. Their text goes to the first worker, who can ask the question.

    They stay if the planner's `prompt` mentions people's part, if anything in it or in the plan may
    do harm, and if a later step refers to them.
    """
    first = next((n for n, node in enumerate(plan.nodes) if node.type != NodeType.HUMAN), 0)
    dropped, left = plan.nodes[:first], plan.nodes[first:]
    text = f"{prompt}\n{_words(plan.nodes)}"
    is_wanted = (
        not dropped
        or not is_chain(plan)
        or _PEOPLE_WANTED.search(prompt)
        or _HARM.search(text)
        or find_risk_word(replace(left[0], detail=text), risk_words)
        or _marks_harm(plan)
        or any(re.search(rf"\b{re.escape(node.id)}\b", _words(left)) for node in dropped)
    )
    if is_wanted:
        return plan
    log.info("the plan begins with questions that nobody wants: %s", [n.title for n in dropped])
    asked = "\n".join(f"- {node.title}: {node.detail}".rstrip(": ") for node in dropped)
    detail = f"{left[0].detail}\n\n{_QUESTIONS.format(asked=asked)}".strip()
    return linear_workflow(plan.plan, (replace(left[0], detail=detail), *left[1:]))


_QUESTIONS = """\
The planner wanted the Boss to do this first, and the Boss has not been asked. Do the step without,
and only if that is impossible ask:
{asked}"""


def _marks_harm(plan: Workflow) -> bool:
    """Whether the plan's steps differ in whether they may be repeated. If a planner marks all of
    them alike, it has not judged them.
    """
    return len({node.repeatable for node in plan.nodes}) > 1


def _words(nodes: Sequence[WorkflowNode]) -> str:
    return "\n".join(f"{node.title}\n{node.detail}" for node in nodes)


_MAX_SHORT_TASK = 300


def is_joinable(plan: Workflow, instruction: str) -> bool:
    """Whether a plan should become one step because its model writes tool calls as text. Such
    models are small: they plan the gestures of a person at a screen (open the editor, save), which
    a worker cannot do one by one; and what one step has read, the next has not seen.
    """
    return (
        len(instruction) <= _MAX_SHORT_TASK
        and len(plan.nodes) > 1
        and is_chain(plan)
        and all(node.type == NodeType.TASK for node in plan.nodes)
    )


def one_step_plan(task: Task, reason: str, words: TextCatalog) -> Workflow:
    """A plan with the task itself as its only step, in place of a useless plan. Its worker does not
    see the useless plan, because small models take its promises for work that is done.
    """
    detail = escape_placeholders(task.instruction)
    title = escape_placeholders(formats.truncate(" ".join(task.instruction.split()), MAX_TITLE))
    step = WorkflowNode(id="s1", title=title, detail=detail, type=NodeType.TASK, own_session=True)
    return linear_workflow(words("workflow.one_step", reason=reason), [step])


async def _request_valid_plan(
    ask: ModelRequest,
    send: Callable[[ModelRequest], Awaitable[ModelReply]],
    record_cost: Callable[[ModelReply], Awaitable[None]],
    words: TextCatalog,
) -> tuple[ModelReply, Workflow]:
    reply = await send(ask)
    answer = _plan_answer(reply)
    try:
        return reply, plan_from_answer(answer)
    except InvalidGraph as bad:
        log.info("the plan is invalid: %s", bad)
        faults = format_issues(bad.issues, catalog_for(Language.ENGLISH))
    await record_cost(reply)
    again = await send(replace(ask, prompt=prompts.plan_retry_prompt(ask.prompt, faults)))
    second = _plan_answer(again)
    try:
        return again, plan_from_answer(second)
    except InvalidGraph as bad:
        log.warning("the second plan is invalid, too: %s", bad)
        simple = plan_from_steps(second) or plan_from_steps(answer)
        if simple is not None:
            return again, simple
        faults = format_issue(bad.issues[0], words)
    await record_cost(again)
    raise UnreadablePlan("the plan is invalid", faults)


def _plan_answer(reply: ModelReply) -> PlanAnswer:
    answer = reply.result.value
    assert isinstance(answer, PlanAnswer)
    return answer
