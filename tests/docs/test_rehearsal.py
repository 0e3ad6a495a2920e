"""The rehearsal of docs/guides/replay.md prints what the page shows."""

from __future__ import annotations

import re
import sys
from io import StringIO
from types import ModuleType

import pytest
from django.core.management import call_command

from streams import Outgoing, Reject, consumer, send_many
from streams.consume import registry
from streams.models import DeadMessage
from streams.testing import drain
from tests.docs.documents import DOCS, blocks, files
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

REPLAY = DOCS / "guides" / "replay.md"


def test_the_example_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    @consumer("orders", group="billing", atomic=True)
    def dies(message: object) -> None:
        raise Reject("as it was before the repair")

    bodies = [{"number": "A7", "total": 100}, {"number": "A8", "total": 100}, {"number": "A9"}]
    send_many([Outgoing("orders", body) for body in bodies])
    assert drain().dead == len(bodies)
    registry._registered.clear()
    models = ModuleType("shop.models")
    vars(models).update(Order=Order)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    exec(files(REPLAY)["billing/consumers.py"], {"__name__": "billing.consumers"})  # noqa: S102 - it is ours
    (console,) = (text for text in blocks(REPLAY, "console") if "rehearse" in text)
    command, expected = console.removeprefix("$ ").split("\n", 1)
    out = StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command(*command.split()[2:], stdout=out, stderr=out)
    text = out.getvalue().replace("default, other", "default")
    for number, pk in enumerate(DeadMessage.objects.order_by("pk").values_list("pk", flat=True)):
        text = re.sub(rf"(?m)^(orders/0@{number} +){pk:,} ", rf"\g<1>{number + 1} ", text)
    assert columns(text) == columns(expected)


def columns(text: str) -> list[list[str]]:
    """Return the words of each line; the seconds of a call are never the same."""
    return [re.sub(r"\b\d\.\d{3}\b", "0.000", line).split() for line in text.strip().split("\n")]
