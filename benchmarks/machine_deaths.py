"""Deaths of everything that a Shiftboss of several machines consists of, under load: fronts,
workers, connections, and the database server itself."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.machines import Machines, machines
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import plan_reply, scene_of, step_reply
from tests.journeys.program import ShiftbossProcess
from tests.killable_postgresql import KillableServer, killable_server
from tests.postgresql_server import execute
from tests.waiting import wait_until

_PATIENCE_SECONDS = 900.0
"""A busy machine takes more than five minutes to come to the end of all that was begun."""
_STEPS = 3
_STEP_SECONDS = 0.3
_MOST_WAITING = 24
"""Tasks that are not done; more would only show how fast this machine is."""
_PERSON_CAP, _TASK_CAP, _TIGHT_CAP = 400_000, 1_000_000, 30_000
"""Tokens: of the one person whose tasks all of them are in a day, of a task, of every fifth one."""
_WRITTEN = 1_500
_FRONT_SECONDS = 20.0
_HELLO = re.compile(r"hello (\d+)")
_REPEATED = "Sent again"
_LOST_HEARTBEAT_SECONDS = 13.0

_TASKS = """
INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object(
  'id', 'd' || n, 'title', 'death ' || n || '.', 'source', 'bench d' || n, 'status', 'pending',
  'phase', 'queued', 'control', 'run', 'epoch', 0, 'owner', '', 'graph_version', 0,
  'cap', CASE WHEN n % 5 = 0 THEN '{tight} tokens' ELSE '' END,
  'ended_at', null, 'started_at', null, 'created_at', at, 'waiting_since', at))).*
FROM tasks AS t, generate_series({first}, {last}) AS n,
  (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) AS now
WHERE t.source NOT LIKE 'bench%' ON CONFLICT DO NOTHING
"""
# What is used and reserved of a cap at each commit, seen by the database itself: writers have its
# lock one at a time, so at a commit everything is as it stays.
_AUDIT = """
CREATE SCHEMA audit;
CREATE TABLE audit.checked (scope text, subject text, used bigint, allowed bigint,
  PRIMARY KEY (scope, subject));
CREATE FUNCTION audit.check_caps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE whose record;
BEGIN
  FOR whose IN SELECT * FROM (VALUES
    ('person', NEW.person_id::text, {person}::bigint),
    ('task', NEW.task_id::text, (SELECT CASE WHEN cap = '' THEN {task} ELSE
      split_part(cap, ' ', 1)::bigint END FROM public.tasks WHERE id = NEW.task_id)))
    AS each (scope, subject, cap) WHERE subject IS NOT NULL
  LOOP
    INSERT INTO audit.checked AS c
    SELECT whose.scope, whose.subject, used, allowed FROM
      (SELECT whose.cap + coalesce(sum(tokens), 0) AS allowed FROM public.budget_grants
        WHERE scope = whose.scope AND subject = whose.subject) AS a,
      (SELECT sum(tokens) AS used FROM (
        SELECT input_tokens + output_tokens AS tokens FROM public.usage WHERE
          CASE whose.scope WHEN 'task' THEN task_id ELSE person_id END = whose.subject
        UNION ALL SELECT reserved_tokens FROM public.pending_model_calls WHERE
          CASE whose.scope WHEN 'task' THEN task_id ELSE person_id END = whose.subject
      ) AS each) AS u
    ON CONFLICT (scope, subject) DO UPDATE SET used = EXCLUDED.used, allowed = EXCLUDED.allowed
    WHERE EXCLUDED.used - EXCLUDED.allowed > c.used - c.allowed;
  END LOOP;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit_usage AFTER INSERT ON usage DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION audit.check_caps();
CREATE CONSTRAINT TRIGGER audit_calls AFTER INSERT OR UPDATE ON pending_model_calls
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit.check_caps();
CREATE TABLE audit.bookings (tx xid8 DEFAULT pg_current_xact_id(), booked int, settled int);
CREATE FUNCTION audit.note_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit.bookings (booked, settled)
    VALUES ((TG_OP = 'INSERT')::int, (TG_OP = 'DELETE')::int);
  RETURN NULL;
