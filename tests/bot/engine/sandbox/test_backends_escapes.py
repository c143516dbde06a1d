"""A command that means harm reads nothing outside, writes nothing outside, and reaches nobody."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.sandbox import supervisor
from bot.engine.sandbox.spec import SandboxKind
from tests.bot.engine.sandbox.conftest import SECRET, SandboxCell


async def test_it_works_in_the_workspace_and_has_a_home_and_a_temporary_folder(
    cell: SandboxCell,
) -> None:
    told = await cell.says(
        'pwd; echo in > made; echo $HOME; echo h > ~/note; echo t > "$(mktemp)" && echo fine;'
        " cat < <(echo piped); echo x > /dev/null"
    )

    assert told.splitlines() == [str(cell.workspace), str(cell.home), "fine", "piped"]
    assert (cell.workspace / "made").read_text() == "in\n"
    assert (cell.home / "note").exists()


@pytest.mark.parametrize(
    "attack",
    [
        "cat {secret}",
        "cat ../../../secret.txt",
        "cat {house}/.env; ls -a {house}",
        "ln -s {secret} link; cat link",
        "ln {secret} hard; cat hard",
        "cp -r {root} copy; cat copy/secret.txt",
        "mount --bind {root} . && cat secret.txt",
        "unshare -rm cat {secret}",
        "cat /proc/*/root{secret} /proc/*/cwd/secret.txt",
        "cat /proc/{pid}/root{secret}",
        "for fd in /proc/*/fd/*; do case $(readlink $fd) in *secret*) cat $fd;; esac; done",
        "python3 -c \"import os; fd = os.open('{root}', os.O_PATH); print(os.listdir(fd))\"",
        "find / -name secret.txt -readable 2>/dev/null | xargs -r cat",
    ],
)
async def test_what_is_outside_is_not_read(cell: SandboxCell, attack: str) -> None:
    root = cell.secret.parent
    command = attack.format(secret=cell.secret, house=cell.house, root=root, pid=os.getpid())

    told = await cell.says(f"{command} 2>&1")

    assert SECRET not in told


@pytest.mark.parametrize(
    "attack",
    [
        "echo bad > {secret}",
        "echo bad >> {secret}",
        "echo bad > {root}/new",
        "echo bad > ../../../new",
        "rm -f {secret}; mv {secret} here",
        "ln -s {root} out; echo bad > out/new; echo bad > out/secret.txt; rm -rf out/",
        "ln {secret} hard; echo bad > hard",
        "truncate -s 0 {secret}",
        "mv ../t1 ../t2; mkdir ../t1",
        "touch {root}/new; mkdir {house}/new; mkfifo {root}/new2",
        "python3 -c \"import os; os.rename('/proc/self/cwd', '{root}/new')\"",
        "mknod disk b 8 0 && dd if=/dev/zero of=disk count=1; mknod mem c 1 1",
        "echo x > /etc/new-file; echo x > /usr/new-file; echo x > /new-file",
        "chmod u+w /etc/hostname; chmod 645 {secret}; echo x >> /etc/hostname",
    ],
)
async def test_what_is_outside_is_not_written(cell: SandboxCell, attack: str) -> None:
    root = cell.secret.parent
    before = sorted(path for path in root.rglob("*") if cell.workspace not in path.parents)
    hostname = Path("/etc/hostname")
    bytes_before, mode_before = hostname.read_bytes(), hostname.stat().st_mode

    await cell.run(attack.format(secret=cell.secret, house=cell.house, root=root))

    # The temporary folder beside the home is ours.
    ours = cell.home.with_name(f"{cell.home.name}.tmp")
    after = sorted(path for path in root.rglob("*") if cell.workspace not in path.parents)
    assert [path for path in after if not path.is_relative_to(ours)] == before
    assert cell.secret.read_text() == SECRET
    assert os.geteuid() or cell.secret.stat().st_mode & 0o777 != 0o645
    assert not [each for each in ("/etc", "/usr", "/") if Path(each, "new-file").exists()]
    assert (hostname.read_bytes(), hostname.stat().st_mode) == (bytes_before, mode_before)
    assert not [path for path in cell.workspace.iterdir() if path.is_block_device()]


async def test_to_look_only_nothing_in_the_workspace_can_be_changed(cell: SandboxCell) -> None:
    (cell.workspace / "kept").write_text("as it was")

    ended = await cell.run("cat kept; echo bad > kept; echo bad > new; rm -f kept", writable=False)

    assert ended.head.startswith(b"as it was")
    assert [path.name for path in cell.workspace.iterdir()] == ["kept"]
    assert (cell.workspace / "kept").read_text() == "as it was"


async def test_nothing_of_our_environment_reaches_it_by_any_way(cell: SandboxCell) -> None:
    armed = replace(cell, around={**cell.around, "TELEGRAM_BOT_TOKEN": SECRET, "LC_ALL": "C.UTF-8"})

    told = await armed.says(
        f"env; cat /proc/self/environ /proc/*/environ /proc/{os.getppid()}/environ"
        f" /proc/{os.getpid()}/environ /proc/{os.getpid()}/cmdline 2>&1"
    )

    assert SECRET not in told
    assert "LC_ALL=C.UTF-8" in told
    assert f"HOME={cell.home}" in told
    names = {line.partition("=")[0] for line in (await armed.says("env")).splitlines()}
    assert names <= {
        *("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "TERM", "TZ", "COLORTERM", "NO_COLOR"),
        *("TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"),
        *(name for name in os.environ if name.startswith("LC_")),
    }


async def test_settings_of_the_whole_machine_cannot_be_written(cell: SandboxCell) -> None:
    """Each is written back as it is: root can do that even without any of its rights."""
    told = await cell.says(
        "for name in kernel/core_pattern kernel/pid_max vm/swappiness; do"
        " cp /proc/sys/$name value; (cat value > /proc/sys/$name) 2>/dev/null && echo written;"
        " done; echo tried"
    )

    assert told == "tried\n"


SWEEP = """
import os, stat
for top in ("/proc", "/sys", "/etc", "/run", "/var", "/dev"):
    for folder, folders, files in os.walk(top):
        folders[:] = [each for each in folders if not each.isdigit() and "self" not in each]
        for path in (os.path.join(folder, each) for each in files):
            try:
                file = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            if stat.S_ISREG(os.fstat(file).st_mode):
                print(path)
