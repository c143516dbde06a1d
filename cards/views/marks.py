"""The signs and tones that tasks carry on every card."""

from __future__ import annotations

from cards.model import Tone
from cards.words import Words
from storage.records.tasks import NodeStatus, Priority, TaskStatus

STATUS = {
    TaskStatus.PENDING: "🕐",
    TaskStatus.RUNNING: "🔄",
    TaskStatus.WAITING: "🔔",
    TaskStatus.PAUSED: "⏸️",
    TaskStatus.BLOCKED: "🔒",
    TaskStatus.COMPLETED: "✅",
    TaskStatus.FAILED: "❌",
    TaskStatus.CANCELLED: "🛑",
}

TONE = {
    TaskStatus.PENDING: Tone.NEUTRAL,
    TaskStatus.RUNNING: Tone.INFO,
    TaskStatus.WAITING: Tone.WARN,
    TaskStatus.PAUSED: Tone.WARN,
    TaskStatus.BLOCKED: Tone.BAD,
    TaskStatus.COMPLETED: Tone.GOOD,
    TaskStatus.FAILED: Tone.BAD,
    TaskStatus.CANCELLED: Tone.NEUTRAL,
}

PRIORITY = {Priority.URGENT: "🔴", Priority.IMPORTANT: "🟡", Priority.NORMAL: "🟢"}

NODE = {
    NodeStatus.PENDING: "○",
    NodeStatus.RUNNING: "📍",
    NodeStatus.WAITING: "⏳",
    NodeStatus.DONE: "✅",
    NodeStatus.FAILED: "❌",
    NodeStatus.SKIPPED: "⏭️",
}


def status(value: TaskStatus, words: Words) -> str:
    return f"{STATUS[value]} {words(f'status.{value}')}"


def priority(value: Priority, words: Words) -> str:
    return f"{PRIORITY[value]} {words(f'priority.{value}')}"
