"""Fakes of the handlers' ports: they keep the ports' promises and record what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cards.model import Card
from handlers.ports import (
    Answered,
    Forbidden,
    Question,
    Services,
    Show,
    TalkState,
)
from handlers.services.histories import PastLine, PastLines
from handlers.services.projects import FolderRefused, WhyNot
from handlers.services.transcripts import Exported
from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.context import ContextPart, PartState
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    Member,
    Pairing,
    PairingState,
    Person,
    PersonId,
    Role,
)
from storage.records.personas import Roster
from storage.records.sessions import SessionFacts
from storage.records.status import (
    BackendHealth,
    BackendReport,
    CostQuery,
    CostReport,
    ModelChoice,
    SystemStatus,
    TaskCost,
)
from storage.records.tasks import (
    Control,
    NewTask,
    Priority,
    Spent,
    Task,
    TaskEvent,
    TaskId,
    TaskPage,
    TaskStatus,
    TaskView,
)
from storage.records.tools import CallRecord, GrantRecord
from storage.records.workers.spans import Trace
from tests.fake_notebook import FakeNotebook
from tests.fake_post import FakePost
from tests.fake_skills import FakeSkills
from tests.fake_workflows import FakeWorkflows
from tests.memory_fake import FakeMemory
from tests.samples import (
    GPT,
    HAIKU,
    NOW,
    OFFLINE,
    OPUS,
    a_chat,
    a_cost_report,
    a_person,
    a_roster,
    a_session,
    a_system_status,
    a_task,
    a_trace,
    an_approval,
)


class FakeTasks:
    """Moves what states allow; `moves` lists each move as (name, task id, source), `workflows` the
    plans that tasks were made with."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.views: dict[TaskId, TaskView] = {}
        self.log: dict[TaskId, list[TaskEvent]] = {}
        self.created: list[NewTask] = []
        self.moves: list[tuple[str, str, str]] = []
        self.reasons: list[str] = []
        self.said: list[str] = []
        self.workflows: dict[TaskId, Mapping[str, Any]] = {}
        self._by_source: dict[str, TaskId] = {}

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        task = await self.create(new)
        self.workflows.setdefault(task.id, workflow)
        return task

    async def create(self, new: NewTask) -> Task:
        if new.source not in self._by_source:
            self.created.append(new)
            made = a_task(f"new{len(self.created)}xyz", title=new.title, chat=new.chat_id)
            made = replace(
                made,
                instruction=new.instruction,
                priority=new.priority,
                created_by=new.created_by,
                model=new.model,
                backend=new.backend,
                persona=new.persona,
                files=new.files,
                reply_to=new.reply_to,
                outside=new.outside,
            )
            self.tasks[made.id] = made
            self._by_source[new.source] = made.id
        return self.tasks[self._by_source[new.source]]

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        wanted = prefix.casefold().removeprefix("task-")
        seen = [task for task in self.tasks.values() if self._may_see(task, by, chat)]
        found = [task for task in seen if wanted and task.id.startswith(wanted)]
        if not found:
            raise NotFound("task", prefix)
        if len(found) > 1 and wanted not in self.tasks:
            raise AmbiguousId(prefix, tuple(task.id for task in found[:5]))
        return next((task for task in found if task.id == wanted), found[0])

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        seen = [
            task
            for task in self.tasks.values()
            if self._may_see(task, by, chat) and status in {None, task.status}
        ]
        seen.sort(key=lambda task: task.status.is_final)
        pages = max(1, -(-len(seen) // size))
        page = min(max(1, page), pages)
        part = tuple(seen[(page - 1) * size : page * size])
        return TaskPage(tasks=part, page=page, pages=pages, total=len(seen))

    async def view(self, task_id: TaskId) -> TaskView:
        if task_id in self.views:
            return replace(self.views[task_id], task=self.tasks[task_id])
        return TaskView(task=self.tasks[task_id], plan="", steps=(), spent=Spent())

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        return self.log.get(task_id, [])[-limit:]

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task:
        self.reasons.append(reason)
        if task.status is TaskStatus.RUNNING:
            return self._move("pause", task, source, replace(task, control=Control.PAUSE))
        self._demand(task, TaskStatus.PENDING, TaskStatus.WAITING)
        return self._move("pause", task, source, replace(task, status=TaskStatus.PAUSED))

    async def resume(self, task: Task, *, by: Person, source: str, said: str = "") -> Task:
        self.said.append(said)
        self._demand(task, TaskStatus.PAUSED, TaskStatus.BLOCKED)
        return self._move("resume", task, source, replace(task, status=TaskStatus.PENDING))

    async def stop(self, task: Task, *, by: Person, source: str) -> Task:
        if task.status.is_final:
            raise WrongState("task", task.id, task.status)
        return self._move("stop", task, source, replace(task, status=TaskStatus.CANCELLED))

    async def retry(self, task: Task, *, by: Person, source: str) -> Task:
        self._demand(task, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.BLOCKED)
        return self._move("retry", task, source, replace(task, status=TaskStatus.PENDING))

    async def set_priority(
        self, task: Task, priority: Priority, *, by: Person, source: str
    ) -> Task:
        return self._move("priority", task, source, replace(task, priority=priority))

    async def tell(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        return self._move("tell", task, source, task, text)

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        return self._move("inject", task, source, task, " → ".join(titles))

    async def is_in_rounds(self, task: Task, titles: Sequence[str]) -> bool:
        return False

    async def replan(self, task: Task, why: str, *, by: Person, source: str) -> Task:
        return self._move("replan", task, source, task, why)

    async def let_in(self, task: Task, *, by: Person, source: str) -> Task:
        return self._move("let_in", task, source, replace(task, let_in=True))

    def _may_see(self, task: Task, by: Person, chat: ChatId) -> bool:
        return by.role is Role.OWNER or task.created_by == by.id or task.chat_id == chat

    def _demand(self, task: Task, *allowed: TaskStatus) -> None:
        if task.status not in allowed:
            raise WrongState("task", task.id, task.status)

    def _move(self, name: str, task: Task, source: str, moved: Task, said: str = "") -> Task:
        self.moves.append((name, task.id, source))
        if said:
            self.said.append(said)
        self.tasks[task.id] = moved
        return moved


class FakeTalk:
    """Answers with `answers` in turn, showing each word as it comes; `during` is called while
    an answer is being made."""

    def __init__(self, *answers: Answered | BaseException) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []
        self.interrupted: list[ChatId] = []
        self.ended: list[ChatId] = []
        self.busy = False
        self.during: Callable[[], None] = lambda: None
        self.states: dict[ChatId, TalkState] = {}
        self.queues: dict[ChatId, str] = {}

    async def answer(self, question: Question, show: Show) -> Answered:
        self.questions.append(question)
        self.during()
        answer = self.answers.pop(0) if self.answers else Answered(text="Fine.")
        if isinstance(answer, BaseException):
            raise answer
        sofar = ""
        for word in answer.text.split():
            sofar = f"{sofar} {word}".strip()
            await show(sofar)
        return answer

    def interrupt(self, chat_id: ChatId) -> bool:
        self.interrupted.append(chat_id)
        return self.busy

    def arrived(self, chat_id: ChatId) -> bool:
        if self.waits(chat_id):
            return self.busy
        self.interrupt(chat_id)
        return False

    def queue(self, chat_id: ChatId, queue: str) -> None:
        self.queues[chat_id] = queue

    def waits(self, chat_id: ChatId) -> bool:
        return self.queues.get(chat_id) == "wait"

    async def reset(self, chat_id: ChatId) -> bool:
        self.ended.append(chat_id)
        return self.states.pop(chat_id, None) is not None

    async def state(self, chat_id: ChatId) -> TalkState | None:
        return self.states.get(chat_id)


class FakeModels:
    def __init__(self, *choices: ModelChoice) -> None:
        self._choices = choices or (OFFLINE, OPUS, HAIKU, GPT)
        self.facts: dict[str, str] = {}
        self.clis: set[str] = set()
        self.instead = ""

    def choices(self) -> Sequence[ModelChoice]:
        return self._choices

    def pick(self, name: str) -> ModelChoice | None:
        wanted = name.casefold()
        names = {"opus": OPUS, "haiku": HAIKU}
        for choice in self._choices:
            if wanted in {choice.name, choice.model, choice.backend} - {""}:
                return choice
        return names.get(wanted) if names.get(wanted) in self._choices else None

    async def ready(self, name: str) -> BackendHealth | None:
        choice = self.pick(name)
        if choice is None:
            return None
        return BackendHealth(
            name=choice.backend,
            problem=choice.problem,
            facts=self.facts,
            is_cli=choice.backend in self.clis,
            instead=self.instead,
        )

    async def report(self, name: str = "") -> BackendReport | None:
        choice = self.pick(name) if name else None
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
        self.spoken: list[tuple[PersonId, Language]] = []
        self.failure: Exception | None = None

    def add(self, person: Person, chat: Chat, *, external_id: str = "") -> None:
        self.identities[chat.channel, external_id or f"x-{person.id}"] = person
        self.chats.setdefault(chat.id, chat)

    async def who(self, channel: Channel, external_id: str) -> Person | None:
        if self.failure:
            raise self.failure
        return self.identities.get((channel, external_id))

    async def get(self, person_id: PersonId) -> Person:
        for person in self.identities.values():
            if person.id == person_id:
                return person
        raise NotFound("person", person_id)

    async def chat(self, chat_id: ChatId) -> Chat:
        try:
            return self.chats[chat_id]
        except KeyError:
            raise NotFound("chat", chat_id) from None

    async def private_chats(self, role: Role) -> Sequence[Chat]:
        having = {person.id for person in self.identities.values() if person.role is role}
        return [
            chat
            for chat in self.chats.values()
            if chat.kind is ChatKind.PRIVATE and chat.person_id in having
        ]

    async def adjust(self, chat: Chat, settings: ChatSettings) -> Chat:
        self.chats[chat.id] = replace(chat, settings=settings)
        return self.chats[chat.id]

    async def speak(self, person: Person, language: Language) -> None:
        self.spoken.append((person.id, language))
        for key, known in self.identities.items():
            if known.id == person.id:
                self.identities[key] = replace(known, language=language)

    def promote(self, person_id: PersonId) -> None:
        for key, known in self.identities.items():
            if known.id == person_id:
                self.identities[key] = replace(known, role=Role.OWNER)

    async def members(self) -> Sequence[Member]:
        return [
            Member(person=person, accounts=(key,), local=key[0] is Channel.WEB)
            for key, person in sorted(
                self.identities.items(), key=lambda item: item[1].role is not Role.OWNER
            )
        ]

    async def demote(self, person_id: PersonId) -> bool:
        if not self._dispensable(person_id):
            return False
        for key, known in self.identities.items():
            if known.id == person_id:
                self.identities[key] = replace(known, role=Role.MEMBER)
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
        return any(each.role is Role.OWNER for each in others)


class FakeApprovals:
    """`decisions` lists (id, approve, reason, by) as they were taken."""

    def __init__(self, *approvals: Approval) -> None:
        self.all = {approval.id: approval for approval in approvals}
        self.decisions: list[tuple[str, bool, str, PersonId]] = []

    async def waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        return [
            each
            for each in self.all.values()
            if each.state is ApprovalState.WAITING
            and chat in {None, each.chat_id}
            and self._may(by, each)
        ]

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
    ) -> Approval:
        current = self.all[approval.id]
        if not self._may(by, current):
            raise Forbidden
        if current.state is not ApprovalState.WAITING:
            raise WrongState("approval", current.id, current.state)
        self.decisions.append((approval.id, approve, reason, by.id))
        self.all[approval.id] = replace(
            current,
            state=ApprovalState.APPROVED if approve else ApprovalState.REJECTED,
            decided_by=by.id,
            decided_at=NOW,
            reason=reason,
            payload={**current.payload, "reach": scope} if scope else current.payload,
        )
        return self.all[approval.id]

    def _may(self, by: Person, approval: Approval) -> bool:
        return by.id in approval.approvers if approval.approvers else by.role is Role.OWNER


class FakeToolBook:
    def __init__(self) -> None:
        self.held: list[GrantRecord] = []
        self.made: list[CallRecord] = []

    async def grants(self) -> Sequence[GrantRecord]:
        return self.held

    async def revoke(self, number: int) -> bool:
        before = len(self.held)
        self.held = [each for each in self.held if each.id != number]
        return len(self.held) < before

    async def calls(self, task_id: TaskId, limit: int) -> Sequence[CallRecord]:
        return [each for each in self.made if each.task_id == task_id][-limit:]


class FakePairings:
    """Codes are `CODE1`, `CODE2`, … in the order of asking."""

    def __init__(self, approvals: FakeApprovals) -> None:
        self._approvals = approvals
        self.all: dict[str, Pairing] = {}
        self.asked = 0

    async def ask(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[Pairing, bool]:
        self.asked += 1
        for pairing in self.all.values():
            if (pairing.channel, pairing.external_id) == (channel, external_id):
                return pairing, False
        pairing = Pairing(
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
            an_approval(f"pair{len(self.all)}", ApprovalKind.PAIRING, subject=pairing.code),
            chat_id=chat_id,
            title=name,
            detail="",
        )
        self._approvals.all[approval.id] = approval
        return pairing, True

    async def find(self, code: str, *, now: datetime) -> Pairing:
        try:
            return self.all[code.upper()]
        except KeyError:
            raise NotFound("pairing", code) from None

    async def approval(self, pairing: Pairing) -> Approval:
        return next(each for each in self._approvals.all.values() if each.subject == pairing.code)


class FakeCosts:
    """Knows of one model, `opus`; `asked` are the queries."""

    def __init__(self) -> None:
        self.asked: list[CostQuery] = []

    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        query = query or CostQuery()
        self.asked.append(query)
        report = a_cost_report(query)
        return report if query.model in "opus" else replace(report, models=())

    async def of_task(self, task: Task) -> TaskCost:
        report = a_cost_report()
        return TaskCost(task=task, whole=report.whole, models=report.models)


class FakeSystem:
    def __init__(self) -> None:
        self.unnamed_owner = ""

    async def status(self, *, by: Person) -> SystemStatus:
        return replace(a_system_status(), unnamed_owner=self.unnamed_owner)


class FakeProjects:
    """`folders` are those that may be worked in, with True for those in git."""

    def __init__(self, folders: dict[str, bool] | None = None) -> None:
        self.folders = folders or {}

    async def choose(self, path: str) -> str:
        if not path.startswith("/"):
            raise FolderRefused(WhyNot.RELATIVE, path)
        if path not in self.folders:
            raise FolderRefused(WhyNot.MISSING, path)
        return path

    async def in_git(self, folder: str) -> bool:
        return self.folders[folder]


class FakePersonas:
    """`everybody` is who there is."""

    def __init__(self) -> None:
        self.everybody = a_roster()

    async def roster(self) -> Roster:
        return self.everybody


class FakeContexts:
    """A long file, one that is missing, and a project, unless `told` is changed."""

    told: tuple[ContextPart, ...] = (
        ContextPart(name="AGENTS.md", state=PartState.CUT, size=30_000, used=14_000),
        ContextPart(name="TOOLS.md", state=PartState.MISSING),
        ContextPart(name="project", state=PartState.LOADED, size=1_200, used=1_200),
    )

    async def parts(self, chat: Chat, person: Person) -> Sequence[ContextPart]:
        return self.told


class FakeTranscripts:
    """One session, `5e551011`, of one line."""

    async def newest(self, limit: int) -> Sequence[SessionFacts]:
        return (a_session(),)

    async def export(self, prefix: str) -> Exported:
        if not a_session().id.startswith(prefix):
            raise NotFound("session", prefix)
        return Exported(
            session=a_session(), path="exports/s.jsonl", full="/home/s.jsonl", size=10, lines=1
        )


class FakeHistories:
    """Knows `said`, the newest first, and in which chats a conversation is under way."""

    def __init__(self) -> None:
        self.said: list[PastLine] = []
        self.cut = False
        self.under_way: set[ChatId] = set()

    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> PastLines:
        found = [each for each in self.said if all(word in each.text for word in words)]
        return PastLines(lines=found[:limit], cut=self.cut)

    async def last(self, person: Person, chat: Chat, limit: int) -> Sequence[PastLine]:
        return self.said[:limit]

    async def compact(self, chat: ChatId) -> bool:
        return chat in self.under_way


class FakeTraces:
    """Knows a trace for each task it was given one for; else one of the whole alone."""

    def __init__(self) -> None:
        self.known: dict[TaskId, Trace] = {}
        self.followed: list[tuple[ChatId, str]] = []
        self.answers: dict[ChatId, Trace] = {}

    async def talk_of(self, chat_id: ChatId) -> Trace | None:
        return self.answers.get(chat_id)

    async def trace_of(self, task_id: TaskId) -> Trace:
        return self.known.get(task_id) or a_trace(task_id)

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, draw: Callable[[Trace], Card]
    ) -> None:
        self.followed.append((chat, key))


class FakeWorld:
    """All services at once: an owner Olga, a member Ann, each with a private chat, a group, and
    a stranger's private chat."""

    def __init__(self, *tasks: Task) -> None:
        self.olga = a_person("olga", Role.OWNER)
        self.ann = a_person("ann")
        self.system = FakeSystem()
        self.people = FakePeople()
        self.people.add(self.olga, a_chat("c0", person=self.olga))
        self.people.add(self.ann, a_chat("c1", person=self.ann))
        self.people.chats[ChatId("g1")] = a_chat("g1", ChatKind.GROUP)
        self.people.chats[ChatId("s1")] = a_chat("s1")
        self.tasks = FakeTasks(*tasks)
        self.talk = FakeTalk()
        self.models = FakeModels()
        self.costs = FakeCosts()
        self.approvals = FakeApprovals()
        self.pairings = FakePairings(self.approvals)
        self.post = FakePost()
        self.projects = FakeProjects()
        self.personas = FakePersonas()
        self.contexts = FakeContexts()
        self.transcripts = FakeTranscripts()
        self.histories = FakeHistories()
        self.traces = FakeTraces()
        self.notebook = FakeNotebook()
        self.skills = FakeSkills()
        self.workflows = FakeWorkflows()
        self.toolbook = FakeToolBook()
        self.memory = FakeMemory()

    @property
    def services(self) -> Services:
        return Services(
            tasks=self.tasks,
            talk=self.talk,
            models=self.models,
            people=self.people,
            pairings=self.pairings,
            approvals=self.approvals,
            costs=self.costs,
            system=self.system,
            buttons=self.post,
            cards=self.post,
            courier=self.post,
            projects=self.projects,
            personas=self.personas,
            contexts=self.contexts,
            transcripts=self.transcripts,
            histories=self.histories,
            traces=self.traces,
            notebook=self.notebook,
            toolbook=self.toolbook,
            skills=self.skills,
            skill_writer=self.skills,
            workflows=self.workflows,
            memory=self.memory,
        )
