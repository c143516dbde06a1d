"""A folder that a worker has written to brings a git configuration: Shiftboss's own git runs no
program that it names, in any of its commands."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from bot.engine.llm.backend import BackendDenied
from bot.engine.sandbox.git_runner import GitFailed
from bot.engine.workspaces.task_workspaces import TaskArtifacts, TaskWorktrees
from storage.records.tasks import Task
from tests.bot.engine.workspaces.git_project import GitProject, always_adopted
from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    run_call,
    script_task,
    wait_for_message,
)
from tests.journeys.platform_world import platform_world

MODULES = '[submodule "vendor"]\n\tpath = vendor\n\turl = ./vendor\n\tignore = none\n'

Attack = Callable[[GitProject, str], None]


def configure(*names: str, attributes: str = "") -> Attack:
    """Name the program in the repository's configuration, and give each file these attributes."""

    def prepare(project: GitProject, program: str) -> None:
        if attributes:
            project.commit(".gitattributes", f"* {attributes}\n")
        for name in names:
            project.git("config", name, "true" if name.endswith("required") else program)

    return prepare


def include(project: GitProject, program: str) -> None:
    project.commit(".gitattributes", "* filter=x\n")
    (project.path / ".git" / "more").write_text(f'[filter "x"]\n\tsmudge = {program}\n')
    project.git("config", "include.path", "more")


def include_if(condition: str) -> Attack:
    """Include a file where a task works, but not in the project."""

    def prepare(project: GitProject, program: str) -> None:
        include(project, program)
        project.git("config", "--unset", "include.path")
        project.git("config", f"includeIf.{condition}.path", "more")

    return prepare


def configure_worktrees(project: GitProject, program: str) -> None:
    project.commit(".gitattributes", "* filter=x\n")
    project.git("config", "extensions.worktreeConfig", "true")
    project.git("config", "--worktree", "filter.x.clean", program)


def attribute_by_repository(project: GitProject, program: str) -> None:
    (project.path / ".git" / "info" / "attributes").write_text("* filter=x\n")
    project.git("config", "filter.x.process", program)


def odd_name(project: GitProject, program: str) -> None:
    """A name with the characters that separate names and values elsewhere."""
    project.commit(".gitattributes", "* filter=a=b.c\n")
    project.git("config", "filter.a=b.c.smudge", program)


def hook(project: GitProject, program: str) -> None:
    for name in ("post-checkout", "pre-commit", "post-merge", "reference-transaction"):
        file = project.path / ".git" / "hooks" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)


