"""A coding CLI that does what its scenario says, over the protocol's stdio. Standard library only:
it is a program of its own, `python agent.py SCENARIO.json`.

What it was sent is in `$HOME/received.jsonl`; its sessions, and how many turns each has had, in
`$HOME/sessions.json`: another process goes on with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

HOME = Path(os.environ["HOME"])
SESSIONS = HOME / "sessions.json"
RECEIVED = HOME / "received.jsonl"
FOREVER = 3600


class RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class ScriptedAgent:
    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self._scenario = scenario
        self._writing = threading.Lock()
        self._answers: dict[str, Queue[dict[str, Any]]] = {}
        self._cancelled = threading.Event()
        self._request_count = 0
        self._session = ""
        self._servers: Sequence[Mapping[str, Any]] = ()
        self._seen: set[str] = set()

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            with RECEIVED.open("a") as file:
                file.write(line)
            if "method" not in message:
                self._answers[message["id"]].put(message)
            elif message["method"] == "session/cancel":
                self._cancelled.set()
            else:
                threading.Thread(target=self._answer_request, args=(message,), daemon=True).start()

    def _answer_request(self, message: Mapping[str, Any]) -> None:
        try:
            result = self._result(message["method"], message.get("params") or {})
        except RpcError as fault:
            error = {"code": fault.code, "message": str(fault)}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _result(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        scenario = self._scenario
        self._servers = params.get("mcpServers", self._servers)
        if method in scenario.get("hang_on", ()):
            time.sleep(FOREVER)
        if method in scenario.get("die_on", ()):
            self._die(3, scenario.get("last_words", ""))
        if method in scenario.get("die_on_second", ()) and method in self._seen:
            self._die(3, "")
        self._seen.add(method)
        match method:
            case "initialize":
                return {
                    "protocolVersion": scenario.get("protocol", 1),
                    "agentCapabilities": {"loadSession": True},
                    "agentInfo": {"name": "fake", "version": "1.2.3"},
                }
            case "session/new":
                return self._new_session()
            case "session/resume" | "session/load":
                return self._resume(method, params)
            case "session/prompt":
                return self._run_turn(params)
            case "session/set_mode" | "session/set_config_option" | "authenticate":
                return {}
        raise RpcError(-32601, "Method not found")

    def _new_session(self) -> Mapping[str, Any]:
        if self._scenario.get("login"):
            raise RpcError(-32000, "Authentication required")
        sessions = _sessions()
        name = f"session-{len(sessions) + 1}"
        _save_sessions({**sessions, name: 0})
        return {"sessionId": name, **self._session_options()}

    def _resume(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method in self._scenario.get("without", ()):
            raise RpcError(-32601, "Method not found")
        if params["sessionId"] not in _sessions():
            raise RpcError(-32602, "no such session")
        if method == "session/load":
            self._session = params["sessionId"]
            for text in ("old words", "older words"):
                self._run_action({"say": text})
        return self._session_options()

    def _session_options(self) -> Mapping[str, Any]:
        modes = self._scenario.get("modes", ["default", "plan"])
        listed = [{"id": mode, "name": mode} for mode in modes]
        return {
            "modes": {"currentModeId": "yolo", "availableModes": listed},
            "configOptions": self._scenario.get("options", []),
        }

    def _run_turn(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self._cancelled.clear()
        self._session = params["sessionId"]
        sessions = _sessions()
        done = sessions.get(self._session, 0)
        _save_sessions({**sessions, self._session: done + 1})
        turns: Sequence[Sequence[Mapping[str, Any]]] = self._scenario["turns"]
        reason = self._run_actions(turns[min(done, len(turns) - 1)])
        usage = self._scenario.get("usage")
        return {"stopReason": reason, **({"usage": usage} if usage else {})}

    def _run_actions(self, acts: Sequence[Mapping[str, Any]]) -> str:
        for act in acts:
            if self._cancelled.is_set():
                return "cancelled"
            if ended := self._run_action(act):
                return ended
        return "end_turn"

    def _run_action(self, act: Mapping[str, Any]) -> str:
        (name, value), *_ = act.items()
        does: Mapping[str, Callable[[Any], str | None]] = {
            "say": lambda text: self._chunk("agent_message_chunk", text),
            "think": lambda text: self._chunk("agent_thought_chunk", text),
            "update": self._update,
            "flood": self._flood,
            "garbage": self._garbage,
            "stderr": _write_stderr_noise,
            "shout": _write_stderr,
            "write": _write,
            "append": _append,
            "use": self._use_mcp_server,
            "spawn": _spawn,
            "pid": lambda name: _write({"path": str(HOME / name), "text": str(os.getpid())}),
            "later": self._act_later,
            "hang": lambda _: self._hang(),
            "deaf": lambda _: time.sleep(FOREVER),
            "refuse": _raise_login_error,
            "die": lambda code: self._die(code, str(self._scenario.get("last_words", ""))),
            "end": str,
        }
        if name == "ask":
            return self._request_permission(value, act)
        return does[name](value) or ""

    def _request_permission(self, params: Mapping[str, Any], act: Mapping[str, Any]) -> str:
        self._request_count += 1
        number = f"ask-{os.getpid()}-{self._request_count}"
        self._answers[number] = Queue()
        self._send(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "session/request_permission",
                "params": {"sessionId": self._session, **params},
            }
        )
        answer = self._answers[number].get()
        chosen = answer.get("result", {}).get("outcome", {}).get("optionId", "")
        if chosen.startswith("yes"):
            return self._run_actions(act.get("yes", ())).replace("end_turn", "")
        return self._run_actions(act.get("no", ())).replace("end_turn", "")

    def _act_later(self, act: Mapping[str, Any]) -> None:
        """Do it when somebody has made the file `go` in its home."""

        def wait() -> None:
            while not (HOME / "go").exists():
                time.sleep(0.01)
            self._run_action(act)

        threading.Thread(target=wait, daemon=True).start()

    def _hang(self) -> str:
        self._cancelled.wait(FOREVER)
        return "cancelled"

    def _die(self, code: int, last_words: str) -> None:
        sys.stderr.write(last_words)
        sys.stderr.flush()
        os._exit(code)

    def _flood(self, how: Mapping[str, int]) -> None:
        text = "x" * how["size"]
        for _ in range(how["count"]):
            if self._cancelled.is_set():
                return
            self._chunk(str(how.get("kind", "agent_message_chunk")), text)

    def _garbage(self, text: str) -> None:
        with self._writing:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _use_mcp_server(self, call: Mapping[str, Any]) -> None:
        """Start an MCP server that it was given, call a tool of it, and say what it told."""
        wanted = call.get("server", "shiftboss")
        server = next((each for each in self._servers if each["name"] == wanted), None)
        told = f"[no server {wanted}]" if server is None else _call_mcp_tool(server, call)
        self._chunk("agent_message_chunk", told)

    def _chunk(self, kind: str, text: str) -> None:
        self._update({"sessionUpdate": kind, "content": {"type": "text", "text": text}})

    def _update(self, update: Mapping[str, Any]) -> None:
        params = {"sessionId": self._session, "update": update}
        self._send({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._writing:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()


def _sessions() -> dict[str, int]:
    return dict(json.loads(SESSIONS.read_text())) if SESSIONS.exists() else {}


def _save_sessions(sessions: Mapping[str, int]) -> None:
    SESSIONS.write_text(json.dumps(sessions))


def _raise_login_error(message: str) -> None:
    """As one answers that has found out only now that nobody is logged in."""
    raise RpcError(-32000, message)


def _write_stderr_noise(count: int) -> None:
    sys.stderr.write("e" * count)
    sys.stderr.flush()


def _write_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _write(what: Mapping[str, str]) -> None:
    path = Path(what["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(what["text"])


def _append(what: Mapping[str, str]) -> None:
    """For counting: relative paths are in its home."""
    with (HOME / what["path"]).open("a") as file:
        file.write(what["text"])


def _call_mcp_tool(server: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": call["tool"], "arguments": call["arguments"]},
        },
    ]
    ended = subprocess.run(
        [server["command"], *server["args"]],
        input="".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in asked),
        env={**os.environ, **{each["name"]: each["value"] for each in server["env"]}},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = {each["id"]: each for each in map(json.loads, ended.stdout.splitlines())}
    told = answers.get(2, {}).get("result")
    return "\n".join(part["text"] for part in told["content"]) if told else f"[{ended}]"


def _spawn(name: str) -> None:
    """A child that leaves the group, as shells of real CLIs do."""
    command = [sys.executable, "-c", f"import time; time.sleep({FOREVER})"]
    child = subprocess.Popen(command, start_new_session=True)
    (HOME / name).write_text(str(child.pid))


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    sys.stdout.write(given.get("greeting", ""))
    sys.stdout.flush()
    if not given.get("mute"):
        ScriptedAgent(given).listen()
