"""Real web servers: pulls that are held, clients that are gone, servers that are frozen."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import Error, connection

from streams import send
from streams.errors import StreamsError
from streams.http.client import Client, Unavailable
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, Message, RetryMessage, State, UtcNow
from streams.steps.sweep import sweep
from tests.http.servers import Web
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.sessions import Session

pytestmark = pytest.mark.usefixtures("transactional_db")

StartWeb = Callable[..., Web]
PULL = "/v1/topics/orders/groups/mail/pull"


def pull(client: Client, name: str = "one", **options: Any) -> list[int]:
    """Pull, acknowledge all of it, and return the offsets."""
    found = []
    for delivery in client.pull("orders", "mail", client=name, **{"hold": 5, **options}):
        client.ack(delivery.receipt, [{"offset": one.offset} for one in delivery.messages])
        found += [one.offset for one in delivery.messages]
    return found


def asked(web: Web, name: str = "one", **options: Any) -> socket.socket:
    """Send a pull, and leave its answer to be read later, or never."""
    body = json.dumps({"client": name, "hold": 20, **options})
    lines = [
        f"POST /ems{PULL} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {web.token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *("Connection: close", "", body),
    ]
    connection = socket.create_connection(("127.0.0.1", web.port), timeout=60)
    connection.sendall("\r\n".join(lines).encode())
    return connection


def answered(connection: socket.socket) -> Any:
    """Read the answer that a request on ``connection`` gets."""
    with closing(connection):
        received = b""
        while part := connection.recv(65536):
            received += part
    head, _blank, body = received.partition(b"\r\n\r\n")
    assert b"200" in head.splitlines()[0], head
    if b"chunked" in head.lower():
        body = b"".join(body.split(b"\r\n")[1::2])
    return json.loads(body)


def is_held(name: str) -> bool:
    return Consumer.objects.filter(client_id__endswith=f"@{name}").exists()


@pytest.mark.parametrize(
    "kind",
    [
        "uvicorn",
        "gunicorn sync",
        pytest.param("gunicorn gthread", marks=pytest.mark.exhaustive),
        pytest.param("gunicorn preloaded", marks=[pytest.mark.exhaustive, pytest.mark.mysql]),
    ],
)
def test_send_pull_and_ack(kind: str, web: StartWeb) -> None:
    """Nobody else sequences: neither ems_consume nor beat runs."""
    client = web(kind).client()
    assert client.make_group("orders", "mail")["group"] == "mail"
    client.send("orders", {"number": 1})
    assert wait_for(lambda: pull(client)) == [0]
    assert Delivery.objects.get().state == State.DONE


def test_each_message_wakes_one_client_that_waits(web: StartWeb) -> None:
    server = web()
    client = server.client()
    client.make_group("orders", "mail")
    waiting = [asked(server, name, batch=1) for name in ("one", "two", "three")]
    wait_for(lambda: Consumer.objects.count() == 3)
    for _ in range(3):
        send("orders", 1)
    deliveries = [one for connection in waiting for one in answered(connection)["deliveries"]]
    assert sorted(delivery["first_offset"] for delivery in deliveries) == [0, 1, 2]


@pytest.mark.exhaustive
def test_a_client_that_is_gone_while_it_is_held_gets_nothing(web: StartWeb) -> None:
    server = web()
    client = server.client()
    client.make_group("orders", "mail")
    with asked(server, "gone"):
        wait_for(lambda: is_held("gone"))
    waiting = asked(server, "there")
    wait_for(lambda: is_held("there"))
    send("orders", 1)
    assert answered(waiting)["deliveries"][0]["attempt"] == 1
    assert Delivery.objects.get().client_id.endswith("@there")


@pytest.mark.mysql
def test_what_is_claimed_for_a_client_that_is_gone_is_given_back(
    web: StartWeb, second_connection: Callable[..., Session]
) -> None:
    server = web()
    client = server.client()
    client.make_group("orders", "mail")
    send("orders", 1)
    sequence("default")
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT * FROM ems_cursor FOR UPDATE")
    with asked(server, "gone"):
        wait_for(lambda: _waits_for_a_lock(other))
    time.sleep(0.2)  # the server sees that the connection is closed, and nothing tells of that
    other.execute("COMMIT")
    assert wait_for(lambda: pull(client, "there", timeout=600)) == [0]
    assert Delivery.objects.get(state=State.DONE).attempt == 1
    assert not RetryMessage.objects.exists()


@pytest.mark.exhaustive
def test_an_answer_that_is_lost_spends_an_attempt_at_most(web: StartWeb) -> None:
    """And with its request_id the client gets the same delivery again, while it is held."""
    server = web()
    client = server.client()
    client.make_group("orders", "mail")
    send("orders", 1)
    repeated = partial(client.pull, "orders", "mail", client="one", request_id="request-0001")
    lost = wait_for(repeated)
    assert repeated() == lost
    Delivery.objects.update(deadline=UtcNow(timedelta(seconds=-1)))
    sweep("default")
    assert RetryMessage.objects.get().attempt == 2


@pytest.mark.exhaustive
def test_a_server_that_was_frozen_with_a_hundred_holds_goes_on(web: StartWeb) -> None:
    frozen, other = web(max_holds=200), web()
    client = other.client()
    client.make_group("orders", "mail")
    waiting = [asked(frozen, f"c{n}", hold=6) for n in range(100)]
    wait_for(lambda: Consumer.objects.count() == 100)
    frozen.process.freeze()
    send("orders", 1)
    assert pull(client, "other", hold=20) == [0]  # while the clients of the other server wait
    time.sleep(2)
    send("orders", 2)
    frozen.process.thaw()
    found = [one for connection in waiting for one in answered(connection)["deliveries"]]
    offsets = [delivery["first_offset"] for delivery in found] or pull(client, "other", hold=20)
    assert offsets == [1]
    assert pull(client, "other", hold=0) == []


@pytest.mark.exhaustive
def test_more_requests_than_a_process_holds_are_answered_at_once(web: StartWeb) -> None:
    server = web(max_holds=2)
    client = server.client()
    client.make_group("orders", "mail")
    held = [asked(server, f"c{n}") for n in range(2)]
    wait_for(lambda: Consumer.objects.count() == 2)
    began = time.monotonic()
    answer = answered(asked(server, "third"))
    assert answer == {"deliveries": [], "acks": [], "paused": False, "retry_after": 1}
    assert time.monotonic() - began < 10
    for one in held:
        one.close()

    def is_held_again() -> bool:
        with asked(server, "fourth", hold=1) as connection:
            return answered(connection)["retry_after"] is None

    wait_for(is_held_again)  # those that are gone are not counted any more


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["gunicorn sync", "gunicorn gthread"])
def test_under_wsgi_a_hold_is_short(kind: str, web: StartWeb, ems_settings: Any) -> None:
    ems_settings(HTTP_HOLD_SECONDS_WSGI=0.5, HTTP_INSECURE=True)
    client = web(kind).client()
    client.make_group("orders", "mail")
    began = time.monotonic()
    assert pull(client, hold=20) == []
    assert time.monotonic() - began < 15


@pytest.mark.exhaustive
@pytest.mark.mysql
def test_the_database_may_be_restarted_under_holds(proxied: Proxy, web: StartWeb) -> None:
    client = web().client()
    client.make_group("orders", "mail")
    found: list[Any] = []
    done = threading.Event()
    loop = threading.Thread(
        target=lambda: client.consume(
            "orders", "mail", found.append, client="one", hold=2, stopped=done.is_set
        )
    )
    loop.start()
    try:
        wait_for(lambda: is_held("one"))
        for number in range(2):
            proxied.kill_connections()
            wait_for(partial(_sent, number))
            wait_for(partial(_more_than, number, found))
    finally:
        done.set()
        loop.join()
    assert sorted({message.offset for message in found}) == [0, 1]


def _waits_for_a_lock(session: Session) -> bool:
    time.sleep(0.15)  # what the table says is renewed 0.1 s after it was read
    waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    return bool(session.execute(waits)[0][0])


def _more_than(number: int, found: list[Any]) -> bool:
    return len(found) > number


def _sent(body: Any) -> bool:
    try:
        send("orders", body)
    except (Error, StreamsError):  # its connection was cut
        connection.close()
        return False
    return True


@pytest.mark.exhaustive
@pytest.mark.redis
def test_with_redis_a_message_arrives_long_before_the_next_look(
    web: StartWeb, ems_settings: Any
) -> None:
    ems_settings(REDIS="redis", POLL_SECONDS=30, HTTP_INSECURE=True)
    server = web()
    server.client().make_group("orders", "mail")
    pull(server.client(), hold=0.1)
    waiting = asked(server, "waits")
    wait_for(lambda: is_held("waits"))
    time.sleep(3)  # the poller looks less and less often
    began = time.monotonic()
    send("orders", 1)
    assert len(answered(waiting)["deliveries"]) == 1
    assert time.monotonic() - began < 5


@pytest.mark.exhaustive
def test_a_server_that_is_away_is_unavailable(web: StartWeb) -> None:
    server = web()
    client = server.client()
    server.kill()
    with pytest.raises(Unavailable):
        client.pull("orders", "mail", client="one")


KINDS = ["uvicorn", "gunicorn sync", "gunicorn gthread"]


def head(web: Web, *lines: str, path: str = "/v1/topics/orders/messages") -> socket.socket:
    """Send the head of a request, and nothing of its body."""
    begin = [f"POST /ems{path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    connection = socket.create_connection(("127.0.0.1", web.port), timeout=20)
    connection.sendall("\r\n".join([*begin, *lines, "", ""]).encode())
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(65536).split()[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_is_not_read_before_its_token_and_its_size_are_checked(
    web: StartWeb, kind: str
) -> None:
    """The answer comes though nothing of the body ever does."""
    server = web(kind, "send:mails")
    token = f"Authorization: Bearer {server.token}"
    large, small = (f"Content-Length: {size}" for size in (400_000_000, 1000))
    for lines, status in (
        ([large], 401),
        ([small], 401),
        (["Transfer-Encoding: chunked"], 401),
        ([small, "Authorization: Bearer ems_wrong"], 401),
        ([large, token], 403),  # to another topic
    ):
        with closing(head(server, *lines)) as connection:
            assert status_of(connection) == status, lines
    for path, status in (("/v1/topics/mails/messages", 413), ("/v1/nowhere", 404)):
        with closing(head(server, large, token, path=path)) as connection:
            assert status_of(connection) == status


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_in_chunks_is_taken_up_to_the_limit(web: StartWeb, kind: str) -> None:
    server = web(kind, "send:orders")
    token = f"Authorization: Bearer {server.token}"
    chunked = "Transfer-Encoding: chunked"
    with closing(head(server, chunked, token)) as connection:
        connection.sendall(b'5\r\n{"bod\r\n6\r\ny": 7}\r\n0\r\n\r\n')
        assert status_of(connection) == 201
    assert [bytes(one.body) for one in Message.objects.all()] == [b"7"]
    part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with closing(head(server, chunked, token)) as connection:
        for _part in range(100):  # more than DATA_UPLOAD_MAX_MEMORY_SIZE, and without an end
            connection.sendall(part)
        assert status_of(connection) == 413