print("swept")
"""


async def test_no_file_of_the_machine_can_be_opened_for_writing(cell: SandboxCell) -> None:
    (cell.workspace / "sweep.py").write_text(SWEEP)

    told = (await cell.says("python3 sweep.py")).splitlines()

    # One may ask there to be woken when the machine is busy.
    assert [each for each in told if not each.startswith("/proc/pressure/")] == ["swept"]


async def test_another_process_cannot_be_given_limits(cell: SandboxCell) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            before = resource.prlimit(other.pid, resource.RLIMIT_NOFILE)
            told = await cell.says(
                f"prlimit --pid {other.pid} --nofile=5 2>&1; ulimit -n 50; ulimit -n"
            )

            assert resource.prlimit(other.pid, resource.RLIMIT_NOFILE) == before
            assert told.endswith("50\n")
        finally:
            other.kill()


async def test_another_process_can_be_neither_read_nor_ended(cell: SandboxCell) -> None:
    with subprocess.Popen(["sleep", "60"], env={"BAIT": SECRET}) as other:
        try:
            told = await cell.says(
                f"cat /proc/{other.pid}/environ /proc/{other.pid}/mem 2>&1;"
                f" kill -9 {other.pid} 2>&1; echo tried"
            )

            assert SECRET not in told
            assert told.endswith("tried\n")
            if cell.sandbox.kind is SandboxKind.BUBBLEWRAP or supervisor.landlock_abi() >= 6:
                assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.parametrize("how", ["tcp", "udp", "unix", "abstract"])
async def test_without_a_network_nobody_is_reached(
    cell: SandboxCell, how: str, tmp_path: Path
) -> None:
    if how in ("tcp", "udp"):
        kind = socket.SOCK_STREAM if how == "tcp" else socket.SOCK_DGRAM
        server = socket.socket(socket.AF_INET, kind)
        server.bind(("127.0.0.1", 0))
        target = repr(server.getsockname())
        family = "AF_INET"
    else:
        kind, family = socket.SOCK_STREAM, "AF_UNIX"
        server = socket.socket(socket.AF_UNIX, kind)
        name = f"\0shiftboss-{os.getpid()}" if how == "abstract" else str(tmp_path / "sock")
        server.bind(name)
        target = repr(name)
    with server:
        if kind is socket.SOCK_STREAM:
            server.listen()
        server.setblocking(False)

        told = await cell.says(
            "cat > try.py <<'END'\nimport socket as s\n"
            f"c = s.socket(s.{family}, s.{kind.name})\n"
            f"c.connect({target})\nc.send(b'x')\nprint('sent')\nEND\npython3 try.py 2>&1"
        )

        assert "Error" in told or how == "udp"
        with pytest.raises(BlockingIOError):
            server.accept() if kind is socket.SOCK_STREAM else server.recv(1)


async def test_with_a_network_a_server_is_reached(cell: SandboxCell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        told = await cell.says(f"echo hi > /dev/tcp/127.0.0.1/{port} && echo sent", network=True)

        assert told == "sent\n"
        with server.accept()[0] as caller:
            assert caller.recv(10) == b"hi\n"


async def test_it_gains_no_rights(cell: SandboxCell) -> None:
    told = await cell.says("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; sudo -n id")

    rights = dict(line.split(":\t") for line in told.splitlines()[:3])
    assert rights["NoNewPrivs"] == "1"
    assert int(rights["CapEff"], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="others cannot read it in the first place")
async def test_root_does_not_read_what_only_root_may_read(cell: SandboxCell) -> None:
    told = await cell.says("cat /etc/shadow /etc/gshadow /root/.bashrc ~root/.ssh/* 2>&1")

    assert "root:" not in told
    assert told.count("denied") + told.count("No such file") >= 3


class TestGit:
    """A repository's hooks and settings are programs that run later, outside."""

    @pytest.fixture
    def held(self, cell: SandboxCell) -> SandboxCell:
        if cell.sandbox.kind is not SandboxKind.BUBBLEWRAP:
            pytest.skip("Landlock cannot take back a part of what it allows")
        subprocess.run(["git", "init", "-q", cell.workspace], check=True)
        return cell

    async def test_commits_can_be_made(self, held: SandboxCell) -> None:
        told = await held.says(
            "echo a > a && git add a && git -c user.name=A -c user.email=a@b commit -qm one"
            " && git log --format=%s"
        )

        assert told == "one\n"

    async def test_hooks_and_settings_cannot_be_planted(self, held: SandboxCell) -> None:
        git = held.workspace / ".git"
        before = (git / "config").read_text()

        await held.run(
            "echo evil > .git/hooks/post-checkout; git config core.fsmonitor evil;"
            " mv .git .gut; rm -rf .git/hooks .git/config; mkdir -p .git/hooks;"
            " echo evil > .git/config; mv .git/hooks .git/h2"
        )

        assert (git / "config").read_text() == before
        assert not (git / "hooks" / "post-checkout").exists()
        assert not (held.workspace / ".gut").exists()

    async def test_in_a_project_of_the_boss_the_repository_can_only_be_read(
        self, held: SandboxCell
    ) -> None:
        """A new file in it, such as `commondir`, may name programs too."""
        project = held.secret.parent / "project"
        subprocess.run(["git", "init", "-q", project], check=True)
        before = sorted((project / ".git").rglob("*"))

        told = await replace(held, workspace=project).says(
            "mkdir evil; echo ../evil > .git/commondir; touch .git/x; mv .git gone;"
            " echo made > new; git status --short"
        )

        assert "?? new\n" in told
        assert sorted((project / ".git").rglob("*")) == before

    async def test_a_worktree_sees_its_history_and_cannot_be_pointed_elsewhere(
        self, held: SandboxCell
    ) -> None:
        project = held.secret.parent / "project"
        tree = held.house / "work" / "t2"
        given = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-C", str(project)]
        subprocess.run(["git", "init", "-q", project], check=True)
        subprocess.run([*given, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
        subprocess.run([*given, "worktree", "add", "-q", str(tree)], check=True)
        pointer = (tree / ".git").read_text()

        told = await replace(held, workspace=tree).says(
            f"git log --format=%s; echo evil > {project}/.git/config; echo gitdir: /etc > .git;"
            " rm -f .git; mv .git x"
        )

        assert told.splitlines()[0] == "first"
        assert (tree / ".git").read_text() == pointer
        assert "evil" not in (project / ".git" / "config").read_text()

    async def test_a_claimed_repository_is_not_shown(self, held: SandboxCell) -> None:
        """The worker's own claim of where its repository is proves nothing."""
        other = held.secret.parent / "other"
        (other / "worktrees" / "x").mkdir(parents=True)
        (other / "HEAD").write_text("ref: refs/heads/main")
        (other / "key").write_text(SECRET)
        tree = held.house / "work" / "t3"
        tree.mkdir()
        (tree / ".git").write_text(f"gitdir: {other}/worktrees/x\n")

        assert SECRET not in await replace(held, workspace=tree).says(f"cat {other}/key 2>&1")


async def test_a_secrets_file_within_the_workspace_is_hidden(
    tmp_path: Path, cell: SandboxCell
) -> None:
    if cell.sandbox.kind is not SandboxKind.BUBBLEWRAP:
        pytest.skip("Landlock cannot take back a part of what it allows")
    ours = cell.workspace / ".env"
    ours.write_text(SECRET)
    view = replace(cell.sandbox.view, hidden=(*cell.sandbox.view.hidden, ours))
    hidden = replace(cell, sandbox=replace(cell.sandbox, view=view))  # type: ignore[type-var] # both kinds are dataclasses

    assert SECRET not in await hidden.says("cat .env; cp .env x; mv .env y; cat x y 2>&1")
    assert ours.read_text() == SECRET


async def test_readable_folders_and_links_to_them_are_shown_wherever_they_lie(
    cell: SandboxCell,
) -> None:
    tools = cell.secret.parent / "tools"
    (tools / "inner").mkdir(parents=True)
    (tools / "inner" / "it.txt").write_text("shown")
    within, beside = tools / "link", tools.parent / "beside"
    within.symlink_to("inner")
    beside.symlink_to(tools / "inner")

    read = f"cat {tools}/inner/it.txt {within}/it.txt {beside}/it.txt"
    system = Path("/bin")  # a link on most machines, and readable anyway
    for readable in (
        (tools, within, beside, system),
        (system, beside, within, beside, tools),
        (within, beside),
    ):
        ran = await cell.run(read, readable=readable)
        assert (ran.head + ran.tail).count(b"shown") == 3, (readable, ran)
