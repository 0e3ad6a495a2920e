"""What is marked: deployments, what operators do by any face, forced purges; each once."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from itertools import pairwise

import pytest
from django.core.management import call_command

from monitoring.models import Mark
from monitoring.sample.deployments import LATE, LONGEST, QUIET, mark_deployments
from monitoring.sample.grain import floor
from monitoring.sample.take import sample
from monitoring.sample.thinning import old_samples
from streams.database.clock import database_now
from streams.models import Consumer, ConsumerGroup, Cursor, Partition, Topic, UtcNow
from streams.operate.acts.act import Consent
from streams.operate.acts.pause import Pause, Resume
from streams.operate.acts.reset import ResetGroup, UndoReset
from streams.operate.acts.topic import GrowTopic
from streams.retain.purge import Purge
from tests.monitoring.test_overview import make, message

pytestmark = pytest.mark.django_db(transaction=True)  # acts are marked after their commit

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
MEI = Consent("mei")


@pytest.fixture
def mail() -> ConsumerGroup:
    made: ConsumerGroup = make("orders", "mail", behind=10)
    Consumer.objects.all().delete()
    return made


def start(client: str, ago: timedelta, *groups: ConsumerGroup) -> None:
    for group in groups:
        lease = {"lease_until": UtcNow(DAY), "started_at": UtcNow(-ago)}
        Consumer.objects.create(client_id=client, group=group, **lease)


def look(since: timedelta = MINUTE, until: timedelta = timedelta(0)) -> None:
    now = database_now("default")
    mark_deployments("default", now - since, now - until)


def counts() -> list[tuple[list[int], int]]:
    return [(mark.groups, mark.count) for mark in Mark.objects.order_by("at")]


def test_processes_that_start_together_are_one_deployment_of_their_groups(mail) -> None:
    bill = make("bills", "bill")
    Consumer.objects.all().delete()
    for n in range(12):
        start(f"h@{n}@a", 40 * MINUTE - n * MINUTE, mail, bill)
    start("h@99@b", 30 * MINUTE, mail)
    look(since=60 * MINUTE)
    assert counts() == [([mail.pk, bill.pk], 12), ([mail.pk], 1)]
    (mark, _other) = Mark.objects.order_by("at")
    assert mark.until - mark.at == pytest.approx(11 * MINUTE, abs=MINUTE)


def test_a_start_is_marked_once_however_the_minutes_are_cut(mail) -> None:
    now = database_now("default")
    for n in range(60):
        lease = {"lease_until": now + DAY, "started_at": now - n * 20 * SECOND - LATE}
        Consumer.objects.create(client_id=f"h@{n}@a", group=mail, **lease)
    ends = [now - minutes * MINUTE for minutes in (21, 20, 13, 12, 11, 4, 3, 2, 1, 0)]
    for since, until in pairwise(ends):
        mark_deployments("default", since, until)
    # The newest one is of the next minute.
    assert sum(mark.count for mark in Mark.objects.all()) == 59


@pytest.mark.parametrize(("later", "marks"), [(QUIET - MINUTE, 1), (QUIET + MINUTE, 2)])
def test_a_deployment_ends_when_nothing_has_started_for_a_while(mail, later, marks) -> None:
    start("h@1@a", later + 2 * MINUTE, mail)
    start("h@2@b", 2 * MINUTE, mail)
    look(since=later + 3 * MINUTE, until=3 * MINUTE - LATE)
    look(since=3 * MINUTE - LATE)
    assert Mark.objects.count() == marks


def test_a_loop_of_restarts_is_a_mark_an_hour(mail) -> None:
    for n in range(30):
        start(f"h@{n}@a", n * 5 * MINUTE + MINUTE, mail)
    look(since=4 * LONGEST)
    assert [mark.count for mark in Mark.objects.order_by("at")] == [13, 13, 4]


def test_clients_that_pull_over_http_are_no_deployment(mail) -> None:
    start("http@ab12@web", 30 * SECOND, mail)
    look()
    assert not Mark.objects.exists()


def test_the_sample_of_a_minute_marks_what_has_started(mail) -> None:
    half = floor(database_now("default"), 1) - 30 * SECOND
    lease = {"lease_until": UtcNow(DAY), "started_at": half}
    Consumer.objects.create(client_id="h@1@a", group=mail, **lease)
    sample("default")
    assert counts() == [([mail.pk], 1)]


def test_what_an_operator_does_is_marked_with_who_and_what(mail) -> None:
    for act in (Pause(), Pause(), Resume(), ResetGroup("earliest"), UndoReset()):
        act.carry_out(mail, "default", MEI)
    GrowTopic(3).carry_out(mail.topic, "default", MEI)
    marks = list(Mark.objects.order_by("pk"))
    # The second pause changed nothing.
    assert [mark.kind for mark in marks] == ["pause", "resume", "reset", "undo", "grow"]
    assert {mark.who for mark in marks} == {"mei"}
    assert [mark.groups for mark in marks] == [*([[mail.pk]] * 4), []]
    assert {mark.topic_id for mark in marks} == {mail.topic_id}
    assert "90" in marks[2].text


def test_a_command_is_marked_too(mail) -> None:
    call_command("ems_groups", "pause", "mail", stdout=StringIO())
    assert Mark.objects.get().kind == "pause"


def test_a_forced_purge_that_skips_messages_is_marked_and_no_other_purge(mail) -> None:
    message(mail, 95, 3 * DAY)
    Topic.objects.update(retention_count=1)
    Partition.objects.update(first_offset=90)
    Purge("default").run()
    assert not Mark.objects.exists()
    Purge("default", force=True).run()
    mark = Mark.objects.get()
    behind = 100 - 1 - 90
    assert (mark.kind, mark.topic_id, mark.count, mark.groups) == (
        *("purge", mail.topic_id, behind),
        [],
    )
    assert Cursor.objects.get().next_offset == 99


def test_marks_go_with_the_nightly_purge_after_90_days() -> None:
    for days in (89, 91):
        Mark.objects.create(kind="pause", at=UtcNow(-days * DAY))
    assert sum(old_samples("default")) == 1
    assert Mark.objects.count() == 1
