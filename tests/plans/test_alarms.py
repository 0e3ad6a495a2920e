"""The plans of what the alarms ask every 15 s, and the continuous audit every minute."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.alarms import delivering, evaluation, firing
from monitoring.alarms.audit import audit_newest
from monitoring.alarms.groups import ASKED
from monitoring.alarms.metrics import METRICS, measure
from streams.admin.alarm import alarm
from streams.models import DeadMessage, Delivery, UtcNow
from tests.plans.seed import Seed, analyze
from tests.plans.statements import Statements, Step, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

# Of these indexes a range is read whose length has a limit: what is open, what failed lately.
SHORT = {"ems_log_open", "ems_log_place", "ems_dead_died", "ems_alarm_slot"}
LARGE = {
    *("ems_msg", "ems_topic_group_log", "ems_retry_msg", "ems_dead_msg"),
    *("ems_monitoring_alarm", "ems_monitoring_alarm_notification"),
}


def is_sound(step: Step) -> bool:
    if step.table not in LARGE:
        return True
    if step.access in ("ALL", "index"):
        return False
    return "filesort" not in step.extra or step.key in SHORT


def assert_sound(statements: Statements) -> None:
    assert statements, "nothing ran"
    bad = [str(s) for s in statements if not all(map(is_sound, s.steps))]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "disk"])
def test_a_metric_reads_a_short_part_of_each_large_table(seeded: Seed, metric: str) -> None:
    with explained() as statements:
        measure(metric, "default")
    assert_sound(statements)


def test_recent_failures_are_read_from_their_indexes(seeded: Seed) -> None:
    long_ago = UtcNow(-timedelta(days=3))
    DeadMessage.objects.update(died_at=long_ago)
    Delivery.objects.filter(state="DONE").update(state="RETRY", deadline=long_ago)
    with explained() as statements:
        measure("dead_new", "default")
        measure("expired", "default")
    keys = {step.key for s in statements for step in s.steps if step.table in LARGE}
    assert keys == {"ems_dead_died", "ems_log_open"}


def test_the_newest_letter_of_each_group_is_one_entry_of_its_index(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.alarms.groups.AT_MOST", 1)
    newest = DeadMessage.objects.order_by("-pk").first()
    assert newest
    DeadMessage.objects.exclude(pk=newest.pk).update(died_at=UtcNow(-timedelta(days=3)))
    DeadMessage.objects.filter(pk=newest.pk).update(died_at=UtcNow())
    with explained() as statements:
        measure("dead_new", "default")
    (of_each,) = [s for s in statements if " UNION ALL " in s.sql]
    steps = [step for step in of_each.steps if step.table == "ems_dead_msg"]
    assert {(step.access, step.key) for step in steps} == {("ref", "ems_dead_waiting")}
    assert len(steps) == ASKED
    assert not any("filesort" in step.extra for step in steps)


def test_the_oldest_message_of_an_inbox_is_one_entry_of_its_index(seeded: Seed) -> None:
    with explained() as statements:
        measure("not_sequenced", "default")
    steps = [step for s in statements for step in s.steps if step.table == "ems_msg"]
    assert {step.key for step in steps} == {"ems_msg_inbox"}
    statements.assert_sound()


def test_an_evaluation_reads_its_own_tables_by_index(seeded: Seed) -> None:
    from monitoring.models import Alarm, AlarmChannel, AlarmNotification

    where = AlarmChannel.objects.create(name="ops", kind="webhook", url="http://127.0.0.1:1/")
    resolved = [
        Alarm(rule="lag", metric="lag", severity="info", state="resolved", slot=None, value=1)
        for _ in range(2000)
    ]
    for row in resolved:
        row.threshold = 0
    Alarm.objects.bulk_create(resolved)
    made = list(Alarm.objects.all())
    AlarmNotification.objects.bulk_create(
        AlarmNotification(alarm=row, channel=where, event="fired", state="sent") for row in made
    )
    open_alarm = Alarm.objects.create(
        rule="lag", metric="lag", severity="info", state="firing", value=1, threshold=0
    )
    AlarmNotification.objects.create(alarm=open_alarm, channel=where, event="fired")
    analyze()
    try:
        with explained() as statements:
            evaluation.evaluate("default")
            firing("default")
            list(AlarmNotification.objects.due().select_related("alarm", "channel")[:50])
        assert_sound(statements)
        due = statements.only("`due_at` <=", "NOT EXISTS")
        keys = [step.key for step in due.steps if step.table == "ems_monitoring_alarm_notification"]
        assert set(keys) <= {"ems_notification_due", "ems_notification_order"}, due
    finally:
        for model in (Alarm, AlarmNotification, AlarmChannel):
            model._base_manager.all().delete()
    assert delivering.BATCH == 50


def test_the_banner_and_the_continuous_audit_read_no_large_table(seeded: Seed) -> None:
    with explained() as statements:
        alarm("default")
        audit_newest("default")
        audit_newest("default")
    assert_sound(statements)
