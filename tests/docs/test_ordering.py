"""The example of docs/guides/ordering.md holds a key as the page says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, send_many
from streams.models import HeldKey
from streams.testing import advance, drain
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
    exec(files(ORDERING)["ledger.py"], module)  # noqa: S102 - the code of the page
    send_many([Outgoing("orders", n, key="ann" if n % 2 else "bob") for n in range(6)])
    drain()
    assert posted == [("bob", 0), ("bob", 2), ("bob", 4)]
    assert HeldKey.objects.get().key == "ann"
    advance(timedelta(minutes=1))
    drain()
    assert posted[3:] == [("ann", 1), ("ann", 3), ("ann", 5)]
