"""A topic moves to another database: nothing is lost, handled twice, or named twice."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from streams import (
    Decision,
    Outgoing,
    cancel,
    checkback,
    conf,
    consumer,
    prepare,
    runtime_settings,
    send,
    send_many,
)
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.database.sql.dialect import execute, fetch
from streams.errors import (
    InvalidValue,
    MoveRefused,
    SendOutcomeUnknown,
    TopicDenied,
    UnknownTopic,
)
from streams.log import topics
from streams.log.ends import End
from streams.log.rewinds import jump
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    DedupKey,
    HeldKey,
    LetterEdit,
    Message,
    Move,
    Partition,
    PreparedRow,
    RetryMessage,
    Rewind,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.shards import shards
from streams.operate import moved_retries, topic_move
from streams.operate.changes import change
from streams.operate.edited_letter import EditableContent, edit_and_redrive
from streams.operate.group_deletion import delete_group
from streams.operate.topic_deletion import SETTLED_SECONDS, TopicDeletion
from streams.operate.topic_move import TopicMove
from streams.operate.topics import create, grow
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.produce import access
from streams.steps.sweep import sweep
from streams.testing import drain
from streams.two_phase import prepare as two_phase
from tests.consuming import NONE, registered
from tests.faults import Guillotine, Once, statements, strides
from tests.rows import rows

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

HERE, THERE = "default", "other"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(topic_move, "PATIENCE_SECONDS", 0.0)
    topics.forget()
    runtime_settings.forget()


def move(name="orders", source=HERE, target=THERE, **options):
    TopicMove(name, source, target, **options).run(pause=lambda seconds: None)


def consume_on(alias, group=None):
    return drain(group, using=alias)


def send_on(alias, name, *bodies, **options):
    topics.forget()
    return [send(name, body, using=alias, **options) for body in bodies]


def finished(name="orders", number=5, **options):
    """A topic whose one group has handled all there is; returns what the group has seen."""
    seen = []
    consumer(name, group="mail", **options)(lambda message: seen.append(place_of(message)))
    send_many([Outgoing(name, n) for n in range(number)])
    drain()
    return seen


def place_of(message):
    return message.topic, message.partition, message.offset, message.body


def the(model, using=THERE):
    return model._default_manager.using(using).get()


def audits():
    return [*audit(HERE), *audit(THERE)]


def test_offsets_and_groups_go_on_where_they_were():
    seen = finished()
    move()
    send_on(THERE, "orders", 5, 6)
    consume_on(THERE)
    assert seen == [("orders", 0, n, n) for n in range(7)]
    assert the(Partition).first_offset == 5
    assert Message.objects.count() == 5  # the old log stays
    with pytest.raises(TopicDenied):
        send_on(HERE, "orders", "late")
    assert consume_on(HERE).done == 0
    assert audits() == []


def test_everything_that_is_set_goes_along():
    finished()
    Topic.objects.update(
        retention_seconds=60, retention_count=7, retention_consumed=True, index_keys=True
    )
    tail = {"topic": Topic.objects.get(), "name": "tail", "mode": "broadcast", "start": "latest"}
    ConsumerGroup.objects.create(**tail)
    ConsumerGroup.objects.filter(name="mail").update(
        max_retries=3, consume_timeout=9, batch=4, retry_policy="10s", paused=True
    )
    grow(Topic.objects.get(), 3, HERE)
    move()
    columns = [
        *("name", "retention_seconds", "retention_count", "retention_consumed", "index_keys"),
        *("archive", "created_at"),
    ]
    assert Topic.objects.using(THERE).values(*columns).get() == Topic.objects.values(*columns).get()
    assert the(Topic).access == "read-write"
    columns = [f.name for f in ConsumerGroup._meta.fields if f.name not in ("id", "topic")]
    groups = [
        list(ConsumerGroup.objects.using(alias).order_by("name").values_list(*columns))
        for alias in (HERE, THERE)
    ]
    assert groups[0] == groups[1]
    ends = Partition.objects.using(THERE).order_by("number")
    columns = ["number", "first_offset", "next_offset", "archived_offset"]
    assert list(ends.values_list(*columns)) == [(0, 5, 5, 5), (1, 0, 0, 0), (2, 0, 0, 0)]
    cursors = Cursor.objects.using(THERE).order_by("partition__number")
    columns = ["group__name", "next_offset", "start_offset", "log_offset"]
    assert list(cursors.values_list(*columns)) == [
        ("mail", 5, 5, 5),
        ("mail", 0, 0, 0),
        ("mail", 0, 0, 0),
    ]


@pytest.mark.parametrize("access", ["read-write", "write-only", "read-only", "denied"])
def test_it_has_its_old_access_on_the_new_database(access):
    finished()
    Topic.objects.update(access=access)
    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    assert Topic.objects.get().access in ("read-only", "denied")
    moving.finish()
    assert the(Topic).access == access
    assert Topic.objects.get().access in ("read-only", "denied")


def later(**options):
    return lambda: send_on(HERE, "orders", "later", **options)


def prepared():
    prepare("orders", 1, biz="pay", biz_key="1", checker="pay", check_after=3600)


def busy_there():
    send_on(THERE, "orders", "too early")


def further_there():
    create("orders", 1, THERE)
    Partition.objects.using(THERE).update(next_offset=9, first_offset=9)


def other_mode_there():
    topic = create("orders", 1, THERE)
    ConsumerGroup.objects.using(THERE).create(topic_id=topic.pk, name="mail", mode="broadcast")


def waiting():
    group = ConsumerGroup.objects.get()
    due = UtcNow(timedelta(hours=1))
    group.retries.create(partition=Partition.objects.get(), offset=1, due_at=due)


def replayed():
    Cursor.objects.create(
        group=ConsumerGroup.objects.get(),
        partition=Partition.objects.get(),
        replay=1,
        next_offset=1,
        stop_offset=3,
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (later(delay=timedelta(days=1)), "1 delayed message is there, until 20"),
        (waiting, "1 message waits to be retried, until 20"),
        (replayed, "replay has not ended"),
        (lambda: Cursor.objects.update(next_offset=4), "nobody consumes"),
        (busy_there, "other has 1 message"),
        (further_there, "has come further on other"),
        (other_mode_there, "mail is broadcast on other and cluster here"),
    ],
)
def test_what_does_not_pass_by_itself_is_an_obstacle(make, says):
    finished()
    make()
    before = rows(HERE), rows(THERE)
    assert any(says in one for one in TopicMove("orders", HERE, THERE).obstacles())
    with pytest.raises(MoveRefused, match=says.split(",")[0]):
        move()
    assert (rows(HERE), rows(THERE)) == before
    assert Topic.objects.get().access == "read-write"  # it was never closed


def test_a_prepared_message_that_is_not_decided_is_an_obstacle():
    checkback("pay")(lambda held: Decision.UNKNOWN)
    finished()
    prepared()
    with pytest.raises(MoveRefused, match="1 prepared message"):
        move()
    assert Topic.objects.get().access == "read-write"


def test_who_repeats_a_decided_prepare_finds_it_on_the_new_database():
    checkback("pay")(lambda held: Decision.UNKNOWN)
    finished()
    held = prepare("orders", 1, biz="pay", biz_key="1", checker="pay")
    held.commit()
    drain()
    move()
    topics.forget()
    again = prepare("orders", 1, biz="pay", biz_key="1", checker="pay", using=THERE)
    assert not again.created
    assert again.commit().message_id == PreparedRow.objects.get().message_id
    assert not Message.objects.using(THERE).exists()


def test_what_consumers_have_not_finished_in_time_opens_the_topic_again():
    finished()
    send_on(HERE, "orders", "unread")
    group = ConsumerGroup.objects.get()
    lease = UtcNow(timedelta(minutes=1))
    Consumer.objects.create(client_id="1@2@3", group=group, lease_until=lease)
    with pytest.raises(MoveRefused, match="1 message is in the inbox"):
        move()
    assert Topic.objects.get().access == "read-write"
    sequence(HERE)
    with pytest.raises(MoveRefused, match="has not finished 1 message"):
        move()
    assert Topic.objects.get().access == "read-write"
    Consumer.objects.all().delete()
    drain()
    move()
    assert the(Partition).next_offset == 6


def test_it_waits_for_consumers_and_for_sends_that_are_under_way(monkeypatch):
    seen = finished()
    monkeypatch.setattr(topic_move, "PATIENCE_SECONDS", 30.0)
    group = ConsumerGroup.objects.get()
    lease = UtcNow(timedelta(minutes=1))
    Consumer.objects.create(client_id="1@2@3", group=group, lease_until=lease)
    waits = []

    def pause(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            # A producer that knew the topic before, and is quicker than SURE_SECONDS.
            Topic.objects.update(access="read-write")
            topics.forget()
            topics.resolve("orders", HERE)
            Topic.objects.update(access="read-only")
            send("orders", "in time")
        else:
            drain()

    TopicMove("orders", HERE, THERE).run(pause=pause)
    assert waits[0] == SETTLED_SECONDS > conf.FRESH_SECONDS + conf.SURE_SECONDS
    assert len(waits) == 2
    assert seen[-1] == ("orders", 0, 5, "in time")
    assert the(Partition).next_offset == 6


@pytest.mark.mysql
def test_a_transaction_that_has_sent_and_is_open_keeps_the_topic_here(second_connection):
    finished()
    producer = second_connection()
    with producer.active():
        transaction.set_autocommit(False)
        send("orders", "slow")
    with pytest.raises(MoveRefused, match="still open"):
        move()
    assert not Topic.objects.using(THERE).exists()
    with producer.active():
        transaction.commit()
        transaction.set_autocommit(True)
    drain()
    move()
    assert the(Partition).next_offset == 6


@pytest.mark.mysql
def test_a_send_that_is_frozen_while_the_topic_moves_raises(monkeypatch, in_thread):
    finished()
    monkeypatch.setattr(conf, "SURE_SECONDS", 0.0)
    reached, go_on = threading.Event(), threading.Event()

    def freeze(statement):
        reached.set()
        assert go_on.wait(30)
        return statement()

    def late():
        topics.forget()
        with statements(Once("INSERT INTO `ems_msg`", freeze)):
            send("orders", "late")

    sending = in_thread(late)
    assert reached.wait(30)
    move()
    go_on.set()
    with pytest.raises(TopicDenied):
        sending.result(30)
    assert not Message.objects.inbox().exists()


def test_a_topic_that_was_made_too_early_and_is_empty_is_taken_over():
    seen = finished()
    topics.forget()
    subscribe(registered("orders", "mail"), THERE, "earliest")
    consumer("orders", group="new")(lambda message: None)
    subscribe(registered("orders", "new"), THERE, "earliest")
    move()
    assert set(Cursor.objects.using(THERE).values_list("next_offset", flat=True)) == {5}
    send_on(THERE, "orders", 5)
    consume_on(THERE, "mail")
    assert seen[-1] == ("orders", 0, 5, 5)
    consume_on(THERE, "new")
    assert audits() == []


def test_a_message_that_is_sent_there_at_the_last_moment_stays_and_so_does_the_topic(
    monkeypatch,
):
    """Between the look at the target and its locks, a process that has the new routes sends."""
    finished()
    create("orders", 1, THERE)
    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    look = moving._copy.obstacles
    looks = []

    def obstacles():
        looks.append(list(look()))
        if len(looks) == 1:
            send_on(THERE, "orders", "too early")
            sequence(THERE)
        return looks[-1]

    monkeypatch.setattr(moving._copy, "obstacles", obstacles)
    with pytest.raises(MoveRefused, match="other has 1 message"):
        moving.finish()
    moving.give_up()
    assert Topic.objects.get().access == "read-write"
    assert the(Partition).next_offset == 1


def test_partitions_that_come_meanwhile_go_along_and_so_do_groups():
    finished()
    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    grow(Topic.objects.get(), 3, HERE)
    consumer("orders", group="late", start="latest")(lambda message: None)
    subscribe(registered("orders", "late"), HERE)
    moving.finish()
    assert Partition.objects.using(THERE).count() == 3
    assert Cursor.objects.using(THERE).count() == 6


def test_an_ordered_group_sees_the_messages_of_a_key_in_their_order():
    seen = []
    create("orders", 3, HERE)
    consumer("orders", group="mail", ordered=True)(
        lambda message: seen.append((message.key, message.body))
    )
    keys = [f"k{n}" for n in range(6)]
    for alias, bodies in ((HERE, (0, 1)), (THERE, (2, 3))):
        for body in bodies:
            for key in keys:
                send_on(alias, "orders", body, key=key)
        consume_on(alias)
        if alias == HERE:
            move()
    for key in keys:
        assert [body for of, body in seen if of == key] == [0, 1, 2, 3]


def test_a_dedup_key_holds_on_the_new_database():
    finished()
    (first,) = send_on(HERE, "orders", "once", dedup_key="a", dedup_window=timedelta(hours=1))
    (old,) = send_on(HERE, "orders", "old", dedup_key="b", dedup_window=timedelta(hours=1))
    DedupKey.objects.filter(message_id=old.message_id).update(
        expires_at=UtcNow(-timedelta(hours=1))
    )
    drain()
    move()
    (again,) = send_on(THERE, "orders", "once", dedup_key="a")
    assert again.duplicate
    assert again.message_id == first.message_id
    (new,) = send_on(THERE, "orders", "old", dedup_key="b")
    assert not new.duplicate


def test_an_id_of_the_old_database_names_no_message_of_the_new_one():
    finished()
    old = send_on(HERE, "orders", "before", dedup_key="a")[0]
    drain()
    move()
    new = send_on(THERE, "orders", "after", delay=timedelta(hours=1))[0]
    assert new.message_id > old.message_id
    assert cancel(old, using=THERE) == "unknown"
    assert cancel(new, using=THERE) == "cancelled"


def test_a_log_that_was_rewound_keeps_its_epoch_and_what_it_leaves_out():
    seen = finished(number=3)
    jump(Partition.objects.get().pk, End(10, 0), HERE)
    end = Partition.objects.get().next_offset
    drain()
    move()
    assert the(Partition).epoch == 1
    assert the(Rewind).next_offset == end
    send_on(THERE, "orders", "after")
    consume_on(THERE)
    assert seen[-1] == ("orders", 0, end, "after")
    assert audits() == []


def test_a_broadcast_client_goes_on_where_it_was(ems_settings):
    consumer("orders", group="tail", mode="broadcast", start="latest")(lambda message: None)
    create("orders", 1, HERE)
    ems_settings(SHARDS={"later.*": THERE})
    running = RunningBroadcastGroup(registered("orders", "tail"), HERE, NONE, "client")
    running.close()
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence(HERE)
    assert read_as_client(HERE) == (0, 4)
    move()
    ems_settings(SHARDS={"orders": THERE})
    send_on(THERE, "orders", 5, 6)
    sequence(THERE)
    assert read_as_client(THERE) == (5, 6)


def read_as_client(alias):
    """Read the next stretch as a new process with the same name does."""
    running = RunningBroadcastGroup(registered("orders", "tail"), alias, NONE, "client")
    try:
        stretch = running.reader.take(10)
        assert stretch is not None
        running.reader.move(stretch, stretch.last_offset + 1, 1, None)
        assert running.reader.missed == 0
        return stretch.first_offset, stretch.last_offset
    finally:
        running.close()


def test_dead_letters_stay_and_are_counted():
    @consumer("orders", group="bill", max_retries=0)
    def bill(message):
        raise ValueError

    finished()
    assert TopicMove("orders", HERE, THERE).letters() == 5
    move()
    assert DeadMessage.objects.count() == 5
    assert not DeadMessage.objects.using(THERE).exists()


def failed_once():
    """A group whose five messages all wait to be retried; returns what it handles then."""
    seen: list[tuple[object, ...]] = []
    failing = [True]

    @consumer("orders", group="mail", max_retries=2)
    def mail(message):
        if failing[0]:
            raise ValueError("not yet")
        seen.append((*place_of(message), message.attempt))

    send_many([Outgoing("orders", n, key=f"k{n}") for n in range(5)])
    assert drain().failed == 5
    failing[0] = False
    return seen


def test_waiting_retries_are_taken_along_and_handled_once():
    seen = failed_once()
    assert RetryMessage.objects.count() == 5
    with pytest.raises(MoveRefused, match="5 messages wait"):
        move()
    move(with_retries=True)
    assert not RetryMessage.objects.exists()
    retries = RetryMessage.objects.using(THERE)
    assert set(retries.values_list("attempt", flat=True)) == {2}
    assert consume_on(HERE).done == 0
    retries.update(due_at=UtcNow())
    consume_on(THERE)
    assert sorted(seen) == [("orders", 0, n, n, 2) for n in range(5)]
    assert audits() == []


def test_held_keys_are_taken_along_and_each_goes_on_in_its_order():
    seen = []
    failing = [True]

    @consumer("orders", group="mail", ordered="key")
    def mail(message):
        if failing[0]:
            raise ValueError
        seen.append((message.key, message.body))

    send_many([Outgoing("orders", n, key=key) for n, key in enumerate("aaba")])
    drain()
    move(with_retries=True)
    assert not HeldKey.objects.exists()
    held = HeldKey.objects.using(THERE).values_list("key", "head_offset")
    assert sorted(held) == [("a", 0), ("b", 2)]
    failing[0] = False
    RetryMessage.objects.using(THERE).exclude(due_at=None).update(due_at=UtcNow())
    consume_on(THERE)
    assert [body for key, body in seen if key == "a"] == [0, 1, 3]
    assert not HeldKey.objects.using(THERE).exists()
    assert audits() == []


def test_a_key_that_a_dead_letter_holds_here_does_not_keep_the_topic_from_moving_back():
    @consumer("orders", group="mail", ordered="key", on_dead="hold", max_retries=0)
    def mail(message):
        raise ValueError

    send("orders", 0, key="a")
    drain()
    move()
    sweep(THERE)  # no letter holds it there
    send_on(THERE, "orders", 1, key="a")
    consume_on(THERE)
    Message.objects.all().delete()
    Partition.objects.update(first_offset=1)
    move(source=THERE, target=HERE)
    assert HeldKey.objects.values_list("head_offset", "dead").get() == (1, True)


@pytest.mark.timeout(600)  # audits grow with the topics of the sweep
@strides(53, 3)
@pytest.mark.parametrize("ordered", [pytest.param(False, marks=pytest.mark.exhaustive), "key"])
def test_a_move_with_retries_may_be_killed_between_any_two_statements(stride, ordered):
    """Of a group by key, what is parked stays so: each key goes on in its order."""
    for point in count(1, stride):
        name = f"orders-{point}"
        seen = []
        registry._registered.clear()
        failing = [True]

        @consumer(name, group="mail", max_retries=2, ordered=ordered)
        def mail(message):
            if failing[0]:  # noqa: B023
                raise ValueError
            seen.append(message.body)  # noqa: B023

        send_many([Outgoing(name, n, key=key) for n, key in enumerate("aba")])
        drain()
        failing[0] = False
        status = in_fork(partial(move_until_killed, name, point, with_retries=True))
        due(HERE)
        consume_on(HERE)  # old consumers go on
        move(name, with_retries=True)
        due(THERE)
        consume_on(THERE)
        assert sorted(seen) == [0, 1, 2]
        assert not ordered or seen.index(0) < seen.index(2)
        assert not HeldKey.objects.using(THERE).exists()
        assert audits() == []
        if status == 0:
            break
    assert point > 40


def due(alias):
    rows = RetryMessage.objects.using(alias)
    rows.exclude(due_at=None).update(due_at=UtcNow())


def move_until_killed(name, point, **options):
    Guillotine(point).install()
    move(name, **options)


@pytest.mark.timeout(600)
@strides(31, 2)
def test_a_move_may_be_killed_between_any_two_statements_and_repeated(stride):
    for point in count(1, stride):
        name = f"orders-{point}"
        registry._registered.clear()
        seen = finished(name, 3)
        send_on(HERE, name, "once", dedup_key="a")
        drain()
        status = in_fork(partial(move_until_killed, name, point))
        moved = Topic.objects.using(THERE).filter(name=name).exists()
        here = Topic.objects.get(name=name).access == "read-write"
        assert not (moved and here)  # never open on both
        move(name)
        send_on(THERE, name, "after")
        consume_on(HERE)
        consume_on(THERE)
        assert [offset for _topic, _partition, offset, _body in seen] == [0, 1, 2, 3, 4]
        assert Move.objects.get(name=name).finished_at
        if status == 0:
            break
    assert point > 40
    assert audits() == []


def test_a_killed_move_may_be_given_up():
    finished()
    dead = TopicMove("orders", HERE, THERE)
    dead.close()
    Move.objects.update(target="elsewhere")
    with pytest.raises(MoveRefused, match="is being moved to elsewhere"):
        move()
    Move.objects.update(target=THERE)
    Topic.objects.update(access="read-write")  # by an operator
    send_on(HERE, "orders", "more")
    drain()
    with pytest.raises(MoveRefused, match="opened again"):
        dead.finish()
    move()
    with pytest.raises(MoveRefused, match="given up"):
        dead.finish()
    assert the(Partition).next_offset == 6


def test_a_run_that_was_frozen_writes_nothing_once_the_move_was_given_up():
    finished()
    frozen = TopicMove("orders", HERE, THERE)
    frozen.close()
    before = Move.objects.get()
    frozen.give_up()
    assert Topic.objects.get().access == "read-write"
    with pytest.raises(MoveRefused):
        frozen._write(Topic.objects.get(), before)
    assert not Topic.objects.using(THERE).exists()
    move()  # another one is not kept from it


@pytest.mark.mysql
def test_two_moves_at_once_are_one(in_thread):
    finished()
    runs = [in_thread(move) for _n in range(2)]
    for run in runs:
        run.result(30)
    assert Topic.objects.using(THERE).count() == 1
    assert Move.objects.using(THERE).count() == 1
    assert the(Partition).next_offset == 5


@pytest.mark.parametrize("seen", [[], ["orders has moved to other: move it from there."]])
def test_a_move_that_another_run_has_ended_meanwhile_is_not_begun_anew(monkeypatch, seen):
    """The other run moves the topic while this one looks for obstacles."""
    finished()
    late = TopicMove("orders", HERE, THERE)

    def obstacles():
        move()
        return seen

    monkeypatch.setattr(late, "obstacles", obstacles)
    late.run(pause=lambda seconds: None)
    assert the(Move).finished_at
    assert Move.objects.count() == 1
    assert the(Topic).access == "read-write"


@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True])
def test_a_connection_that_breaks_in_the_commit_is_repeated(done):
    """Of the transaction on the target: its outcome is not known."""
    finished()
    target: Any = connections[THERE]
    commit = target._commit
    broken: list[int] = []

    def breaks():
        if not broken:
            ((session,),) = fetch(THERE, "SELECT CONNECTION_ID()")
            broken.append(session)
            if done:
                commit()
            execute(HERE, "KILL %s", [session])
            raise OperationalError(2013, "Lost connection to server during query")
        commit()

    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    target._commit = breaks
    try:
        moving.finish()
    finally:
        del target._commit
    assert broken
    assert Topic.objects.using(THERE).count() == 1
    assert the(Partition).next_offset == 5
    assert Move.objects.get().finished_at


@pytest.mark.mysql
def test_a_group_that_comes_while_the_locks_are_lost_goes_along(second_connection):
    """The server has ended the session with the locks, while another one writes on the target."""
    finished()
    consumer("orders", group="late", start="latest")(print)
    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    other = second_connection()

    def lose_the_locks(execute):
        result = execute()
        other.execute(f"KILL {connections[HERE].connection.thread_id()}")
        with other.active():
            subscribe(registered("orders", "late"), HERE)
        return result

    once = Once("INSERT INTO `ems_move`", lose_the_locks)
    with statements(once, THERE):
        moving.finish()
    assert once.fired
    groups = ConsumerGroup.objects.using(THERE).order_by("name")
    assert list(groups.values_list("name", flat=True)) == ["late", "mail"]
    assert Topic.objects.using(THERE).count() == 1
    assert Move.objects.get().finished_at


def test_a_topic_that_has_moved_is_not_moved_again_from_here():
    finished()
    move()
    move()  # says that it is there
    assert TopicMove("orders", HERE, THERE).is_over
    with pytest.raises(MoveRefused, match="is on default already"):
        move(target=HERE)


def test_a_topic_moves_back_once_its_old_log_is_deleted():
    seen = finished()
    move()
    send_on(THERE, "orders", 5, 6)
    consume_on(THERE)
    with pytest.raises(MoveRefused, match="delete orders --database default"):
        move(source=THERE, target=HERE)
    assert the(Topic).access == "read-write"
    deletion = TopicDeletion(Topic.objects.get(), HERE)
    deletion.close()
    deletion.finish()
    move(source=THERE, target=HERE)
    send_on(HERE, "orders", 7)
    consume_on(HERE)
    assert seen == [("orders", 0, n, n) for n in range(8)]
    move_back_again = TopicMove("orders", HERE, THERE)
    assert not move_back_again.is_over
    assert any("other has 2 messages" in one for one in move_back_again.obstacles())


def test_a_topic_moves_back_onto_a_log_that_is_purged():
    seen = finished()
    move()
    send_on(THERE, "orders", 5)
    consume_on(THERE)
    Message.objects.all().delete()
    Partition.objects.update(first_offset=5)
    move(source=THERE, target=HERE)
    send_on(HERE, "orders", 6)
    consume_on(HERE)
    assert seen == [("orders", 0, n, n) for n in range(7)]
    assert audits() == []


def test_another_namespace_keeps_its_topic(ems_settings):
    ems_settings(NAMESPACE="green")
    topics.forget()
    finished()
    move()
    assert Topic._base_manager.using(THERE).values_list("name", flat=True).get() == "orders"
    ems_settings(NAMESPACE="blue")
    with pytest.raises(UnknownTopic):
        move()
    assert Counter(Topic.objects.using(THERE).values_list("name", flat=True)) == {}


@pytest.mark.parametrize("times", [1, 2000], ids=["plain", "compressed"])
def test_a_redriven_letter_that_was_edited_is_taken_along(times):
    seen = []
    failing = [True]

    @consumer("orders", group="mail", max_retries=0)
    def mail(message):
        if failing[0]:
            raise ValueError
        seen.append(message.body)

    right = "right" * times
    send("orders", "wrong" * times)
    drain()
    failing[0] = False
    letter = DeadMessage.objects.get()
    assert edit_and_redrive(letter, replace(EditableContent.of(letter), body=right), who="anna")
    with pytest.raises(MoveRefused, match="1 message waits"):
        move()
    move(with_retries=True)
    edit = LetterEdit.objects.using(THERE).get()
    assert edit.letter_id == the(DeadMessage).pk
    assert bytes(edit.body).decode() == "wrong" * times
    for model in (DeadMessage, LetterEdit):
        (stored,) = model.objects.using(THERE).values_list("body_type", flat=True)
        assert stored == ("text" if times == 1 else "ztext")
    consume_on(HERE)
    consume_on(THERE)
    assert seen == [right]
    assert audits() == []


def failed_here():
    """A message that waits to be retried, and a handler that fails each time."""

    @consumer("orders", group="mail", max_retries=5)
    def mail(message):
        raise ValueError

    send("orders", 1)
    drain()


def killed_with_retries_held():
    failed_here()
    dead = TopicMove("orders", HERE, THERE, with_retries=True)
    dead.close()
    dead._hold_retries()
    return dead


def test_retries_that_a_killed_move_has_held_come_along_without_the_flag():
    killed_with_retries_held()
    move()
    assert the(RetryMessage).attempt == 2
    assert not RetryMessage.objects.exists()
    assert audits() == []


def test_a_retry_that_is_claimed_at_the_last_moment_keeps_the_topic_here(monkeypatch):
    """Between the look at open claims and that at waiting retries, another process claims one."""
    failed_here()
    with monkeypatch.context() as patch:
        patch.setattr(TopicMove, "obstacles", lambda self: [])  # it failed after the close
        moving = TopicMove("orders", HERE, THERE)
        moving.close()
    look = TopicMove._retries

    def claimed(self):
        RetryMessage.objects.filter(delivery=None).update(delivery=77)
        yield from look(self)

    monkeypatch.setattr(TopicMove, "_retries", claimed)
    with pytest.raises(topic_move.Unfinished, match="failed meanwhile"):
        moving.finish()
    assert not Topic.objects.using(THERE).exists()


def test_a_repeated_move_that_meets_an_obstacle_opens_the_topic_again():
    failed_here()
    TopicMove("orders", HERE, THERE, with_retries=True).close()
    with pytest.raises(MoveRefused, match="1 message waits"):
        move()
    assert Topic.objects.get().access == "read-write"
    assert not Move.objects.exists()


def test_a_topic_that_moves_or_has_moved_is_not_opened():
    finished()
    killed = TopicMove("orders", HERE, THERE)
    killed.close()
    for _n in range(2):
        with pytest.raises(InvalidValue, match="--give-up"):
            change(Topic.objects.get(), {"access": "read-write"}, HERE, "anna")
        change(Topic.objects.get(), {"retention_seconds": 60}, HERE, "anna")
        assert Topic.objects.get().access == "read-only"
        move()
    change(the(Topic), {"access": "read-only"}, THERE, "anna")
    change(the(Topic), {"access": "read-write"}, THERE, "anna")
    with pytest.raises(MoveRefused, match="No move of orders"):
        killed.give_up_killed()


def test_giving_up_a_killed_move_releases_its_retries():
    killed_with_retries_held()
    TopicMove("orders", HERE, HERE).give_up_killed()
    assert Topic.objects.get().access == "read-write"
    assert RetryMessage.objects.get().delivery is None
    assert audits() == []
    change(Topic.objects.get(), {"access": "denied"}, HERE, "anna")
    change(Topic.objects.get(), {"access": "read-write"}, HERE, "anna")


def test_a_killed_move_that_has_landed_is_not_given_up(monkeypatch):
    finished()
    dead = TopicMove("orders", HERE, THERE)
    dead.close()

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(moved_retries, "remove", killed)
        dead.finish()
    with pytest.raises(MoveRefused, match="has moved to other"):
        TopicMove("orders", HERE, HERE).give_up_killed()
    assert Topic.objects.get().access == "read-only"
    move()
    assert Move.objects.get().finished_at


def test_what_is_set_during_a_move_holds():
    finished()
    moving = TopicMove("orders", HERE, THERE)
    moving.close()
    Topic.objects.update(retention_seconds=5)
    moving.finish()
    assert the(Topic).retention_seconds == 5


def test_a_topic_that_is_denied_during_a_move_stays_denied():
    finished()
    Topic.objects.update(access="read-write")

    def deny(seconds):
        change(Topic.objects.get(), {"access": "denied"}, HERE, "anna")

    with pytest.raises(MoveRefused, match="access of orders was changed"):
        TopicMove("orders", HERE, THERE).run(pause=deny)
    assert Topic.objects.get().access == "denied"
    assert not Topic.objects.using(THERE).exists()


def test_a_send_that_is_sequenced_into_a_log_that_has_moved_says_so(monkeypatch):
    finished()
    known = topics.resolve("orders", HERE)
    move()
    topics._remember(HERE, known)  # the INSERT was under way for long
    monkeypatch.setattr(conf, "SURE_SECONDS", -1)
    look = topics.look_again

    def sequenced(info, using):
        sequence(using)
        return look(info, using)

    monkeypatch.setattr(access, "look_again", sequenced)
    with pytest.raises(SendOutcomeUnknown, match="closed"):
        send("orders", "late", using=HERE)
    assert Message.objects.count() == 6


def test_a_topic_that_is_made_anew_after_the_deletion_can_be_moved():
    finished()
    move()
    deletion = TopicDeletion(Topic.objects.get(), HERE)
    deletion.close()
    deletion.finish()
    create("orders", 1, HERE)
    moving = TopicMove("orders", HERE, THERE)
    assert not moving.is_over
    (obstacle,) = moving.obstacles()
    assert "has come further on other" in obstacle
    change(Topic.objects.get(), {"access": "denied"}, HERE, "anna")
    change(Topic.objects.get(), {"access": "read-write"}, HERE, "anna")


def test_the_doctor_of_the_new_database_asks_for_the_setting(ems_settings):
    ems_settings(SHARDS={"later.*": THERE})
    finished()
    move()
    (found,) = shards(THERE)
    assert "was moved here" in found.text
    assert "put it on other" in found.hint


def test_a_group_that_was_deleted_after_the_move_does_not_come_back():
    finished()
    move()
    delete_group(ConsumerGroup.objects.using(THERE).get())
    Message.objects.all().delete()
    Partition.objects.update(first_offset=5)
    with pytest.raises(MoveRefused, match="delete mail --topic orders --database default"):
        move(source=THERE, target=HERE)
    delete_group(ConsumerGroup.objects.get())
    move(source=THERE, target=HERE)
    assert not ConsumerGroup.objects.exists()


@pytest.mark.parametrize("accepted", [False, True])
def test_a_repeated_commit_finds_its_decision_after_the_move(ems_settings, accepted):
    ems_settings(SHARDS={"later.*": "other"})
    checkback("ask")(lambda message: Decision.UNKNOWN)
    finished()
    prepare("orders", 1, biz="pay", biz_key="1", checker="ask").commit()
    drain()
    move()
    if accepted:
        ems_settings(SHARDS={"orders": "other"})
    held = two_phase.prepared("pay", "1")
    assert held.using == (THERE if accepted else HERE)
    assert held.commit().state == "committed"
