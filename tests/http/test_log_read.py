"""Clients read the log by offsets, and keep their position themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import send
from streams.http.pulling import log
from streams.log import bodies
from streams.log.sequencer import sequence
from streams.models import Delivery, Message, Partition, Topic
from tests.http.conftest import Api

pytestmark = pytest.mark.django_db

LOG = "/topics/orders/partitions/0/messages"


@pytest.fixture(autouse=True)
def five(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("read:orders", "body:orders")
    for number in range(5):
        send("orders", {"number": number}, key=str(number))
    sequence("default")


def read(api: Api, start: int, **options: Any) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in {"from": start, **options}.items())
    return api.get(f"{LOG}?{asked}")


def test_the_log_is_read_in_stretches_to_its_end(api: Api) -> None:
    first = read(api, 0, limit=3).json()
    assert [message["body"]["number"] for message in first["messages"]] == [0, 1, 2]
    assert (first["next"], first["first"], first["end"]) == (3, 0, 5)
    rest = read(api, first["next"]).json()
    assert ([message["key"] for message in rest["messages"]], rest["next"]) == (["3", "4"], 5)
    assert read(api, 5).json()["messages"] == []
    assert not Delivery.objects.exists()


def test_without_the_right_there_are_no_bodies(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("read:orders")
    (message,) = read(api, 0, limit=1).json()["messages"]
    assert (message["body"], message["key"]) == (None, "0")


def test_what_was_purged_is_said(api: Api) -> None:
    Partition.objects.update(first_offset=3)
    Message.objects.filter(offset__lt=3).delete()
    answer = read(api, 1)
    assert (answer.status_code, answer.json()["code"], answer.json()["first"]) == (410, "purged", 3)
    assert read(api, 3).json()["first"] == 3


def test_a_purge_during_the_read_is_said(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client would take a gap for the end of the purge."""

    def purged_meanwhile(*place: Any) -> list[Any]:
        Partition.objects.update(first_offset=4)
        Message.objects.filter(offset__lt=4).delete()
        return stored(*place)

    stored = bodies.stored_messages
    monkeypatch.setattr(log, "stored_messages", purged_meanwhile)
    assert read(api, 0).json()["first"] == 4


def test_beyond_the_end_there_is_nothing(api: Api) -> None:
    answer = read(api, 6)
    assert (answer.status_code, answer.json()["code"]) == (409, "offset_out_of_range")


def test_what_cannot_be_read_is_refused(api: Api) -> None:
    unknown = api.get("/topics/orders/partitions/7/messages?from=0")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_partition")
    assert read(api, -1).status_code == read(api, 0, limit=0).status_code == 422
    assert read(api, 0, hold=21).status_code == api.get(LOG).status_code == 422
    Topic.objects.update(access="denied")
    assert read(api, 0).json()["code"] == "topic_denied"


def test_an_answer_has_no_more_bytes_than_a_handler_call(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.log.bodies.CLAIM_BYTES", 30)
    answer = read(api, 0).json()
    assert 1 <= len(answer["messages"]) < 5
    assert answer["next"] == len(answer["messages"])
