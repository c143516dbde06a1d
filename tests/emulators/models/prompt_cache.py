"""The providers' prompt caches: what of a prompt is read from them, what is written to them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import takewhile

from tests.emulators.models import anthropic_api
from tests.emulators.models.script import ReceivedRequest, estimate_tokens

LOOK_BACK_BLOCKS = 20
"""At a mark, Anthropic finds what was written so many blocks before it, and no further back."""
_PROMPT = ("tools", "instructions", "systemInstruction", "messages", "input", "contents")
_OPENAI_STEP = 128
_OPENAI_KEPT = 200


class PromptCache:
    """Never forgets: requests of a test are closer together than the providers' five minutes.
    No prefix below `floor` tokens is kept."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._written: set[str] = set()
        self._prompts: dict[str, list[str]] = defaultdict(list)

    def usage(self, asked: ReceivedRequest) -> Mapping[str, int]:
        """Input tokens as the provider would bill them."""
        count = self._anthropic if asked.api == "anthropic" else self._others
        whole, read, written = count(asked)
        return {
            "input_tokens": max(0, whole - read - written),
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
        }

    def _anthropic(self, asked: ReceivedRequest) -> tuple[int, int, int]:
        """Written at each mark; read up to the longest prefix known at a mark or shortly before
        it. A change of tools, system or choice of tool leaves nothing after it to be read."""
        prefixes = list(_prefixes(asked))
        marks = [
            at for at, (_, size, marked) in enumerate(prefixes) if marked and self._keeps(size)
        ]
        known = [
            prefixes[at][1]
            for mark in marks
            for at in range(max(0, mark - LOOK_BACK_BLOCKS + 1), mark + 1)
            if prefixes[at][0] in self._written
        ]
        self._written.update(prefixes[mark][0] for mark in marks)
        read = max(known, default=0)
        written = max((prefixes[mark][1] for mark in marks), default=read) - read
        return prefixes[-1][1], read, max(0, written)

    def _others(self, asked: ReceivedRequest) -> tuple[int, int, int]:
        """Read as far as the prompt begins like an earlier one, in whole steps; writing is free
        and unasked."""
        prompt = json.dumps([asked.body.get(part) for part in _PROMPT])
        earlier = self._prompts[asked.model]
        longest = max((_common_prefix_length(prompt, one) for one in earlier), default=0)
        shared = longest // 4 // _OPENAI_STEP * _OPENAI_STEP
        self._prompts[asked.model] = [*earlier[-_OPENAI_KEPT:], prompt]
        return estimate_tokens(prompt), shared if self._keeps(shared) else 0, 0

    def _keeps(self, size: int) -> bool:
        return size >= self.floor


def _common_prefix_length(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    most = min(len(one), len(other))
    ends = range(_OPENAI_STEP, most + 1, _OPENAI_STEP)
    size = _OPENAI_STEP
    alike = takewhile(lambda end: one[end - size : end] == other[end - size : end], ends)
    return max(alike, default=0)


def _prefixes(asked: ReceivedRequest) -> Iterator[tuple[str, int, bool]]:
    """Of each block the prompt up to its end, as a hash, its size, and whether it is marked."""
    digest, length = sha256(asked.model.encode()), 0
    blocks = anthropic_api.prompt_blocks(asked.body)
    choice = json.dumps(asked.body.get("tool_choice"), sort_keys=True)
    for at, (place, block) in enumerate(blocks, start=1):
        if place in {"user", "assistant"}:
            digest.update(choice.encode())
        bare = json.dumps({k: v for k, v in block.items() if k != "cache_control"}, sort_keys=True)
        digest.update(f"{place} {bare}".encode())
        length += len(bare)
        marked = at == len(blocks) and bool(asked.body.get("cache_control"))
        yield digest.hexdigest(), length // 4 + 1, marked or bool(block.get("cache_control"))