END $$;
CREATE TRIGGER audit_booked AFTER INSERT ON usage
  FOR EACH ROW EXECUTE FUNCTION audit.note_booking();
CREATE TRIGGER audit_settled AFTER DELETE ON pending_model_calls
  FOR EACH ROW EXECUTE FUNCTION audit.note_booking()
"""
# A booking without a reservation that ends in the same transaction is a second one.
_TWICE = """
SELECT coalesce(sum(greatest(0, booked - settled)), 0) FROM
  (SELECT sum(booked) AS booked, sum(settled) AS settled FROM audit.bookings GROUP BY tx) AS each
"""


async def measure(scale: Scale) -> list[Measurement]:
    """Fronts, workers and the database server are killed with -9 at random moments while tasks of
    three steps run and people talk; connections are cut, processes stop for longer than their
    leases and go on. Then every task must be done and every message answered once, no finished step
    done again, and what the model service has counted must be what was booked. The caps of a person
    and of tasks, which all workers share, are looked at by the database at each commit."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    print(f"CHAOS_SEED={seed}", flush=True)
    deaths = int(os.environ.get("CHAOS_KILLS", scale.pick(500, 8)))
    minutes = float(os.environ.get("CHAOS_MINUTES", "inf"))
    before = ShiftbossProcess.use_fork_server
    # Loading the modules is most of what a life costs: forks die three times as often in an hour.
    ShiftbossProcess.use_fork_server = True
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pg") as folder,
            killable_server(Path(folder)) as server,
        ):
            async with _load(server, random.Random(seed)) as load:
                return await load.live_through(deaths, minutes)
    finally:
        ShiftbossProcess.use_fork_server = before


@asynccontextmanager
async def _load(server: KillableServer, chance: random.Random) -> AsyncGenerator[_Load, None]:
    url = server.create_database("machines")
    cap = {"SHIFTBOSS_CAP_PERSON": f"{_PERSON_CAP} tokens", "SHIFTBOSS_CAP_DAY": ""}
    cap |= {"SHIFTBOSS_CAP_TASK": f"{_TASK_CAP} tokens"}
    async with machines(url, **cap) as made:
        execute(url, _AUDIT.format(person=_PERSON_CAP, task=_TASK_CAP))
        boss, chat = made.owner
        talker, talk = made.world.new_owner()
        free = _count(execute(url, "SELECT max(id) FROM usage"))
        load = _Load(
            made, server, chance, boss=boss, chat=chat, talker=talker, talk=talk, free=free
        )
        for scene in ("plan", "step"):
            made.world.script.script("owl", scene, load.reply)
        made.world.models.replies(load.answer)
        yield load


