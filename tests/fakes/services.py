"""Fakes of the handlers' ports: they keep the ports' promises and record what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cards.model import Card
from handlers.errors import ActionForbidden
from handlers.ports import (
    AnswerStream,
    ChatAnswer,
    ChatQuestion,
    ConversationState,
    FolderRejected,
    FolderRejection,
    HandlerServices,
)
from handlers.ports_workers import HistoryLine, HistoryResult, TranscriptExport
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
    StandingPermission,
    ToolCallRecord,
)
from storage.records.autonomy import HealthFinding
from storage.records.channels import (
    ChannelState,
    FeishuApp,
    FeishuSetup,
    FeishuStepState,
    OwnerCode,
    SetupSession,
    TelegramConnection,
    TelegramResult,
)
from storage.records.memory import MemoryEntry
from storage.records.messages import IncomingMessage, ReceivedEvent
from storage.records.people import (
    AccountLink,
    ApiToken,
    Channel,
    Chat,
    ChatId,
    ChatKind,
    Language,
    Member,
    PairingRequest,
    PairingState,
    Person,
    PersonId,
    PersonRole,
    WebKeyKind,
    WebLink,
    WebSession,
)
from storage.records.system import (
    BackendHealth,
    BackendReport,
    ModelChoice,
    ModelConnection,
    ModelSetup,
    SystemFigures,
    SystemStatus,
)
from storage.records.tasks import FolderKind, Task, TaskId
from storage.records.traces import Trace
from storage.records.usage import CostQuery, CostReport, TaskCost
from storage.records.workers import (
    ContextPart,
    ContextPartState,
    McpConsent,
    McpServerStatus,
    PersonaList,
    SessionInfo,
    SignInFailed,
    SignOut,
)
from tests.builders import (
    GPT,
    HAIKU,
    NOW,
    OFFLINE,
    OPUS,
    make_approval,
    make_chat,
    make_cost_report,
    make_person,
    make_roster,
    make_session,
    make_system_status,
    make_trace,
)
from tests.fakes.bitable import FakeBitable
from tests.fakes.cards import FakeCardStore
from tests.fakes.heartbeat import FakeHeartbeat
from tests.fakes.memory import FakeMemory
from tests.fakes.prompts import FakePrompts
from tests.fakes.reports import FakeReports
from tests.fakes.schedules import FakeSchedules, make_schedule
from tests.fakes.self_check import FakeDoctor, FakeDrive, FakeSelfCheck, FakeSettings
from tests.fakes.skills import FakeSkills
from tests.fakes.task_journal import FakeTaskJournal
from tests.fakes.tasks import FakeTasks
from tests.fakes.triggers import FakeTriggers
from tests.fakes.workflows import FakeWorkflows


class FakeHeldMessages:
    """Chats with a number of held messages each."""

    def __init__(self) -> None:
        self.counts: dict[ChatId, int] = {}
        self.released: list[ChatId] = []
        self.dropped: list[ChatId] = []

    async def release(self, chat_id: ChatId) -> int:
        self.released.append(chat_id)
        return self.counts.pop(chat_id, 0)

    async def drop(self, chat_id: ChatId) -> int:
        self.dropped.append(chat_id)
        return self.counts.pop(chat_id, 0)


class FakeInboxLog:
    """Events in the order they arrived."""

    def __init__(self) -> None:
        self.events: list[ReceivedEvent] = []

    async def list_recent(self, limit: int) -> Sequence[ReceivedEvent]:
        return self.events[::-1][:limit]


class FakeConversations:
    """Answers with `answers` in turn, showing each word as it comes; `during` is called while
    an answer is being made."""

    def __init__(self, *answers: ChatAnswer | BaseException) -> None:
        self.answers = list(answers)
        self.questions: list[ChatQuestion] = []
        self.interrupted: list[ChatId] = []
        self.ended: list[ChatId] = []
        self.busy = False
        self.on_answer: Callable[[], None] = lambda: None
        self.states: dict[ChatId, ConversationState] = {}

    async def answer(self, question: ChatQuestion, stream: AnswerStream) -> ChatAnswer:
        self.questions.append(question)
        self.on_answer()
        answer = self.answers.pop(0) if self.answers else ChatAnswer(text="Fine.")
        if isinstance(answer, BaseException):
            raise answer
        sofar = ""
        for word in answer.text.split():
            sofar = f"{sofar} {word}".strip()
            await stream(sofar)
        return answer

    def interrupt(self, chat_id: ChatId) -> bool:
        self.interrupted.append(chat_id)
        return self.busy

    def on_new_message(self, chat_id: ChatId, mode: str, *, may_interrupt: bool = True) -> bool:
        if self.queues_messages(mode) or not may_interrupt:
            return self.busy
        self.interrupt(chat_id)
        return False

    def queues_messages(self, mode: str) -> bool:
        return mode == "wait"

    async def reset(self, chat_id: ChatId) -> bool:
        self.ended.append(chat_id)
        return self.states.pop(chat_id, None) is not None

    async def state(self, chat_id: ChatId) -> ConversationState | None:
        return self.states.get(chat_id)


class FakeModelSetup:
    """Takes whatever is to be connected."""

    def __init__(self) -> None:
        self.connected: list[ModelConnection] = []

    async def get_setup(self) -> ModelSetup:
        return ModelSetup(
            revision="1",
            choice=OFFLINE,
            kind=None,
            with_key=frozenset(),
            base_urls={},
            clis=(),
        )

    async def connect(self, new: ModelConnection, *, by: Person) -> HealthFinding:
        self.connected.append(new)
        return HealthFinding(text="model_answers", points=0, facts={"model": new.model, "ms": 1})


class FakeFeishuSetup:
    """No app and no code."""

    async def get_setup(self, session: SetupSession) -> FeishuSetup:
        return FeishuSetup(app_id="", domain="https://open.feishu.cn", is_lark=False)

    async def show_code(self, session: SetupSession) -> FeishuSetup:
        return await self.get_setup(session)

    async def cancel(self, session: SetupSession) -> None: ...

    async def save_again(self, session: SetupSession) -> None: ...

    async def connect(self, new: FeishuApp) -> HealthFinding | None:
        return None

    async def check(self) -> Sequence[FeishuStepState]:
        return ()


class FakeChannelSetup:
    """No chat platform, and no code."""

    async def get_channels(self) -> Sequence[ChannelState]:
        return ()

    async def connect_telegram(self, new: TelegramConnection, *, by: Person) -> TelegramResult:
        return TelegramResult(findings=())

    async def check(self, channel: Channel) -> Sequence[HealthFinding]:
        return ()

    async def disconnect(self, channel: Channel, *, seen: str = "") -> None: ...

    async def create_owner_code(self, channel: Channel, *, by: Person) -> OwnerCode:
        raise NotFound("channel", channel.value)

    async def claim_owner_code(self, code: str, said: IncomingMessage, *, now: datetime) -> bool:
        return False


class FakeModels:
    def __init__(self, *choices: ModelChoice) -> None:
        self._choices = choices or (OFFLINE, OPUS, HAIKU, GPT)
        self.facts: dict[str, str] = {}
        self.clis: set[str] = set()
        self.instead = ""

    @property
    def default(self) -> ModelChoice:
        return self._choices[0]

    def list_choices(self) -> Sequence[ModelChoice]:
        return self._choices

    def resolve_choice(self, name: str) -> ModelChoice | None:
        wanted = name.casefold()
        names = {"opus": OPUS, "haiku": HAIKU}
        for choice in self._choices:
            if wanted in {choice.name, choice.model, choice.backend} - {""}:
                return choice
        return names.get(wanted) if names.get(wanted) in self._choices else None

    async def get_health(self, name: str) -> BackendHealth | None:
        choice = self.resolve_choice(name)
        if choice is None:
            return None
        return BackendHealth(
            name=choice.backend,
            problem=choice.problem,
            facts=self.facts,
            is_cli=choice.backend in self.clis,
            fallback=self.instead,
        )

    async def report(self, name: str = "") -> BackendReport | None:
        choice = self.resolve_choice(name) if name else None
        if name and choice is None:
            return None
        names = {each.backend: each.problem for each in ((choice,) if choice else self._choices)}
        backends = tuple(BackendHealth(name=each, problem=names[each]) for each in names)
        return BackendReport(backends=backends, default=self._choices[0].name)


class FakePeople:
    """`identities` maps (channel, external id) to people; `failure` is raised at the door."""

    def __init__(self) -> None:
        self.identities: dict[tuple[Channel, str], Person] = {}
        self.chats: dict[ChatId, Chat] = {}
        self.languages_set: list[tuple[PersonId, Language]] = []
        self.failure: Exception | None = None

    def add(self, person: Person, chat: Chat, *, external_id: str = "") -> None:
        self.identities[chat.channel, external_id or f"x-{person.id}"] = person
        self.chats.setdefault(chat.id, chat)

    async def find_by_account(self, channel: Channel, external_id: str) -> Person | None:
        if self.failure:
            raise self.failure
        return self.identities.get((channel, external_id))

    async def get(self, person_id: PersonId) -> Person:
        for person in self.identities.values():
            if person.id == person_id:
                return person
        raise NotFound("person", person_id)

    async def get_chat(self, chat_id: ChatId) -> Chat:
        try:
            return self.chats[chat_id]
        except KeyError:
            raise NotFound("chat", chat_id) from None

    async def private_chats(self, role: PersonRole) -> Sequence[Chat]:
        having = {person.id for person in self.identities.values() if person.role is role}
        return [
            chat
            for chat in self.chats.values()
            if chat.kind is ChatKind.PRIVATE and chat.person_id in having
        ]

    async def update_chat_settings(self, chat: Chat, **changes: Any) -> Chat:
        self.chats[chat.id] = replace(chat, settings=replace(chat.settings, **changes))
        return self.chats[chat.id]

    async def set_language(self, person: Person, language: Language) -> None:
        self.languages_set.append((person.id, language))
        for key, known in self.identities.items():
            if known.id == person.id:
                self.identities[key] = replace(known, language=language)

    def promote(self, person_id: PersonId) -> None:
        for key, known in self.identities.items():
            if known.id == person_id:
                self.identities[key] = replace(known, role=PersonRole.OWNER)

    async def list_members(self) -> Sequence[Member]:
        return [
            Member(person=person, accounts=(key,), is_local_web_owner=key[0] is Channel.WEB)
            for key, person in sorted(
                self.identities.items(), key=lambda item: item[1].role is not PersonRole.OWNER
            )
        ]

    async def demote(self, person_id: PersonId) -> bool:
        if not self._dispensable(person_id):
            return False
        for key, known in self.identities.items():
            if known.id == person_id:
                self.identities[key] = replace(known, role=PersonRole.MEMBER)
        return True

    async def remove(self, person_id: PersonId) -> Sequence[ChatId] | None:
        if not self._dispensable(person_id):
            return None
        self.identities = {
            key: known for key, known in self.identities.items() if known.id != person_id
        }
        return [chat.id for chat in self.chats.values() if chat.person_id == person_id]

    def _dispensable(self, person_id: PersonId) -> bool:
        others = [each for each in self.identities.values() if each.id != person_id]
        return any(each.role is PersonRole.OWNER for each in others)


class FakeApprovals:
    """`decisions` lists (id, approve, reason, by) as they were taken."""

    def __init__(self, *approvals: Approval) -> None:
        self.all = {approval.id: approval for approval in approvals}
        self.decisions: list[tuple[str, bool, str, PersonId]] = []

    async def list_waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        return [
            each
            for each in self.all.values()
            if each.state is ApprovalState.WAITING
            and chat in {None, each.chat_id}
            and self._may(by, each)
        ]

    async def list_settled(self, *, by: Person, limit: int) -> Sequence[Approval]:
        settled = [each for each in self.all.values() if each.state is not ApprovalState.WAITING]
        return settled[::-1][:limit]

    async def find(self, prefix: str) -> Approval:
        found = [each for each in self.all.values() if each.id.startswith(prefix.casefold())]
        if not found or not prefix:
            raise NotFound("approval", prefix)
        if len(found) > 1:
            raise AmbiguousId(prefix, tuple(each.id for each in found))
        return found[0]

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> Approval:
        current = self.all[approval.id]
        if not self._may(by, current):
            raise ActionForbidden
        if current.state is not ApprovalState.WAITING:
            raise WrongState("approval", current.id, current.state)
        self.decisions.append((approval.id, approve, reason, by.id))
        self.all[approval.id] = replace(
            current,
            state=ApprovalState.APPROVED if approve else ApprovalState.REJECTED,
            decided_by=by.id,
            decided_at=NOW,
            reason=reason,
            payload={**current.payload, "reach": scope, "values": values}
            if scope or values
            else current.payload,
        )
        return self.all[approval.id]

    def _may(self, by: Person, approval: Approval) -> bool:
        return by.id in approval.approvers if approval.approvers else by.role is PersonRole.OWNER


class FakeStandingPermissions:
    def __init__(self) -> None:
        self.held: list[StandingPermission] = []
        self.made: list[ToolCallRecord] = []

    async def list_grants(self) -> Sequence[StandingPermission]:
        return self.held

    async def revoke(self, number: int) -> bool:
        before = len(self.held)
        self.held = [each for each in self.held if each.id != number]
        return len(self.held) < before

    async def list_calls(self, task_id: TaskId, limit: int) -> Sequence[ToolCallRecord]:
        return [each for each in self.made if each.task_id == task_id][-limit:]


class FakeAccountLinks:
    """Nobody is linked, and no code works."""

    async def create_code(self, person: Person, chat: ChatId) -> tuple[str, datetime]:
        return "23456789", NOW + timedelta(minutes=10)

    async def use_code(self, code: str, person: Person, chat: ChatId) -> Approval:
        raise NotFound("link_code", code)

    async def unlink(self, joined: PersonId) -> AccountLink:
        raise NotFound("account", joined)

    async def revoke(self, channel: Channel, external_id: str, *, session: str = "") -> AccountLink:
        raise NotFound("account", external_id)

    async def list_choices(self, person: PersonId) -> Sequence[tuple[MemoryEntry, MemoryEntry]]:
        return ()

    async def choose(self, person: PersonId, entry_id: str, *, both: bool) -> None:
        raise NotFound("memory_choice", entry_id)

    async def list_untold(self) -> Sequence[AccountLink]:
        return ()

    async def mark_told(self, link: AccountLink) -> None: ...

    async def list_chats(self, link: AccountLink) -> Sequence[Chat]:
        return ()


class FakePairings:
    """Codes are `CODE1`, `CODE2`, … in the order of asking."""

    def __init__(self, approvals: FakeApprovals) -> None:
        self._approvals = approvals
        self.all: dict[str, PairingRequest] = {}
        self.request_count = 0

    async def get_or_create(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[PairingRequest, bool]:
        self.request_count += 1
        for pairing in self.all.values():
            if (pairing.channel, pairing.external_id) == (channel, external_id):
                return pairing, False
        pairing = PairingRequest(
            code=f"CODE{len(self.all) + 1}",
            channel=channel,
            external_id=external_id,
            name=name,
            chat_id=chat_id,
            state=PairingState.PENDING,
            created_at=now,
            expires_at=now + timedelta(hours=1),
        )
        self.all[pairing.code] = pairing
        approval = replace(
            make_approval(f"pair{len(self.all)}", ApprovalKind.PAIRING, subject=pairing.code),
            chat_id=chat_id,
            title=name,
            detail="",
        )
        self._approvals.all[approval.id] = approval
        return pairing, True

    async def find(self, code: str, *, now: datetime) -> PairingRequest:
        try:
            return self.all[code.upper()]
        except KeyError:
            raise NotFound("pairing", code) from None

    async def get_approval(self, pairing: PairingRequest) -> Approval:
        return next(each for each in self._approvals.all.values() if each.subject == pairing.code)


class FakeCosts:
    """Knows of one model, `opus`; `asked` are the queries."""

    def __init__(self) -> None:
        self.queries: list[CostQuery] = []

    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        query = query or CostQuery()
        self.queries.append(query)
        report = make_cost_report(query)
        return report if query.model in "opus" else replace(report, models=())

    async def report_task(self, task: Task) -> TaskCost:
        report = make_cost_report()
        return TaskCost(task=task, total=report.total, models=report.models)


class FakeSystem:
    def __init__(self) -> None:
        self.unnamed_owner = ""

    async def status(self, *, by: Person) -> SystemStatus:
        return replace(make_system_status(), unlisted_owner=self.unnamed_owner)

    async def get_figures(self) -> SystemFigures:
        raise NotImplementedError


class FakeProjects:
    """`folders` are those that may be worked in, with True for those in git."""

    def __init__(self, folders: dict[str, bool] | None = None) -> None:
        self.folders = folders or {}
        self.not_adopted: set[str] = set()

    async def resolve_folder(self, path: str) -> str:
        if not path.startswith("/"):
            raise FolderRejected(FolderRejection.RELATIVE, path)
        if path not in self.folders:
            raise FolderRejected(FolderRejection.MISSING, path)
        return path

    async def folder_kind(self, folder: str) -> FolderKind:
        if folder in self.not_adopted:
            return FolderKind.NOT_ADOPTED
        return FolderKind.REPOSITORY if self.folders[folder] else FolderKind.PLAIN

    async def adopt(self, folder: str) -> None:
        self.not_adopted.discard(folder)


class FakePersonas:
    """`everybody` is who there is."""

    def __init__(self) -> None:
        self.all_personas = make_roster()

    async def roster(self) -> PersonaList:
        return self.all_personas


class FakeMcpServers:
    """`servers` are those in use; `stopped` the names of those stopped."""

    def __init__(self) -> None:
        self.servers: list[McpServerStatus] = []
        self.shared: list[str] = []
        self.faults: list[str] = []
        self.stopped: list[str] = []
        self.consents: list[McpConsent] = []

    async def start_sign_in(self, server: str) -> str | None:
        return f"https://sign-in.example/{server}" if server in self.shared else None

    async def finish_sign_in(self, pasted: str) -> str:
        raise SignInFailed(f"no sign-in waits for {pasted}")

    async def sign_out(self, server: str) -> SignOut:
        return SignOut.OUT if server in self.shared else SignOut.WAS_OUT

    async def list_consents(self) -> Sequence[McpConsent]:
        return self.consents

    async def revoke_consent(self, consent_id: str) -> McpConsent | None:
        found = next((each for each in self.consents if each.id == consent_id), None)
        if found is not None:
            self.consents.remove(found)
        return found

    def list_servers(self) -> Sequence[McpServerStatus]:
        return self.servers

    async def list_shared(self) -> Sequence[str]:
        return self.shared

    async def list_faults(self) -> Sequence[str]:
        return self.faults

    async def restart(self, server: str, *, select: Callable[[McpServerStatus], bool]) -> int:
        chosen = [each for each in self.servers if each.server == server and select(each)]
        self.stopped += [each.server for each in chosen]
        return len(chosen)


class FakeContexts:
    """A long file, one that is missing, and a project, unless `told` is changed."""

    context_parts: tuple[ContextPart, ...] = (
        ContextPart(
            name="AGENTS.md", state=ContextPartState.CUT, size=30_000, used_characters=14_000
        ),
        ContextPart(name="TOOLS.md", state=ContextPartState.MISSING),
        ContextPart(
            name="project", state=ContextPartState.LOADED, size=1_200, used_characters=1_200
        ),
    )

    async def list_parts(self, chat: Chat, person: Person) -> Sequence[ContextPart]:
        return self.context_parts


class FakeTranscripts:
    """One session, `5e551011`, of one line."""

    async def list_recent(self, limit: int) -> Sequence[SessionInfo]:
        return (make_session(),)

    async def export(self, prefix: str) -> TranscriptExport:
        if not make_session().id.startswith(prefix):
            raise NotFound("session", prefix)
        return TranscriptExport(
            session=make_session(),
            path="exports/s.jsonl",
            absolute_path="/home/s.jsonl",
            size=10,
            lines=1,
        )


class FakeHistories:
    """Knows `said`, the newest first, and in which chats a conversation is under way."""

    def __init__(self) -> None:
        self.lines: list[HistoryLine] = []
        self.cut = False
        self.open_chats: set[ChatId] = set()

    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> HistoryResult:
        found = [each for each in self.lines if all(word in each.text for word in words)]
        return HistoryResult(lines=found[:limit], incomplete=self.cut)

    async def list_recent(self, person: Person, chat: Chat, limit: int) -> Sequence[HistoryLine]:
        return self.lines[:limit]

    async def compact(self, chat: ChatId) -> bool:
        return chat in self.open_chats


class FakeTraces:
    """Knows a trace for each task it was given one for; else one of the whole alone."""

    def __init__(self) -> None:
        self.traces: dict[TaskId, Trace] = {}
        self.followed: list[tuple[ChatId, str]] = []
        self.answers: dict[ChatId, Trace] = {}

    async def get_chat_trace(self, chat_id: ChatId) -> Trace | None:
        return self.answers.get(chat_id)

    async def get_task_trace(self, task_id: TaskId) -> Trace:
        return self.traces.get(task_id) or make_trace(task_id)

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, render: Callable[[Trace], Card]
    ) -> None:
        self.followed.append((chat, key))


class FakeWebSessions:
    def __init__(self) -> None:
        self.all: dict[str, WebSession] = {}
        self.tokens: dict[str, ApiToken] = {}
        self.links: list[WebLink] = []
        self.address = "http://127.0.0.1:8321"

    def add(self, session_id: str, user_agent: str = "Firefox") -> WebSession:
        session = WebSession(
            id=session_id,
            person_id=PersonId("olga"),
            created_at=NOW,
            seen_at=NOW,
            expires_at=NOW + timedelta(days=180),
            user_agent=user_agent,
        )
        self.all[session_id] = session
        return session

    async def list(self) -> Sequence[WebSession]:
        return tuple(self.all.values())

    async def end(self, session_id: str) -> bool:
        return self.all.pop(session_id, None) is not None

    async def end_others(self, session_id: str) -> int:
        gone = [each for each in self.all if each != session_id]
        for each in gone:
            del self.all[each]
        return len(gone)

    async def create_link(
        self, person_id: PersonId, *, token_name: str = "", page: str = ""
    ) -> tuple[str, WebLink]:
        link = WebLink(
            id="l1",
            kind=WebKeyKind.NEW_TOKEN if token_name else WebKeyKind.SIGN_IN,
            person_id=person_id,
            name=token_name,
            created_at=NOW,
            expires_at=NOW + timedelta(minutes=10),
        )
        self.links.append(link)
        return f"{self.address}/sign-in/secret" + (f"?to={page}" if page else ""), link

    async def list_tokens(self) -> Sequence[ApiToken]:
        return tuple(self.tokens.values())

    async def revoke_token(self, token_id: str) -> bool:
        return self.tokens.pop(token_id, None) is not None


class FakeServices:
    """All services at once: an owner Olga, a member Ann, each with a private chat, a group, and
    a stranger's private chat."""

    def __init__(self, *tasks: Task) -> None:
        self.olga = make_person("olga", PersonRole.OWNER)
        self.ann = make_person("ann")
        self.system = FakeSystem()
        self.people = FakePeople()
        self.people.add(self.olga, make_chat("c0", person=self.olga))
        self.people.add(self.ann, make_chat("c1", person=self.ann))
        self.people.chats[ChatId("g1")] = make_chat("g1", ChatKind.GROUP)
        self.people.chats[ChatId("s1")] = make_chat("s1")
        self.tasks = FakeTasks(*tasks)
        self.talk = FakeConversations()
        self.models = FakeModels()
        self.costs = FakeCosts()
        self.approvals = FakeApprovals()
        self.pairings = FakePairings(self.approvals)
        self.post = FakeCardStore()
        self.projects = FakeProjects()
        self.personas = FakePersonas()
        self.mcp = FakeMcpServers()
        self.contexts = FakeContexts()
        self.transcripts = FakeTranscripts()
        self.histories = FakeHistories()
        self.traces = FakeTraces()
        self.notebook = FakeTaskJournal()
        self.skills = FakeSkills()
        self.workflows = FakeWorkflows()
        self.toolbook = FakeStandingPermissions()
        self.memory = FakeMemory()
        self.held = FakeHeldMessages()
        self.inbox_log = FakeInboxLog()
        self.web_sessions = FakeWebSessions()
        self.heartbeat = FakeHeartbeat()
        self.reports = FakeReports()
        self.schedules = FakeSchedules()
        self.schedules.add(make_schedule())
        self.triggers = FakeTriggers()
        self.self_check = FakeSelfCheck()
        self.doctor = FakeDoctor()
        self.settings = FakeSettings()
        self.drive = FakeDrive()
        self.model_setup = FakeModelSetup()
        self.prompts = FakePrompts()
        self.bitable = FakeBitable()

    @property
    def services(self) -> HandlerServices:
        return HandlerServices(
            tasks=self.tasks,
            conversations=self.talk,
            models=self.models,
            model_setup=self.model_setup,
            feishu_setup=FakeFeishuSetup(),
            bitable=self.bitable,
            channel_setup=FakeChannelSetup(),
            people=self.people,
            pairings=self.pairings,
            account_links=FakeAccountLinks(),
            web_sessions=self.web_sessions,
            approvals=self.approvals,
            costs=self.costs,
            system=self.system,
            buttons=self.post,
            held=self.held,
            inbox_log=self.inbox_log,
            cards=self.post,
            courier=self.post,
            projects=self.projects,
            personas=self.personas,
            prompts=self.prompts,
            mcp=self.mcp,
            worker_context=self.contexts,
            transcripts=self.transcripts,
            history=self.histories,
            traces=self.traces,
            journal=self.notebook,
            tools=self.toolbook,
            skills=self.skills,
            skill_writer=self.skills,
            workflows=self.workflows,
            workflow_history=self.workflows,
            dry_runs=self.workflows,
            run_expressions=self.workflows,
            workflow_exchange=self.workflows,
            schedules=self.schedules,
            triggers=self.triggers,
            self_check=self.self_check,
            doctor=self.doctor,
            settings=self.settings,
            setting_editor=self.settings,
            drive=self.drive,
            heartbeat=self.heartbeat,
            reports=self.reports,
            memory=self.memory,
        )
