"""What a command can see of this machine: the system's own folders, and no secrets in them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store"),
    *("/snap", "/gnu/store", "/sys/devices/system/cpu"),
)
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMES = frozenset({"LANG", "LANGUAGE", "TERM", "TZ", "COLORTERM", "NO_COLOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`readable` are folders and files; `hidden` those in them that are not to be seen. Links
    are resolved in both, and `links` keeps those at the top, such as /bin. `granted` is the same
    as paths that may be read whole, for what can only allow."""

    readable: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()
    granted: tuple[Path, ...] = ()

    def sees(self, path: Path) -> bool:
        path = Path(os.path.realpath(path))
        seen = any(path.is_relative_to(each) for each in self.readable)
        return seen and not any(path.is_relative_to(each) for each in self.hidden)


def view_of(*, extra: Sequence[Path] = (), secrets: Sequence[Path] = ()) -> View:
    """`extra` is to be seen beside the system's folders; `secrets` never. Blocking."""
    system = [Path(each) for each in SYSTEM]
    links = tuple((path, str(path.readlink())) for path in system if path.is_symlink())
    named = dict.fromkeys(
        Path(os.path.realpath(path)) for path in (*system, Path(sys.base_prefix), *extra)
    )
    there = [path for path in named if path.exists() and path != Path("/")]
    readable = tuple(
        path for path in there if not any(path != at and path.is_relative_to(at) for at in there)
    )
    private = (*(Path(os.path.realpath(path)) for path in secrets), *_private(Path("/etc")))
    hidden = tuple(dict.fromkeys(private))
    granted = tuple(part for root in readable for part in _around(root, hidden))
    return View(readable=readable, hidden=hidden, links=links, granted=granted)


def environment(
    around: Mapping[str, str], *, passed: Iterable[str] = (), view: View | None = None
) -> dict[str, str]:
    """Of the environment `around` only what a command needs, and the names in `passed`."""
    names = {*_NAMES, *passed}
    env = {name: value for name, value in around.items() if name in names or name.startswith("LC_")}
    path = around.get("PATH") or _USUAL_PATH
    if view is not None:
        seen = [part for part in path.split(":") if part.startswith("/") and view.sees(Path(part))]
        path = ":".join(seen) or _USUAL_PATH
    return {"TERM": "dumb", "LANG": "C.UTF-8", **env, "PATH": path}


def common_git_folder(workspace: Path) -> Path | None:
    """Where the history of a linked worktree is kept. The worktree only claims where that is; its
    owner's own note, which no command can have written, must name the worktree too."""
    try:
        claim = workspace / ".git"
        if not stat.S_ISREG(claim.lstat().st_mode):
            return None
        told = claim.read_text(errors="replace")[:4096].removeprefix("gitdir:").strip()
        entry = Path(os.path.realpath(workspace / told))
        common = entry.parent.parent
        back = (entry / "gitdir").read_text(errors="replace").strip()
        is_git = entry.parent.name == "worktrees" and (common / "HEAD").is_file()
        outside = not entry.is_relative_to(workspace)
        known = Path(os.path.realpath(Path(back).parent)) == workspace
    except (OSError, ValueError):
        return None
    return common if is_git and outside and known else None


def _private(folder: Path) -> Iterator[Path]:
    """What only the administrator may read: when we are that ourselves, it must be hidden."""
    if os.geteuid() != 0:
        return
    with os.scandir(folder) as found:
        for entry in found:
            mode = entry.stat(follow_symlinks=False).st_mode
            if entry.is_symlink():
                continue
            if not mode & stat.S_IROTH:
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield from _private(Path(entry.path))


def _around(root: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    if root in hidden:
        return
    if not any(path.is_relative_to(root) for path in hidden):
        yield root
        return
    with os.scandir(root) as found:
        children = [Path(entry.path) for entry in found if not entry.is_symlink()]
    for child in children:
        yield from _around(child, hidden)