@dataclass
class _Load:
    """`boss` has the tasks and extends caps, `talker` says hello. Usage up to the row `free` is
    none of the load's."""

    machines: Machines
    server: KillableServer
    chance: random.Random
    boss: TelegramUser = field(kw_only=True)
    chat: TelegramChat = field(kw_only=True)
    talker: TelegramUser = field(kw_only=True)
    talk: TelegramChat = field(kw_only=True)
    free: int = field(kw_only=True)
    counts: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    resting: set[int] = field(default_factory=set)

    def reply(self, asked: ReceivedRequest) -> ScriptedReply:
        """Each one costs something else, and as much as it may where that is little."""
        self.calls += 1
        most = int(asked.body.get("max_tokens") or asked.body.get("max_completion_tokens") or 0)
        cost = {"input_tokens": 200 + self.calls % 3_000, "output_tokens": min(most - 1, _WRITTEN)}
        if scene_of(asked) == "talk":
            # Messages that come while another one is answered are answered together.
            said = (f"answer {number} given" for number in _HELLO.findall(asked.last_text))
            text = ", ".join(said) or "It is noted."
            return ScriptedReply(text=text, usage={**cost, "output_tokens": 5})
        if scene_of(asked) == "plan":
            made = plan_reply(*(f"owl {n}" for n in range(_STEPS)))(asked)
        else:
            made = step_reply("done")(asked)
        go = asyncio.Event()
        asyncio.get_running_loop().call_later(_STEP_SECONDS, go.set)
        return replace(made, hold=go, usage=cost)

    def answer(self, asked: ReceivedRequest) -> ScriptedReply:
        """Every call has a cost that the emulator knows, those for notes and summaries too."""
        if scene_of(asked) == "talk":
            return self.reply(asked)
        made = self.machines.world.script(asked)
        if made.usage is None:
            made = replace(made, usage={"input_tokens": 100, "output_tokens": 5})
        return made

    async def live_through(self, deaths: int, most_minutes: float) -> list[Measurement]:
        made = self.machines
        for role in (
            ("front", "--name", "f1"),
            *[("worker", "--name", f"w{n}", "--slots", "2") for n in range(3)],
        ):
            await made.start(*role)
        made.processes.append(made.world.program)
        began = time.monotonic()
        clerk = asyncio.create_task(self._extend_caps())
        try:
            async with asyncio.TaskGroup() as rests:
                while (
                    self.counts["killed"] + self.counts["server"] < deaths
                    and time.monotonic() - began < 60 * most_minutes
                ):
                    await self._add_work()
                    await asyncio.sleep(self.chance.uniform(0.0, 1.2))
                    await self._break_something(rests)
            minutes = (time.monotonic() - began) / 60
            await self._wait_for_the_end()
        finally:
            clerk.cancel()
            await asyncio.gather(clerk, return_exceptions=True)
        return [Figure("minutes", minutes, "min"), *self._figures()]

    async def _add_work(self) -> None:
        counts = self.counts
        open_tasks = await self._number(
            "SELECT count(*) FROM tasks WHERE status <> 'completed' AND source LIKE 'bench %'"
        )
        if open_tasks < _MOST_WAITING:
            first, last = counts["tasks"] + 1, counts["tasks"] + 2
            await self._ask(_TASKS.format(first=first, last=last, tight=_TIGHT_CAP))
            counts["tasks"] = last
        if self.chance.random() < 0.3:
            counts["said"] += 1
            await self.talker.says(self.talk, f"hello {counts['said']}")

    async def _break_something(self, rests: asyncio.TaskGroup) -> None:
        luck = self.chance.random()
        self._note(f"{luck:.2f} {dict(self.counts)}")
        if luck < 0.15:
            await self._kill_server()
        elif luck < 0.2:
            self.counts["cuts"] += 1
            await self._cut_connections()
        elif luck < 0.23 and not self.resting:
            self.counts["stopped"] += 1
            rests.create_task(self._rest(self.chance.choice(self.machines.processes)))
        else:
            victim = self.chance.choice(
                [each for each in self.machines.processes if id(each) not in self.resting]
            )
            if victim.arguments[0] == "front":
                await self._let_fronts_work()
            await self._kill(victim)

    async def _let_fronts_work(self) -> None:
        """On a busy machine fronts would die before they have done anything, and all would wait."""
        done = "SELECT count(*) FROM inbox WHERE state <> 'new'"
        waiting = "SELECT count(*) FROM inbox WHERE state = 'new'"
        before, end = await self._number(done), time.monotonic() + _FRONT_SECONDS
        while time.monotonic() < end and await self._number(waiting):
            if await self._number(done) > before:
                return
            await asyncio.sleep(0.2)

    async def _kill(self, victim: ShiftbossProcess) -> None:
        await victim.kill_if_running()
        self.counts["killed"] += 1
        if self.chance.random() < 0.3:
            # The next death may come in the middle of the start.
            starting = asyncio.create_task(victim.start())
            await asyncio.sleep(self.chance.uniform(0.0, 0.8))
            await victim.kill_if_running()
            self.counts["killed"] += 1
            with suppress(AssertionError):
                await starting
            await victim.kill_if_running()
        await self._start(victim)

    def _note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    async def _start(self, process: ShiftbossProcess) -> None:
        """As a service manager would: again, if the database was not there."""
        while True:
            try:
                return await process.start()
            except AssertionError:
                self.counts["starts without a database"] += 1
                await asyncio.sleep(0.5)

    async def _kill_server(self) -> None:
        self.counts["server"] += 1
        how = self.chance.choice((self.server.kill, self.server.stop, self.server.kill_one_backend))
        with suppress(psycopg.OperationalError):
            await asyncio.to_thread(how)
        await asyncio.sleep(self.chance.choice((0.0, 0.5, 2.0)))
        await asyncio.to_thread(self.server.start)

    async def _rest(self, victim: ShiftbossProcess) -> None:
        """It hangs for longer than its lease, and goes on as if nothing had been."""
        self.resting.add(id(victim))
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(_LOST_HEARTBEAT_SECONDS)
        finally:
            os.kill(victim.pid, signal.SIGCONT)
        await asyncio.sleep(5)
        self.resting.discard(id(victim))

    async def _cut_connections(self) -> None:
        await self._ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND random() < 0.5"
        )

    async def _extend_caps(self) -> None:
        """Press each button once, and again if nothing comes of it."""
        pressed: dict[tuple[int, int], float] = {}
        while True:
            await asyncio.sleep(0.3)
            for person, chat in ((self.boss, self.chat), (self.talker, self.talk)):
                for message in chat.from_bot[-200:]:
                    label = next((each for each in message.buttons if "Extend" in each), "")
                    which = (person.id, message.id)
                    if label and time.monotonic() - pressed.get(which, -100.0) > 20:
                        pressed[which] = time.monotonic()
                        person.press(message, label)

    async def _wait_for_the_end(self) -> None:
        self._note("waiting for the end")
        left = {
            "tasks": "SELECT count(*) FROM tasks WHERE status <> 'completed'",
            "messages": "SELECT count(*) FROM inbox WHERE state = 'new'",
            "cards": "SELECT count(*) FROM outbox WHERE state <> 'shown' OR tried_revision <> 0"
            " OR revision <> shown_revision",
            "calls": "SELECT count(*) FROM pending_model_calls",
        }

        async def is_over() -> bool:
            return not any([await self._number(each) for each in left.values()])

        try:
            await wait_until(is_over, _PATIENCE_SECONDS)
            await wait_until(
                lambda: len(self._unanswered()) <= self._count_refused(), _PATIENCE_SECONDS
            )
        except TimeoutError:
            for name, query in left.items():
                print(f"left over, {name}: {await self._number(query)}", flush=True)
            print(f"not answered: {self._unanswered()}", flush=True)
            print(f"refused by the model: {self.machines.world.models.refused}", flush=True)
            for each in self.machines.processes:
                print("\n".join([str(each.arguments), *each.output[-40:]]), flush=True)

    def _unanswered(self) -> list[int]:
        texts = [each.text for each in self.talk.from_bot]
        said = range(1, self.counts["said"] + 1)
        return [n for n in said if not any(f"answer {n} given" in text for text in texts)]

    def _count_refused(self) -> int:
        """Messages that the person was asked to send again, because the store was away."""
        return sum("I can't save anything right now" in each.text for each in self.talk.from_bot)

    def _figures(self) -> Sequence[Measurement]:
        url, counts = self.machines.url, self.counts
        repeated = execute(
            url,
            "SELECT count(*) FROM (SELECT task_id, path FROM node_attempts WHERE error = ''"
            " AND ended_at IS NOT NULL GROUP BY task_id, path HAVING count(*) > 1) AS twice",
        )
        unfinished = execute(url, "SELECT count(*) FROM tasks WHERE status <> 'completed'")
        ((highest,),) = execute(
            url, "SELECT max(used - allowed) FROM audit.checked WHERE allowed IS NOT NULL"
        )
        marked, surplus = self._repeats()
        return [
            Figure("deaths", counts["killed"] + counts["server"]),
            Figure("of these, of the database server", counts["server"]),
            Figure("cuts of half of the connections", counts["cuts"]),
            Figure("processes that hung for 13 s", counts["stopped"]),
            Figure("starts while the database was away", counts["starts without a database"]),
            Figure("tasks", counts["tasks"]),
            Figure("tasks not completed", _count(unfinished), "", at_most(0)),
            Figure("finished steps that were done again", _count(repeated), "", at_most(0)),
            Figure("messages", counts["said"]),
            Figure("messages refused while the store was away", self._count_refused()),
            Figure(
                "messages without an answer",
                max(0, len(self._unanswered()) - self._count_refused()),
                "",
                at_most(0),
            ),
            Figure("messages of the bot that are marked as sent again", marked),
            Figure("answers that are doubled and not marked", surplus, "", at_most(0)),
            *self._bills(),
            Figure(
                "extensions of caps", _count(execute(url, "SELECT count(*) FROM budget_grants"))
            ),
            Figure("caps looked at", _count(execute(url, "SELECT count(*) FROM audit.checked"))),
            Figure(
                "most that was used and reserved beyond a cap",
                max(0, int(str(highest))),
                "tokens",
                at_most(0),
            ),
        ]

    def _bills(self) -> Sequence[Measurement]:
        """A call reserves what it may cost before it is sent, and is booked once, with the end of
        its reservation: as it was billed if its process got the answer, by its estimate if that
        died first. Then nobody knows whether it was billed, or even sent."""
        rows = execute(
            self.machines.url,
            "SELECT input_tokens, output_tokens, estimated_tokens FROM usage"
            f" WHERE id > {self.free}",
        )
        booked = Counter[tuple[object, object]]((row[0], row[1]) for row in rows if not row[2])
        billed = Counter[tuple[object, object]](
            (
                usage["input_tokens"]
                + usage["cache_read_input_tokens"]
                + usage["cache_creation_input_tokens"],
                usage["output_tokens"],
            )
            for _, usage in self.machines.world.models.billed
            if "output_tokens" in usage
        )
        estimated = sum(bool(row[2]) for row in rows)
        lost = (billed - booked).total()
        twice = execute(self.machines.url, _TWICE)
        # What is still reserved is booked later.
        still_open = _count(execute(self.machines.url, _OPEN))
        return [
            Figure("calls billed by the model service", billed.total()),
            Figure("calls booked as billed", booked.total()),
            Figure("calls booked by their estimates, because their processes died", estimated),
            Figure("of these, calls that were not billed", max(0, estimated - lost)),
            Figure(
                "calls booked as billed that were not", (booked - billed).total(), "", at_most(0)
            ),
            Figure("calls booked twice", _count(twice), "", at_most(0)),
            Figure(
                "calls billed and not booked", max(0, lost - estimated - still_open), "", at_most(0)
            ),
            Figure("calls left open", still_open, "", at_most(0)),
        ]

    def _repeats(self) -> tuple[int, int]:
        """How many messages of the bot say that they are sent again; how many more there are than
        the store knows of and these excuse."""
        placed: set[tuple[str, str]] = set()
        for chat, where in execute(
            self.machines.url,
            "SELECT external_id, placed::text FROM outbox JOIN chats ON chats.id = chat_id"
            " WHERE placed IS NOT NULL",
        ):
            found = json.loads(str(where)) or {}
            placed |= {(str(chat), str(each)) for each in found.get("message_ids", ())}
        shown = {
            (str(chat.id), str(message.id)): message.history[0].text
            for chat in (self.chat, self.talk)
            for message in chat.from_bot
        }
        marked = sum(_REPEATED in text for text in shown.values())
        return marked, max(0, len(shown.keys() - placed) - marked)

    async def _number(self, query: str) -> int:
        return _count(await self._ask(query))

    async def _ask(self, query: str) -> list[tuple[object, ...]]:
        """Again until the database is there."""
        while True:
            try:
                return await asyncio.to_thread(execute, self.machines.url, query)
            except psycopg.OperationalError:
                await asyncio.sleep(0.2)


_GRANTS = "SELECT count(*) FROM budget_grants"
_CHECKED = "SELECT count(*) FROM audit.checked"
_OPEN = "SELECT count(*) FROM pending_model_calls"


def _count(rows: Sequence[tuple[object, ...]]) -> int:
    return int(str(rows[0][0]))
