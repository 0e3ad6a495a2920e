"""The shadow replay of docs/guides/replay.md prints what the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import StringIO
from types import ModuleType

import pytest
from django.core.management import CommandError, call_command

from streams import Outgoing, send_many
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.log.sequencer import sequence
from tests.consuming import registered
from tests.docs.documents import DOCS, blocks, files
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

REPLAY = DOCS / "guides" / "replay.md"
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SWITCH = "git switch tax"
OLD = 'message.body["total"]\n'
NEW = 'message.body["total"] * (119 if message.body["country"] == "DE" else 100) // 100\n'


def deploy(code: str) -> None:
    registry._registered.clear()
    exec(code, {"__name__": "shop.billing"})  # noqa: S102 - the block is ours


def test_the_example_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, ems_settings: Callable[..., None]
) -> None:
    models = ModuleType("shop.models")
    vars(models).update(Order=Order)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    code = files(REPLAY)["shop/billing.py"]
    deploy(code)
    orders = (("A7", "FR"), ("A8", "DE"), ("A9", "FR"))
    bodies = [{"number": number, "total": 100, "country": land} for number, land in orders]
    send_many([Outgoing("orders", body) for body in bodies])
    subscribe(registered("orders", "billing"), "default", "earliest")
    sequence("default")
    (console,) = (text for text in blocks(REPLAY, "console") if "--shadow" in text)
    shown = STEP.findall(console)
    assert len(shown) == 4
    with pytest.raises(CommandError, match="SHADOW_REPLAY"):
        call_command(*shown[0][0].split()[2:], stderr=StringIO())
    ems_settings(SHADOW_REPLAY=True)
    for command, expected in shown:
        if command == SWITCH:
            deploy(code.replace(OLD, NEW))
            continue
        out = StringIO()
        with pytest.raises(SystemExit, match="1") if " diff " in command else nullcontext():
            call_command(*command.split()[2:], stdout=out, stderr=out)
        text = out.getvalue().replace("hostapp_order", "shop_order")
        assert text.replace("default, other", "default") == expected
