"""Lists: the same number of statements for any number of rows, and nothing that scans."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from streams import send
from streams.admin.base import StreamsAdmin
from streams.admin.pages import dead as page_of_letters
from streams.admin.pages.dead import DeadMessageAdmin
from streams.admin.pages.message import MessageAdmin
from streams.admin.parts import listing
from streams.consume.outcome.dead_letter import redrive
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Step,
    SystemConfig,
    Topic,
)
from streams.models.consumer import LEASE
from streams.models.fields import UtcNow
from streams.testing import drain
from tests.admin.test_roles import REGISTERED

pytestmark = pytest.mark.django_db

LARGE = (Message, Delivery, RetryMessage, DeadMessage)


def list_of(model, query=""):
    return reverse(f"admin:ems_{model._meta.model_name}_changelist") + query


def shown(client, url):
    """The ids of the rows in the list."""
    return [row.pk for row in client.get(url).context["cl"].result_list]


def statements(client, url):
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in queries]


def copies(row, count, **changes):
    """More rows like this one, each in a place of its own."""
    fields = {f.attname: getattr(row, f.attname) for f in row._meta.concrete_fields}
    for number in range(count):
        place = {"offset": 50 + number} if "offset" in fields else {}
        type(row).objects.create(**{**fields, **changes, **place, "id": None})


def more_of_everything(world):
    for number in range(3):
        topic = Topic.objects.create(name=f"topic-{number}")
        group = ConsumerGroup.objects.create(topic=topic, name=f"group-{number}")
        topic.partitions.update(next_offset=60)  # above the offsets below
        partition = topic.partitions.get()
        Cursor.objects.create(group=group, partition=partition)
        Consumer.objects.create(client_id="c", group=group, lease_until=UtcNow(LEASE))
        for model in (Delivery, RetryMessage, DeadMessage):
            copies(model.objects.first(), 4, group_id=group.pk, partition_id=partition.pk)
        copies(Message.objects.first(), 4, partition_id=partition.pk)
        Step.objects.create(name=f"step-{number}", last_run_at=UtcNow())
    SystemConfig.objects.create(name="consumerThreads", value=3)


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model.__name__)
def test_the_number_of_statements_does_not_grow_with_the_rows(world, as_role, model):
    client = as_role("operator")
    queries = ["", "?q=orders@0-4", "?q=key-1"]
    for filter_ in REGISTERED[model].list_filter:
        rows = {
            "group": world.billing.pk,
            "partition": world.message.partition_id,
            "topic": world.billing.topic_id,
            "biz": "shop",
            "checker": "payments",
        }
        value = rows.get(filter_.parameter_name) or filter_.options[0][0]
        queries.append(f"?{filter_.parameter_name}={value}")
    before = [len(statements(client, list_of(model, query))) for query in queries]
    more_of_everything(world)
    after = [len(statements(client, list_of(model, query))) for query in queries]
    assert after == before
    # Above the dead letters are the classes of errors, a traceback of each, and the redrives.
    assert max(after) <= (28 if model is DeadMessage else 27)


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model.__name__)
def test_an_empty_database_has_pages_too(db, as_role, model):
    client = as_role("operator")
    response = client.get(list_of(model))
    assert response.status_code == 200
    for query in ("?q=1", "?q=a@1", "?group=1", "?partition=1", "?state=waiting"):
        assert client.get(list_of(model, query)).status_code in (200, 400, 302)


@pytest.mark.parametrize("model", LARGE, ids=lambda model: model.__name__)
def test_a_large_table_is_never_joined_in_its_list(world, as_role, model):
    """In a join the server may begin with the small table, and sort millions of rows."""
    table = model._meta.db_table
    for sql in statements(as_role("operator"), list_of(model)):
        if re.search(rf'FROM [`"]{table}', sql):
            assert "JOIN" not in sql, sql


@pytest.mark.parametrize("model", LARGE, ids=lambda model: model.__name__)
def test_no_order_can_be_asked_for_in_the_url(world, as_role, model):
    client = as_role("operator")
    assert shown(client, list_of(model, "?o=2.-3")) == shown(client, list_of(model))


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model.__name__)
def test_only_the_filters_on_the_page_can_be_asked_for(world, as_role, model):
    client = as_role("operator")
    for field in model._meta.concrete_fields:
        for lookup in (f"{field.name}__contains", f"{field.name}__isnull", f"{field.attname}__gt"):
            assert client.get(list_of(model, f"?{lookup}=1")).status_code == 400, lookup
    assert client.get(list_of(model, "?partition__topic__name=orders")).status_code == 400


@pytest.mark.parametrize("value", ["abc", "-1", "9" * 40, "%00", "1;DROP"])
def test_a_filter_that_makes_no_sense_leads_back_to_the_list(world, as_role, value):
    client = as_role("operator")
    for model in LARGE:
        for name in ("group", "partition", "state", "kind"):
            response = client.get(list_of(model, f"?{name}={value}"))
            assert response.status_code in (302, 400), (model, name)


def test_counts_end_at_a_cap_and_the_page_says_so(world, as_role, monkeypatch):
    client = as_role("operator")
    assert "There may be more" not in client.get(list_of(Message)).text
    monkeypatch.setattr(listing, "COUNT_AT_MOST", 3)
    response = client.get(list_of(Message))
    assert response.context["cl"].result_count == 3
    assert "pages and counts end at 3" in response.text


def test_a_search_reads_only_the_newest_rows_and_says_which(world, as_role, monkeypatch):
    monkeypatch.setattr(MessageAdmin, "searched", 2)
    client = as_role("operator")
    ids = list(Message.objects.order_by("-pk").values_list("pk", flat=True))
    found = client.get(list_of(Message, "?q=key-0"))
    assert [row.pk for row in found.context["cl"].result_list] == []
    assert f"Searched the ids {ids[0] - 1} to {ids[0]}." in found.text
    assert "only the newest rows were read" in found.text
    rows: list[int] = []
    while url := found.context["cl"].older_url:  # on, window after window, by the link on the page
        found = client.get(list_of(Message, url))
        if rows := [row.pk for row in found.context["cl"].result_list]:
            break
    assert rows == [Message.objects.get(offset=0).pk]
    assert found.context["cl"].newest_url == "?q=key-0"


def test_an_id_is_found_wherever_it_is_and_so_is_a_key_of_digits(world, as_role, monkeypatch):
    monkeypatch.setattr(MessageAdmin, "searched", 1)
    client = as_role("operator")
    first = Message.objects.order_by("pk")[0]
    newest = send("orders", 1, key=str(first.pk)).message_id
    assert shown(client, list_of(Message, f"?q={first.pk}")) == [newest, first.pk]


def test_a_place_leads_to_the_message(world, as_role):
    client = as_role("operator")
    message = Message.objects.get(offset=2)
    page = reverse("admin:ems_message_change", args=[message.pk])
    for place in ("orders/0@2", "orders@2", " orders@2 "):
        assert client.get(list_of(Message), {"q": place}).url == page
    rows = list(Message.objects.filter(offset__gte=1, offset__lte=3).order_by("-offset"))
    for place in ("orders@1-3", "orders/0@1–3"):
        response = client.get(list_of(Message), {"q": place})
        assert list(response.context["cl"].result_list) == rows
    assert client.get(list_of(Message), {"q": "orders@77"}).status_code == 200
    assert client.get(list_of(Message), {"q": "nobody@2"}).status_code == 200


def test_a_place_finds_the_deliveries_that_cover_it(world, as_role):
    client = as_role("operator")
    covering = Delivery.objects.filter(first_offset__lte=2, last_offset__gte=2).order_by("-pk")
    assert covering.count() == 3
    found = shown(client, list_of(Delivery, "?q=orders@2"))
    assert found == list(covering.values_list("pk", flat=True))
    assert shown(client, list_of(DeadMessage, "?q=orders@2")) == [
        DeadMessage.objects.get(offset=2).pk
    ]
    assert shown(client, list_of(RetryMessage, "?q=orders@3")) == [
        RetryMessage.objects.get(offset=3).pk
    ]


def test_messages_can_be_told_by_their_state(world, as_role):
    send("orders", "at once")  # not sequenced yet
    client = as_role("operator")
    partition = Partition.objects.get(topic__name="orders").pk
    for query in ("?", f"?partition={partition}&"):
        count = {
            state: len(shown(client, list_of(Message, f"{query}state={state}")))
            for state in ("log", "inbox", "delayed")
        }
        assert count == {"log": 5, "inbox": 2, "delayed": 1}


def test_a_quiet_topic_is_searched_from_its_own_newest_message(world, as_role, monkeypatch):
    monkeypatch.setattr(MessageAdmin, "searched", 3)
    send("quiet", 1, key="rare")
    drain()
    partition = Partition.objects.get(topic__name="quiet").pk
    quiet = Message.objects.get(partition=partition)
    for _ in range(5):
        send("orders", 1)
    client = as_role("operator")
    assert shown(client, list_of(Message, "?q=rare")) == []
    assert shown(client, list_of(Message, f"?q=rare&partition={partition}")) == [quiet.pk]
    fresh = send("quiet", 2, key="rare").message_id  # in the inbox: the search begins there
    monkeypatch.setattr(MessageAdmin, "searched", 1)
    assert shown(client, list_of(Message, f"?q=rare&partition={partition}")) == [fresh]


def test_dead_letters_can_be_told_by_group_state_and_error(world, as_role):
    client = as_role("operator")
    redrive(world.letter)
    group = world.billing.pk
    waiting = list(DeadMessage.objects.waiting().order_by("-pk").values_list("pk", flat=True))
    assert shown(client, list_of(DeadMessage, f"?group={group}&state=waiting")) == waiting
    assert shown(client, list_of(DeadMessage, "?state=redriven")) == [world.letter.pk]
    assert len(shown(client, list_of(DeadMessage, "?q=ValueError"))) == 3
    assert shown(client, list_of(DeadMessage, "?q=TypeError")) == []


def test_the_dead_letters_that_wait_come_first_by_class_of_error(world, as_role):
    client = as_role("operator")
    redrive(world.letter)
    copies(DeadMessage.objects.waiting().first(), 2, error_class="shop.Declined")
    waiting = list(DeadMessage.objects.waiting().order_by("-pk").values_list("pk", flat=True))
    assert shown(client, list_of(DeadMessage)) == waiting
    assert len(shown(client, list_of(DeadMessage, "?state=all"))) == len(waiting) + 1
    page = client.get(list_of(DeadMessage))
    classes = {row["error_class"]: row["count"] for row in page.context["cl"].classes}
    assert classes == {"ValueError": 2, "shop.Declined": 2}
    for row in page.context["cl"].classes:
        assert row["sample"].startswith("Traceback")
        assert f'<a href="{escape(row["url"])}">{row["error_class"]}</a>' in page.text
        assert len(shown(client, row["url"])) == row["count"]
    # Only of the group that was chosen, and none beside a search.
    other = client.get(list_of(DeadMessage, f"?group={world.mail.pk}"))
    assert other.context["cl"].classes == []
    assert client.get(list_of(DeadMessage, "?q=ValueError")).context["cl"].classes == []


def test_the_classes_of_errors_are_counted_among_the_newest_letters(world, as_role, monkeypatch):
    newest, second = DeadMessage.objects.order_by("-pk").values_list("pk", flat=True)[:2]
    monkeypatch.setattr(page_of_letters, "SUMMARISED", newest - second + 1)  # ids may have gaps
    page = as_role("operator").get(list_of(DeadMessage))
    assert [row["count"] for row in page.context["cl"].classes] == [2]
    assert "among the newest" in page.text


def test_every_message_names_its_topic_also_before_it_has_an_offset(world, as_role):
    client = as_role("operator")
    send("orders", "at once")
    page = client.get(list_of(Message, "?state=inbox"))
    places = re.findall(r'<td[^>]*class="field-place">([^<]*)<', page.text)
    assert places == ["orders/0", "orders/0"]
    assert ">in the inbox</span>" in page.text
    assert ">delayed</span>" in page.text
    in_log = client.get(list_of(Message, "?state=log")).text
    assert 'class="field-place">orders/0@4<' in in_log


def test_the_cells_of_a_list_name_their_columns_for_narrow_screens(world, as_role):
    page = as_role("operator").get(list_of(ConsumerGroup)).text
    assert '<td role="cell" data-label="Behind" class="field-behind">' in page
    assert '<th role="rowheader" data-label="Group" class="field-group">' in page
    assert '<td role="cell" data-label="" class="action-checkbox">' in page
    deliveries = as_role("operator").get(list_of(Delivery)).text
    assert '<th role="rowheader" data-label="ID" class="field-id">' in deliveries


def test_the_groups_of_a_topic_are_one_click_away(world, as_role):
    client = as_role("operator")
    Topic.objects.create(name="empty")
    (url, count) = re.findall(
        r'class="field-groups"><span class="ems-number"><a href="([^"]*)">(\d+)<',
        client.get(list_of(Topic)).text,
    )[0]
    assert len(shown(client, url)) == int(count) == 3


def test_the_window_of_a_previewed_action_stays_where_it_was(world, as_role, monkeypatch):
    """New letters must not push the oldest ones out of what was previewed."""
    from tests.admin.test_actions import confirm, preview

    client = as_role("operator")
    letter, last = (DeadMessage.objects.order_by(order)[0] for order in ("pk", "-pk"))
    monkeypatch.setattr(DeadMessageAdmin, "searched", last.pk - letter.pk + 1)
    url = list_of(DeadMessage, "?q=ValueError")
    page = preview(client, "redrive", letter.pk, url=url, select_across="1")
    copies(letter, 3)
    response = confirm(client, page)
    assert response.url == url  # and the list is again that of the newest
    assert DeadMessage.objects.filter(redriven_at=None).count() == 3
    letter.refresh_from_db()
    assert letter.redriven_at


def test_the_window_of_a_previewed_action_stays_if_the_newest_rows_are_gone(
    world, as_role, monkeypatch
):
    """Older letters, which the preview has not counted, must not come into it."""
    from tests.admin.test_actions import confirm, letters, preview

    client = as_role("operator")
    DeadMessage.objects.update(error_class="Broken")
    oldest, newer, newest = letters()
    monkeypatch.setattr(DeadMessageAdmin, "searched", newest - oldest)
    url = list_of(DeadMessage, "?q=Broken&state=waiting")
    page = preview(client, "discard", newer, url=url, select_across="1")
    assert "2 dead letters" in page.text
    DeadMessage.objects.get(pk=newest).discard()  # somebody else
    confirm(client, page, typed="2")
    assert letters() == [oldest]


def test_the_autocomplete_of_the_admin_does_not_search_large_tables(world, as_role):
    url = reverse("admin:autocomplete")
    field = {"app_label": "ems", "model_name": "retrymessage", "field_name": "delivery"}
    assert as_role("operator").get(url, {**field, "term": "x"}).status_code in (403, 404)


def test_every_admin_of_ems_reads_as_its_base_says():
    for model, model_admin in REGISTERED.items():
        assert isinstance(model_admin, StreamsAdmin), model
        assert model_admin.date_hierarchy is None
        assert model_admin.show_full_result_count is False
        assert model_admin.show_facets is admin.ShowFacets.NEVER
        filters: Any = model_admin.list_filter
        assert all(issubclass(filter_, admin.SimpleListFilter) for filter_ in filters), model
