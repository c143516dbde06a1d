"""The SDK's own protobuf frame, loaded without the thousands of models around it."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

CONTROL, DATA = 0, 1
SERVICE_ID = 33554678
_BARE = ("lark_oapi", "lark_oapi.ws", "lark_oapi.ws.pb", "lark_oapi.ws.pb.google")


def _frame_class() -> Any:
    """Stand-ins for the parent packages live only while the module is imported, so that a
    later full import of the SDK is an ordinary one."""
    added = []
    for name in _BARE:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        assert spec is not None
        module = ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations or ())
        module.__spec__ = spec
        sys.modules[name] = module
        added.append(name)
    try:
        return importlib.import_module("lark_oapi.ws.pb.pbbp2_pb2").Frame
    finally:
        for name in added:
            del sys.modules[name]


Frame = _frame_class()


def encode(method: int, headers: dict[str, str], payload: bytes) -> bytes:
    frame = Frame()
    frame.SeqID = 0
    frame.LogID = 0
    frame.service = SERVICE_ID
    frame.method = method
    for key, value in headers.items():
        header = frame.headers.add()
        header.key = key
        header.value = value
    frame.payload = payload
    raw: bytes = frame.SerializeToString()
    return raw


def decode(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Method, headers and payload."""
    frame = Frame()
    frame.ParseFromString(raw)
    return frame.method, {header.key: header.value for header in frame.headers}, frame.payload