def promise(url: str, **settings: str) -> Attack:
    """A file is missing that git then fetches by itself from where the repository says."""

    def prepare(project: GitProject, program: str) -> None:
        project.commit("promised.txt", "not here\n")
        blob = project.git("rev-parse", "HEAD:promised.txt").strip()
        (project.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        named = {
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "origin",
            "remote.origin.promisor": "true",
            "remote.origin.url": url.format(program=program, path=project.path),
            **settings,
        }
        for name, value in named.items():
            project.git("config", name, value.format(program=program))

    return prepare


ATTACKS: dict[str, Attack] = {
    "smudge": configure("filter.x.smudge", attributes="filter=x"),
    "clean": configure("filter.x.clean", attributes="filter=x"),
    "process": configure("filter.x.process", attributes="filter=x"),
    "a required filter": configure(
        "filter.x.smudge", "filter.x.clean", "filter.x.required", attributes="filter=x"
    ),
    "in another case": configure("FILTER.x.SmudGe", attributes="filter=x"),
    "included": include,
    "included on the branch of a task": include_if("onbranch:shiftboss/**"),
    "included in a worktree": include_if("gitdir:**/worktrees/**"),
    "included by a remote": include_if("hasconfig:remote.*.url:**"),
    "of worktrees": configure_worktrees,
    "attributes in .git": attribute_by_repository,
    "an odd name": odd_name,
    "hooks": hook,
    "another folder of hooks": configure("core.hooksPath"),
    "a file monitor": configure("core.fsmonitor"),
    "an external diff": configure("diff.external"),
    "a diff of its own": configure("diff.x.command", "diff.x.textconv", attributes="diff=x"),
    "a merge driver": configure("merge.x.driver", attributes="merge=x"),
    "an editor": configure("core.editor", "sequence.editor", "core.pager", "pager.diff"),
    "a signing program": configure("gpg.program", "gpg.ssh.program"),
    "a promise": promise("ext::{program} %S", **{"protocol.ext.allow": "always"}),
    "a promise by SSH": promise("ssh://there/x", **{"core.sshCommand": "{program}"}),
    "a promise in a folder": promise("{path}", **{"remote.origin.uploadPack": "{program}"}),
    "credentials": configure("credential.helper", "core.askPass", "core.sshCommand"),
}


async def open_worktree(artifacts: TaskArtifacts, project: GitProject, task: Task) -> None:
    """Shiftboss's git calls before a worker starts, then the worker's changes."""
    await TaskWorktrees(project.path.parent, always_adopted).find_repository(project.path)
    work = await artifacts.workspace(task)
    (work / "readme.md").write_text("theirs\n")
    (work / "new.txt").write_text("new\n")
    await artifacts.find_unchanged(task, work, ("readme.md",))


async def land(artifacts: TaskArtifacts, task: Task) -> None:
    """Commit, merge with a change of the Boss's, check out, and remove."""
    await artifacts.merge(task)
    await artifacts.remove_worktree(task)


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_program_of_a_repository_runs(tmp_path: Path, name: str) -> None:
    project = GitProject(tmp_path / "project")
    witness, program = tmp_path / "witness", tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {witness}\ncat\n")
    program.chmod(0o755)
    ATTACKS[name](project, str(program))
    witness.unlink(missing_ok=True)  # the preparation may have run it
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()

    with suppress(GitFailed, BackendDenied):  # refusing is as good
        await open_worktree(artifacts, project, task)
    ran_at_first = witness.exists()
    project.commit("readme.md", "by the Boss\n")
    witness.unlink(missing_ok=True)  # as before
    with suppress(GitFailed, BackendDenied):
        await land(artifacts, task)

    assert not ran_at_first
    assert not witness.exists()


async def test_a_filter_of_the_user_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Git LFS, which its installation names in the user's configuration."""
    (tmp_path / ".gitconfig").write_text('[filter "x"]\n\tsmudge = tr a-z A-Z\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    project = GitProject(tmp_path / "project")
    project.commit(".gitattributes", "*.md filter=x\n")
    project.git("config", "filter.x.smudge", "touch never")

    work = await TaskArtifacts(tmp_path / "home", always_adopted).workspace(project.task())

    assert (work / "readme.md").read_text() == "HELLO\n"


async def test_a_filter_of_the_user_runs_nothing_that_the_repository_names_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git LFS asks git for the programs to run, and downloads unless it is told not to."""
    witness, skipped = tmp_path / "witness", tmp_path / "skipped"
    lfs = tmp_path / "lfs"
    lfs.write_text(
        "#!/bin/sh\n"
        f'[ "$GIT_LFS_SKIP_SMUDGE" = 1 ] && touch {skipped}\n'
        "for name in lfs.extension.x.smudge lfs.extension.x.clean lfs.customtransfer.x.path\n"
        'do program=$(git config "$name") && sh -c "$program" </dev/null >/dev/null; done\ncat\n'
    )
    lfs.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f'[filter "lfs"]\n\tsmudge = {lfs}\n\tclean = {lfs}\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    project = GitProject(tmp_path / "project")
    project.commit(".gitattributes", "*.md filter=lfs\n")
    for name in ("extension.x.smudge", "extension.x.clean", "customtransfer.x.path"):
        project.git("config", f"lfs.{name}", f"touch {witness}")
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()
    witness.unlink(missing_ok=True)

    await open_worktree(artifacts, project, task)
    await land(artifacts, task)

    assert skipped.exists()
    assert not witness.exists()


async def test_a_repository_made_by_a_worker_runs_nothing_in_the_next_task(tmp_path: Path) -> None:
    folder, witness = tmp_path / "shop", tmp_path / "witness"
    project = GitProject(folder)
    project.commit(".gitattributes", "* filter=x\n")
    for kind in ("smudge", "clean", "process"):
        project.git("config", f"filter.x.{kind}", f"touch {witness}; cat")
    async with platform_world(tmp_path / "home") as here:
        told = await here.ask(f'/run -d {folder} write "theirs" to notes.txt', expects="finished")

    assert "notes.txt" in told
    assert not witness.exists()


async def test_a_repository_that_a_worker_makes_in_a_reference_runs_nothing(tmp_path: Path) -> None:
    """Git starts itself in the folder of such a reference, with the configuration there."""
    project, witness = GitProject(tmp_path / "project"), tmp_path / "witness"
    (project.path / "vendor").mkdir()
    link = f"160000,{project.git('rev-parse', 'HEAD')},vendor"
    project.git("update-index", "--add", "--cacheinfo", link)
    project.commit(".gitmodules", MODULES)
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()
    vendor = await artifacts.workspace(task) / "vendor"
    vendor.rmdir()  # empty, as git leaves it
    inner = GitProject(vendor)
    inner.commit(".gitattributes", "* filter=x\n")
    for kind in ("smudge", "clean"):
        inner.git("config", f"filter.x.{kind}", f"touch {witness}; cat")
    inner.git("config", "core.fsmonitor", f"touch {witness}; false")
    inner.write("readme.md", "HELLO\n")
    witness.unlink(missing_ok=True)

    outcome = await artifacts.merge(task)
    await artifacts.remove_worktree(task)

    assert not witness.exists()
    assert not outcome.merged
    assert outcome.facts["files"] == "vendor"
    assert (vendor / "readme.md").read_text() == "HELLO\n"


MAKE_REPOSITORY = [
    "git init",
    "git init --separate-git-dir=elsewhere",
    "git init --bare made && mv -T made .git",
    "mkdir .git/hooks",
    "echo x > .git/config",
    "rmdir .git; mkdir -p .git/hooks",
    "rm -rf .git; echo 'gitdir: made' > .git",
    "mkdir made; rm -rf .git; ln -s made .git",
    "mv .git old && git init",
    "mv -T .git old; mkdir .git; touch .git/HEAD",
    "mkdir made && touch made/HEAD && mv made/HEAD .git/HEAD",
    "ln -s /tmp .git/objects",
    "chmod 777 .git; touch .git/HEAD",
    "umount .git; touch .git/HEAD",
    "mkdir made; mount --bind made .git; touch .git/HEAD",
    "unshare -Ur sh -c 'umount -l .git; touch .git/HEAD'",
    "git clone . .git",
    'cd .. && git init "$OLDPWD"',
    "git --git-dir=.git --work-tree=. init",
    "python3 -c \"import os; os.rename('.git', 'old'); os.mkdir('.git'); open('.git/HEAD', 'w')\"",
    "cp -r /etc .git/",
    "git worktree add x; git submodule add ./x; git init",
]


@pytest.fixture(scope="module")
def project_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    trusting = {"SHIFTBOSS_TOOLS_SECURITY": "full", "SHIFTBOSS_TOOLS_ASK": "off"}
    async with model_world(home, "openai", **trusting) as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(len(MAKE_REPOSITORY)))
async def test_a_sandboxed_command_makes_no_repository_in_a_plain_folder(
    world: ModelWorld, project_folder: Path, number: int
) -> None:
    boss, chat = world.new_owner()
    cue = f"born-{number:02}"
    said = script_task(world.script, cue, run_call(f"{MAKE_REPOSITORY[number]}; echo tried"))

    await boss.says(chat, said.replace("/run", f"/run -d {project_folder}"))
    await wait_for_message(chat, f"It is done: {cue}.")

    heard = world.script.requests_for(f"step-{cue}", "step")[-1].tool_results
    assert "tried" in dict(heard)["exec"]
    assert (project_folder / ".git").is_dir()
    assert not (project_folder / ".git").is_symlink()
    assert [*(project_folder / ".git").iterdir()] == []


def make_repository(folder: Path) -> None:
    """As a worker without a sandbox could."""
    subprocess.run(("git", "init", "-q"), cwd=folder, check=True)
    subprocess.run(("git", "add", "-A"), cwd=folder, check=True)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(
        ("git", *who, "commit", "-q", "--allow-empty", "-m", "born"), cwd=folder, check=True
    )


def git_output(folder: Path, *args: str) -> str:
    return subprocess.run(
        ("git", *args), cwd=folder, check=True, capture_output=True, text=True
    ).stdout


async def test_a_repository_born_while_tasks_worked_there_is_used_only_when_an_owner_says_so(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    async with platform_world(tmp_path / "home") as here:
        await here.ask(f'/run -d {folder} write "one" to notes.txt', expects="finished")
        make_repository(folder)
        await here.ask(f'/run -d {folder} write "two" to two.txt', expects="/project adopt")
        await here.telegram_chat.wait_for(lambda m: "two.txt" in m.text and "finished" in m.text)
        await here.program.stop()
        await here.program.start()
        await here.ask(f"/project {folder}", expects="is not used")
        await here.ask('/run write "three" to three.txt', expects="finished")
        told = [m for m in here.telegram_chat.from_bot if "/project adopt" in m.text]
        branches = git_output(folder, "branch", "--all")
        await here.ask(f"/project adopt {folder}", expects="It is a git project")
        await here.ask('/run write "four" to four.txt', expects="finished")

    assert len(told) == 2  # the notice, and the card of /project
    assert "shiftboss/" not in branches
    assert "Shiftboss task" in git_output(folder, "log", "--format=%B", "--", "four.txt")


@pytest.mark.parametrize("where", ["shop", "shop/deep/inside"])
async def test_a_repository_inside_a_folder_where_tasks_worked_is_not_used(
    tmp_path: Path, where: str
) -> None:
    (tmp_path / "shop").mkdir()
    async with platform_world(tmp_path / "home") as here:
        await here.ask(f'/run -d {tmp_path}/shop write "one" to notes.txt', expects="finished")
        (tmp_path / where).mkdir(parents=True, exist_ok=True)
        make_repository(tmp_path / where)
        told = await here.ask(f"/project {tmp_path / where}", expects="Project folder")
        empty = await here.ask(f"/project {tmp_path}/shop", expects="Project folder")

    assert "is not used" in told
    assert "It is a git project" not in empty
