"""The API where topics are on two databases: each request works on that of its topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from streams import Decision, Reject, consumer, send
from streams.database import each
from streams.http.pulling import groups, poller
from streams.http.pulling.waiting import waiting
from streams.log.sequencer import sequence
from streams.models import (
    ApiToken,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    PreparedRow,
)
from streams.operate.redrives import begin
from streams.operate.topics import create
from streams.sharding import alias_of
from streams.testing import drain
from tests.http.conftest import Api, MakeToken
from tests.preparing import CHECKER, answering, away
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("transactional_db", "clean_registry"),
]

BOTH = ("default", "other")
ALL = (
    *("send:*", "consume:*/*", "read:*", "body:*", "manage:*", "look", "dead:*/*", "dead!:*/*"),
    *("prepare:*", "check:*"),
)


@pytest.fixture(autouse=True)
def caller(ems_settings: Callable[..., None], api: Api, make_token: MakeToken) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    api.token = make_token(*ALL)


@pytest.fixture
def both() -> None:
    """Make a topic on each database."""
    for topic, alias in (("orders", "default"), ("clicks", "other")):
        create(topic, 1, alias)


def post(api: Api, path: str, data: Any = None, status: int = 200) -> Any:
    answer = api.post(path, data)
    assert answer.status_code == status, answer.content
    return answer.json()


def get(api: Api, path: str, status: int = 200) -> Any:
    answer = api.get(path)
    assert answer.status_code == status, answer.content
    return answer.json()


def pull(api: Api, topic: str, **more: Any) -> list[Any]:
    asked = {"client": "one", **more}
    found: list[Any] = post(api, f"/topics/{topic}/groups/mail/pull", asked)["deliveries"]
    return found


def test_a_send_goes_to_the_database_of_its_topic_and_the_answer_says_which(api: Api) -> None:
    for topic, alias in (("orders", "default"), ("clicks", "other")):
        assert post(api, f"/topics/{topic}/messages", {"body": 1}, 201)["database"] == alias
        assert Message.objects.using(alias).count() == 1
    assert not ApiToken.objects.using("other").exists()


def test_a_batch_is_for_one_database(api: Api) -> None:
    mixed = [{"topic": "orders", "body": 1}, {"topic": "clicks", "body": 2}]
    assert post(api, "/messages", {"messages": mixed}, 409)["code"] == "mixed_shards"
    assert not any(Message.objects.using(alias).exists() for alias in BOTH)
    (sent,) = post(api, "/messages", {"messages": mixed[1:]}, 201)["results"]
    assert sent["database"] == "other"


def test_messages_are_pulled_acknowledged_and_read_where_they_are(api: Api, both: None) -> None:
    for topic, alias in (("orders", "default"), ("clicks", "other")):
        path = f"/topics/{topic}/groups/mail"
        assert api.put(path, {"start": "earliest"}).status_code == 201
        for number in range(2):
            post(api, f"/topics/{topic}/messages", {"body": f"{topic} {number}"}, 201)
        sequence(alias)
    held = {topic: pull(api, topic, batch=1)[0] for topic in ("orders", "clicks")}
    assert "@" not in held["orders"]["receipt"]
    for topic, delivery in held.items():
        assert delivery["messages"][0]["body"] == f"{topic} 0"
        extended = {"receipt": delivery["receipt"], "timeout": 30}
        post(api, "/deliveries/extend", extended)
        given = {"receipt": delivery["receipt"], "results": [{"offset": 0}]}
        assert post(api, "/deliveries/ack", given)["open"] == 0
        log = get(api, f"/topics/{topic}/partitions/0/messages?from=0")
        assert [one["body"] for one in log["messages"]] == [f"{topic} 0", f"{topic} 1"]
    for alias in BOTH:
        assert Delivery.objects.using(alias).get().state == "DONE"
    (last,) = pull(api, "clicks")
    assert post(api, "/deliveries/release", {"receipt": last["receipt"]})["released"] == 1
    wrong = {"receipt": held["clicks"]["receipt"].replace("@other", "@nowhere")}
    assert post(api, "/deliveries/release", wrong, 422)["code"] == "invalid_value"
    pull(api, "clicks")
    assert api.delete("/topics/clicks/groups/mail/clients/one").status_code == 204
    assert not Delivery.objects.using("other").held().exists()


def test_a_held_pull_on_each_database_is_woken(
    api: Api, both: None, ems_settings: Callable[..., None]
) -> None:
    ems_settings(HTTP_HOLD_SECONDS_WSGI=20)
    answers: dict[str, list[Any]] = {}

    def wait(topic: str) -> None:
        answers[topic] = pull(api, topic, hold=20)

    for topic in ("orders", "clicks"):
        assert api.put(f"/topics/{topic}/groups/mail", {}).status_code == 201
    threads = [threading.Thread(target=wait, args=[topic]) for topic in ("orders", "clicks")]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: all(waiting(alias) for alias in BOTH) and {*poller._pollers} == {*BOTH})
        for topic in ("clicks", "orders"):
            send(topic, topic)
    finally:
        for thread in threads:
            thread.join(30)
    for topic in ("orders", "clicks"):
        (delivery,) = answers[topic]
        assert delivery["messages"][0]["body"] == topic


def test_a_pull_does_not_wait_for_a_database_that_hangs(
    both: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic, alias in (("orders", "default"), ("clicks", "other")):
        groups.ensure_group(topic, "mail", alias)
    asked, answers = threading.Event(), threading.Event()
    find = groups._find

    def hang(topic: str, name: str, using: str) -> Any:
        if using == "other":
            asked.set()
            answers.wait(60)
        return find(topic, name, using)

    def of(topic: str, alias: str) -> Future[Any]:
        done: Future[Any] = Future()

        def look() -> None:
            done.set_result(groups.pulled(topic, "mail", alias).group.topic.name)
            connections.close_all()

        threading.Thread(target=look, daemon=True).start()
        return done

    monkeypatch.setattr(groups, "_find", hang)
    try:
        hangs = of("clicks", "other")
        assert asked.wait(20)
        assert of("orders", "default").result(20) == "orders"
    finally:
        answers.set()
        assert hangs.result(20) == "clicks"


def test_an_id_alone_is_refused_and_with_its_database_found(api: Api) -> None:
    ids = {}
    for topic in ("orders", "clicks"):
        sent = post(api, f"/topics/{topic}/messages", {"body": topic, "delay": 60}, 201)
        ids[sent["database"]] = sent["message_id"]
    path = f"/messages/{ids['other']}"
    for answer in (api.get(path), api.get(f"{path}/trace"), api.delete(path)):
        assert answer.status_code == 422
        assert answer.json()["code"] == "database_needed"
    assert get(api, f"{path}?database=nowhere", 422)["code"] == "invalid"
    shown = get(api, f"{path}?database=other")
    assert (shown["topic"], shown["body"], shown["database"]) == ("clicks", "clicks", "other")
    assert get(api, f"{path}/trace?database=other")["message"]["topic"] == "clicks"
    assert api.delete(f"{path}?database=other").json() == {"outcome": "cancelled"}
    assert [Message.objects.using(alias).count() for alias in BOTH] == [1, 0]


def test_lists_have_the_rows_of_all_databases(api: Api, both: None) -> None:
    create("mails", 1, "default")
    for topic, alias in (("mails", "default"), ("orders", "default"), ("clicks", "other")):
        assert api.put(f"/topics/{topic}/groups/mail", {}).status_code == 201
        assert get(api, f"/topics/{topic}")["database"] == alias
        assert get(api, f"/topics/{topic}/groups/mail")["database"] == alias
    expected = [("mails", "default"), ("orders", "default"), ("clicks", "other")]
    for path in ("/topics", "/groups"):
        for limit in (1, 2, 3, 100):
            rows, after = [], ""
            while True:
                page = get(api, f"{path}?limit={limit}{after}")
                assert len(page["items"]) <= limit
                rows += [(one["topic"], one["database"]) for one in page["items"]]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert sorted(rows) == sorted(expected)
            assert [alias for _topic, alias in rows] == ["default", "default", "other"]
    overview = get(api, "/overview")
    assert (overview["topics_in_all"], overview["groups_in_all"]) == (3, 3)
    assert {one["topic"]: one["database"] for one in overview["topics"]} == dict(expected)
    assert {one["topic"]: one["database"] for one in overview["groups"]} == dict(expected)


@pytest.fixture
def lose(both: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Let the database of clicks refuse connections; with True it hangs until the test ends."""
    for topic in ("orders", "clicks"):
        groups.ensure_group(topic, "mail", alias_of(topic))
    ends, refuses, hangs = (threading.Event() for _ in range(3))
    connect = BaseDatabaseWrapper.connect

    def refuse(self: BaseDatabaseWrapper) -> None:
        if self.alias == "other" and hangs.is_set():
            ends.wait(60)
        if self.alias == "other" and refuses.is_set():
            raise OperationalError(2003, "away")
        connect(self)

    def begin(hanging: bool) -> None:
        refuses.set()
        if hanging:
            hangs.set()

    monkeypatch.setattr(BaseDatabaseWrapper, "connect", refuse)
    yield begin
    ends.set()
    for question in each._questions.values():
        question.thread.join(30)


