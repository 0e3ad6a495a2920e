"""The plans of claim, read and settle: ranges and keys, whatever lies in the tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import Reject, consumer
from streams.consume import registry
from streams.consume.limits import Limits
from streams.consume.outcome.settle import release
from streams.consume.rate import Rate
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.deliver.key_starts import KeyStarts
from streams.models import Delivery, KeyBucket, Message, RateBucket
from tests.plans.seed import LIVE, Seed
from tests.plans.statements import Statements, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

MINUTE = timedelta(minutes=1)
LIMITS = Limits(batch=100, max_retries=16, consume_timeout=MINUTE)

DELIVERY = ["ems_topic_group_log.PRIMARY"]


@pytest.fixture
def claimer(seeded: Seed) -> Claimer:
    return Claimer(seeded.group, LIVE, "t", "default")


@pytest.fixture
def handling(seeded: Seed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Handling]:
    """Hand a delivery to a handler, as a worker does."""
    monkeypatch.setattr(registry, "_registered", {})
    group = seeded.group

    def make(delivery: Delivery, handler: Any, **options: Any) -> Handling:
        consumer(group.topic.name, group=group.name, batch=100)(handler)
        registration = registry.find(group.topic.name, group.name)
        assert registration
        return Handling(delivery, registration, LIMITS, **options)

    return make


def indexes(statements: Statements, table: str, verb: str = "SELECT") -> set[tuple[str, ...]]:
    return {tuple(s.indexes) for s in statements.on(table, verb)}


def test_a_claim_finds_and_locks_its_cursor_by_key(claimer: Claimer) -> None:
    with explained() as statements:
        assert claimer.claim(100, MINUTE)
    statements.assert_sound()
    look, lock = statements.on("ems_cursor")
    assert look.indexes == ["ems_cursor.ems_cursor_place", "ems_partition.PRIMARY"]
    assert "FOR UPDATE" not in look.sql
    # One row: a locking join would lock the partition, which the sequencer holds.
    assert set(lock.indexes) == {"ems_cursor.PRIMARY", "ems_partition.PRIMARY"}
    assert lock.sql.endswith("FOR UPDATE")  # the only cursor: to skip it would be to wait for it
    assert indexes(statements, "ems_cursor", "UPDATE") == {("ems_cursor.PRIMARY",)}
    assert indexes(statements, "ems_msg") == set()  # the lock is held for no message


def test_an_unconfirmed_claim_is_looked_up_by_its_id(claimer: Claimer) -> None:
    delivery = claimer.claim(100, MINUTE)
    assert delivery
    with explained() as statements:
        assert claimer._committed(delivery)
    statements.assert_sound()
    assert indexes(statements, "ems_cursor") == {("ems_cursor.ems_cursor_place",)}
    (found,) = statements.on("ems_topic_group_log")
    assert "ems_topic_group_log.PRIMARY" in found.indexes, found


def test_a_retry_is_claimed_from_its_index_in_order(claimer: Claimer) -> None:
    with explained() as statements:
        claimed = claimer.claim_retry(MINUTE)
    assert claimed
    statements.assert_sound()
    (lock,) = (s for s in statements if "SKIP LOCKED" in s.sql)
    assert lock.indexes == ["ems_retry_msg.ems_retry_due"]
    looks = {s.indexes[0] for s in statements.on("ems_retry_msg")}
    assert looks <= {
        "ems_retry_msg.ems_retry_due",
        "ems_retry_msg.ems_retry_place",
        "ems_retry_msg.PRIMARY",
    }
    assert indexes(statements, "ems_retry_msg", "UPDATE") == {("ems_retry_msg.PRIMARY",)}
    with explained() as statements:
        assert claimer._committed(claimed[0])
    assert indexes(statements, "ems_retry_msg") == {("ems_retry_msg.ems_retry_place",)}


def test_bodies_are_read_as_one_range_of_the_log(
    claimer: Claimer, handling: Callable[..., Handling]
) -> None:
    delivery = claimer.claim(100, MINUTE)
    assert delivery
    gone = Message.objects.filter(
        partition=delivery.partition_id, offset__range=(delivery.first_offset, 310)
    )
    gone.delete()  # a short read is repeated on the primary
    with explained() as statements:
        outcome = handling(delivery, lambda messages: None).run()
    assert (outcome.done, outcome.missing) == (89, 0)  # the rest is read once more, as retries
    statements.assert_sound()
    assert len(statements.on("ems_msg")) == 2
    assert indexes(statements, "ems_msg") == {("ems_msg.ems_msg_log",)}
    assert {s.steps[0].access for s in statements.on("ems_msg")} == {"range"}


def test_a_delivery_is_extended_settled_and_released_by_key(
    claimer: Claimer, handling: Callable[..., Handling]
) -> None:
    done, back = claimer.claim(100, MINUTE), claimer.claim(100, MINUTE)
    assert done
    assert back
    with explained() as statements:
        assert done.extend(MINUTE)
        done.start(MINUTE)
        handling(done, lambda messages: None).run()
        release(back)
    statements.assert_sound()
    assert len(statements.on("ems_topic_group_log", "UPDATE")) == 4
    assert indexes(statements, "ems_topic_group_log", "UPDATE") == {tuple(DELIVERY)}


def test_what_was_given_back_is_found_among_open_deliveries_and_taken_by_key(
    claimer: Claimer,
) -> None:
    delivery = claimer.claim(100, MINUTE)
    assert delivery
    release(delivery)
    claimer._look_at = 0.0
    with explained() as statements:
        again = claimer.claim(100, MINUTE)
    assert again
    assert (again.first_offset, again.last_offset) == (delivery.first_offset, delivery.last_offset)
    statements.assert_sound()
    look, lock = statements.on("ems_topic_group_log", "SELECT")
    assert look.indexes == ["ems_topic_group_log.ems_log_open"]
    assert lock.indexes == DELIVERY
    assert "FOR UPDATE" in lock.sql
    assert indexes(statements, "ems_cursor") == {("ems_cursor.ems_cursor_place",)}


def test_failures_copy_the_dead_by_their_place(
    claimer: Claimer, handling: Callable[..., Handling]
) -> None:
    delivery = claimer.claim(100, MINUTE)
    assert delivery

    def fail_some(messages: Any) -> Any:
        return {messages[0]: Reject("no"), messages[1]: ValueError("later")}

    with explained() as statements:
        outcome = handling(delivery, fail_some).run()
    assert (outcome.failed, outcome.dead) == (2, 1)
    statements.assert_sound()
    (copy,) = statements.on("ems_msg", "INSERT")
    assert copy.indexes == ["ems_msg.ems_msg_log"]
    assert copy.steps[0].access == "const"


@pytest.mark.parametrize("fails", [False, True])
def test_a_retry_ends_by_its_place(
    claimer: Claimer, handling: Callable[..., Handling], fails: bool
) -> None:
    claimed = claimer.claim_retry(MINUTE)
    assert claimed
    delivery, retry = claimed

    def handle(messages: Any) -> Any:
        return {messages[0]: ValueError("again")} if fails else None

    with explained() as statements:
        outcome = handling(delivery, handle, retry=retry).run()
    assert outcome.failed == fails
    statements.assert_sound()
    assert indexes(statements, "ems_topic_group_log", "UPDATE") == {tuple(DELIVERY)}
    ends = [*statements.on("ems_retry_msg", "UPDATE"), *statements.on("ems_retry_msg", "DELETE")]
    assert ends
    assert {tuple(s.indexes) for s in ends} == {("ems_retry_msg.ems_retry_place",)}


def test_takes_for_keys_have_their_buckets_by_hash(claimer: Claimer) -> None:
    rows = [KeyBucket(group_id=10_000 + n, key_hash=n % 50) for n in range(3000)]
    rows += [KeyBucket(group=claimer.group, key_hash=n) for n in range(1000)]
    KeyBucket.objects.bulk_create(rows)
    delivery = claimer.claim(10, MINUTE)
    assert delivery
    with explained() as statements:
        KeyStarts(delivery, "tenant", Rate.of("5/s"))._take({7: 1, 8: 2, 2000: 1})
    assert indexes(statements, "ems_rate_key") == {("ems_rate_key.ems_rate_key_place",)}
    assert indexes(statements, "ems_rate_key", "UPDATE") == {("ems_rate_key.ems_rate_key_place",)}


def test_a_take_of_slots_has_its_bucket_by_key(claimer: Claimer) -> None:
    claimer.starts.rate = Rate.of("100/s")
    RateBucket.objects.bulk_create([RateBucket(group_id=10_000 + n) for n in range(3000)])
    assert claimer.starts.look()  # it adds the bucket
    with explained() as statements:
        assert claimer.starts.look()
        assert claimer.claim(10, MINUTE)
    assert indexes(statements, "ems_rate") == {("ems_rate.ems_rate_place",)}
    assert indexes(statements, "ems_rate", "UPDATE") == {("ems_rate.ems_rate_place",)}
