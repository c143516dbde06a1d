"""Names lead to backends, and what cannot be used says why."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm import backend_registry
from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.llm.acp.backend import AcpBackends
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.runtime import AcpRuntime
from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import BackendDenied
from bot.engine.llm.backend_registry import BackendRegistry, build_registry
from bot.setup.live_models import FEISHU_TOOLS, READS_MESSAGES, TELEGRAM_TEXT
from cards.catalog import catalog_for
from handlers.ports import ModelPort as ModelsPort
from storage.records.people import Language
from storage.records.system import ModelChoice
from tests.bot.engine.llm.builders import build_request, collect_run
from tests.emulators.acp.fake_cli import launch_unsandboxed
from tests.emulators.models.emulator import ModelEmulator

NO_AGENTS = AcpBackends(
    AcpAgentsFile(Path("/nonexistent")),
    AcpRuntime(
        root=Path("/nonexistent"),
        environ={},
        slots=asyncio.Semaphore(1),
        new_id=str,
        approval_wait=0.0,
        max_run_seconds=0.0,
        launch=launch_unsandboxed,
        idle=IdleProcess(0),
    ),
)
BOTH: dict[str, Any] = {"anthropic_key": "a", "openai_key": "o"}
LOCAL: dict[str, Any] = {"openai_base_url": "http://127.0.0.1:1/v1"}


def registry(**settings: Any) -> BackendRegistry:
    return build_registry(clis=NO_AGENTS, **settings)


@pytest.mark.parametrize(
    ("url", "model", "label"),
    [
        ("http://127.0.0.1:11434/v1", "openai:qwen3", "qwen3 (Ollama)"),
        ("http://localhost:1234/v1", "openai:qwen3", "qwen3 (LM Studio)"),
        ("http://127.0.0.1:8000/v1", "openai:qwen3", "qwen3 (127.0.0.1:8000)"),
        ("http://me:secret@gpu/v1", "", "gpu"),
        ("http://127.0.0.1:11434/v1", "anthropic:opus", "anthropic:claude-opus-5-5"),
        ("", "openai:gpt-5.2", "openai:gpt-5.2"),
    ],
)
def test_a_compatible_service_is_named_by_where_it_runs(url: str, model: str, label: str) -> None:
    assert registry(openai_base_url=url, model=model).default.label == label


@pytest.mark.parametrize(
    ("settings", "default"),
    [
        ({}, "offline"),
        (BOTH, "anthropic:claude-sonnet-5-5"),
        ({"openai_key": "o"}, "openai:gpt-5.2"),
        (LOCAL, "openai"),
        ({**LOCAL, "anthropic_key": "a"}, "anthropic:claude-sonnet-5-5"),
        ({"anthropic_base_url": "http://127.0.0.1:1"}, "offline"),
        ({**BOTH, "model": "offline"}, "offline"),
        ({**BOTH, "model": "openai:gpt-4o"}, "openai:gpt-4o"),
        ({**BOTH, "model": "anthropic:opus"}, "anthropic:claude-opus-5-5"),
        ({**LOCAL, "model": "openai:qwen3:8b"}, "openai:qwen3:8b"),
    ],
)
def test_the_default_is_what_is_set_or_else_what_is_ready(
    settings: dict[str, Any], default: str
) -> None:
    found = registry(**settings)

    assert (found.default.name, found.default.problem) == (default, "")
    assert found.list_choices()[0] == found.default
    assert found.select_backend("", "").backend.name == default.split(":", maxsplit=1)[0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "anthropic:opus"}, "backend.no_anthropic_key"),
        ({"model": "openai:gpt-4o", "anthropic_key": "a"}, "backend.no_openai_key"),
        ({"model": "acp:claude"}, "backend.unknown"),
        ({"model": "nonsense:x"}, "backend.unknown"),
        ({"model": "anthropic:"}, "backend.unknown"),
    ],
)
def test_a_setting_that_cannot_be_used_keeps_its_name_and_says_why(
    settings: dict[str, Any], problem: str
) -> None:
    """It does not quietly become another model: the Boss chose that one."""
    found = registry(**settings)

    assert found.list_choices()[0].problem == problem
    with pytest.raises(BackendDenied) as error:
        found.select_backend("", "")
    assert error.value.hint == problem
    assert all(catalog_for(language).has(problem) for language in Language)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("@opus", "anthropic:claude-opus-5-5"),
        ("Sonnet", "anthropic:claude-sonnet-5-5"),
        ("haiku", "anthropic:claude-haiku-5-5"),
        ("claude", "anthropic:claude-sonnet-5-5"),
        ("anthropic", "anthropic:claude-sonnet-5-5"),
        ("claude-opus-4-8", "anthropic:claude-opus-4-8"),
        ("anthropic:claude-next", "anthropic:claude-next"),
        ("openai", "openai:gpt-5.2"),
        ("gpt", "openai:gpt-5.2"),
        ("gpt-4o", "openai:gpt-4o"),
        ("OpenAI:meta/llama-3:8b", "openai:meta/llama-3:8b"),
        ("offline", "offline"),
        ("@离线", "offline"),
    ],
)
def test_names_that_people_type(name: str, meant: str) -> None:
    picked = registry(**BOTH).resolve_choice(name)

    assert picked is not None
    assert (picked.name, picked.problem) == (meant, "")


@pytest.mark.parametrize("name", ["", "@", "everyone", "acp:x", "anthropic:", "openai:a b", ":x"])
def test_other_names_mean_nothing(name: str) -> None:
    assert registry(**BOTH).resolve_choice(name) is None


def test_a_name_that_is_not_configured_says_so() -> None:
    found = registry(openai_key="o")

    picked = found.resolve_choice("opus")

    assert picked == ModelChoice(
        backend="anthropic", model="claude-opus-5-5", problem="backend.no_anthropic_key"
    )
    with pytest.raises(BackendDenied) as error:
        found.select_backend("claude-opus-5-5", "anthropic")
    assert error.value.hint == "backend.no_anthropic_key"


def test_the_choices_are_what_is_ready() -> None:
    names = [choice.name for choice in registry(**BOTH).list_choices()]

    assert names[0] == "anthropic:claude-sonnet-5-5"
    assert "openai:gpt-5.2" in names
    assert names[-1] == "offline"
    assert len(names) == len(set(names))
    assert [choice.name for choice in registry().list_choices()] == ["offline"]


@pytest.mark.parametrize(
    ("model", "backend", "chosen"),
    [
        ("", "offline", ("offline", "offline")),
        ("", "openai", ("openai", "gpt-5.2")),
        ("gpt-4o", "openai", ("openai", "gpt-4o")),
        ("opus", "anthropic", ("anthropic", "claude-opus-5-5")),
        ("haiku", "", ("anthropic", "claude-haiku-5-5")),
        ("offline", "offline", ("offline", "offline")),
    ],
)
def test_what_is_chosen_works(model: str, backend: str, chosen: tuple[str, str]) -> None:
    found = registry(**BOTH).select_backend(model, backend)

    assert (found.backend.name, found.model) == chosen


@pytest.mark.parametrize(("model", "backend"), [("nothing", ""), ("", "nobody"), ("x", "nobody")])
def test_an_unknown_choice_is_denied(model: str, backend: str) -> None:
    with pytest.raises(BackendDenied) as error:
        registry(**BOTH).select_backend(model, backend)

    assert error.value.hint == "backend.unknown"


def test_it_is_what_the_handlers_ask_for() -> None:
    port: ModelsPort = registry()

    assert port.list_choices()


async def test_a_service_of_ones_own_needs_nothing_but_its_address(models: ModelEmulator) -> None:
    found = registry(openai_base_url=models.openai_url, openai_key=models.key)
    chosen = found.select_backend("", "")

    _, result = await collect_run(
        chosen.backend, build_request(ApiProvider.OPENAI, model=chosen.model)
    )

    assert result.model == "local-model"
    await found.aclose()


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ({}, []),
        (BOTH, [("anthropic", "claude-sonnet-5-5")]),
        ({**BOTH, "model": "openai:gpt-4o"}, [("openai", "gpt-4o")]),
        (LOCAL, [("openai", "")]),
        ({**BOTH, "model": "offline"}, []),
    ],
)
async def test_what_the_first_answer_needs_is_loaded_before_it(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], loaded: list[tuple[str, str]]
) -> None:
    seen: list[tuple[str, str]] = []

    async def preload(self: ApiBackend, model: str) -> None:
        seen.append((self.name, model))

    monkeypatch.setattr(ApiBackend, "preload", preload)
    monkeypatch.setattr(backend_registry, "_PRELOAD_DELAY", 0.0)

    imported: list[str] = []
    monkeypatch.setattr(backend_registry, "_load", imported.append)
    found = registry(**settings)
    found.also_preloaded = READS_MESSAGES

    await found.run()

    assert seen == loaded
    assert imported == [*READS_MESSAGES]
    for each in (*READS_MESSAGES, TELEGRAM_TEXT, *FEISHU_TOOLS):
        module, _, function = each.partition(":")
        assert find_spec(module)
        assert not function or callable(getattr(import_module(module), function))