@pytest.mark.parametrize(
    "hanging",
    [False, pytest.param(True, marks=pytest.mark.exhaustive)],  # 30 s to give it up
)
def test_lists_have_what_the_others_have_and_name_the_database_that_is_away(
    api: Api, lose: Callable[[bool], None], hanging: bool
) -> None:
    assert get(api, "/topics")["away"] == []
    lose(hanging)
    began = time.monotonic()
    for path in ("/topics", "/groups"):
        page = get(api, f"{path}?limit=1")
        rows = page["items"]
        while page["next"]:
            page = get(api, f"{path}?limit=1&after={page['next']}")
            rows += page["items"]
        assert [one["topic"] for one in rows] == ["orders"]
        assert page["away"] == ["other"]
    for path in ("/prepared", "/dead/redrives"):
        assert get(api, path) == {"items": [], "next": None, "away": ["other"]}
    overview = get(api, "/overview")
    assert [one["topic"] for one in overview["topics"]] == ["orders"]
    assert overview["away"] == ["other"]
    assert time.monotonic() - began < 20
    assert sum(thread.name == "ems-ask-other" for thread in threading.enumerate()) == hanging


def test_topics_and_groups_are_changed_where_they_are(api: Api) -> None:
    assert post(api, "/topics", {"name": "clicks"}, 201)["database"] == "other"
    assert api.put("/topics/clicks/groups/mail", {}).status_code == 201
    assert api.patch("/topics/clicks", {"archive": True}).json()["archive"]
    preview = post(api, "/topics/clicks/grow", {"partitions": 2})
    assert post(api, "/topics/clicks/grow", {"token": preview["token"]})["new"] == 1
    assert Partition.objects.using("other").count() == 2
    path = "/topics/clicks/groups/mail"
    assert api.patch(path, {"batch": 7}).json()["overrides"]["batch"] == 7
    assert post(api, f"{path}/pause")["paused"]
    assert not post(api, f"{path}/resume")["paused"]
    send("clicks", 1, partition=0)
    sequence("other")
    preview = post(api, f"{path}/reset", {"to": "latest"})
    assert post(api, f"{path}/reset", {"token": preview["token"]})["done"]
    preview = post(api, f"{path}/replay", {"from": "0", "to": "1", "partition": 0})
    replay = post(api, f"{path}/replay", {"token": preview["token"]})
    assert [one["number"] for one in get(api, f"{path}/replays")["items"]] == [replay["number"]]
    preview = post(api, f"{path}/cancel-replay")
    assert post(api, f"{path}/cancel-replay", {"token": preview["token"]})["left_out"] == 1
    (found,) = get(api, "/topics/clicks/messages")["items"]
    assert found["database"] == "other"
    assert get(api, "/topics/clicks/partitions/0/messages/0")["body"] == 1
    dry = api.delete("/topics/clicks?dry_run=true&force=true").json()
    assert dry["rows"]
    assert not ConsumerGroup.objects.using("default").exists()


