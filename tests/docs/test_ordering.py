"""The examples of docs/guides/ordering.md hold a key, and use lanes, as the page says."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, send_many
from streams.models import HeldKey
from streams.testing import advance, drain
from tests.consuming import Process
from tests.docs.documents import DOCS, files

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

ORDERING = DOCS / "guides" / "ordering.md"


def test_a_failed_message_holds_back_only_those_of_its_key() -> None:
    posted: list[tuple[str, int]] = []
    away = [OSError("the ledger is away")]

    def post_to_ledger(key: str, body: int) -> None:
        if body == 1 and away:
            raise away.pop()
        posted.append((key, body))

    module: dict[str, Any] = {"post_to_ledger": post_to_ledger}
    exec(files(ORDERING)["ledger/consumers.py"], module)  # noqa: S102 - the code of the page
    send_many([Outgoing("orders", n, key="ann" if n % 2 else "bob") for n in range(6)])
    drain()
    assert posted == [("bob", 0), ("bob", 2), ("bob", 4)]
    assert HeldKey.objects.get().key == "ann"
    advance(timedelta(minutes=1))
    drain()
    assert posted[3:] == [("ann", 1), ("ann", 3), ("ann", 5)]


def test_the_keys_of_one_partition_run_side_by_side() -> None:
    together = threading.Barrier(4)  # nobody goes on until four calls run at once
    called: list[tuple[str, int]] = []

    def call_the_carrier(key: str, body: int) -> None:
        together.wait(timeout=20)
        called.append((key, body))

    module: dict[str, Any] = {"call_the_carrier": call_the_carrier}
    exec(files(ORDERING)["parcels/consumers.py"], module)  # noqa: S102 - the code of the page
    send_many([Outgoing("parcels", n, key=str(n % 4)) for n in range(12)])
    Process("carrier").run_until_idle()
    assert sorted(called) == [(str(key), n) for key in range(4) for n in range(key, 12, 4)]
    for key in "0123":
        assert [n for one, n in called if one == key] == list(range(int(key), 12, 4))
