"""Clients pull, and say what became of it: the same outcomes as a handler's, in the same tables."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import OperationalError, connections

from streams import Outgoing, consumer, send, send_many
from streams.consume.outcome import notices
from streams.consume.outcome.settle import settle
from streams.database import remembered
from streams.errors import LeaseLost
from streams.http.pulling import clients, groups, handing_out, outcomes
from streams.http.pulling.receipts import named
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Message,
    Partition,
    RetryMessage,
    State,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.operate.group_deletion import delete_group
from streams.operate.topics import grow
from streams.steps.sweep import sweep
from tests.http.conftest import Api
from tests.processes import wait_for

pytestmark = pytest.mark.django_db

GROUP = "/topics/orders/groups/mail"


@pytest.fixture(autouse=True)
def caller(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("send:orders", "consume:orders/*")


def fill(count: int, topic: str = "orders", **options: Any) -> None:
    for number in range(count):
        send(topic, {"number": number}, **options)
    sequence("default")


def made(api: Api, **options: Any) -> None:
    answer = api.put(GROUP, {"start": "earliest", **options})
    assert answer.status_code == 201, answer.content


def pulled(api: Api, client: str = "one", **options: Any) -> list[dict[str, Any]]:
    answer = api.post(f"{GROUP}/pull", {"client": client, **options})
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found


def ack(api: Api, receipt: str, *results: Any) -> Any:
    """Acknowledge offsets, or results that are given whole."""
    given = [one if isinstance(one, dict) else {"offset": one} for one in results]
    return api.post("/deliveries/ack", {"receipt": receipt, "results": given})


def offsets(delivery: dict[str, Any]) -> list[int]:
    return [message["offset"] for message in delivery["messages"]]


def test_a_client_gets_json_whatever_type_a_consumer_of_the_group_has(
    api: Api, clean_registry: None
) -> None:
    """It has types of its own: it rejects what it cannot read, as it acknowledges the rest."""

    class Order(msgspec.Struct):
        number: int

    consumer("orders", group="mail", body=Order)(lambda message: None)
    made(api)
    send("orders", Order(1))
    send("orders", {"number": "one"})
    sequence("default")
    (delivery,) = pulled(api)
    bodies = [message["body"] for message in delivery["messages"]]
    assert bodies == [{"number": 1}, {"number": "one"}]
    reason = "$.number: expected int, got str"
    ack(api, delivery["receipt"], 0, {"offset": 1, "outcome": "reject", "reason": reason})
    assert reason in DeadMessage.objects.get().error


def test_a_group_is_made_once_and_stays_as_it_is(api: Api) -> None:
    first = api.put(GROUP, {"start": "latest", "max_retries": 3, "batch": 5})
    assert first.status_code == 201
    again = api.put(GROUP, {"max_retries": 9})
    assert (again.status_code, again.json()["max_retries"], again.json()["batch"]) == (200, 3, 5)
    other = api.put(GROUP, {"ordered": True})
    assert (other.status_code, other.json()["code"]) == (409, "group_mismatch")
    assert "@consumer" not in other.json()["detail"]


def test_a_new_group_on_a_topic_with_messages_must_say_where_it_starts(api: Api) -> None:
    fill(1)
    answer = api.put(GROUP, {})
    assert (answer.status_code, answer.json()["code"]) == (409, "start_needed")
    assert not ConsumerGroup.objects.exists()


@pytest.mark.parametrize("start", ["9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+10:00"])
def test_a_group_starts_at_no_time_that_is_none_in_utc(api: Api, start: str) -> None:
    fill(1)
    answer = api.put(GROUP, {"start": start})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")


def test_what_is_pulled_has_all_that_was_sent(api: Api) -> None:
    made(api)
    send("orders", {"number": "A7"}, key="A7", tag="paid", headers={"trace": "1"})
    send("orders", "text")
    send("orders", b"\x00\xff")
    sequence("default")
    (delivery,) = pulled(api)
    one, two, three = delivery["messages"]
    assert (one["body"], one["body_type"]) == ({"number": "A7"}, "json")
    assert (one["key"], one["tag"], one["headers"]) == ("A7", "paid", {"trace": "1"})
    assert (two["body"], two["body_type"]) == ("text", "text")
    assert base64.b64decode(three["body"]) == b"\x00\xff"
    assert (delivery["kind"], delivery["attempt"], offsets(delivery)) == ("new", 1, [0, 1, 2])
    assert one["created_at"].endswith("Z")


def test_nothing_is_handed_out_twice(api: Api) -> None:
    made(api)
    fill(5)
    (one,) = pulled(api, "one", batch=3)
    (two,) = pulled(api, "two", batch=3)
    assert (offsets(one), offsets(two)) == ([0, 1, 2], [3, 4])
    assert pulled(api, "three") == []


def test_an_ack_moves_progress_and_the_last_one_ends_the_delivery(api: Api) -> None:
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    first = ack(api, delivery["receipt"], 0, 1)
    assert (first.status_code, first.json()) == (200, {"open": 1, "progress": 2})
    assert ack(api, delivery["receipt"], 2).json() == {"open": 0, "progress": 3}
    assert Delivery.objects.get().state == State.DONE


def test_a_failure_is_retried_and_a_rejected_message_is_dead(api: Api) -> None:
    made(api)
    fill(4)
    (delivery,) = pulled(api)
    answer = ack(
        api,
        delivery["receipt"],
        0,
        {"offset": 1, "outcome": "retry", "delay": 30, "reason": "busy"},
        {"offset": 2, "outcome": "reject", "reason": "no such order"},
        {"offset": 3, "outcome": "fail", "reason": "broken"},
    )
    assert answer.json() == {"open": 0, "progress": 4}
    busy, broken = RetryMessage.objects.order_by("offset")
    assert (busy.offset, busy.attempt, busy.last_error) == (1, 2, "Retry: busy")
    assert broken.last_error == "HttpFailure: broken"
    letter = DeadMessage.objects.get()
    assert (letter.offset, letter.error) == (2, "no such order")
    assert Delivery.objects.get().state == State.RETRY


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([1], id="begins later"),
        pytest.param([0, 2], id="leaves one out"),
        pytest.param([1, 0], id="another order"),
        pytest.param([0, 0], id="twice"),
        pytest.param([0, 1, 2, 3], id="goes beyond"),
        pytest.param([{"offset": 0, "outcome": "done", "delay": 3}], id="a delay of no retry"),
        pytest.param([{"offset": 0, "outcome": "retry", "delay": -1}], id="a delay in the past"),
        pytest.param([{"offset": 0, "outcome": "retry", "delay": 1e300}], id="a delay for ever"),
        pytest.param([], id="nothing"),
    ],
)
def test_results_that_are_no_prefix_are_refused_and_change_nothing(
    api: Api, results: list[Any]
) -> None:
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    assert ack(api, delivery["receipt"], *results).status_code == 422
    assert Delivery.objects.get().progress == 0


def test_an_ack_whose_answer_was_lost_may_be_repeated(api: Api) -> None:
    """A client that takes a 410 for “drop your result” would undo what EMS has recorded."""
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    results = [0, {"offset": 1, "outcome": "fail"}]
    assert ack(api, delivery["receipt"], *results).json() == {"open": 1, "progress": 2}
    assert ack(api, delivery["receipt"], *results).json() == {"open": 1, "progress": 2}
    assert RetryMessage.objects.get().attempt == 2
    ack(api, delivery["receipt"], 2)
    again = ack(api, delivery["receipt"], 2)
    assert (again.status_code, again.json()) == (200, {"open": 0, "progress": 3})


def test_only_the_last_ack_may_be_repeated(api: Api) -> None:
    """Who is out of step with its delivery learns it: its results were not recorded."""
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    ack(api, delivery["receipt"], 0)
    ack(api, delivery["receipt"], 1)
    older = {"offset": 0, "outcome": "reject"}
    assert ack(api, delivery["receipt"], older).status_code == 422
    ack(api, delivery["receipt"], 2)
    assert ack(api, delivery["receipt"], older).status_code == 410
    assert ack(api, delivery["receipt"], 2).status_code == 200
    assert not DeadMessage.objects.exists()


def test_an_ack_that_comes_twice_at_once_is_told_of_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both requests have read the delivery before either of them records anything."""
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    told, counted = list[Any](), list[Any]()
    monkeypatch.setattr(outcomes, "handled", lambda *given: counted.append(given))
    monkeypatch.setattr(notices, "settled", lambda *given: told.append(given))
    both = [named(delivery["receipt"]).delivery for _ in range(2)]
    results = [outcomes.Result(0, "reject", "no such order")]
    assert [outcomes.acknowledge(one, results).open for one in both] == [0, 0]
    assert (len(told), len(counted), DeadMessage.objects.count()) == (1, 1, 1)


