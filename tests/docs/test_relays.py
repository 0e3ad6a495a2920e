"""The code of docs/guides/relays.md does what the page says."""

from __future__ import annotations

import re
import sys
import unittest
from types import ModuleType
from typing import Any

import pytest
from django.test.utils import override_settings

from streams.consume.registry import registrations
from streams.management.commands.ems_relay import Command
from streams.relays import relay as relays
from streams.relays.relay import is_relay
from tests.docs.documents import DOCS, files, table
from tests.hostapp.models import Order

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

GUIDE = DOCS / "guides" / "relays.md"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the files of the page, with the orders of the tests and a broker in memory."""
    modules = {name: ModuleType(name) for name in ("shop", "shop.models", "shop.orders")}
    vars(modules["shop.models"])["Order"] = Order
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    found = files(GUIDE)
    exec(found["shop/orders.py"], vars(modules["shop.orders"]))  # noqa: S102 - of the page
    names: dict[str, Any] = {"__name__": "shop.tests"}
    with override_settings(BROKER_URL="memory://"):
        exec(found["shop/consumers.py"], {})  # noqa: S102
    exec(found["shop/tests.py"], names)  # noqa: S102
    return names


def test_the_relay_of_the_page_publishes_a_paid_order(shop: dict[str, Any]) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(shop["RelayTest"]).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.failures + result.errors


def test_ems_relay_runs_the_relays_and_no_other_group(shop: dict[str, Any]) -> None:
    from streams import consumer

    consumer("orders", group="mail")(lambda message: None)
    assert all(map(is_relay, Command().chosen({"topic": [], "group": []})))
    chosen = [one.group for one in Command().chosen({"topic": [], "group": []})]
    assert chosen == ["relay-shop"]
    assert not list(Command().chosen({"topic": [], "group": ["mail"]}))
    assert len(list(registrations())) == 2


def test_the_arguments_of_the_page_are_those_of_relay() -> None:
    from inspect import signature

    parameters = signature(relays.relay).parameters
    documented = set(table(GUIDE, "Arguments"))
    shared = set(re.findall(r"`(\w+)`", section_line()))
    assert {name.strip("`") for name in documented} | shared == set(parameters)


def section_line() -> str:
    """The line that names the arguments of @consumer."""
    (line,) = re.findall(r"^(.*) are those of \[`@consumer`\]", GUIDE.read_text(), re.MULTILINE)
    return str(line)
