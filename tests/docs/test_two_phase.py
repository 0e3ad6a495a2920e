"""The code of docs/guides/two-phase.md does what the page says."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from streams import prepared
from streams.models import PreparedState
from streams.testing import checkback as check
from tests.concurrency.locks import wait_until_one_waits
from tests.docs.documents import DOCS, files
from tests.hostapp.models import Order
from tests.preparing import held, pass_time, row, sent_keys
from tests.processes import PATIENCE_SECONDS
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

GUIDE = DOCS / "guides" / "two-phase.md"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, clean_registry: None) -> SimpleNamespace:
    """Run the files of the page, with the orders of the tests."""
    models = ModuleType("shop.models")
    models.Order = Order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    names: dict[str, Any] = {}
    for name in ("shop/consumers.py", "shop/orders.py", "partners/consumers.py"):
        exec(files(GUIDE)[name], names)  # noqa: S102 - of the page
    return SimpleNamespace(**names)


def test_the_example_sends_an_order_and_its_message(page: SimpleNamespace) -> None:
    page.save("A7")
    assert sent_keys() == ["A7"]
    assert row().state == PreparedState.SENT


def test_the_check_back_says_what_became_of_an_order(page: SimpleNamespace) -> None:
    held("A7")
    Order.objects.create(number="A7")
    held("A8")
    pass_time(1)
    result = check()
    assert (result.committed, result.rolled_back) == (1, 1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Order.objects.create(number="A8")  # the transaction that comes too late


@pytest.mark.mysql
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_the_check_back_waits_for_an_open_transaction_of_the_work(
    page: SimpleNamespace, in_thread: Threads, commits: bool
) -> None:
    held("A7")
    pass_time(1)
    with transaction.atomic():
        Order.objects.create(number="A7")
        checking = in_thread(check)
        wait_until_one_waits(str(connection.settings_dict["NAME"]))
        transaction.set_rollback(not commits)
    result = checking.result(PATIENCE_SECONDS)
    assert (result.committed, result.rolled_back) == (commits, not commits)
    assert prepared("shop", "A7").state == ("committed" if commits else "rolled back")
