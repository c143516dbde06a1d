"""The usual `mcpServers` file is read as other programs write it; a bad one is named and unused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.backend import McpServer
from bot.engine.workers.mcp_config import InvalidMcpConfig, McpConfigFile, read_mcp_config


def write(folder: Path, content: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_servers_are_read_as_other_programs_write_them(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "mcpServers": {
                "files": {
                    "command": "npx",
                    "args": ["-y", "server-files", "/data"],
                    "env": {"KEY": "${FILES_KEY}"},
                    "autoApprove": ["read"],
                },
                "My Tracker": {
                    "type": "http",
                    "url": "https://tracker.example/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"},
                },
                "mail": {
                    "url": "https://mail.example/mcp",
                    "oauth": {"clientId": "a", "clientSecret": "${KEY}", "scopes": ["r", "w"]},
                },
                "plain": {
                    "url": "https://plain.example/mcp",
                    "oauth": {"callbackPort": 8080, "scopes": "r w"},
                },
                "off": {"command": "x", "disabled": True},
            },
            "other": 1,
        },
    )

    assert read_mcp_config(path) == (
        McpServer(
            name="files",
            command=("npx", "-y", "server-files", "/data"),
            env={"KEY": "${FILES_KEY}"},
        ),
        McpServer(
            name="My-Tracker",
            url="https://tracker.example/mcp",
            headers={"Authorization": "Bearer ${TOKEN}"},
        ),
        McpServer(
            name="mail",
            url="https://mail.example/mcp",
            oauth={"client_id": "a", "client_secret": "${KEY}", "scope": "r w"},
        ),
        McpServer(name="plain", url="https://plain.example/mcp", oauth={"scope": "r w"}),
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"mcpServers": {\n"a": {"command": "x"},,}}', "line 2"),
        ("[]", "valid dictionary"),
        ("{}", "mcpServers"),
        ({"mcpServers": []}, "is expected"),
        ({"mcpServers": {"a": {}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "https://x"}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"url": "file:///etc/passwd"}}}, "mcpServers.a.url"),
        ({"mcpServers": {"a": {"type": "sse", "url": "https://x"}}}, "mcpServers.a.type"),
        ({"mcpServers": {"a": {"command": "x\0y"}}}, "mcpServers.a.command"),
        (
            {"mcpServers": {"a": {"url": "https://x", "oauth": {"scopes": ['r"']}}}},
            "mcpServers.a.oauth.scopes",
        ),
        ({"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "x"}}}, "no name of its own"),
        ({"mcpServers": {"../": {"command": "x"}}}, "no name of its own"),
        ({"mcpServers": {f"s{n}": {"command": "x"} for n in range(17)}}, "at most 16"),
        ("[" * 60_000, "no JSON"),
        (" " * 70_000, "larger than 64 KB"),
    ],
)
async def test_a_bad_file_is_named_with_its_fault_and_not_used(
    tmp_path: Path, content: Any, why: str
) -> None:
    write(tmp_path, content)
    config = McpConfigFile(tmp_path)

    assert await config.list_servers() == ()
    (fault,) = await config.list_faults()
    assert fault.startswith("mcp.json: ")
    assert why in fault
    assert len(fault) < 300


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    config = McpConfigFile(tmp_path)
    before = await config.list_servers()
    path = write(tmp_path, {"mcpServers": {"a": {"command": "x"}}})
    named = [each.name for each in await config.list_servers()]
    write(tmp_path, "{")
    broken = await config.list_faults()
    path.unlink()

    assert before == ()
    assert named == ["a"]
    assert broken
    assert await config.list_servers() == ()
    assert await config.list_faults() == ()


@pytest.mark.parametrize("kind", ["folder", "pipe", "not text"])
def test_what_is_no_text_file_is_said_to_be_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mcp.json"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(b"\xff\xfe{")

    with pytest.raises(InvalidMcpConfig):
        read_mcp_config(path)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "command", "args", "env", "url", "headers", "type"]), inner
        )
    ),
    max_leaves=12,
)


@given(told=anything)
def test_nothing_in_the_file_breaks_reading_it(
    tmp_path_factory: pytest.TempPathFactory, told: Any
) -> None:
    path = write(tmp_path_factory.getbasetemp(), {"mcpServers": told})
    try:
        servers = read_mcp_config(path)
    except InvalidMcpConfig:
        return

    assert all(bool(each.command) != bool(each.url) for each in servers)
