"""Instants are UTC and names exact, on every server, in every time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streams.models import Step, Topic, UtcDateTimeField, UtcNow
from streams.models.fields import NameField, to_db
from tests.hostapp.models import Order

pytestmark = pytest.mark.django_db

ZONES = [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]
A_SECOND = timedelta(seconds=1)
PATIENCE = timedelta(seconds=30)


def stored(value):
    """What another reader gets."""
    Step.objects.update_or_create(name="step", defaults={"last_run_at": value})
    return Step.objects.get(name="step").last_run_at


@given(
    st.datetimes(
        datetime(1000, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
        datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.sampled_from(ZONES),
    )
)
@hypothesis_settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_instant_comes_back_to_the_microsecond_in_utc(instant):
    found = stored(instant)
    assert found == instant
    assert found.tzinfo is UTC
    assert Step.objects.filter(last_run_at=instant).exists()


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/Los_Angeles", "Europe/London"])
def test_neither_use_tz_nor_time_zone_changes_what_is_stored(use_tz, zone, settings):
    instant = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # a moment that London's clocks leave out
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = zone
    assert stored(instant) == instant
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_run_at FROM ems_step")
        assert str(cursor.fetchone()[0]) == "2026-03-29 01:30:00"
    now = stored(UtcNow())
    assert abs(now - datetime.now(UTC)) < PATIENCE
    assert Step.objects.filter(last_run_at__lte=UtcNow()).exists()
    assert not Step.objects.filter(last_run_at__gt=datetime.now(UTC) + PATIENCE).exists()


def test_a_naive_time_is_refused():
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the mistake
    refused = pytest.raises(ValueError, match="last_run_at needs an aware datetime")
    with refused, transaction.atomic():
        Step.objects.create(name="step", last_run_at=naive)
    with pytest.raises(ValueError, match="aware"):
        Step.objects.filter(last_run_at__gt=naive).exists()
    assert not Step.objects.exists()


@pytest.mark.parametrize(
    "delay",
    [
        timedelta(0),
        timedelta(seconds=90),
        timedelta(seconds=-90),
        timedelta(microseconds=500_000),
        timedelta(days=-400, microseconds=3),
        timedelta(days=36525),
    ],
    ids=str,
)
def test_utc_now_is_the_clock_of_the_database_plus_a_delay(delay):
    before = datetime.now(UTC)
    found = stored(UtcNow(delay))
    assert before + delay - PATIENCE < found < datetime.now(UTC) + delay + PATIENCE
    assert found - stored(UtcNow()) <= delay + A_SECOND


def test_utc_now_compares_with_stored_instants():
    stored(UtcNow(timedelta(seconds=-2)))
    steps = Step.objects
    assert steps.filter(last_run_at__lte=UtcNow()).exists()
    assert steps.filter(last_run_at__lt=UtcNow(-A_SECOND)).exists()
    assert not steps.filter(last_run_at__lt=UtcNow(timedelta(seconds=-60))).exists()
    stored(UtcNow(timedelta(seconds=60)))
    assert not steps.filter(last_run_at__lte=UtcNow()).exists()
    assert steps.filter(last_run_at__gte=UtcNow(PATIENCE)).exists()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai"])
def test_instants_can_be_moved_and_compared_in_the_database(zone, settings):
    settings.TIME_ZONE = zone
    start = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    stored(start)
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(hours=1, microseconds=250_000))
    earlier = datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert Step.objects.get().last_run_at == earlier
    Step.objects.update(last_run_at=Greatest(F("last_run_at"), UtcNow()))
    assert abs(Step.objects.get().last_run_at - datetime.now(UTC)) < PATIENCE
    assert Step.objects.aggregate(last=models.Max("last_run_at"))["last"].tzinfo is UTC


def test_instants_are_ordered_also_when_one_has_no_fraction():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    instants = [moment + timedelta(microseconds=n) for n in (-1, 0, 1, 500_000, 1_000_000)]
    for n, instant in enumerate(reversed(instants)):
        Step.objects.create(name=str(n), last_run_at=instant)
    found = Step.objects.order_by("last_run_at").values_list("last_run_at", flat=True)
    assert list(found) == instants
    assert Step.objects.filter(last_run_at__lt=moment).count() == 1
    assert Step.objects.filter(last_run_at__lte=moment).count() == 2


def test_the_text_of_an_instant_is_utc():
    assert to_db(datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Shanghai"))) == "2025-12-31 16:00:00"


def test_a_new_row_can_be_validated_before_the_database_has_set_its_clock():
    topic = Topic(name="orders")
    topic.full_clean()
    topic.save()
    assert abs(Topic.objects.get().created_at - datetime.now(UTC)) < PATIENCE


def test_an_instant_typed_into_a_form_is_read_as_an_instant():
    field = UtcDateTimeField()
    assert field.clean("2026-01-01T00:00:00+08:00", None) == datetime(2025, 12, 31, 16, tzinfo=UTC)
    with pytest.raises(ValidationError):
        field.clean("tomorrow", None)


@pytest.mark.mysql
def test_names_and_keys_have_a_binary_collation():
    """Also where the database's default ignores case and accents, as both servers' do."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name LIKE 'ems\\_%%'"
        )
        found = {(table, column): collation for table, column, collation in cursor.fetchall()}
    expected = {
        ("ems_topic", "name"),
        ("ems_group", "name"),
        ("ems_msg", "key"),
        ("ems_msg", "tag"),
        ("ems_dead_msg", "key"),
        ("ems_dead_msg", "tag"),
    }
    assert {found[place] for place in expected} == {"utf8mb4_bin"}
    assert Order._meta.get_field("number").db_parameters(connection).get("collation") is None


@pytest.mark.parametrize("name", [" a", "a ", "\ta", "a\u00a0", " "])
def test_a_name_in_a_form_has_no_blanks_around_it(name):
    with pytest.raises(ValidationError):
        NameField(max_length=10).clean(name, None)


def test_a_name_in_a_form_may_hold_blanks_inside():
    assert NameField(max_length=10).clean("a b", None) == "a b"
