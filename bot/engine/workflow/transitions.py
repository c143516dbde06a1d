"""Decides what follows from an event in a task's run, without a database:

    state + memory of the lease + event -> rows to write, new memory, the runner's next action

A transition stores the event, lets the scheduler do all that costs nothing, and starts the steps
that are ready; or it ends the task's run, or gives its slot back with the reason why. Announcements
are rows as well: events that the notifier reads after the commit.

A transition is a generator. What only the store knows, or has to ask people for, it yields as a
`StoreCall` and is sent the answer; a plain step needs none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from bot.engine.agent.model_calls import ModelReply
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow import report_delivery, run_texts, step_approvals
from bot.engine.workflow.checkpoint_events import Deciding, NextAction, ReplanRequest, StartedStep
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.node_runs import (
    FAILED_KEY,
    PLANNING_PATH,
    ActivationPath,
    compensated_path,
    is_condition_question,
    parse_activation,
)
from bot.engine.workflow.plan import HUMAN, insert_steps, merge_with_finished
from bot.engine.workflow.run_ending import (
    STOP_KEY,
    ask_for_files,
    begin_ending,
    cut_off_running_steps,
    files_to_check,
    finish_ending,
    forget_idle_time,
    release_failed_steps,
)
from bot.engine.workflow.run_state import (
    BudgetHold,
    ChangeSet,
    LeaseMemory,
    TaskRunState,
    attempt_logs,
    plan_log,
    task_log,
)
from bot.engine.workflow.scheduler import WorkflowScheduler
from cards import formats
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.task_logs import LogKind
from storage.records.tasks import (
    SUBAGENTS_RUNNING_REASON,
    EventKind,
    NodeRun,
    NodeStatus,
    TaskControl,
    TaskPhase,
    TaskStatus,
)
from storage.tasks import SubagentReport

MAX_FREE_RUNS = 500
"""The maximum number of automatic runs in one transition, before it looks for steps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`changes` are to be stored, in the transaction that has answered the calls; `memory` counts
    once that is committed."""

    changes: ChangeSet
    memory: LeaseMemory
    next: NextAction


def transition(
    state: TaskRunState,
    memory: LeaseMemory,
    event: events.CheckpointEvent,
    *,
    rules: step_approvals.StepApprovalRules,
    session_id: str,
    now: datetime,
) -> Deciding[Outcome]:
    """Decide what follows from the event. Attempts that begin are stored with `session_id`.

    The state is changed in place: it has to be dropped if the changes are not committed."""
    work = _Transition(state, memory, ChangeSet(state, now), rules, session_id, now)
    action = yield from work.apply(event)
    return Outcome(work.changes, work.memory, action)


@dataclass(slots=True)
class _Transition:
    """`_started` and `_requested` are the findings of the current look at the ready steps;
    `_looks_again` is set where that look has decided something that makes others ready."""

    _state: TaskRunState
    memory: LeaseMemory
    changes: ChangeSet
    _rules: step_approvals.StepApprovalRules
    _session_id: str
    _now: datetime
    _looks_again: bool = False
    _started: list[StartedStep] = field(default_factory=list)
    _requested: list[Approval] = field(default_factory=list)

    @property
    def _scheduler(self) -> WorkflowScheduler:
        return self._state.scheduler

    # --- the event

    def apply(  # noqa: C901, PLR0911, PLR0912 - one arm per event
        self, event: events.CheckpointEvent
    ) -> Deciding[NextAction]:
        if self._is_cancelled(events.attempt_of(event)):
            # Its runner may have been told to stop, and never get this answer: nothing starts here.
            return self._steps_started(soon=self._scheduler.has_pending_moves)
        match event:
            case events.PlanningBegun():
                return self._begin_planning()
            case events.RunStopped(run=run, may_retry=again):
                failed = {**run.output, FAILED_KEY: True}
                run = replace(run, output=failed, ended_at=self._now)
                self.changes.end_attempt(run, may_retry=again)
                self.changes.end_task(event.status, event.reason)
                return None
            case events.ReasonChanged(reason=reason, text=text, replaces=replaces):
                if self._state.task.status_reason == replaces:
                    self.changes.update_task(status_reason=reason)
                    self.changes.add_event(EventKind.NOTE, text)
                return None
            case events.StepEnded():
                return (yield from self._end_attempt(event))
            case events.StepSuspended():
                return (yield from self._suspend_step(event))
            case events.BudgetReached():
                return (yield from self._hold_for_budget(event))
            case events.FilesChecked(missing=missing):
                self._remember(files_checked=True)
                is_over = self._scheduler.is_complete
                if missing and is_over and not ask_for_files(self._state, self.changes, missing):
                    return None
            case events.Merged(note=note):
                # Somebody may have put a step in meanwhile.
                if self._scheduler.is_complete:
                    return (yield from self._complete_task(note))
            case events.PlanAdopted(run=run, plan=plan):
                self.changes.end_attempt(replace(run, status=NodeStatus.DONE, ended_at=self._now))
                served = self._state.orders.replan_command_id
                self._adopt_plan(replace(plan, served=served), event.reply)
            case events.PlanReplaced():
                self._replace_plan(event)
            case events.Started(since=since):
                self.changes.note_claim()
                forget_idle_time(self._state, self.changes, since)
                if self._state.task.phase is not TaskPhase.DOING:
                    self.changes.update_task(phase=TaskPhase.DOING)
                self.changes.add_event(EventKind.STARTED)
            case events.Woken():
                pass
            case never:
                assert_never(never)
        return (yield from self._advance())

    def _is_cancelled(self, attempt: NodeRun | None) -> bool:
        run = None if attempt is None else self._state.runs.get(attempt.path)
        return (
            run is not None
            and attempt is not None
            and run.status is NodeStatus.CANCELLED
            and run.attempt == attempt.attempt
        )

    def _begin_planning(self) -> NextAction:
        self.changes.update_task(phase=TaskPhase.PLANNING)
        self.changes.add_event(EventKind.STARTED)
        run = self.changes.start_attempt(PLANNING_PATH, self._session_id)
        said = self._state.orders.messages
        return events.PlanningStarted(run=replace(run, output={"heard": len(said)}), messages=said)

    def _replace_plan(self, event: events.PlanReplaced) -> None:
        """Keep what is finished and put the new steps in place of the rest."""
        step, state = event.step, self._state
        asked = step.replan or ReplanRequest(reason="")
        self.changes.discard_attempt(step.run, step.runs.get(step.node.id), "replanned")
        flow = self._scheduler
        if flow.compensations.open:
            # A join has ended a branch meanwhile: what is undone has no place in another plan.
            self._remember(replan_reason="" if asked.order_number else asked.reason)
            return
        for run in (*flow.latest_round_runs(), *flow.partial_loop_runs(self._now)):
            self.changes.put_run(run)
        merged = merge_with_finished(state.workflow, state.runs, event.plan)
        if asked.order_number:
            merged = replace(merged, served=asked.order_number)
        else:
            self.changes.update_task(replans=state.task.replans + 1)
        self.changes.add_event(EventKind.REPLANNED, asked.reason)
        source = f"replan:{state.task.graph_version + 1}"
        self.changes.add_logs(task_log(state.task, source, LogKind.REPLAN, asked.reason))
        self._adopt_plan(merged, event.reply)

    def _adopt_plan(self, plan: Workflow, reply: ModelReply | None) -> None:
        version = self._state.task.graph_version + 1
        self.changes.add_logs(plan_log(self._state.task, plan, version))
        reason = "plan" if version == 1 else "replan"
        self.changes.add_plan(plan, reason, reply.usage_record.backend if reply else "")
        self.changes.add_event(EventKind.PLANNED, plan.plan)
        self.changes.update_task(
            failures_in_row=0, errors=0, phase=TaskPhase.DOING, summary=plan.answer
        )

    def _end_attempt(self, attempt: events.StepEnded) -> Deciding[NextAction]:
        self._remember(files_checked=False)
        # Free to run again, at once or after the Boss resumes the task, if it has not succeeded.
        if attempt.run.status is not NodeStatus.DONE:
            failed = replace(attempt.run, output={**attempt.run.output, FAILED_KEY: True})
            attempt = replace(attempt, run=failed)
        good = attempt.run.status is NodeStatus.DONE
        tolerated = self._scheduler.tolerates_failure(attempt.run.path)
        passed_over = tolerated and not good and not attempt.is_permanent
        stop = None if passed_over else attempt.stop
        replan = attempt.replan_reason
        again = stop is not None or (attempt.may_retry and not (passed_over and replan))
        if replan and not passed_over:
            self._remember(replan_reason=replan)
        self.changes.end_attempt(attempt.run, may_retry=again)
        kind = EventKind.STEP_DONE if good else EventKind.STEP_FAILED
        self.changes.add_event(kind, attempt.run.error)
        self.changes.add_logs(*attempt_logs(self._state.task, attempt))
        self.changes.count_failure(attempt)
        if stop is None:
            return (yield from self._advance())
        if self._scheduler.running_paths:
            output = {**attempt.run.output, STOP_KEY: [stop[0].value, stop[1]]}
            self.changes.put_run(replace(attempt.run, output=output))
        return (yield from self._stop_run(*stop))

    def _suspend_step(self, event: events.StepSuspended) -> Deciding[NextAction]:
        """Request approval for one call at a time. If all calls were decided in the meantime, the
        step continues at once."""
        step = event.step
        run = replace(step.run, output=step.suspended_output)
        approval: Approval | None = yield events.RequestToolCall(step.node.id)
        if approval is None:
            runs = {**step.runs, step.node.id: run}
            again = replace(step, task=self._state.task, runs=runs, replan=None, is_resumed=True)
            return self._steps_started([again])
        self.changes.release_run(run, event.reason)
        return (yield from self._advance())

    def _hold_for_budget(self, event: events.BudgetReached) -> Deciding[NextAction]:
        """Release the step and request the approval at once. Nothing else starts until people have
        decided."""
        self.changes.release_run(event.run, event.reason)
        approval: Approval = yield events.RequestBudget(event.hit)
        if not self._state.task.graph_version:
            self.changes.wait([approval], wake_at=event.hit.until)
            return None
        hold = BudgetHold(approval=approval, until=event.hit.until, reason=event.reason)
        self._remember(budget_hold=hold)
        if self._scheduler.running_paths:
            self._announce(approval)
        return (yield from self._advance())

    # --- what comes next

    def _advance(self) -> Deciding[NextAction]:
        """Find the next steps; look again if that has made other steps ready."""
        while True:
            self._looks_again, self._started, self._requested = False, [], []
            yield from self._settle()
            action = yield from self._choose_next()
            if not self._looks_again or self._started:
                return action

    def _settle(self) -> Deciding[None]:
        """Make the moves that cost nothing, and withdraw the requests of steps that are over."""
        running = set(self._scheduler.running_paths)
        made = self._scheduler.advance(self._now, MAX_FREE_RUNS)
        self.changes.put_advanced(made)
        if cancelled := [run for run in made if run.status is NodeStatus.CANCELLED]:
            self.changes.cancel_attempts(cancelled, running)
        # A round that ends with its node may leave a question to people that has no run.
        if cancelled or (self._scheduler.may_ask_people and any(map(self._ends_rounds, made))):
            yield step_approvals.WithdrawRequests("approval.gone_on", self._scheduler.is_closed)
        over = [run for run in made if self._scheduler.is_settled_human_step(run)]
        counted = {run.path for run in over if run.output.get("auto")}
        for paths, key in (
            (counted, "approval.counted"),
            ({run.path for run in over} - counted, "approval.gone_on"),
        ):
            if paths:
                yield step_approvals.WithdrawRequests(key, paths.__contains__)

    def _ends_rounds(self, run: NodeRun) -> bool:
        place = parse_activation(run.path)
        node = None if place is None else self._scheduler.topology.nodes.get(place.node)
        return node is not None and bool(node.body) and run.ended_at is not None

    def _choose_next(self) -> Deciding[NextAction]:
        flow, deadline = self._scheduler, self._state.deadline
        late = deadline is not None and deadline <= self._now
        if flow.ending is not None:
            return (yield from self._undo(late=late))
        if (failed := flow.failed_run) is not None and not (late and flow.running_paths):
            status, reason = failed.output.get(STOP_KEY, (TaskStatus.FAILED, failed.error))
            return (yield from self._stop_run(TaskStatus(status), reason))
        if flow.is_complete:
            return (yield from self._close_task())
        if late:
            return (yield from self._time_out_task())
        if (refusal := self._budget_refusal()) is not None:
            return (yield from self._end_run(TaskStatus.CANCELLED, refusal))
        return (yield from self._go_on())

    def _undo(self, *, late: bool) -> Deciding[NextAction]:
        """Run the compensations; when they are done, end as recorded."""
        why = self._state.text("workflow.undo_late") if late else self._budget_refusal()
        if not finish_ending(self._state, self.changes, self._now, why=why):
            return (yield from self._go_on())
        yield step_approvals.WithdrawRequests("approval.task_over", lambda _path: True)
        return None

    def _go_on(self) -> Deciding[NextAction]:
        flow = self._scheduler
        is_held = self._state.task.control is not TaskControl.RUN or self.memory.budget_hold
        if flow.has_pending_moves or (is_held and flow.running_paths):
            return self._steps_started(soon=flow.has_pending_moves)
        return (yield from (self._release_slot() if is_held else self._start_ready_steps()))

    def _budget_refusal(self) -> str | None:
        """The reason with which the task ends because people refused to extend its cap; it ends
        after the steps that still run. Once they have allowed it, the hold is over."""
        hold = self.memory.budget_hold
        if hold is None or hold.approval.state is ApprovalState.WAITING:
            return None
        is_refused = hold.approval.state is ApprovalState.REJECTED
        if is_refused and self._scheduler.running_paths:
            return None
        self._remember(budget_hold=None)
        return (hold.approval.reason or hold.reason) if is_refused else None

    def _stop_run(self, status: TaskStatus, reason: str) -> Deciding[NextAction]:
        """End the run once no other step is running."""
        if self._scheduler.running_paths:
            return self._steps_started()
        due = [*self._scheduler.compensations.due(self._state.task.id)]
        release_failed_steps(self._state, self.changes)
        return (yield from self._end_run(status, reason, due))

    def _time_out_task(self) -> Deciding[NextAction]:
        """Running steps are cancelled. If the task is retried, its time limit starts again."""
        why = cut_off_running_steps(self._state, self.changes, self._now)
        return (yield from self._end_run(TaskStatus.FAILED, why))

    def _end_run(
        self, status: TaskStatus, reason: str, due: Sequence[NodeRun] | None = None
    ) -> Deciding[NextAction]:
        """End the task, after its compensations have run."""
        if status.is_final and self._scheduler.ending is not None:
            return (yield from self._choose_next())
        rows = self._scheduler.compensations.due(self._state.task.id) if due is None else due
        if begin_ending(self._state, self.changes, status, reason, self._now, due=rows):
            is_step = self._scheduler.may_wait_for_person
            yield step_approvals.WithdrawRequests("approval.task_over", lambda p: not is_step(p))
            return (yield from self._choose_next())
        self.changes.end_task(status, reason)
        return None

    def _close_task(self) -> Deciding[NextAction]:
        """No step is left. The task waits for its subagents, and closes with a step that takes up
        what people or subagents have said and no step has received."""
        task, orders, runs = self._state.task, self._state.orders, self._state.runs
        unheard = report_delivery.undelivered_messages(orders.messages, runs)
        people = [text for text in unheard if not isinstance(text, SubagentReport)]
        if not people:
            unfinished: int = yield events.CountSubagents()
            if unfinished:
                self.changes.wait([], reason=SUBAGENTS_RUNNING_REASON)
                return None
        if unheard:
            titles = [f"💬 {text}" for text in people] or [report_delivery.reports_title(unheard)]
            plan = insert_steps(self._state.workflow, runs, titles)
            self.changes.add_plan(plan, "inject", str(task.created_by))
            self.changes.add_event(EventKind.INJECTED, " → ".join(titles))
            self._looks_again = True
            return None
        if files := () if self.memory.files_checked else files_to_check(self._state):
            return events.FilesUnchecked(task=task, files=files)
        if task.branch:
            return events.MergePending(task=task)
        return (yield from self._complete_task(""))

    def _complete_task(self, note: str) -> Deciding[NextAction]:
        """`note` says what keeps the work from its project. It comes first: notices are short."""
        state, flow = self._state, self._scheduler
        if flow.may_ask_people or flow.has_conditions or state.workflow.parallel > 1:
            # A branch whose result was not awaited may still have an open request.
            yield step_approvals.WithdrawRequests("approval.gone_on", lambda _path: True)
        outputs = run_texts.format_outputs(flow, self._now)
        parts = (note, run_texts.task_summary(state.task, state.workflow, state.runs), outputs)
        self.changes.end_task(TaskStatus.COMPLETED, "", "\n\n".join(filter(None, parts)))
        return None

    def _release_slot(self) -> Deciding[NextAction]:
        """Record why nothing runs, and until when."""
        wakes, requested = self._state.next_wake_at, self._requested
        if (hold := self.memory.budget_hold) is not None:
            self._remember(budget_hold=None)
            self.changes.wait([hold.approval], wake_at=hold.until)
        elif self._state.task.control is not TaskControl.RUN:
            self.changes.give_back_slot()
        elif requested or self._scheduler.is_waiting:
            open_ = (each.title for each in requested if each.kind is ApprovalKind.CONDITION)
            reason = next(open_, "")
            if not requested and wakes is not None:
                at = formats.date_time(wakes, self._scheduler.zone)
                reason = self._state.text("workflow.waits_until", at=at)
            self.changes.wait(requested, wake_at=wakes, reason=reason)
        else:
            return (yield from self._end_run(TaskStatus.FAILED, self._scheduler.stuck_reason()))
        return None

    def _start_ready_steps(self) -> Deciding[NextAction]:
        """Start steps while there is room."""
        flow = self._scheduler
        wants_plan = (
            self.memory.planning_step in flow.running_paths or self._replan_request() is not None
        )
        may_ask = flow.may_ask_people or flow.is_asking
        for place, node in flow.ready_steps():
            full = len(flow.running_paths) >= flow.workflow.parallel
            if wants_plan and flow.compensations.open and compensated_path(place.path) is None:
                # A new plan has no place for what is still to be undone.
                break
            if (full and not may_ask) or (wants_plan and flow.running_paths):
                break
            if full and node.type != HUMAN:
                continue
            if (yield from self._try_step(place, node)):
                return None
            if self._looks_again:
                break
        if self._looks_again and not self._started:
            return None
        if not flow.running_paths:
            return (yield from self._release_slot())
        for approval in self._requested:
            self._announce(approval)
        return self._steps_started(self._started, soon=self._looks_again)

    def _try_step(self, place: ActivationPath, node: WorkflowNode) -> Deciding[bool]:
        """Start a step, unless a person must approve it first. True if the run has ended."""
        state, flow = self._state, self._scheduler
        try:
            step = run_texts.render_step(flow, place, node, self._now)
        except ExpressionError as error:
            self._fail_step(place, node, error.in_words(state.text))
            return False
        heard = step_approvals.with_new_messages(step, state.orders, state.runs)
        decision = yield from self._rules.decide(heard, flow.may_wait_for_person)
        match decision:
            case step_approvals.StepAllowed(by=by) if node.type == HUMAN and by is not None:
                self.changes.complete_by_person(
                    step, by.decided_by, by.reason, approved=True, values=by.payload.get("values")
                )
                self._looks_again = True
            case step_approvals.StepAllowed():
                asked: Approval | None = None
                if step_approvals.is_suspended(step, state.runs):
                    asked = yield events.RequestToolCall(step.id)
                if asked is None:
                    self._started.append((yield from self._start_step(place, step)))
                else:
                    self._requested.append(asked)
            case step_approvals.StepAwaitsApproval(approval=approval):
                self._wait_for_person(place, node)
                self._requested.append(approval)
            case step_approvals.StepRefused(by=who) if is_condition_question(place.path):
                self.changes.complete_by_person(step, who, "", approved=False)
                self._looks_again = True
            case step_approvals.StepRefused(reason=reason):
                return self._refuse_step(place, reason or step.title)
            case never:
                assert_never(never)
        return False

    def _refuse_step(self, place: ActivationPath, reason: str) -> bool:
        """The run is over, at once or when the others have ended; unless the workflow has a way
        on without this step. True if it is over at once."""
        flow = self._scheduler
        run = replace(flow.new_run(place, NodeStatus.FAILED, self._now), error=reason)
        if flow.tolerates_failure(place.path):
            refused = replace(run, output={"approved": False})
            self.changes.put_run(flow.complete_run(refused, self._now))
        elif flow.running_paths:
            stopped = {STOP_KEY: [TaskStatus.BLOCKED.value, reason]}
            self.changes.put_run(replace(run, output=stopped))
        else:
            self.changes.end_task(TaskStatus.BLOCKED, reason)
            return True
        self._looks_again = True
        return False

    def _fail_step(self, place: ActivationPath, node: WorkflowNode, why: str) -> None:
        """Fail a step that cannot be made what its plan says."""
        error = self._state.text("workflow.no_value", name=node.title, why=why)
        run = replace(self._scheduler.new_run(place, NodeStatus.FAILED, self._now), error=error)
        self.changes.put_run(self._scheduler.complete_run(run, self._now))
        self.changes.add_event(EventKind.STEP_FAILED, error)
        self._looks_again = True

    def _wait_for_person(self, place: ActivationPath, node: WorkflowNode) -> None:
        """Store the expiry of the step's question, if it has a time limit."""
        undoes = compensated_path(place.path) is not None
        timeout = None if undoes else node.spec.answer_timeout(node.settings)
        if timeout is None or place.path in self._scheduler.waiting_runs(place.scope):
            return
        run = self._scheduler.new_run(place, NodeStatus.WAITING, self._now)
        self.changes.put_run(replace(run, wake_at=self._now + timedelta(seconds=timeout)))

    def _start_step(self, place: ActivationPath, step: WorkflowNode) -> Deciding[StartedStep]:
        state, flow, delivered = self._state, self._scheduler, self.memory.delivered_reports
        messages, runs = state.orders.messages, run_texts.runs_visible_from(flow, place, state.runs)
        is_resumed = False
        if step_approvals.is_suspended(step, runs):
            is_resumed = yield events.HasSuspendedCalls(step.id)
        run = self.changes.start_attempt(step.id, self._session_id)
        undoes = compensated_path(place.path) is not None
        replan = None if undoes else self._replan_request()
        if replan is None:
            # Otherwise it is only a placeholder for the first step of the new plan.
            self.changes.add_event(EventKind.STEP_STARTED, step.title)
        withheld = report_delivery.reports_to_withhold(
            flow.topology,
            place,
            messages,
            state.runs,
            running_paths=flow.running_paths,
            delivered=delivered,
        )
        if reports := frozenset(report_delivery.report_numbers(messages)):
            delivered = {**delivered, place.path: reports - withheld}
        self._remember(delivered_reports=delivered)
        if not undoes:
            self._remember(replan_reason="", planning_step=step.id if replan else "")
        return StartedStep(
            task=state.task,
            workflow=flow.workflow,
            runs=runs,
            node=step,
            run=run,
            messages=messages,
            withheld_reports=withheld,
            replan=replan,
            is_resumed=is_resumed,
            lane=flow.session_lanes.lane_of(place),
        )

    def _replan_request(self) -> ReplanRequest | None:
        """Return why a new plan is needed before the next step, if it is. People's commands come
        first, except those that were carried out or failed."""
        orders, number, reason = self._state.orders, 0, self.memory.replan_reason
        if self._scheduler.ending is not None:
            return None
        if orders.replan_command_id > max(self._state.workflow.served, self.memory.declined_order):
            number, reason = orders.replan_command_id, orders.replan_reason
        elif not reason:
            return None
        loops = self._scheduler.partial_loop_runs(self._now)
        return ReplanRequest(reason=reason, order_number=number, partial_runs=loops)

    def _announce(self, approval: Approval) -> None:
        """Announce, once under a lease, that a request waits while other steps run."""
        if approval.id not in (announced := self.memory.announced):
            self._remember(announced=announced | {approval.id})
            self.changes.add_event(EventKind.WAITING, approval.id)

    def _remember(self, **facts: Any) -> None:
        self.memory = replace(self.memory, **facts)

    def _steps_started(
        self, steps: Sequence[StartedStep] = (), *, soon: bool = False
    ) -> events.StepsStarted:
        """Return the started steps; with `soon`, more automatic moves follow."""
        flow = self._scheduler
        return events.StepsStarted(
            steps=tuple(steps),
            wake_at=self._now if soon else self._state.next_wake_at,
            wakes_on_signal=flow.workflow.parallel > 1 or flow.may_ask_people,
        )
