"""A send whose reply is lost says so, whatever else goes wrong at that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from django.db import Error, OperationalError, connection, transaction

from streams import Outgoing, SendOutcomeUnknown, send, send_many
from streams.models import Message
from streams.produce.insert import CHUNK_ROWS
from tests.proxy import Proxy
from tests.sessions import Session

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
    """Only a lost COMMIT leaves it open: what was cut before is not sent."""
    away_afterwards.lose_reply_to(statement)
    unknown = statement == b"COMMIT"
    with pytest.raises(SendOutcomeUnknown if unknown else OperationalError):
        send_many([Outgoing("orders", n) for n in range(CHUNK_ROWS + 1)])
    assert away_afterwards.fired == [statement]


def test_a_list_in_chunks_that_was_cut_before_its_commit_is_not_sent(proxied: Proxy) -> None:
    send("orders", "before")
    proxied.lose_reply_to(b"INSERT INTO `ems_msg`")
    with pytest.raises(OperationalError):
        send_many([Outgoing("orders", n) for n in range(CHUNK_ROWS + 1)])
    assert Message.objects.count() == 1


@pytest.mark.parametrize("many", [False, True], ids=["send", "send_many"])
@pytest.mark.parametrize("dedup_key", [None, "a7"])
def test_a_producer_that_lives_long_sends_again_after_a_lost_connection(
    second_connection: Callable[[], Session], many: bool, dedup_key: str | None
) -> None:
    """Outside a request, nobody but the send itself closes what is lost."""

    def attempt() -> None:
        message = Outgoing("orders", 1, dedup_key=dedup_key)
        send_many([message]) if many else send("orders", 1, dedup_key=dedup_key)

    send("orders", "before")
    session = second_connection()
    session.execute(f"KILL {connection.connection.thread_id()}")
    with pytest.raises((OperationalError, SendOutcomeUnknown)):
        attempt()
    attempt()
    assert Message.objects.count() == 2


def test_inside_a_transaction_a_lost_connection_is_its_owners(
    second_connection: Callable[[], Session],
) -> None:
    """Nothing may be sent on another connection, apart from the rest of the transaction."""
    send("orders", "before")
    session = second_connection()
    with pytest.raises(Error), transaction.atomic():
        session.execute(f"KILL {connection.connection.thread_id()}")
        with suppress(OperationalError):
            send("orders", 1)
        send("orders", 2)
    assert Message.objects.count() == 1


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