def test_a_client_that_overslept_changes_nothing(api: Api) -> None:
    made(api)
    fill(2)
    (delivery,) = pulled(api)
    Delivery.objects.update(deadline=UtcNow(timedelta(seconds=-1)))
    assert sweep("default") == 1
    late = ack(api, delivery["receipt"], 0, {"offset": 1, "outcome": "reject", "reason": "no"})
    assert (late.status_code, late.json()["code"]) == (410, "lease_lost")
    assert not DeadMessage.objects.exists()
    assert [retry.attempt for retry in RetryMessage.objects.all()] == [2, 2]
    for verb, more in (("extend", {"timeout": 60}), ("release", {})):
        answer = api.post(f"/deliveries/{verb}", {"receipt": delivery["receipt"], **more})
        assert answer.status_code == 410


def test_a_client_that_works_longer_than_a_process_may_be_silent_keeps_its_delivery(
    api: Api,
) -> None:
    """A process that renews nothing for 15 s is dead. A client that pulls sends no heartbeat."""
    made(api)
    fill(1)
    (delivery,) = pulled(api, timeout=60)
    # Twenty seconds go by: all instants are that much older.
    past = timedelta(seconds=-20)
    lease = Consumer.objects.get().lease_until + past
    deadline = Delivery.objects.get().deadline + past
    Consumer.objects.update(lease_until=lease)
    Delivery.objects.update(deadline=deadline)
    assert sweep("default") == 0
    assert ack(api, delivery["receipt"], 0).status_code == 200
    assert lease > deadline


