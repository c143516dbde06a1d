"""`shiftboss trace`: what cannot go together is said before anything is opened."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from bot.__main__ import cli


@pytest.mark.parametrize(
    "flags", [("--slow", "--cost"), ("--errors", "--all"), ("--slow", "--otlp", "-")]
)
def test_two_ways_to_look_at_once_are_refused(flags: tuple[str, ...]) -> None:
    told = CliRunner().invoke(cli, ["trace", "t1", *flags])

    assert told.exit_code == 2
    assert "choose one of" in told.output
