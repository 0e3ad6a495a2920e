"""What the API shows of topics, groups and messages, to whom, and how its lists go on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import Consumer, ConsumerGroup, Message, Topic, UtcNow
from streams.operate.topics import create
from streams.testing import drain
from tests.http.conftest import Api, MakeToken
from tests.http.contract import every_right

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture
def look(api: Api, make_token: MakeToken) -> Api:
    """Return a client that may read everything but bodies."""
    api.token = make_token("look", "read")
    return api


def pages(api: Api, path: str, name: str) -> list[list[Any]]:
    """Return a field of the rows of each page."""
    found, after = [], ""
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}{after}").json()
        found.append([one[name] for one in page["items"]])
        if page["next"] is None:
            return found
        after = f"after={page['next']}"


def test_topics_are_listed_by_name_those_alone_that_the_token_may_read(
    look: Api, make_token: MakeToken
) -> None:
    for name in ("mails", "orders", "orders.paid", "zebra"):
        create(name, 2, "default")
    assert pages(look, "/topics?limit=3", "topic") == [
        ["mails", "orders", "orders.paid"],
        ["zebra"],
    ]
    look.token = make_token("read:orders*")
    assert pages(look, "/topics?limit=1", "topic") == [["orders"], ["orders.paid"]]
    assert look.get("/topics/zebra").status_code == 403
    assert look.get("/topics/nothing").status_code == 403  # as one that is there
    assert look.get("/topics/orders.none").status_code == 404


def test_a_topic_has_its_partitions_and_what_waits_in_its_inbox(look: Api) -> None:
    create("orders", 2, "default")
    for number in range(3):
        send("orders", number, partition=0)
    sequence("default")
    send("orders", 3, partition=1)
    send("orders", 4, partition=1, delay=60)
    shown = look.get("/topics/orders").json()
    places = [(one["first"], one["next"], one["inbox"]) for one in shown["partitions"]]
    assert places == [(0, 3, 0), (0, 0, 1)]
    assert shown["partitions"][0]["sequenced_at"].endswith("Z")
    assert (shown["access"], shown["groups"], shown["retention_seconds"]) == (
        "read-write",
        [],
        None,
    )
    (listed,) = look.get("/topics").json()["items"]
    assert (listed["partitions"], listed["kept"]) == (2, 3)


def test_a_topic_has_the_schema_that_its_consumers_say(look: Api, make_token: MakeToken) -> None:
    @dataclass
    class Order:
        number: int

    consumer("orders", group="mail", body=Order)(lambda message: None)
    consumer("orders", group="log")(lambda message: None)
    for topic in ("orders", "films"):
        create(topic, 1, "default")
    answer = look.get("/topics/orders/schema").json()
    assert (answer["topic"], answer["types"]) == ("orders", {"mail": "Order"})
    assert answer["json_schema"]["properties"] == {"number": {"type": "integer"}}
    assert look.get("/topics/films/schema").status_code == 404
    look.token = make_token("read:films")
    assert look.get("/topics/orders/schema").status_code == 403


def test_a_group_says_how_far_it_is_and_who_works_for_it(look: Api) -> None:
    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        if message.body == 1:
            raise Reject("odd")
        if message.body == 2:
            raise Retry(delay=60)

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    group = ConsumerGroup.objects.get()
    Consumer.objects.create(client_id="c", group=group, lease_until=UtcNow(timedelta(minutes=1)))
    send("orders", 5)
    sequence("default")
    shown = look.get("/topics/orders/groups/mail").json()
    assert (shown["behind"], shown["retries"], shown["dead"], shown["consumers"]) == (1, 1, 1, 1)
    assert shown["state"] == "running"
    assert shown["age_seconds"] >= 0
    (place,) = shown["partitions"]
    assert (place["partition"], place["next"], place["end"], place["retry"]) == (0, 4, 5, 2)
    assert [(one["client"], one["live"]) for one in shown["clients"]] == [("c", True)]
    (listed,) = look.get("/groups?topic=orders").json()["items"]
    del listed["age_seconds"]
    assert {name: shown[name] for name in listed} == listed
    assert look.get("/groups?topic=none").json()["items"] == []
    assert look.get("/topics/orders/groups/none").status_code == 404


def test_groups_are_listed_page_by_page_and_by_who_may_look(
    look: Api, make_token: MakeToken
) -> None:
    topic = Topic.objects.create(name="orders")
    for name in "abc":
        ConsumerGroup.objects.create(topic=topic, name=name)
    assert pages(look, "/groups?limit=2", "group") == [["a", "b"], ["c"]]
    assert look.get("/groups", token=make_token("read")).status_code == 403


def test_counts_of_a_group_end_at_ten_thousand(look: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.http.routes.groups.COUNT_AT_MOST", 2)

    @consumer("orders", group="mail", batch=10)
    def mail(messages: Any) -> Any:
        return {message: Reject("odd") for message in messages}

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    assert look.get("/topics/orders/groups/mail").json()["dead"] == 2


def test_a_message_has_its_body_for_who_may_read_bodies(look: Api, make_token: MakeToken) -> None:
    sent = send("orders", {"n": 1}, key="A7", headers={"who": "me"})
    path = f"/messages/{sent.message_id}"
    shown = look.get(path).json()
    assert (shown["offset"], shown["key"], shown["headers"]) == (None, "A7", {"who": "me"})
    assert (shown["has_body"], shown["body"], shown["deliver_at"]) == (False, None, None)
    both = make_token("read:orders", "body:orders")
    assert look.get(path, token=both).json()["body"] == {"n": 1}
    only = make_token("body:orders")
    assert look.get(path, token=only).status_code == 403
    # An id of a topic that the token may not read is as one that is not there.
    other = make_token("read:mails", "body:mails")
    refused = look.get(path, token=other)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown")
    sequence("default")
    place = "/topics/orders/partitions/0/messages/0"
    assert look.get(place).json()["message_id"] == sent.message_id
    assert look.get(place, token=other).status_code == 403
    assert look.get("/topics/orders/partitions/0/messages/1").status_code == 404
    assert look.get("/topics/orders/partitions/9/messages/0").status_code == 404
    assert look.get(f"/messages/{2**63}").status_code == 422


def test_bytes_are_shown_in_base64(look: Api, make_token: MakeToken) -> None:
    sent = send("orders", b"\x00\xff")
    shown = look.get(f"/messages/{sent.message_id}", token=make_token("read", "body")).json()
    assert (shown["body_type"], shown["body"], shown["size"]) == ("bytes", "AP8=", 2)


def test_messages_are_searched_by_key_tag_and_time(look: Api) -> None:
    send_many([Outgoing("orders", n, key=f"k{n % 2}", tag="t" if n > 3 else "") for n in range(6)])
    sequence("default")
    assert pages(look, "/topics/orders/messages?limit=4", "offset") == [[5, 4, 3, 2], [1, 0]]
    assert pages(look, "/topics/orders/messages?key=k1", "offset") == [[5, 3, 1]]
    assert pages(look, "/topics/orders/messages?tag=t&key=k0", "offset") == [[4]]
    assert pages(look, "/topics/orders/messages?until=2000-01-01T00:00:00Z", "offset") == [[]]
    answer = look.get("/topics/orders/messages?since=2000-01-01T00:00:00")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert look.get("/topics/orders/messages?partition=4").status_code == 404
    assert "body" not in look.get("/topics/orders/messages").json()["items"][0]


def test_a_search_goes_on_with_what_waits_in_the_inbox(look: Api) -> None:
    sent = [send("orders", n, key="k", delay=3600).message_id for n in range(5)]
    for path in ("/topics/orders/messages?limit=2", "/topics/orders/messages?key=k&limit=2"):
        found = pages(look, path, "message_id")
        assert [pk for page in found for pk in page] == sent[::-1]


def test_the_overview_has_topics_groups_and_alarms(look: Api) -> None:
    from tests.monitoring.alarming import alarm

    consumer("orders", group="mail")(lambda message: None)
    send("orders", 1)
    drain()
    alarm(since=UtcNow())
    shown = look.get("/overview").json()
    assert (shown["topics_in_all"], shown["groups_in_all"]) == (1, 1)
    assert shown["topics"][0]["topic"] == "orders"
    assert shown["topics"][0]["published_per_second"] is None  # nobody has sampled it
    assert shown["groups"][0]["behind"] == 0
    assert shown["alarms"][0]["rule"] == "lag"


def test_a_probe_needs_no_token_and_is_told_no_details(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams.observe.diagnoses import ERROR, Diagnosis

    answer = api.get("/ems/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    bad = [Diagnosis(ERROR, "database", "secret host is down")]
    monkeypatch.setattr("streams.http.routes.health.ready", lambda using: bad)
    answer = api.get("/ems/healthz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})


def test_metrics_are_for_a_token_or_for_listed_addresses(
    api: Api, make_token: MakeToken, ems_settings: Any
) -> None:
    process = pytest.importorskip("streams.metrics.process")
    assert api.get("/ems/metrics").status_code == 401
    assert api.get("/ems/metrics", token=make_token("read")).status_code == 403
    answer = api.get("/ems/metrics", token=make_token("look"))
    assert answer.status_code == 200
    assert b"ems_up" in answer.content
    ems_settings(HTTP_METRICS_FROM=["127.0.0.0/8"])
    assert api.get("/ems/metrics").status_code == 200
    ems_settings(HTTP_METRICS_FROM=["10.0.0.1"])
    assert api.get("/ems/metrics").status_code == 401
    process.stop()


def test_no_row_of_another_namespace_is_shown(
    look: Api, make_token: MakeToken, ems_settings: Any
) -> None:
    sent = send("orders", 1)
    sequence("default")
    assert Message.objects.count() == 1
    ems_settings(NAMESPACE="other")
    look.token = make_token("look", "read", "dead")
    assert look.get("/topics").json()["items"] == []
    assert look.get("/groups").json()["items"] == []
    assert look.get(f"/messages/{sent.message_id}").status_code == 404
    assert look.get("/topics/orders").status_code == 404


def test_no_two_forms_of_the_contract_have_one_name() -> None:
    """The OpenAPI file has them by their names: one would stand for both."""
    from streams.http import routes
    from streams.http.fields import Answer, Request

    modules = [module for module in vars(routes).values() if hasattr(module, "router")]
    forms = {
        form
        for module in modules
        for form in vars(module).values()
        if isinstance(form, type) and issubclass(form, Answer | Request)
    }
    names = [form.__name__ for form in forms if not form.__name__.startswith("Page")]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("given", ["since=5", "until=0.5", "since=1700000000", "until=2000-01-01"])
def test_a_time_of_a_search_is_an_instant_with_its_zone(look: Api, given: str) -> None:
    send("orders", 1)
    answer = look.get(f"/topics/orders/messages?{given}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


SOMEWHERE_ELSE = {"topic": "orders", "partition": 9}


def test_an_unknown_partition_has_one_status_and_one_code(look: Api, make_token: MakeToken) -> None:
    send("orders", 1)
    everything = make_token(*every_right())
    for answer in (
        look.get("/topics/orders/messages?partition=9"),
        look.get("/topics/orders/partitions/9/messages?from=0"),
        look.get("/topics/orders/partitions/9/messages/0"),
        look.get("/topics/orders/partitions/9/messages/0/trace"),
        look.post("/topics/orders/messages", {"body": 1, "partition": 9}, token=everything),
        look.post("/messages", {"messages": [SOMEWHERE_ELSE]}, token=everything),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_partition")
