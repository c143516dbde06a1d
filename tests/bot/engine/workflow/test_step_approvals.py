"""Which steps need a word, whose, and for how long it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from bot.config.settings import RISK_WORDS
from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.step_approvals import (
    StepAllowed,
    StepApprovalRequester,
    StepAwaitsApproval,
    StepDecision,
    StepRefused,
    answer_calls,
    command_hash,
    find_risk_word,
    parse_risk_words,
)
from storage.approvals import ApprovalRepo
from storage.errors import NotAllowed, WrongState
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Person, PersonId, PersonRole
from storage.records.tasks import Task
from storage.schema import identities, people
from tests.engine_harness import BOSS, MATE, EngineHarness, run_engine

WORDS = parse_risk_words(RISK_WORDS)
RISKY = WorkflowNode(id="s1", title="Deploy it", detail="git push origin main")
PLAIN = WorkflowNode(id="s2", title="Write a haiku")
HUMAN = WorkflowNode(id="s3", title="Look at the sketch", detail="Is the blue right?", type="human")


@dataclass
class ApprovalOffice:
    """One task, whoever asks for leave to go on with it, and whoever decides."""

    world: EngineHarness
    task: Task
    requester: StepApprovalRequester
    approvals: ApprovalRepo

    async def check(self, node: WorkflowNode) -> StepDecision:
        async with self.world.db.write() as tx:
            deciding = self.requester.rules.decide(node, lambda _path: False)
            return await answer_calls(deciding, partial(self.requester.answer, tx, self.task))

    async def request(self, node: WorkflowNode) -> Approval:
        leave = await self.check(node)
        assert isinstance(leave, StepAwaitsApproval)
        return leave.approval

    async def add_person(self, name: str) -> Person:
        person = replace(MATE, id=PersonId(name.casefold()), name=name)
        async with self.world.db.write() as tx:
            values = {"id": person.id, "name": name, "role": PersonRole.MEMBER.value}
            await tx.execute(insert(people).values(**values, created_at=self.world.clock()))
            account = {"channel": "telegram", "external_id": name, "person_id": person.id}
            await tx.execute(insert(identities).values(**account))
        return person

    async def decide(self, approval: Approval, *, approve: bool, reason: str = "") -> None:
        await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=f"d:{approval.id}", reason=reason
        )


@pytest.fixture
async def approval_office(tmp_path: Path) -> AsyncIterator[ApprovalOffice]:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        yield ApprovalOffice(
            world=world,
            task=await world.create_task("Ship the site"),
            requester=StepApprovalRequester(
                words=WORDS, lifetime=timedelta(days=7), ids=IdGenerator(), now=world.clock
            ),
            approvals=ApprovalRepo(world.db, now=world.clock, decision_handlers={}),
        )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("deploy it", "deploy"),
        ("Start the DEPLOYMENT", "deploy"),
        ("auto-deploy now", "deploy"),
        ("git  push\nto origin", "git push"),
        ("ｄｅｐｌｏｙ", "deploy"),
        ("rm -rf /tmp/x", "rm -rf"),
        ("Drop  Table users;", "drop table"),
        ("把网站部署到服务器", "部署"),
        ("先deploy再说", "deploy"),
        ("de\u200bploy, with something unseen in it", "deploy"),
        ("部\u2060署", "部署"),
        ("on production", "production"),
        ("reproduction of the bug", ""),
        ("redeploy later", ""),
        ("the farm -rf", ""),
        ("push the git book aside", ""),
        ("", ""),
    ],
)
def test_words_make_a_step_risky(text: str, word: str) -> None:
    assert find_risk_word(WorkflowNode(id="s1", title="Step", detail=text), WORDS) == word


def test_the_title_counts_as_well_and_a_dash_stands_for_no_words() -> None:
    assert find_risk_word(RISKY, WORDS) == "git push"
    assert find_risk_word(replace(RISKY, detail=""), WORDS) == "deploy"
    assert parse_risk_words("-") == ()
    assert find_risk_word(RISKY, parse_risk_words("-")) == ""
    assert parse_risk_words(" Deploy , , 上线 ") == ("deploy", "上线")


def test_the_hash_is_that_of_exactly_this_step() -> None:
    same = replace(RISKY, id="s9", repeatable=False)
    others = [
        replace(RISKY, title="Deploy it "),
        replace(RISKY, detail="git push origin main --force"),
        replace(RISKY, type="human"),
        replace(RISKY, title="Deploy itgit push origin main", detail=""),
    ]

    assert command_hash(same) == command_hash(RISKY)
    assert len({command_hash(each) for each in [RISKY, *others]}) == 5


async def test_what_is_not_risky_is_not_asked_about(approval_office: ApprovalOffice) -> None:
    assert await approval_office.check(PLAIN) == StepAllowed()
    assert await approval_office.approvals.list_by_task(approval_office.task.id) == ()


async def test_a_risky_step_asks_any_owner_and_says_exactly_what_it_will_do(
    approval_office: ApprovalOffice,
) -> None:
    approval = await approval_office.request(RISKY)

    assert (approval.kind, approval.path) == (ApprovalKind.RISK, "s1")
    assert approval.detail == "Deploy it\ngit push origin main"
    assert approval.command_hash == command_hash(RISKY)
    assert approval.payload["task"] == "Ship the site"
    assert approval.can_be_decided_by(BOSS)
    assert not approval.can_be_decided_by(MATE)
    assert approval.expires_at - approval.created_at == timedelta(days=7)


async def test_a_persons_step_asks_its_maker_and_all_owners(
    approval_office: ApprovalOffice,
) -> None:
    approval_office.task = replace(approval_office.task, created_by=MATE.id)

    approval = await approval_office.request(HUMAN)

    assert approval.kind is ApprovalKind.HUMAN
    assert approval.approvers == (MATE.id, BOSS.id)


async def test_asking_again_while_it_waits_is_the_same_request(
    approval_office: ApprovalOffice,
) -> None:
    assert await approval_office.request(RISKY) == await approval_office.request(RISKY)


async def test_one_consent_holds_for_every_try_of_the_step(approval_office: ApprovalOffice) -> None:
    approval = await approval_office.request(RISKY)
    await approval_office.decide(approval, approve=True)

    for _ in range(3):
        leave = await approval_office.check(RISKY)
        assert isinstance(leave, StepAllowed)
        assert leave.by is not None
        assert leave.by.id == approval.id


@pytest.mark.parametrize(
    "changed", [replace(RISKY, detail="git push --force"), replace(RISKY, id="s7")]
)
async def test_consent_to_one_command_is_none_to_another(
    approval_office: ApprovalOffice, changed: WorkflowNode
) -> None:
    await approval_office.decide(await approval_office.request(RISKY), approve=True)

    assert isinstance(await approval_office.check(changed), StepAwaitsApproval)


@pytest.mark.parametrize(
    "talk",
    ["thank you, and take your time!", "辛苦了，慢慢来。", "tell me when it is done, please", "👍"],
)
async def test_a_kind_word_meanwhile_asks_nothing_and_is_recorded(
    approval_office: ApprovalOffice, talk: str
) -> None:
    approval = await approval_office.request(RISKY)
    await approval_office.decide(approval, approve=True)

    leave = await approval_office.check(_with_messages(RISKY, talk))

    assert isinstance(leave, StepAllowed)
    kept = await approval_office.approvals.get(approval.id)
    assert kept.payload["talk"] == talk
    assert kept.command_hash == approval.command_hash
    assert kept.detail == approval.detail


@pytest.mark.parametrize(
    "words",
    [
        "and deploy the shop too",
        "推到生产环境",
        "ＤＥＰＬＯＹ it twice",
        "use --force",
        "-f",
        "the branch is origin/next",
        "push to backup.example",
        "then run `make clean`",
        "with a | in between",
        "SHOP=all",
        "x" * 301,
        "pro\u200bduction",
        "we shall force\n💬 push it",
    ],
)
async def test_words_that_could_make_another_command_ask_anew(
    approval_office: ApprovalOffice, words: str
) -> None:
    await approval_office.decide(await approval_office.request(RISKY), approve=True)

    asked = await approval_office.request(_with_messages(RISKY, words))

    assert words in asked.detail


async def test_talk_does_not_carry_a_changed_step(approval_office: ApprovalOffice) -> None:
    await approval_office.decide(await approval_office.request(RISKY), approve=True)

    changed = replace(RISKY, detail="git push origin next")

    assert isinstance(
        await approval_office.check(_with_messages(changed, "thank you")), StepAwaitsApproval
    )
    assert isinstance(
        await approval_office.check(_with_messages(replace(RISKY, id="s7"), "thank you")),
        StepAwaitsApproval,
    )


async def test_talk_is_heard_with_what_was_allowed_after_it(
    approval_office: ApprovalOffice,
) -> None:
    """Consent to a command with words is not consent to the command without them."""
    told = _with_messages(RISKY, "and deploy the shop too")
    await approval_office.decide(await approval_office.request(told), approve=True)

    assert isinstance(await approval_office.check(_with_messages(told, "thank you")), StepAllowed)
    assert isinstance(await approval_office.check(RISKY), StepAwaitsApproval)


def _with_messages(node: WorkflowNode, *said: str) -> WorkflowNode:
    return replace(node, detail="\n".join((node.detail, *(f"💬 {text}" for text in said))).strip())


async def test_a_refusal_is_told_once_and_then_it_is_asked_anew(
    approval_office: ApprovalOffice,
) -> None:
    first = await approval_office.request(RISKY)
    await approval_office.decide(first, approve=False, reason="not on Friday")

    assert await approval_office.check(RISKY) == StepRefused(BOSS.id, "not on Friday")
    assert (await approval_office.request(RISKY)).id != first.id


async def test_what_expired_is_asked_anew(approval_office: ApprovalOffice) -> None:
    first = await approval_office.request(RISKY)
    approval_office.world.clock.advance(days=8)

    second = await approval_office.request(RISKY)

    assert second.id != first.id
    # Nobody had settled the first yet: it must not pause the task that waits for the second.
    assert await approval_office.approvals.expire_overdue() == ()
    assert (await approval_office.approvals.get(first.id)).state is ApprovalState.EXPIRED


async def test_a_task_waits_for_one_decision_at_a_time(approval_office: ApprovalOffice) -> None:
    first = await approval_office.request(RISKY)
    changed = await approval_office.request(replace(RISKY, detail="git push --force"))

    assert (await approval_office.approvals.get(first.id)).state is ApprovalState.EXPIRED
    assert [
        each.id for each in await approval_office.approvals.list_waiting(by=BOSS, chat=None)
    ] == [changed.id]


@pytest.mark.parametrize(
    ("assignee", "named"),
    [
        ("Mate", MATE.id),
        ("mate", MATE.id),
        (MATE.id, MATE.id),
        (f"telegram:x-{MATE.id}", MATE.id),
        (f"Telegram: x-{MATE.id}", MATE.id),
        ("owner", None),
        ("Zaphod", None),
        ("telegram:5", None),
    ],
)
async def test_who_is_named_for_a_step_decides_beside_the_owners(
    approval_office: ApprovalOffice, assignee: str, named: str | None
) -> None:
    asked = await approval_office.request(replace(HUMAN, config=HumanConfig(assignee=(assignee,))))

    assert asked.approvers == ((BOSS.id,) if named is None else (named, BOSS.id))
    assert asked.payload.get("assignees") == (None if named is None else [named])


async def test_each_of_several_who_are_named_may_decide_and_nobody_else(
    approval_office: ApprovalOffice,
) -> None:
    ann = await approval_office.add_person("Ann")
    other = await approval_office.add_person("Other")
    approval_office.task = replace(approval_office.task, created_by=other.id)

    asked = await approval_office.request(
        replace(HUMAN, config=HumanConfig(assignee=("Mate", "Ann", "Zaphod")))
    )

    assert asked.approvers == (MATE.id, ann.id, BOSS.id)
    with pytest.raises(NotAllowed):
        await approval_office.approvals.decide(asked, approve=True, by=other, source="d:other")
    await approval_office.approvals.decide(asked, approve=True, by=ann, source="d:ann")
    with pytest.raises(WrongState):
        await approval_office.approvals.decide(asked, approve=False, by=MATE, source="d:mate")


async def test_a_name_that_two_people_have_means_neither(approval_office: ApprovalOffice) -> None:
    async with approval_office.world.db.write() as tx:
        await tx.execute(update(people).values(name="Sam"))

    asked = await approval_office.request(replace(HUMAN, config=HumanConfig(assignee=("Sam",))))

    assert asked.approvers == (BOSS.id,)
