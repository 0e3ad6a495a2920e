"""The plans of the purge: it looks at what it deletes, and at what is open, and at nothing else."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from streams import runtime_settings
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.operate.topic_deletion import TopicDeletion
from streams.retain import abandoned_groups, old_rows
from streams.retain.abandoned_groups import abandoned
from streams.retain.purge import Purge
from streams.retain.purge_floor import kept_from, purge_floor
from tests.plans.seed import LOG, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

LONG_AGO = timedelta(days=400)


def prepared(seeded: Seed, **retention: object) -> Topic:
    topic = seeded.topics[1]
    Topic.objects.filter(pk=topic.pk).update(**retention)
    return Topic.objects.get(pk=topic.pk)


def test_the_floor_is_worked_out_from_what_is_open(seeded: Seed) -> None:
    topic = prepared(seeded, retention_count=10)
    partition = Partition.objects.get(topic=topic)
    wanted = kept_from(partition, topic, "default")
    with explained() as statements:
        found = purge_floor(partition, topic, wanted, "default")
    assert found.holds
    (holders,) = statements.on("ems_topic_group_log")
    (readers,) = statements.on("ems_reader")
    assert "ems_reader.ems_reader_topic" in readers.indexes, readers
    used = set(holders.indexes)
    assert "ems_topic_group_log.ems_log_open" in used, holders
    assert "ems_retry_msg.ems_retry_place" in used, holders
    assert not [p for p in holders.problems() if "ems_" in p and "reads all" in p], holders
    assert not [p for p in holders.problems() if "filesort" in p], holders


def test_the_age_is_looked_up_in_the_log(seeded: Seed) -> None:
    topic = prepared(seeded, retention_seconds=60)
    with explained() as statements:
        kept_from(Partition.objects.get(topic=topic), topic, "default")
    looks = statements.on("ems_msg")
    assert 0 < len(looks) <= LOG.bit_length() + 1
    for look in looks:
        assert look.indexes == ["ems_msg.ems_msg_log"], look
        assert look.problems() == [], look


def test_messages_are_found_and_deleted_in_the_log(seeded: Seed) -> None:
    topic = prepared(seeded, retention_count=10)
    partition = Partition.objects.filter(topic=topic)
    partition.update(first_offset=50)
    with explained() as statements:
        Purge("default").delete_below(partition.get())
    assert Message.objects.filter(partition=partition.get(), offset__lt=50).count() == 0
    (look, *_rest) = statements.on("ems_msg")
    assert look.indexes == ["ems_msg.ems_msg_log"], look
    assert "Using index" in look.steps[0].extra, look
    (delete,) = statements.on("ems_msg", "DELETE")
    assert delete.indexes == ["ems_msg.ems_msg_log"], delete
    assert delete.steps[0].access == "range", delete


def test_deliveries_and_letters_are_found_in_their_indexes_and_deleted_by_their_key(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_settings, "system", lambda name, using: 30)
    old = UtcNow(-LONG_AGO)
    # Few rows, though rolled back: the server would count its statistics anew.
    mine = Delivery.objects.filter(group=seeded.group)
    # What is open is at the beginning of the log, and would keep all above it.
    mine.filter(state="START").delete()
    RetryMessage.objects.filter(group=seeded.group).delete()
    mine.update(claimed_at=old, finished_at=old)
    ids = list(DeadMessage.objects.order_by("pk").values_list("pk", flat=True)[:20])
    DeadMessage.objects.filter(pk__in=ids).update(died_at=old)
    with explained() as statements:
        deleted = {name: sum(step("default")) for name, step in old_rows.OLD_ROWS.items()}
    assert deleted["deliveries"]
    assert deleted["dead letters"]
    for look in statements.on("ems_topic_group_log"):
        if "ORDER BY `ems_topic_group_log`.`first_offset`" in look.sql:
            assert look.indexes == ["ems_topic_group_log.ems_log_place"], look
            assert look.problems() == [], look
    (letters, *_more) = [s for s in statements.on("ems_dead_msg") if "ORDER BY" in s.sql]
    assert letters.indexes[0] == "ems_dead_msg.ems_dead_died", letters
    deletes = [s for s in statements if s.sql.startswith("DELETE")]
    assert deletes
    assert {s.indexes[0].rpartition(".")[2] for s in deletes} == {"PRIMARY"}


def test_who_is_abandoned_is_no_question_to_a_large_table(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(seeded, retention_count=1)
    with explained() as statements:
        assert list(abandoned("default")) == []
    (_config, groups) = statements  # every one has a consumer
    assert {step.table for step in groups.steps} == {"ems_topic", "ems_group", "ems_client"}
    Cursor.objects.filter(group=seeded.group).update(next_offset=0)
    everybody = ConsumerGroup.objects.filter(pk=seeded.group.pk)
    monkeypatch.setattr(abandoned_groups, "_without_consumer", lambda using: everybody)
    with explained() as statements:
        list(abandoned("default"))
    for statement in statements:
        assert not [p for p in statement.problems() if "reads all" in p], statement


def test_the_preview_of_a_deletion_counts_in_indexes(seeded: Seed) -> None:
    topic = prepared(seeded)
    with explained() as statements:
        work = TopicDeletion(topic, "default")
        work.contents()
        work.obstacles()
    for statement in statements:  # counted, in an index at most the whole of it
        assert not [p for p in statement.problems() if "(ALL" in p], statement


def test_a_dry_run_is_sound(seeded: Seed) -> None:
    prepared(seeded, retention_count=10, retention_seconds=60, retention_consumed=True)
    with explained() as statements:
        call_command("ems_purge", "--dry-run", stdout=StringIO())
    for statement in statements:
        assert not [p for p in statement.problems() if "reads all" in p], statement
