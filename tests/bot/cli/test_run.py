"""What is loaded at the start takes no part in garbage collection."""

from __future__ import annotations

import gc

from bot.cli.serving import loading_modules


def test_collection_rests_while_modules_are_loaded() -> None:
    kept = gc.get_freeze_count()
    try:
        with loading_modules():
            assert not gc.isenabled()

        assert gc.isenabled()
        assert gc.get_freeze_count() > kept
    finally:
        gc.unfreeze()
