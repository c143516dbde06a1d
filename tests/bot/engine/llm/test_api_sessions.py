"""What a run costs, remembers and takes along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.access import Access, Api
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import (
    Backend,
    BackendDenied,
    BackendUnavailable,
    Picture,
)
from tests.bot.engine.llm.world import (
    request_to,
    run_to_end,
    tool_that,
)
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Failure, Reply

STEP: dict[str, Any] = {
    "status": "done",
    "summary": "It is done.",
    "files": ["a.md"],
    "needs_replan": False,
}
WRITE = Call(name="write", arguments={"path": "a.md", "content": "x"})
FINAL = Call(name="final_result", arguments=STEP)


async def test_usage_is_counted_with_its_cost(models: Models, api: Api, backend: Backend) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(text="done"))

    _, result = await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),)))

    usage = result.usage
    assert usage.requests == 2
    assert usage.input_tokens > 10
    assert usage.output_tokens > 1
    assert usage.cost is not None
    assert usage.cost > 0


async def test_what_was_spent_before_a_failure_is_counted(
    models: Models, api: Api, backend: Backend
) -> None:
    models.replies(Reply(calls=[WRITE]), Reply(failure=Failure(status=500)))

    with pytest.raises(BackendUnavailable) as error:
        await run_to_end(backend, request_to(api, tools=(tool_that("ok", []),)))

    assert error.value.usage.requests == 1
    assert error.value.usage.input_tokens > 10
    assert error.value.usage.cost


async def test_a_model_without_a_known_price_has_no_cost(gpt: Backend) -> None:
    _, result = await run_to_end(gpt, request_to(Api.OPENAI, model="local-model"))

    assert result.usage.cost is None
    assert result.usage.input_tokens > 0


async def test_anthropics_prompt_cache_is_written_and_read(claude: Backend) -> None:
    system = "You are a test. " * 1_000

    _, first = await run_to_end(claude, request_to(Api.ANTHROPIC, system=system))
    _, second = await run_to_end(
        claude,
        request_to(Api.ANTHROPIC, "and again", system=system, history=first.new_history),
    )

    assert first.usage.cache_write_tokens > 3_000
    assert second.usage.cache_read_tokens > 3_000
    assert first.usage.input_tokens >= first.usage.cache_write_tokens
    assert first.usage.cost
    assert second.usage.cost
    assert second.usage.cost < first.usage.cost


async def test_a_session_goes_on_from_one_api_to_the_other_and_back(
    models: Models, claude: Backend, gpt: Backend
) -> None:
    """Plan with one, do a step with tools with the other, talk with the first."""
    plan = Call(name="final_result", arguments={"plan": "p", "steps": [], "answer": "yes"})
    models.replies(
        Reply(calls=[plan]),
        Reply(text="I write.", calls=[WRITE]),
        Reply(calls=[FINAL]),
        Reply(text="Well done."),
    )
    history: tuple[Any, ...] = ()

    _, planned = await run_to_end(
        claude, request_to(Api.ANTHROPIC, "plan it", system="plan!", result=PlanAnswer)
    )
    history += planned.new_history
    _, done = await run_to_end(
        gpt,
        request_to(
            Api.OPENAI,
            "do it",
            system="do!",
            tools=(tool_that("ok", []),),
            result=StepAnswer,
            history=history,
        ),
    )
    history += done.new_history
    history = tuple(json.loads(json.dumps(history)))
    _, said = await run_to_end(claude, request_to(Api.ANTHROPIC, "how was it?", history=history))

    assert models.refused == []
    assert said.text == "Well done."
    assert models.requests[1].said == ("plan it", "do it")
    assert models.requests[1].system == "do!"
    assert models.requests[3].said == ("plan it", "do it", "how was it?")
    assert "plan!" not in json.dumps(models.requests[3].body)


async def test_without_a_model_the_first_that_the_service_lists_is_used(
    models: Models, gpt: Backend
) -> None:
    _, first = await run_to_end(gpt, request_to(Api.OPENAI, model=""))
    _, second = await run_to_end(gpt, request_to(Api.OPENAI, model=""))

    assert (first.model, second.model) == ("local-model", "local-model")


@pytest.mark.parametrize(
    ("url", "raised"),
    [("http://127.0.0.1:9", BackendUnavailable), ("{url}/nowhere", BackendDenied)],
)
async def test_a_service_that_lists_no_models_is_an_error_of_ours(
    models: Models, url: str, raised: type[Exception]
) -> None:
    access = Access(api=Api.OPENAI, key="k", base_url=url.format(url=models.url))
    backend = ApiBackend(access, ())

    with pytest.raises(raised):
        await run_to_end(backend, request_to(Api.OPENAI, model=""))
    await backend.aclose()


async def test_the_offline_backends_history_is_read_on(
    models: Models, api: Api, backend: Backend
) -> None:
    from bot.engine.llm.offline import OfflineBackend

    _, offline = await run_to_end(OfflineBackend(), request_to(api, "say hello"))

    await run_to_end(backend, request_to(api, "and now?", history=offline.new_history))

    assert models.requests[0].said == ("say hello", "and now?")


async def test_a_history_nobody_can_read_is_left_out(
    models: Models, api: Api, backend: Backend
) -> None:
    await run_to_end(backend, request_to(api, history=({"kind": "from the future"}, 7)))

    assert models.requests[0].said == ("hello",)


async def test_pictures_go_along(
    models: Models, api: Api, backend: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG not really")
    pictures = (
        Picture(path=path, mime="image/png"),
        Picture(path=tmp_path / "gone.png", mime="image/png"),
    )

    _, result = await run_to_end(backend, request_to(api, "look", pictures=pictures))

    body = json.dumps(models.requests[0].body)
    assert "image/png" in body
    assert "gone.png is missing" in body
    json.dumps(result.new_history)


async def test_text_no_wire_can_carry_is_cleaned(
    models: Models, api: Api, backend: Backend
) -> None:
    await run_to_end(backend, request_to(api, "a\ud800b", system="c\udfffd"))

    assert models.requests[0].last == "a?b"
