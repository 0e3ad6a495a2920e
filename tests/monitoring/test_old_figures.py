"""The nightly purge deletes old figures, and never the run at which the next window begins."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from monitoring.models import ErrorClass, Run, RunState, Traffic
from monitoring.old_figures import old_figures
from streams import runtime_settings
from streams.models import ConsumerGroup, SystemConfig, Topic
from streams.retain.purge import Purge
from tests.monitoring.test_report import ago, traffic

pytestmark = pytest.mark.django_db

DAY = 24 * 60  # in minutes


@pytest.fixture
def figures() -> None:
    for age in (0, 9, 11):
        traffic("orders", age * DAY, messages=1, size=1)
        group, _new = ConsumerGroup.objects.get_or_create(topic=Topic.objects.get(), name="mail")
        ErrorClass.objects.create(
            group=group, minute=ago(age * DAY), error_class="E", failed=1, dead=0
        )
    for age in (20, 15):
        done = Run.objects.create(job="traffic", state=RunState.DONE)
        Run.objects.filter(pk=done.pk).update(started_at=ago(age * DAY))


def keep(days: int) -> None:
    SystemConfig.objects.create(name="figureRetentionDays", value=days)
    runtime_settings.forget()


def counts() -> tuple[int, ...]:
    return Traffic.objects.count(), ErrorClass.objects.count(), Run.objects.count()


@pytest.mark.usefixtures("figures")
def test_figures_are_kept_for_ever_unless_somebody_says_how_long() -> None:
    assert list(old_figures("default")) == []
    assert counts() == (3, 3, 2)


@pytest.mark.usefixtures("figures")
def test_old_figures_go_with_the_purge_and_the_newest_run_of_a_job_stays() -> None:
    keep(10)
    assert Purge("default").delete_old_rows()["figures"] == 3
    assert counts() == (2, 2, 1)
    assert Run.objects.get().started_at < ago(14 * DAY)


@pytest.mark.usefixtures("figures")
def test_tables_that_are_not_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(10)
    monkeypatch.setattr(connection.introspection, "table_names", lambda: ["ems_monitoring_run"])
    assert sum(old_figures("default")) == 1
    assert counts() == (3, 3, 1)


def test_a_day_is_older_than_its_retention_by_the_servers_clock() -> None:
    keep(1)
    traffic("orders", DAY + 2, messages=1, size=1)
    traffic("orders", DAY - 2, messages=1, size=1)
    assert sum(old_figures("default")) == 1
    assert Traffic.objects.get().minute > ago(DAY) - timedelta(minutes=1)
