"""What is loaded at the start takes no part in garbage collection."""

from __future__ import annotations

import gc
import subprocess
import sys

from bot.app.loading import loading_modules


def test_collection_rests_while_modules_are_loaded() -> None:
    kept = gc.get_freeze_count()
    try:
        with loading_modules():
            assert not gc.isenabled()

        assert gc.isenabled()
        assert gc.get_freeze_count() > kept
    finally:
        gc.unfreeze()


def test_what_is_left_out_is_missed_by_nobody() -> None:
    """In a process of its own: here the libraries may be loaded already."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


_LOAD = """
import sys
from bot.app.loading import loading_modules
with loading_modules():
    import apscheduler.schedulers.asyncio
    import mcp.server
    import uvicorn
    from sse_starlette import EventSourceResponse
from uvicorn.server import Server
assert uvicorn.Server is Server
assert "click" not in sys.modules
assert "multiprocessing" not in sys.modules
"""
