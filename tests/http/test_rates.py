"""Clients that pull for a group with a rate get what may begin at the moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams.models import ConsumerGroup, Delivery, RateBucket
from tests.http.conftest import Api
from tests.http.test_pulling import fill, made, pulled

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def caller(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("send:orders", "consume:orders/*")


def numbers(api: Api, client: str) -> list[int]:
    deliveries = pulled(api, client, batch=10)
    return [one["body"]["number"] for held in deliveries for one in held["messages"]]


def test_what_is_handed_out_counts(api: Api) -> None:
    made(api)
    ConsumerGroup.objects.update(rate="10/h, burst=1")
    fill(3)
    assert numbers(api, "one") == [0]
    assert numbers(api, "one") == numbers(api, "two") == []
    assert Delivery.objects.count() == 1
    RateBucket.objects.update(next_slot=0)
    assert numbers(api, "two") == [1]


def test_a_burst_is_handed_out_at_once(api: Api) -> None:
    made(api)
    ConsumerGroup.objects.update(rate="10/h, burst=5")
    fill(9)
    assert numbers(api, "one") == [0, 1, 2, 3]
