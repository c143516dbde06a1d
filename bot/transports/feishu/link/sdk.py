"""The SDK's protobuf frame, without the thousands of generated models around it.

Importing the SDK the ordinary way costs three seconds and 160 MiB. Standing in for the packages
around the one module that is needed costs milliseconds; the tests hold it to that.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# The last one would look for namespace packages with setuptools, at sixty milliseconds.
_BARE = ("lark_oapi", "lark_oapi.ws", "lark_oapi.ws.pb", "lark_oapi.ws.pb.google")


@cache
def frame_class() -> Any:
    """The `Frame` message of the long connection."""
    return _frames().Frame


@cache
def decode_error() -> type[Exception]:
    """What parsing a frame raises when the bytes are none."""
    _frames()
    message = importlib.import_module("lark_oapi.ws.pb.google.protobuf.message")
    error: type[Exception] = message.DecodeError
    return error


def _frames() -> ModuleType:
    for name in _BARE:
        if name not in sys.modules:
            sys.modules[name] = _bare(name)
    return importlib.import_module("lark_oapi.ws.pb.pbbp2_pb2")


def _bare(name: str) -> ModuleType:
    """The package as an import target only: its `__init__` does not run."""
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(name)
    module = ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations or ())
    module.__spec__ = spec
    return module
