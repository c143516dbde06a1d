"""Which steps need a word, whose, and for how long it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from bot.config.settings import RISK_WORDS
from bot.engine.workflow.asking import (
    Asked,
    Asker,
    Granted,
    Leave,
    Refused,
    command_hash,
    risk_words,
    risky_word,
)
from bot.engine.workflow.graph import Node
from bot.engine.workflow.model.nodes import Human
from storage.approvals import Approvals
from storage.errors import NotAllowed, WrongState
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Person, PersonId, Role
from storage.records.tasks import Task
from storage.schema import identities, people
from tests.engine_world import BOSS, MATE, Engine, engine

WORDS = risk_words(RISK_WORDS)
RISKY = Node(id="s1", title="Deploy it", detail="git push origin main")
PLAIN = Node(id="s2", title="Write a haiku")
HUMAN = Node(id="s3", title="Look at the sketch", detail="Is the blue right?", type="human")


@dataclass
class Office:
    """One task, whoever asks for leave to go on with it, and whoever decides."""

    world: Engine
    task: Task
    asker: Asker
    approvals: Approvals

    async def leave(self, node: Node) -> Leave:
        async with self.world.db.write() as tx:
            return await self.asker.leave(tx, self.task, node)

    async def asked(self, node: Node) -> Approval:
        leave = await self.leave(node)
        assert isinstance(leave, Asked)
        return leave.approval

    async def let_in(self, name: str) -> Person:
        person = replace(MATE, id=PersonId(name.casefold()), name=name)
        async with self.world.db.write() as tx:
            values = {"id": person.id, "name": name, "role": Role.MEMBER.value}
            await tx.execute(insert(people).values(**values, created_at=self.world.clock()))
            account = {"channel": "telegram", "external_id": name, "person_id": person.id}
            await tx.execute(insert(identities).values(**account))
        return person

    async def decide(self, approval: Approval, *, approve: bool, reason: str = "") -> None:
        await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=f"d:{approval.id}", reason=reason
        )


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with engine(tmp_path, running=False) as world:
        yield Office(
            world=world,
            task=await world.add("Ship the site"),
            asker=Asker(words=WORDS, lifetime=timedelta(days=7), ids=Ids(), now=world.clock),
            approvals=Approvals(world.db, now=world.clock, consequences={}),
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
    assert risky_word(Node(id="s1", title="Step", detail=text), WORDS) == word


def test_the_title_counts_as_well_and_a_dash_stands_for_no_words() -> None:
    assert risky_word(RISKY, WORDS) == "git push"
    assert risky_word(replace(RISKY, detail=""), WORDS) == "deploy"
    assert risk_words("-") == ()
    assert risky_word(RISKY, risk_words("-")) == ""
    assert risk_words(" Deploy , , 上线 ") == ("deploy", "上线")


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


async def test_what_is_not_risky_is_not_asked_about(office: Office) -> None:
    assert await office.leave(PLAIN) == Granted()
    assert await office.approvals.of_task(office.task.id) == ()


async def test_a_risky_step_asks_any_owner_and_says_exactly_what_it_will_do(
    office: Office,
) -> None:
    approval = await office.asked(RISKY)

    assert (approval.kind, approval.path) == (ApprovalKind.RISK, "s1")
    assert approval.detail == "Deploy it\ngit push origin main"
    assert approval.command_hash == command_hash(RISKY)
    assert approval.payload["task"] == "Ship the site"
    assert approval.may_be_decided_by(BOSS)
    assert not approval.may_be_decided_by(MATE)
    assert approval.expires_at - approval.created_at == timedelta(days=7)


async def test_a_persons_step_asks_its_maker_and_all_owners(office: Office) -> None:
    office.task = replace(office.task, created_by=MATE.id)

    approval = await office.asked(HUMAN)

    assert approval.kind is ApprovalKind.HUMAN
    assert approval.approvers == (MATE.id, BOSS.id)


async def test_asking_again_while_it_waits_is_the_same_request(office: Office) -> None:
    assert await office.asked(RISKY) == await office.asked(RISKY)


async def test_one_consent_holds_for_every_try_of_the_step(office: Office) -> None:
    approval = await office.asked(RISKY)
    await office.decide(approval, approve=True)

    for _ in range(3):
        leave = await office.leave(RISKY)
        assert isinstance(leave, Granted)
        assert leave.by is not None
        assert leave.by.id == approval.id


@pytest.mark.parametrize(
    "changed", [replace(RISKY, detail="git push --force"), replace(RISKY, id="s7")]
)
async def test_consent_to_one_command_is_none_to_another(office: Office, changed: Node) -> None:
    await office.decide(await office.asked(RISKY), approve=True)

    assert isinstance(await office.leave(changed), Asked)


@pytest.mark.parametrize(
    "talk",
    ["thank you, and take your time!", "辛苦了，慢慢来。", "tell me when it is done, please", "👍"],
)
async def test_a_kind_word_meanwhile_asks_nothing_and_is_recorded(
    office: Office, talk: str
) -> None:
    approval = await office.asked(RISKY)
    await office.decide(approval, approve=True)

    leave = await office.leave(_told(RISKY, talk))

    assert isinstance(leave, Granted)
    kept = await office.approvals.get(approval.id)
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
async def test_words_that_could_make_another_command_ask_anew(office: Office, words: str) -> None:
    await office.decide(await office.asked(RISKY), approve=True)

    asked = await office.asked(_told(RISKY, words))

    assert words in asked.detail


async def test_talk_does_not_carry_a_changed_step(office: Office) -> None:
    await office.decide(await office.asked(RISKY), approve=True)

    changed = replace(RISKY, detail="git push origin next")

    assert isinstance(await office.leave(_told(changed, "thank you")), Asked)
    assert isinstance(await office.leave(_told(replace(RISKY, id="s7"), "thank you")), Asked)


async def test_talk_is_heard_with_what_was_allowed_after_it(office: Office) -> None:
    """Consent to a command with words is not consent to the command without them."""
    told = _told(RISKY, "and deploy the shop too")
    await office.decide(await office.asked(told), approve=True)

    assert isinstance(await office.leave(_told(told, "thank you")), Granted)
    assert isinstance(await office.leave(RISKY), Asked)


def _told(node: Node, *said: str) -> Node:
    return replace(node, detail="\n".join((node.detail, *(f"💬 {text}" for text in said))).strip())


async def test_a_refusal_is_told_once_and_then_it_is_asked_anew(office: Office) -> None:
    first = await office.asked(RISKY)
    await office.decide(first, approve=False, reason="not on Friday")

    assert await office.leave(RISKY) == Refused(BOSS.id, "not on Friday")
    assert (await office.asked(RISKY)).id != first.id


async def test_what_expired_is_asked_anew(office: Office) -> None:
    first = await office.asked(RISKY)
    office.world.clock.pass_by(days=8)

    second = await office.asked(RISKY)

    assert second.id != first.id
    # Nobody had settled the first yet: it must not pause the task that waits for the second.
    assert await office.approvals.expire() == ()
    assert (await office.approvals.get(first.id)).state is ApprovalState.EXPIRED


async def test_a_task_waits_for_one_decision_at_a_time(office: Office) -> None:
    first = await office.asked(RISKY)
    changed = await office.asked(replace(RISKY, detail="git push --force"))

    assert (await office.approvals.get(first.id)).state is ApprovalState.EXPIRED
    assert [each.id for each in await office.approvals.waiting(by=BOSS, chat=None)] == [changed.id]


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
    office: Office, assignee: str, named: str | None
) -> None:
    asked = await office.asked(replace(HUMAN, config=Human(assignee=(assignee,))))

    assert asked.approvers == ((BOSS.id,) if named is None else (named, BOSS.id))
    assert asked.payload.get("assignees") == (None if named is None else [named])


async def test_each_of_several_who_are_named_may_decide_and_nobody_else(office: Office) -> None:
    ann = await office.let_in("Ann")
    other = await office.let_in("Other")
    office.task = replace(office.task, created_by=other.id)

    asked = await office.asked(replace(HUMAN, config=Human(assignee=("Mate", "Ann", "Zaphod"))))

    assert asked.approvers == (MATE.id, ann.id, BOSS.id)
    with pytest.raises(NotAllowed):
        await office.approvals.decide(asked, approve=True, by=other, source="d:other")
    await office.approvals.decide(asked, approve=True, by=ann, source="d:ann")
    with pytest.raises(WrongState):
        await office.approvals.decide(asked, approve=False, by=MATE, source="d:mate")


async def test_a_name_that_two_people_have_means_neither(office: Office) -> None:
    async with office.world.db.write() as tx:
        await tx.execute(update(people).values(name="Sam"))

    asked = await office.asked(replace(HUMAN, config=Human(assignee=("Sam",))))

    assert asked.approvers == (BOSS.id,)
