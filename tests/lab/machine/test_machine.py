"""Random sequences of everything that can happen to a stream, against a model of three sets.

The model knows what was committed, what each group has handled, what is dead and what was skipped
or purged. Whatever the order of events, at the end every committed message was handled or is dead
in every group, one that was rolled back or cancelled was never seen, an atomic handler's rows stand
exactly once, those of an ordered group in the order of the log, and the audit finds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from streams import (
    Outgoing,
    Prepared,
    ReceivedMessage,
    Reject,
    cancel,
    consumer,
    prepare,
    send,
    send_many,
)
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.outcome.dead_letter import redrive
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.errors import LeaseLost, NothingToUndo
from streams.log.sequencer import sequence
from streams.log.topics import forget
from streams.models import (
    CheckEndpoint,
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    DedupKey,
    Delivery,
    Message,
    Partition,
    PreparedRow,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.operate import replay, topics
from streams.operate.replay import Span
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.retain.purge import Purge
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.hostapp.models import Handled
from tests.sessions import Session

GROUPS = ("plain", "atomic", "ordered", "tagged")
PARTITIONS = 2
KEYS = st.sampled_from(["a", "b", "c"])
TAG = "x"
CLIENTS = ("one", "two")
FOREVER = timedelta(days=2)
TABLES = (
    Handled,
    DedupKey,
    DeadMessage,
    RetryMessage,
    Delivery,
    Cursor,
    Consumer,
    Message,
    Partition,
    ConsumerGroup,
    Topic,
    PreparedRow,
    CheckEndpoint,
)


@dataclass
class Open:
    """A producer's transaction that has not ended."""

    session: Session
    values: list[int]


@dataclass
class Held:
    """A delivery that a client has claimed and not handled yet."""

    handling: Handling
    client: str
    stale: bool = False


@dataclass
class Script:
    """What the handlers do with the messages of the next call."""

    fails: set[int] = field(default_factory=set)
    rejects: set[int] = field(default_factory=set)

    def play(self, message: ReceivedMessage) -> None:
        if message.body in self.rejects:
            raise Reject("as the script says")
        if message.body in self.fails:
            raise ValueError("as the script says")


