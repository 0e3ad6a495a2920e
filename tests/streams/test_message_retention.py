"""What an installation keeps that nobody has touched: messages for 7 days."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.migrations import Migration

from streams import Outgoing, consumer, runtime_settings, send_many
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    Message,
    Partition,
    Step,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.models.step import PURGE
from streams.observe.announcement import announce_retention
from streams.observe.diagnoses import OK, WARNING, retention
from streams.retain.purge import Purge
from streams.retain.purge_floor import has_readers
from streams.retain.rule import rule_of
from streams.testing import drain

DAY = timedelta(days=1)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def content(messages: object) -> None:
    """A handler that has no complaint."""


def log(number: int = 10, **about: object) -> Topic:
    """Ten messages of eight days ago, which the group "mail" has finished."""
    consumer("orders", group="mail", batch=5)(content)
    send_many([Outgoing("orders", n) for n in range(number)])
    drain()
    Message.objects.update(sequenced_at=UtcNow(-8 * DAY))
    Topic.objects.update(**about)
    return Topic.objects.get()


def days(value: int) -> None:
    SystemConfig.objects.update_or_create(name="messageRetentionDays", defaults={"value": value})
    runtime_settings.forget()


def kept() -> int:
    Purge("default").run()
    return Message.objects.count()


def warnings() -> list[str]:
    return [one.text for one in retention("default") if one.level == WARNING]


@pytest.mark.exhaustive
def test_new_tables_keep_messages_for_seven_days_and_migrate_says_so() -> None:
    call_command("migrate", "ems", "zero", verbosity=0)
    output = StringIO()
    call_command("migrate", verbosity=1, stdout=output)  # of the monitoring, too, which needs them
    said = output.getvalue()
    assert SystemConfig.objects.get(name="messageRetentionDays").value == 7
    assert "deletes messages after 7 days, once every group of their topic has finished" in said
    assert "deliveries 30 days; dead letters for ever; figures 400 days" in said


def test_migrate_and_the_doctor_say_that_all_is_kept_for_ever() -> None:
    log()
    days(0)
    output, migration = StringIO(), Migration("0002_next", "ems")
    announce_retention(using="default", plan=[(migration, False)], stdout=output)
    assert "keeps the messages of this database for ever" in output.getvalue()
    assert kept() == 10
    assert warnings() == ["Messages are kept for ever in topics without a retention: orders"]
    Topic.objects.update(retention_seconds=0)  # for ever, on purpose
    assert warnings() == []


def test_a_migrate_that_changes_nothing_of_ems_or_is_told_to_be_quiet_says_nothing() -> None:
    output = StringIO()
    call_command("migrate", "ems", verbosity=1, stdout=output)
    assert "for ever" not in output.getvalue()


def test_without_the_setting_nothing_is_deleted() -> None:
    log()
    assert kept() == 10


def test_the_default_holds_where_the_topic_says_nothing() -> None:
    topic = log()
    days(7)
    assert str(rule_of(topic, "default")) == "7 days (default)"
    assert kept() == 0


@pytest.mark.parametrize(
    ("own", "text", "left"),
    [
        ({"retention_seconds": 0}, "for ever", 10),
        ({"retention_seconds": 30 * 86400}, "30 days", 10),
        ({"retention_count": 4}, "4 messages", 4),
        ({"retention_consumed": True}, "until consumed", 0),
        ({"retention_seconds": 5400, "retention_count": 1}, "90 minutes / 1 message", 0),
    ],
)
def test_what_a_topic_says_for_itself_is_stronger(own, text: str, left: int) -> None:
    topic = log(**own)
    days(7)
    assert str(rule_of(topic, "default")) == text
    assert kept() == left


def test_the_default_never_takes_what_a_group_has_not_finished() -> None:
    log()
    days(7)
    Cursor.objects.update(next_offset=3)
    assert kept() == 7


def test_the_default_waits_for_the_first_group_of_a_topic() -> None:
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    Message.objects.update(sequenced_at=UtcNow(-30 * DAY))
    days(7)
    topic = Topic.objects.get()
    assert kept() == 5
    assert not has_readers(topic, rule_of(topic, "default"), "default")
    # The positions of a broadcast group are on the disks of its clients: it is not waited for.
    ConsumerGroup.objects.create(topic=topic, name="tail", mode="broadcast")
    assert kept() == 0


def test_the_default_waits_for_the_archive() -> None:
    log(archive=True)
    days(7)
    Partition.objects.update(archived_offset=4)
    assert kept() == 6


def test_the_inbox_is_never_purged() -> None:
    log()
    days(1)
    send_many([Outgoing("orders", 1, delay=3600)])
    Message.objects.filter(offset=None).update(created_at=UtcNow(-9 * DAY))
    assert kept() == 1


def test_the_doctor_names_who_holds_back_what_is_too_old() -> None:
    log()
    days(7)
    Step.objects.update_or_create(name=PURGE, defaults={"last_run_at": UtcNow()})
    Cursor.objects.update(next_offset=3)
    # It has claimed a moment ago, so it is not abandoned; and for a day nobody complains.
    Message.objects.filter(offset=3).update(sequenced_at=UtcNow(-7.5 * DAY))
    assert warnings() == []
    Message.objects.filter(offset=3).update(sequenced_at=UtcNow(-9 * DAY))
    ConsumerGroup.objects.update(paused=True)
    (found,) = [one for one in retention("default") if one.level == WARNING]
    assert found.text.startswith("mail (paused) has not read from 3 on in orders/0: that message")
    assert "9 days old" in found.text
    assert "7 days (default)" in found.text
    assert found.hint == "ems_groups resume mail"
    ConsumerGroup.objects.update(paused=False)
    assert "mail has not read" in warnings()[0]


def test_the_doctor_says_what_is_in_force_and_whether_anybody_purges() -> None:
    log()
    days(7)
    (found,) = retention("default")
    assert (found.level, found.text) == (
        OK,
        "Nothing holds it back; messages are kept for 7 days (default).",
    )
    Step.objects.filter(name=PURGE).delete()
    Topic.objects.update(created_at=UtcNow(-4 * DAY))
    assert warnings() == ["No process purges: none has ever looked whether it is time."]


def test_a_group_that_has_finished_all_costs_the_alarm_no_look_at_its_partitions(
    django_assert_max_num_queries,
) -> None:
    from streams.retain.abandoned_groups import abandoned

    log()
    days(7)
    with django_assert_max_num_queries(5):
        assert not list(abandoned("default"))
