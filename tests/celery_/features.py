"""Lists the features of Celery that must work unchanged: each is a function that checks one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread
from uuid import uuid4

from celery import chain, chord, group
from celery.exceptions import TaskRevokedError, TimeLimitExceeded
from celery.result import AsyncResult

from streams.models import DeadMessage, Message
from tests.celery_ import broker as tasks
from tests.celery_.broker import add, broker, ran, record
from tests.processes import wait_for

PATIENCE = 60

Feature = Callable[[], None]
FEATURES: dict[str, Feature] = {}


def feature(check: Feature) -> Feature:
    FEATURES[check.__name__] = check
    return check


def name() -> str:
    return uuid4().hex[:12]


def get(result: AsyncResult) -> object:
    return result.get(timeout=PATIENCE, interval=0.02)


@feature
def delay_and_result() -> None:
    assert get(add.delay(2, 3)) == 5


@feature
def countdown() -> None:
    one, sent = name(), time.time()
    record.apply_async([one], countdown=1.5)
    row = Message.objects.inbox().filter(tag=record.name).get()
    assert row.due_at.year > 2000  # EMS keeps it, and no worker
    wait_for(lambda: ran(one))
    assert time.time() - sent >= 1.4


@feature
def eta() -> None:
    one = name()
    record.apply_async([one], eta=datetime.now(UTC) + timedelta(seconds=1))
    assert not ran(one)
    wait_for(lambda: ran(one))


@feature
def expires() -> None:
    one = name()
    result = record.apply_async([one], expires=datetime.now(UTC) - timedelta(seconds=1))
    wait_for(lambda: result.state == "REVOKED")
    assert not ran(one)


@feature
def retries() -> None:
    one = name()
    assert get(tasks.retried.delay(one)) == 2
    assert ran(one) == 3


@feature
def autoretry() -> None:
    one = name()
    get(tasks.divided.delay(one))
    assert ran(one) == 3


@feature
def chains() -> None:
    assert get(chain(add.s(1, 2), add.s(3), add.s(4))()) == 10


@feature
def groups() -> None:
    assert get(group(add.s(n, n) for n in range(10))()) == [2 * n for n in range(10)]


@feature
def chords() -> None:
    assert get(chord([add.s(n, n) for n in range(5)], tasks.total.s())()) == 20


@feature
def chunks() -> None:
    found = get(add.chunks(zip(range(6), range(6), strict=True), 2)())
    assert found == [[0, 2], [4, 6], [8, 10]]


@feature
def links_and_errbacks() -> None:
    one = name()
    record.apply_async([name()], link=record.si(one))
    result = tasks.failing.apply_async(link_error=tasks.on_error.s())
    wait_for(lambda: ran(one) and ran(f"error of {result.id}"))


@feature
def failures() -> None:
    result = tasks.failing.delay()
    wait_for(lambda: result.state == "FAILURE")
    assert isinstance(result.result, ValueError)


@feature
def revoke() -> None:
    one = name()
    result = record.apply_async([one], countdown=1.5)
    result.revoke()
    wait_for(lambda: result.state == "REVOKED")
    assert not ran(one)


@feature
def revoke_of_a_running_task() -> None:
    one = name()
    result = record.apply_async([one], {"seconds": 60})
    wait_for(lambda: ran(one))
    result.revoke(terminate=True)
    wait_for(lambda: result.state == "REVOKED")
    assert isinstance(result.result, TaskRevokedError)


@feature
def soft_time_limit() -> None:
    one = name()
    tasks.soft.delay(one)
    wait_for(lambda: ran(one))


@feature
def hard_time_limit() -> None:
    result = tasks.hard.delay(name())
    wait_for(lambda: result.state == "FAILURE")
    assert isinstance(result.result, TimeLimitExceeded)


@feature
def reject() -> None:
    one = name()
    sent = tasks.rejected.delay(one)
    letter = wait_for(lambda: DeadMessage.objects.filter(key=sent.id).first())
    assert letter is not None
    assert letter.tag == tasks.rejected.name
    assert ran(one) == 1


@feature
def requeue() -> None:
    one = name()
    get_ids = tasks.requeued.delay(one)
    wait_for(lambda: ran(one) == 3)
    wait_for(lambda: get_ids.state == "SUCCESS")


@feature
def redelivered() -> None:
    one = name()
    tasks.redelivered.delay(one)
    wait_for(lambda: ran(f"{one} True"))
    assert ran(f"{one} False") == 1


@feature
def unregistered_task() -> None:
    sent = broker.send_task("nobody.knows")
    wait_for(lambda: DeadMessage.objects.filter(key=sent.id).exists())


@feature
def inspect() -> None:
    found = broker.control.inspect(timeout=10, limit=1)
    assert found.ping() == {"w@test": {"ok": "pong"}}
    registered = (found.registered() or {})["w@test"]
    assert record.name in registered
    assert (found.stats() or {})["w@test"]["pool"]["max-concurrency"] == 2


@feature
def active() -> None:
    one = name()
    result = record.apply_async([one], {"seconds": 3})
    wait_for(lambda: ran(one))
    inspect = broker.control.inspect(timeout=10, limit=1)
    assert [task["id"] for task in (inspect.active() or {})["w@test"]] == [result.id]
    get(result)


@feature
def remote_control() -> None:
    control = broker.control
    limit = control.rate_limit(record.name, "1000/s", reply=True, limit=1, timeout=10)
    assert "ok" in limit[0]["w@test"]
    assert control.add_consumer("later", reply=True, limit=1, timeout=10)
    one = name()
    record.apply_async([one], queue="later")
    wait_for(lambda: ran(one))
    assert control.cancel_consumer("later", reply=True, limit=1, timeout=10)


@feature
def pickle() -> None:
    assert get(add.apply_async((2, 2), serializer="pickle")) == 4


@feature
def compression() -> None:
    one = name() * 50
    record.apply_async([one], compression="gzip")
    wait_for(lambda: ran(one))


@feature
def another_queue() -> None:
    one = name()
    tasks.elsewhere.delay(one)
    assert Message.objects.filter(partition__topic__name="celery.other:20:queue").exists()
    wait_for(lambda: ran(one))


@feature
def priorities() -> None:
    one = name()
    record.apply_async([one], priority=9)
    assert Message.objects.filter(partition__topic__name="celery.celery:6").exists()
    wait_for(lambda: ran(one))


@feature
def events() -> None:
    seen: list[str] = []

    handlers = {"task-succeeded": lambda event: seen.append(event["uuid"])}
    receiver = broker.events.Receiver(broker.connection(), handlers)

    def read() -> None:
        with receiver.connection:
            receiver.capture(limit=None, timeout=30)

    thread = Thread(target=read, daemon=True)
    thread.start()
    sent: list[str] = []

    def came() -> bool:
        sent.append(add.delay(1, 1).id)
        time.sleep(0.2)
        return bool(set(sent) & set(seen))

    wait_for(came)
    receiver.should_stop = True
    thread.join()


@feature
def a_task_with_a_large_body() -> None:
    one = name() * 10_000
    assert get(record.delay(one[:100], 0)) == one[:100]
    record.apply_async([name()], {"seconds": 0}, headers={"x": one})