def test_a_shorter_call_does_not_shorten_the_lease(api: Api) -> None:
    made(api)
    fill(2)
    pulled(api, timeout=300, batch=1)
    before = Consumer.objects.get().lease_until
    clients._known.clear()  # the next call comes to another process
    pulled(api, timeout=5, batch=1)
    assert pulled(api) == []
    assert Consumer.objects.get().lease_until >= before


def test_a_client_whose_row_another_process_deleted_gets_it_again(api: Api) -> None:
    made(api)
    fill(2)
    pulled(api, batch=1, timeout=100)
    Consumer.objects.all().delete()
    pulled(api, batch=1)
    assert sweep("default") == 0
    assert Consumer.objects.get().lease_until >= Delivery.objects.latest("pk").deadline


def test_the_lease_ends_soon_after_the_deadline(api: Api) -> None:
    """Otherwise nobody could tell a client that died with a message from one that was late."""
    made(api)
    fill(1)
    pulled(api, timeout=60)
    over = Consumer.objects.get().lease_until - Delivery.objects.get().deadline
    assert timedelta(0) < over < timedelta(seconds=15)


def test_a_message_with_which_two_clients_died_is_the_only_one_of_its_client(api: Api) -> None:
    made(api)
    fill(1)
    for _death in range(2):
        assert pulled(api, timeout=60)
        Consumer.objects.update(lease_until=UtcNow(timedelta(seconds=-1)))
        clients._known.clear()
        sweep("default")
        RetryMessage.objects.update(due_at=UtcNow())
    assert RetryMessage.objects.get().alone
    fill(3)
    (alone,) = pulled(api)
    assert offsets(alone) == [0]
    assert pulled(api) == []  # this client gets nothing more
    assert offsets(pulled(api, "another")[0]) == [1, 2, 3]
    ack(api, alone["receipt"], 0)
    fill(1)
    assert offsets(pulled(api)[0]) == [4]


