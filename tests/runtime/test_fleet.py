"""The consumers of a process on several databases: who is where, how many threads, when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread, Timer
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from streams import consumer
from streams.consume.limits import Overrides, Share, shares
from streams.consume.registry import by_alias, registrations
from streams.errors import ConfigurationError
from streams.log.routes import accept_routes
from streams.models import Consumer, ConsumerGroup
from streams.process.broadcast.running_group import RunningBroadcastGroup
from streams.process.fleet import Fleet, Start
from streams.process.shared.activity import Activity
from streams.process.shared.connections import IdleLimit, work_on
from streams.process.shared.database_work import Silence
from streams.process.supervisor import Supervisor
from tests.consuming import registered

pytestmark = pytest.mark.usefixtures("clean_registry")

BOTH = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def sharded(ems_settings: Callable[..., None], tmp_path: Any) -> None:
    ems_settings(SHARDS={"clicks": "other"}, STATE_DIR=str(tmp_path))


@pytest.fixture
def three(clean_registry: None) -> None:
    consumer("orders", group="mail")(print)
    consumer("orders", group="search")(print)
    consumer("clicks", group="count")(print)


def names(using: str | None = None) -> dict[str, list[str]]:
    found = by_alias(registrations(), using)
    return {alias: [one.group for one in some] for alias, some in found.items()}


# -- who is where --


@pytest.mark.usefixtures("three")
def test_without_shards_all_groups_are_on_the_database_that_is_named() -> None:
    assert names() == {"default": ["mail", "search", "count"]}
    assert names("other") == {"other": ["mail", "search", "count"]}


@pytest.mark.usefixtures("sharded", "three")
def test_with_shards_a_database_has_the_groups_of_its_topics() -> None:
    assert names() == {"default": ["mail", "search"], "other": ["count"]}
    assert names("default") == {"default": ["mail", "search"]}
    assert names("other") == {"other": ["count"]}
    assert names("backup") == {"backup": ["mail", "search", "count"]}


@pytest.mark.usefixtures("sharded")
def test_a_database_without_a_group_is_left_out() -> None:
    consumer("orders", group="mail")(print)
    assert names() == {"default": ["mail"]}
    assert names("other") == {}


# -- threads --


def test_the_threads_of_a_process_are_shared_out_by_the_number_of_groups() -> None:
    assert shares({"a": "xxx", "b": "x"}) == {"a": Share(0, 3, 4), "b": Share(3, 1, 4)}
    for sizes in ([3, 1], [1, 3], [1, 1, 1], [7, 2, 1]):
        groups = {str(number): "x" * size for number, size in enumerate(sizes)}
        for total in (len(sizes), 8, 13, 100):
            found = [share.threads(total) for share in shares(groups).values()]
            assert min(found) >= 1
            assert total <= sum(found) <= total + len(sizes)
    assert [share.threads(8) for share in shares({"a": "xxx", "b": "x"}).values()] == [6, 2]
    assert [share.threads(1) for share in shares({"a": "xxx", "b": "x"}).values()] == [1, 1]
    assert shares({"a": "xxx"})["a"].threads(8) == 8


@BOTH
@pytest.mark.usefixtures("sharded", "three")
def test_a_supervisor_has_its_share_of_the_threads_and_says_where_it_is() -> None:
    groups = by_alias(registrations())
    fleet = Fleet(groups, overrides=Overrides(threads=4))
    fleet._supervisors = [fleet._make(alias) for alias in groups]
    assert [one.budget() for one in fleet._supervisors] == [3 + 4, 1 + 5]
    assert [feed.name for one in fleet._supervisors for feed in one._feeds] == [
        "mail on orders (default)",
        "search on orders (default)",
        "count on clicks (other)",
    ]
    assert {(topic, group) for topic, group, *_ in fleet.work()} == {
        ("orders", "mail"),
        ("orders", "search"),
        ("clicks", "count"),
    }
    assert len(fleet.client_ids()) == 2
    names = [keeper.name for one in fleet._supervisors for keeper in one._keepers]
    assert len(set(names)) == len(names)


@BOTH
@pytest.mark.usefixtures("sharded", "three")
def test_a_shard_begins_though_the_database_of_the_endpoints_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(by_alias(registrations()))

    def refuse() -> None:
        raise OperationalError(2003, "away")

    with monkeypatch.context() as patch:
        patch.setattr(connections["default"], "connect", refuse)
        connections["default"].close()
        fleet._make("other").begin()
    assert Consumer.objects.using("other").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("three")
def test_without_shards_no_name_has_the_alias() -> None:
    one = Supervisor(list(registrations()), "default")
    assert [feed.name for feed in one._feeds] == [
        "mail on orders",
        "search on orders",
        "count on clicks",
    ]
    assert one._heartbeat.name == "ems-heartbeat"


@BOTH
@pytest.mark.usefixtures("three")
def test_consumers_with_other_routes_than_their_database_do_not_start(
    ems_settings: Callable[..., None],
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    accept_routes("other")
    ems_settings(SHARDS={"clicks": "other", "orders": "other"})
    with pytest.raises(ConfigurationError, match="routes --accept"):
        Fleet(by_alias(registrations()), drain=True).run()
    assert not ConsumerGroup.objects.using("other").exists()


# -- a database that does not answer at the start --


@BOTH
@pytest.mark.usefixtures("sharded", "three")
def test_a_database_that_hangs_at_the_start_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It neither refuses nor answers, so the thread that begins there waits for ever."""
    monkeypatch.setattr("streams.process.fleet.WORK_SECONDS", 1.0)
    answers = Event()
    connect = BaseDatabaseWrapper.connect

    def hang(self: BaseDatabaseWrapper) -> None:
        if self.alias == "other":
            answers.wait(60)
        connect(self)

    fleet = Fleet(by_alias(registrations()))
    given_up = Timer(20, fleet._lifecycle.stop)
    given_up.start()
    monkeypatch.setattr(BaseDatabaseWrapper, "connect", hang)
    monkeypatch.setattr("streams.process.fleet.LEAVE_SECONDS", 0.1)
    try:
        assert fleet.run() == 1
        assert fleet._lifecycle.failure == (
            "the database has not answered the thread start-other for 1 s"
        )
        assert fleet.left_behind
    finally:
        given_up.cancel()
        answers.set()
        for thread in fleet._beginning:
            thread.join(30)


