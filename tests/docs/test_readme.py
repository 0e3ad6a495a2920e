"""The example of the README does what the README says."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import mail

from streams import send
from streams.models import Message
from streams.testing import drain
from tests.docs.documents import README, ROOT, blocks, files, section
from tests.hostapp.models import Order
from tests.processes import Spawn


def place_order(number: str) -> None:
    """Call the README's function, as a view would."""
    orders = import_module("shop.orders")  # made of the README by the fixture `shop`
    orders.place_order(Order(number=number))


@pytest.mark.django_db(transaction=True)
def test_the_example_mails_an_order_that_was_committed(shop: Path) -> None:
    place_order("A7")
    result = drain()
    assert (result.done, result.failed) == (1, 0)
    assert [m.subject for m in mail.outbox] == ["Order A7"]
    assert Message.objects.get().key == Order.objects.get().number


@pytest.mark.django_db(transaction=True)
def test_the_example_mails_nothing_of_an_order_that_was_rolled_back(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_and_fail(*args: Any, **options: Any) -> None:
        send(*args, **options)
        raise KeyError

    monkeypatch.setattr("shop.orders.send", send_and_fail)
    with pytest.raises(KeyError):
        place_order("A7")
    assert drain().done == 0
    assert mail.outbox == []
    assert not Order.objects.exists()


@pytest.mark.slow
@pytest.mark.every_django
def test_the_command_of_the_example_consumes(
    shop: Path, spawn: Spawn, process_env: dict[str, str]
) -> None:
    python, manage, *words = shlex.split(blocks(README, "console")[0])
    assert (python, manage) == ("python", "manage.py")
    path = os.pathsep.join([str(shop), process_env["PYTHONPATH"]])
    env = {"DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": path}
    spawn.command(*words, "--drain", env=env).succeed()  # the group is there before the order
    place_order("A7")
    spawn.command(*words, "--drain", env=env).succeed()
    (letter,) = (shop / "mail").iterdir()
    assert "Subject: Order A7" in letter.read_text()


def test_the_example_has_eleven_lines() -> None:
    code = "".join(files(README).values())
    assert len([line for line in code.splitlines() if line and line[0] != "#"]) == 11


def test_the_first_screen_says_what_it_is_and_shows_a_picture_and_the_code() -> None:
    screen = "\n".join(README.read_text().splitlines()[:32])
    what, picture, code = (screen.index(one) for one in ("EMS turns", "![", "```python"))
    assert what < picture < code
    assert "ems_consume" in screen


def test_what_the_readme_installs_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = section(README, "Install")
    (extra,) = set(re.findall(r"django-ems\[(\w+)\]", text))
    assert extra in project["optional-dependencies"]
    apps = {"INSTALLED_APPS": list[str]()}
    exec(blocks(README, "python")[2], apps)  # noqa: S102 - the block is ours
    assert set(apps["INSTALLED_APPS"]) <= set(settings.INSTALLED_APPS)
    python = project["requires-python"].removeprefix(">=")
    assert f"Python {python} or newer" in text


def test_the_readme_stays_short() -> None:
    assert len(README.read_text().splitlines()) < 170