def test_a_retry_spends_its_attempt_when_it_is_handed_out(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    ack(api, delivery["receipt"], {"offset": 0, "outcome": "retry", "delay": 0})
    (retry,) = pulled(api)
    assert (retry["kind"], retry["attempt"]) == ("retry", 2)
    Delivery.objects.open().update(deadline=UtcNow(timedelta(seconds=-1)))
    sweep("default")
    assert RetryMessage.objects.get().attempt == 3


def test_without_retries_a_death_ends_what_was_handed_out_and_nothing_else(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was claimed in a request that died before its answer, nobody has seen."""
    made(api, max_retries=0)
    fill(4)

    class Killed(BaseException):
        pass

    def die(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(handing_out, "hold", die)
        patch.setattr(handing_out, "take_back", lambda out: None)
        with pytest.raises(Killed):
            pulled(api, batch=2)
    Delivery.objects.held().update(deadline=UtcNow(timedelta(seconds=-1)))
    sweep("default")
    assert not DeadMessage.objects.exists()
    (delivery,) = pulled(api, batch=2)
    assert (offsets(delivery), delivery["attempt"]) == ([0, 1], 1)
    ack(api, delivery["receipt"], 0)
    Delivery.objects.held().update(deadline=UtcNow(timedelta(seconds=-1)))
    sweep("default")
    assert DeadMessage.objects.get().offset == 1
    assert offsets(pulled(api)[0]) == [2, 3]


def test_retries_and_new_messages_take_turns(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "in_test_case", lambda using: False)
    made(api)
    fill(4)
    (delivery,) = pulled(api)
    busy = [{"offset": n, "outcome": "retry", "delay": 0} for n in range(4)]
    ack(api, delivery["receipt"], *busy)
    fill(4)
    remembered.forget()  # who has just looked for retries does not look again at once
    kinds = [pulled(api, batch=2)[0]["kind"] for _ in range(4)]
    assert kinds == ["retry", "new", "retry", "new"]


def test_what_has_no_attempt_left_is_dead_before_anything_is_handed_out(api: Api) -> None:
    made(api, max_retries=3)
    fill(2)
    (delivery,) = pulled(api)
    ack(api, delivery["receipt"], {"offset": 0, "outcome": "retry", "delay": 0}, 1)
    RetryMessage.objects.update(attempt=5)
    assert pulled(api) == []
    letter = DeadMessage.objects.get()
    assert (letter.offset, letter.attempts) == (0, 4)
    assert letter.error_class.endswith("AttemptsExhausted")


def test_a_release_spends_no_attempt(api: Api) -> None:
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    ack(api, delivery["receipt"], 0)
    answer = api.post("/deliveries/release", {"receipt": delivery["receipt"]})
    assert answer.json() == {"released": 2}
    assert ack(api, delivery["receipt"], 1).status_code == 410
    (again,) = pulled(api, "two")
    assert (offsets(again), again["attempt"]) == ([1, 2], 1)


def test_a_receipt_is_looked_up_with_all_that_ends_its_delivery(api: Api) -> None:
    """What is read later could be read elsewhere, by the project's routers."""
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    later = named(delivery["receipt"]).delivery.get_deferred_fields()
    assert not later & {"settled", "progress", "last_offset", "errors", "parked"}


def test_a_receipt_without_a_token_takes_no_range_that_was_given_back(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    api.post("/deliveries/release", {"receipt": delivery["receipt"]})
    pk = Delivery.objects.given_back().get().pk
    for receipt in (f"{pk}.", str(pk), f"{pk}.{'0' * 31}", f"-{pk}.{'0' * 32}", "x" * 60):
        assert ack(api, receipt, 0).status_code == 422
    assert ack(api, f"{pk}.{'0' * 32}", 0).status_code == 410


def test_a_client_that_leaves_gives_all_back(api: Api) -> None:
    made(api)
    fill(4)
    pulled(api, "one", batch=2)
    (other,) = pulled(api, "two", batch=1)
    assert api.delete(f"{GROUP}/clients/one").status_code == 204
    assert Consumer.objects.get().client_id.endswith("@two")
    found = [pulled(api, "three", batch=2) for _ in range(2)]
    assert sorted(offset for one in found for d in one for offset in offsets(d)) == [0, 1, 3]
    assert ack(api, other["receipt"], 2).status_code == 200


def test_extend_moves_deadline_and_lease(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api, timeout=10)
    answer = api.post("/deliveries/extend", {"receipt": delivery["receipt"], "timeout": 200})
    assert answer.json()["deadline"] > delivery["deadline"]
    assert Consumer.objects.get().lease_until > Delivery.objects.get().deadline
    for seconds in (0, 601):
        wrong = {"receipt": delivery["receipt"], "timeout": seconds}
        assert api.post("/deliveries/extend", wrong).status_code == 422


def test_a_receipt_of_an_ended_delivery_begins_no_lease(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    ack(api, delivery["receipt"], 0)
    api.delete(f"{GROUP}/clients/one")
    asked = {"receipt": delivery["receipt"], "timeout": 600}
    assert api.post("/deliveries/extend", asked).status_code == 410
    assert not Consumer.objects.exists()


def test_a_repeated_request_gets_the_same_delivery(api: Api) -> None:
    made(api)
    fill(6)
    (first,) = pulled(api, batch=3, request_id="request-0001")
    (again,) = pulled(api, batch=3, request_id="request-0001")
    assert (again["receipt"], offsets(again)) == (first["receipt"], [0, 1, 2])
    ack(api, first["receipt"], 0)
    (rest,) = pulled(api, batch=3, request_id="request-0001")
    assert (rest["first_offset"], offsets(rest)) == (1, [1, 2])
    (other,) = pulled(api, "two", batch=3, request_id="request-0001")
    assert offsets(other) == [3, 4, 5]
    ack(api, first["receipt"], 1, 2)
    assert pulled(api, batch=3, request_id="request-0001") == []


def test_an_ordered_group_ends_at_its_first_failure(api: Api) -> None:
    made(api, ordered=True)
    fill(4)
    (delivery,) = pulled(api)
    failed = {"offset": 1, "outcome": "retry", "delay": 0}
    beyond = ack(api, delivery["receipt"], 0, failed, 2)
    assert beyond.status_code == 422
    assert pulled(api, "two") == []  # the cursor waits for the delivery
    assert ack(api, delivery["receipt"], 0, failed).json() == {"open": 0, "progress": 2}
    assert ack(api, delivery["receipt"], 0, failed).status_code == 200  # its answer was lost
    (again,) = pulled(api, "two")
    assert (offsets(again), again["attempt"]) == ([1], 2)
    ack(api, again["receipt"], 1)
    assert offsets(pulled(api)[0]) == [2, 3]


def test_in_a_group_by_key_results_behind_a_failure_of_their_key_do_not_count(api: Api) -> None:
    made(api, ordered="key")
    send_many([Outgoing("orders", n, key=key) for n, key in enumerate("abaac")])
    sequence("default")
    (delivery,) = pulled(api)
    failed = {"offset": 0, "outcome": "retry", "delay": 60}
    assert ack(api, delivery["receipt"], failed, 1, 2).json() == {"open": 0, "progress": 3}
    # What was not named is given back; of it, 3 waits for its key.
    (rest,) = pulled(api)
    assert offsets(rest) == [4]
    assert ack(api, rest["receipt"], 4).json()["open"] == 0
    assert pulled(api) == []
    assert list(HeldKey.objects.values_list("key", "head_offset")) == [("a", 0)]
    for offset in (0, 2, 3):
        RetryMessage.objects.exclude(due_at=None).update(due_at=UtcNow())
        (again,) = pulled(api)
        assert offsets(again) == [offset]
        ack(api, again["receipt"], offset)
    assert pulled(api) == []
    assert not HeldKey.objects.exists()


def test_an_ack_of_a_group_by_key_with_too_many_parked_may_be_repeated(api: Api) -> None:
    made(api, ordered="key")
    SystemConfig.objects.create(name="parkedMessagesMax", value=1)
    remembered.forget()
    send_many([Outgoing("orders", n, key=key) for n, key in enumerate("abcd")])
    sequence("default")
    (delivery,) = pulled(api, batch=1)
    ack(api, delivery["receipt"], {"offset": 0, "outcome": "retry", "delay": 60})
    (delivery,) = pulled(api)
    results = 1, {"offset": 2, "outcome": "retry", "delay": 60}, 3
    first = ack(api, delivery["receipt"], *results)
    assert first.json() == {"open": 0, "progress": 3}  # no more is parked: the failure blocks
    again = ack(api, delivery["receipt"], *results)
    assert (again.status_code, again.json()) == (200, first.json())


def test_in_an_ordered_group_what_failed_before_is_handed_out_by_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "in_test_case", lambda using: False)
    made(api, ordered=True)
    two = Partition.objects.create(topic=ConsumerGroup.objects.get().topic, number=1)
    Cursor.objects.create(group=ConsumerGroup.objects.get(), partition=two, next_offset=0)
    fill(2, partition=0)
    (first,) = pulled(api)
    ack(api, first["receipt"], {"offset": 0, "outcome": "retry", "delay": 0})
    fill(3, partition=1)
    found = [pulled(api, f"client-{number}") for number in range(2)]
    places = [[(one["partition"], one["attempt"]) for one in answer] for answer in found]
    assert sorted(places) == [[(0, 2)], [(1, 1)]]


def test_a_broadcast_group_cannot_be_pulled(api: Api) -> None:
    made(api)
    ConsumerGroup.objects.update(mode="broadcast")
    remembered.forget()
    answer = api.post(f"{GROUP}/pull", {"client": "one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "group_mismatch")
    assert api.put(GROUP, {}).status_code == 409


def test_a_group_with_a_rate_for_each_key_cannot_be_pulled_until_that_is_lifted(api: Api) -> None:
    made(api)
    fill(1)
    ConsumerGroup.objects.update(rate_in_code="5/s, burst=1, each key")
    remembered.forget()
    answer = api.post(f"{GROUP}/pull", {"client": "one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "group_mismatch")
    assert "each key" in answer.json()["detail"]
    ConsumerGroup.objects.update(rate="unlimited")
    remembered.forget()
    assert len(pulled(api)) == 1


def test_a_paused_group_hands_out_nothing(api: Api) -> None:
    made(api)
    fill(1)
    ConsumerGroup.objects.pause()
    answer = api.post(f"{GROUP}/pull", {"client": "one"})
    assert answer.json() == {"deliveries": [], "paused": True, "retry_after": None, "acks": []}
    ConsumerGroup.objects.resume()
    assert len(pulled(api)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_group_that_was_deleted_a_moment_ago_is_404(api: Api, transactional_db: None) -> None:
    made(api)
    pulled(api)  # the web server knows the group now
    api.delete(f"{GROUP}/clients/one")
    delete_group(ConsumerGroup.objects.get())
    answer = api.post(f"{GROUP}/pull", {"client": "one"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_group")


def test_while_the_database_is_away_all_who_look_for_a_group_fail_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, tries = list[int](), list[int]()
    lock = threading.Lock()

    class Counted:
        def __enter__(self) -> None:
            entered.append(1)
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

    def away(*place: str) -> None:
        tries.append(1)
        wait_for(lambda: len(entered) == 4)
        raise OperationalError(1, "gone")

    def look() -> None:
        with pytest.raises(OperationalError):
            groups.pulled("orders", "mail", "default")

    monkeypatch.setattr(groups, "_reading", {"default": Counted()})
    monkeypatch.setattr(groups, "_find", away)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(look) for _ in range(4)]:
            done.result()
    assert len(tries) == 1


def test_pulls_of_one_process_wait_for_a_cursor_in_the_process(
    api: Api, transactional_db: None
) -> None:
    """Not in the server, with a transaction open; also after the group has been read anew."""
    made(api)
    fill(2)
    cursor = Cursor.objects.get().pk
    known = groups.pulled("orders", "mail", "default")
    with ThreadPoolExecutor(1) as threads, known.locks.taken(cursor, wait=True):
        known.fresh_until = 0.0
        found = threads.submit(pulled, api)
        wait_for(lambda: known.locks._waiting[cursor])
        assert not Delivery.objects.exists()
        threads.submit(connections.close_all)
    assert [offsets(delivery) for delivery in found.result()] == [[0, 1]]


def test_an_unknown_group_is_404(api: Api) -> None:
    answer = api.post(f"{GROUP}/pull", {"client": "one"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_group")


@pytest.mark.parametrize(
    "wrong",
    [
        {"client": ""},
        {"client": "a b"},
        {"client": "x" * 128},
        {"client": "a", "batch": 0},
        {"client": "a", "batch": 1001},
        {"client": "a", "hold": 21},
        {"client": "a", "timeout": 0},
        {"client": "a", "timeout": 601},
        {"client": "a", "request_id": "short"},
        {"batch": 1},
    ],
)
def test_a_wrong_pull_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    made(api)
    fill(1)
    assert api.post(f"{GROUP}/pull", wrong).status_code == 422
    assert not Delivery.objects.exists()


def test_a_receipt_of_another_group_needs_the_right_for_it(
    api: Api, make_token: Callable[..., str]
) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    api.token = make_token("consume:orders/other")
    answer = ack(api, delivery["receipt"], 0)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert Delivery.objects.get().progress == 0


def test_purged_messages_are_passed_over_and_counted(api: Api) -> None:
    made(api)
    fill(5)
    Message.objects.filter(offset__lt=2).delete()
    Partition.objects.update(first_offset=2)
    (delivery,) = pulled(api)
    assert (delivery["first_offset"], offsets(delivery)) == (2, [2, 3, 4])
    assert Delivery.objects.get().missing == 2
    assert ack(api, delivery["receipt"], 2, 3, 4).json()["open"] == 0


def test_a_body_that_is_not_there_yet_is_read_once_more(api: Api) -> None:
    made(api)
    fill(5)
    Message.objects.filter(offset__in=[0, 3]).delete()
    delivery, rest = pulled(api, batch=5)
    assert (offsets(delivery), offsets(rest)) == ([1, 2], [4])
    assert ack(api, delivery["receipt"], 1, 2).json()["open"] == 0
    assert sorted(RetryMessage.objects.values_list("offset", "attempt")) == [(0, 1), (3, 1)]
    RetryMessage.objects.update(due_at=UtcNow())
    remembered.forget()
    assert pulled(api) == pulled(api) == []
    assert not RetryMessage.objects.exists()  # now they count as missing
    assert sum(Delivery.objects.values_list("missing", flat=True)) == 2


def test_an_ordered_group_waits_for_a_body_that_is_not_there_yet(api: Api) -> None:
    made(api, ordered=True)
    fill(4)
    Message.objects.filter(offset=1).delete()
    (delivery,) = pulled(api)
    assert offsets(delivery) == [0]
    assert Cursor.objects.get().next_offset == 1
    ack(api, delivery["receipt"], 0)
    assert pulled(api) == []
    assert Cursor.objects.get().next_offset == 1


def test_an_answer_has_no_more_bytes_than_a_handler_call(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.deliver.reading.CLAIM_BYTES", 100)
    made(api)
    for _ in range(3):
        send("orders", "x" * 60)
    sequence("default")
    (delivery, *more) = pulled(api, batch=3)
    assert offsets(delivery) == [0]
    assert ack(api, delivery["receipt"], 0).json()["open"] == 0
    found = [offset for d in more for offset in offsets(d)]
    while len(found) < 2:
        found += [offset for d in pulled(api, batch=3) for offset in offsets(d)]
    assert found == [1, 2]


def test_several_partitions_fill_one_answer(api: Api) -> None:
    send("orders", 1)
    Partition.objects.create(topic=Partition.objects.get().topic, number=1)
    made(api)
    send("orders", 2, partition=1)
    sequence("default")
    assert {d["partition"] for d in pulled(api, batch=10)} == {0, 1}


def test_a_topic_may_grow_between_a_pull_and_its_ack(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a process that has read the partitions of the topic a moment ago."""
    monkeypatch.setattr(groups, "in_test_case", lambda using: False)
    made(api)
    fill(2)
    (before,) = pulled(api, batch=1)
    assert ack(api, before["receipt"], 0).status_code == 200
    (before,) = pulled(api, batch=1)
    grow(Topic.objects.get(), 3, "default")
    fill(1, partition=2)
    (new,) = pulled(api, "two")
    assert (new["partition"], offsets(new)) == (2, [0])
    for delivery in (new, before):
        answer = ack(api, delivery["receipt"], *offsets(delivery))
        assert (answer.status_code, answer.json()["open"]) == (200, 0)


def test_what_a_stale_token_holds_cannot_be_settled_below_the_endpoint(api: Api) -> None:
    made(api)
    fill(2)
    (delivery,) = pulled(api)
    held = named(delivery["receipt"]).delivery
    settle(held, 1, max_retries=16)
    stale = named(delivery["receipt"]).delivery
    Delivery.objects.update(token="")
    with pytest.raises(LeaseLost):
        outcomes.acknowledge(stale, [outcomes.Result(1)])
