"""Topics on several databases: which one each call works on, and what is refused."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.management import CommandError, call_command
from django.core.management.sql import emit_post_migrate_signal
from django.db import OperationalError, transaction

from streams import (
    Decision,
    Outgoing,
    asend,
    cancel,
    consumer,
    prepared,
    send,
    send_many,
)
from streams.checks import check_database, check_settings
from streams.errors import (
    ConfigurationError,
    InvalidMessage,
    InvalidName,
    MixedShards,
    PreparedConflict,
    UnknownPrepared,
    WrongDatabase,
)
from streams.log.routes import (
    accept_routes,
    make_sure_routes,
    routes_agree,
    write_first_routes,
)
from streams.models import Message, PreparedRow, SystemConfig, Topic
from streams.observe.doctor import examine
from streams.observe.shards import shards
from streams.operate.topics import create
from streams.steps import prepared as steps
from streams.steps import turns
from streams.testing import advance, checkback, drain, sent
from streams.two_phase.checking import check_due
from streams.two_phase.submission import GROUP, submitted
from tests.preparing import CHECKER, answering, answers, away, endpoint, held
from tests.processes import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

BOTH = ("default", "other")
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def sharded(ems_settings: Any) -> None:
    ems_settings(SHARDS={"clicks": "other", "logs.*": "other"})


def bodies(alias: str) -> list[Any]:
    rows = Message.objects.using(alias).order_by("pk").values_list("body", flat=True)
    return [bytes(body).decode() for body in rows]


# -- sending --


def test_a_message_goes_to_the_database_of_its_topic() -> None:
    send("orders", 1)
    send("clicks", 2)
    asyncio.run(asend("logs.web", 3))
    send_many([Outgoing("clicks", 4), Outgoing("logs.app", 5)])
    send("clicks", 6, dedup_key="six")
    send("clicks", 7, using="default")
    assert [bodies(alias) for alias in BOTH] == [["1", "7"], ["2", "3", "4", "5", "6"]]


def test_a_rollback_on_the_database_of_the_topic_takes_the_send_back() -> None:
    with pytest.raises(KeyError), transaction.atomic(using="other"):
        send("clicks", 1)
        raise KeyError
    assert bodies("other") == []


def test_a_transaction_elsewhere_is_refused_with_both_databases_and_the_topic() -> None:
    with transaction.atomic(), pytest.raises(WrongDatabase) as refused:
        send("clicks", 1)
    assert all(f"{name!r}" in str(refused.value) for name in BOTH)
    assert "clicks" in str(refused.value)
    with transaction.atomic(using="other"), pytest.raises(WrongDatabase, match="orders"):
        send_many([Outgoing("orders", 1)])
    with transaction.atomic():
        send("clicks", 2, using="other")
    assert [bodies(alias) for alias in BOTH] == [[], ["2"]]


def test_topics_of_several_databases_are_refused_before_anything_is_written() -> None:
    create("orders", 1, "default")
    both = [Outgoing("clicks", 1), Outgoing("orders", 2)]
    with pytest.raises(MixedShards, match=r"clicks is on 'other' and orders on 'default'"):
        send_many(both)
    assert not Topic.objects.using("other").exists()
    assert [bodies(alias) for alias in BOTH] == [[], []]
    send_many(both, using="default")
    assert bodies("default") == ["1", "2"]


def test_what_is_no_topic_is_refused_as_ever() -> None:
    for wrong in (None, 3, ["orders"]):
        with pytest.raises(InvalidName):
            send(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            send_many([Outgoing(wrong)])  # type: ignore[arg-type]


def test_cancel_finds_the_message_by_its_topic() -> None:
    first, second = (send(topic, 1, delay=DAY) for topic in ("orders", "clicks"))
    with pytest.raises(InvalidMessage, match="say which one"):
        cancel(second.message_id)
    with pytest.raises(CommandError, match="say which one"):
        call_command("ems_messages", "cancel", str(second.message_id))
    assert cancel(second.message_id, topic="clicks") == "cancelled"
    assert [bodies(alias) for alias in BOTH] == [["1"], []]
    assert cancel(first) == "cancelled"


# -- two-phase messages --


def test_a_prepared_message_is_on_the_database_of_its_topic() -> None:
    answering(Decision.UNKNOWN)
    one = held(topic="clicks")
    assert PreparedRow.objects.using("other").count() == 1
    with transaction.atomic(), pytest.raises(WrongDatabase, match="the topic clicks is on 'other'"):
        one.commit()
    assert prepared("shop", "A7").topic == "clicks"
    assert prepared("shop", "A7").commit().state == "committed"
    assert len(bodies("other")) == 1
    with pytest.raises(UnknownPrepared):
        prepared("shop", "A8")


def test_one_name_on_two_databases_must_be_told_apart() -> None:
    answering(Decision.UNKNOWN)
    held(topic="clicks")
    held(topic="orders")
    with pytest.raises(PreparedConflict, match="default, other"):
        prepared("shop", "A7")
    assert prepared("shop", "A7", using="other").topic == "clicks"


def test_one_that_is_not_decided_comes_before_one_that_is() -> None:
    answering(Decision.UNKNOWN)
    held(topic="orders").commit()
    held(topic="clicks")
    assert prepared("shop", "A7").commit().using == "other"
    with pytest.raises(PreparedConflict, match="default, other"):
        prepared("shop", "A7")


@pytest.mark.parametrize(("topic", "gone"), [("orders", "other"), ("clicks", "default")])
def test_a_database_that_is_away_stops_no_message_of_another_one(
    topic: str, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    answering(Decision.UNKNOWN)
    held(topic=topic)
    begun = time.monotonic()
    with away(gone):
        assert prepared("shop", "A7").commit().state == "committed"
        assert time.monotonic() - begun < 10
        with pytest.raises(OperationalError):  # it may be there
            prepared("shop", "A8")
    assert f"The database {gone} was not asked for prepared message shop:A7" in caplog.text


def test_functions_are_asked_while_the_database_of_the_endpoints_is_away() -> None:
    answering(Decision.COMMIT)
    endpoint("http://127.0.0.1:9/", name="remote")
    held("A7", topic="clicks")
    held("A8", topic="clicks", checker="remote")
    advance(timedelta(minutes=2))
    with away("default"):
        assert check_due("other").committed == 1
    states = PreparedRow.objects.using("other").values_list("biz_key", "state", "checks")
    assert sorted(states) == [("A7", "SENT", 1), ("A8", "PREPARED", 0)]


def test_a_round_of_checks_begins_while_another_database_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hangs(using: str) -> list[Any]:
        if using == "other":
            asked.set()
            go_on.wait(PATIENCE_SECONDS)
        return []

    monkeypatch.setattr(steps, "due", hangs)
    turns._ask_at.clear()
    hung = threading.Thread(target=steps.check_prepared_if_due, args=("other",))
    hung.start()
    assert asked.wait(PATIENCE_SECONDS)
    healthy = threading.Thread(target=steps.check_prepared_if_due, args=("default",))
    healthy.start()
    try:
        healthy.join(3)
        assert not healthy.is_alive()
    finally:
        go_on.set()
        hung.join()
        healthy.join()
        turns._ask_at.clear()


def test_a_check_of_a_shard_asks_the_endpoint_on_the_first_database() -> None:
    with answers() as server:
        server.say({"decision": "commit"})
        endpoint(server.url)
        held(topic="clicks")
        advance(timedelta(minutes=2))
        assert checkback().committed == 1
    assert len(bodies("other")) == 1


def test_a_call_through_a_topic_reaches_messages_of_other_databases() -> None:
    answering(Decision.UNKNOWN)
    consumer("calls", group=GROUP, ordered=True, atomic=True, start="earliest")(submitted)
    named = {"ems-biz": "shop", "ems-biz-key": "A7"}
    where = {"ems-topic": "clicks", "ems-checker": CHECKER}
    for _ in range(2):  # a repetition finds it
        send("calls", 1, key="A7", headers={**named, **where, "ems-action": "prepare"})
    assert drain(GROUP).done == 2
    assert PreparedRow.objects.using("other").count() == 1
    send("calls", None, key="A7", headers={**named, "ems-action": "commit"})
    assert drain(GROUP).done == 1
    assert bodies("other") == ["1"]


def test_a_call_through_a_topic_may_name_the_topic_of_the_message() -> None:
    answering(Decision.UNKNOWN)
    consumer("calls", group=GROUP, ordered=True, atomic=True, start="earliest")(submitted)
    held(body=1, topic="orders")
    held(body=2, topic="clicks")
    named = {"ems-biz": "shop", "ems-biz-key": "A7", "ems-topic": "clicks"}
    send("calls", None, key="A7", headers={**named, "ems-action": "commit"})
    assert drain(GROUP).done == 1
    assert bodies("other") == ["2"]
    named["ems-topic"] = "orders"
    send("calls", None, key="A7", headers={**named, "ems-action": "rollback"})
    assert drain(GROUP).done == 1
    assert PreparedRow.objects.get().state == "ROLLED_BACK"


# -- streams.testing --


def test_the_helpers_of_tests_work_on_all_databases() -> None:
    seen: list[Any] = []
    for topic in ("orders", "clicks"):
        consumer(topic, group="mail")(seen.append)
        send(topic, topic, delay=DAY)
        assert [one.body for one in sent(topic)] == [topic]
    assert drain().done == 0
    advance(DAY)
    assert drain().done == 2
    assert sorted(one.body for one in seen) == ["clicks", "orders"]


# -- the routes that the databases know --


def ids(messages: list[CheckMessage]) -> set[str]:
    return {str(one.id) for one in messages if one.level >= 40}


def test_migrate_writes_the_routes_where_there_are_none() -> None:
    assert [routes_agree(alias) for alias in BOTH] == [None, None]
    for alias in BOTH:
        make_sure_routes(alias)
    for alias in BOTH:
        emit_post_migrate_signal(verbosity=0, interactive=False, db=alias)
    assert [routes_agree(alias) for alias in BOTH] == [True, True]


def test_other_routes_are_refused_until_they_are_accepted(ems_settings: Any) -> None:
    for alias in BOTH:
        accept_routes(alias)
    ems_settings(SHARDS={"clicks": "other"})
    write_first_routes(using="other")
    assert routes_agree("other") is False
    with pytest.raises(ConfigurationError, match=r"'other'.*routes --accept"):
        make_sure_routes("other")
    assert "ems.E014" in ids(check_database(databases=["other"]))
    accept_routes("other")
    make_sure_routes("other")
    assert "ems.E014" not in ids(check_database(databases=["other"]))
    ems_settings(SHARDS={})
    assert "ems.E014" in ids(check_database(databases=["default"]))


def test_without_shards_nothing_is_written_or_checked(ems_settings: Any) -> None:
    ems_settings(SHARDS={})
    write_first_routes(using="default")
    assert not SystemConfig.objects.filter(name="shardsHash").exists()
    make_sure_routes("default")
    assert not list(shards("default"))


def test_deployments_with_a_namespace_have_routes_of_their_own(ems_settings: Any) -> None:
    accept_routes("default")
    ems_settings(NAMESPACE="blue", SHARDS={"clicks": "other"})
    assert routes_agree("default") is None
    accept_routes("default")
    ems_settings(NAMESPACE="", SHARDS={"clicks": "other", "logs.*": "other"})
    assert routes_agree("default") is True


def test_ems_topics_shows_the_routes_and_accepts_them(ems_settings: Any) -> None:
    def shown(*options: str) -> list[tuple[str, str, bool | None]]:
        out = StringIO()
        call_command("ems_topics", "routes", "--json", *options, stdout=out)
        return [tuple(row.values()) for row in json.loads(out.getvalue())]

    routes = [("clicks", "other"), ("logs.*", "other"), ("*", "default")]
    assert shown() == [(*route, None) for route in routes]
    write_first_routes(using="default")
    assert [agrees for *_route, agrees in shown()] == [None, None, True]
    ems_settings(SHARDS={"clicks": "other"})
    assert [agrees for *_route, agrees in shown()] == [None, False]
    assert [agrees for *_route, agrees in shown("--accept")] == [True, True]


def test_each_database_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connections

    assert "ems.W007" in {one.id for one in check_settings()}  # no router for `other`
    monkeypatch.setattr(connections["other"], "vendor", "postgresql")
    assert "ems.E011" in ids(check_settings())


def test_a_topic_that_was_not_moved_is_an_error_of_the_doctor() -> None:
    def said(alias: str) -> list[tuple[str, str]]:
        return [(one.level, one.text) for one in shards(alias)]

    assert [level for alias in BOTH for level, _text in said(alias)] == ["ok", "ok"]
    create("clicks", 1, "default")
    ((level, text),) = said("default")
    assert (level, "clicks is here" in text) == ("error", True)
    assert text in {one.text for one in examine("default")}
    Topic.objects.filter(name="clicks").update(access="read-only")
    assert said("default")[0][0] == "ok"
    send("clicks", 1, using="other")
    Topic.objects.filter(name="clicks").update(access="read-write")
    send("clicks", 1, using="default")
    Topic.objects.filter(name="clicks").update(access="read-only")
    assert said("default")[0][0] == "error"  # it waits for an offset
    assert said("other")[0][0] == "ok"
