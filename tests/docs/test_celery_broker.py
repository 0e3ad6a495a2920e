"""The code of docs/guides/celery-broker.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streams.celery import naming as naming_module
from streams.celery.naming import Naming
from streams.models import DeadMessage, Delivery, Message, State
from tests.docs.documents import DOCS, blocks, files, table
from tests.hostapp.models import Order
from tests.processes import Spawn, wait_for

pytest.importorskip("celery")

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = DOCS / "guides" / "celery-broker.md"

# The project of a reader: as in the first steps of Celery's own documentation.
PROJECT = """\
import os, sys
os.environ["C_FORCE_ROOT"] = "1"  # where tests run as root
sys.path.insert(0, sys.argv[1])
import shop_settings
from celery import Celery
app = Celery("shop")
app.config_from_object(shop_settings, namespace="CELERY")
app.autodiscover_tasks(["shop"], force=True)
from shop.orders import place
from shop.tasks import send_invoice
"""
WORKER = (
    PROJECT
    + """\
app.conf.worker_hijack_root_logger = False
app.worker_main(["worker", "--pool", "solo", "--loglevel", "INFO"])
"""
)


def settings_of_the_page() -> dict[str, Any]:
    """Return what all blocks together set."""
    names: dict[str, Any] = {}
    for text in blocks(PAGE, "python"):
        if text.startswith("# settings.py"):
            exec(text, names)  # noqa: S102 - the block is ours
    return {name: value for name, value in names.items() if name.isupper()}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return the folder with the project of the page."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "models.py").write_text("from tests.hostapp.models import Order\n")
    for name in ("shop/tasks.py", "shop/orders.py"):
        (tmp_path / name).write_text(files(PAGE)[name])
    given = settings_of_the_page()
    lines = [f"{name} = {value!r}\n" for name, value in given.items()]
    (tmp_path / "shop_settings.py").write_text("".join(lines))
    return tmp_path


def test_the_task_of_the_page_runs_if_its_order_is_committed(shop: Path, spawn: Spawn) -> None:
    rolled_back = """
from django.db import transaction
try:
    with transaction.atomic():
        place("rolled back")
        1 / 0
except ZeroDivisionError:
    place("A-7")
"""
    spawn(PROJECT + rolled_back, str(shop)).succeed()
    assert [order.number for order in Order.objects.all()] == ["A-7"]
    worker = spawn(WORKER, str(shop))
    wait_for(lambda: Order.objects.filter(note="invoice sent").exists(), worker.text)
    wait_for(lambda: not Delivery.objects.open().exists(), worker.text)
    assert Message.objects.filter(tag="shop.tasks.send_invoice").count() == 1
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DONE}
    assert not DeadMessage.objects.exists()
    worker.terminate()
    worker.succeed()


def test_delay_in_async_code_raises_an_error(shop: Path, spawn: Spawn) -> None:
    in_async_code = """
import asyncio
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
async def main():
    try:
        send_invoice.delay(1)
    except SynchronousOnlyOperation:
        await sync_to_async(send_invoice.delay)(2)
        print("refused")
asyncio.run(main())
"""
    assert spawn(PROJECT + in_async_code, str(shop)).succeed() == "refused\n"
    assert Message.objects.filter(tag="shop.tasks.send_invoice").count() == 1


def test_the_settings_of_the_page_are_settings_of_celery() -> None:
    from celery.app.defaults import NAMESPACES, flatten

    known = {name.upper() for name, _option in flatten(NAMESPACES)}
    assert {name.removeprefix("CELERY_") for name in settings_of_the_page()} <= known


def test_the_transport_options_are_those_of_the_code() -> None:
    code = Path(naming_module.__file__).read_text()
    documented = table(PAGE, "Transport options")
    assert set(documented) == set(re.findall(r'options\.get\("(\w+)"', code))
    naming = Naming.of(None, {})
    assert documented == {
        "prefix": naming.prefix,
        "priority_steps": str(list(naming.steps)),
    }


def test_the_names_of_topics_are_as_the_page_says() -> None:
    page = PAGE.read_text()
    naming = Naming.of(None, settings_of_the_page()["CELERY_BROKER_TRANSPORT_OPTIONS"])
    for name in (naming.topic("celery"), naming.topic("celery", 7), naming.topic("a@b")):
        assert f"`{name}`" in page
    assert f"`{naming.control}`" in page
