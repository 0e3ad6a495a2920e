"""One box finds messages by id, place, key, tag and time, and says where it has stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.pages import search as page
from monitoring.pages.search import SearchPage
from streams import Outgoing, send_many
from streams.log import search as log
from streams.log.search import STEPS
from streams.models import Message, Topic
from streams.testing import drain
from tests.monitoring.test_pages import (  # noqa: F401 - fixtures
    WITHOUT_BANNER,
    user_with,
    viewer,
    world,
)

pytestmark = pytest.mark.django_db


def found(client: Any, **query: str) -> dict[str, Any]:
    response = client.get(SearchPage.url(), {**query, "format": "json"})
    assert response.status_code == 200
    return response.json()  # type: ignore[no-any-return]


def places(client: Any, **query: str) -> list[str]:
    return [hit["place"] for hit in found(client, **query)["hits"]]


@pytest.fixture
def orders(world, viewer):  # noqa: F811
    send_many([Outgoing("stock", n, key=f"s-{n}", tag="shop") for n in range(6)])
    send_many([Outgoing("stock", n, key="12") for n in range(2)])
    drain()
    return viewer


def test_an_id_a_place_a_key_and_a_tag_are_told_apart(orders):
    message = Message.objects.get(key="s-3")
    assert places(orders, q=str(message.pk)) == ["stock/0@3"]
    assert places(orders, q="stock/0@4") == ["stock/0@4"]
    assert places(orders, q="stock@4-5") == ["stock/0@4", "stock/0@5"]
    Message.objects.filter(key="s-3").update(offset=666687)
    assert places(orders, q="stock/0@666,687") == ["stock/0@666687"]
    assert places(orders, q="s-2") == ["stock/0@2"]
    assert places(orders, q="tag:shop") == [f"stock/0@{n}" for n in (5, 4, 2, 1, 0)]
    assert places(orders, q="nothing") == []


def test_a_number_that_is_no_id_may_be_a_key(orders):
    Message.objects.filter(key="12").update(key="987654321")
    assert places(orders, q="987654321") == ["stock/0@7", "stock/0@6"]


def test_times_are_utc_and_bound_the_search(orders):
    at = Message.objects.get(key="s-3").sequenced_at
    form = "%Y-%m-%dT%H:%M:%S"
    assert at is not None
    hour = timedelta(hours=1)
    since, until = ((at + step).strftime(form) for step in (-hour, hour))
    assert places(orders, q="s-3", since=since, until=until) == ["stock/0@3"]
    assert places(orders, q="s-3", since=until) == []
    assert places(orders, q="s-3", until=since) == []
    assert len(places(orders, since=since)) > 6


@pytest.mark.parametrize("since", ["soon", "2026-13-45T00:00", "9999"])
def test_a_time_that_is_none_is_said(orders, since):
    assert found(orders, q="s-3", since=since)["error"] == f"'{since}' is not a time."


def test_a_search_that_stops_says_so_and_goes_on(orders, monkeypatch):
    monkeypatch.setattr(page, "SHOWN", 2)
    first = found(orders, q="tag:shop")
    assert [hit["place"] for hit in first["hits"]] == ["stock/0@5", "stock/0@4"]
    assert first["then"]
    text = orders.get(SearchPage.url(), {"q": "tag:shop"}).text
    assert "older messages are not searched yet" in text
    assert 'data-refresh="off"' in text  # it would overwrite what somebody is typing
    assert places(orders, q="tag:shop", then=first["then"]) == ["stock/0@3", "stock/0@2"]
    assert found(orders, q="tag:shop", then="x")["error"]


def test_what_is_found_is_escaped_and_read_by_few_statements(orders):
    Message.objects.filter(key="s-3").update(key="<script>")
    with CaptureQueriesContext(connection) as queries:
        text = orders.get(SearchPage.url(), {"q": "<script>"}, headers=WITHOUT_BANNER).text
    assert "&lt;script&gt;" in text
    assert "<script>" not in text.partition("</head>")[2].replace("<script src", "")
    assert len(queries) <= 12  # two of them for each of the two partitions


def test_a_search_by_key_says_how_far_it_is_and_names_the_command_that_makes_it_quick(
    orders, monkeypatch
):
    monkeypatch.setattr(log, "SEARCHED", 2)
    monkeypatch.setattr(log, "ENTRIES", 2)
    first = found(orders, q="s-1")
    kept = Message.objects.exclude(offset=None).count()
    assert (first["hits"], first["left"]) == ([], kept - 4)  # two of each of the two partitions
    assert first["lacking"] == ["stock", "orders"]
    text = orders.get(SearchPage.url(), {"q": "s-1"}).text
    assert f'data-left="{kept - 4}"' in text
    assert f'data-steps="{STEPS}"' in text
    assert "python manage.py ems_topics index stock" in text
    assert "Nothing was found so far." in text
    assert "ems/further.js" in text
    assert found(orders, q="tag:none")["lacking"] == []
    stock = Topic.objects.get(name="stock").partitions.get()
    text = orders.get(SearchPage.url(), {"q": "s-1", "then": f"{stock.pk}@2"}).text
    assert "All messages have been searched." in text
    Topic.objects.get(name="stock").partitions.update(keys_from=0)
    assert "ems_topics index stock" not in orders.get(SearchPage.url(), {"q": "s-1"}).text
    assert "searched" not in orders.get(SearchPage.url(), {"q": "stock/0@1"}).text
