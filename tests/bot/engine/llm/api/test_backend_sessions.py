"""The cost, the session and the context of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import Backend, BackendDenied, BackendUnavailable, ImageInput
from tests.bot.engine.llm.builders import build_request, collect_run, recording_tool
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedFailure, ScriptedReply

STEP: dict[str, Any] = {
    "status": "done",
    "summary": "It is done.",
    "files": ["a.md"],
    "needs_replan": False,
}
WRITE = ScriptedCall(name="write", arguments={"path": "a.md", "content": "x"})
FINAL = ScriptedCall(name="final_result", arguments=STEP)


async def test_usage_is_counted_with_its_cost(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(text="done"))

    _, result = await collect_run(backend, build_request(api, tools=(recording_tool("ok", []),)))

    usage = result.usage
    assert usage.requests == 2
    assert usage.input_tokens > 10
    assert usage.output_tokens > 1
    assert usage.cost is not None
    assert usage.cost > 0


async def test_what_was_spent_before_a_failure_is_counted(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    models.replies(ScriptedReply(calls=[WRITE]), ScriptedReply(failure=ScriptedFailure(status=500)))

    with pytest.raises(BackendUnavailable) as error:
        await collect_run(backend, build_request(api, tools=(recording_tool("ok", []),)))

    assert error.value.usage.requests == 1
    assert error.value.usage.input_tokens > 10
    assert error.value.usage.cost


async def test_a_model_without_a_known_price_has_no_cost(gpt: Backend) -> None:
    _, result = await collect_run(gpt, build_request(ApiProvider.OPENAI, model="local-model"))

    assert result.usage.cost is None
    assert result.usage.input_tokens > 0


async def test_anthropics_prompt_cache_is_written_and_read(claude: Backend) -> None:
    system = "You are a test. " * 1_000

    _, first = await collect_run(claude, build_request(ApiProvider.ANTHROPIC, system=system))
    _, second = await collect_run(
        claude,
        build_request(ApiProvider.ANTHROPIC, "and again", system=system, history=first.new_history),
    )

    assert first.usage.cache_write_tokens > 3_000
    assert second.usage.cache_read_tokens > 3_000
    assert first.usage.input_tokens >= first.usage.cache_write_tokens
    assert first.usage.cost
    assert second.usage.cost
    assert second.usage.cost < first.usage.cost


async def test_a_session_goes_on_from_one_api_to_the_other_and_back(
    models: ModelEmulator, claude: Backend, gpt: Backend
) -> None:
    """Plan with one, do a step with tools with the other, talk with the first."""
    plan = ScriptedCall(name="final_result", arguments={"plan": "p", "steps": [], "answer": "yes"})
    models.replies(
        ScriptedReply(calls=[plan]),
        ScriptedReply(text="I write.", calls=[WRITE]),
        ScriptedReply(calls=[FINAL]),
        ScriptedReply(text="Well done."),
    )
    history: tuple[Any, ...] = ()

    _, planned = await collect_run(
        claude, build_request(ApiProvider.ANTHROPIC, "plan it", system="plan!", result=PlanAnswer)
    )
    history += planned.new_history
    _, done = await collect_run(
        gpt,
        build_request(
            ApiProvider.OPENAI,
            "do it",
            system="do!",
            tools=(recording_tool("ok", []),),
            result=StepAnswer,
            history=history,
        ),
    )
    history += done.new_history
    history = tuple(json.loads(json.dumps(history)))
    _, said = await collect_run(
        claude, build_request(ApiProvider.ANTHROPIC, "how was it?", history=history)
    )

    assert models.refused == []
    assert said.text == "Well done."
    assert models.requests[1].user_texts == ("plan it", "do it")
    assert models.requests[1].system == "do!"
    assert models.requests[3].user_texts == ("plan it", "do it", "how was it?")
    assert "plan!" not in json.dumps(models.requests[3].body)


async def test_without_a_model_the_first_that_the_service_lists_is_used(
    models: ModelEmulator, gpt: Backend
) -> None:
    _, first = await collect_run(gpt, build_request(ApiProvider.OPENAI, model=""))
    _, second = await collect_run(gpt, build_request(ApiProvider.OPENAI, model=""))

    assert (first.model, second.model) == ("local-model", "local-model")


@pytest.mark.parametrize(
    ("url", "raised"),
    [("http://127.0.0.1:9", BackendUnavailable), ("{url}/nowhere", BackendDenied)],
)
async def test_a_service_that_lists_no_models_is_an_error_of_ours(
    models: ModelEmulator, url: str, raised: type[Exception]
) -> None:
    access = ApiAccess(provider=ApiProvider.OPENAI, key="k", base_url=url.format(url=models.url))
    backend = ApiBackend(access, ())

    with pytest.raises(raised):
        await collect_run(backend, build_request(ApiProvider.OPENAI, model=""))
    await backend.aclose()


async def test_the_offline_backends_history_is_read_on(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    from bot.engine.llm.offline.backend import OfflineBackend

    _, offline = await collect_run(OfflineBackend(), build_request(api, "say hello"))

    await collect_run(backend, build_request(api, "and now?", history=offline.new_history))

    assert models.requests[0].user_texts == ("say hello", "and now?")


async def test_a_history_nobody_can_read_is_left_out(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    await collect_run(backend, build_request(api, history=({"kind": "from the future"}, 7)))

    assert models.requests[0].user_texts == ("hello",)


async def test_pictures_go_along(
    models: ModelEmulator, api: ApiProvider, backend: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG not really")
    pictures = (
        ImageInput(path=path, mime="image/png"),
        ImageInput(path=tmp_path / "gone.png", mime="image/png"),
    )

    _, result = await collect_run(backend, build_request(api, "look", pictures=pictures))

    body = json.dumps(models.requests[0].body)
    assert "image/png" in body
    assert "gone.png is missing" in body
    json.dumps(result.new_history)


async def test_text_no_wire_can_carry_is_cleaned(
    models: ModelEmulator, api: ApiProvider, backend: Backend
) -> None:
    await collect_run(backend, build_request(api, "a\ud800b", system="c\udfffd"))

    assert models.requests[0].last_text == "a?b"
