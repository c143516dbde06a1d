"""Two files change places in one step, where the system can do that."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_EXCHANGE = 2


def exchange(folder: int, one: str, other: str) -> bool:
    """False, with nothing done, where neither system nor file system can. Raises OSError."""
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error == 2:  # noqa: PLR2004 - ENOENT: one of them has gone
        raise FileNotFoundError(error, os.strerror(error), other)
    return False


@cache
def _renameat2() -> Any:
    """None where the C library has no such call."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call