def test_who_rests_is_not_silent() -> None:
    thread, silence = Start("default", lambda alias, work: None), Silence()
    work = thread._work

    def seconds() -> float:
        return silence.seconds(thread, 1.0)

    with work.under_way():
        assert [seconds(), seconds(), seconds()] == [0, 1, 2]
        with work.resting():
            assert [seconds(), seconds()] == [0, 0]
        assert [seconds(), seconds()] == [0, 1]


@BOTH
@pytest.mark.usefixtures("sharded", "three")
def test_a_second_try_finds_what_the_project_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise threads of other databases would never close their connections to this one."""
    settings = connections.settings["other"]
    monkeypatch.setitem(settings, "CONN_MAX_AGE", 7)
    monkeypatch.setitem(settings, "AUTOCOMMIT", settings["AUTOCOMMIT"])
    fleet = Fleet(by_alias(registrations()))

    def fail(self: Any) -> None:
        raise OperationalError(2013, "lost")

    with monkeypatch.context() as patch:
        patch.setattr("streams.process.shared.client.Client.register", fail)
        with pytest.raises(OperationalError):
            fleet._make("other").begin()
    assert settings["CONN_MAX_AGE"] == 7
    second = fleet._make("other")
    assert settings["CONN_MAX_AGE"] is None
    assert second._idle_limit._given["CONN_MAX_AGE"] == 7
    second._idle_limit.remove()


# -- the end of a drain --


def test_one_database_is_drained_when_a_look_finds_nothing() -> None:
    activity = Activity(["a"])
    before = activity.now()
    with activity.busy():
        assert not activity.is_over("a", activity.now())
    assert not activity.is_over("a", before)  # a worker was busy during the look
    assert activity.is_over("a", activity.now())


def test_a_drain_ends_only_when_no_worker_was_busy_from_the_first_look_to_the_last() -> None:
    """What was busy on one database may have sent to another one."""
    activity = Activity(["a", "b"])
    assert not activity.is_over("a", activity.now())
    with activity.busy():
        pass
    assert not activity.is_over("b", activity.now())
    assert activity.is_over("a", activity.now())


def test_a_database_without_groups_holds_up_no_drain() -> None:
    activity = Activity(["a", "b"])
    assert not activity.is_over("a", activity.now())
    activity.leave_out("b")
    assert activity.is_over("a", activity.now())


# -- positions of broadcast groups --


def place_of(topic: str, using: str) -> str:
    group = RunningBroadcastGroup(registered(topic, "cache"), using, Overrides(), "me")
    group.close()
    return group._file.path.name


@BOTH
@pytest.mark.usefixtures("sharded")
def test_positions_on_two_databases_do_not_meet() -> None:
    consumer("orders", group="cache", mode="broadcast")(print)
    consumer("clicks", group="cache", mode="broadcast")(print)
    assert place_of("orders", "default") != place_of("clicks", "other")


@BOTH
def test_a_topic_that_was_moved_keeps_its_positions(
    ems_settings: Callable[..., None], tmp_path: Any
) -> None:
    """Its messages have the same partitions and offsets on the new database."""
    ems_settings(STATE_DIR=str(tmp_path))
    consumer("clicks", group="cache", mode="broadcast")(print)
    before = place_of("clicks", "default")
    assert place_of("clicks", "other") != before  # without shards it is a topic of its own
    ems_settings(SHARDS={"clicks": "other"})
    assert place_of("clicks", "other") == before


# -- connections --


@pytest.fixture
def idle_limit() -> Iterator[IdleLimit]:
    given = dict(connections.settings["default"])
    connections.settings["default"]["CONN_MAX_AGE"] = 7
    limit = IdleLimit("default")
    limit.install()
    yield limit
    connections["default"].close()
    connections.settings["default"].update(given)


@pytest.mark.mysql
@BOTH
def test_a_connection_to_another_shard_is_as_in_any_thread_of_the_project(
    idle_limit: IdleLimit,
) -> None:
    """A handler may use it once in hours: the server must not have closed it meanwhile."""
    seen: list[Any] = []

    def look(works_on: str) -> None:
        work_on(works_on)
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout = @@GLOBAL.wait_timeout")
            seen.append((bool(cursor.fetchone()[0]), connections["default"].close_at))
        connections.close_all()

    for alias in ("default", "other"):
        thread = Thread(target=look, args=(alias,))
        thread.start()
        thread.join(30)
    (mine, theirs) = seen
    assert mine == (False, None)
    assert theirs[0]
    assert 0 < theirs[1] - time.monotonic() <= 7
