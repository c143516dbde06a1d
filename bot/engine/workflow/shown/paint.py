"""The colours of a drawing, on light and on dark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.records.tasks import NodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """`dark` are fill and line on a dark ground; `mark` stands before the title."""

    fill: str
    line: str
    dark: tuple[str, str]
    mark: str = ""
    bold: float = 1.5
    dashed: bool = False


COLOURS: Mapping[NodeStatus, Colour] = {
    NodeStatus.PENDING: Colour(fill="#ffffff", line="#aeb2b6", dark=("#1d2123", "#5a6167")),
    NodeStatus.RUNNING: Colour(
        fill="#e0ede8", line="#1d6b5c", dark=("#203c36", "#5cbba4"), mark="▶", bold=3
    ),
    NodeStatus.WAITING: Colour(
        fill="#fbf1dd", line="#9a6206", dark=("#372c19", "#e0ab55"), mark="…", bold=3
    ),
    NodeStatus.DONE: Colour(fill="#f0f7f3", line="#2b7d4f", dark=("#1b2b24", "#6cc391"), mark="✓"),
    NodeStatus.FAILED: Colour(
        fill="#fbeae8", line="#b3372f", dark=("#3a2422", "#f0897f"), mark="✗", bold=2.5
    ),
    NodeStatus.SKIPPED: Colour(
        fill="#ffffff", line="#c9c6bd", dark=("#1d2123", "#454b50"), dashed=True
    ),
}

_DARK = "".join(
    f".wf-{status.value}>.wf-box{{fill:{colour.dark[0]};stroke:{colour.dark[1]}}}"
    f".wf-{status.value}>.wf-body{{stroke:{colour.dark[1]}}}"
    for status, colour in COLOURS.items()
)

# What stands in the elements themselves is for light; a page that lets no style in shows that.
STYLE = (
    ".wf-skipped>text{opacity:.65}"
    "@media (prefers-color-scheme:dark){"
    ".wf-back{fill:#1d2123}.wf-ink{fill:#e7e6e2}.wf-soft{fill:#9da3a8}.wf-head{fill:#9da3a8}"
    ".wf-halo{stroke:#1d2123}.wf-edge{stroke:#7b8288}.wf-edge.wf-taken{stroke:#6cc391}.wf-edge.wf-left{stroke:#454b50}"
    f"{_DARK}}}"
)
