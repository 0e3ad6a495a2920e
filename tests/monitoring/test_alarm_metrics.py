"""What each metric measures, on real traffic, and that other namespaces are not seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring.alarms import audit, firing, log
from monitoring.alarms.audit import audit_newest
from monitoring.alarms.evaluation import evaluate
from monitoring.alarms.measured import Subject
from monitoring.alarms.metrics import METRICS, measure
from monitoring.alarms.old_alarms import old_alarms
from monitoring.alarms.texts import span
from monitoring.models import (
    Alarm,
    AlarmChannel,
    AlarmNotification,
    AlarmRule,
    AuditFinding,
    AuditPlace,
    Run,
)
from streams import Reject, consumer, send
from streams.admin.alarm import alarm as banner
from streams.consume.outcome.settle import release
from streams.log.sequencer import sequence
from streams.models import (
    IMMEDIATE,
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    State,
    Step,
    Topic,
    UtcNow,
)
from streams.observe.diagnoses import ERROR, OK
from streams.observe.doctor import examine
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import Process
from tests.monitoring.alarming import alarm, channel, pass_time

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MAIL = Subject("orders", "mail")


def make_group(name: str = "mail", **more: Any) -> ConsumerGroup:
    topic, _created = Topic.objects.get_or_create(name="orders")
    group = ConsumerGroup.objects.create(topic=topic, name=name, **more)
    for partition in topic.partitions.all():
        Cursor.objects.create(group=group, partition=partition)
    return group


def older(model: Any, name: str, **by: float) -> None:
    """Move an instant of all rows back."""
    for pk, at in model._base_manager.values_list("pk", name):
        model._base_manager.filter(pk=pk).update(**{name: at - timedelta(**by)})


def value(metric: str, subject: Subject = MAIL) -> Any:
    values = measure(metric, "default")
    assert values is not None
    found = values.get(subject)
    return found and found.number


def test_lag_and_its_age_are_those_of_what_is_not_claimed() -> None:
    make_group()
    make_group("none", mode="broadcast")
    assert (value("lag"), value("lag_age")) == (0, None)
    for number in range(3):
        send("orders", number)
    sequence("default")
    older(Message, "sequenced_at", minutes=11)
    assert value("lag") == 3
    assert 660 <= value("lag_age") < 720
    assert value("lag", Subject("orders", "none")) is None
    evaluate("default")
    (pending,) = Alarm.objects.filter(rule="lag_age")
    assert pending.state == "pending"


def test_the_age_of_a_message_that_is_gone_is_unknown() -> None:
    make_group()
    send("orders", 1)
    sequence("default")
    Message.objects.all().delete()
    values = measure("lag_age", "default")
    assert values is not None
    assert values[MAIL].number is None


def test_a_group_without_a_live_client_is_noticed_while_messages_wait() -> None:
    group = make_group()
    assert not value("no_consumer")
    send("orders", 1)
    sequence("default")
    assert value("no_consumer") == 1
    ConsumerGroup.objects.update(paused=True)
    assert value("no_consumer") is None
    ConsumerGroup.objects.update(paused=False)
    Consumer.objects.create(client_id="c", group=group, lease_until=UtcNow(timedelta(minutes=1)))
    assert value("no_consumer") is None


def test_new_dead_letters_are_counted_for_five_minutes() -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        raise Reject("never")

    make_group()
    for number in range(3):
        send("orders", number)
    drain()
    assert value("dead_new") == 3
    evaluate("default")
    (row,) = Alarm.objects.filter(rule="dead_new")
    assert (row.state, row.group, row.detail) == ("firing", "mail", "streams.errors.Reject")
    older(DeadMessage, "died_at", minutes=6)
    assert value("dead_new") is None


def letters(group: ConsumerGroup, count: int, error: str, **ago: float) -> None:
    DeadMessage.objects.bulk_create(
        DeadMessage(
            topic=group.topic,
            group=group,
            partition=group.topic.partitions.get(),
            offset=offset,
            message_id=offset,
            body=b"",
            body_type="bytes",
            size=0,
            producer="",
            sent_at=UtcNow(),
            attempts=1,
            error="",
            error_class=error,
            died_at=UtcNow(-timedelta(**ago)),
        )
        for offset in range(count)
    )


def test_the_letters_of_one_group_hide_no_new_letter_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("monitoring.alarms.groups.AT_MOST", 10)
    mail, tasks, old = make_group(), make_group("tasks"), make_group("old")
    letters(old, 1, "KeyError", minutes=6)
    letters(mail, 3, "OSError", minutes=1)
    evaluate("default")
    assert [row.group for row in firing("default")] == ["mail"]
    letters(tasks, 11, "ValueError", seconds=1)
    values = measure("dead_new", "default")
    assert values is not None
    assert {str(subject): tuple(one) for subject, one in values.items()} == {
        "mail on orders": (1, "OSError"),  # at least
        "tasks on orders": (10, "ValueError"),
    }
    evaluate("default")
    assert {row.group for row in firing("default")} == {"mail", "tasks"}
    # More groups than are asked: nothing is known of the others, so their alarms stay.
    monkeypatch.setattr("monitoring.alarms.groups.ASKED", 0)
    assert value("dead_new") is None
    evaluate("default")
    assert {row.group for row in firing("default")} == {"mail", "tasks"}


def test_an_ordered_group_is_blocked_since_the_first_failure_of_its_oldest_message() -> None:
    @consumer("orders", group="mail", ordered=True)
    def handle(message: Any) -> None:
        raise ValueError("no")

    send("orders", 1)
    drain()
    advance(timedelta(minutes=4))
    drain()  # it fails once more
    assert 240 <= value("blocked") < 300
    log = Partition.objects.create(topic=Topic.objects.get(), number=1, next_offset=1)
    later = {"attempt": 2, "blocked_at": UtcNow()}
    Cursor.objects.create(group=ConsumerGroup.objects.get(), partition=log, **later)
    evaluate("default")
    assert not Alarm.objects.filter(rule="blocked").exists()
    advance(timedelta(minutes=1))
    drain()
    assert 300 <= value("blocked") < 360
    evaluate("default")
    (row,) = Alarm.objects.filter(rule="blocked")
    assert (row.state, row.severity, row.group) == ("firing", "warning", "mail")
    assert row.detail == "2 partitions are blocked"
    Cursor.objects.update(next_offset=1, attempt=1, blocked_at=None)
    assert value("blocked") is None


def test_expired_calls_are_counted_with_who_had_them() -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None: ...

    send("orders", 1)
    sequence("default")
    process = Process("mail")
    process.claim(1)
    advance(timedelta(minutes=2))
    assert sweep("default") == 1
    values = measure("expired", "default")
    assert values is not None
    assert values[MAIL].number == 1
    assert "offsets 0–0" in values[MAIL].detail
    older(Delivery, "finished_at", minutes=6)
    assert value("expired") is None


@pytest.mark.parametrize(
    ("failures", "call"),
    [
        pytest.param(30, -0.1, id="a call that was too long"),
        pytest.param(30, 4, id="a death in a group with a short timeout"),
        pytest.param(4, 30, id="a death in a group with a long timeout"),
    ],
)
def test_the_failures_of_one_group_hide_no_expired_call_of_another(
    monkeypatch: pytest.MonkeyPatch, failures: float, call: float
) -> None:
    monkeypatch.setattr("monitoring.alarms.groups.AT_MOST", 10)
    mail, tasks = make_group(), make_group("tasks")

    def failed(group: ConsumerGroup, deadline: float, token: str) -> Delivery:
        return Delivery(
            group=group,
            partition=group.topic.partitions.get(),
            first_offset=0,
            last_offset=0,
            progress=0,
            token=token,
            state=State.RETRY,
            deadline=UtcNow(timedelta(minutes=deadline)),
            finished_at=UtcNow(-timedelta(seconds=1)),
        )

    Delivery.objects.bulk_create([failed(tasks, failures, "t") for _ in range(20)])
    failed(mail, call, "").save()
    values = measure("expired", "default")
    assert values is not None
    assert {str(subject): one.number for subject, one in values.items()} == {"mail on orders": 1}


def test_a_slow_call_is_a_share_of_its_timeout() -> None:
    @consumer("orders", group="mail", consume_timeout=60)
    def handle(message: Any) -> None: ...

    send("orders", 1)
    sequence("default")
    process = Process("mail")
    process.claim(1)
    assert value("slow_call") < 0.1
    older(Delivery, "deadline", seconds=36)
    assert 0.55 < value("slow_call") < 0.7
    evaluate("default")
    (row,) = Alarm.objects.filter(rule="slow_call")
    assert "handle at offset 0" in row.detail


def test_the_timeout_of_a_call_that_nobody_here_knows_is_unknown(clean_registry: None) -> None:
    from streams.consume import registry

    @consumer("orders", group="mail", consume_timeout=60)
    def handle(message: Any) -> None: ...

    send("orders", 1)
    sequence("default")
    Process("mail").claim(1)
    registry._registered.clear()
    older(Delivery, "deadline", seconds=54)
    values = measure("slow_call", "default")
    assert values is not None
    assert values[MAIL].number is None
    ConsumerGroup.objects.update(consume_timeout=60)
    assert value("slow_call") > 0.8


@pytest.mark.parametrize("delayed", [False, True])
def test_a_message_that_is_not_sequenced_is_noticed_by_rule_and_by_page(delayed: bool) -> None:
    Step.objects.create(name="sequence", last_run_at=UtcNow())
    Step.objects.create(name="sweep", last_run_at=UtcNow())
    delay = timedelta(seconds=10) if delayed else None
    send("orders", 1, delay=delay)
    send("orders", 2, delay=timedelta(hours=1))  # not due
    assert not value("not_sequenced", Subject("orders")) or not delayed
    older(Message, "created_at", seconds=60)
    Message.objects.filter(due_at__lt=timezone.now() + timedelta(minutes=1)).exclude(
        due_at=IMMEDIATE
    ).update(due_at=UtcNow(-timedelta(seconds=50)))
    assert 40 <= value("not_sequenced", Subject("orders")) <= 75
    assert "orders/0 has waited for an offset" in banner("default").text
    sequence("default")
    assert value("not_sequenced", Subject("orders")) is None
    assert "offset" not in banner("default").text


def test_steps_are_late_after_three_periods_and_unknown_before_the_first() -> None:
    assert value("step_late", Subject(name="sweep")) is None
    assert value("purge_late", Subject(name="purge")) is None
    assert value("rollup_late", Subject(name="traffic")) is None
    Step.objects.create(name="sweep", last_run_at=UtcNow(-timedelta(seconds=20)))
    Step.objects.create(name="purge", last_run_at=UtcNow(-timedelta(days=4)))
    ended = UtcNow(-timedelta(minutes=20))
    Run.objects.create(job="traffic", state="done", until=ended, finished_at=ended)
    assert 4 <= value("step_late", Subject(name="sweep")) < 6
    assert 4 <= value("purge_late", Subject(name="purge")) < 4.1
    assert 20 <= value("rollup_late", Subject(name="traffic")) < 21
    evaluate("default")
    assert {row.subject for row in Alarm.objects.all()} == {"sweep", "purge", "traffic"}


def test_roll_ups_are_late_after_a_quarter_of_an_hour_and_not_used_after_a_day() -> None:
    for minutes, fires in ((14, 0), (16, 1), (25 * 60, 0)):
        ended = UtcNow(-timedelta(minutes=minutes))
        Run.objects.create(job="traffic", state="done", until=ended, finished_at=ended)
        evaluate("default")
        assert len(firing("default")) == fires, minutes


def rolled_up(job: str, minutes: float) -> None:
    at = UtcNow(-timedelta(minutes=minutes))
    Run.objects.create(job=job, state="done", until=at, finished_at=at)


@pytest.mark.parametrize(("job", "end"), [("archive", "failed"), ("reconcile", "done")])
def test_roll_ups_are_not_late_while_a_job_of_the_night_works_nor_soon_after_it(
    job: str, end: str
) -> None:
    """One process does both, one after the other."""
    rolled_up("traffic", 20)
    began = UtcNow(-timedelta(minutes=18))
    nightly = Run.objects.create(job=job, state="running", started_at=began)
    assert value("rollup_late", Subject(name="traffic")) is None
    evaluate("default")
    assert firing("default") == []
    Run.objects.filter(pk=nightly.pk).update(state=end, finished_at=UtcNow())
    evaluate("default")
    assert firing("default") == []
    Run.objects.filter(pk=nightly.pk).update(finished_at=UtcNow(-timedelta(minutes=16)))
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["traffic"]
    # What is unknown does not resolve it.
    Run.objects.create(job=job, state="running")
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["traffic"]


def test_a_job_of_the_night_that_was_killed_explains_no_roll_up_that_is_hours_late() -> None:
    rolled_up("traffic", 181)
    Run.objects.create(job="archive", state="running", started_at=UtcNow(-timedelta(minutes=180)))
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["traffic"]


@pytest.mark.django_db(databases=["default", "other"])
def test_roll_ups_are_not_late_while_a_job_of_the_night_works_for_another_database(
    ems_settings: Callable[..., None],
) -> None:
    rolled_up("traffic", 20)
    Run.objects.using("other").create(job="archive", state="running")
    assert value("rollup_late", Subject(name="traffic")) >= 20
    ems_settings(SHARDS={"clicks": "other"})
    assert value("rollup_late", Subject(name="traffic")) is None


def test_each_job_of_the_roll_ups_is_late_by_itself() -> None:
    rolled_up("traffic", 0)
    rolled_up("consumption", 120)
    # It has counted changed minutes once more, and no new ones.
    Run.objects.create(job="consumption", state="done", finished_at=UtcNow())
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["consumption"]
    # For days, while the others go on.
    Run.objects.filter(job="consumption").update(finished_at=UtcNow(-timedelta(days=2)))
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["consumption"]


def test_a_roll_up_that_never_came_to_its_end_is_as_late_as_its_first_failure() -> None:
    rolled_up("traffic", 0)
    Run.objects.create(job="backlog", state="running", started_at=UtcNow(-timedelta(hours=1)))
    assert value("rollup_late", Subject(name="backlog")) is None  # the first one takes long
    for minutes in (40, 1):
        began = UtcNow(-timedelta(minutes=minutes))
        Run.objects.create(job="consumption", state="failed", started_at=began)
    assert 40 <= value("rollup_late", Subject(name="consumption")) < 41
    evaluate("default")
    assert [row.subject for row in firing("default")] == ["consumption"]


def test_the_step_that_only_beat_runs_is_not_judged() -> None:
    """Consumers look for their retries themselves: without beat nobody runs this step."""
    Step.objects.create(name="retries", last_run_at=UtcNow(-timedelta(days=1)))
    alarm(rule="step_late", metric="step_late", subject="retries")
    evaluate("default")
    assert firing("default") == []


def test_the_size_of_tables_is_unknown_on_sqlite_only() -> None:
    values = measure("disk", "default")
    if connection.vendor == "sqlite":
        assert values is None
    else:
        assert values
        assert values[Subject(name="ems_msg")].number


def test_every_metric_has_a_default_rule_and_every_statement_works() -> None:
    make_group()
    for metric in METRICS:
        measure(metric, "default")
    evaluate("default")
    assert not firing("default")


def test_the_statements_of_the_metrics_do_not_grow_with_the_groups() -> None:
    counts = []
    for groups in (1, 300):
        for number in range(ConsumerGroup.objects.count(), groups):
            make_group(f"g{number}")
        with CaptureQueriesContext(connection) as found:
            for metric in METRICS:
                measure(metric, "default")
        counts.append(len(found))
    assert counts[0] == counts[1]


def test_the_doctor_says_what_fires_and_exits_1_for_a_critical_one() -> None:
    def named() -> dict[str, str]:
        return {d.name: d.level for d in examine("default") if d.name.startswith("alarm")}

    assert named() == {"alarms": OK}
    row = alarm(severity="warning")
    assert named() == {"alarm": "warning"}
    Alarm.objects.update(severity="critical")
    assert named() == {"alarm": ERROR}
    row.acknowledge("ann")
    assert named() == {"alarm": ERROR}  # it fires still
    where = channel("http://127.0.0.1:1/", last_failed_at=UtcNow(), last_error="down")
    assert named()["alarm channel"] == "warning"
    assert where.is_down is not None


def test_the_banner_says_that_a_critical_alarm_fires_unless_acknowledged() -> None:
    for name in ("sequence", "sweep"):
        Step.objects.create(name=name, last_run_at=UtcNow())
    assert banner("default").text == ""
    row = alarm()
    told = "1 alarm fires: mail on orders: Messages that a group is behind: 11."
    assert banner("default").text == told
    row.acknowledge("ann")
    assert banner("default").text == ""


# -- the continuous audit --


def test_the_audit_begins_at_the_end_and_finds_what_goes_wrong_then() -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None: ...

    for number in range(5):
        send("orders", number)
    drain()
    Message.objects.filter(offset=1).delete()  # before it began: for ems_doctor --audit
    audit_newest("default")
    assert not AuditFinding.objects.exists()
    for number in range(5):
        send("orders", number)
    drain()
    Message.objects.filter(offset=7).delete()
    Delivery.objects.filter(first_offset__lte=8, last_offset__gte=8).delete()
    for _ in range(3):
        audit_newest("default")
    kinds = set(AuditFinding.objects.values_list("kind", flat=True))
    assert kinds == {"hole", "uncovered"}
    assert AuditFinding.objects.count() == 2  # each once, although the group was seen twice
    evaluate("default")
    assert {row.subject for row in firing("default")} == {
        "hole in orders/0",
        "uncovered in mail on orders/0",
    }
    pass_time(90_000)
    evaluate("default")
    assert firing("default") == []


def test_what_reconcile_has_found_fires_until_it_finds_nothing() -> None:
    def found(kind: str, seen: Any, source: str = "reconcile") -> None:
        digest = f"{kind:32}".encode()
        given = {"place": "orders/0@7", "found_at": seen, "seen_at": seen, "source": source}
        AuditFinding.objects.create(digest=digest, kind=kind, **given)

    def ended(at: Any, state: str = "done") -> None:
        Run.objects.create(job="reconcile", state=state, until=at)

    before, last = timezone.now() - timedelta(days=9), timezone.now() - timedelta(days=8)
    found("repeat", before)
    ended(before)
    found("hole", last)
    found("lost delivery", last)
    found("uncovered", last, source="audit")
    ended(last)
    ended(timezone.now(), "failed")  # it says nothing of what it would have found
    evaluate("default")
    assert {(row.rule, row.subject, row.severity) for row in firing("default")} == {
        ("reconcile", "hole in orders/0", "critical"),
        ("reconcile", "lost delivery in orders/0", "critical"),
    }
    Run.objects.create(job="reconcile blue", state="done", until=timezone.now())  # its own
    assert value("reconcile", Subject(name="hole in orders/0")) == 1
    Run.objects.all().delete()  # old runs are: what is wrong stays wrong
    assert value("reconcile", Subject(name="hole in orders/0")) == 1
    ended(timezone.now())
    evaluate("default")
    assert firing("default") == []


def test_what_was_claimed_when_the_audit_came_by_is_looked_at_once_more() -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        raise ValueError

    send("orders", 0)
    drain()
    audit_newest("default")
    send("orders", 1)
    sequence("default")
    process = Process("mail")
    delivery = process.claim(1)
    audit_newest("default")
    assert not AuditFinding.objects.exists()
    # The call fails, and its failure is lost, as by a hand that deletes the retry.
    Delivery.objects.filter(pk=delivery.pk).update(state="RETRY", failed=1, token="")
    audit_newest("default")
    assert [row.kind for row in AuditFinding.objects.all()] == ["lost failure"]


def test_missing_messages_fire_with_their_number() -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None: ...

    send("orders", 0)
    drain()
    audit_newest("default")
    for number in range(3):
        send("orders", number)
    sequence("default")
    Partition.objects.update(first_offset=4)
    Message.objects.all().delete()
    drain()
    for _ in range(2):
        audit_newest("default")
    found = measure("missing", "default")
    assert found is not None
    assert {str(subject): v.number for subject, v in found.items()} == {"mail on orders": 3}
    scope = {"topic": "orders", "group": "mail"}
    AlarmRule.objects.create(name="mine", metric="missing", **scope)
    evaluate("default")
    assert Alarm.objects.filter(rule="mine", **scope).exists()


def test_a_range_that_was_given_back_hides_no_missing_message_of_other_groups() -> None:
    """Nobody takes it while its group is paused, or has no consumer: that may be for weeks."""

    @consumer("orders", group="mail")
    def handle(message: Any) -> None: ...

    @consumer("orders", group="stopped")
    def never(message: Any) -> None: ...

    send("orders", 0)
    drain()
    audit_newest("default")
    send("orders", 1)
    sequence("default")
    release(Process("stopped").claim(1))
    assert Delivery.objects.given_back().count() == 1
    for number in range(3):
        send("orders", number)
    sequence("default")
    Partition.objects.update(first_offset=5)
    Message.objects.all().delete()
    drain("mail")
    for _ in range(2):
        audit_newest("default")
    found = measure("missing", "default")
    assert found is not None
    assert {str(subject): v.number for subject, v in found.items()} == {"mail on orders": 4}


def test_the_audit_stops_after_its_seconds_and_goes_on_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(4):
        Topic.objects.create(name=f"t{number}")
    audit_newest("default")
    Partition.objects.update(next_offset=5)  # five holes in each
    found = []
    for _run in range(4):
        # Time for one partition: the clock is read at the start, before it and after it.
        ticks = iter([0.0, 0.0])
        clock = SimpleNamespace(monotonic=lambda ticks=ticks: next(ticks, 99.0))
        monkeypatch.setattr(audit, "time", clock)
        audit_newest("default", seconds=1)
        found.append(AuditFinding.objects.filter(kind="hole").count())
    assert found == [1, 2, 3, 4]


def test_the_statements_of_an_audit_that_finds_nothing_new_do_not_grow() -> None:
    counts = []
    for groups in (1, 100):
        for number in range(ConsumerGroup.objects.count(), groups):
            make_group(f"g{number}")
        audit_newest("default")
        with CaptureQueriesContext(connection) as found:
            audit_newest("default")
        counts.append(len(found))
    assert counts[0] == counts[1]


def reconciled(*places: str, kind: str = "hole") -> None:
    """Let a reconcile have found these."""
    for place in places:
        digest = sha256(place.encode()).digest()
        given = {"source": "reconcile", "kind": kind, "place": place}
        AuditFinding.objects.create(digest=digest, **given)


def test_a_finding_in_another_log_is_told_while_the_first_one_is_acknowledged() -> None:
    where = channel("http://127.0.0.1:1/")
    reconciled("a@b/0@7", "a@b/0@9-11")
    evaluate("default")
    (row,) = firing("default")
    assert (row.subject, row.value, row.detail) == ("hole in a@b/0", 2, "a@b/0@9-11")
    row.acknowledge("ann")
    reconciled("mail on a@b/0@7", "a@b/1@7")
    evaluate("default")
    assert {row.subject for row in firing("default")} == {
        *("hole in a@b/0", "hole in a@b/1", "hole in mail on a@b/0")
    }
    assert AlarmNotification.objects.filter(channel=where, event="fired").count() == 3


def test_findings_in_a_thousand_logs_are_few_alarms_that_stay_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconciled(*(f"orders/{number}@7" for number in range(1, 1000)))
    values = measure("reconcile", "default")
    assert values is not None
    names = [subject.name for subject in values]
    assert names == [*(f"hole in orders/{n}" for n in range(1, log.SUBJECTS + 1)), log.OTHERS]
    assert sum(value.number or 0 for value in values.values()) == 999
    reconciled("orders/0@7")  # the first by its name, and not the first that was found
    monkeypatch.setattr(log, "AT_MOST", 30)
    values = measure("reconcile", "default")
    assert values is not None
    assert [subject.name for subject in values] == names
    assert sum(value.number or 0 for value in values.values()) == 1000
    evaluate("default")
    assert len(firing("default")) == len(names)


# -- namespaces, old rows --


def test_nothing_of_another_namespace_is_seen(ems_settings: Callable[..., None]) -> None:
    make_group()
    for number in range(3):
        send("orders", number)
    sequence("default")
    older(Message, "sequenced_at", minutes=30)
    alarm(rule="mine", subject="x")
    channel("http://127.0.0.1:1/")
    AlarmRule.objects.create(name="lag", metric="lag", threshold=1, enabled=True)
    audit_newest("default")
    evaluate("default")
    before = set(Alarm._base_manager.values_list("pk", "state"))
    assert len(before) > 2
    ems_settings(NAMESPACE="blue")
    assert firing("default") == []
    for metric in METRICS:
        if metric not in ("disk", "step_late", "purge_late", "rollup_late"):
            assert not measure(metric, "default"), metric
    evaluate("default")
    models: tuple[Any, ...] = (Alarm, AlarmRule, AlarmChannel, AlarmNotification, AuditPlace)
    assert [model for model in models if model.objects.exists()] == []
    assert set(Alarm._base_manager.values_list("pk", "state")) == before
    alarm()  # of the same rule and subject
    assert len(firing("default")) == 1
    ems_settings(NAMESPACE="")
    evaluate("default")
    assert Alarm._base_manager.filter(rule__startswith="lag").count() >= 2


def test_old_alarms_notifications_and_findings_are_deleted() -> None:
    where = channel("http://127.0.0.1:1/")
    for days in (89, 91):
        ago = UtcNow(-timedelta(days=days))
        row = alarm(slot=None, state="resolved", resolved_at=ago)
        AlarmNotification.objects.create(
            alarm=row, channel=where, event="fired", state="sent", created_at=ago
        )
        AuditFinding.objects.create(kind="hole", digest=b"%032d" % days, seen_at=ago)
        AuditPlace.objects.create(stage="log", row=days, looked_at=ago)
    old = alarm(fired_at=UtcNow(-timedelta(days=100)))  # fires still
    assert sum(old_alarms("default")) == 4
    assert Alarm.objects.filter(pk=old.pk).exists()
    models: tuple[Any, ...] = (AlarmNotification, AuditFinding, AuditPlace)
    assert [model.objects.count() for model in models] == [1, 1, 1]


def test_a_duration_has_no_second_unit_that_is_zero() -> None:
    texts = [span(timedelta(seconds=n)) for n in (0, 59, 60, 61, 600, 3600, 11_700, 86_400, 90_000)]
    assert texts == [
        *("0 s", "59 s", "1 min", "1 min 1 s", "10 min"),
        *("1 h", "3 h 15 min", "1 d", "1 d 1 h"),
    ]
