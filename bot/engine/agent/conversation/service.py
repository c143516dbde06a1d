"""Answers chat messages in one model session per chat and proposes tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.engine.agent.budget import request_cap_extension
from bot.engine.agent.conversation.chat_files import (
    CaptionedPictures,
    ImageCaptioner,
    IncomingFiles,
    OutputFiles,
    collect_output_files,
    snapshot_workspace,
    unpack_files,
)
from bot.engine.agent.conversation.model_choice import AutoModelChoice, choose_model
from bot.engine.agent.conversation.turn_taking import (
    AnswerSoFar,
    ConversationExpiry,
    PrepareCommit,
    StoppedMessages,
    ToolCallSuspension,
    TurnQueue,
)
from bot.engine.agent.model_calls import ModelReply, ModelRequest, can_resume
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.answer_schemas import PROPOSE_TASK
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    BudgetExceeded,
    ImageInput,
    RunLimits,
    RunPurpose,
    SelectedBackend,
)
from bot.engine.llm.tool_calls import AgentTool, CallKind, object_schema
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import CostAccount, WorkerSpec
from cards import formats
from cards.catalog import catalog_for
from handlers.errors import BackendFailure
from handlers.ports import (
    AnswerStream,
    ChatAnswer,
    ChatQuestion,
    ConversationState,
    InterruptedMessage,
    TaskProposal,
)
from storage.db import Database, retry_until_stored
from storage.heartbeat import HeartbeatRepo
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.records.approvals import Approval
from storage.records.people import ChatId, Language
from storage.records.system import ModelChoice
from storage.records.tasks import TaskPriority
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo, chat_session_key

if TYPE_CHECKING:
    from bot.engine.agent.request_check import RequestCheck

_PROPOSAL_SCHEMA: Mapping[str, Any] = object_schema(
    "title",
    "task",
    title="A short title, in the Boss's language.",
    task="The whole task, so that a worker who has not read this chat can do it.",
    priority={"type": "string", "enum": ["urgent", "important", "normal"]},
    when="Only for something at a set time or repeated: the Boss's own words, “every Monday at 9”.",
    at="With `when`, if it happens once: the local time, 2026-03-31T09:00.",
    cron="With `when`, if it repeats: five cron fields in local time.",
    reminder={"type": "boolean", "description": "With `when`: only remind the Boss of `task`."},
)
_MAX_WHEN_CHARS = 100


def propose_task_tool(question: ChatQuestion, proposals: list[TaskProposal]) -> AgentTool:
    """Build the tool that appends to `proposals`; a person decides whether the task starts."""

    async def run(arguments: Mapping[str, Any]) -> str:
        proposals.append(
            TaskProposal(
                title=str(arguments["title"]),
                text=str(arguments["task"]) or question.text,
                priority=TaskPriority.parse(str(arguments.get("priority", "")))
                or TaskPriority.IMPORTANT,
                requested_time=str(arguments.get("when", ""))[:_MAX_WHEN_CHARS],
                computed_time=str(arguments.get("at") or arguments.get("cron") or "")[
                    :_MAX_WHEN_CHARS
                ],
                is_reminder=arguments.get("reminder") is True,
            )
        )
        return "The Boss is being asked. Say nothing more now."

    return AgentTool(
        name=PROPOSE_TASK,
        description="Ask the Boss, by button, whether to start this as a task.",
        schema=_PROPOSAL_SCHEMA,
        run=run,
        in_memory=True,
    )


log = logging.getLogger(__name__)

_MAX_CALLS = 12
"""Model calls per answer, including those between tool calls."""
_MAX_TRIES = 3
_RETRY_DELAY = 1.0
_MAX_RETRY_DELAY = 15.0
"""Seconds; longer delays requested by a service are reported at once because a person is
waiting."""

_MAX_TITLE_CHARS = 120
_MAX_LISTED_FILES = 5
_STOPPED_PREFIX = "[Sent just before; your answer to it was stopped: “{text}”]\n"
_INTERRUPTED_PREFIX = (
    "[Sent just before and not answered yet; answer it together with this message: “{text}”]\n"
)
_TOLD_PREFIX = "[At {at}, looking through HEARTBEAT.md by yourself, you told the Boss: “{text}”]\n"
_TOLD_WITHIN = timedelta(days=1)
_MAX_TOLD, _MAX_TOLD_CHARS = 3, 1000
_FORWARDED = "[Forwarded by the person; somebody else's words:]\n"
_MISSING_FILES = (
    "\n\n[The Boss sent these files too, but they could not be fetched, and the Boss was told so;"
    " you do not have them: {names}]"
)
_MAX_FILE_NAME = 120
_MAX_INTERRUPTED_CHARS = 8000
"""Of earlier messages that are answered together with one; longer ones are answered alone."""

_SYSTEM = """\
You are Shiftboss, the foreman of a team of AI workers, talking with your Boss in a chat. Be
short, concrete and kind. If the Boss asks for work that leaves a result behind (something to
make, change, find out, write or watch), call the tool propose_task once and say nothing more:
the Boss then decides by button. Answer questions and small talk yourself. Files that you make or
change in your workspace, or name in your answer, go to the Boss with it; what the Boss sent lies
in its folder inbox. {language}"""

_LANGUAGE = {
    Language.CHINESE: "Answer in Simplified Chinese unless the Boss writes in another language.",
    Language.ENGLISH: "Answer in English unless the Boss writes in another language.",
}


class ConversationService:
    """Satisfies `handlers.ports.ChatPort`."""

    def __init__(
        self,
        *,
        db: Database,
        sessions: SessionRepo,
        gateway: ModelGateway,
        data_dir: Path,
        context_builder: WorkerContextBuilder,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        ids: IdGenerator,
        approval_lifetime: timedelta,
        turn_queue: TurnQueue,
        auto_choice: AutoModelChoice,
        captioner: ImageCaptioner,
        suspension: ToolCallSuspension,
        expiry: ConversationExpiry,
    ) -> None:
        """`approval_lifetime` limits how long a cap extension request stays open."""
        self._db = db
        self._sessions = sessions
        self._gateway = gateway
        self._data_dir = data_dir
        self._context_builder = context_builder
        self._now = now
        self._sleep = sleep
        self._ids = ids
        self._approval_lifetime = approval_lifetime
        self._turn_queue = turn_queue
        self._auto_choice = auto_choice
        self._captioner = captioner
        self._suspension = suspension
        self._expiry = expiry
        self._stopped = StoppedMessages(KeyValueStore(db))
        self._heartbeat_runs = HeartbeatRepo(db)

    async def answer(
        self,
        question: ChatQuestion,
        stream: AnswerStream,
        prepare_commit: PrepareCommit | None = None,
    ) -> ChatAnswer:
        try:
            async with self._turn_queue.exclusive(question.chat.id):
                instead, begun = None, self._now()
                while True:
                    try:
                        return await self._answer(question, stream, prepare_commit, instead)
                    except BackendError as error:
                        session = await self._sessions.find_open(chat_session_key(question.chat.id))
                        if session is None:
                            raise
                        instead = await self._select_next(question, error, session, begun)
                        if instead is None:
                            raise
        except BudgetExceeded as error:
            approval = await self._request_cap_extension(question, error)
            raise BackendFailure(error.hint, approval=approval) from error
        except BackendError as error:
            raise BackendFailure(error.hint) from error

    async def resume_answer(
        self, question: ChatQuestion, prepare_commit: PrepareCommit
    ) -> ChatAnswer:
        """Satisfies `ResumableConversation`."""

        async def unseen(_text: str) -> None:
            """Resumed answers are posted when complete, not streamed."""

        return await self.answer(question, unseen, prepare_commit)

    def interrupt(self, chat_id: ChatId) -> bool:
        return self._turn_queue.interrupt(chat_id)

    def on_new_message(self, chat_id: ChatId, mode: str, *, may_interrupt: bool = True) -> bool:
        return self._turn_queue.on_new_message(chat_id, mode, may_interrupt=may_interrupt)

    def queues_messages(self, mode: str) -> bool:
        return self._turn_queue.queues_messages(mode)

    async def reset(self, chat_id: ChatId) -> bool:
        self.interrupt(chat_id)
        await self._stopped.clear(chat_id)
        closed = await self._gateway.close_session(chat_session_key(chat_id))
        self._suspension.wake()
        return closed

    async def state(self, chat_id: ChatId) -> ConversationState | None:
        session = await self._sessions.find_open(chat_session_key(chat_id))
        if session is None:
            return None
        return ConversationState(
            turns=session.turns,
            model=ModelChoice(backend=session.backend, model=session.model),
            started_at=session.started_at,
            last_used_at=session.last_used_at,
        )

    async def _answer(
        self,
        question: ChatQuestion,
        show: AnswerStream,
        keep: PrepareCommit | None,
        instead: SelectedBackend | None,
    ) -> ChatAnswer:
        """`instead` takes over after another backend failed."""
        shown = AnswerSoFar(question, show, self._now())
        workspace = self._workspace(question.chat.id)
        incoming = await unpack_files(
            self._data_dir, question.files, workspace, boundary=self._ids.token()
        )
        persona = await self._context_builder.personas.get(question.chat.settings.persona)
        chosen = instead or await self._select_backend(
            question, persona, pictures=bool(incoming.pictures)
        )
        session = await self._open_session(question, chosen, persona.name)
        there = await snapshot_workspace(workspace)
        requested = await _look_at_files(question, session, workspace, shown.begun)

        captioned = await self._captioner.prepare(
            self._new_pictures(question, session, incoming),
            chosen,
            text=question.text,
            account=_cost_account(question),
            language=question.language,
        )
        ask = await self._build_request(shown, session, persona)
        ask = replace(
            ask,
            prompt=ask.prompt + incoming.prompt_text + captioned.prompt_text,
            pictures=captioned.pictures,
        )
        work = asyncio.create_task(
            self._call_with_retries(ask, chosen, session, shown),
            name=f"answer in {question.chat.id}",
        )
        reply, superseded = await self._await_reply(question, work)
        if reply is None:
            return await self._interrupted_answer(question, shown.text, superseded=superseded)
        text = reply.result.text
        into = f"files/chats/{question.chat.id}/{question.source.replace(':', '-')}"
        files = await collect_output_files(there, workspace, text, home=self._data_dir, target=into)
        answered = ChatAnswer(
            text=text,
            proposal=next(iter(shown.proposals), None),
            files=files.files,
            sizes=files.sizes,
            notes=(
                *_answer_notes(question.language, chosen, reply, captioned, files),
                *await _file_notes(reply, shown, requested),
                *dict.fromkeys(shown.notices),
            ),
            model=reply.result.model or chosen.backend.name,
            seconds=(self._now() - shown.begun).total_seconds(),
            joined=tuple(each.source for each in _joined(question)),
        )
        await self._record_answer(shown, reply, answered, keep)
        return answered

    async def _interrupted_answer(
        self, question: ChatQuestion, shown: str, *, superseded: bool
    ) -> ChatAnswer:
        """Keep the message for the next turn, unless it is answered together with the newer one
        because nothing of its answer was shown."""
        if shown.strip() or not superseded:
            await self._stopped.save(question.chat.id, question.text)
        return ChatAnswer(text=shown, interrupted=True, superseded=superseded)

    def _new_pictures(
        self, question: ChatQuestion, session: ModelSession, incoming: IncomingFiles
    ) -> Sequence[ImageInput]:
        """Return the pictures of the question; none if its turn continues, which has them."""
        if can_resume(session, _turn_key(question)):
            return ()
        return incoming.pictures

    async def _await_reply(
        self, question: ChatQuestion, work: asyncio.Task[ModelReply]
    ) -> tuple[ModelReply | None, bool]:
        """None if the answer was interrupted, with whether that was for a newer message."""
        async with self._turn_queue.track(question.chat.id, work) as turn:
            try:
                return await work, False
            except asyncio.CancelledError:
                if not turn.interrupted:
                    # Shiftboss itself is stopping; no person interrupted this answer.
                    work.cancel()
                    with suppress(asyncio.CancelledError, BackendError):
                        await work
                    raise
                return None, turn.superseded

    async def _call_with_retries(
        self,
        ask: ModelRequest,
        chosen: SelectedBackend,
        session: ModelSession,
        shown: AnswerSoFar,
    ) -> ModelReply:
        """Retry an unreachable model a few times if no other can answer."""
        for attempt in range(_MAX_TRIES - 1):
            try:
                return await self._gateway.call_model(ask, chosen, session, shown.watch)
            except BackendUnavailable as error:
                wait = max(_RETRY_DELAY * 2**attempt, error.retry_after or 0.0)
                instead = await self._select_next(shown.question, error, session, shown.begun)
                if instead is not None or wait > _MAX_RETRY_DELAY:
                    raise
            shown.clear()
            await self._sleep(wait)
        return await self._gateway.call_model(ask, chosen, session, shown.watch)

    async def _record_answer(
        self,
        shown: AnswerSoFar,
        reply: ModelReply,
        answered: ChatAnswer,
        keep: PrepareCommit | None,
    ) -> None:
        """Record the turn, its approval request and the answer in one transaction."""
        # The answer is paid for, so wait for the store instead of calling the model again.
        chat = shown.question.chat.id
        await retry_until_stored(
            lambda: self._commit_answer(shown, reply, answered, keep),
            self._sleep,
            f"an answer in {chat}",
        )
        await self._stopped.clear(chat)
        if reply.resumed or reply.result.suspended:
            self._suspension.wake()

    async def _commit_answer(
        self,
        shown: AnswerSoFar,
        reply: ModelReply,
        answered: ChatAnswer,
        keep: PrepareCommit | None,
    ) -> None:
        kept = await keep(answered) if keep is not None else None
        async with self._db.write() as tx:
            await self._gateway.record_reply(tx, reply)
            if shown.last_told is not None:
                await self._heartbeat_runs.mark_known(
                    tx, shown.last_told, chat=shown.question.chat.id, session_id=reply.session.id
                )
            if reply.result.suspended:
                await self._suspension.request_approval(tx, reply.session.id)
            if kept is not None:
                await kept(tx)

    async def _select_next(
        self, question: ChatQuestion, error: BackendError, session: ModelSession, begun: datetime
    ) -> SelectedBackend | None:
        """Return the backend that continues the answer started at `begun`, or None."""
        return await self._gateway.select_next(
            error, session, since=begun, keeps_history=question.is_continuation
        )

    async def _select_backend(
        self, question: ChatQuestion, persona: Persona, *, pictures: bool
    ) -> SelectedBackend:
        """A continuation keeps the backend of its session, whatever was chosen since."""
        if not question.is_continuation:
            return choose_model(
                self._gateway, self._auto_choice, question, persona, pictures=pictures
            )
        session = await self._sessions.find_open(chat_session_key(question.chat.id))
        if session is None:
            raise BackendDenied("the conversation has ended")
        return self._gateway.select_backend(
            session.model, session.backend, persona.fallbacks, keeps_history=True
        )

    async def _request_cap_extension(
        self, question: ChatQuestion, error: BudgetExceeded
    ) -> Approval:
        now = self._now()
        async with self._db.write() as tx:
            return await request_cap_extension(
                tx,
                error.cap,
                task=None,
                chat_id=question.chat.id,
                title=formats.truncate(question.text, _MAX_TITLE_CHARS),
                ids=self._ids,
                now=now,
                expires_at=now + self._approval_lifetime,
            )

    def _workspace(self, chat_id: ChatId) -> Path:
        return self._data_dir / "workspaces" / f"chat-{chat_id}"

    async def _open_session(
        self, question: ChatQuestion, chosen: SelectedBackend, persona: str
    ) -> ModelSession:
        key = chat_session_key(question.chat.id)
        session = await self._sessions.find_open(key)
        goes_on = question.is_continuation or (
            session is not None and can_resume(session, _turn_key(question))
        )
        if session is not None and question.is_continuation:
            persona = session.persona
        if session and not goes_on and self._expiry.has_expired(session, self._now()):
            await self._gateway.close_session(key)
        return await self._gateway.open_session(key, chosen, persona=persona)

    async def _build_request(
        self, shown: AnswerSoFar, session: ModelSession, persona: Persona
    ) -> ModelRequest:
        question = shown.question
        before = await self._stopped.get(question.chat.id)
        remembers = question.is_continuation or bool(session.open_turn)
        told = "" if remembers else await self._describe_told(shown, session)
        lost = "" if remembers else await self._suspension.describe_lost_calls(session)
        spec = WorkerSpec(
            account=_cost_account(question),
            session=session,
            language=question.language,
            workspace=self._workspace(question.chat.id),
            persona=persona.name,
            mode=persona.default_mode,
            request_text=question.text,
            turn_key=question.source,
            skill=question.skill,
            uses_memory=not question.chat.settings.memory_off,
        )
        context = await self._context_builder.build(spec)
        proposing = () if question.no_proposal else (propose_task_tool(question, shown.proposals),)
        return ModelRequest(
            purpose=RunPurpose.CHAT,
            prompt=(f"{question.brief}\n\n" if question.brief else "")
            + (_STOPPED_PREFIX.format(text=before) if before else "")
            + "".join(_INTERRUPTED_PREFIX.format(text=each.text) for each in _joined(question))
            + (f"{lost}\n\n" if lost else "")
            + told
            + context.prompt_prefix
            + (_FORWARDED if question.forwarded else "")
            + question.text
            + _missing_files_text(question),
            system_prompt=_SYSTEM.format(language=_LANGUAGE[question.language])
            + (f"\n\n{context.system_prompt}" if context.system_prompt else ""),
            language=question.language,
            account=spec.account,
            workspace=spec.workspace,
            facts={"text": question.text},
            mode=spec.mode,
            persona=spec.persona,
            tools=(*proposing, *context.tools),
            permit=context.permit,
            mcp_servers=context.mcp_servers,
            limits=context.persona.limits.apply(RunLimits(turns=_MAX_CALLS)),
            resume_prompt="" if question.is_continuation else None,
            turn_key=_turn_key(question),
        )

    async def _describe_told(self, shown: AnswerSoFar, session: ModelSession) -> str:
        """News of the heartbeat that the session does not know; empty if there are none."""
        told = await self._heartbeat_runs.list_unknown(
            chat=shown.question.chat.id,
            session_id=session.id,
            since=self._now() - _TOLD_WITHIN,
            limit=_MAX_TOLD,
        )
        shown.last_told = told[-1] if told else None
        return "".join(
            _TOLD_PREFIX.format(
                at=(each.ended_at or each.started_at).isoformat(timespec="minutes"),
                text=formats.truncate(each.text, _MAX_TOLD_CHARS),
            )
            for each in told
        )


def _joined(question: ChatQuestion) -> Sequence[InterruptedMessage]:
    """The interrupted messages that are answered too: the newest, as far as they fit."""
    sizes = accumulate(len(each.text) for each in reversed(question.interrupted))
    fitting = sum(1 for size in sizes if size <= _MAX_INTERRUPTED_CHARS)
    return question.interrupted[len(question.interrupted) - fitting :]


def _missing_files_text(question: ChatQuestion) -> str:
    shown = [formats.single_line(name, _MAX_FILE_NAME) for name in question.missing_files]
    names = ", ".join(f"“{name}”" for name in shown)
    return _MISSING_FILES.format(names=names) if names else ""


def _cost_account(question: ChatQuestion) -> CostAccount:
    return CostAccount(person=question.person.id, chat=question.chat.id, turn=question.source)


def _answer_notes(
    language: Language,
    chosen: SelectedBackend,
    reply: ModelReply,
    captioned: CaptionedPictures,
    files: OutputFiles,
) -> tuple[str, ...]:
    words = catalog_for(language)
    notice = chosen.fallback_notice
    why = words(chosen.fallback_reason) if chosen.fallback_reason else ""
    names = ", ".join(files.skipped[:_MAX_LISTED_FILES])
    questions = [each for each in reply.result.suspended if each.kind is CallKind.ASK]
    notes = (
        words("backend.fell_back", **{**notice.facts, "why": why}) if notice else "",
        words("tools.asked" if questions else "tools.waits") if reply.result.suspended else "",
        words("talk.cut") if reply.result.truncated else "",
        words("talk.unseen") if captioned.uncaptioned else "",
        words("talk.left_out", names=names, n=len(files.skipped)) if names else "",
    )
    return tuple(note for note in notes if note)


async def _look_at_files(
    question: ChatQuestion, session: ModelSession, workspace: Path, begun: datetime
) -> RequestCheck:
    goes_on = question.is_continuation or can_resume(session, _turn_key(question))
    since = None if goes_on else begun
    from bot.engine.agent.request_check import RequestCheck  # many patterns: on first use

    return await RequestCheck.before(workspace, question.text, since=since)


async def _file_notes(
    reply: ModelReply, shown: AnswerSoFar, requested: RequestCheck
) -> tuple[str, ...]:
    """Say which files an answer was to write and did not, unless it goes on later."""
    if reply.result.suspended or shown.proposals:
        return ()
    return (await requested.find_problems(reply.result.text)).describe(shown.words)


def _turn_key(question: ChatQuestion) -> str:
    """Empty for a continuation: what repeats it are its suspended calls, and they stay so until
    the whole turn is stored."""
    return "" if question.is_continuation else f"chat {question.source}"
