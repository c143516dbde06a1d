"""The built parts of the application that its builders hand to one another."""

from __future__ import annotations

from dataclasses import dataclass

from bot.app.lifecycle import AppService
from bot.engine.agent.budget import SpendingCaps
from bot.engine.agent.memory_hooks import WorkerHistory
from bot.engine.agent.prompt_versions import PromptVersions
from bot.engine.agent.worker_briefing import WorkerBriefing
from bot.engine.autonomy.drive import DriveService
from bot.engine.autonomy.evolution.service import EvolutionService
from bot.engine.autonomy.self_check import SelfCheckService
from bot.engine.llm.backend_registry import BackendRegistry
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.permissions.rules import PermissionRules
from bot.engine.permissions.service import PermissionService
from bot.engine.redaction import SecretMasker
from bot.engine.sandbox.backends import SandboxDetector
from bot.engine.schedule.builtin import BuiltinSchedules
from bot.engine.schedule.firing import ScheduledService, ScheduleFirer
from bot.engine.schedule.service import ScheduleService
from bot.engine.schedule.triggers import TriggerService
from bot.engine.skills.skill_library import SkillLibrary
from bot.engine.tasks.journal_recall import TaskMemories
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.upkeep import RetentionService
from bot.engine.web import WebFetcher, WebSearch
from bot.engine.workers.mcp_config import McpConfigFile
from bot.engine.workers.personas import PersonaLibrary
from bot.engine.workflow.named_workflows import WorkflowLibrary
from bot.engine.workflow.step_approvals import StepApprovalRequester
from bot.engine.workflow.workflow_bundle import WorkflowExchange
from bot.engine.workflow.workflow_history import WorkflowHistory
from bot.setup.live_models import LiveModels
from storage.records.processes import ProcessRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """The part of this process among those that share the store. `projects` are the folders that it
    is bound to, none for all; `slots` goes before the setting."""

    role: ProcessRole = ProcessRole.RUN
    name: str = ""
    slots: int | None = None
    projects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServices:
    live_models: LiveModels
    personas: PersonaLibrary
    briefing: WorkerBriefing
    skills: SkillLibrary
    sandbox: SandboxDetector
    shell: CommandShell
    fetcher: WebFetcher
    search: WebSearch | None
    mcp_config: McpConfigFile
    mcp_servers: McpServerPool
    redactor: SecretMasker
    history: WorkerHistory
    task_memories: TaskMemories

    @property
    def models(self) -> BackendRegistry:
        return self.live_models.registry


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRules:
    """One for all that ask, so that changed settings reach everything."""

    caps: SpendingCaps
    permissions: PermissionService
    configured: PermissionRules
    step_approvals: StepApprovalRequester


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionServices:
    service: EvolutionService
    versions: PromptVersions
    exchange: WorkflowExchange

    @property
    def workflows(self) -> WorkflowLibrary:
        """Starts tasks in the version that is in effect, which `history` chooses."""
        return self.exchange.library

    @property
    def history(self) -> WorkflowHistory:
        return self.exchange.history


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleServices:
    """The schedules that people see, the services that fire them, and the program's own.
    `parts` are what these run, by name; whoever builds one adds it."""

    service: ScheduleService
    firer: ScheduleFirer
    builtin: BuiltinSchedules
    triggers: TriggerService
    parts: dict[str, ScheduledService]

    @property
    def services(self) -> tuple[AppService, ...]:
        return (self.builtin, self.firer, self.triggers)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutonomyServices:
    self_check: SelfCheckService
    drive: DriveService
    retention: RetentionService