def test_dead_letters_are_redriven_and_discarded_where_they_are(api: Api) -> None:
    def refuse(message: Any) -> None:
        raise Reject("no")

    for topic in ("orders", "clicks"):
        consumer(topic, group="mail", start="earliest")(refuse)
        for number in range(2):
            send(topic, number)
    assert drain().dead == 4
    (one, two) = get(api, "/topics/clicks/groups/mail/dead")["items"]
    assert {letter["database"] for letter in (one, two)} == {"other"}
    assert get(api, f"/dead/{one['id']}", 422)["code"] == "database_needed"
    assert get(api, f"/dead/{one['id']}?database=other")["topic"] == "clicks"
    chosen = {"ids": [one["id"]], "database": "other"}
    assert post(api, "/dead/redrive", {"ids": [one["id"]]}, 422)["code"] == "database_needed"
    assert post(api, "/dead/redrive", chosen)["done"] == 1
    group = {"topic": "clicks", "group": "mail", "dry_run": True}
    token = post(api, "/dead/discard", group)["token"]
    assert post(api, "/dead/discard", {"token": token})["done"] == 1
    assert not DeadMessage.objects.using("other").waiting().exists()
    assert DeadMessage.objects.waiting().count() == 2


def test_a_redrive_at_a_rate_is_stopped_where_it_is(api: Api) -> None:
    for topic, alias in (("orders", "default"), ("clicks", "other")):
        create(topic, 1, alias)
        assert api.put(f"/topics/{topic}/groups/mail", {}).status_code == 201
        groups = ConsumerGroup.objects.using(alias).select_related("topic")
        begin([groups.get()], alias, rate=1, who="tests", upto=0)
    rows = get(api, "/dead/redrives")["items"]
    assert [one["database"] for one in rows] == ["default", "other"]
    number = rows[1]["redrive"]
    assert post(api, f"/dead/redrives/{number}/stop", status=422)["code"] == "database_needed"
    post(api, f"/dead/redrives/{number}/stop?database=other")
    states = {one["database"]: one["state"] for one in get(api, "/dead/redrives")["items"]}
    assert states == {"default": "running", "other": "stopped"}


