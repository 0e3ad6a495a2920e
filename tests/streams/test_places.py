"""A place is read as people write it and as EMS prints it, and what is none is said."""

from __future__ import annotations

import pytest

from streams import Outgoing, send_many
from streams.errors import InvalidPlace
from streams.log.places import LogPlace, message_name, message_named
from streams.log.sequencer import sequence
from streams.models import Message


@pytest.mark.parametrize(
    ("text", "log", "first", "last"),
    [
        ("orders/2@666687", "orders/2", 666687, 666687),
        ("orders/2@666,687", "orders/2", 666687, 666687),
        (" orders/2@666,687, ", "orders/2", 666687, 666687),
        ("orders/2@1.666.687", "orders/2", 1666687, 1666687),
        ("orders/2@1\u202f666\u202f687", "orders/2", 1666687, 1666687),
        ("orders/2@12,34,567", "orders/2", 1234567, 1234567),
        ("orders@5", "orders", 5, 5),
        ("orders/0@12-20", "orders/0", 12, 20),
        ("orders/0@1,200–1,300", "orders/0", 1200, 1300),
        ("orders/0@15 … 20", "orders/0", 15, 20),
        ("orders/\u0663@12", "orders/\u0663", 12, 12),
    ],
)
def test_a_place_is_read_as_it_is_written_and_printed(
    text: str, log: str, first: int, last: int
) -> None:
    assert LogPlace.parse(text) == LogPlace(log, first, last)


@pytest.mark.parametrize(
    "text",
    [
        *("", "orders", "@12", "orders@", "orders/2@1.5", "orders/2@1,5", "orders/2@-3"),
        *("orders/2@x", "orders/2@12,3456", "orders/2@12-", "orders/2@,123"),
    ],
)
def test_what_is_no_place_is_refused_with_the_form_that_is_one(text: str) -> None:
    with pytest.raises(InvalidPlace, match="orders/2@666687"):
        LogPlace.parse(text)
    with pytest.raises(InvalidPlace, match="its id, or its place, such as orders/2@666687"):
        message_name(text)


def test_a_message_has_one_name() -> None:
    assert message_name("1,234") == 1234
    with pytest.raises(InvalidPlace):
        message_name("orders/0@1-2")


@pytest.mark.django_db
def test_a_message_is_found_by_its_id_and_by_its_place() -> None:
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    row = Message.objects.get(offset=1)
    for name in (str(row.pk), "orders/0@1", "orders@1"):
        assert message_named(message_name(name), "default") == row
    for name in (
        "orders/1@1",
        "orders/\u0660@1",
        "flights/0@1",
        "orders/0@3",
        f"orders/0@{2**70}",
        str(2**70),
    ):
        assert message_named(message_name(name), "default") is None
