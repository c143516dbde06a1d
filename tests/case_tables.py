"""Tables of cases for pure functions, each table as one test: pytest takes longer to collect and
report a thousand tests, in each of its workers, than the cases themselves take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def all_cases(
    names: str | tuple[str, ...], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Like `pytest.mark.parametrize`, in one test: it goes through all rows and fails with every
    error, each with its row. For functions that keep no state."""
    is_one = isinstance(names, str)
    table = [(row,) if is_one else tuple(row) for row in rows]
    assert table, "a table without cases shows nothing"

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def run_all() -> None:
            errors = []
            for row in table:
                try:
                    check(*row)
                except Exception as error:  # noqa: BLE001 - all of them are raised together
                    error.add_note(f"the case {row!r}")
                    errors.append(error)
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(table)} cases", errors)

        run_all.__name__, run_all.__qualname__ = check.__name__, check.__qualname__
        run_all.__module__, run_all.__doc__ = check.__module__, check.__doc__
        return run_all

    return decorate
