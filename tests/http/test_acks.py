"""Acks of several deliveries in one request: in a pull, and by themselves."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from streams.http.access import ApiRequest, Caller
from streams.http.pulling import groups, outcomes, receipts
from streams.http.routes import pull as routes
from streams.models import ConsumerGroup, Cursor, Delivery, RetryMessage, State, UtcNow
from streams.steps.sweep import sweep
from tests.http.conftest import Api
from tests.http.test_pulling import GROUP, fill, made, offsets, pulled

pytestmark = pytest.mark.django_db

OTHER = "/topics/orders/groups/stock"


@pytest.fixture(autouse=True)
def caller(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("send:orders", "consume:orders/*")


def ack(delivery: dict[str, Any], *results: Any) -> dict[str, Any]:
    """Return the ack of these offsets, or results that are given whole; of all without any."""
    given = results or offsets(delivery)
    return {
        "receipt": delivery["receipt"],
        "results": [one if isinstance(one, dict) else {"offset": one} for one in given],
    }


def pulled_with(api: Api, *acks: Any, path: str = GROUP, **options: Any) -> Any:
    return api.post(f"{path}/pull", {"client": "one", "acks": acks, **options})


def said(answer: Any) -> list[Any]:
    """Return of each ack how many are open, or the code of its problem."""
    assert answer.status_code == 200, answer.content
    acks = answer.json()["acks"]
    return [one["problem"]["code"] if one["problem"] else one["open"] for one in acks]


def states() -> list[str]:
    return [*Delivery.objects.order_by("pk").values_list("state", flat=True)]


def test_a_pull_records_acks_and_hands_out_what_is_next(api: Api) -> None:
    made(api)
    fill(3)
    first, second = (pulled(api, batch=1)[0] for _ in range(2))
    failed = ack(second, {"offset": 1, "outcome": "retry", "delay": 30, "reason": "busy"})
    answer = pulled_with(api, ack(first), failed)
    assert said(answer) == [0, 0]
    assert answer.json()["acks"][0] == {"open": 0, "progress": 1, "problem": None}
    (third,) = answer.json()["deliveries"]
    assert offsets(third) == [2]
    assert states() == [State.DONE, State.RETRY, State.START]
    assert RetryMessage.objects.get().offset == 1
    assert said(pulled_with(api, ack(third))) == [0]


def test_a_pull_without_acks_says_nothing_of_any(api: Api) -> None:
    made(api)
    assert pulled_with(api).json()["acks"] == []


def test_in_an_ordered_group_the_ack_lets_the_same_pull_go_on(api: Api) -> None:
    made(api, ordered=True)
    fill(2)
    (first,) = pulled(api, batch=1)
    assert pulled(api, batch=1) == []
    (second,) = pulled_with(api, ack(first), batch=1).json()["deliveries"]
    assert offsets(second) == [1]


def test_what_is_wrong_with_one_ack_stops_no_other(api: Api) -> None:
    made(api)
    fill(5)
    stale, gap, good, last = (pulled(api, batch=1)[0] for _ in range(4))
    Delivery.objects.filter(first_offset=0).update(deadline=UtcNow())
    sweep("default")
    acks = [
        ack(stale),
        {"receipt": "nonsense", "results": [{"offset": 0}]},
        ack(gap, 7),
        ack(good, {"offset": 2, "outcome": "done", "delay": 3}),
        ack(last),
    ]
    answer = pulled_with(api, *acks, batch=1)
    assert said(answer) == ["lease_lost", *["invalid_value"] * 3, 0]
    assert [one["problem"]["status"] for one in answer.json()["acks"][:2]] == [410, 422]
    assert offsets(answer.json()["deliveries"][0]) in ([4], [0])
    assert Delivery.objects.get(first_offset=3).state == State.DONE
    assert set(Delivery.objects.filter(first_offset__in=[1, 2]).values_list("state")) == {
        (State.START,)
    }


def test_a_receipt_may_come_twice(api: Api) -> None:
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    parts = [ack(delivery, 0), ack(delivery, 0), ack(delivery, 1, 2), ack(delivery, 0)]
    assert said(pulled_with(api, *parts)) == [2, 2, 0, "lease_lost"]
    assert Delivery.objects.get().progress == 3


def test_acks_may_be_of_another_group_that_the_token_may_consume(
    api: Api, make_token: Callable[..., str]
) -> None:
    made(api)
    assert api.put(OTHER, {"start": "earliest"}).status_code == 201
    fill(1)
    (mail,) = pulled(api)
    (stock,) = pulled_with(api, path=OTHER).json()["deliveries"]
    owner, api.token = api.token, make_token("consume:orders/mail")
    assert said(pulled_with(api, ack(stock), ack(mail))) == ["forbidden", 0]
    assert sorted(states()) == [State.DONE, State.START]
    api.token = owner
    assert said(pulled_with(api, ack(stock))) == [0]


def test_a_pull_that_fails_after_its_acks_may_be_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(api)
    fill(2)
    (first,) = pulled(api, batch=1)
    with monkeypatch.context() as patch:

        def away(*args: Any) -> Any:
            raise OperationalError(2013, "Lost connection")

        patch.setattr(routes, "hand_out", away)
        answer = pulled_with(api, ack(first))
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert states() == [State.DONE]  # the acks stay
    answer = pulled_with(api, ack(first))
    assert said(answer) == [0]
    assert offsets(answer.json()["deliveries"][0]) == [1]


def test_without_a_database_for_the_acks_nothing_is_handed_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(api)
    fill(2)
    (first,) = pulled(api, batch=1)

    def away(*args: Any) -> Any:
        raise OperationalError(2013, "Lost connection")

    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "acknowledge", away)
        assert pulled_with(api, ack(first)).status_code == 503
    assert Cursor.objects.get().next_offset == 1
    assert said(pulled_with(api, ack(first))) == [0]


@pytest.mark.parametrize(
    ("path", "wrong", "status"),
    [
        (GROUP, {"timeout": 0}, 422),
        (GROUP, {"client": "a@b\x00"}, 422),
        (GROUP, {"batch": 0}, 422),
        ("/topics/orders/groups/nobody", {}, 404),
        ("/topics/mails/groups/mail", {}, 403),
    ],
)
def test_a_wrong_pull_records_nothing(api: Api, path: str, wrong: Any, status: int) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    assert pulled_with(api, ack(delivery), path=path, **wrong).status_code == status
    assert states() == [State.START]


@pytest.mark.parametrize("hold", [0, 0.1])
def test_acks_are_recorded_where_nothing_is_handed_out(api: Api, hold: float) -> None:
    made(api)
    fill(2)
    first, second = (pulled(api, batch=1)[0] for _ in range(2))
    assert said(pulled_with(api, ack(first), hold=hold)) == [0]
    ConsumerGroup.objects.update(paused=True)
    groups._known.clear()
    answer = pulled_with(api, ack(second), hold=hold)
    assert (said(answer), answer.json()["paused"]) == ([0], True)


def test_several_deliveries_are_acknowledged_by_one_request(api: Api) -> None:
    made(api)
    fill(3)
    one, two = (pulled(api, batch=1)[0] for _ in range(2))
    (held,) = pulled(api)
    wrong = {"receipt": f"7{held['receipt']}", "results": [{"offset": 2}]}
    answer = api.post("/deliveries/acks", {"acks": [ack(one), wrong, ack(two)]})
    assert said(answer) == [0, "lease_lost", 0]
    assert states() == [State.DONE, State.DONE, State.START]


def test_a_request_has_so_many_acks_and_no_more(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    acks = [ack(delivery)] * (routes.MAX_ACKS + 1)
    assert pulled_with(api, *acks).status_code == 422
    for some in (acks, []):
        assert api.post("/deliveries/acks", {"acks": some}).status_code == 422
    assert states() == [State.START]


# -- what a process remembers of what it has handed out --


@pytest.mark.django_db(transaction=True)
def test_a_pull_and_its_ack_are_a_few_statements(transactional_db: None) -> None:
    """Each is processor time of two servers; see docs/guides/http.md."""
    groups.ensure_group("orders", "mail", "default")
    fill(4)
    place = (
        "orders",
        "mail",
        "http@x@one",
        routes.Pull.model_validate({"client": "one", "batch": 1}),
    )
    request = ApiRequest()
    request.auth = Caller(1, "x", "x", "", "", None, 1, frozenset({("consume", "*/*")}))

    def pulled_once(*acks: routes.Ack) -> routes.Ack:
        acking = routes.Acking(request, acks)
        (handed,) = routes._look(*place, acking, 0.0, threading.Event()).handed
        results = [{"offset": handed.messages[0].offset}]
        receipt = receipts.receipt_of(handed.delivery)
        return routes.Ack.model_validate({"receipt": receipt, "results": results})

    first = pulled_once(pulled_once())  # what is read once is known
    with CaptureQueriesContext(connection) as noted:
        pulled_once(first)
    # Looks that are made a few times a second, for all clients, and the ends of a transaction.
    others = r"BEGIN|COMMIT|SELECT (1|d\.`id`, d\.`partition_id`|c\.`id`, c\.`partition_id`)"
    made = [one["sql"].split()[0] for one in noted if not re.match(others, one["sql"])]
    assert made == [
        "UPDATE",  # the ack
        *("SELECT", "UPDATE", "INSERT"),  # the claim
        *("SELECT", "SELECT"),  # the messages; the deadline and the lease
    ]


def test_a_wrong_token_settles_nothing_that_this_process_has_handed_out(api: Api) -> None:
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    number, _dot, token = delivery["receipt"].partition(".")
    wrong = {**delivery, "receipt": f"{number}.{token[::-1]}"}
    assert said(pulled_with(api, ack(wrong))) == ["lease_lost"]
    assert states() == [State.START]
    assert said(pulled_with(api, ack(delivery))) == [0]


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        ({"progress": 1}, "invalid_value"),
        ({"state": State.RELEASED}, "lease_lost"),
        ({"token": "0" * 32}, "lease_lost"),
    ],
)
def test_what_another_process_has_changed_counts(
    api: Api, meanwhile: dict[str, Any], expected: str
) -> None:
    made(api)
    fill(3)
    (delivery,) = pulled(api)
    Delivery.objects.update(**meanwhile)
    assert said(pulled_with(api, ack(delivery))) == [expected]
    assert Delivery.objects.get().progress == meanwhile.get("progress", 0)
    if expected == "invalid_value":
        assert said(pulled_with(api, ack(delivery, 1, 2))) == [0]


def test_parts_of_a_delivery_are_acknowledged_by_several_processes(api: Api) -> None:
    made(api)
    fill(4)
    (delivery,) = pulled(api)
    assert said(pulled_with(api, ack(delivery, 0))) == [3]
    receipts._handed.clear()  # another process
    assert said(pulled_with(api, ack(delivery, 1))) == [2]
    assert said(pulled_with(api, ack(delivery, 2, 3))) == [0]
    assert states() == [State.DONE]


def test_a_process_remembers_so_many_deliveries(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "REMEMBERED", 2)
    made(api)
    fill(3)
    some = [pulled(api, batch=1)[0] for _ in range(3)]
    assert len(receipts._handed) == 2
    assert said(pulled_with(api, *map(ack, some))) == [0, 0, 0]
