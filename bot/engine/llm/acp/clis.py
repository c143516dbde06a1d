"""All coding CLIs that are known here, by name, as the file says at the moment."""

from __future__ import annotations

from functools import partial

from bot.engine.llm.acp.agents_file import AgentsFile
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.table import Agent


class Clis:
    def __init__(self, file: AgentsFile, house: House) -> None:
        self._file = file
        self._house = house
        self._backends: dict[str, AcpBackend] = {}
        self._last: dict[str, Agent] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._file.now().of)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the file, a sentence each."""
        return self._file.now().faults

    def agent(self, name: str) -> Agent:
        """As it is now; as it last was, where it has gone from the file since."""
        agent = self._file.now().of.get(name) or self._last[name]
        self._last[name] = agent
        return agent

    def backend(self, name: str) -> AcpBackend | None:
        """The same for the same name. None where there is no such CLI."""
        if name not in self._file.now().of:
            return None
        if name not in self._backends:
            self.agent(name)
            self._backends[name] = AcpBackend(partial(self.agent, name), self._house)
        return self._backends[name]