class Machine(RuleBasedStateMachine):
    """One topic, four groups, two clients, up to three open transactions, and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: Iterator[int] = iter(range(10**6))
        self.open: list[Open] = []
        self.held: list[Held] = []
        self.committed: set[int] = set()
        self.tagged: set[int] = set()
        self.delayed: dict[int, int] = {}  # message id: value
        self.keys: dict[str, int] = {}  # dedup key: the message id that has it
        self.handled: Counter[tuple[str, int]] = Counter()
        self.discarded: set[tuple[str, int]] = set()
        self.redriven: set[int] = set()
        self.purged: set[int] = set()
        self.script = Script()
        self.prepared: list[tuple[int, Prepared]] = []

    @initialize()
    def clean(self) -> None:
        for model in TABLES:
            model.objects.all().delete()
        forget()
        CheckEndpoint.objects.create(name="nobody", url="https://example.com/", enabled=False)
        registry._registered.clear()

        def plain(message: ReceivedMessage) -> None:
            self.script.play(message)
            self.handled[message.group, message.body] += 1

        def atomic(message: ReceivedMessage) -> None:
            Handled.objects.create(
                group=message.group,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                value=message.body,
            )
            self.script.play(message)

        consumer("t", group="plain", max_retries=2)(plain)
        consumer("t", group="atomic", max_retries=2, atomic=True)(atomic)
        consumer("t", group="ordered", max_retries=2, ordered=True, atomic=True)(atomic)
        consumer("t", group="tagged", max_retries=2, tags=[TAG])(plain)
        topic = topics.create("t", PARTITIONS, "default")
        topic.retention_consumed = True
        topic.save(using="default")
        self.groups = {
            group: subscribe(registry.find("t", group), "default")  # type: ignore[arg-type]
            for group in GROUPS
        }
        self.clients = dict.fromkeys(CLIENTS, 0)
        for client in CLIENTS:
            self.register(client)

    # -- producers --

    @rule(count=st.integers(1, 4), key=KEYS, tag=st.sampled_from(["", TAG]))
    def send(self, count: int, key: str, tag: str) -> None:
        for _ in range(count):
            value = next(self.numbers)
            send("t", value, key=key, tag=tag)
            self.committed.add(value)
            if tag:
                self.tagged.add(value)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def send_many(self, keys: list[str]) -> None:
        values = [next(self.numbers) for _ in keys]
        send_many([Outgoing("t", value, key=key) for value, key in zip(values, keys, strict=True)])
        self.committed.update(values)

    @rule(key=KEYS, dedup=KEYS, delayed=st.booleans(), rolls_back=st.booleans())
    def send_once(self, key: str, dedup: str, delayed: bool, rolls_back: bool) -> None:
        value = next(self.numbers)
        with transaction.atomic():
            delay = 3600 if delayed else None
            sent = send("t", value, key=key, dedup_key=dedup, delay=delay)
            transaction.set_rollback(rolls_back)
        assert sent.duplicate == (dedup in self.keys)
        if not sent.duplicate and not rolls_back:
            self.keys[dedup] = sent.message_id
            self.committed.add(value)
            if delayed:
                self.delayed[sent.message_id] = value

    @precondition(lambda self: self.delayed)
    @rule(data=st.data(), rolls_back=st.booleans())
    def cancel(self, data: st.DataObject, rolls_back: bool) -> None:
        message = data.draw(st.sampled_from(sorted(self.delayed)))
        with transaction.atomic():
            outcome = cancel(message)
            transaction.set_rollback(rolls_back)
        assert outcome in ("cancelled", "visible", "unknown")
        if outcome == "cancelled" and not rolls_back:
            self.committed.remove(self.delayed[message])
            self.keys = {key: id_ for key, id_ in self.keys.items() if id_ != message}
        if outcome != "cancelled" or not rolls_back:
            del self.delayed[message]

    @rule(key=KEYS)
    def prepare(self, key: str) -> None:
        """A message that is not part of the stream until it is committed."""
        value = next(self.numbers)
        held = prepare("t", value, key=key, biz="machine", biz_key=value, checker="nobody")
        assert held.created
        self.prepared.append((value, held))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data(), commits=st.booleans(), rolls_back=st.booleans())
    def decide_prepared(self, data: st.DataObject, commits: bool, rolls_back: bool) -> None:
        number = data.draw(st.integers(0, len(self.prepared) - 1))
        value, held = self.prepared[number]
        with transaction.atomic():
            done = held.commit() if commits else held.rollback()
            transaction.set_rollback(rolls_back)
        if rolls_back:
            return
        del self.prepared[number]
        again = held.commit() if commits else held.rollback()
        assert again.message_id == done.message_id
        if commits:
            self.committed.add(value)

    @rule(count=st.integers(1, 3), key=KEYS)
    def roll_back(self, count: int, key: str) -> None:
        with transaction.atomic():
            for _ in range(count):
                send("t", next(self.numbers), key=key)
            transaction.set_rollback(True)

    @precondition(lambda self: connection.vendor == "mysql" and len(self.open) < 3)
    @rule(count=st.integers(1, 3), key=KEYS)
    def begin(self, count: int, key: str) -> None:
        session = Session()
        values = [next(self.numbers) for _ in range(count)]
        with session.active():
            transaction.set_autocommit(False)
            for value in values:
                send("t", value, key=key)
        self.open.append(Open(session, values))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        ended = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        with ended.session.active():
            (transaction.commit if commit else transaction.rollback)()
        ended.session.close()
        if commit:
            self.committed.update(ended.values)

    # -- the log --

    @rule()
    def sequence(self) -> None:
        sequence("default")

    # -- consumers --

    @rule(group=st.sampled_from(GROUPS), client=st.sampled_from(CLIENTS), batch=st.integers(1, 4))
    def claim(self, group: str, client: str, batch: int) -> None:
        claimer = self.claimer(group, client)
        if delivery := claimer.claim(batch, timedelta(seconds=60)):
            self.hold(delivery, group, client)

    @rule(group=st.sampled_from(GROUPS), client=st.sampled_from(CLIENTS))
    def claim_retry(self, group: str, client: str) -> None:
        if claimed := self.claimer(group, client).claim_retry(timedelta(seconds=60)):
            self.hold(claimed[0], group, client, retry=claimed[1])

    @precondition(lambda self: self.held)
    @rule(data=st.data(), fails=st.sets(st.integers(0, 3)), rejects=st.sets(st.integers(0, 3)))
    def handle(self, data: st.DataObject, fails: set[int], rejects: set[int]) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        delivery = held.handling.delivery
        first = delivery.first_offset
        rows = Message.objects.filter(partition=delivery.partition_id, offset__gte=first)
        bodies = dict(rows.values_list("offset", "body").order_by("offset")[:4])
        value = {
            offset - first: int(bytes(body))
            for offset, body in bodies.items()
            if offset is not None
        }
        self.script = Script(
            {value[i] for i in fails if i in value}, {value[i] for i in rejects if i in value}
        )
        self.run_held(held)
        self.script = Script()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """The process is asked to stop before it hands the messages over."""
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        held.handling._may_go_on = lambda: False
        self.run_held(held)

    @rule(client=st.sampled_from(CLIENTS))
    def die(self, client: str) -> None:
        """The process is killed or frozen: its lease ends, and the sweep takes what it held."""
        Consumer.objects.filter(client_id=self.client_id(client)).delete()
        sweep("default")
        for held in self.held:
            if held.client == self.client_id(client):
                held.stale = True
        self.clients[client] += 1
        self.register(client)

    @rule()
    def wait(self) -> None:
        """A long time passes, and nobody renews a deadline before the sweep comes."""
        advance(FOREVER)
        Consumer.objects.update(lease_until=UtcNow(LEASE))
        sweep("default")
        for held in self.held:
            held.stale = True

    # -- operators --

    @precondition(lambda self: DeadMessage.objects.waiting().exists())
    @rule(again=st.booleans())
    def decide(self, again: bool) -> None:
        letter = DeadMessage.objects.waiting().select_related("group").order_by("id")[0]
        if again:
            assert redrive(letter)
            assert not redrive(letter)
            self.redriven.add(int(bytes(letter.body)))
        else:
            assert letter.discard()
            self.discarded.add((letter.group.name, int(bytes(letter.body))))

    @rule(data=st.data(), undo=st.booleans())
    def reset(self, data: st.DataObject, undo: bool) -> None:
        """The plain group goes back, or on."""
        partition = data.draw(st.sampled_from(list(Partition.objects.order_by("number"))))
        values = dict(_values(partition))
        target = data.draw(st.integers(partition.first_offset, partition.next_offset))
        goal = None if undo else towards(Target(number=target))
        reset = Reset(self.groups["plain"], goal, "default", number=partition.number, force=True)
        try:
            moves = reset.run()
        except NothingToUndo:
            assert undo
            return
        fenced = {delivery.pk for move in moves for delivery in move.fenced}
        for held in self.held:
            held.stale = held.stale or held.handling.delivery.pk in fenced
        for move in moves:
            skipped = range(move.position, move.target)
            self.discarded |= {("plain", values[o]) for o in skipped if o in values}

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(list(Partition.objects.order_by("number"))))
        offsets = st.integers(partition.first_offset, partition.next_offset)
        first, end = sorted((data.draw(offsets), data.draw(offsets)))
        if first < end:
            replay.start(self.groups["plain"], [Span(partition, first, end)], "default")

    @rule()
    def purge(self) -> None:
        before = {value for one in Partition.objects.all() for _offset, value in _values(one)}
        work = Purge("default")
        work.run()
        work.delete_old_rows()
        after = {value for one in Partition.objects.all() for _offset, value in _values(one)}
        self.purged |= before - after

    # -- the end --

    def teardown(self) -> None:
        if not hasattr(self, "groups"):
            return
        for ended in self.open:
            ended.session.close()  # the server rolls back
        for client in CLIENTS:
            self.die(client)
        self.finish()
        log = {}
        for partition in Partition.objects.all():
            values = _values(partition)
            kept = range(partition.first_offset, partition.next_offset)
            assert [offset for offset, _ in values] == list(kept)
            log[partition.pk] = [value for _, value in values]
        assert {v for values in log.values() for v in values} | self.purged == self.committed
        dead = {
            (group, int(bytes(body)))
            for group, body in DeadMessage.objects.waiting().values_list("group__name", "body")
        }
        lost = dead | self.discarded
        for value in self.committed:
            assert self.handled["plain", value] or ("plain", value) in lost, f"plain lost {value}"
            wanted = value in self.tagged and ("tagged", value) not in lost
            assert bool(self.handled["tagged", value]) >= wanted, f"tagged lost {value}"
        assert {value for _group, value in self.handled} <= self.committed
        assert {value for group, value in self.handled if group == "tagged"} <= self.tagged
        for group in ("atomic", "ordered"):
            stored = Counter(Handled.objects.filter(group=group).values_list("value", flat=True))
            counts = Counter({int(value): count for value, count in stored.items()})
            for value in self.committed:
                assert counts[value] == ((group, value) not in lost), f"{group} {value}"
            assert set(counts) <= self.committed
        self.assert_ordered()
        assert audit("default") == []

    def assert_ordered(self) -> None:
        """What was redriven came out of its turn, and nothing else."""
        rows = Handled.objects.filter(group="ordered").order_by("id")
        for number in range(PARTITIONS):
            of = rows.filter(partition=number).values_list("offset", "value")
            offsets = [offset for offset, value in of if int(value) not in self.redriven]
            assert offsets == sorted(offsets)

    def finish(self) -> None:
        """Everything comes to rest, without further failures."""
        working = True
        while working:
            advance(FOREVER)  # what is delayed is due, and so is sequenced
            sequence("default")
            working = False
            for group in GROUPS:
                claimer = self.claimer(group, CLIENTS[0])
                while claimed := claimer.claim_retry(timedelta(seconds=60)):
                    self.handling(claimed[0], group, retry=claimed[1]).run()
                    working = True
                while delivery := claimer.claim(10, timedelta(seconds=60)):
                    self.handling(delivery, group).run()
                    working = True

    # -- parts --

    def client_id(self, client: str) -> str:
        return f"{client}-{self.clients[client]}"

    def register(self, client: str) -> None:
        for group in self.groups.values():
            Consumer.objects.create(
                client_id=self.client_id(client), group=group, lease_until=UtcNow(LEASE)
            )

    def claimer(self, group: str, client: str) -> Claimer:
        return Claimer(self.groups[group], self.client_id(client), "machine", "default")

    def handling(self, delivery: Delivery, group: str, **options: Any) -> Handling:
        registration = registry.find("t", group)
        assert registration
        in_force = limits(self.groups[group], registration, "default")
        return Handling(delivery, registration, in_force, **options)

    def hold(self, delivery: Delivery, group: str, client: str, **options: Any) -> None:
        handling = self.handling(delivery, group, **options)
        self.held.append(Held(handling, self.client_id(client)))

    def run_held(self, held: Held) -> None:
        """Only who still holds the lease may change anything."""
        before = self.rows()
        try:
            held.handling.run()
        except LeaseLost:
            assert held.stale
            assert self.rows() == before
        else:
            assert not held.stale

    def rows(self) -> list[Any]:
        return [
            list(Delivery.objects.order_by("id").values_list("id", "state", "progress", "token")),
            list(RetryMessage.objects.order_by("id").values_list("id", "attempt", "delivery")),
            DeadMessage.objects.count(),
            Handled.objects.count(),
        ]


def _values(partition: Partition) -> list[tuple[int, int]]:
    """The log, as (offset, value)."""
    rows = Message.objects.filter(partition=partition.pk, offset__gte=partition.first_offset)
    found = rows.order_by("offset").values_list("offset", "body")
    return [(offset, int(bytes(body))) for offset, body in found if offset is not None]


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lives", [1, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_whatever_happens_nothing_is_lost_and_nothing_is_done_that_was_rolled_back(lives):
    known = dict(registry._registered)
    try:
        run_machine(
            Machine,
            settings=settings(
                max_examples=lives,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    finally:
        registry._registered.clear()
        registry._registered.update(known)
