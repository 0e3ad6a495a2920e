"""The code of docs/guides/tasks.md does what the page says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from tests.docs.documents import DOCS, files, table

pytest.importorskip("streams.contrib.tasks.compat")

from streams.contrib.tasks.batches import end_batches
from streams.contrib.tasks.settings import TaskSettings
from streams.contrib.tasks.task_options import OWN
from streams.testing import drain
from tests.tasks_.conftest import use_tasks, work  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db

PAGE = DOCS / "guides" / "tasks.md"


@pytest.fixture
def shop(
    use_tasks: Callable[..., Any],  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Set TASKS as the page says; return the modules of the page."""
    settings: dict[str, Any] = {}
    exec(files(PAGE)["settings.py"], settings)  # noqa: S102 - the block is ours
    given = settings["TASKS"]["default"]
    use_tasks(QUEUES=given["QUEUES"], OPTIONS=given["OPTIONS"])
    modules = {}
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    for file in ("shop/tasks.py", "shop/month.py", "shop/tests.py"):
        name = file.removesuffix(".py").replace("/", ".")
        module = modules[name] = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(files(PAGE)[file], vars(module))  # noqa: S102 - the block is ours
    return modules


def test_the_tasks_of_the_page_run(shop: dict[str, Any]) -> None:
    tasks = shop["shop.tasks"]
    results = [tasks.send_receipt.enqueue(7), tasks.send_digest.enqueue(), tasks.book.enqueue(1)]
    results += [tasks.sync.enqueue(1, full=True), tasks.export.enqueue(3)]
    assert tasks.sync.enqueue(1, full=True).duplicate
    assert drain().done == 5
    for result in results:
        result.refresh()
    assert {result.status for result in results} == {"SUCCESSFUL"}
    assert results[0].return_value == "sent 7"
    assert tasks.export.get_result(results[4].id).metadata == {"page": 2}


def test_the_batch_of_the_page_ends(shop: dict[str, Any]) -> None:
    shop["shop.month"].close([1, 2])
    assert drain().done == 2
    assert end_batches("default") == 1
    assert drain().done == 1


def test_the_test_of_the_page_passes(shop: dict[str, Any]) -> None:
    shop["shop.tests"].ReceiptTest("test_a_receipt_is_sent").test_a_receipt_is_sent()


def test_the_options_are_those_of_the_code() -> None:
    assert set(table(PAGE, "Options of a task")) == OWN
    known = {one.name for one in fields(TaskSettings)} - {"queues"}
    assert set(table(PAGE, "Options of a backend")) == known
