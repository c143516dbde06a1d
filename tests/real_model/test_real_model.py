"""Opt-in: a real small model plans tasks of five kinds and does them. See docs/agents.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.journeys.platform_world import platform_world
from tests.real_model.model_server import MODEL_FILE, serve_model
from tests.real_model.task_kinds import TASK_KINDS, run_task_kind, write_given_files

pytestmark = [
    pytest.mark.skipif(not MODEL_FILE, reason="SHIFTBOSS_REAL_MODEL names no GGUF file"),
    pytest.mark.timeout(4 * 3600),
]

PATIENCE = float(os.environ.get("SHIFTBOSS_REAL_MODEL_PATIENCE", "900"))
"""Seconds for one task: more where other work has the cores."""

_LEAST_DONE = 4
# In the place of the usual one, which would be told of a dozen tools: 1,300 tokens more.
_PERSONA = """\
---
tools: read, write, edit, exec
---
A step that is to leave a file is done only once you have called `write` or `edit`. To find
something out, call `read` or `exec` first. Report after that.
"""


def _settings(url: str) -> dict[str, str]:
    """`written` is found out by itself, after two long answers that are of no use."""
    return {
        "OPENAI_BASE_URL": url,
        "SHIFTBOSS_MODEL": "openai:local",
        "SHIFTBOSS_OPENAI_TOOLS": "written",
        "SHIFTBOSS_STEP_SECONDS": "3000",
        # Beside other work, reading a prompt takes minutes.
        "SHIFTBOSS_MODEL_SILENCE": "3600",
    }


async def test_a_small_model_does_most_kinds_of_tasks_and_never_claims_a_success_in_vain(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    write_given_files(tmp_path)
    (home / "personas").mkdir(parents=True)
    (home / "personas" / "pragmatist.md").write_text(_PERSONA)
    async with (
        serve_model(tmp_path / "model.log") as url,
        platform_world(home, **_settings(url)) as here,
    ):
        outcomes = [await run_task_kind(here, kind, tmp_path, PATIENCE) for kind in TASK_KINDS]

    assert [each for each in outcomes if each.is_false_success] == []
    assert sum(each.done for each in outcomes) >= _LEAST_DONE, outcomes
