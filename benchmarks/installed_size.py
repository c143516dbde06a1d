"""The size on disk of everything that an installation without extras brings."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import MIB

_PROJECT = "shiftboss"
_LARGEST = 8
_BLOCK = 4096


async def measure(scale: Scale) -> list[Measurement]:
    """Every distribution that `shiftboss` requires on this platform without an extra, with those
    that they require in turn. The files are those of each distribution's record, in blocks of
    4 KiB, and the modules compiled from them, which an installer writes beside them. The
    interpreter is not counted."""
    found = required_distributions(_PROJECT)
    counted = scale.pick(found, {name: found[name] for name in sorted(found)[:1]})
    files = {name: [*_files(each)] for name, each in counted.items()}
    sizes = {name: _disk_size(each) for name, each in files.items()}
    compiled = await _compiled_sizes(files)
    totals = {name: sizes[name] + compiled[name] for name in files}
    largest = sorted(totals, key=lambda name: -totals[name])[:_LARGEST]
    return [
        Figure("installed", sum(totals.values()) / MIB, "MiB", at_most(350)),
        Figure("of that, compiled modules", sum(compiled.values()) / MIB, "MiB"),
        Figure("distributions", len(found)),
        *(Figure(f"of that, {name}", totals[name] / MIB, "MiB") for name in largest),
    ]


def required_distributions(name: str) -> dict[str, Distribution]:
    """The distribution and all that it requires, by name; what is not installed is missing."""
    found: dict[str, Distribution] = {}
    visited: set[tuple[str, str]] = set()
    left = [(canonicalize_name(name), "")]
    while left:
        each, extra = left.pop()
        if (each, extra) in visited:
            continue
        visited.add((each, extra))
        try:
            found[each] = distribution(each)
        except PackageNotFoundError:
            continue
        left += _requirements(found[each], extra)
    return found


def _requirements(of: Distribution, extra: str) -> list[tuple[NormalizedName, str]]:
    """Names of what it requires with this extra, each with an extra or none."""
    needed: list[tuple[NormalizedName, str]] = []
    for text in of.requires or ():
        each = Requirement(text)
        if each.marker is None or each.marker.evaluate({"extra": extra}):
            name = canonicalize_name(each.name)
            needed += [(name, other) for other in ("", *sorted(each.extras))]
    return needed


def _files(of: Distribution) -> Iterator[Path]:
    """Its files as installed, without compiled modules."""
    for file in of.files or ():
        path = Path(str(file.locate()))
        if path.suffix != ".pyc" and path.is_file():
            yield path


def _disk_size(files: Iterable[Path]) -> int:
    return sum(-(-path.stat().st_size // _BLOCK) * _BLOCK for path in files)


async def _compiled_sizes(files: dict[str, list[Path]]) -> dict[str, int]:
    """Bytes of the modules compiled from these files, by distribution."""
    sizes = {}
    for name, paths in files.items():
        sources = [str(path) for path in paths if path.suffix == ".py"]
        with tempfile.TemporaryDirectory() as folder:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "compileall", "-qq", "-i", "-"),
                env={**os.environ, "PYTHONPYCACHEPREFIX": folder},
                stdin=asyncio.subprocess.PIPE,
            )
            await process.communicate("\n".join(sources).encode())
            sizes[name] = _disk_size(Path(folder).rglob("*.pyc"))
    return sizes
