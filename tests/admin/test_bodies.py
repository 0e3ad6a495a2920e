"""Bodies: escaped, cut, only for who may see them, and as a file never run by the browser."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from streams import send
from streams.admin.bodies import SHOWN_BYTES
from streams.body import encode, preview
from streams.models import DeadMessage, Message, Topic
from streams.rules.stored_body import to_stored
from streams.testing import drain
from tests.admin.world import SECRET, XSS
from tests.large_bodies import as_sent

pytestmark = pytest.mark.django_db

ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def page(row):
    return reverse(f"admin:ems_{row._meta.model_name}_change", args=[row.pk])


def body(row):
    return reverse(f"admin:ems_{row._meta.model_name}_body", args=[row.pk])


def bodies_read(queries):
    return [q["sql"] for q in queries if re.search(r"""\.[`"]body[`"]""", q["sql"])]


def test_whatever_was_sent_is_escaped_on_every_page(world, as_role):
    client = as_role("operator")
    for url in (
        page(world.message),
        page(world.letter),
        reverse("admin:ems_message_changelist"),
        reverse("admin:ems_deadmessage_changelist"),
        reverse("admin:ems_delivery_changelist"),
        reverse("admin:ems_delivery_changelist") + "?state=RETRY",
        reverse("admin:ems_message_changelist") + f"?q={XSS}",
    ):
        assert XSS not in client.get(url).text, url
    for row in (world.message, world.letter):
        text = client.get(page(row)).text
        assert f"{SECRET} {ESCAPED}" in text
        assert f'{{"trace": "{XSS}"}}'.translate({34: "&quot;", 60: "&lt;", 62: "&gt;"}) in text
    assert f"no account for {ESCAPED}" in client.get(page(world.letter)).text


def test_without_the_permission_a_body_is_neither_shown_nor_sent(world, as_role):
    viewer, reader = as_role("viewer"), as_role("operator")
    for row in (world.message, world.letter):
        text = viewer.get(page(row)).text
        assert "You have no permission to view bodies" in text
        assert SECRET not in text
        assert body(row) not in text
        assert viewer.get(body(row)).status_code == 403
        assert reader.get(body(row)).status_code == 200
    blind = as_role("staff", "ems.view_body")  # bodies, but no page that has them
    assert blind.get(body(world.message)).status_code == 403


def test_without_the_permission_a_body_cannot_be_guessed_by_a_filter(world, as_role):
    client = as_role("viewer")
    for model in ("message", "deadmessage"):
        for lookup in ("body", "body__contains", "body__startswith", "headers__trace", "size__gt"):
            url = reverse(f"admin:ems_{model}_changelist") + f"?{lookup}=1"
            assert client.get(url).status_code == 400, url


def test_a_body_without_the_permission_is_not_even_read(world, as_role):
    client = as_role("viewer")
    for url in (page(world.message), reverse("admin:ems_message_changelist")):
        with CaptureQueriesContext(connection) as queries:
            client.get(url)
        assert not bodies_read(queries)


def test_a_downloaded_body_is_the_body_and_never_a_page(world, as_role):
    client = as_role("operator")
    names = {0: "orders-0-0.json", 2: "orders-0-2.txt", 3: "orders-0-3.bin"}
    for offset, name in names.items():
        message = Message.objects.get(offset=offset)
        response = client.get(body(message))
        assert response.content == bytes(message.body)
        assert response["Content-Disposition"] == f'attachment; filename="{name}"'
        assert response["Content-Type"] == "application/octet-stream"
        assert response["X-Content-Type-Options"] == "nosniff"
    missing = reverse("admin:ems_message_body", args=[10**6])
    assert client.get(missing).status_code == 404


def test_a_name_with_odd_characters_stays_one_header(world, as_role):
    topic = Topic.objects.create(name="a:b-ü")
    send(topic.name, "x")
    message = Message.objects.get(partition__topic=topic)
    header = as_role("operator").get(body(message))["Content-Disposition"]
    assert header.startswith("attachment; filename*=utf-8''a%3Ab-%C3%BC")


def test_a_large_body_is_cut_by_the_server(world, as_role):
    send("orders", "ü" * SHOWN_BYTES)
    drain("mail")
    message = Message.objects.order_by("-offset", "-pk").exclude(offset=None)[0]
    with CaptureQueriesContext(connection) as queries:
        text = as_role("operator").get(page(message)).text
    assert "ü" * (SHOWN_BYTES // 2) + "…" in text
    assert "ü" * (SHOWN_BYTES // 2 + 1) not in text
    assert f"The first {SHOWN_BYTES} of {2 * SHOWN_BYTES} bytes" in text
    (read,) = bodies_read(queries)
    assert "SUBSTR" in read


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"a": [1, "ü"]}, "{\n  &quot;a&quot;: [\n    1,\n    &quot;ü&quot;\n  ]\n}"),
        ("plain & simple", "plain &amp; simple"),
        (b"\x00\xff", "b&#x27;\\x00\\xff&#x27;"),
        ([[]] * 1500, "[[],[],"),  # would be many lines: left as it is
    ],
)
def test_each_type_of_body_is_readable(world, as_role, sent, shown):
    result = send("orders", sent)
    message = Message.objects.get(pk=result.message_id)
    assert shown in as_role("operator").get(page(message)).text


def test_a_body_that_is_not_what_its_type_says_is_shown_all_the_same(world, as_role):
    Message.objects.filter(offset=0).update(body=b'{"half": ' + b"[" * 3000, size=3009)
    DeadMessage.objects.filter(offset=0).update(body=b"\xff\xfe", size=2)
    client = as_role("operator")
    assert "{&quot;half&quot;: [[[" in client.get(page(world.message)).text
    assert "��" in client.get(page(world.letter)).text


@pytest.mark.parametrize(
    "value", [*as_sent(4 * SHOWN_BYTES), "ü" * 3 * SHOWN_BYTES, {"a": "b" * 8000}]
)
def test_a_compressed_body_is_shown_and_downloaded_as_it_was_sent(world, as_role, value):
    raw, body_type = encode(value)
    message = Message.objects.get(pk=send("orders", value).message_id)
    client = as_role("operator")
    text = client.get(page(message)).text
    assert escape(preview(raw, body_type, len(raw), SHOWN_BYTES)) in text
    assert f"The first {SHOWN_BYTES} of {len(raw)} bytes" in text
    assert client.get(body(message)).content == raw


def test_a_damaged_body_is_said_to_be_so(world, as_role):
    """Its page, its download, its edit and its export have the message all the same."""
    client = as_role("operator")
    for row in (world.message, world.letter):
        type(row).objects.filter(pk=row.pk).update(body=b"no zlib", body_type="zjson", size=5000)
        found = client.get(page(row))
        assert found.status_code == 200
        assert "The stored body is damaged: its 5000 bytes cannot be read." in found.text
        assert body(row) not in found.text
        assert "The stored body is damaged." in client.get(body(row), follow=True).text
    edit = reverse("admin:ems_deadmessage_edit", args=[world.letter.pk])
    assert "The stored body is damaged." in client.get(edit, follow=True).text


def test_a_body_that_is_damaged_at_its_end_is_shown_and_not_downloaded(world, as_role):
    raw, stored_type = to_stored(b'["a"]' * 2000, "json")
    Message.objects.filter(pk=world.message.pk).update(
        body=raw[:-1], body_type=stored_type, size=10_000
    )
    client = as_role("operator")
    assert "[&quot;a&quot;]" in client.get(page(world.message)).text
    assert "The stored body is damaged." in client.get(body(world.message), follow=True).text
