"""What is too large: refused where it is sent, cut where a handler made it, and in nobody's way."""

from __future__ import annotations

import pytest

from streams import Outgoing, consumer, send, send_many
from streams.errors import MessageTooLarge
from streams.models import DeadMessage, Delivery, Message, State, SystemConfig
from streams.models.dead import MAX_TEXT
from streams.observe.audit.walk import audit
from streams.runtime_settings import forget
from streams.testing import drain
from tests.rows import nothing_written

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

LIMIT = 1000


@pytest.fixture
def small_messages():
    send("orders", "before")
    SystemConfig.objects.create(name="msgMaxSizeInBytes", value=LIMIT)
    forget()
    yield
    forget()


def headers(size: int) -> dict[str, str]:
    """Headers that have so many bytes as they are stored."""
    return {"a": "x" * (size - len('{"a": ""}'))}


def test_headers_count_towards_the_size_of_a_message(small_messages):
    send("orders", "", headers=headers(LIMIT))
    send("orders", b"x" * 400, headers=headers(LIMIT - 400))
    for body, given in (("", LIMIT + 1), (b"x" * 400, LIMIT - 399)):
        with nothing_written(), pytest.raises(MessageTooLarge, match="1001 bytes"):
            send("orders", body, headers=headers(given))
        with nothing_written(), pytest.raises(MessageTooLarge):
            send_many([Outgoing("orders", 1), Outgoing("orders", body, headers=headers(given))])
    assert Message.objects.count() == 3


@pytest.mark.parametrize("size", [20_000_000, MAX_TEXT + 1])
def test_an_error_of_any_size_becomes_a_dead_letter_with_its_head_and_tail(size):
    """As it is, the server would not take it, and the message would fail the same way for ever."""

    @consumer("orders", group="mail", max_retries=0)
    def handle(message):
        raise ValueError("<head>" + "é" * size + "<tail>")

    send("orders", 1)
    assert drain("mail").dead == 1
    letter = DeadMessage.objects.get()
    for text, head in ((letter.error, "<head>"), (letter.traceback, "Traceback")):
        assert len(text) <= MAX_TEXT + 10
        assert text.startswith(head)
        assert text.rstrip().endswith("<tail>")
        assert "…" in text
    assert len(Delivery.objects.get().error) <= 1000
    assert audit("default") == []


def test_an_error_that_is_not_too_large_is_kept_whole():
    text = "x" * MAX_TEXT

    @consumer("orders", group="mail", max_retries=0)
    def handle(message):
        raise ValueError(text)

    send("orders", 1)
    drain("mail")
    assert DeadMessage.objects.get().error == text
    assert Delivery.objects.get().state == State.RETRY
