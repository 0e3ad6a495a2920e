"""Groups in the database, and the limits in force: admin > command line > decorator > setting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Outgoing, conf, consumer, runtime_settings, send_many
from streams.consume import registry
from streams.consume.limits import Overrides, known_max_retries, limits, threads
from streams.consume.subscription import subscribe
from streams.errors import GroupMismatch, UnknownTopic
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Cursor, Mode, Partition, SystemConfig, Topic
from streams.observe.audit.walk import audit
from tests.consuming import registered

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture(autouse=True)
def nothing_remembered():
    runtime_settings.forget()
    yield
    runtime_settings.forget()


def register(**options):
    registry._registered.clear()
    consumer("orders", group="mail", **options)(print)
    return registered("orders", "mail")


def setting(name, value):
    SystemConfig.objects.create(name=name, value=value)


# -- limits ------------------------------------------------------------------------------------


def test_the_defaults():
    group = subscribe(register(), "default")
    found = limits(group, registered("orders", "mail"), "default")
    assert (found.batch, found.max_retries) == (10, 16)
    assert found.consume_timeout == timedelta(seconds=60)
    assert threads(registered("orders", "mail"), "default", Overrides()) == 5


@pytest.mark.parametrize(
    ("admin", "command", "decorator", "system", "expected"),
    [
        (2, 3, 4, 5, 2),
        (None, 3, 4, 5, 3),
        (None, None, 4, 5, 4),
        (None, None, None, 5, 5),
        (None, None, None, None, 10),
    ],
)
def test_the_batch_by_precedence(admin, command, decorator, system, expected):
    if system:
        setting("consumerBatchSize", system)
    registration = register(batch=decorator)
    group = subscribe(registration, "default")
    group.batch = admin
    assert limits(group, registration, "default", Overrides(batch=command)).batch == expected


@pytest.mark.parametrize(
    ("admin", "decorator", "system", "expected"),
    [(0, 4, 5, 0), (2, 0, 5, 2), (None, 0, 5, 0), (None, None, 0, 0), (None, None, None, 16)],
)
def test_max_retries_by_precedence_and_zero_is_a_value(admin, decorator, system, expected):
    if system is not None:
        setting("consumerRetryMaxTimes", system)
    registration = register(max_retries=decorator)
    group = subscribe(registration, "default")
    group.max_retries = admin
    assert limits(group, registration, "default").max_retries == expected


@pytest.mark.parametrize(
    ("admin", "decorator", "system", "expected"),
    [(2, 4, 5, 2), (None, 0.5, 5, 0.5), (None, None, 5, 5), (None, None, None, 60)],
)
def test_the_consume_timeout_by_precedence(admin, decorator, system, expected):
    if system:
        setting("consumeTimeoutSeconds", system)
    registration = register(consume_timeout=decorator)
    group = subscribe(registration, "default")
    group.consume_timeout = admin
    found = limits(group, registration, "default").consume_timeout
    assert found == timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("command", "decorator", "system", "expected"),
    [(3, 4, 5, 4), (3, None, 5, 3), (None, 4, 5, 4), (None, None, 6, 6), (None, None, None, 5)],
)
def test_threads_by_precedence(command, decorator, system, expected):
    if system:
        setting("consumerThreads", system)
    registration = register(threads=decorator)
    assert threads(registration, "default", Overrides(threads=command)) == expected


def test_a_batch_is_never_larger_than_what_a_trace_can_look_back():
    registration = register()
    group = subscribe(registration, "default")
    group.batch = 5000
    assert limits(group, registration, "default").batch == conf.MAX_BATCH == 1000


@pytest.mark.parametrize(("field", "value"), [("batch", 0), ("consume_timeout", 0)])
def test_an_admin_cannot_set_what_would_stop_the_group_or_expire_every_claim(field, value):
    from django.core.exceptions import ValidationError

    group = subscribe(register(), "default")
    setattr(group, field, value)
    with pytest.raises(ValidationError, match=field):
        group.full_clean()


def test_an_invalid_setting_leaves_the_default_in_force():
    setting("consumerBatchSize", "many")
    setting("noSuchSetting", 1)
    registration = register()
    group = subscribe(registration, "default")
    assert limits(group, registration, "default").batch == 10


def test_a_process_knows_the_retries_of_what_it_can_see_and_guesses_none():
    group = subscribe(register(max_retries=3), "default")
    assert known_max_retries(group, "default") == 3
    registry._registered.clear()  # its consumer is in another project, say
    assert known_max_retries(group, "default") is None
    group.max_retries = 5
    assert known_max_retries(group, "default") == 5


# -- groups ------------------------------------------------------------------------------------


def test_a_new_group_has_a_cursor_for_each_partition():
    topic = Topic.objects.create(name="orders")
    Partition.objects.create(topic=topic, number=1)
    group = subscribe(register(), "default")
    places = group.cursors.order_by("partition__number")
    assert [(c.partition.number, c.next_offset, c.replay) for c in places] == [(0, 0, 0), (1, 0, 0)]
    assert (group.mode, group.ordered, group.paused) == (Mode.CLUSTER, False, False)


def test_subscribing_again_changes_nothing():
    registration = register()
    first = subscribe(registration, "default")
    Cursor.objects.update(next_offset=7)
    assert subscribe(registration, "default") == first
    assert Cursor.objects.get().next_offset == 7


@pytest.mark.parametrize(("start", "expected"), [("earliest", 2), ("latest", 5)])
def test_a_new_group_starts_at_the_earliest_message_kept_or_at_the_latest(start, expected):
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    Partition.objects.update(first_offset=2)  # as a purge leaves it
    subscribe(register(start=start), "default")
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.start_offset) == (expected, expected)


def test_a_topic_that_nobody_has_sent_to_is_created():
    group = subscribe(register(), "default")
    assert group.topic.name == "orders"
    assert Partition.objects.get().topic == group.topic


def test_a_missing_topic_is_an_error_where_topics_are_not_created_by_use():
    setting("autoCreateTopic", False)
    with pytest.raises(UnknownTopic, match="orders"):
        subscribe(register(), "default")
    assert not ConsumerGroup.objects.exists()


@pytest.mark.parametrize("change", [{"mode": Mode.BROADCAST}, {"ordered": True}])
def test_a_group_of_another_mode_is_refused(change):
    registration = register()
    subscribe(registration, "default")
    ConsumerGroup.objects.update(**change)
    with pytest.raises(GroupMismatch, match="mail"):
        subscribe(registration, "default")


def test_a_group_knows_the_tags_of_the_consumer_that_has_started_last(
    django_assert_num_queries,
) -> None:
    """Spark reads from it which messages were passed over."""
    assert subscribe(register(), "default").tags is None
    registration = register(tags=("paid", "late"))
    subscribe(registration, "default")
    assert ConsumerGroup.objects.get().tags == ["late", "paid"]
    with django_assert_num_queries(2):  # the topic and the group: nothing is written again
        subscribe(registration, "default")
    subscribe(register(), "default")
    assert ConsumerGroup.objects.get().tags == []


def test_group_names_differ_byte_for_byte():
    subscribe(register(), "default")
    consumer("orders", group="Mail")(print)
    subscribe(registered("orders", "Mail"), "default")
    assert ConsumerGroup.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_many_processes_that_subscribe_at_once_create_one_group(in_thread):
    registration = register()
    send_many([Outgoing("orders", n) for n in range(3)])
    found = [in_thread(subscribe, registration, "default", "earliest") for _ in range(8)]
    assert len({future.result(30).pk for future in found}) == 1
    assert Cursor.objects.count() == 1
    assert audit("default") == []
