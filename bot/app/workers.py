"""Builds what workers use: models, sandbox, permissions, context, tools and lookup of memories."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bot.app.parts import WorkerServices, WorkRules
from bot.app.repositories import RepositorySet
from bot.config.settings import BadSettings, Settings
from bot.engine.agent.background_calls import SessionAccounts, SessionSummarizer
from bot.engine.agent.context_window import ContextWindows
from bot.engine.agent.memory_hooks import MemoryBriefing, WorkerHistory
from bot.engine.agent.model_calls import ModelReply
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.pricing import published_context_window
from bot.engine.agent.prompt_versions import PromptVersions, get_adopted_skill
from bot.engine.agent.session_history import SessionHistory
from bot.engine.agent.skills import skill_catalogue_block, skill_tool_factory
from bot.engine.agent.subagents.spawning import SubagentSpawner
from bot.engine.agent.worker_briefing import WorkerBriefing
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.agent.worker_tools import WorkerTools
from bot.engine.llm.api.access import LearnedToolForms
from bot.engine.llm.backend_registry import BackendRegistry
from bot.engine.mcp.client.project_servers import McpConsents, ProjectServers
from bot.engine.mcp.client.server_pool import KeptServers, McpServerPool
from bot.engine.mcp.client.sign_in import (
    CALLBACK_PATH,
    McpSignIns,
    MissingScopeListener,
    MissingScopeNotifier,
)
from bot.engine.mcp.server.tool_server import ToolLender
from bot.engine.memory.conversation_archive.compaction import (
    ArchiveCompactor,
    CompactionDeps,
    SessionGrowth,
)
from bot.engine.memory.conversation_archive.compaction_plan import CompactionLimits
from bot.engine.memory.conversation_archive.search import ArchiveSearch
from bot.engine.memory.conversation_archive.search_text import ArchiveIndexer
from bot.engine.memory.conversation_archive.service import (
    ArchiveContext,
    ConversationHistory,
    SessionCarryover,
)
from bot.engine.memory.promotion import QualityMetrics
from bot.engine.memory.retriever import MemoryRetriever
from bot.engine.memory.worker_proposals import WorkerProposals
from bot.engine.permissions.rules import protected_by
from bot.engine.permissions.service import PermissionService
from bot.engine.redaction import SecretMasker
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox, command_environment
from bot.engine.skills.skill_library import SkillLibrary
from bot.engine.skills.skill_paths import SkillPaths
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.journal_recall import TaskMemories
from bot.engine.tools.linked_documents import DocumentReader
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.web import (
    PrivateHostError,
    SearchProvider,
    WebFetcher,
    WebSearch,
    parse_private_hosts,
    parse_url,
)
from bot.engine.workers.mcp_config import McpConfigFile
from bot.engine.workers.personas import PersonaLibrary
from bot.engine.workers.spec import WorkerSpec
from bot.setup.live_models import LiveModels, build_sandbox_detector
from bot.transports.ports import Clock
from bot.transports.web.access_token import load_or_create_token
from cards.courier import Courier
from storage.db import Transaction
from storage.memory.cells import CompactionJobRepo
from storage.memory.conversation_archive import ArchiveRepo, SummaryRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.tasks import TaskId
from storage.skills import SkillRepo
from storage.subagents import SubagentRepo
from storage.tasks import TaskVisibility


def build_masker(settings: Settings) -> SecretMasker:
    """Includes the token of the web chat, which is made here if there is none. Blocking."""
    own = settings.web_token.get_secret_value() or load_or_create_token(settings.home)
    return SecretMasker((*settings.secret_values, own))


def build_worker_services(
    settings: Settings, store: RepositorySet, clock: Clock, courier: Courier
) -> WorkerServices:
    """Raises BadSettings."""
    people = store.people
    briefing = WorkerBriefing(settings.home, get_chat=people.get_chat, get_person=people.get)
    redactor = build_masker(settings)
    sandbox = build_sandbox_detector(settings)
    shell = CommandShell(
        sandbox=sandbox,
        homes=CommandHomes(settings.home / "shell"),
        env=partial(_command_environment, settings, redactor),
        network=settings.tools_network,
        refuses_unlimited=not settings.tools_as_root,
    )
    fetcher = build_fetcher(settings)
    mcp_config = McpConfigFile(settings.home)
    return WorkerServices(
        live_models=LiveModels(
            settings, sandbox, LearnedToolForms(store=store.key_values, now=clock.now)
        ),
        personas=PersonaLibrary(settings.home),
        briefing=briefing,
        skills=SkillLibrary(
            paths=SkillPaths(home=settings.home, user_home=Path.home()),
            repo=SkillRepo(store.db),
            now=clock.now,
            get_adopted=partial(get_adopted_skill, store.work.versions),
        ),
        sandbox=sandbox,
        shell=shell,
        fetcher=fetcher,
        search=build_search(settings),
        mcp_config=mcp_config,
        mcp_servers=_build_mcp_servers(
            settings,
            shell,
            redactor.mask,
            fetcher,
            config=mcp_config,
            consents=store.mcp_consents,
            on_missing_scope=MissingScopeNotifier(owners=store.owner_cards(courier), now=clock.now),
        ),
        redactor=redactor,
        history=build_worker_history(settings, store),
        task_memories=TaskMemories(
            logs=store.work.logs,
            tasks=store.work.tasks,
            access=TaskAccess(people.get_chat),
            person_of=people.get,
            home=settings.home,
        ),
    )


def _build_mcp_servers(
    settings: Settings,
    shell: CommandShell,
    mask: Callable[[str], str],
    fetcher: WebFetcher,
    *,
    config: McpConfigFile,
    consents: McpConsents,
    on_missing_scope: MissingScopeListener,
) -> McpServerPool:
    return McpServerPool(
        shell,
        mask,
        fetcher,
        data_dir=settings.home,
        config=config,
        consents=consents,
        sign_ins=McpSignIns(
            fetcher=fetcher,
            folder=settings.home / "mcp-tokens",
            redirect_uri=(settings.web_url or f"http://127.0.0.1:{settings.web_port}").rstrip("/")
            + CALLBACK_PATH,
            on_missing_scope=on_missing_scope,
            client_id=settings.mcp_client_id,
        ),
        keep=KeptServers(count=settings.mcp_kept, idle_seconds=settings.mcp_idle_minutes * 60),
        lender=ToolLender(
            settings.home / "lent",
            lambda: secrets.token_hex(16),
            keeps=settings.cli_warm_seconds > 0,
        ),
    )


def build_context_builder(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    workers: WorkerServices,
    *,
    memories: MemoryBriefing,
    retriever: MemoryRetriever,
    rules: WorkRules,
    on_spawned: Callable[[], None],
    versions: PromptVersions,
    documents: Callable[[], DocumentReader | None],
) -> WorkerContextBuilder:
    """`on_spawned` is called when a worker has started a subagent. Raises BadSettings."""
    briefing, skills = workers.briefing, workers.skills
    spawner = _build_spawner(store, clock, workers, on_spawned)

    async def project_of(job: WorkerSpec) -> str:
        """A task works in its project; a chat may have one."""
        if not job.is_chat:
            return str(job.workspace)
        chat = job.account.chat
        return (await store.people.get_chat(chat)).settings.project if chat else ""

    tools = WorkerTools(
        protected_paths=protected_by(rules.configured),
        fetcher=workers.fetcher,
        search=workers.search,
        documents=documents,
        shell=workers.shell,
        spawner=spawner if settings.helpers else None,
        memories=memories,
        retriever=retriever,
        entries=store.memory.entries,
        task_logs=lambda who: workers.task_memories.for_reader(who.person, who.chat, who.task),
        proposals=_build_proposals(settings, store, clock, permissions=rules.permissions),
        zone=settings.zone,
        history_tools=workers.history.tools,
        skill_tools=skill_tool_factory(skills, project_of, versions),
    )
    return WorkerContextBuilder(
        personas=workers.personas,
        tool_factories=(tools,),
        system_blocks=(
            briefing.boss_files_block,
            skill_catalogue_block(skills, project_of, workers.models.has_own_tools, versions),
            briefing.project_notes_block,
            briefing.project_summary_block,
            workers.history.carryover_block,
            # Last, because it changes most often: the blocks before it stay cached.
            memories.standing_block,
        ),
        prompt_blocks=(memories.prompt_block,),
        authorizer_factory=rules.permissions,
        mask=workers.redactor.mask,
        shared_servers=workers.mcp_config.list_servers,
        project_servers=_build_project_servers(settings, store, rules.permissions).list_servers,
        choose_version=versions.apply_to_persona,
        choose_built_in=versions.get_built_in,
    )


def _build_spawner(
    store: RepositorySet, clock: Clock, workers: WorkerServices, on_spawned: Callable[[], None]
) -> SubagentSpawner:
    return SubagentSpawner(
        db=store.db,
        repo=store.work.subagents,
        list_personas=workers.personas.get_all,
        new_id=partial(store.ids, 6),
        now=clock.now,
        on_accepted=on_spawned,
    )


def _build_project_servers(
    settings: Settings, store: RepositorySet, permissions: PermissionService
) -> ProjectServers:
    return ProjectServers(
        consents=store.mcp_consents,
        requester=store.approval_requester,
        show_request=permissions.show_request,
        mask=permissions.mask,
        data_dir=settings.home,
    )


def build_fetcher(settings: Settings, *more: str) -> WebFetcher:
    """One that may also reach these private hosts. Raises BadSettings."""
    try:
        private = parse_private_hosts((*settings.fetch_private.split(","), *more))
    except PrivateHostError as error:
        raise BadSettings([f"SHIFTBOSS_FETCH_PRIVATE: {error}"]) from error
    return WebFetcher(private_hosts=private)


def build_search(settings: Settings) -> WebSearch | None:
    """None without a provider. Raises BadSettings."""
    brave = settings.brave_api_key.get_secret_value()
    tavily = settings.tavily_api_key.get_secret_value()
    if brave:
        provider, address, key = SearchProvider.BRAVE, "https://api.search.brave.com", brave
    elif tavily:
        provider, address, key = SearchProvider.TAVILY, "https://api.tavily.com", tavily
    elif settings.searxng_url:
        provider, address, key = SearchProvider.SEARXNG, settings.searxng_url, ""
    else:
        return None
    base = parse_url(address)
    if base is None or "?" in base.path:
        raise BadSettings([f"SHIFTBOSS_SEARXNG_URL: {address!r} is no plain address"])
    # The operator names this one host, which is often on this machine.
    fetcher = build_fetcher(settings, *([base.host] if provider is SearchProvider.SEARXNG else []))
    return WebSearch(provider=provider, base=base, fetcher=fetcher, key=key)


def _command_environment(
    settings: Settings, redactor: SecretMasker, sandbox: Sandbox
) -> Mapping[str, str]:
    """Environment for commands, without secrets."""
    view = sandbox.view if sandbox.kind.confines else None
    return command_environment(
        os.environ,
        extra_names=settings.passed_env_names,
        view=view,
        is_secret=redactor.contains_secret,
    )


def _build_proposals(
    settings: Settings, store: RepositorySet, clock: Clock, *, permissions: PermissionService
) -> WorkerProposals:
    return WorkerProposals(
        db=store.db,
        entries=store.memory.entries,
        cells=store.memory.cells,
        withheld=WithheldTurnRepo(store.db),
        quality=QualityMetrics(store.key_values),
        feed=store.memory.feed,
        approvals=store.approvals,
        ids=store.ids,
        lifetime=settings.approval_lifetime,
        list_owner_chats=store.list_owner_chats,
        show_request=permissions.show_request,
        mask=permissions.mask,
        now=clock.now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationArchive:
    settings: Settings
    store: RepositorySet
    clock: Clock
    growth: SessionGrowth
    history: SessionHistory
    windows: ContextWindows

    async def notify_growth(self, _tx: Transaction, reply: ModelReply) -> None:
        """Hook of the model gateway after a turn; the compactor reads it once it is stored."""
        self.growth.notify(reply.session.id)

    def build_compactor(self, gateway: ModelGateway, models: BackendRegistry) -> ArchiveCompactor:
        store, chosen = self.store, self.settings.memory
        archive = ArchiveRepo(store.db)
        deps = CompactionDeps(
            db=store.db,
            sessions=store.sessions,
            archive=archive,
            summaries=SummaryRepo(store.db),
            debts=CompactionJobRepo(store.db),
            indexer=ArchiveIndexer(store.db, archive),
            model=SessionSummarizer(
                gateway=gateway,
                db=store.db,
                accounts=build_session_accounts(store),
                windows=self.windows,
                model=chosen.summary_model,
            ),
            keeps_history=lambda backend: not models.has_own_tools(backend),
            now=self.clock.now,
            new_id=lambda: f"sum_{secrets.token_hex(8)}",
            sleep=asyncio.sleep,
            zone=self.settings.zone,
            limits=CompactionLimits(
                context_tokens=chosen.context_tokens,
                threshold_share=chosen.context_share,
                tail_messages=chosen.tail_messages,
            ),
        )
        return ArchiveCompactor(deps, self.growth)


def build_conversation_archive(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    worker_history: WorkerHistory,
    base_urls: Mapping[str, str],
) -> ConversationArchive:
    """`base_urls` are those of the model APIs."""
    growth = worker_history.history.growth
    chosen = settings.memory

    async def published(backend: str, model: str) -> int:
        # Only for model APIs: coding CLIs manage their own sessions.
        if backend not in base_urls:
            return 0
        return await asyncio.to_thread(published_context_window, backend, model, base_urls[backend])

    windows = ContextWindows(
        configured=chosen.windows, published=published, store=store.key_values, now=clock.now
    )
    history = SessionHistory(
        store.sessions,
        ArchiveContext(SummaryRepo(store.db)),
        max_tokens=chosen.context_tokens,
        windows=windows,
        on_too_long=growth.notify,
    )
    return ConversationArchive(
        settings=settings,
        store=store,
        clock=clock,
        growth=growth,
        history=history,
        windows=windows,
    )


def build_session_accounts(store: RepositorySet) -> SessionAccounts:
    return SessionAccounts(store.people.get_chat, store.work.tasks.get, SubagentRepo(store.db))


def build_worker_history(settings: Settings, store: RepositorySet) -> WorkerHistory:
    archive, summaries = ArchiveRepo(store.db), SummaryRepo(store.db)
    indexer, access = ArchiveIndexer(store.db, archive), TaskAccess(store.people.get_chat)

    async def task_visibility(task: TaskId) -> TaskVisibility:
        return await access.visibility_of(await store.work.tasks.get(task))

    history = ConversationHistory(
        search=ArchiveSearch(archive, summaries, indexer),
        carryover=SessionCarryover(archive, summaries, indexer, settings.zone),
        growth=SessionGrowth(),
        get_chat=store.people.get_chat,
        zone=settings.zone,
    )
    return WorkerHistory(history=history, task_visibility=task_visibility)
