"""The plans of the search by time, tag and key, and of the index of keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.log.search import Criteria, search
from streams.log.sequencer import sequence
from streams.models import KeyEntry, Message, Partition, Topic
from streams.operate.key_index import complete
from streams.retain.purge import Purge
from tests.plans.seed import LOG, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def index(partition: Partition) -> None:
    """The index of keys of a log, as the sequencer would have written it: 20 keys."""
    KeyEntry.objects.bulk_create(
        KeyEntry(partition=partition, key=f"k{offset % 20}", offset=offset) for offset in range(LOG)
    )
    for number in range(20):
        Message.objects.filter(partition=partition, offset__in=range(number, LOG, 20)).update(
            key=f"k{number}"
        )
    Partition.objects.filter(pk=partition.pk).update(keys_from=0)
    partition.refresh_from_db()


def test_an_indexed_key_is_found_by_its_index(seeded: Seed) -> None:
    index(seeded.partition)
    with explained() as statements:
        found = search([seeded.partition], Criteria(key="k3"), 5, "default")
    assert [message.offset for message in found.messages] == [583, 563, 543, 523, 503]
    (look,) = statements.on("ems_key")
    assert look.indexes == ["ems_key.ems_key_search"]
    assert "filesort" not in look.steps[0].extra
    *_, rows = statements.on("ems_msg")
    assert rows.indexes[0] in ("ems_msg.ems_msg_log", "ems_msg.ems_msg_inbox")
    assert rows.steps[0].access == "range"  # only these offsets


def test_a_search_without_an_index_reads_the_log_backwards(seeded: Seed) -> None:
    since = datetime.now(tz=UTC) - timedelta(days=1)
    with explained() as statements:
        search(seeded.partitions, Criteria(tag="t", since=since), 5, "default")
    statements.assert_sound()


def test_the_index_of_keys_is_written_by_primary_key_and_purged_in_order(seeded: Seed) -> None:
    index(seeded.partition)
    Topic.objects.update(index_keys=True)
    Message.objects.inbox().update(key="k")
    with explained() as statements:
        sequence("default")
    writes = [s for s in statements if s.sql.startswith("INSERT INTO `ems_key`")]
    assert writes
    assert {index for s in writes for index in s.indexes if "ems_msg" in index} == {
        "ems_msg.PRIMARY"
    }
    Partition.objects.filter(pk=seeded.partition.pk).update(first_offset=300)
    with explained() as statements:
        Purge("default").delete_below(seeded.partition)
    (look,) = statements.on("ems_key")
    assert look.indexes == ["ems_key.ems_key_place"]
    assert "filesort" not in look.steps[0].extra


def test_the_index_of_keys_is_completed_by_ranges_of_the_log(seeded: Seed) -> None:
    index(seeded.partition)  # the keys of a log, and entries that an earlier time has left
    Partition.objects.filter(pk=seeded.partition.pk).update(keys_from=None)
    Topic.objects.update(index_keys=True)
    with explained() as statements:
        assert complete(seeded.partition.topic, "default") >= LOG
    statements.assert_sound()
    writes = [s for s in statements if s.sql.startswith("INSERT INTO `ems_key`")]
    assert {index for s in writes for index in s.indexes if "ems_msg" in index} == {
        "ems_msg.ems_msg_log"
    }
