"""A send whose reply is lost says so, whatever else goes wrong at that moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from streams import Outgoing, SendOutcomeUnknown, send, send_many
from streams.models import Message
from streams.produce.insert import CHUNK_ROWS
from tests.proxy import Proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql]

NOBODY_LISTENS = "1"


@pytest.fixture
def away_afterwards(proxied: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The connection that is open goes through ``proxied``; a new one is refused."""
    send("orders", "before")
    connection.ensure_connection()
    with monkeypatch.context() as patch:  # undone before the proxy goes
        patch.setitem(connection.settings_dict, "PORT", NOBODY_LISTENS)
        yield proxied


@pytest.mark.parametrize("statement", [b"INSERT INTO `ems_msg`", b"COMMIT"])
def test_a_list_in_chunks_when_the_server_is_away_right_after(
    away_afterwards: Proxy, statement: bytes
) -> None:
    away_afterwards.lose_reply_to(statement)
    with pytest.raises(SendOutcomeUnknown):
        send_many([Outgoing("orders", n) for n in range(CHUNK_ROWS + 1)])
    assert away_afterwards.fired == [statement]


def test_a_single_send_when_the_server_is_away_right_after(away_afterwards: Proxy) -> None:
    away_afterwards.lose_reply_to(b"INSERT INTO `ems_msg`")
    with pytest.raises(SendOutcomeUnknown):
        send("orders", 1)


def test_the_lost_reply_may_have_been_a_yes(proxied: Proxy) -> None:
    """So nobody may repeat such a send unasked."""
    send("orders", "before")
    proxied.lose_reply_to(b"COMMIT")
    with pytest.raises(SendOutcomeUnknown):
        send_many([Outgoing("orders", n) for n in range(CHUNK_ROWS + 1)])
    assert Message.objects.count() == 1 + CHUNK_ROWS + 1
