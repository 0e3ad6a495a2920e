"""The code of docs/guides/handlers.md does what the page says."""

from __future__ import annotations

import dataclasses
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from django.core import mail

from streams import Outgoing, ReceivedMessage, consumer, send, send_many
from streams.errors import NotSerializable
from streams.testing import drain
from tests.docs.documents import DOCS, files, table
from tests.hostapp.models import Order

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

HANDLERS = DOCS / "guides" / "handlers.md"


class Unavailable(Exception):
    """Raised by the bank of the page."""


class Client:
    """Answers as the stock of the page does."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def post(self, url: str, json: Any) -> Client:
        return self

    def json(self) -> dict[str, Any]:
        return {"place": "A3"}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Provide the modules that the page imports; return what the bank is to raise, if anything."""
    down: dict[str, Any] = {}

    def charge(card: str, total: str) -> None:
        if down:
            raise down["error"]

    contents: dict[str, dict[str, Any]] = {
        "shop": {},
        "shop.bank": {"Unavailable": Unavailable, "charge": charge},
        "shop.models": {"Order": Order},
        "httpx": {"AsyncClient": Client},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return down


def run(file: str, **names: Any) -> dict[str, Any]:
    """Run the block that is this file; return its names."""
    names["__name__"] = file.removesuffix(".py").replace("/", ".")
    exec(files(HANDLERS)[file], names)  # noqa: S102 - the block is ours
    return names


def test_the_handlers_of_one_message(modules: dict[str, Any]) -> None:
    run("shop/consumers.py")
    send_many(
        [
            Outgoing("orders", {"number": "A7"}),
            Outgoing("orders", {"number": "A8", "card": "1", "total": "9.90"}),
        ]
    )
    result = drain("payment")
    assert (result.done, result.dead) == (1, 1)
    modules["error"] = Unavailable()
    send("orders", {"card": "1", "total": "9.90"})
    assert "the bank is closed" in str(drain("payment").errors[0])
    assert drain("mail").done == 2
    assert mail.outbox[0].subject == "Order A7"


def test_the_batch_handler_says_what_has_failed() -> None:
    class Engine:
        def index(self, bodies: list[Any]) -> list[Any]:
            return [ValueError(body) if body == 2 else None for body in bodies]

    run("search/consumers.py", search_engine=Engine())
    send_many([Outgoing("orders", n) for n in range(4)])
    result = drain("search")
    assert (result.done, result.failed) == (3, 1)


def test_the_async_handler_reads_calls_and_sends(modules: dict[str, Any]) -> None:
    run("stock/consumers.py")
    seen = []

    @consumer("reservations", group="board")
    def show(message: ReceivedMessage) -> None:
        seen.append((message.key, message.body))

    Order.objects.create(number="A7")
    send("orders", {"number": "A7"})
    assert (drain().failed, seen) == (0, [("A7", {"place": "A3"})])


def test_the_fields_are_those_of_a_message() -> None:
    named = [
        name for row in table(HANDLERS, "The fields of a message") for name in row.split("`, `")
    ]
    fields = [field.name for field in dataclasses.fields(ReceivedMessage)]
    assert sorted(named) == sorted([*fields, "body"])


ARRIVES: list[tuple[Any, Any]] = [
    ((1, 2), [1, 2]),
    ({7: 0, 1.5: 0, True: 0, None: 0}, {"7": 0, "1.5": 0, "true": 0, "null": 0}),
    (Decimal("9.90"), "9.90"),
    (date(2026, 11, 22), "2026-11-22"),
    (datetime.fromisoformat("2026-11-22T04:36:09.123999+00:00"), "2026-11-22T04:36:09.123Z"),
    (datetime.fromisoformat("2026-11-22T04:36:09.123999").time(), "04:36:09.123"),
    (timedelta(days=1, hours=2), "P1DT02H00M00S"),
    (UUID("6fa459ea-ee8a-3ca4-894e-db77e160355e"), "6fa459ea-ee8a-3ca4-894e-db77e160355e"),
]


@pytest.mark.parametrize(("sent", "arrives"), ARRIVES, ids=[type(a).__name__ for a, _ in ARRIVES])
def test_what_becomes_of_a_body(sent: Any, arrives: Any) -> None:
    seen: list[Any] = []

    @consumer("orders", group="mail")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    send("orders", sent)
    drain()
    assert seen == [arrives]
    text = HANDLERS.read_text()
    assert all(f'"{value}"' in text for value in ([arrives] if isinstance(arrives, str) else ()))


def test_the_text_of_not_serializable_is_as_the_page_says() -> None:
    with pytest.raises(NotSerializable) as caught:
        send("orders", {"order": {"lines": [0, 0, 0, {"tags": {1}}]}})
    assert str(caught.value).rstrip(".") in HANDLERS.read_text()
