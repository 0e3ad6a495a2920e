"""send() and send_many() beside the INSERT that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, logged_here
from tests.lab.benchmarks.teams import Team, Work

TOPIC = "bench-send"
A_CALL = 100  # messages of one send_many()


def body() -> dict[str, Any]:
    """Return an order that has 1,024 bytes as JSON."""
    item = {"sku": "AB-1234-XL", "name": "Linen shirt, long sleeves", "quantity": 2, "price": 49.9}
    address = {
        "name": "Ada Lovelace",
        "street": "12 St James's Square",
        "postcode": "SW1Y 4JH",
        "city": "London",
        "country": "GB",
    }
    order = {
        "order_id": 123456,
        "customer": {"id": 98765, "name": "Ada Lovelace", "email": "ada@example.com"},
        "currency": "EUR",
        "total": 299.4,
        "paid": True,
        "coupon": None,
        "items": [item] * 2,
        "shipping": address,
    }
    return order | {"note": "x" * (1024 - len(_encoded(order | {"note": ""})))}


def send_figures(options: Options) -> Iterator[Row]:
    """With 1 and with 8 processes, each message a transaction of its own."""
    rounds, units = (3, 100) if options.quick else (15, 250)
    for processes in (1, 8):
        name = f"send, {processes} process{'es' * (processes > 1)}, messages/s"
        yield _compare(name, sender, processes, rounds, units, target=0.8, messages=1)


def send_many_figures(options: Options) -> Iterator[Row]:
    rounds, units = (3, 10) if options.quick else (15, 50)
    name = f"send_many, {A_CALL} a call, messages/s"
    yield _compare(name, many_sender, 1, rounds, units, target=0.7, messages=A_CALL)


def _compare(
    name: str,
    prepare: Callable[[], Work],
    processes: int,
    rounds: int,
    units: int,
    *,
    target: float,
    messages: int,
) -> Row:
    work = prepare()
    work(3)  # the topic is there, the caches are warm
    statements = logged_here(lambda: work(1))
    ours = Team(processes, prepare)
    raw = Team(processes, replayer, statements)
    try:
        return interleaved(
            name,
            lambda: ours.round(units) * messages,
            lambda: raw.round(units) * messages,
            rounds=rounds,
            target=target,
        )
    finally:
        ours.close()
        raw.close()


def sender() -> Work:
    _set_up()
    from streams import send

    order = body()

    def work(units: int) -> None:
        for _ in range(units):
            send(TOPIC, order)

    work(1)
    return work


def many_sender() -> Work:
    _set_up()
    from streams import Outgoing, send_many

    order = body()

    def work(units: int) -> None:
        for _ in range(units):
            send_many([Outgoing(TOPIC, order) for _ in range(A_CALL)])

    work(1)
    return work


def replayer(statements: list[str]) -> Work:
    """Run the same statements, as they are in the log, by mysqlclient only."""
    connection = connect()
    cursor = connection.cursor()

    def work(units: int) -> None:
        for _ in range(units):
            for statement in statements:
                cursor.execute(statement)
                if cursor.description:
                    cursor.fetchall()

    work(1)
    return work


def _set_up() -> None:
    import django

    django.setup()


def _encoded(value: Any) -> bytes:
    from streams.body import encode

    return encode(value)[0]
