"""Bodies arrive as they were sent: JSON, text and bytes, through the database and back."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streams import ReceivedMessage, body, consumer, send
from streams.errors import NotSerializable
from streams.models import Message, Topic
from streams.testing import drain, sent

pytestmark = pytest.mark.django_db

# Text that UTF-8 can hold: everything but lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner | TEXT) | st.dictionaries(TEXT, inner | TEXT),
)
ALL_BYTES = bytes(range(256))

# One transaction for all examples: what they write is rolled back at the end of the test.
through_the_database = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def exactly(one: object, other: object) -> bool:
    """Equal in type as well, all the way down: 1 is not True, and 0.0 is not -0.0."""
    return repr(one) == repr(other)


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_json_comes_back_as_it_was(value):
    raw, body_type = body.encode(value)
    assert body_type == body.JSON
    assert exactly(value, body.decode(raw, body_type))


@given(JSON | TEXT | st.binary())
@example(ALL_BYTES)
@example("\x00 '\"\\%s %% 😀 \u2028 ä\r\n\t\ufeff")
@example("\ufeff")
@example({"'": "\\", "😀": ["%s", "%(a)s", "\x00", "\u2028"], "": {}})
@example("")
@example(b"")
@example(None)
@example(10**4000)
@example(-0.0)
@through_the_database
def test_a_body_comes_back_from_the_database_as_it_was_sent(value):
    message_id = send("orders", value).message_id
    row = Message.objects.get(pk=message_id)
    assert exactly(value, body.decode(bytes(row.body), row.body_type))
    assert row.size == len(row.body) == len(body.encode(value)[0])


@pytest.mark.parametrize(
    ("value", "body_type", "received"),
    [
        ({"a": [1, None, True]}, "json", {"a": [1, None, True]}),
        (None, "json", None),
        (False, "json", False),
        (0, "json", 0),
        ([], "json", []),
        ("text", "text", "text"),
        ("", "text", ""),
        ("null", "text", "null"),
        ('{"a": 1}', "text", '{"a": 1}'),
        (SafeString("<b>"), "text", "<b>"),
        (b"{}", "bytes", b"{}"),
        (b"", "bytes", b""),
        (ALL_BYTES * 300, "bytes", ALL_BYTES * 300),
        (bytearray(ALL_BYTES), "bytes", ALL_BYTES),
        (memoryview(ALL_BYTES)[10:20], "bytes", ALL_BYTES[10:20]),
        (gettext_lazy("Yes"), "json", "Yes"),
    ],
    ids=repr,
)
def test_a_handler_gets_the_value_that_was_sent(value, body_type, received, clean_registry):
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail")(seen.append)
    send("orders", value)
    assert exactly(received, sent("orders")[0].body)
    assert drain().done == 1
    assert exactly(received, seen[0].body)
    assert seen[0].body_type == body_type == Message.objects.get().body_type
    assert seen[0].size == len(seen[0].raw_body) == Message.objects.get().size


@pytest.mark.parametrize(
    ("value", "received"),
    [
        (datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC), "2026-02-03T04:05:06.789Z"),
        (date(2026, 2, 3), "2026-02-03"),
        (time(4, 5), "04:05:00"),
        (timedelta(hours=1), "P0DT01H00M00S"),
        (Decimal("10.10"), "10.10"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ((1, "a"), [1, "a"]),
    ],
    ids=repr,
)
def test_what_django_can_write_as_json_is_taken(value, received):
    send("orders", {"value": value})
    assert sent("orders")[0].body == {"value": received}


def test_json_is_stored_as_compact_utf_8():
    send("orders", {"name": "Zoë", "n": [1, 2]})
    assert bytes(Message.objects.get().body) == '{"name":"Zoë","n":[1,2]}'.encode()


def test_size_counts_bytes_not_characters():
    send("orders", "😀ä")
    assert Message.objects.get().size == 6


def test_a_body_is_never_pickled():
    class Picklable:
        def __reduce__(self):
            raise AssertionError("pickled")

    with pytest.raises(NotSerializable, match="Picklable"):
        body.encode(Picklable())


def test_keys_that_are_not_text_become_text_as_json_has_it():
    send("orders", {1: "a", None: "b", 2.5: "c"})
    assert sent("orders")[0].body == {"1": "a", "null": "b", "2.5": "c"}


@dataclasses.dataclass
class Line:
    price: int


CIRCLE: dict[str, object] = {"n": 1}
CIRCLE["again"] = [CIRCLE]
DEEP: list[object] = []
for _level in range(100_000):  # Python 3.13 writes thousands
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1}, "body is of the type set: send a list."),
        (
            {"order": {"lines": [0, 0, 0, {"tags": {1}}]}},
            'body["order"]["lines"][3]["tags"] is of the type set: send a list.',
        ),
        ({"Zoë": [(b"x",)]}, 'body["Zoë"][0][0] is of the type bytes: send the bytes as the'),
        ({7: object()}, "body[7] is of the type object: send a dict, a list, text, a number,"),
        ([Topic(name="orders")], "body[0] is of the type Topic: send its primary key and"),
        ([Topic.objects.all()], "body[0] is of the type QuerySet: send a list of its values()."),
        ([iter([1])], "body[0] is of the type list_iterator: send a list."),
        ([1.5, float("nan")], "body[1] is nan: send None, or text."),
        ([time(4, 5, tzinfo=UTC)], "body[0] is of the type time: send its isoformat()."),
        (["a", "\ud800"], "body[1] is '\\ud800': send text that can be encoded as UTF-8."),
        ("\ud800", "body is '\\ud800': send text"),
        ({"a": {(1, 2): 3}}, 'body["a"] has the key (1, 2): keys must be text.'),
        ({"a": {"\ud800": 3}}, "body[\"a\"] has the key '\\ud800': keys must be text."),
        ({"a": CIRCLE}, 'body["a"]["again"][0] contains itself: leave that out.'),
        (DEEP, "The body has more than 64 levels, as in body[0][0]"),
    ],
    ids=range(15),
)
def test_what_cannot_be_written_is_named_with_its_place(value, says):
    with pytest.raises(NotSerializable) as caught:
        body.encode(value)
    assert str(caught.value).startswith(says)


def test_a_body_shared_by_two_places_does_not_contain_itself():
    shared = {"n": 1}
    send("orders", [shared, shared])
    assert sent("orders")[0].body == [shared, shared]