def test_prepared_messages_are_found_by_their_names_on_all_databases(api: Api) -> None:
    answering(Decision.UNKNOWN)
    for key, topic, alias in (("A1", "orders", "default"), ("A2", "clicks", "other")):
        given = {"biz": "shop", "biz_key": key, "topic": topic, "checker": CHECKER, "body": 1}
        assert post(api, "/prepared", given, 201)["database"] == alias
        assert PreparedRow.objects.using(alias).get().biz_key == key
    for limit in (1, 2, 10):
        rows = get(api, f"/prepared?limit={limit}")["items"]
        assert [one["biz_key"] for one in rows] == ["A1", "A2"][:limit]
    assert get(api, "/prepared/shop/A2")["database"] == "other"
    assert post(api, "/prepared/shop/A2/commit")["state"] == "committed"
    assert post(api, "/prepared/shop/A1/rollback")["state"] == "rolled back"
    assert [Message.objects.using(alias).count() for alias in BOTH] == [0, 1]
    assert get(api, "/prepared/shop/A3", 404)["code"] == "unknown_prepared"


def prepare(api: Api, topic: str) -> Any:
    given = {"biz": "shop", "biz_key": "A1", "topic": topic, "checker": CHECKER, "body": 1}
    return post(api, "/prepared", given, 201)


def test_a_prepared_message_is_decided_while_another_database_is_away(api: Api) -> None:
    answering(Decision.UNKNOWN)
    prepare(api, "orders")
    begun = time.monotonic()
    with away("other"):
        assert get(api, "/prepared/shop/A1")["state"] == "prepared"
        assert post(api, "/prepared/shop/A1/commit")["state"] == "committed"
        assert post(api, "/prepared/shop/A2/commit", {}, 503)["code"] == "database_unavailable"
    assert time.monotonic() - begun < 15


def test_a_request_says_which_of_two_prepared_messages_it_means(api: Api) -> None:
    answering(Decision.UNKNOWN)
    for topic in ("orders", "clicks"):
        prepare(api, topic)
    answer = post(api, "/prepared/shop/A1/commit", {}, 409)
    assert answer["code"] == "prepared_conflict"
    assert "“database”" in answer["detail"]
    assert get(api, "/prepared/shop/A1?database=other")["topic"] == "clicks"
    assert post(api, "/prepared/shop/A1/commit?database=other")["topic"] == "clicks"
    assert post(api, "/prepared/shop/A1/rollback?database=default")["topic"] == "orders"
    assert get(api, "/prepared/shop/A1?database=else", 422)["code"] == "invalid"
